package acphost_test

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
	"weak"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A scripted is a terminal whose reads are a function.
type scripted struct {
	read func(cursor int64) terminal.Output
	done chan struct{} // nil: it never ends
}

func (s *scripted) Info() terminal.Info {
	return terminal.Info{ID: "scripted", Outcome: terminal.Running}
}
func (s *scripted) ReadOutput(_ context.Context, cursor int64, _ time.Duration) (terminal.Output, error) {
	return s.read(cursor), nil
}
func (s *scripted) WriteInput(context.Context, string) (int, error) { return 0, terminal.ErrNoInput }
func (s *scripted) Resize(terminal.Size) error                      { return errors.ErrUnsupported }
func (s *scripted) Signal(os.Signal) error                          { return errors.ErrUnsupported }
func (s *scripted) Stop(ctx context.Context) (terminal.Info, error) {
	select {
	case <-s.done:
		return s.Info(), nil
	case <-ctx.Done():
		return s.Info(), context.Cause(ctx)
	}
}
func (s *scripted) Done() <-chan struct{} { return s.done }

// A maker is a Manager whose terminals a function makes.
type maker func() terminal.Terminal

func (m maker) Start(context.Context, terminal.Command) (terminal.Terminal, error) { return m(), nil }
func (m maker) Get(string) (terminal.Terminal, error)                              { return nil, terminal.ErrNotFound }
func (m maker) List() []terminal.Terminal                                          { return nil }
func (m maker) Busy() bool                                                         { return false }
func (m maker) Close() error                                                       { return nil }

func (s *scripted) manager(acp.SessionId) terminal.Manager {
	return maker(func() terminal.Terminal { return s })
}

// output creates the terminal of a script and returns what terminal/output says.
func (s *scripted) output(t *testing.T, opts *acphost.Options, limit *int) (acp.TerminalOutputResponse, error) {
	t.Helper()
	h := acphost.New(s.manager, opts)
	created, err := h.CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "x", OutputByteLimit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return h.TerminalOutput(t.Context(), acp.TerminalOutputRequest{SessionId: "s", TerminalId: created.TerminalId})
}

// Whatever the Host's own limit and that of the request are, nothing overflows.
func TestLimitsOfAnySize(t *testing.T) {
	const size = 200_000
	for _, own := range []int{math.MinInt, -1, 0, 1, 4, math.MaxInt / 2, math.MaxInt} {
		for _, asked := range []*int{nil, new(0), new(1), new(size - 1), new(size), new(math.MaxInt)} {
			want := size
			if own > 0 {
				want = min(want, own)
			}
			if asked != nil {
				want = min(want, *asked)
			}
			run(t, &acphost.Options{OutputLimit: own, Display: true}, func(t *testing.T, h host) {
				id := h.createLimit(asked, "spam", "200000")
				h.wait(id)
				got := h.output(id)
				if len(got.Output) != want || got.Truncated != (want < size) || got.ExitStatus == nil {
					t.Errorf("limits %d and %v: %d bytes, truncated %v, exit %v; want %d bytes of %d", own, asked, len(got.Output), got.Truncated, got.ExitStatus, want, size)
				}
				h.update(display("c", "c"))
				h.update(data("c", "c", strings.Repeat("x", size)))
				want := size
				if own > 0 {
					want = min(want, own)
				}
				if v := h.card("c").Terminals[0]; len(v.Output) != want {
					t.Errorf("limit %d: a display terminal shows %d bytes, want %d", own, len(v.Output), want)
				}
			})
		}
	}
}

// A negative limit is the agent's mistake, also for a client that makes the
// command itself.
func TestANegativeLimitIsRefused(t *testing.T) {
	own := &acphost.Options{Command: func(req acp.CreateTerminalRequest) (terminal.Command, error) {
		return terminal.Command{Line: req.Command}, nil
	}}
	for _, opts := range []*acphost.Options{nil, own} {
		for _, limit := range []int{-1, math.MinInt} {
			run(t, opts, func(t *testing.T, h host) {
				_, err := h.CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "true", OutputByteLimit: &limit})
				if code(err) != -32602 || !strings.Contains(err.Error(), "negative") || h.mem.Starts("true") > 0 {
					t.Errorf("limit %d: create returned %v, and %d commands were started", limit, err, h.mem.Starts("true"))
				}
			})
		}
	}
}

// What was read before a gap does not join what was read behind it.
func TestOutputIsNotJoinedOverAGap(t *testing.T) {
	s := &scripted{read: func(cursor int64) terminal.Output {
		switch cursor {
		case 0:
			return terminal.Output{Text: "before", NextCursor: 6, More: true}
		case 6:
			return terminal.Output{Text: "behind", NextCursor: 100, More: true, Truncated: true}
		}
		return terminal.Output{Text: " the gap", NextCursor: 108}
	}}
	got, err := s.output(t, nil, nil)
	if err != nil || got.Output != "behind the gap" || !got.Truncated {
		t.Errorf("output is %+v, %v", got, err)
	}
}

// A command that writes faster than it is read does not hold its reader, however
// much is kept, and fills no memory.
func TestAFloodDoesNotHoldTheReader(t *testing.T) {
	piece := strings.Repeat("x", limits.MaxText)
	for _, test := range []struct{ own, asked, most int }{
		{0, 100, 200 + 2*limits.MaxText},
		{0, math.MaxInt, 2*limits.DefaultOutputLimit + 2*limits.MaxText},
		{math.MaxInt, math.MaxInt, 20<<20 + 2*limits.MaxText},
	} {
		var read int
		s := &scripted{read: func(cursor int64) terminal.Output {
			read += len(piece)
			return terminal.Output{Text: piece, NextCursor: cursor + int64(len(piece)), More: true}
		}}
		got, err := s.output(t, &acphost.Options{OutputLimit: test.own}, &test.asked)
		if err != nil || !got.Truncated || got.ExitStatus != nil || read > test.most {
			t.Errorf("%d bytes were read, want at most %d: truncated %v, exit %v, %v", read, test.most, got.Truncated, got.ExitStatus, err)
		}
	}
	// A read that makes no progress ends it, too.
	s := &scripted{read: func(cursor int64) terminal.Output { return terminal.Output{NextCursor: cursor, More: true} }}
	if got, err := s.output(t, nil, nil); err != nil || got.Output != "" {
		t.Errorf("output is %+v, %v", got, err)
	}
}

// Whatever a program writes, and however it is read, output is the end of it,
// within the limit and between characters.
func FuzzOutput(f *testing.F) {
	f.Add("h€llo w😀rld", 4, uint8(1))
	f.Add("plain", -1, uint8(200))
	f.Add("\xff\xfe", math.MaxInt, uint8(3))
	f.Fuzz(func(t *testing.T, written string, limit int, piece uint8) {
		whole := strings.ToValidUTF8(written, "\uFFFD")
		s := &scripted{read: func(cursor int64) terminal.Output {
			end := min(int(cursor)+utf8.UTFMax+int(piece), len(whole))
			for end < len(whole) && !utf8.RuneStart(whole[end]) {
				end--
			}
			return terminal.Output{Text: whole[cursor:end], NextCursor: int64(end), More: end < len(whole)}
		}}
		h := acphost.New(s.manager, nil)
		created, err := h.CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "x", OutputByteLimit: &limit})
		if limit < 0 {
			if err == nil {
				t.Fatalf("limit %d was taken", limit)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := h.TerminalOutput(t.Context(), acp.TerminalOutputRequest{SessionId: "s", TerminalId: created.TerminalId})
		switch {
		case err != nil:
			t.Fatal(err)
		case !strings.HasSuffix(whole, got.Output), len(got.Output) > limit, !utf8.ValidString(got.Output):
			t.Errorf("%q with the limit %d: %q", whole, limit, got.Output)
		case len(got.Output) < min(len(whole), limit)-3:
			t.Errorf("%q with the limit %d: %q lacks more than a rune", whole, limit, got.Output)
		case got.Truncated != (len(got.Output) < len(whole)):
			t.Errorf("%q with the limit %d: %q, truncated %v", whole, limit, got.Output, got.Truncated)
		}
	})
}

// stuck runs f with a Host whose program "stuck" does not end before f does,
// whatever is asked of it.
func stuck(t *testing.T, opts *acphost.Options, f func(t *testing.T, h host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		programs := memterm.Standard()
		programs["stuck"] = func(*memterm.Process) terminal.Exit { <-end; return memterm.Code(0) }
		mem := memterm.New(&memterm.Options{Programs: programs, Grace: time.Hour})
		f(t, host{acphost.New(func(acp.SessionId) terminal.Manager { return mem }, opts), mem, t})
		close(end)
		mem.Close()
	})
}

// leaks checks that an end names the terminal ids as left, once its time is up.
func leaks(t *testing.T, end func() error, ids ...string) {
	t.Helper()
	start := time.Now()
	var got []string
	err := end()
	if leak, ok := errors.AsType[*terminal.LeakError](err); ok {
		for _, l := range leak.Leaks {
			got = append(got, l.ID)
		}
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		t.Errorf("left are %v, want %v: %v", got, ids, err)
	}
	if took := time.Since(start); took != limits.SettleTimeout {
		t.Errorf("it took %v", took)
	}
}

// A released command that does not end is named, and keeps no Close: not of its
// session, not of the Host, shown or not.
func TestCloseEndsWhatWasReleased(t *testing.T) {
	for name, opts := range map[string]*acphost.Options{"shown": {Show: func(acphost.Event) {}}, "not shown": nil} {
		t.Run(name, func(t *testing.T) {
			stuck(t, opts, func(t *testing.T, h host) {
				released, held := h.create("stuck"), h.create("stuck")
				h.update(acp.StartToolCall("c", "title", acp.WithStartContent(refs(released, held))))
				h.release(released)
				other, err := h.CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "other", Command: "sleep", Args: []string{"1h"}})
				if err != nil {
					t.Fatal(err)
				}
				leaks(t, func() error { return h.CloseSession("s") }, released, held)
				if mem, err := h.mem.Get(other.TerminalId); err != nil || mem.Info().Outcome.Ended() {
					t.Errorf("the command of another session has ended: %v", err)
				}
				leaks(t, h.Close, released, held)
				leaks(t, h.Close, released, held)
			})
		})
	}
}

// The release resolves the wait even if the command does not end.
func TestAReleaseResolvesTheWait(t *testing.T) {
	stuck(t, nil, func(t *testing.T, h host) {
		id := h.create("stuck")
		waited := make(chan acp.WaitForTerminalExitResponse)
		go func() { waited <- h.wait(id) }()
		synctest.Wait()
		start := time.Now()
		h.release(id)
		got := <-waited
		if took := time.Since(start); took != limits.SettleTimeout {
			t.Errorf("the wait was resolved after %v", took)
		}
		if got.ExitCode != nil || got.Signal != nil {
			t.Errorf("the wait says %+v of a command that runs", got)
		}
	})
}

// A create that was under way when its session, or the Host, was closed leaves
// nothing, and what it cannot end is named by the next Close.
func TestACreateUnderWayAtAClose(t *testing.T) {
	ends := map[string]func(h host) error{
		"session": func(h host) error { return h.CloseSession("s") },
		"host":    func(h host) error { return h.Close() },
	}
	for name, end := range ends {
		for _, program := range []string{"sleep", "stuck"} {
			t.Run(name+"/"+program, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					started, over := make(chan struct{}), make(chan struct{})
					programs := memterm.Standard()
					programs["stuck"] = func(*memterm.Process) terminal.Exit { <-over; return memterm.Code(0) }
					mem := memterm.New(&memterm.Options{Programs: programs, Grace: time.Hour, Starting: func(context.Context, terminal.Command) error {
						<-started
						return nil
					}})
					h := host{acphost.New(func(acp.SessionId) terminal.Manager { return mem }, nil), mem, t}
					failed := make(chan error)
					go func() {
						_, err := h.CreateTerminal(context.Background(), acp.CreateTerminalRequest{SessionId: "s", Command: program, Args: []string{"1h"}})
						failed <- err
					}()
					synctest.Wait()
					if err := end(h); err != nil {
						t.Error(err)
					}
					close(started)
					if err := <-failed; err == nil {
						t.Error("the terminal was created")
					}
					if program == "sleep" {
						if mem.Busy() {
							t.Error("the command runs")
						}
						if err := h.Close(); err != nil {
							t.Error(err)
						}
					} else {
						leaks(t, h.Close, mem.List()[0].Info().ID)
					}
					close(over)
					mem.Close()
				})
			})
		}
	}
}

// What has ended and was released is not kept.
func TestAReleasedTerminalIsDropped(t *testing.T) {
	var made []weak.Pointer[scripted]
	over := make(chan struct{})
	close(over)
	m := maker(func() terminal.Terminal {
		s := &scripted{done: over}
		made = append(made, weak.Make(s))
		return s
	})
	h := acphost.New(func(acp.SessionId) terminal.Manager { return m }, nil)
	for range 10 {
		if _, err := h.CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "x"}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.ReleaseTerminal(t.Context(), acp.ReleaseTerminalRequest{SessionId: "s", TerminalId: "scripted"}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	kept := 0
	for _, p := range made {
		if p.Value() != nil {
			kept++
		}
	}
	if kept > 1 {
		t.Errorf("%d terminals of 10 are kept", kept)
	}
	runtime.KeepAlive(h)
}
