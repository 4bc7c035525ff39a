package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A value is one of an agent's with JSON of its own.
type value func() ([]byte, error)

func (v value) MarshalJSON() ([]byte, error) { return v() }

// A MarshalJSON that panics is an error of the call that brought it, and nothing
// else: the session goes on, the card is final, the turn is answered.
func TestMarshalJSONPanics(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		panics := value(func() ([]byte, error) { panic("not today") })
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			for _, u := range []acp.SessionToolCallUpdate{{RawOutput: panics}, {RawInput: panics}, {Meta: map[string]any{"x": panics}}} {
				if err := call.Update(u); err == nil {
					w.Error("a value whose JSON panics was taken")
				}
			}
			if err := w.s.Update(ctx, acp.UpdateToolCall("other", acp.WithUpdateRawOutput(panics))); err == nil {
				w.Error("a value whose JSON panics was taken")
			}
			if _, err := call.Exec(ctx, line("echo x")); err != nil {
				w.Error(err)
			}
			check(w, "the status", call.End("", nil).Status, completed)

			c := card("2")
			c.RawInput = panics
			call = t.ToolCall(c)
			if err := call.Permit(ctx, ""); err == nil {
				w.Error("the user was asked about what cannot be shown")
			}
			if _, err := call.Exec(ctx, line("echo x")); err == nil {
				w.Error("a command runs whose card cannot be sent")
			}
			call.Update(acp.SessionToolCallUpdate{Title: new("new")})
			return done, nil
		})
		check(w, "the status", w.c.Card("2").Status, acp.ToolCallStatusFailed)
		check(w, "starts", w.starts("echo"), 1)
		if err := w.s.Replay(w.Context(), bridge.Record{ToolCallID: "3", Status: completed, RawInput: panics}); err == nil {
			w.Error("a record whose JSON panics was replayed")
		}
	})
}

// What the agent still holds is not read when it is sent, and what it hands over is
// marshalled once.
func TestValuesAreFrozen(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		var n atomic.Int64
		counts := value(func() ([]byte, error) { return fmt.Appendf(nil, `"%d"`, n.Add(1)), nil })
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			c := card("1")
			input := map[string]any{"command": "before"}
			c.RawInput = input
			c.Content = []acp.ToolCallContent{acp.ToolContent(acp.TextBlock("before"))}
			call := t.ToolCall(c)
			input["command"] = "after"
			c.Content[0].Content.Content.Text.Text = "after"
			status := acp.ToolCallStatusInProgress
			call.Update(acp.SessionToolCallUpdate{RawOutput: counts, Status: &status})
			status = acp.ToolCallStatusPending
			call.Exec(ctx, line("echo x"))
			call.End("", nil)
			return done, nil
		})
		seen := w.c.Card("1")
		check(w, "the command", seen.RawInput.(map[string]any)["command"], any("before"))
		if strings.Contains(seen.Visible(), "after") {
			w.Errorf("what the user sees is %q", seen.Visible())
		}
		check(w, "the rawOutput", seen.RawOutput, any("1"))
		check(w, "times that it was marshalled", n.Load(), 1)
	})
}

// While a value is being marshalled, for however long, everything else of the
// session goes on: the turn is cancelled, another tool call runs.
func TestMarshallingBlocksNobody(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		held, entered := make(chan struct{}), make(chan struct{})
		slow := value(func() ([]byte, error) {
			close(entered)
			<-held
			return []byte(`"late"`), nil
		})
		w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			var updating sync.WaitGroup
			updating.Go(func() { call.Update(acp.SessionToolCallUpdate{RawOutput: slow}) })
			<-entered
			if r, err := t.ToolCall(card("2")).Exec(ctx, line("echo x")); err != nil || r.Output != "x\n" {
				w.Errorf("%+v, %v", r, err)
			}
			start := time.Now()
			w.s.Cancel()
			<-ctx.Done()
			w.s.List()
			w.s.Stats()
			check(w, "Cancel took", time.Since(start), 0)
			close(held)
			updating.Wait()
			return done, nil
		})
	})
}

// Options.Local is called with no lock held: it may use the session, fail, and
// panic; and while it takes its time, nobody else waits.
func TestLocalFactory(t *testing.T) {
	t.Parallel()
	var s *bridge.State
	var made atomic.Int64
	var closed []*memterm.Manager
	var wait chan struct{}
	o := &bridge.Options{Policy: bridge.Local}
	o.Local = func(acp.SessionId) terminal.Manager {
		s.List()
		s.Stats()
		s.Update(context.Background(), acp.UpdateAgentMessageText("hello"))
		switch made.Add(1) {
		case 1:
			panic("no")
		case 2:
			return nil
		case 3:
			time.Sleep(time.Second)
		case 4:
			<-wait
		}
		m := memterm.New(&memterm.Options{Programs: fakeconn.Programs()})
		closed = append(closed, m)
		return m
	}
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			made.Store(0)
			closed = nil
			in(t, k, o, func(w *world) {
				wait = make(chan struct{})
				s = w.s
				for _, id := range []acp.ToolCallId{"panics", "nil"} {
					if _, _, err := w.run(id, line("echo x")); err == nil || !strings.Contains(err.Error(), "Options.Local") {
						w.Errorf("Exec: %v", err)
					}
				}
				w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					var all sync.WaitGroup
					for i := range 5 {
						all.Go(func() {
							call := t.ToolCall(card(acp.ToolCallId(fmt.Sprint("c", i))))
							if _, err := call.Exec(ctx, line("echo x")); err != nil {
								w.Error(err)
							}
						})
					}
					all.Wait()
					return done, nil
				})
				check(w, "calls of Options.Local", made.Load(), 3)

				// A Manager that comes after Close is closed, and nobody waits for it.
				other, err := w.b.Session("other", "/work")
				if err != nil {
					w.Fatal(err)
				}
				s = other
				var started sync.WaitGroup
				started.Go(func() {
					if _, err := other.Manager().Start(w.Context(), line("echo x")); !errors.Is(err, terminal.ErrClosed) {
						w.Errorf("Start: %v", err)
					}
				})
				synctest.Wait()
				start := time.Now()
				if err := other.Close(); err != nil {
					w.Error(err)
				}
				check(w, "Close took", time.Since(start), 0)
				close(wait)
				started.Wait()
				check(w, "managers", len(closed), 2)
				if _, err := closed[1].Start(w.Context(), line("echo x")); !errors.Is(err, terminal.ErrClosed) {
					w.Errorf("the late manager: %v", err)
				}
			})
		})
	}
}

// A handler is one of a logger of the user's.
type handler struct {
	slog.Handler
	handle func(slog.Record)
}

func (h handler) Handle(_ context.Context, r slog.Record) error { h.handle(r); return nil }
func (h handler) Enabled(_ context.Context, l slog.Level) bool {
	if l == slog.LevelDebug {
		h.handle(slog.Record{})
	}
	return true
}

// A logger may use the session, and panic: it is called with no lock held, and
// nothing depends on it.
func TestLoggerCallsBack(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		for _, k := range kinds {
			t.Run(fmt.Sprint(k.presentation, " panics ", panics), func(t *testing.T) {
				var w *world
				var logged atomic.Int64
				o := &bridge.Options{Logger: slog.New(handler{slog.NewTextHandler(io.Discard, nil), func(slog.Record) {
					logged.Add(1)
					if panics {
						panic("a logger")
					}
					if w != nil {
						w.s.Update(context.Background(), acp.SessionUpdate{CurrentModeUpdate: &acp.SessionCurrentModeUpdate{CurrentModeId: "logged"}})
						w.s.List()
						w.s.Stats()
						w.b.Stats()
					}
				}})}
				in(t, k, o, func(inner *world) {
					w = inner
					if k.presentation == bridge.PresentClient {
						// and is not asked again, which is logged
						w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Error: acp.NewMethodNotFound(acp.ClientMethodTerminalCreate)})
					}
					if _, err := w.prompt(func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
						if r, err := t.ToolCall(card("1")).Exec(ctx, line("echo x")); err != nil || r.Output != "x\n" {
							w.Errorf("%+v, %v", r, err)
						}
						panic("which is logged")
					}); err == nil {
						w.Error("a turn that panicked has no error")
					}
				})
				if logged.Load() == 0 {
					t.Error("nothing was logged, so this shows nothing")
				}
			})
		}
	}
}

// A wild manager's terminals panic when they are read, once they have been read so
// often.
type wild struct {
	terminal.Manager
	reads int
	infos bool // Info and Stop panic, too
}

type wildTerminal struct {
	terminal.Terminal
	m     *wild
	reads atomic.Int64
}

func (m *wild) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	t, err := m.Manager.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return &wildTerminal{Terminal: t, m: m}, nil
}

func (t *wildTerminal) ReadOutput(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
	if n := t.reads.Add(1); n > int64(t.m.reads) {
		panic("a wild terminal")
	}
	return t.Terminal.ReadOutput(ctx, cursor, wait)
}

func (t *wildTerminal) Stop(ctx context.Context) (terminal.Info, error) {
	info, err := t.Terminal.Stop(ctx)
	if t.m.infos {
		panic("a wild terminal")
	}
	return info, err
}

// A panic where a command is shown, read or stopped stays there: the card says
// what happened and is final, the turn is answered, the next command runs.
func TestTerminalPanics(t *testing.T) {
	t.Parallel()
	for _, reads := range []int{0, 1, 3} {
		for _, k := range []kind{display, text} {
			t.Run(fmt.Sprint(k.presentation, " ", reads), func(t *testing.T) {
				local := &wild{memterm.New(&memterm.Options{Programs: fakeconn.Programs()}), reads, true}
				o := &bridge.Options{Local: func(acp.SessionId) terminal.Manager { return local }}
				in(t, k, o, func(w *world) {
					w.later(5*time.Second, w.cancel)
					w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
						call := t.ToolCall(card("1"))
						if _, err := call.StartBackground(ctx, line("lines 100 1s")); err != nil {
							w.Error(err)
						}
						<-ctx.Done()
						return done, nil
					})
					seen := w.c.Card("1")
					check(w, "the status", seen.Status, acp.ToolCallStatusFailed)
					contains(w, "what the user sees", seen.Visible(), "the output cannot be shown: panicked: a wild terminal")
					w.prompt(func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
						call := t.ToolCall(card("2"))
						call.Exec(ctx, line("lines 9 1s")) // it panics here
						return done, nil
					})
					check(w, "the status", w.c.Card("2").Status, acp.ToolCallStatusFailed)
					local.reads = 1 << 30
					if _, _, err := w.run("3", line("echo x")); err != nil {
						w.Error(err)
					}
				})
			})
		}
	}
}
