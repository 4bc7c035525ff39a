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
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// Two equal commands at once have a card and a terminal each.
func TestEqualCommandsInParallel(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		var ids sync.Map
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			var both sync.WaitGroup
			for _, id := range []acp.ToolCallId{"1", "2"} {
				both.Go(func() {
					call := t.ToolCall(card(id))
					r, err := call.Exec(ctx, line("lines 3 1s"))
					if err != nil {
						w.Error(err)
						return
					}
					check(w, "the output", r.Output, "line 1\nline 2\nline 3\n")
					ids.Store(r.ID, id)
					if r.TerminalID != "" {
						ids.Store("client's "+r.TerminalID, id)
					}
					call.End("", err)
				})
			}
			both.Wait()
			return done, nil
		})
		n := 0
		ids.Range(func(any, any) bool { n++; return true })
		check(w, "ids", n, map[bool]int{true: 4, false: 2}[k.presentation == bridge.PresentClient])
		check(w, "starts", w.starts("lines"), 2)
		for _, id := range []acp.ToolCallId{"1", "2"} {
			seen := w.c.Card(id)
			check(w, "the status", seen.Status, acp.ToolCallStatusCompleted)
			check(w, "times line 3 is shown", strings.Count(seen.Visible(), "line 3"), 1)
		}
	})
}

// A client may end a prompt by $/cancel_request instead of session/cancel: that
// is a cancel, and the next prompt knows nothing of it.
func TestPromptRequestIsCancelled(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		var r *bridge.Result
		over := make(chan struct{})
		w.mu.Lock()
		w.turns["to be cancelled"] = func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			defer close(over)
			var err error
			r, err = t.ToolCall(card("1")).Exec(ctx, line("lines 1000 1s"))
			return done, err
		}
		w.mu.Unlock()
		ctx, cancel := context.WithCancel(context.Background())
		w.later(2500*time.Millisecond, cancel)
		if _, err := w.c.Prompt(ctx, w.id, "to be cancelled"); err == nil {
			w.Error("a prompt request that was cancelled succeeded")
		}
		<-over
		time.Sleep(time.Second)
		check(w, "requests cancelled", w.c.Count("$/cancel_request"), 1)
		check(w, "the outcome", r.Outcome, terminal.Cancelled)
		check(w, "the output", r.Output, "line 1\nline 2\nline 3\n")
		check(w, "commands that live", w.lives(), 0)
		check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusFailed)
		w.run("2", line("echo x"))
		check(w, "the status", w.c.Card("2").Status, acp.ToolCallStatusCompleted)
	})
}

// A cancel inside the SDK's handler returns at once: what follows it on the wire
// is handled while the client takes its time to kill.
func TestCancelInsideTheHandler(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalKill, Delay: time.Second})
		w.later(time.Second, w.cancel)
		start := time.Now()
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			_, err := t.ToolCall(card("1")).Exec(ctx, line("sleep 1h"))
			return done, err
		})
		// A handler that waited for the kill would hold every answer of the client
		// back until a bound ends it.
		atMost(w, "the cancel", time.Since(start), 3*time.Second)
		check(w, "commands that live", w.lives(), 0)
	})
}

// However often a turn is cancelled, and by whom, it has one answer, and the
// next turn is none of its business.
func TestCancelManyTimes(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		for i := range 10 {
			id := acp.ToolCallId(fmt.Sprint(i))
			w.later(time.Second, func() {
				var all sync.WaitGroup
				for range 10 {
					all.Go(w.s.Cancel)
					all.Go(w.cancel)
				}
				all.Wait()
			})
			w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				_, err := t.ToolCall(card(id)).Exec(ctx, line("sleep 1h"))
				return done, err
			})
			time.Sleep(200 * time.Millisecond) // a late one is for a turn that begins now
			w.run("after "+id, line("echo x"))
			check(w, "the status", w.c.Card(id).Status, acp.ToolCallStatusFailed)
			check(w, "the status", w.c.Card("after "+id).Status, acp.ToolCallStatusCompleted)
		}
		check(w, "commands that live", w.lives(), 0)
	})
}

// Cancel meets a client that is slow to answer a read of the output, or a
// release, and a command that has just ended: one final status, nothing left.
func TestCancelDuringOutputAndRelease(t *testing.T) {
	t.Parallel()
	for _, method := range []string{acp.ClientMethodTerminalOutput, acp.ClientMethodTerminalRelease, acp.ClientMethodTerminalWaitForExit, acp.ClientMethodTerminalKill} {
		t.Run(method, func(t *testing.T) {
			in(t, client, nil, func(w *world) {
				w.c.Inject(fakeconn.Fault{Method: method, Reply: true, Delay: 700 * time.Millisecond})
				for i := range 30 {
					id := acp.ToolCallId(fmt.Sprint(i))
					w.later(time.Duration(i)*50*time.Millisecond, w.s.Cancel)
					w.prompt(func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
						call := t.ToolCall(card(id))
						r, err := call.Exec(ctx, line("after 500ms echo x"))
						if r == nil && err == nil {
							w.Error("neither a result nor an error")
						}
						call.End("", err)
						return done, nil
					})
					if s := w.c.Card(id).Status; i > 5 && s != acp.ToolCallStatusCompleted && s != acp.ToolCallStatusFailed {
						w.Errorf("the status is %q", s)
					}
					if n := w.lives(); n != 0 {
						w.Errorf("%d: %d commands live after the answer", i, n)
						break
					}
					time.Sleep(2 * time.Second)
				}
			})
		})
	}
}

// What arrives after its turn was answered is killed and released, and never
// shows in the turn that is open then.
func TestLateArrivalsStayOut(t *testing.T) {
	t.Parallel()
	in(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Reply: true, N: 1, Delay: 10 * time.Second})
		w.later(time.Second, w.cancel)
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			_, err := t.ToolCall(card("old")).Exec(ctx, line("sleep 1h"))
			return done, err
		})
		answered := len(w.c.Lines())
		contains(w, "what the agent says", w.c.Messages(), "sleep 1h")
		r, _, err := w.run("new", line("sleep 20s")) // the late answer comes meanwhile
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(time.Second)
		check(w, "releases", w.c.Count(acp.ClientMethodTerminalRelease), 2)
		check(w, "commands that live", w.lives(), 0)
		for _, l := range w.c.Lines()[answered:] {
			if l.From == fakeconn.Agent && l.Method == acp.ClientMethodSessionUpdate && !strings.Contains(l.Raw, `"toolCallId":"new"`) {
				w.Errorf("an update of the old turn: %s", l.Raw)
			}
		}
		seen := w.c.Card("new").Terminals
		if len(seen) != 1 || seen[0].ID != r.TerminalID {
			w.Errorf("the new card shows %+v, want %s alone", seen, r.TerminalID)
		}
		check(w, "terminals in the old card", len(w.c.Card("old").Terminals), 0)
	})
	// So is what is started on a turn that is over, by an agent that takes no note.
	each(t, func(w *world, k kind) {
		var call *bridge.Call
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call = t.ToolCall(card("old"))
			return done, nil
		})
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			if _, err := call.Exec(ctx, line("echo x")); !errors.Is(err, terminal.ErrEnded) {
				w.Errorf("Exec: %v", err)
			}
			return done, nil
		})
		check(w, "starts", w.starts("echo"), 0)
		check(w, "updates", len(w.updates("old")), 2)
	})
}

// A second turn beside an open one takes nothing from it. A second prompt cancels
// the first, and that turn alone.
func TestOverlappingPrompts(t *testing.T) {
	t.Parallel()
	play := func(w *world, overlap func(first, second turn)) {
		play := func(id acp.ToolCallId, command string) turn {
			return func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				call := t.ToolCall(card(id))
				_, err := call.Exec(ctx, line(command))
				call.End("", err)
				return done, err
			}
		}
		overlap(play("first", "lines 6 1s"), play("second", "lines 3 1s"))
		contains(w, "what the user sees", w.c.Card("second").Visible(), "line 3")
		check(w, "the second's status", w.c.Card("second").Status, acp.ToolCallStatusCompleted)
		check(w, "commands that live", w.lives(), 0)
	}
	each(t, func(w *world, k kind) {
		play(w, func(first, second turn) { // two turns of the agent's own making
			var all sync.WaitGroup
			for _, f := range []turn{first, second} {
				all.Go(func() {
					if resp, err := w.s.Turn(context.Background(), f); err != nil || resp.StopReason != acp.StopReasonEndTurn {
						w.Errorf("the turn is answered %v, %v", resp.StopReason, err)
					}
				})
			}
			all.Wait()
			w.c.Sync(context.Background())
		})
		contains(w, "what the user sees", w.c.Card("first").Visible(), "line 6")
	})
	each(t, func(w *world, k kind) {
		play(w, func(first, second turn) { // two requests
			var all sync.WaitGroup
			all.Go(func() { w.must(acp.StopReasonCancelled, first) })
			time.Sleep(1500 * time.Millisecond)
			all.Go(func() { w.must(acp.StopReasonEndTurn, second) })
			all.Wait()
		})
		contains(w, "what the user sees", w.c.Card("first").Visible(), "line 2")
	})
}
