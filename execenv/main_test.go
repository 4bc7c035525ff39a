package execenv_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
)

// full is the length that .ci/run gives the tests that count.
var full = flag.Bool("full", false, "try every box, and run the tests that count at full length")

// The test binary is also the programs that the tests need, and the agent that
// is killed.
func TestMain(m *testing.M) {
	if name := os.Getenv("EXECENV_TEST_PROGRAM"); name != "" {
		programs[name](os.Args[1:])
		os.Exit(0)
	}
	flag.Set("test.parallel", "8") // tests that wait; the command line is parsed later
	os.Exit(m.Run())
}

// long skips a test that waits for seconds, unless all are to run.
func long(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("waits for seconds: -full runs it")
	}
}

// program returns a Spec that runs the test binary as one of programs.
func program(name string, args ...string) execenv.Spec {
	exe, err := filepath.Abs(os.Args[0]) // os.Executable needs /proc
	if err != nil {
		panic(err)
	}
	return execenv.Spec{Path: exe, Args: args, Env: execenv.Env{}.With(map[string]string{"EXECENV_TEST_PROGRAM": name})}
}

func sh(script string) execenv.Spec {
	return execenv.Spec{Path: "sh", Args: []string{"-c", script}}
}

// need fails or skips a test that needs a program, or a file, that is not there.
func need(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if _, err := os.Stat(name); err == nil && filepath.IsAbs(name) {
			continue
		}
		if os.Getenv("TERMBRIDGE_REAL") != "" {
			t.Fatalf("%s is missing", name)
		}
		t.Skipf("%s is missing", name)
	}
}

// needTable skips a test where Linux shows no process table: then it cannot always be
// told what is left. TestEverywhere shows what holds there.
func needTable(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "linux" {
		need(t, "/proc/self/stat")
	}
}

func newLocal(t *testing.T, opts *execenv.LocalOptions) *execenv.Local {
	t.Helper()
	l := execenv.NewLocal(opts)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// start starts a process and collects its output: of the terminal, or of both
// pipes in one.
func start(t *testing.T, l *execenv.Local, spec execenv.Spec) *running {
	t.Helper()
	if spec.TTY == nil {
		spec.Group = true
	}
	p := l.Command(context.WithoutCancel(t.Context()), spec)
	r := &running{Session: p.(execenv.Session), done: make(chan struct{})}
	var out io.Reader
	if spec.TTY == nil {
		var err error
		if out, err = p.StdoutPipe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Start(); errors.Is(err, execenv.ErrNoTerminal) {
		need(t, "/dev/ptmx that is one")
	} else if err != nil {
		t.Fatal(err)
	}
	if spec.TTY != nil {
		r.term, _ = r.Session.Terminal()
		out = r.term
	}
	go func() {
		defer close(r.done)
		_, r.err = io.Copy(r, onlyReader{out})
	}()
	t.Cleanup(func() {
		if !r.waited {
			r.StopTree(0)
			r.Wait()
		}
		wait(t, r.done, "Wait ends the reads")
	})
	return r
}

type onlyReader struct{ io.Reader }

type running struct {
	execenv.Session
	term   execenv.Terminal
	waited bool
	done   chan struct{} // closed at the end of the output
	err    error         // then; nil for io.EOF

	mu   sync.Mutex
	text strings.Builder
}

func (r *running) Wait() error {
	r.waited = true
	return r.Session.Wait()
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// seen returns the output so far.
func (r *running) seen() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// until reads until the output holds text, and returns all of it.
func (r *running) until(t *testing.T, text string) string {
	t.Helper()
	eventually(t, func() error { return errorf(strings.Contains(r.seen(), text), "no %q in %q", text, r.seen()) })
	return r.seen()
}

// rest reads until the end of the output, and returns all of it.
func (r *running) rest(t *testing.T) string {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(20 * time.Second):
		t.Fatalf("the output did not end: %q", r.seen())
	}
	return r.seen()
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("timeout: %s", what)
	}
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func unsetenv(t *testing.T, name string) {
	t.Helper()
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}

func errorf(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func exitOf(err error) string {
	if e, ok := errors.AsType[*execenv.ExitError](err); ok {
		return e.Exit.String()
	}
	return fmt.Sprint(err)
}
