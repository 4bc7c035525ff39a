package bridge_test

import (
	"context"
	"errors"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// attach begins a tool call as an agent with cards of its own does.
func (w *world) attach(t *bridge.Turn, id acp.ToolCallId, cmd terminal.Command) (*bridge.Call, bridge.Card) {
	w.Helper()
	call, must := t.Attach(id, cmd)
	w.send(acp.SessionUpdate{ToolCall: &acp.SessionUpdateToolCall{
		ToolCallId: id, Title: "mine", Kind: acp.ToolKindExecute,
		Status: must.Status, Content: must.Content, Meta: must.Meta,
	}})
	return call, must
}

// finish sends the end of the agent's own card, unless that was done.
func (w *world) finish(id acp.ToolCallId, end bridge.End) {
	w.Helper()
	if !end.Sent {
		w.send(acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{
			ToolCallId: id, Status: &end.Status, Content: end.Content, RawOutput: end.RawOutput, Meta: end.Meta,
		}})
	}
}

// send sends an update as the agent does, past the bridge.
func (w *world) send(u acp.SessionUpdate) {
	w.Helper()
	if err := w.c.Conn().SessionUpdate(context.Background(), acp.SessionNotification{SessionId: w.id, Update: u}); err != nil {
		w.Error(err)
	}
}

// An agent that sends its own cards has them show the same: the terminal or the
// text, live, and one final status, its own.
func TestAttach(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		cmd := line("lines 5 1s")
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call, must := w.attach(t, "1", cmd)
			check(w, "the presentation", must.Presentation, k.presentation)
			w.later(2500*time.Millisecond, func() { contains(w, "what the user sees", w.c.Card("1").Visible(), "line 2") })
			r, err := call.Exec(ctx, cmd)
			if err != nil {
				w.Fatal(err)
			}
			check(w, "the presentation", r.Presentation, k.presentation)
			if err := call.Update(acp.SessionToolCallUpdate{RawOutput: r.Output}); err != nil {
				w.Error(err)
			}
			end := call.End("", err)
			check(w, "it was sent", end.Sent, false)
			check(w, "the status before the agent's word", w.c.Card("1").Status, acp.ToolCallStatusInProgress)
			w.finish("1", end)
			return done, nil
		})
		seen := w.c.Card("1")
		check(w, "the title", seen.Title, "mine")
		check(w, "the status", seen.Status, acp.ToolCallStatusCompleted)
		check(w, "the rawOutput", seen.RawOutput, any("line 1\nline 2\nline 3\nline 4\nline 5\n"))
		contains(w, "what the user sees", seen.Visible(), "line 5")
		check(w, "terminals in the card", len(seen.Terminals), map[bool]int{true: 0, false: 1}[k.presentation == bridge.PresentText])
	})
}

// The output of a background command goes on in the agent's card, and its
// display terminal ends with it.
func TestAttachBackground(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		cmd := line("lines 5 1s")
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call, _ := w.attach(t, "1", cmd)
			if _, err := call.StartBackground(ctx, cmd); err != nil {
				w.Error(err)
			}
			w.finish("1", call.End("it runs", nil))
			return done, nil
		})
		check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusCompleted)
		time.Sleep(10 * time.Second)
		seen := w.c.Card("1").Visible()
		if k.presentation == bridge.PresentText {
			contains(w, "what the user sees", seen, "it runs")
		} else {
			contains(w, "what the user sees", seen, "line 5")
		}
	})
}

// What goes wrong leaves the agent a truthful end to send: a bad command, a
// refused one, a client without the method.
func TestAttachFailures(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			bad := terminal.Command{Line: "echo x", Environment: "nowhere"}
			call, _ := w.attach(t, "1", bad)
			_, err := call.Exec(ctx, bad)
			w.finish("1", call.End("", err))
			return done, nil
		})
		check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusFailed)
		contains(w, "the text", w.c.Card("1").Text, "nowhere")
	})
	in(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, N: 1, Error: &acp.RequestError{Code: -32603, Message: "not here"}})
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Error: acp.NewMethodNotFound(acp.ClientMethodTerminalCreate)})
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			for _, id := range []acp.ToolCallId{"denied", "fallback"} {
				call, must := w.attach(t, id, line("echo hello"))
				check(w, "the presentation", must.Presentation, bridge.PresentClient)
				_, err := call.Exec(ctx, line("echo hello"))
				w.finish(id, call.End("", err))
			}
			return done, nil
		})
		contains(w, "the text", w.c.Card("denied").Text, "not here")
		check(w, "the status", w.c.Card("denied").Status, acp.ToolCallStatusFailed)
		contains(w, "what the user sees", w.c.Card("fallback").Visible(), "hello")
		check(w, "the status", w.c.Card("fallback").Status, acp.ToolCallStatusCompleted)
		check(w, "starts", w.starts("echo"), 1)
	})
}

// A turn that ends before an attached Call does gives its card the final status,
// and what End returns says so.
func TestAttachNeverEnded(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.later(1500*time.Millisecond, w.cancel)
		var call *bridge.Call
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			cmd := line("lines 100 1s")
			call, _ = w.attach(t, "1", cmd)
			if _, err := call.Exec(ctx, cmd); !errors.Is(err, context.Canceled) {
				w.Errorf("Exec: %v", err)
			}
			t.Attach("unused", cmd) // and never told of
			return done, nil
		})
		seen := w.c.Card("1")
		check(w, "the status", seen.Status, acp.ToolCallStatusFailed)
		contains(w, "what the user sees", seen.Visible(), "line 2")
		end := call.End("late", nil)
		check(w, "it was sent", end.Sent, true)
		check(w, "the status", end.Status, acp.ToolCallStatusFailed)
		check(w, "updates of what was never told of", len(w.updates("unused")), 0)

		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			t.ToolCall(card("2"))
			for _, id := range []acp.ToolCallId{"2", ""} {
				c, _ := t.Attach(id, line("echo x"))
				if _, err := c.Exec(ctx, line("echo x")); err == nil {
					w.Errorf("a tool call with the id %q was attached", id)
				}
			}
			return done, nil
		})
	})
}

// A method that fails is one that was called: the agent has told the client of its
// card, which gets its final status.
func TestAttachMethodsThatFail(t *testing.T) {
	t.Parallel()
	bad := terminal.Command{Line: "echo x", Environment: "nowhere"}
	for what, use := range map[string]func(ctx context.Context, call *bridge.Call) error{
		"Exec": func(ctx context.Context, call *bridge.Call) error { _, err := call.Exec(ctx, bad); return err },
		"StartBackground": func(ctx context.Context, call *bridge.Call) error {
			_, err := call.StartBackground(ctx, bad)
			return err
		},
		"Exec under an ended ctx": func(ctx context.Context, call *bridge.Call) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := call.Exec(ctx, line("echo x"))
			return err
		},
		"Permit under an ended ctx": func(ctx context.Context, call *bridge.Call) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return call.Permit(ctx, "")
		},
		"Update": func(_ context.Context, call *bridge.Call) error {
			if err := call.Update(acp.SessionToolCallUpdate{RawOutput: "held until the end"}); err != nil {
				return err
			}
			return context.Canceled
		},
	} {
		t.Run(what, func(t *testing.T) {
			each(t, func(w *world, k kind) {
				w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					call, _ := w.attach(t, "1", line("echo x"))
					if use(ctx, call) == nil {
						w.Errorf("%s did not fail", what)
					}
					return done, nil
				})
				check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusFailed)
			})
		})
	}
}
