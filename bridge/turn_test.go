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
	"github.com/termbridge/termbridge/internal/limits"
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	synctestWorld(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Drop: true})
		w.later(time.Second, w.cancel)
		start := time.Now()
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			_, err := t.ToolCall(card("1")).Exec(ctx, line("sleep 1h"))
			return acp.PromptResponse{}, err
		})
		atMost(w, "the cancel", time.Since(start), time.Second+limits.SettleTimeout+time.Second)
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
	t.Parallel()
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
		atMost(w, "the cancel", time.Since(start), time.Second+limits.SettleTimeout+time.Second)
		w.s.Close()
	})
}

// sent sends a prompt that is f, and returns once it is on the wire with a
// function that expects its answer.
func (w *world) sent(f turn) (expect func(want acp.StopReason)) {
	w.Helper()
	before := w.c.Count(acp.AgentMethodSessionPrompt)
	answered := make(chan struct{})
	var resp acp.PromptResponse
	var err error
	go func() {
		defer close(answered)
		resp, err = w.prompt(f)
	}()
	for w.c.Count(acp.AgentMethodSessionPrompt) == before {
		runtime.Gosched() // in no time
	}
	return func(want acp.StopReason) {
		w.Helper()
		<-answered
		if err != nil || resp.StopReason != want {
			w.Errorf("the prompt is answered %q, %v; want %q", resp.StopReason, err, want)
		}
	}
}

// command is a prompt that runs one command.
func (w *world) command(id acp.ToolCallId, text string) turn {
	return func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		call := t.ToolCall(card(id))
		_, err := call.Exec(ctx, line(text))
		call.End("", err)
		return done, err
	}
}

// A cancel that the client sent before a prompt does not touch it, however close
// they are, over a slow link, and whatever the agent's Cancel does before it
// cancels the session's turns.
func TestInterruptAndSend(t *testing.T) {
	t.Parallel()
	for _, latency := range []time.Duration{0, 50 * time.Millisecond} {
		for _, work := range []time.Duration{0, time.Millisecond, time.Second} {
			t.Run(fmt.Sprint(latency, work), func(t *testing.T) {
				over(t, latency, func(w *world) {
					w.onCancel = func() { time.Sleep(work) }
					for i := range 10 {
						first, second := acp.ToolCallId(fmt.Sprint("first ", i)), acp.ToolCallId(fmt.Sprint("second ", i))
						interrupted := w.sent(w.command(first, "sleep 1h"))
						time.Sleep(time.Second)
						w.cancel()
						if i%2 == 1 {
							w.cancel() // Stop is pressed twice
						}
						sent := w.sent(w.command(second, "echo x"))
						interrupted(acp.StopReasonCancelled)
						sent(acp.StopReasonEndTurn)
						check(w, "the first card", w.c.Card(first).Status, acp.ToolCallStatusFailed)
						check(w, "the second card", w.c.Card(second).Status, acp.ToolCallStatusCompleted)
					}
				})
			})
		}
	}
}

// over runs f with every kind of client, behind a link with this latency.
func over(t *testing.T, latency time.Duration, f func(w *world)) {
	for _, k := range kinds {
		k.client.Latency = latency
		t.Run(string(k.presentation), func(t *testing.T) { in(t, k, nil, f) })
	}
}

// A cancel that finds no turn open cancels none, and not the next one either.
func TestCancelWithNothingOpen(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, w.command("1", "echo x"))
		w.cancel()
		w.must(acp.StopReasonEndTurn, w.command("2", "echo x"))
		w.s.Cancel()
		w.must(acp.StopReasonEndTurn, w.command("3", "echo x"))
		check(w, "commands run", w.starts("echo"), 3)
	})
}

// A cancel right behind its prompt counts, even if the agent has not begun its
// turn yet.
func TestCancelRightBehindItsPrompt(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		for _, late := range []time.Duration{time.Millisecond, time.Second} {
			w.onPrompt = func() { time.Sleep(late) }
			answer := w.sent(func(context.Context, *bridge.Turn) (acp.PromptResponse, error) {
				w.Error("the turn runs")
				return done, nil
			})
			w.cancel()
			answer(acp.StopReasonCancelled)
		}
	})
}

// A cancel that comes while the turn settles counts.
func TestCancelOfASettlingTurn(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		answer := w.sent(func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			go t.ToolCall(card("1")).Exec(ctx, line("ignore-term 1h"))
			time.Sleep(100 * time.Millisecond)
			return done, nil
		})
		time.Sleep(500 * time.Millisecond)
		w.cancel()
		answer(acp.StopReasonCancelled)
	})
}

// Of overlapping prompts the newest wins, whatever their number.
func TestNewestPromptWins(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		var answers []func(acp.StopReason)
		for i := range 4 {
			answers = append(answers, w.sent(w.command(acp.ToolCallId(fmt.Sprint(i)), "sleep 2s")))
			time.Sleep(600 * time.Millisecond)
		}
		for _, answer := range answers[:3] {
			answer(acp.StopReasonCancelled)
		}
		answers[3](acp.StopReasonEndTurn)
		check(w, "the last card", w.c.Card("3").Status, acp.ToolCallStatusCompleted)
	})
}

// The ctx of a turn ends it as a cancel does, and no cancel of the session that
// comes later hits the next turn.
func TestEndOfTheContext(t *testing.T) {
	t.Parallel()
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
		w.s.Cancel()
		w.must(acp.StopReasonEndTurn, func(context.Context, *bridge.Turn) (acp.PromptResponse, error) { return done, nil })
	})
}

// A cancel ends every open turn of the session, and no other session's.
func TestCancelOfOverlappingTurns(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
			time.Sleep(200 * time.Millisecond) // a late one is for a turn that begins now
			for _, t := range live(w.s.List()) {
				w.s.Stop(t.Info().ID)
			}
		}
	})
}

// Of a command that its timeout ended, and that no End has taken note of, the turn's
// answer says that nobody has confirmed it.
func TestTimeoutIsNotConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t, client, nil)
		w.c.Inject(fakeconn.Fault{Method: "terminal/kill", Drop: true})
		w.c.Inject(fakeconn.Fault{Method: "terminal/release", Drop: true})
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			cmd := line("sleep 1h")
			cmd.Timeout = time.Second
			if r, err := t.ToolCall(card("1")).Exec(ctx, cmd); r == nil || r.Outcome != terminal.TimedOut {
				w.Errorf("Exec: %+v, %v", r, err)
			}
			return done, nil
		})
		contains(w, "the message", w.c.Messages(w.id), "Not confirmed to have ended")
		w.s.Close()
		w.local.Close()
		w.c.Close() // the client's terminal is the leak that was reported
	})
}

// A cancel that the client does not confirm is no end: the answer says so.
func TestCancelIsNotConfirmed(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
