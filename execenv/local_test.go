//go:build unix

package execenv_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

var (
	_ execenv.Executor = (*execenv.Local)(nil)
	_ execenv.Session  = execenv.NewLocal(nil).Command(context.Background(), execenv.Spec{Group: true}).(execenv.Session)
)

func TestExit(t *testing.T) {
	l := newLocal(t, nil)
	for script, want := range map[string]string{
		"exit 0":                        "exit code 0",
		"exit 7":                        "exit code 7",
		"exit 300":                      "exit code 44",
		"kill -9 $$":                    "SIGKILL",
		"kill -TERM $$":                 "SIGTERM",
		"kill -SEGV $$":                 "SIGSEGV",
		"sh -c 'kill -9 $$'; exit $?":   "exit code 137", // a shell's word for it, not a signal to us
		"no-such-command-x 2>/dev/null": "exit code 127",
	} {
		for _, group := range []bool{false, true} {
			spec := sh(script)
			spec.Group = group
			p := l.Command(t.Context(), spec)
			err := p.Run()
			if want == "exit code 0" {
				if err != nil {
					t.Errorf("%s: got %v", script, err)
				}
				continue
			}
			if got := exitOf(err); got != want {
				t.Errorf("%s: got %s, want %s", script, got, want)
			}
			if s, ok := p.(execenv.Session); ok != group || ok && s.Exit().String() != want {
				t.Errorf("%s: a Session only with Group, and it has the exit", script)
			}
		}
	}
}

// A process without a group of its own is in the agent's: a signal to the
// group would be suicide.
func TestSignalGroupIsNeverTheAgents(t *testing.T) {
	l := newLocal(t, nil)
	p := l.Command(t.Context(), sh("sleep 60"))
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.SignalGroup(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if got := exitOf(p.Wait()); got != "SIGTERM" {
		t.Errorf("got %s", got)
	}
}

func TestContext(t *testing.T) {
	needTable(t)
	l := newLocal(t, nil)
	cause := errors.New("enough")
	t.Run("kills the process", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		p := l.Command(ctx, sh("exec sleep 60"))
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		cancel(cause)
		err := p.Wait()
		if exitOf(err) != "SIGKILL" || !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("kills the tree of a group", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		spec := sh("sleep 60 & sleep 60")
		spec.Group = true
		var out bytes.Buffer
		spec.Stdout = &out // both hold it
		p := l.Command(ctx, spec)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		cancel(cause)
		if err := p.Wait(); exitOf(err) != "SIGKILL" || !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("bounds the wait for output that a child holds", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		spec := sh("sleep 60 & echo hi")
		var out bytes.Buffer
		spec.Stdout = &out
		p := l.Command(ctx, spec)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
		began := time.Now()
		if err := p.Wait(); !errors.Is(err, cause) || out.String() != "hi\n" {
			t.Errorf("got %v, %q", err, out.String())
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
	})
	t.Run("ended before the start: nothing runs", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		marker := filepath.Join(t.TempDir(), "ran")
		err := l.Command(ctx, sh("touch "+marker)).Run()
		if _, ok := errors.AsType[*execenv.StartError](err); !ok || !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it ran: %v", err)
		}
	})
	t.Run("does not touch an exit of its own", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := l.Command(ctx, sh("exit 3"))
		if err := p.Run(); exitOf(err) != "exit code 3" || errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		cancel()
	})
}

func TestStartErrors(t *testing.T) {
	l := newLocal(t, nil)
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gone := filepath.Join(dir, "gone")
	text := file("text", "#!/bin/sh\n", 0o644)
	busy := file("busy", "#!/bin/sh\n", 0o755)
	open, err := os.OpenFile(busy, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o755); err != nil {
		t.Fatal(err)
	}
	onPath := execenv.Env{}.With(map[string]string{"PATH": dir + ":relative"})
	for _, c := range []struct {
		name string
		spec execenv.Spec
		is   []error
		text string
	}{
		{"a missing directory", execenv.Spec{Path: "true", Dir: gone}, []error{execenv.ErrNoDir, fs.ErrNotExist}, "no such working directory"},
		{"a file for a directory", execenv.Spec{Path: "true", Dir: text}, []error{execenv.ErrNoDir}, "no such working directory"},
		{"no such command", execenv.Spec{Path: "no-such-command-x"}, []error{execenv.ErrNoCommand, fs.ErrNotExist}, `start "no-such-command-x": no such command`},
		{"no such file", execenv.Spec{Path: gone}, []error{execenv.ErrNoCommand, fs.ErrNotExist}, "no such command"},
		{"a path through a file", execenv.Spec{Path: text + "/x"}, []error{execenv.ErrNoCommand}, "no such command"},
		{"no program at all", execenv.Spec{}, []error{execenv.ErrNoCommand}, "no program given"},
		{"not executable", execenv.Spec{Path: text}, []error{execenv.ErrNotExecutable, fs.ErrPermission}, "not executable"},
		{"not executable on the PATH", execenv.Spec{Path: "text", Env: onPath}, []error{execenv.ErrNotExecutable, fs.ErrPermission}, text},
		{"the PATH is the process's own", execenv.Spec{Path: "sh", Env: onPath}, []error{execenv.ErrNoCommand}, dir},
		{"a directory", execenv.Spec{Path: dir}, []error{execenv.ErrIsDirectory}, "is a directory"},
		{"a FIFO", execenv.Spec{Path: fifo}, []error{execenv.ErrNotExecutable, fs.ErrPermission}, "not a regular file"},
		{"a FIFO on the PATH", execenv.Spec{Path: "fifo", Env: onPath}, []error{execenv.ErrNoCommand}, "not in PATH"},
		{"a FIFO for an interpreter", execenv.Spec{Path: file("piped", "#!"+fifo+"\n", 0o755)}, []error{execenv.ErrBadInterpreter, fs.ErrPermission}, fifo},
		{"a device", execenv.Spec{Path: "/dev/zero"}, []error{execenv.ErrNotExecutable, fs.ErrPermission}, "not a regular file"},
		{"a missing interpreter", execenv.Spec{Path: file("script", "#!/no/such/sh -x\n", 0o755)}, []error{execenv.ErrBadInterpreter, fs.ErrNotExist}, "/no/such/sh"},
		{"neither program nor script", execenv.Spec{Path: file("junk", "echo hi\n", 0o755)}, []error{execenv.ErrExecFormat, syscall.ENOEXEC}, "#! line"},
		{"a file that is open for writing", execenv.Spec{Path: busy}, []error{execenv.ErrTextBusy, syscall.ETXTBSY}, "text file busy"},
		{"a word over the kernel's limit", execenv.Spec{Path: "true", Args: []string{strings.Repeat("x", limits.MaxWord)}}, []error{terminal.ErrTooLarge}, "too large"},
		{"a NUL byte", execenv.Spec{Path: "true", Args: []string{"a\x00b"}}, []error{syscall.EINVAL}, "NUL"},
		{"a bad variable", execenv.Spec{Path: "true", Env: execenv.Env{}.With(map[string]string{"A=B": ""})}, []error{syscall.EINVAL}, "A=B"},
		{"a terminal and Stdout", execenv.Spec{Path: "true", TTY: &execenv.TTY{}, Stdout: io.Discard}, []error{syscall.EINVAL}, "TTY excludes"},
	} {
		for _, tty := range []*execenv.TTY{nil, {Input: true}} {
			if c.spec.TTY == nil {
				c.spec.TTY = tty
			}
			p := l.Command(t.Context(), c.spec)
			err := p.Start()
			e, ok := errors.AsType[*execenv.StartError](err)
			if !ok || e.Path != c.spec.Path || e.Dir != c.spec.Dir || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: got %v", c.name, err)
			}
			for _, want := range c.is {
				if !errors.Is(err, want) {
					t.Errorf("%s: got %v, want one that is %v", c.name, err, want)
				}
			}
			if err := p.Kill(); err != nil {
				t.Errorf("%s: Kill after a failed start: %v", c.name, err)
			}
			if err := p.Wait(); err == nil {
				t.Errorf("%s: Wait after a failed start: no error", c.name)
			}
		}
	}
}

// A file that somebody has just written may be held open for an instant by the
// child of another start.
func TestTextBusyPasses(t *testing.T) {
	l := newLocal(t, nil)
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { f.Close() })
	if got := exitOf(l.Command(t.Context(), execenv.Spec{Path: path}).Run()); got != "exit code 5" {
		t.Errorf("got %s", got)
	}
}

func TestEnvironOfAProcess(t *testing.T) {
	t.Setenv("TERM", "the-agents-own")
	t.Setenv("SOME_API_KEY", "secret")
	t.Setenv("TERMBRIDGE_ID", "OUTER.1,")
	l := newLocal(t, nil)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	env := func(spec execenv.Spec) map[string]string {
		t.Helper()
		spec.Path, spec.Dir = "env", dir
		vars := make(map[string]string)
		r := start(t, l, spec)
		for line := range strings.Lines(r.rest(t)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			vars[name] = value
		}
		return vars
	}
	pipes := env(execenv.Spec{Env: execenv.Env{}.InheritSafe()})
	tty := env(execenv.Spec{TTY: &execenv.TTY{}})
	set := env(execenv.Spec{Env: execenv.Env{}.With(map[string]string{"TERM": "vt52"})})
	if pipes["TERM"] != "dumb" || tty["TERM"] != "xterm-256color" || set["TERM"] != "vt52" {
		t.Errorf("TERM: got %q, %q and %q", pipes["TERM"], tty["TERM"], set["TERM"])
	}
	if pipes["PWD"] != dir {
		t.Errorf("PWD: got %q, want %q", pipes["PWD"], dir)
	}
	if _, ok := pipes["SOME_API_KEY"]; ok {
		t.Error("a secret was inherited")
	}
	tag := pipes["TERMBRIDGE_ID"]
	if rest, ok := strings.CutPrefix(tag, "OUTER.1,"); !ok || rest == "" || tag == tty["TERMBRIDGE_ID"] {
		t.Errorf("tags: got %q and %q: each process has its own, behind those of the agent", tag, tty["TERMBRIDGE_ID"])
	}
}

func TestClosedLocal(t *testing.T) {
	l := execenv.NewLocal(nil)
	r := start(t, l, sh("sleep 60"))
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	wait(t, r.Exited(), "Close ends what runs")
	if err := l.Command(t.Context(), sh("true")).Run(); !errors.Is(err, terminal.ErrClosed) {
		t.Errorf("a start after Close: got %v", err)
	}
	if err := execenv.NewLocal(nil).Close(); err != nil {
		t.Errorf("Close of an unused Local: %v", err)
	}
}
