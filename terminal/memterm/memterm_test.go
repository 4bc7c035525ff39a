package memterm_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// bubble runs f in fake time with a Manager that it closes.
func bubble(t *testing.T, opts *memterm.Options, f func(t *testing.T, m *memterm.Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := memterm.New(opts)
		defer func() {
			if err := m.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}()
		f(t, m)
	})
}

// run starts cmd, waits for its end and returns all its output.
func run(t *testing.T, m *memterm.Manager, cmd terminal.Command) (string, terminal.Info) {
	t.Helper()
	term, err := m.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if _, err := terminal.Copy(t.Context(), &b, term, 0); err != nil {
		t.Fatal(err)
	}
	return b.String(), term.Info()
}

func TestForms(t *testing.T) {
	bubble(t, nil, func(t *testing.T, m *memterm.Manager) {
		for _, c := range []struct {
			cmd  terminal.Command
			want string
			code int
		}{
			{terminal.Command{Args: []string{"echo", "a  b", "$HOME"}}, "a  b $HOME\n", 0},
			{terminal.Command{Line: `echo 'a  b' "c"`}, "a  b c\n", 0},
			{terminal.Command{Line: ":;echo hi"}, "hi\n", 0},
			{terminal.Command{Args: []string{"/bin/sh", "-c", ":;exec </dev/null;echo hi"}}, "hi\n", 0},
			{terminal.Command{Args: []string{"/bin/sh", "-c", ":;exec 'echo' 'a  b' </dev/null"}}, "a  b\n", 0},
			{terminal.Command{Args: []string{"/bin/sh", "-c", ":;exec </dev/null;cat"}, Stdin: true}, "", 0},
			{terminal.Command{Line: `sh -c "exec echo nested"`}, "nested\n", 0},
			{terminal.Command{Line: "exit 3"}, "", 3},
			{terminal.Command{Line: "nothere x"}, "sh: nothere: not found\n", 127},
			{terminal.Command{Line: "echo 'open"}, "sh: syntax error: a quote is not closed\n", 2},
			{terminal.Command{Line: ":;"}, "", 0},
			{terminal.Command{Line: "env", Env: map[string]string{"B": "2", "A": "1"}}, "A=1\nB=2\n", 0},
			{terminal.Command{Line: "pwd", Dir: "/some/where"}, "/some/where\n", 0},
			{terminal.Command{Line: "echo hi", TTY: true}, "hi\n", 0},
		} {
			got, info := run(t, m, c.cmd)
			if got != c.want || info.Exit.Code == nil || *info.Exit.Code != c.code {
				t.Errorf("%s: %q, %v; want %q, code %d", c.cmd, got, info.Exit, c.want, c.code)
			}
		}
		if _, err := m.Start(t.Context(), terminal.Command{Args: []string{"nothere"}}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("words that name no program: %v, want fs.ErrNotExist", err)
		}
		if got := m.Starts("echo"); got != 7 {
			t.Errorf("echo was started %d times, want 7", got)
		}
	})
}

func TestStubborn(t *testing.T) {
	// A program that ignores its stop is killed after the grace; what it
	// writes from then on is dropped.
	opts := &memterm.Options{Grace: 3 * time.Second, Programs: map[string]memterm.Program{
		"stubborn": func(p *memterm.Process) terminal.Exit {
			<-p.Killed
			if n, err := p.Stdout.Write([]byte("late")); n != 0 || err == nil {
				t.Errorf("a killed program wrote %d bytes, %v", n, err)
			}
			return memterm.Code(0)
		},
	}}
	bubble(t, opts, func(t *testing.T, m *memterm.Manager) {
		term, err := m.Start(t.Context(), terminal.Command{Args: []string{"stubborn"}, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		info, err := terminal.Wait(t.Context(), term)
		if err != nil {
			t.Fatal(err)
		}
		if info.Outcome != terminal.TimedOut || info.Exit.Signal != "SIGKILL" || info.RunTime() != 4*time.Second {
			t.Errorf("%v %v after %v, want timed_out by SIGKILL after 4s", info.Outcome, info.Exit, info.RunTime())
		}
		if out, _ := term.ReadOutput(t.Context(), 0, 0); out.Text != "" || !out.EOF() {
			t.Errorf("output %q, EOF %v", out.Text, out.EOF())
		}
	})
}

func TestLeak(t *testing.T) {
	// A program that never returns is reported by Close, which is bounded.
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{
			"leak": func(*memterm.Process) terminal.Exit { <-release; return memterm.Code(0) },
		}})
		term, err := m.Start(t.Context(), terminal.Command{Args: []string{"leak", "a"}})
		if err != nil {
			t.Fatal(err)
		}
		err = m.Close()
		leak, ok := errors.AsType[*terminal.LeakError](err)
		if !ok {
			t.Fatalf("Close: %v, want a LeakError", err)
		}
		if diff := cmp.Diff(term.Info().Survivors, leak.Leaks[0].Procs); diff != "" || leak.Leaks[0].ID != term.Info().ID {
			t.Errorf("leaks %v: %s", leak, diff)
		}
		if again := m.Close(); again != err {
			t.Errorf("second Close: %v", again)
		}
		close(release)
	})
}

func TestTTYInput(t *testing.T) {
	bubble(t, nil, func(t *testing.T, m *memterm.Manager) {
		for _, c := range []struct {
			input, want string
			outcome     terminal.Outcome
		}{
			{"hi\r\x04", "hi\nhi\n", terminal.Exited},
			{"ab\x7fc\n\x04", "ab\b \bc\nac\n", terminal.Exited},
			{"ab\x15c\n\x04", "ab\b \b\b \bc\nc\n", terminal.Exited},
			{"no end\x04\x04", "no endno end", terminal.Exited},
			{"lost\x03", "lost^C", terminal.Signalled},
		} {
			term, err := m.Start(t.Context(), terminal.Command{Line: "cat", TTY: true, Stdin: true})
			if err != nil {
				t.Fatal(err)
			}
			if n, err := term.WriteInput(t.Context(), c.input); n != len(c.input) || err != nil {
				t.Errorf("%q: %d, %v", c.input, n, err)
			}
			info, _ := terminal.Wait(t.Context(), term)
			out, _ := term.ReadOutput(t.Context(), 0, 0)
			if out.Text != c.want || info.Outcome != c.outcome {
				t.Errorf("%q: output %q, %v; want %q, %v", c.input, out.Text, info.Outcome, c.want, c.outcome)
			}
		}
	})
}

func TestStarting(t *testing.T) {
	// A start that waits ends with its context or with the Manager.
	synctest.Test(t, func(t *testing.T) {
		m := memterm.New(&memterm.Options{Starting: func(ctx context.Context, cmd terminal.Command) error {
			if cmd.Line == "true" {
				return os.ErrPermission
			}
			<-ctx.Done()
			return nil
		}})
		if _, err := m.Start(t.Context(), terminal.Command{Line: "true"}); !errors.Is(err, os.ErrPermission) {
			t.Errorf("Start: %v", err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		if _, err := m.Start(ctx, terminal.Command{Line: "false"}); err == nil || !strings.HasSuffix(err.Error(), "enough") {
			t.Errorf("Start: %v, want the cause of its context", err)
		}
		errs := make(chan error)
		go func() {
			_, err := m.Start(t.Context(), terminal.Command{Line: "false"})
			errs <- err
		}()
		synctest.Wait()
		if !m.Busy() {
			t.Error("a start in flight is not busy")
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := <-errs; !errors.Is(err, terminal.ErrClosed) {
			t.Errorf("Start: %v, want ErrClosed", err)
		}
		if m.Starts("false") != 0 || m.Busy() || len(m.List()) != 0 {
			t.Error("something was started")
		}
	})
}

func TestSpawn(t *testing.T) {
	// A child outlives its parent, is named, keeps its later output to itself,
	// and ends with the Manager.
	ended := make(chan struct{})
	opts := &memterm.Options{Programs: map[string]memterm.Program{
		"parent": func(p *memterm.Process) terminal.Exit {
			if _, err := p.Spawn("nothing"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Spawn of no program: %v", err)
			}
			child, err := p.Spawn("child", "a")
			if err != nil || child.Command != "child a" {
				t.Errorf("Spawn: %v, %v", child, err)
			}
			p.Sleep(time.Second)
			return memterm.Code(0)
		},
		"child": func(p *memterm.Process) terminal.Exit {
			defer close(ended)
			p.Stdout.Write([]byte("child"))
			if p.Sleep(time.Minute) {
				t.Error("the child was not stopped")
			}
			p.Stdout.Write([]byte("late"))
			return p.Death()
		},
	}}
	bubble(t, opts, func(t *testing.T, m *memterm.Manager) {
		out, info := run(t, m, terminal.Command{Line: "parent"})
		if out != "child" || len(info.Survivors) != 1 || info.Survivors[0].Command != "child a" {
			t.Errorf("output %q, left %v", out, info.Survivors)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

func TestNoExit(t *testing.T) {
	// A program that ends without saying how is unknown, never a success.
	opts := &memterm.Options{Programs: map[string]memterm.Program{
		"goexit": func(*memterm.Process) terminal.Exit { runtime.Goexit(); return memterm.Code(0) },
		"zero":   func(*memterm.Process) terminal.Exit { return terminal.Exit{} },
	}}
	bubble(t, opts, func(t *testing.T, m *memterm.Manager) {
		for _, name := range []string{"goexit", "zero"} {
			if _, info := run(t, m, terminal.Command{Line: name}); info.Outcome != terminal.Unknown || info.Exit.Known() || info.Err == nil {
				t.Errorf("%s: %v, %v, %v", name, info.Outcome, info.Exit, info.Err)
			}
		}
	})
}

func TestSignals(t *testing.T) {
	// A signal that ends closes Stopped, others are only told of; a program's
	// own word counts, but not after SIGKILL.
	programs := memterm.Standard()
	programs["wait"] = func(p *memterm.Process) terminal.Exit {
		if got := memterm.SignalName(<-p.Signals); got != "SIGUSR1" && got != "SIGWINCH" {
			t.Errorf("signal %s", got)
		}
		select {
		case <-p.Stopped:
		case <-time.After(time.Second):
		}
		return p.Death()
	}
	programs["brave"] = func(p *memterm.Process) terminal.Exit { <-p.Killed; return memterm.Code(0) }
	bubble(t, &memterm.Options{Programs: programs}, func(t *testing.T, m *memterm.Manager) {
		for _, c := range []struct {
			line string
			sig  os.Signal
			want string
		}{
			{"sleep 60", os.Interrupt, "SIGINT"},
			{"sleep 60", syscall.SIGTERM, "SIGTERM"},
			{"brave", os.Kill, "SIGKILL"},
			{"wait", named("user defined signal 1"), "SIGUSR1"},
			{"wait", named("window changed"), "SIGTERM"}, // what Death says of nothing
		} {
			term, err := m.Start(t.Context(), terminal.Command{Line: c.line})
			if err != nil {
				t.Fatal(err)
			}
			if err := term.Signal(c.sig); err != nil {
				t.Error(err)
			}
			info, _ := terminal.Wait(t.Context(), term)
			if info.Outcome != terminal.Signalled || info.Exit.Signal != c.want {
				t.Errorf("%s, %v: %v, %v; want %s", c.line, c.sig, info.Outcome, info.Exit, c.want)
			}
		}
	})
}

// A named is a signal that package syscall does not have on every system.
type named string

func (n named) String() string { return string(n) }
func (named) Signal()          {}

func TestLeakEnds(t *testing.T) {
	// A program that returns late, but before Close, is no leak.
	opts := &memterm.Options{Programs: map[string]memterm.Program{
		"late": func(p *memterm.Process) terminal.Exit { time.Sleep(10 * time.Second); return memterm.Code(0) },
	}}
	bubble(t, opts, func(t *testing.T, m *memterm.Manager) {
		term, err := m.Start(t.Context(), terminal.Command{Line: "late"})
		if err != nil {
			t.Fatal(err)
		}
		info, err := term.Stop(t.Context())
		if err != nil || info.Outcome != terminal.Stopped || len(info.Survivors) != 1 {
			t.Errorf("%v, left %v, %v", info.Outcome, info.Survivors, err)
		}
		time.Sleep(time.Minute)
	})
}

// Processes of a command get signals one by one, and outlive the one that started them.
func TestFork(t *testing.T) {
	var out strings.Builder
	tree := func(p *memterm.Process) terminal.Exit {
		late := func(p *memterm.Process) terminal.Exit {
			p.Sleep(2 * time.Second)
			fmt.Fprintln(p.Stdout, "late")
			return memterm.Code(0)
		}
		middle := *p
		middle.Stdout = &out
		c, err := p.Fork(middle, func(p *memterm.Process) terminal.Exit {
			if _, err := p.Fork(*p, late); err != nil {
				t.Errorf("fork: %v", err)
			}
			<-p.Killed
			if _, err := p.Fork(*p, late); err == nil {
				t.Error("a killed process has started another")
			}
			return memterm.Code(0)
		})
		if err != nil {
			t.Errorf("fork: %v", err)
			return memterm.Code(1)
		}
		p.Sleep(time.Second)
		c.Signal(syscall.SIGKILL)
		if got := c.Exit(); got.Signal != "SIGKILL" {
			t.Errorf("the killed process ended by %v", got)
		}
		if got := len(p.Others()); got != 1 {
			t.Errorf("%d other processes are left, want 1", got)
		}
		p.Spawn("echo")
		for others := p.Others(); len(others) > 0; others = p.Others() {
			<-others[0].Done()
		}
		return memterm.Code(7)
	}
	programs := memterm.Standard()
	programs["tree"] = tree
	bubble(t, &memterm.Options{Programs: programs}, func(t *testing.T, m *memterm.Manager) {
		start := time.Now()
		_, info := run(t, m, terminal.Command{Line: "tree"})
		if info.Exit.Code == nil || *info.Exit.Code != 7 || out.String() != "late\n" || time.Since(start) != 2*time.Second {
			t.Errorf("%v after %v, and the output is %q", info.Exit, time.Since(start), out.String())
		}
		if got := m.Starts("echo"); got != 1 {
			t.Errorf("%d starts of what was spawned, want 1", got)
		}
	})
	if _, err := new(memterm.Process).Fork(memterm.Process{}, tree); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a fork without a Manager: %v", err)
	}
}
