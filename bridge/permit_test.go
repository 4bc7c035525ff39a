package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// A user answers questions.
type user struct {
	mu sync.Mutex
	// guards following
	asked  []acp.RequestPermissionRequest
	answer func(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error)
}

func (u *user) permission(ctx context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	u.mu.Lock()
	u.asked = append(u.asked, req)
	answer := u.answer
	u.mu.Unlock()
	return answer(ctx, req)
}

// questions returns what the user was asked.
func (u *user) questions() []acp.RequestPermissionRequest {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]acp.RequestPermissionRequest(nil), u.asked...)
}

// selects is a user who takes the option of this kind.
func selects(kind acp.PermissionOptionKind) *user {
	return &user{answer: func(_ context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
		for _, o := range req.Options {
			if o.Kind == kind {
				return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(o.OptionId)}, nil
			}
		}
		return acp.RequestPermissionResponse{}, errors.New("there is no such option")
	}}
}

// eachUser is each with a user who is asked.
func eachUser(t *testing.T, u func() *user, f func(w *world, k kind, u *user)) {
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			u := u()
			k.client.Permission = u.permission
			in(t, k, nil, func(w *world) { f(w, k, u) })
		})
	}
}

// ask is a tool call that runs its command if it may.
func ask(ctx context.Context, t *bridge.Turn, id acp.ToolCallId, key, command string) (*bridge.Result, error) {
	c := card(id)
	c.RawInput = map[string]any{"command": command}
	call := t.ToolCall(c)
	r, err := (*bridge.Result)(nil), call.Permit(ctx, key)
	if err == nil {
		r, err = call.Exec(ctx, line(command))
	}
	call.End("", err)
	return r, err
}

// A refused command runs nowhere, and its card says why.
func TestPermissionRefused(t *testing.T) {
	t.Parallel()
	eachUser(t, func() *user { return selects(acp.PermissionOptionKindRejectOnce) }, func(w *world, k kind, u *user) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			if _, err := ask(ctx, t, "1", "echo", "echo x"); !errors.Is(err, bridge.ErrDenied) {
				w.Errorf("Permit: %v", err)
			}
			call := t.ToolCall(card("2"))
			if err := call.Permit(ctx, ""); !errors.Is(err, bridge.ErrDenied) {
				w.Errorf("Permit: %v", err)
			}
			check(w, "the status", call.End("", nil).Status, acp.ToolCallStatusFailed)
			return done, nil
		})
		for _, id := range []acp.ToolCallId{"1", "2"} {
			seen := w.c.Card(id)
			check(w, "the status", seen.Status, acp.ToolCallStatusFailed)
			check(w, "the text", seen.Text, "the user did not allow it")
			check(w, "terminals in the card", len(seen.Terminals), 0)
		}
		check(w, "starts", w.starts("echo"), 0)
		check(w, "terminal requests", w.terminalRequests(), 0)
		asked := u.questions()
		check(w, "questions", len(asked), 2)
		check(w, "the title", *asked[0].ToolCall.Title, "call 1")
		check(w, "the status in the question", *asked[0].ToolCall.Status, acp.ToolCallStatusPending)
		check(w, "the command in the question", asked[0].ToolCall.RawInput.(map[string]any)["command"], any("echo x"))
		check(w, "options with a key", len(asked[0].Options), 3)
		check(w, "options without one", len(asked[1].Options), 2)
	})
}

// Who has allowed a command always is not asked again, in this session and for
// this command.
func TestPermissionAllowAlways(t *testing.T) {
	t.Parallel()
	eachUser(t, func() *user { return selects(acp.PermissionOptionKindAllowAlways) }, func(w *world, k kind, u *user) {
		turn := func(ids ...acp.ToolCallId) turn {
			return func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				for _, id := range ids {
					if _, err := ask(ctx, t, id, "echo x", "echo x"); err != nil {
						w.Error(err)
					}
				}
				return done, nil
			}
		}
		w.must(acp.StopReasonEndTurn, turn("1", "2"))
		w.must(acp.StopReasonEndTurn, turn("3"))
		check(w, "questions", len(u.questions()), 1)
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			ask(ctx, t, "4", "echo y", "echo y")
			return done, nil
		})
		check(w, "questions", len(u.questions()), 2)
		other, err := w.b.Session("other", "/work")
		if err != nil {
			w.Fatal(err)
		}
		other.Turn(w.Context(), turn("5"))
		check(w, "questions", len(u.questions()), 3)
		check(w, "starts", w.starts("echo"), 5)
		if err := other.Close(); err != nil {
			w.Error(err)
		}
	})
}

// Who has allowed a command once is asked again.
func TestPermissionAllowOnce(t *testing.T) {
	t.Parallel()
	eachUser(t, func() *user { return selects(acp.PermissionOptionKindAllowOnce) }, func(w *world, k kind, u *user) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			for _, id := range []acp.ToolCallId{"1", "2"} {
				if r, err := ask(ctx, t, id, "echo", "echo x"); err != nil || r.Output != "x\n" {
					w.Errorf("%+v, %v", r, err)
				}
			}
			return done, nil
		})
		check(w, "questions", len(u.questions()), 2)
		check(w, "the status", w.c.Card("2").Status, acp.ToolCallStatusCompleted)
	})
}

// A cancel closes the question: the client does as it must, and answers it
// before the turn is answered; nothing runs, and the answer is cancelled.
func TestPermissionPendingAtCancel(t *testing.T) {
	t.Parallel()
	eachUser(t, func() *user {
		return &user{answer: func(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
			time.Sleep(1100 * time.Millisecond) // 100 ms after the cancel
			return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
		}}
	}, func(w *world, k kind, u *user) {
		w.later(time.Second, w.cancel)
		start := time.Now()
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			_, err := ask(ctx, t, "1", "echo", "echo x")
			if !errors.Is(err, context.Canceled) {
				w.Errorf("Permit: %v", err)
			}
			return done, err
		})
		check(w, "the answer's time", time.Since(start), 1100*time.Millisecond)
		check(w, "starts", w.starts("echo"), 0)
		check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusFailed)
		check(w, "the text", w.c.Card("1").Text, "Cancelled.")
		check(w, "requests cancelled", w.c.Count("$/cancel_request"), 0)
	})
}

// A client that leaves a question open after a cancel is told that nobody waits,
// and holds nothing up; what the user says then counts for nothing.
func TestPermissionNeverAnswered(t *testing.T) {
	t.Parallel()
	eachUser(t, func() *user {
		return &user{answer: func(ctx context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
			<-ctx.Done() // the agent cancelled the request
			return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected("allow_always")}, nil
		}}
	}, func(w *world, k kind, u *user) {
		w.later(time.Second, w.cancel)
		start := time.Now()
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			t.ToolCall(card("1")).Permit(ctx, "echo")
			return done, nil
		})
		atMost(w, "the cancel", time.Since(start), 2*time.Second)
		check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusFailed)
		time.Sleep(time.Second)
		check(w, "requests cancelled", w.c.Count("$/cancel_request"), 1)

		// So does a wait that its own context ends, and the end of the Call.
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := t.ToolCall(card("2")).Permit(short, "echo"); !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("Permit: %v", err)
			}
			call := t.ToolCall(card("3"))
			w.later(time.Second, func() {
				check(w, "the status", call.End("never mind", nil).Status, acp.ToolCallStatusFailed)
			})
			if err := call.Permit(ctx, "echo"); !errors.Is(err, terminal.ErrEnded) {
				w.Errorf("Permit: %v", err)
			}
			return done, nil
		})
		check(w, "questions", len(u.questions()), 3)
	})
}

// Where nobody can be asked, the caller is told so, and decides.
func TestPermissionWithoutTheMethod(t *testing.T) {
	t.Parallel()
	eachUser(t, func() *user {
		return &user{answer: func(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
			return acp.RequestPermissionResponse{}, acp.NewMethodNotFound(acp.ClientMethodSessionRequestPermission)
		}}
	}, func(w *world, k kind, u *user) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			if _, err := ask(ctx, t, "1", "echo", "echo x"); !errors.Is(err, errors.ErrUnsupported) {
				w.Errorf("Permit: %v", err)
			}
			return done, nil
		})
		contains(w, "the text", w.c.Card("1").Text, "the user cannot be asked")
		check(w, "starts", w.starts("echo"), 0)
	})
	// A connection without the method is asked nothing at all.
	c := fakeconn.New(&fakeconn.Options{NoTerminal: true})
	b := bridge.New(struct{ acpterm.Conn }{c.Conn()}, c.Init(), &bridge.Options{Local: inMemory})
	id, err := c.NewSession(t.Context(), "/work")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := b.Session(id, "/work")
	s.Turn(t.Context(), func(ctx context.Context, turn *bridge.Turn) (acp.PromptResponse, error) {
		if _, err := ask(ctx, turn, "1", "echo", "echo x"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Permit: %v", err)
		}
		return done, nil
	})
	check(t, "questions", c.Count(acp.ClientMethodSessionRequestPermission), 0)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A client may answer with the kind of an option, in place of its id.
func TestPermissionByKind(t *testing.T) {
	t.Parallel()
	for answer, starts := range map[acp.PermissionOptionId]int{"allow_once": 1, "reject_once": 0, "reject_always": 0, "Allow": 0, "": 0} {
		eachUser(t, func() *user {
			return &user{answer: func(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
				return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(answer)}, nil
			}}
		}, func(w *world, k kind, u *user) {
			w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				_, err := ask(ctx, t, "1", "echo", "echo x")
				switch {
				case answer == "reject_once" && !errors.Is(err, bridge.ErrDenied),
					starts == 0 && answer != "reject_once" && !errors.Is(err, acpterm.ErrBadReply),
					starts == 1 && err != nil:
					w.Errorf("%q: %v", answer, err)
				}
				return done, nil
			})
			check(w, string(answer)+": starts", w.starts("echo"), starts)
		})
	}
}

// A reply that makes no sense allows nothing.
func TestPermissionBadReply(t *testing.T) {
	t.Parallel()
	eachUser(t, func() *user {
		return &user{answer: func(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
			return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected("whatever")}, nil
		}}
	}, func(w *world, k kind, u *user) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			if _, err := ask(ctx, t, "1", "echo", "echo x"); err == nil {
				w.Error("an option that was not offered allows a command")
			}
			return done, nil
		})
		check(w, "starts", w.starts("echo"), 0)
	})
}

// A reply without an outcome of the protocol's allows nothing, and is not taken for
// the end of the turn.
func TestPermissionWithoutAnOutcome(t *testing.T) {
	t.Parallel()
	for _, result := range []any{
		map[string]any{}, []any{}, true, "allow",
		map[string]any{"outcome": "cancelled"}, map[string]any{"outcome": "allow"}, map[string]any{"outcome": []any{}},
		map[string]any{"outcome": map[string]any{}},
		map[string]any{"outcome": map[string]any{"optionId": "allow"}},
		map[string]any{"outcome": map[string]any{"outcome": "approved", "optionId": "allow"}},
		map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": []any{"allow"}}},
		map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": 0}},
	} {
		eachUser(t, func() *user { return selects(acp.PermissionOptionKindAllowOnce) }, func(w *world, k kind, u *user) {
			w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodSessionRequestPermission, Reply: true, Result: result})
			w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				if _, err := ask(ctx, t, "1", "echo", "echo x"); !errors.Is(err, acpterm.ErrBadReply) {
					w.Errorf("%v: %v", result, err)
				}
				return done, nil
			})
			check(w, "starts", w.starts("echo"), 0)
		})
	}
}

// What the user allows when nobody waits any more counts for nothing: not this
// time, and not always.
func TestPermissionInTheGrace(t *testing.T) {
	t.Parallel()
	eachUser(t, func() *user {
		u := selects(acp.PermissionOptionKindAllowAlways)
		at := u.answer
		u.answer = func(ctx context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
			time.Sleep(time.Second + 500*time.Millisecond) // half of the grace
			return at(ctx, req)
		}
		return u
	}, func(w *world, k kind, u *user) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			for range 2 {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				if err := t.ToolCall(card(acp.ToolCallId(fmt.Sprint(len(u.questions()))))).Permit(short, "key"); !errors.Is(err, context.DeadlineExceeded) {
					w.Errorf("Permit: %v", err)
				}
			}
			return done, nil
		})
		check(w, "questions", len(u.questions()), 2)
	})
}

// A question without a key cannot be allowed always, whatever the client answers.
func TestPermissionAlwaysWithoutAKey(t *testing.T) {
	t.Parallel()
	eachUser(t, func() *user {
		return &user{answer: func(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
			return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected("allow_always")}, nil
		}}
	}, func(w *world, k kind, u *user) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			for _, id := range []acp.ToolCallId{"1", "2"} {
				if _, err := ask(ctx, t, id, "", "echo x"); !errors.Is(err, acpterm.ErrBadReply) {
					w.Errorf("Permit: %v", err)
				}
			}
			// With a key the same answer is one that was offered.
			if _, err := ask(ctx, t, "3", "key", "echo x"); err != nil {
				w.Errorf("Permit: %v", err)
			}
			return done, nil
		})
		check(w, "questions", len(u.questions()), 3)
		check(w, "starts", w.starts("echo"), 1)
	})
}

// What the user is asked about hides nothing: control and bidirectional characters
// are spelled out in the title and in every value, and a cut is marked.
func TestPermissionHidesNothing(t *testing.T) {
	t.Parallel()
	const hidden, shown = "git status\u202e\r\x1b[2Krm -rf /", `git status\u202e\r\x1b[2Krm -rf /`
	eachUser(t, func() *user { return selects(acp.PermissionOptionKindRejectOnce) }, func(w *world, k kind, u *user) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			c := card("1")
			c.Title = hidden + "\nand more"
			c.RawInput = map[string]any{"command": hidden, "env": map[string]string{"A" + hidden: "line 1\nline 2\t" + hidden}, "argv": []string{hidden}}
			t.ToolCall(c).Permit(ctx, "")
			t.ToolCall(c).Permit(ctx, "") // refused: it is open
			c = card("2")
			c.RawInput = map[string]any{"command": hidden + strings.Repeat("x", 50_000)}
			call := t.ToolCall(c)
			if err := call.Update(acp.SessionToolCallUpdate{Title: new(hidden)}); err != nil {
				w.Error(err)
			}
			call.Permit(ctx, "")
			if err := w.s.Update(ctx, acp.UpdateAgentMessageText("line 1\r\nline 2\n"+hidden)); err != nil {
				w.Error(err)
			}
			call.End(hidden, nil)
			return done, nil
		})
		asked := u.questions()
		check(w, "questions", len(asked), 2)
		check(w, "the title", *asked[0].ToolCall.Title, shown+`\nand more`)
		raw := asked[0].ToolCall.RawInput.(map[string]any)
		check(w, "the command", raw["command"], any(shown))
		check(w, "the environment", raw["env"].(map[string]any)["A"+shown], any("line 1\nline 2\t"+shown))
		check(w, "the words", raw["argv"].([]any)[0], any(shown))
		check(w, "the title", *asked[1].ToolCall.Title, shown)
		contains(w, "a long command", asked[1].ToolCall.RawInput.(map[string]any)["command"].(string), "bytes cut ...]")
		check(w, "the message", w.c.Messages(), "line 1\r\nline 2\n"+shown)
		for id, title := range map[acp.ToolCallId]string{"1": shown + `\nand more`, "2": shown} {
			check(w, "the title in the card", w.c.Card(id).Title, title)
		}
		contains(w, "the text", w.c.Card("2").Text, shown)
	})
}
