package terminal_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

func TestCheck(t *testing.T) {
	// An error of Check says what is wrong.
	for _, c := range []struct {
		cmd  terminal.Command
		want string // "" for none
	}{
		{terminal.Command{Line: "ls"}, ""},
		{terminal.Command{Args: []string{"ls", ""}}, ""},
		{terminal.Command{Line: "ls", Shell: "/bin/dash", Dir: "/", Env: map[string]string{"A": "", "b c": "d"}}, ""},
		{terminal.Command{Line: "ls", Size: terminal.Size{Rows: 1, Cols: 65535}}, ""},
		{terminal.Command{}, "empty"},
		{terminal.Command{Args: []string{}}, "empty"},
		{terminal.Command{Line: "ls", Args: []string{"ls"}}, "both Line and Args"},
		{terminal.Command{Line: " \t\n"}, "blank"},
		{terminal.Command{Args: []string{""}}, "Args[0]"},
		{terminal.Command{Args: []string{"ls"}, Shell: "sh"}, "Shell goes with Line"},
		{terminal.Command{Line: "ls", Dir: "a"}, `"a" is relative`},
		{terminal.Command{Line: "ls", Dir: "../a"}, "relative"},
		{terminal.Command{Line: "ls", Timeout: -time.Second}, "negative timeout -1s"},
		{terminal.Command{Line: "ls", OutputLimit: -1}, "negative output limit -1"},
		{terminal.Command{Line: "ls", Size: terminal.Size{Rows: 24}}, "24 × 0"},
		{terminal.Command{Line: "ls", Size: terminal.Size{Rows: -1, Cols: 80}}, "-1 × 80"},
		{terminal.Command{Line: "ls", Size: terminal.Size{Rows: 24, Cols: 65536}}, "from 1 to 65535"},
		{terminal.Command{Line: "l\x00s"}, "NUL"},
		{terminal.Command{Args: []string{"ls", "\x00"}}, "NUL"},
		{terminal.Command{Line: "ls", Dir: "/\x00"}, "NUL"},
		{terminal.Command{Line: "ls", Env: map[string]string{"": "a"}}, "environment name"},
		{terminal.Command{Line: "ls", Env: map[string]string{"A=B": "a"}}, "environment name"},
		{terminal.Command{Line: "ls", Env: map[string]string{"A": "\x00"}}, "variable A"},
	} {
		err := c.cmd.Check()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v, want none", c.cmd, err)
		case c.want != "" && (!errors.Is(err, terminal.ErrBadCommand) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v, want ErrBadCommand with %q", c.cmd, err, c.want)
		}
	}
}

func TestClone(t *testing.T) {
	// A clone shares nothing.
	a := terminal.Command{Args: []string{"a"}, Env: map[string]string{"A": "a"}, Labels: map[string]string{"l": "a"}}
	b := a.Clone()
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	b.Args[0], b.Env["A"], b.Labels["l"] = "b", "b", "b"
	if a.Args[0] != "a" || a.Env["A"] != "a" || a.Labels["l"] != "a" {
		t.Errorf("the original has changed: %+v", a)
	}
}

func TestCommandString(t *testing.T) {
	for _, c := range []struct {
		cmd  terminal.Command
		want string
	}{
		{terminal.Command{Line: "a | b"}, "a | b"},
		{terminal.Command{Args: []string{"a", "b c", "it's", ""}}, `a 'b c' 'it'\''s' ''`},
	} {
		if got := c.cmd.String(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.cmd, got, c.want)
		}
	}
}

func TestExit(t *testing.T) {
	// Unknown is never success, and neither is code 0 beside a signal.
	for _, c := range []struct {
		exit           terminal.Exit
		success, known bool
		want           string
	}{
		{terminal.Exit{}, false, false, "exit unknown"},
		{terminal.Exit{Code: new(0)}, true, true, "exit code 0"},
		{terminal.Exit{Code: new(3)}, false, true, "exit code 3"},
		{terminal.Exit{Signal: "SIGKILL"}, false, true, "SIGKILL"},
		{terminal.Exit{Code: new(0), Signal: "SIGTERM"}, false, true, "SIGTERM"},
	} {
		if c.exit.Success() != c.success || c.exit.Known() != c.known || c.exit.String() != c.want {
			t.Errorf("%v: success %v, known %v; want %v, %v, %s", c.exit, c.exit.Success(), c.exit.Known(), c.success, c.known, c.want)
		}
	}
}

func TestInfo(t *testing.T) {
	if terminal.Running.Ended() || terminal.Outcome("").Ended() || !terminal.Unknown.Ended() {
		t.Error("Ended is wrong")
	}
	synctest.Test(t, func(t *testing.T) {
		info := terminal.Info{}
		if got := info.RunTime(); got != 0 {
			t.Errorf("not started: %v", got)
		}
		info.Started = time.Now()
		time.Sleep(time.Second)
		if got := info.RunTime(); got != time.Second {
			t.Errorf("running: %v", got)
		}
		info.Ended = time.Now()
		time.Sleep(time.Second)
		if got := info.RunTime(); got != time.Second {
			t.Errorf("ended: %v", got)
		}
	})
	for _, c := range []struct {
		out  terminal.Output
		want bool
	}{
		{terminal.Output{}, false},
		{terminal.Output{Info: terminal.Info{Outcome: terminal.Running}}, false},
		{terminal.Output{Info: terminal.Info{Outcome: terminal.Exited}, More: true}, false},
		{terminal.Output{Info: terminal.Info{Outcome: terminal.Exited}}, true},
	} {
		if got := c.out.EOF(); got != c.want {
			t.Errorf("%+v: EOF %v", c.out, got)
		}
	}
}

func TestLeakError(t *testing.T) {
	err := error(&terminal.LeakError{Leaks: []terminal.Leak{
		{What: "process", ID: "a", Procs: []terminal.Proc{{PID: 1, Command: "x y"}, {PID: 2, Command: "z"}}, Err: io.ErrUnexpectedEOF},
		{What: "terminal/create"},
	}})
	want := "2 left behind: process of terminal a: 1 (x y), 2 (z): unexpected EOF; terminal/create"
	if err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		t.Error("Unwrap is wrong")
	}
}

// start starts cmd in a Manager that lasts as long as the test.
func start(t *testing.T, cmd terminal.Command) terminal.Terminal {
	t.Helper()
	m := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{
		"count": func(p *memterm.Process) terminal.Exit {
			for _, word := range p.Args[1:] {
				if !p.Sleep(time.Second) {
					return p.Death()
				}
				io.WriteString(p.Stdout, word+"\n")
			}
			return memterm.Code(0)
		},
	}})
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	term, err := m.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := start(t, terminal.Command{Line: "count a b"})
		because := errors.New("because")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, because)
		defer cancel()
		if info, err := terminal.Wait(ctx, term); !errors.Is(err, because) || info.Outcome != terminal.Running {
			t.Errorf("a wait whose context ends: %v, %v; want running, and the cause", info.Outcome, err)
		}
		info, err := terminal.Wait(t.Context(), term)
		if err != nil || !info.Exit.Success() || info.RunTime() != 2*time.Second {
			t.Errorf("%v, %v after %v", info.Exit, err, info.RunTime())
		}
		// Both at once: the end is the better news.
		if _, err := terminal.Wait(ctx, term); err != nil {
			t.Errorf("an ended context, and an ended command: %v", err)
		}
	})
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each output as it comes, and at last one whose EOF is true.
		term := start(t, terminal.Command{Line: "count a b"})
		var got []string
		begin := time.Now()
		for out, err := range terminal.Follow(t.Context(), term, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if out.Text != "" {
				got = append(got, time.Since(begin).String()+" "+out.Text)
			}
			if out.EOF() && out.Info.Outcome != terminal.Exited {
				t.Errorf("at the end: %v", out.Info.Outcome)
			}
		}
		if diff := cmp.Diff([]string{"1s a\n", "2s b\n"}, got); diff != "" {
			t.Error(diff)
		}

		// An ended command has the EOF at once.
		n := 0
		for out, err := range terminal.Follow(t.Context(), term, 2) {
			if n++; out.Text != "b\n" || !out.EOF() || err != nil {
				t.Errorf("%+v, %v", out, err)
			}
		}
		if n != 1 {
			t.Errorf("%d outputs, want 1", n)
		}

		// A context that ends has the last word, a caller who breaks too.
		term = start(t, terminal.Command{Line: "count a b"})
		because := errors.New("because")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 1500*time.Millisecond, because)
		defer cancel()
		var last error
		for _, last = range terminal.Follow(ctx, term, 0) {
		}
		if !errors.Is(last, because) {
			t.Errorf("%v, want the cause", last)
		}
		for range terminal.Follow(t.Context(), term, 0) {
			break
		}
	})
}

// A limited Writer takes n writes.
type limitedWriter struct {
	strings.Builder
	n int
}

func (w *limitedWriter) Write(b []byte) (int, error) {
	if w.n--; w.n < 0 {
		return 0, io.ErrShortWrite
	}
	return w.Builder.Write(b)
}

func (w *limitedWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func TestCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A broken Copy goes on at the cursor that it returned.
		term := start(t, terminal.Command{Line: "count a b c"})
		w := &limitedWriter{n: 1}
		next, err := terminal.Copy(t.Context(), w, term, 0)
		if !errors.Is(err, io.ErrShortWrite) || w.String() != "a\n" {
			t.Errorf("%q, %v", w.String(), err)
		}
		w.n = 10
		if _, err := terminal.Copy(t.Context(), w, term, next); err != nil || w.String() != "a\nb\nc\n" {
			t.Errorf("%q, %v", w.String(), err)
		}

		// What was lost is marked.
		term = start(t, terminal.Command{Line: "count aaa bbb ccc", OutputLimit: 8})
		terminal.Wait(t.Context(), term)
		var b strings.Builder
		if _, err := terminal.Copy(t.Context(), &b, term, 0); err != nil || b.String() != terminal.GapMark+"bbb\nccc\n" {
			t.Errorf("%q, %v", b.String(), err)
		}

		// A sequence that lost its start there is left out.
		term = start(t, terminal.Command{Line: "count \x1b[1;31mred\x1b[0m", OutputLimit: 12})
		terminal.Wait(t.Context(), term)
		b.Reset()
		if _, err := terminal.Copy(t.Context(), &b, term, 0); err != nil || b.String() != terminal.GapMark+"red\x1b[0m\n" {
			t.Errorf("%q, %v", b.String(), err)
		}
	})
}

// A sequence that lost its end before it could be copied is ended: else what
// follows would belong to it.
func TestCopyEndsASequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{"title": func(p *memterm.Process) terminal.Exit {
			io.WriteString(p.Stdout, "\x1b]0;title")
			time.Sleep(time.Second)
			io.WriteString(p.Stdout, strings.Repeat("text ", 100))
			return memterm.Code(0)
		}}})
		defer m.Close()
		term, err := m.Start(t.Context(), terminal.Command{Args: []string{"title"}, OutputLimit: 20})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if _, err := terminal.Copy(t.Context(), &b, term, 0); err != nil || b.String() != "\x1b]0;title\x18"+terminal.GapMark+strings.Repeat("text ", 4) {
			t.Errorf("%q, %v", b.String(), err)
		}
	})
}

// A Wrapper wraps a terminal and has no optional interface of its own.
type wrapper struct{ terminal.Terminal }

func (w wrapper) Unwrap() terminal.Terminal { return w.Terminal }

func TestAs(t *testing.T) {
	term := start(t, terminal.Command{Line: "cat", Stdin: true})
	direct, ok := term.(terminal.InputCloser)
	if !ok {
		t.Fatal("memterm has no CloseInput")
	}
	for name, wrapped := range map[string]terminal.Terminal{"itself": term, "wrapped": wrapper{term}, "twice": wrapper{&wrapper{term}}} {
		if got, ok := terminal.As[terminal.InputCloser](wrapped); !ok || got != direct {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
		if _, ok := terminal.As[interface{ no() }](wrapped); ok {
			t.Errorf("%s is what it is not", name)
		}
	}
	if got, ok := terminal.As[wrapper](wrapper{term}); !ok || got.Terminal != term {
		t.Errorf("the outer one comes first: %v, %v", got, ok)
	}
	if _, ok := terminal.As[terminal.InputCloser](struct{ terminal.Terminal }{term}); ok {
		t.Error("what does not unwrap was looked into")
	}
	for _, none := range []terminal.Terminal{nil, wrapper{}} {
		if _, ok := terminal.As[terminal.InputCloser](none); ok {
			t.Error("nothing is something")
		}
	}
}

// A sentence about a command says how it stands, and does not call an end known that
// nobody has confirmed.
func TestInfoString(t *testing.T) {
	start := time.Unix(100, 0)
	after := func(d time.Duration, i terminal.Info) terminal.Info {
		i.ID, i.Started, i.Ended = "t3", start, start.Add(d)
		return i
	}
	because := errors.New("because")
	for _, c := range []struct {
		info terminal.Info
		want string
	}{
		{after(12*time.Second, terminal.Info{Outcome: terminal.Running}), "is running as t3, for 12s"},
		{after(1234567*time.Microsecond, terminal.Info{Outcome: terminal.Exited, Exit: terminal.Exit{Code: new(3)}}), "exited with code 3 after 1.235s"},
		{after(time.Hour, terminal.Info{Outcome: terminal.Exited}), "ended, with an unknown exit code after 1h0m0s"},
		{after(0, terminal.Info{Outcome: terminal.Signalled, Exit: terminal.Exit{Signal: "SIGSEGV"}}), "was ended by SIGSEGV after 0s"},
		{after(0, terminal.Info{Outcome: terminal.Signalled}), "was ended by a signal after 0s"},
		{after(2*time.Second, terminal.Info{Outcome: terminal.TimedOut}), "reached its timeout and was stopped after 2s; what it had written is kept"},
		{after(2*time.Second, terminal.Info{Outcome: terminal.TimedOut, Err: because}), "reached its timeout; it is not known to have ended after 2s; what it had written is kept: because"},
		{after(0, terminal.Info{Outcome: terminal.Stopped}), "was stopped after 0s"},
		{after(0, terminal.Info{Outcome: terminal.Stopped, Survivors: []terminal.Proc{{PID: 1}}}), "was to be stopped; it is not known to have ended after 0s"},
		{after(0, terminal.Info{Outcome: terminal.Stopped, Survivors: []terminal.Proc{}, Err: because}), "was stopped after 0s: because"},
		{after(0, terminal.Info{Outcome: terminal.Cancelled}), "was cancelled and was stopped after 0s"},
		{terminal.Info{Outcome: terminal.Cancelled}, "was cancelled before it had started"},
		{after(0, terminal.Info{Outcome: terminal.StoppedByClient}), "was stopped in the client after 0s"},
		{after(0, terminal.Info{Outcome: terminal.ConnectionLost}), "was lost with the connection after 0s; what became of it is unknown"},
		{terminal.Info{Outcome: terminal.Failed, Err: because}, "failed: because"},
		{after(0, terminal.Info{Outcome: terminal.Unknown}), "ended after 0s; nobody could say how"},
	} {
		if got := c.info.String(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}
