package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A gate is a connection whose writes of updates block while it is shut, as they
// do when the client does not read; in fake time.
type gate struct {
	*acp.AgentSideConnection
	mu   sync.Mutex
	shut chan struct{} // nil: open
}

func (g *gate) SessionUpdate(ctx context.Context, n acp.SessionNotification) error {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return g.AgentSideConnection.SessionUpdate(ctx, n)
}

// close makes writes block until open. One update is being written then.
func (g *gate) close(w *world) {
	g.mu.Lock()
	g.shut = make(chan struct{})
	g.mu.Unlock()
	go w.s.Update(context.Background(), acp.UpdateAgentMessageText("blocks"))
	synctest.Wait()
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

// gated runs f with clients of every kind, in whose connection there is a gate.
func gated(t *testing.T, u *user, f func(w *world, k kind, g *gate)) {
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			if u != nil {
				k.client.Permission = u.permission
			}
			synctest.Test(t, func(t *testing.T) {
				w := &world{T: t, local: memterm.New(&memterm.Options{Programs: fakeconn.Programs()})}
				w.c = fakeconn.New(&k.client)
				g := &gate{AgentSideConnection: w.c.Conn()}
				w.b = bridge.New(g, w.c.Init(), &bridge.Options{Local: func(acp.SessionId) terminal.Manager { return w.local }})
				id, err := w.c.NewSession(t.Context(), "/work")
				if err == nil {
					w.id = id
					w.s, err = w.b.Session(id, "/work")
				}
				if err != nil {
					t.Fatal(err)
				}
				f(w, k, g)
				w.close()
			})
		})
	}
}

// turnOf runs f as a turn, past the wire.
func (w *world) turnOf(f func(ctx context.Context, t *bridge.Turn)) {
	w.Helper()
	if _, err := w.s.Turn(w.Context(), func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		f(ctx, t)
		return done, nil
	}); err != nil {
		w.Error(err)
	}
	time.Sleep(time.Second) // until what is queued is written
	if err := w.c.Sync(w.Context()); err != nil {
		w.Error(err)
	}
}

// statuses returns the statuses of a tool call in the order in which they were
// written.
func (w *world) statuses(id acp.ToolCallId) (all []string) {
	for _, u := range w.updates(id) {
		if s, ok := u["status"].(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// A tool_call is never taken back from a client that does not read, nor is what
// later updates build on: when it reads again it gets all, in order.
func TestToolCallIsNotTakenBack(t *testing.T) {
	t.Parallel()
	gated(t, selects(acp.PermissionOptionKindAllowOnce), func(w *world, k kind, g *gate) {
		w.turnOf(func(ctx context.Context, t *bridge.Turn) {
			g.close(w)
			permit := t.ToolCall(card("permit"))
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := permit.Permit(short, ""); !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("Permit: %v", err)
			}
			update := t.ToolCall(card("update"))
			for _, title := range []string{"first", "second"} {
				start := time.Now()
				if err := update.Update(acp.SessionToolCallUpdate{Title: &title}); err == nil {
					w.Error("an update that nobody reads was written")
				}
				check(w, "Update took", time.Since(start), limits.SettleTimeout)
			}
			g.open()
			if r, err := update.Exec(ctx, line("echo x")); err != nil || r.Output != "x\n" {
				w.Errorf("%+v, %v", r, err)
			}
			update.End("", nil)
			permit.End("", nil)
		})
		check(w, "the title", w.c.Card("update").Title, "second")
		check(w, "the status", w.c.Card("update").Status, completed)
		check(w, "the status", w.c.Card("permit").Status, acp.ToolCallStatusFailed)
		for _, id := range []acp.ToolCallId{"permit", "update"} {
			check(w, "the first update", w.updates(id)[0]["sessionUpdate"], any("tool_call"))
		}
	})
}

// What is queued is not changed by what comes later.
func TestQueuedStatusStays(t *testing.T) {
	t.Parallel()
	gated(t, selects(acp.PermissionOptionKindAllowOnce), func(w *world, k kind, g *gate) {
		w.turnOf(func(ctx context.Context, t *bridge.Turn) {
			call := t.ToolCall(card("1"))
			call.Update(acp.SessionToolCallUpdate{Title: new("title")})
			g.close(w)
			var all sync.WaitGroup
			all.Go(func() {
				if err := call.Permit(ctx, ""); err != nil {
					w.Errorf("Permit: %v", err)
				}
			})
			synctest.Wait()
			all.Go(func() { call.Exec(ctx, line("echo x")) })
			synctest.Wait()
			g.open()
			all.Wait()
			call.End("", nil)
		})
		want := []string{"in_progress", "pending", "in_progress", "completed"}
		if got := w.statuses("1"); !slices.Equal(got, want) {
			w.Errorf("the statuses are %v, want %v", got, want)
		}
	})
}

// A release waits for the update that embeds its terminal. At its bound the
// terminal is taken out of what is still queued, and the text stands for it.
func TestReleaseAndQueuedEmbeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shut time.Duration
		late bool // the Call ends when the release has given up
	}{{time.Second, true}, {5500 * time.Millisecond, true}, {20 * time.Second, true}, {20 * time.Second, false}} {
		shut := c.shut
		t.Run(fmt.Sprint(shut, c.late), func(t *testing.T) {
			gated(t, nil, func(w *world, k kind, g *gate) {
				if k.presentation != bridge.PresentClient {
					return // nothing is released
				}
				w.turnOf(func(ctx context.Context, t *bridge.Turn) {
					call := t.ToolCall(card("1"))
					call.Update(acp.SessionToolCallUpdate{Title: new("title")})
					g.close(w)
					w.later(shut, g.open)
					if _, err := call.Exec(ctx, line("echo hello")); err != nil {
						w.Error(err)
					}
					if c.late {
						time.Sleep(10 * time.Second)
					}
					go call.Update(acp.SessionToolCallUpdate{Title: new("late")})
					synctest.Wait()
					call.End("", nil)
				})
				time.Sleep(time.Minute)
				embed, release := -1, -1
				for i, l := range w.c.Lines() {
					switch {
					case l.Method == acp.ClientMethodSessionUpdate && embed < 0 && strings.Contains(l.Raw, `"type":"terminal"`):
						embed = i
					case l.Method == acp.ClientMethodTerminalRelease && release < 0:
						release = i
					}
				}
				seen := w.c.Card("1")
				check(w, "the title", seen.Title, "late")
				check(w, "the status", seen.Status, completed)
				contains(w, "what the user sees", seen.Visible(), "hello")
				if shut < 20*time.Second && (embed < 0 || embed > release) {
					w.Errorf("the embed is line %d, the release line %d", embed, release)
				}
				if shut >= 20*time.Second && embed >= 0 {
					w.Errorf("the terminal is embedded in line %d, and released in %d", embed, release)
				}
			})
		})
	}
}

// A session that is closed sends nothing more, whatever is under way.
func TestNothingAfterClose(t *testing.T) {
	t.Parallel()
	gated(t, nil, func(w *world, k kind, g *gate) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				for j := 0; ; j++ {
					r := bridge.Record{ToolCallID: acp.ToolCallId(fmt.Sprint(i, "-", j)), Status: completed, Ran: true, Output: "hello\n"}
					if err := w.s.Replay(w.Context(), r); err != nil {
						if !errors.Is(err, terminal.ErrClosed) && !errors.Is(err, bridge.ErrUnread) {
							w.Errorf("Replay: %v", err)
						}
						return
					}
					if err := w.s.Update(w.Context(), acp.UpdateAgentMessageText("x")); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		if err := w.s.Close(); err != nil {
			w.Error(err)
		}
		n := w.c.Count(acp.ClientMethodSessionUpdate)
		all.Wait()
		time.Sleep(time.Minute)
		check(w, "updates after Close", w.c.Count(acp.ClientMethodSessionUpdate)-n, 0)
		for _, seen := range w.c.Cards() {
			check(w, "the status", seen.Status, completed)
		}
	})
}

// What a client has not read when its session is closed is not sent any more.
func TestCloseTakesBackWhatIsNotRead(t *testing.T) {
	t.Parallel()
	gated(t, nil, func(w *world, k kind, g *gate) {
		g.close(w)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := w.s.Update(w.Context(), acp.UpdateAgentMessageText("x")); !errors.Is(err, bridge.ErrUnread) {
					w.Errorf("Update: %v", err)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		if err := w.s.Close(); err != nil {
			w.Error(err)
		}
		atMost(w, "Close", time.Since(start), limits.SettleTimeout)
		g.open()
		all.Wait()
		time.Sleep(time.Minute)
		check(w, "what was written", w.c.Messages(), "blocks")
	})
}

// A record that could not be sent in time is no open card for ever.
func TestReplayThatIsNotRead(t *testing.T) {
	t.Parallel()
	gated(t, nil, func(w *world, k kind, g *gate) {
		g.close(w)
		start := time.Now()
		r := bridge.Record{ToolCallID: "1", Status: completed, Ran: true, Output: "hello\n"}
		if err := w.s.Replay(w.Context(), r); !errors.Is(err, bridge.ErrUnread) {
			w.Errorf("Replay: %v", err)
		}
		check(w, "Replay took", time.Since(start), limits.SettleTimeout)
		g.open()
		time.Sleep(time.Second)
		check(w, "the status", w.c.Card("1").Status, completed)
	})
}

// While a record is being replayed, no tool call with its id begins, and the other
// way round.
func TestReplayBesideItsToolCall(t *testing.T) {
	t.Parallel()
	gated(t, nil, func(w *world, k kind, g *gate) {
		w.turnOf(func(ctx context.Context, t *bridge.Turn) {
			g.close(w)
			var replaying sync.WaitGroup
			replaying.Go(func() {
				if err := w.s.Replay(ctx, bridge.Record{ToolCallID: "1", Status: completed}); err != nil {
					w.Error(err)
				}
			})
			synctest.Wait()
			if err := t.ToolCall(card("1")).Update(acp.SessionToolCallUpdate{}); err == nil {
				w.Error("a tool call began that is being replayed")
			}
			if err := w.s.Replay(ctx, bridge.Record{ToolCallID: "1", Status: completed}); err == nil {
				w.Error("a record was replayed twice at once")
			}
			g.open()
			replaying.Wait()
		})
	})
}

// What is attached while its turn ends is either the agent's to send, or is sent by
// nobody; never by the Call, which the agent has not begun.
func TestAttachAtTheEndOfATurn(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		for i := range 100 {
			var attaching sync.WaitGroup
			w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				for j := range 4 {
					attaching.Go(func() { t.Attach(acp.ToolCallId(fmt.Sprint("unused ", i, " ", j)), line("echo x")) })
				}
				return done, nil
			})
			attaching.Wait()
			for j := range 4 {
				id := acp.ToolCallId(fmt.Sprint("unused ", i, " ", j))
				check(w, "updates of what was never told of", len(w.updates(id)), 0)
			}
		}
	})
}

// A command that its Call did not wait for does not take the place of what End
// says, even if its terminal was to be shown.
func TestEndWhileTheEmbedIsQueued(t *testing.T) {
	t.Parallel()
	gated(t, nil, func(w *world, k kind, g *gate) {
		w.turnOf(func(ctx context.Context, t *bridge.Turn) {
			call := t.ToolCall(card("1"))
			call.Update(acp.SessionToolCallUpdate{Title: new("title")})
			g.close(w)
			var all sync.WaitGroup
			all.Go(func() { call.Exec(ctx, line("sleep 1h")) })
			synctest.Wait()
			all.Go(func() { call.End("never mind", nil) })
			synctest.Wait()
			start := time.Now()
			if k.presentation == bridge.PresentClient { // else it runs, and goes on
				check(w, "the status", call.End("", nil).Status, acp.ToolCallStatusFailed)
			} else {
				check(w, "the status", call.End("", nil).Status, completed)
			}
			check(w, "End took", time.Since(start), limits.SettleTimeout)
			g.open()
			all.Wait()
		})
		if k.presentation == bridge.PresentClient {
			contains(w, "the text", w.c.Card("1").Text, "never mind")
		}
	})
}

// A card in which a client's terminal was and the text of a local command stands
// has all of that text in the end.
func TestTerminalAndTextInACard(t *testing.T) {
	t.Parallel()
	in(t, client, nil, func(w *world) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			for _, cmd := range []terminal.Command{line("echo remote"), {Line: "lines 3 300ms", Environment: bridge.EnvironmentLocal}} {
				if _, err := call.Exec(ctx, cmd); err != nil {
					w.Error(err)
				}
			}
			call.End("", nil)
			return done, nil
		})
		contains(w, "what the user sees", w.c.Card("1").Visible(), "remote")
		contains(w, "what the user sees", w.c.Card("1").Visible(), "line 3")
	})
}
