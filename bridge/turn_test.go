package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// later runs f after d, and joins it before the test ends.
func (w *world) later(d time.Duration, f func()) {
	done := make(chan struct{})
	time.AfterFunc(d, func() {
		defer close(done)
		f()
	})
	w.Cleanup(func() { <-done })
}

// A cancel stops the command, leaves its result, and is answered when all has
// ended.
func TestCancelWithNoTimeout(t *testing.T) {
	each(t, func(w *world, k kind) {
		w.later(2500*time.Millisecond, w.cancel)
		start := time.Now()
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			r, err := call.Exec(ctx, line("lines 1000 1s"))
			if r == nil || !errors.Is(err, context.Canceled) {
				w.Fatalf("Exec: %v, %v", r, err)
			}
			check(w, "the outcome", r.Outcome, terminal.Cancelled)
			check(w, "the output", r.Output, "line 1\nline 2\nline 3\n")
			if err := call.Update(acp.SessionToolCallUpdate{RawOutput: "cancelled"}); err != nil {
				w.Errorf("Update: %v", err)
			}
			check(w, "the status", call.End("", err).Status, acp.ToolCallStatusFailed)
			return acp.PromptResponse{}, err
		})
		check(w, "the rawOutput", w.c.Card("1").RawOutput, any("cancelled"))
		atMost(w, "the cancel", time.Since(start), 3*time.Second)
		check(w, "the session is busy", w.s.Manager().Busy(), false)
	})
}

// An agent that takes no note of a cancel, and never ends its tool calls, is no
// obstacle.
func TestToolEndNeverComes(t *testing.T) {
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			t.ToolCall(card("unseen"))
			t.ToolCall(card("ran")).Exec(ctx, line("echo x"))
			go t.ToolCall(card("runs")).Exec(ctx, line("sleep 1h"))
			time.Sleep(time.Second)
			return done, nil
		})
		for _, id := range []acp.ToolCallId{"unseen", "ran", "runs"} {
			check(w, "the status", w.c.Card(id).Status, acp.ToolCallStatusFailed)
		}
		check(w, "the session is busy", w.s.Manager().Busy(), false)
	})
}

// What begins on a turn that is over fails.
func TestAfterTheTurn(t *testing.T) {
	each(t, func(w *world, k kind) {
		var over *bridge.Turn
		var call *bridge.Call
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			over, call = t, t.ToolCall(card("1"))
			return done, nil
		})
		for _, c := range []*bridge.Call{call, over.ToolCall(card("2"))} {
			if _, err := c.Exec(w.Context(), line("echo x")); !errors.Is(err, terminal.ErrEnded) {
				w.Errorf("Exec: %v", err)
			}
			if _, err := c.StartBackground(w.Context(), line("echo x")); !errors.Is(err, terminal.ErrEnded) {
				w.Errorf("StartBackground: %v", err)
			}
			if err := c.Update(acp.SessionToolCallUpdate{}); !errors.Is(err, terminal.ErrEnded) {
				w.Errorf("Update: %v", err)
			}
			c.End("", nil)
		}
		check(w, "starts", w.starts("echo"), 0)
		check(w, "updates", len(w.updates("2")), 0)
	})
}

// A panic is an error of the turn; the card says failed, and nothing runs on.
func TestPanic(t *testing.T) {
	each(t, func(w *world, k kind) {
		_, err := w.prompt(func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			if _, err := t.ToolCall(card("1")).StartBackground(ctx, line("sleep 1h")); err != nil {
				w.Error(err)
			}
			panic("no good")
		})
		if err == nil || !strings.Contains(err.Error(), "no good") {
			w.Errorf("the prompt is answered %v", err)
		}
		check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusFailed)
		check(w, "the session is busy", w.s.Manager().Busy(), false)

		// So does the end of its goroutine, as a test's Fatal has it.
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			var gone sync.WaitGroup
			gone.Go(func() {
				w.s.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					t.ToolCall(card("2")).StartBackground(ctx, line("sleep 1h"))
					runtime.Goexit()
					return done, nil
				})
			})
			gone.Wait()
			return done, nil
		})
		check(w, "the status", w.c.Card("2").Status, acp.ToolCallStatusFailed)
		check(w, "the session is busy", w.s.Manager().Busy(), false)
	})
}

// A cancel between a background start and its tool-end stops what the model
// never learned of, and what it knows goes on.
func TestCancelBetweenBackgroundStartAndToolEnd(t *testing.T) {
	each(t, func(w *world, k kind) {
		var known, unknown terminal.Terminal
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("server"))
			known, _ = call.StartBackground(ctx, line("lines 1000 1s"))
			call.End("", nil)
			return done, nil
		})
		w.later(2*time.Second, w.cancel)
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			unknown, _ = call.StartBackground(ctx, line("sleep 1h"))
			<-ctx.Done()
			return acp.PromptResponse{}, ctx.Err()
		})
		check(w, "the new one", unknown.Info().Outcome, terminal.Stopped)
		check(w, "the adopted server", known.Info().Outcome, terminal.Running)
		check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusFailed)
	})
}

// A create that is under way at the cancel is waited for, and what comes of it
// is killed and released before the answer.
func TestCancelWhileCreateIsInFlight(t *testing.T) {
	in(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Reply: true, Delay: 2 * time.Second})
		w.later(time.Second, w.cancel)
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			start := time.Now()
			r, err := t.ToolCall(card("1")).Exec(ctx, line("sleep 1h"))
			if r != nil || !errors.Is(err, context.Canceled) {
				w.Errorf("Exec: %v, %v", r, err)
			}
			atMost(w, "Exec", time.Since(start), 1500*time.Millisecond)
			return acp.PromptResponse{}, err
		})
		check(w, "releases", w.c.Count(acp.ClientMethodTerminalRelease), 1)
		check(w, "live in the client", len(live(w.c.Memterm().List())), 0)
		check(w, "started here", w.local.Starts("sleep"), 0)
		if s := w.c.Messages(); s != "" {
			w.Errorf("the agent says %q", s)
		}
	})
}

func live(ts []terminal.Terminal) []terminal.Terminal {
	var all []terminal.Terminal
	for _, t := range ts {
		if !t.Info().Outcome.Ended() {
			all = append(all, t)
		}
	}
	return all
}

// A create that is never answered holds the answer up for no longer than the
// bound, and the message says what is not known.
func TestCancelWithUnansweredCreate(t *testing.T) {
	synctestWorld(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Drop: true})
		w.later(time.Second, w.cancel)
		start := time.Now()
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			_, err := t.ToolCall(card("1")).Exec(ctx, line("sleep 1h"))
			return acp.PromptResponse{}, err
		})
		atMost(w, "the cancel", time.Since(start), time.Second+terminal.SettleTimeout+time.Second)
		contains(w, "what the agent says", w.c.Messages(), "sleep 1h")
		check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusFailed)
		var leak *terminal.LeakError
		if err := w.s.Close(); !errors.As(err, &leak) || len(leak.Leaks) != 1 || leak.Leaks[0].What != acp.ClientMethodTerminalCreate {
			w.Errorf("Close: %v", err)
		}
	})
}

// A command that survives its kill is named in the message, and the answer does
// not wait for it.
func TestCancelOfWhatDoesNotEnd(t *testing.T) {
	synctestWorld(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalKill, Drop: true})
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalRelease, Drop: true})
		w.later(time.Second, w.cancel)
		start := time.Now()
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			r, err := t.ToolCall(card("1")).Exec(ctx, line("sleep 1h"))
			if r == nil || !errors.Is(err, context.Canceled) {
				w.Errorf("Exec: %v, %v", r, err)
			}
			return acp.PromptResponse{}, err
		})
		atMost(w, "the cancel", time.Since(start), time.Second+terminal.SettleTimeout+time.Second)
		w.s.Close()
	})
}

// A cancel that overtakes its prompt is kept for it, once; and not for long.
func TestCancelBeforeItsPrompt(t *testing.T) {
	each(t, func(w *world, k kind) {
		ran := 0
		count := func(context.Context, *bridge.Turn) (acp.PromptResponse, error) {
			ran++
			return done, nil
		}
		w.s.Cancel()
		time.Sleep(50 * time.Millisecond)
		w.must(acp.StopReasonCancelled, count)
		w.must(acp.StopReasonEndTurn, count)
		w.s.Cancel()
		time.Sleep(150 * time.Millisecond)
		w.must(acp.StopReasonEndTurn, count)
		check(w, "turns run", ran, 2)
	})
}

// The cancel of a turn that its context ended comes late, and does not hit the
// next turn.
func TestCancelAfterItsTurn(t *testing.T) {
	each(t, func(w *world, k kind) {
		ctx, cancel := context.WithCancel(w.Context())
		w.later(time.Second, cancel)
		resp, err := w.s.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			<-ctx.Done()
			return acp.PromptResponse{}, ctx.Err()
		})
		if err != nil || resp.StopReason != acp.StopReasonCancelled {
			w.Errorf("the turn is answered %v, %v", resp.StopReason, err)
		}
		w.s.Cancel() // the one that belongs to that turn
		w.must(acp.StopReasonEndTurn, func(context.Context, *bridge.Turn) (acp.PromptResponse, error) { return done, nil })
		w.s.Cancel() // one more
		w.must(acp.StopReasonCancelled, func(context.Context, *bridge.Turn) (acp.PromptResponse, error) { return done, nil })
	})
}

// A cancel ends every open turn of the session, of whose prompts the SDK loses
// all but one, and no other session's.
func TestCancelOfOverlappingTurns(t *testing.T) {
	each(t, func(w *world, k kind) {
		other, err := w.b.Session("other", "/")
		if err != nil {
			w.Fatal(err)
		}
		defer other.Close()
		var all sync.WaitGroup
		turn := func(s *bridge.State, id acp.ToolCallId, want acp.StopReason) {
			all.Go(func() {
				resp, err := s.Turn(context.Background(), func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					t.ToolCall(card(id)).Exec(ctx, line("sleep 10s"))
					return done, nil
				})
				if err != nil || resp.StopReason != want {
					w.Errorf("turn %s is answered %v, %v", id, resp.StopReason, err)
				}
			})
		}
		turn(w.s, "1", acp.StopReasonCancelled)
		turn(w.s, "2", acp.StopReasonCancelled)
		turn(other, "3", acp.StopReasonEndTurn)
		time.Sleep(time.Second)
		w.cancel()
		w.cancel()
		all.Wait()
	})
}

// A cancel that races with the end of the command, its timeout and End has one
// outcome, whatever it is, and nothing is left.
func TestCancelRaces(t *testing.T) {
	each(t, func(w *world, k kind) {
		for i := range 40 {
			delay := 980*time.Millisecond + time.Duration(i)*time.Millisecond
			time.AfterFunc(delay, w.s.Cancel)
			resp, err := w.prompt(func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				var all sync.WaitGroup
				for j, cmd := range []terminal.Command{line("sleep 1s"), {Line: "sleep 1h", Timeout: time.Second}, line("sleep 1h")} {
					call := t.ToolCall(card(acp.ToolCallId(string(rune('a'+i)) + string(rune('a'+j)))))
					if j == 2 {
						time.AfterFunc(time.Second, func() { call.End("", nil) })
					}
					all.Go(func() {
						r, err := call.Exec(ctx, cmd)
						if r == nil && err == nil {
							w.Error("neither a result nor an error")
						}
						if j < 2 {
							call.End("", err)
						}
					})
				}
				all.Wait()
				return done, nil
			})
			if err != nil {
				w.Error(err)
			}
			_ = resp
			time.Sleep(cancelWindow)
			for _, t := range live(w.s.List()) {
				w.s.Kill(t.Info().ID)
			}
		}
	})
}

// cancelWindow is longer than a cancel is kept.
const cancelWindow = 200 * time.Millisecond

// A cancel that the client does not confirm is no end: the answer says so.
func TestCancelIsNotConfirmed(t *testing.T) {
	for name, fault := range map[string][]fakeconn.Fault{
		"never answered": {{Method: "terminal/kill", Drop: true}, {Method: "terminal/release", Drop: true}},
		"nothing done":   {{Method: "terminal/kill", Result: json.RawMessage("{}")}, {Method: "terminal/release", Result: json.RawMessage("{}")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, client, nil)
				for _, f := range fault {
					w.c.Inject(f)
				}
				time.AfterFunc(time.Second, func() { w.c.Cancel(context.Background(), w.id) })
				w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					r, err := t.ToolCall(card("1")).Exec(ctx, line("sleep 1h"))
					if r == nil || r.Outcome != terminal.Cancelled || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "terminal/kill") {
						w.Errorf("Exec: %+v, %v", r, err)
					}
					return done, err
				})
				if words := w.c.Messages(w.id); !strings.Contains(words, "Not confirmed to have ended") {
					w.Errorf("the agent said %q", words)
				}
				w.s.Close()
				w.local.Close()
				w.c.Close() // the client's terminal is the leak that was reported
			})
		})
	}
}

// Closing the session ends its turns as cancelled, and everything that runs.
func TestCloseSession(t *testing.T) {
	each(t, func(w *world, k kind) {
		closed := make(chan struct{})
		sent := 0 // updates, when the close was answered
		time.AfterFunc(2*time.Second, func() {
			defer close(closed)
			if err := w.c.CloseSession(context.Background(), w.id); err != nil {
				w.Error(err)
			}
			sent = w.c.Count("session/update")
		})
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("server"))
			call.StartBackground(ctx, line("sleep 1h"))
			call.End("", nil)
			r, err := t.ToolCall(card("1")).Exec(ctx, line("sleep 1h"))
			if r == nil || err == nil {
				w.Errorf("Exec: %v, %v", r, err)
			}
			time.Sleep(500 * time.Millisecond) // an agent that tidies up
			return done, err
		})
		<-closed
		time.Sleep(time.Second)
		check(w, "updates after the close", w.c.Count("session/update")-sent, 0)
		check(w, "live", len(live(w.local.List()))+len(live(w.c.Memterm().List())), 0)
		if _, err := w.prompt(func(context.Context, *bridge.Turn) (acp.PromptResponse, error) { return done, nil }); err == nil {
			w.Error("a closed session runs a turn")
		}
		if err := w.s.Update(w.Context(), acp.UpdateAgentMessageText("x")); !errors.Is(err, terminal.ErrClosed) {
			w.Errorf("Update: %v", err)
		}
	})
}

// When the connection dies every waiter returns at once, nothing is sent any
// more, and local commands die.
func TestConnectionDiesMidCommand(t *testing.T) {
	each(t, func(w *world, k kind) {
		var r *bridge.Result
		var err, answer error
		over := make(chan time.Time, 1)
		go w.s.Turn(context.Background(), func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			r, err = t.ToolCall(card("1")).Exec(ctx, line("lines 1000 1s"))
			over <- time.Now()
			return done, err
		})
		turn := make(chan struct{})
		go func() {
			defer close(turn)
			_, answer = w.s.Turn(context.Background(), func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				<-ctx.Done()
				return done, nil
			})
		}()
		time.Sleep(2500 * time.Millisecond)
		w.c.Disconnect()
		died := time.Now()
		atMost(w, "the wait of Exec", (<-over).Sub(died), 0)
		if r == nil || !errors.Is(err, terminal.ErrConnectionLost) {
			w.Fatalf("Exec: %v, %v", r, err)
		}
		check(w, "the outcome", r.Outcome, terminal.ConnectionLost)
		<-turn
		if !errors.Is(answer, terminal.ErrConnectionLost) {
			w.Errorf("the turn is answered %v", answer)
		}
		if err := w.b.Close(); err != nil {
			w.Error(err)
		}
		check(w, "live here", len(live(w.local.List())), 0)
		lines := len(w.c.Lines())
		if err := w.s.Update(w.Context(), acp.UpdateAgentMessageText("x")); err == nil {
			w.Error("an update to a dead client succeeded")
		}
		if _, err := w.s.Turn(w.Context(), func(context.Context, *bridge.Turn) (acp.PromptResponse, error) { return done, nil }); err == nil {
			w.Error("a turn of a dead client ran")
		}
		check(w, "lines sent to the dead", len(w.c.Lines())-lines, 0)
	})
}

// A cancel and the answer to create may come at the same instant; whichever is
// first, the command ends, its terminal is released and the card is final.
func TestCancelAsCreateIsAnswered(t *testing.T) {
	in(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Reply: true, Delay: time.Second})
		for i := range 50 {
			id := acp.ToolCallId(fmt.Sprint(i))
			w.later(time.Second, w.s.Cancel)
			w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				if _, err := t.ToolCall(card(id)).Exec(ctx, line("sleep 1h")); !errors.Is(err, context.Canceled) {
					w.Errorf("Exec: %v", err)
				}
				return done, nil
			})
			check(w, "the status", w.c.Card(id).Status, acp.ToolCallStatusFailed)
			check(w, "live in the client", len(live(w.c.Memterm().List())), 0)
		}
	})
}
