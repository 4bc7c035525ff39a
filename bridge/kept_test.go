package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// heap is how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A turn keeps no more outputs than its session does, however many commands it
// runs, in one tool call or in many; and one that is kept keeps no other, in the
// turn, after it, and after Close.
func TestOutputsAreDropped(t *testing.T) {
	const kept, size = 2, 1 << 20
	n, most := 16, int64(4*kept+6)
	if *full {
		n, most = 60, int64(4*kept+14)
	}
	for _, k := range kinds {
		for _, each := range []bool{false, true} {
			t.Run(fmt.Sprint(k.presentation, " a call for each ", each), func(t *testing.T) {
				local := memterm.New(&memterm.Options{Programs: fakeconn.Programs(), MaxTerminals: 2 * kept})
				k.client.Memterm = &memterm.Options{MaxTerminals: 2 * kept}
				k.client.Keep = -1 // of its own record
				o := &bridge.Options{
					MaxTerminals: kept, ResultLimit: 2 * size,
					Local: func(acp.SessionId) terminal.Manager { return local },
				}
				var calls []*bridge.Call
				var turns []*bridge.Turn
				synctest.Test(t, func(t *testing.T) {
					w := open(t, k, o)
					before := heap()
					grown := func(when string) {
						t.Helper()
						most := most
						if k.presentation == bridge.PresentClient && each {
							most += int64(n) // the fake client keeps the terminals of its cards
						}
						if mib := (heap() - before) >> 20; mib > most {
							t.Errorf("%s: %d MiB more", when, mib)
						}
					}
					w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
						turns = append(turns, t)
						call := t.ToolCall(card("0"))
						for i := range n {
							if each {
								call.End("", nil)
								call = t.ToolCall(card(acp.ToolCallId(fmt.Sprint(i + 1))))
								calls = append(calls, call)
							}
							r, err := call.Exec(ctx, line(fmt.Sprint("spam ", size)))
							if err != nil || r.Outcome != terminal.Exited {
								w.Fatalf("%+v, %v", r, err)
							}
						}
						time.Sleep(10 * time.Second) // until all is shown
						grown("in the turn")
						if got := len(call.Terminals()); got > kept {
							w.Errorf("%d terminals of the call are kept", got)
						}
						call.End("", nil)
						record, err := call.Record(ctx)
						if err != nil || len(record.Output) != limits.TextLimit || !record.Ran || *record.ExitCode != 0 {
							w.Errorf("the record has %d bytes, %v", len(record.Output), err)
						}
						return done, nil
					})
					grown("after the turn")
					check(w, "terminals", len(w.s.List()), kept)
					check(w, "started", w.s.Stats().Started, n)
					w.s.Close()
					grown("after Close")
					w.local.Close()
					w.c.Close()
				})
				runtime.KeepAlive(calls)
				runtime.KeepAlive(turns)
			})
		}
	}
}

// The text of commands that were dropped is no more than a card shows, however many
// they were.
func TestTextsAreDropped(t *testing.T) {
	const n = 400
	local := memterm.New(&memterm.Options{Programs: fakeconn.Programs()})
	o := &bridge.Options{MaxTerminals: 1, Local: func(acp.SessionId) terminal.Manager { return local }}
	display := display
	display.client.Keep = -1
	in(t, display, o, func(w *world) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			run := func(n int) {
				for range n {
					if _, err := call.Exec(ctx, line("spam 16000")); err != nil {
						w.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
			}
			run(70) // as many as the local side keeps
			before := heap()
			run(n)
			if kib := (heap() - before) >> 10; kib > 8*n {
				w.Errorf("%d KiB more", kib)
			}
			return done, nil
		})
	})
}

// A turn keeps no Call that has ended, and a command that is kept keeps no turn.
func TestTurnsAndCallsAreDropped(t *testing.T) {
	each(t, func(w *world, k kind) {
		var over weak.Pointer[bridge.Turn]
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			over = weak.Make(t)
			call := weak.Make(func() *bridge.Call {
				call := t.ToolCall(card("none"))
				call.End("", nil)
				return call
			}())
			runtime.GC()
			if call.Value() != nil {
				w.Error("the turn keeps a Call that has ended")
			}
			ended := t.ToolCall(card("ended"))
			ended.Exec(ctx, line("echo x"))
			ended.End("", nil)
			lives := t.ToolCall(card("lives"))
			lives.StartBackground(ctx, line("sleep 1h"))
			lives.End("", nil)
			t.ToolCall(card("left open")).Exec(ctx, line("echo x"))
			return done, nil
		})
		time.Sleep(time.Minute)
		runtime.GC()
		check(w, "terminals", len(w.s.List()), 3)
		if over.Value() != nil {
			w.Error("a command that is kept keeps its turn")
		}
	})
}

// The State forgets a terminal when the Manager below does. Of both together it keeps
// MaxTerminals, and the earliest end gives way, not the earliest start; as many may
// run.
func TestWhatGivesWay(t *testing.T) {
	t.Parallel()
	kept := func(w *world, want ...string) {
		w.Helper()
		var got []string
		for _, t := range w.s.List() {
			got = append(got, t.Info().Command.Line)
			if _, err := w.s.Get(t.Info().ID); err != nil {
				w.Error(err)
			}
		}
		check(w, "kept", strings.Join(got, ", "), strings.Join(want, ", "))
	}
	run := func(w *world, lines ...string) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			for _, l := range lines {
				call := t.ToolCall(card(acp.ToolCallId(l)))
				if _, err := call.StartBackground(ctx, line(l)); err != nil {
					w.Error(err)
				}
				call.End("", nil)
			}
			return done, nil
		})
	}
	for _, k := range kinds {
		local := func(most int) *bridge.Options {
			return &bridge.Options{MaxTerminals: 3, Local: func(acp.SessionId) terminal.Manager {
				return memterm.New(&memterm.Options{Programs: fakeconn.Programs(), MaxTerminals: most})
			}}
		}
		t.Run(string(k.presentation), func(t *testing.T) {
			in(t, k, local(8), func(w *world) {
				run(w, "sleep 2", "sleep 1", "sleep 3")
				if _, err := w.s.Manager().Start(w.Context(), line("echo")); !errors.Is(err, terminal.ErrTooMany) {
					w.Errorf("a fourth one starts: %v", err)
				}
				time.Sleep(time.Minute)
				run(w, "echo")
				kept(w, "sleep 2", "sleep 3", "echo")
			})
		})
		if k.presentation != bridge.PresentClient {
			t.Run(string(k.presentation)+" below", func(t *testing.T) {
				in(t, k, local(2), func(w *world) {
					run(w, "echo a", "echo b")
					time.Sleep(time.Minute)
					first := w.s.List()[0]
					run(w, "echo c")
					kept(w, "echo b", "echo c")
					if _, err := w.s.Get(first.Info().ID); !errors.Is(err, terminal.ErrNotFound) {
						w.Errorf("Get of what the Manager below has forgotten: %v", err)
					}
					check(w, "started", w.s.Stats().Started, 3)
				})
			})
		}
	}
}

// What was dropped is known still: the card says how it ended, and so does the
// record.
func TestWhatIsKnownOfThoseDropped(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			in(t, k, &bridge.Options{MaxTerminals: 2}, func(w *world) {
				w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					call := t.ToolCall(card("1"))
					for _, l := range []string{"echo first", "fail second", "echo third", "echo fourth", "echo fifth"} {
						if _, err := call.Exec(ctx, line(l)); err != nil {
							w.Error(err)
						}
					}
					check(w, "the status", call.End("", nil).Status, acp.ToolCallStatusFailed)
					record, err := call.Record(ctx)
					if err != nil {
						w.Error(err)
					}
					check(w, "the output", record.Output, "first\nsecondthird\nfourth\nfifth\n")
					check(w, "the exit", *record.ExitCode, 0)
					return done, nil
				})
				seen := w.c.Card("1").Visible()
				for _, word := range []string{"first", "second", "third", "fourth", "fifth"} {
					contains(w, "what the user sees", seen, word)
				}
			})
		})
	}
}

// A command that was sent to the background takes a slot from then on.
func TestPromotedCommandsTakeASlot(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			in(t, k, &bridge.Options{MaxBackground: 1}, func(w *world) {
				w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					call := t.ToolCall(card("1"))
					w.later(time.Second, func() { call.End("", nil) })
					if r, err := call.Exec(ctx, line("sleep 10s")); err != nil || r.Outcome != terminal.Running {
						w.Errorf("%+v, %v", r, err)
					}
					if _, err := t.ToolCall(card("2")).StartBackground(ctx, line("sleep 1h")); !errors.Is(err, terminal.ErrTooMany) {
						w.Errorf("a second one in the background: %v", err)
					}
					time.Sleep(time.Minute)
					call = t.ToolCall(card("3"))
					if _, err := call.StartBackground(ctx, line("sleep 1s")); err != nil {
						w.Errorf("when the first has ended: %v", err)
					}
					call.End("", nil)
					return done, nil
				})
			})
		})
	}
}

// A line end that comes in two pieces is one line end.
func TestLineEndInTwoUpdates(t *testing.T) {
	t.Parallel()
	programs := fakeconn.Programs()
	programs["split"] = func(p *memterm.Process) terminal.Exit {
		for _, s := range []string{"a\r", "\nb\r", "c\n", "\r\n", "d\n"} {
			io.WriteString(p.Stdout, s)
			p.Sleep(time.Second)
		}
		return memterm.Code(0)
	}
	local := memterm.New(&memterm.Options{Programs: programs})
	o := &bridge.Options{Pipes: true, Local: func(acp.SessionId) terminal.Manager { return local }}
	in(t, display, o, func(w *world) {
		w.run("1", line("split"))
		check(w, "the output", w.c.Card("1").Visible(), "a\r\nb\rc\r\n\r\nd\r\n")
	})
}

// A stubborn manager's commands are not ended by Stop, or leave something behind.
type stubborn struct {
	terminal.Manager
	left []terminal.Proc // what Info says is left; nil: Stop does nothing
}

type stubbornTerminal struct {
	terminal.Terminal
	m *stubborn
}

func (m *stubborn) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	t, err := m.Manager.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return &stubbornTerminal{t, m}, nil
}

func (t *stubbornTerminal) Stop(ctx context.Context) (terminal.Info, error) {
	if t.m.left != nil {
		return t.Terminal.Stop(ctx)
	}
	<-ctx.Done()
	return t.Info(), ctx.Err()
}

func (t *stubbornTerminal) Info() terminal.Info {
	info := t.Terminal.Info()
	if info.Outcome.Ended() {
		info.Survivors = t.m.left
	}
	return info
}

// A command whose stop is not confirmed is no success, whoever stopped it.
func TestUnconfirmedStopIsNoSuccess(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{display, text} {
		t.Run(string(k.presentation), func(t *testing.T) {
			local := &stubborn{Manager: memterm.New(&memterm.Options{Programs: fakeconn.Programs()})}
			o := &bridge.Options{Local: func(acp.SessionId) terminal.Manager { return local }}
			in(t, k, o, func(w *world) {
				w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					call := t.ToolCall(card("1"))
					short, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					r, err := call.Exec(short, line("sleep 1h"))
					if err == nil || r.Outcome != terminal.Unknown {
						w.Errorf("%+v, %v", r, err)
					}
					check(w, "the status", call.End("", nil).Status, acp.ToolCallStatusFailed)
					return done, nil
				})
				check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusFailed)

				w.later(time.Second, w.cancel)
				w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					call := t.ToolCall(card("2"))
					go call.Exec(ctx, line("sleep 1h"))
					<-ctx.Done()
					synctest.Wait() // until the command is being stopped
					check(w, "the status", call.End("", nil).Status, acp.ToolCallStatusFailed)
					return done, nil
				})
				for _, t := range local.Manager.List() {
					t.Stop(w.Context())
				}
			})
		})
	}
}

// Processes that a stopped command has left are named when the turn is answered.
func TestWhatIsLeftIsNamed(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{display, text} {
		t.Run(string(k.presentation), func(t *testing.T) {
			local := &stubborn{memterm.New(&memterm.Options{Programs: fakeconn.Programs()}), []terminal.Proc{{PID: 4711}}}
			o := &bridge.Options{Local: func(acp.SessionId) terminal.Manager { return local }}
			in(t, k, o, func(w *world) {
				w.later(time.Second, w.cancel)
				w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					_, err := t.ToolCall(card("1")).Exec(ctx, line("sleep 1h"))
					return done, err
				})
				contains(w, "the message", w.c.Messages(), "Not confirmed to have ended")
			})
		})
	}
}

// A slow manager's terminals take their time to return from a read whose context
// has ended.
type slowReads struct {
	terminal.Manager
	reading atomic.Int64
}

type slowTerminal struct {
	terminal.Terminal
	m *slowReads
}

func (m *slowReads) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	t, err := m.Manager.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return &slowTerminal{t, m}, nil
}

func (t *slowTerminal) ReadOutput(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
	if wait == 0 {
		return t.Terminal.ReadOutput(ctx, cursor, wait)
	}
	t.m.reading.Add(1)
	defer t.m.reading.Add(-1)
	<-ctx.Done() // as if there were never any output, nor an end
	time.Sleep(3 * time.Second)
	return terminal.Output{}, context.Cause(ctx)
}

// Close returns when nothing of the session runs any more, also nothing that showed
// its commands.
func TestCloseJoinsWhatShows(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{display, text} {
		t.Run(string(k.presentation), func(t *testing.T) {
			local := &slowReads{Manager: memterm.New(&memterm.Options{Programs: fakeconn.Programs()})}
			o := &bridge.Options{Local: func(acp.SessionId) terminal.Manager { return local }}
			in(t, k, o, func(w *world) {
				w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					call := t.ToolCall(card("1"))
					if _, err := call.StartBackground(ctx, line("sleep 1h")); err != nil {
						w.Error(err)
					}
					synctest.Wait()
					check(w, "reads", local.reading.Load(), 1)
					if k.presentation == bridge.PresentDisplay {
						call.End("", nil)
					}
					return done, nil
				})
				w.s.Close()
				check(w, "reads after Close", local.reading.Load(), 0)
			})
		})
	}
}

// A long run of backticks takes its fence into account.
func TestFenceFits(t *testing.T) {
	t.Parallel()
	in(t, text, nil, func(w *world) {
		for _, n := range []int{3, 500, 9_000, 15_000} {
			id := acp.ToolCallId(fmt.Sprint(n))
			w.run(id, terminal.Command{Args: []string{"print", strings.Repeat("`", n) + " end"}})
			seen := w.c.Card(id).Text
			fence, rest, _ := strings.Cut(seen, "\n")
			if body, ok := strings.CutSuffix(rest, fence); !ok || strings.Contains(body, fence) {
				w.Errorf("the fence of %d backticks is %d long, and ends inside", n, len(fence))
			}
			contains(w, "what the user sees", rest, " end\n")
		}
	})
}

// What could not be started takes neither a place nor a slot.
func TestFailedStartsTakeNoPlace(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			in(t, k, &bridge.Options{MaxTerminals: 1, MaxBackground: 1}, func(w *world) {
				w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					call := t.ToolCall(card("1"))
					for range 3 {
						if _, err := call.StartBackground(ctx, terminal.Command{Line: "echo x", Environment: "nowhere"}); !errors.Is(err, terminal.ErrBadCommand) {
							w.Errorf("StartBackground: %v", err)
						}
					}
					if _, err := call.StartBackground(ctx, line("sleep 1s")); err != nil {
						w.Errorf("StartBackground: %v", err)
					}
					return done, nil
				})
			})
		})
	}
}
