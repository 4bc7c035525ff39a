// Package execenvtest is the suite that every [execenv.Executor] passes: each
// operation of [execenv.Process] and [execenv.Session], with its cases.
//
//	func TestExecutor(t *testing.T) {
//		e := execenv.NewLocal(nil)
//		t.Cleanup(func() { e.Close() })
//		execenvtest.Test(t, execenvtest.Config{Executor: e, Signals: true, Ordered: true})
//	}
//
// The commands of the cases are lines of POSIX sh, so that the place needs nothing
// else; where one of them is not there (setsid, stty) the case is skipped and says
// so. [Check] runs the same cases outside a test. No case waits for ever, and none
// expects real time to be quick. In a test the cases run in parallel. The Executor
// is the caller's, and is not closed.
package execenvtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

// Config describes an Executor to the suite.
type Config struct {
	// Executor is what is tested. All cases use it, many at once. It stays the
	// caller's, who closes it.
	Executor execenv.Executor

	// Dir is a directory at the place in which files can be made; "" is /tmp.
	Dir string

	// Signals says that a death by a signal is always told from the exit code
	// 128 and its number. Without it the code may stand for the signal.
	Signals bool

	// Ordered says that what a process writes to one output after the other
	// arrives in that order, where both go to one writer.
	Ordered bool

	// Alone says that what a process leaves in the background ends with it.
	Alone bool

	// Blind says that the place cannot say what it runs, as without /proc: what
	// is left is not known, and what has left the group may live on.
	Blind bool

	// NoTerminal says that the place has no terminals: they are not asked for.
	NoTerminal bool
}

// T is what the cases need of a *testing.T. Fatalf and Skipf do not return.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Context() context.Context
	Cleanup(func())
}

// A testCase pins one rule.
type testCase struct {
	name string
	rule string
	run  func(h *harness)
}

func cases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{startCases, outputCases, inputCases, exitCases, signalCases, treeCases, terminalCases} {
		all = append(all, group...)
	}
	return all
}

// Test runs every case as a parallel subtest of t.
func Test(t *testing.T, c Config) {
	for _, tc := range cases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			t.Logf("rule: %s", tc.rule)
			tc.run(newHarness(t, c))
		})
	}
}

// bound is how long a case waits for what must happen. It is far more than
// anything needs, since a real place may be busy.
const bound = 30 * time.Second

// A harness is a case's T, with what cases have in common.
type harness struct {
	T
	c Config
}

func newHarness(t T, c Config) *harness {
	if c.Dir == "" {
		c.Dir = "/tmp"
	}
	return &harness{t, c}
}

// sh is a Spec that runs a line.
func sh(line string, args ...string) execenv.Spec {
	return execenv.Spec{Path: "/bin/sh", Args: append([]string{"-c", line, "sh"}, args...), Group: true}
}

// command returns a Process which ends with the case at the latest.
func (h *harness) command(spec execenv.Spec) execenv.Session {
	h.Helper()
	s, ok := h.c.Executor.Command(context.WithoutCancel(h.Context()), spec).(execenv.Session)
	if !ok {
		h.Fatalf("a Process with Spec.Group or Spec.TTY is no Session")
	}
	return s
}

// within fails the case if f does not return in time. F runs in a goroutine, and
// so must not end the case.
func (h *harness) within(what string, f func()) {
	h.Helper()
	done := make(chan struct{})
	go func() { // joined, or the case has failed
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(bound):
		h.Fatalf("%s has not returned after %v", what, bound)
	}
}

// eventually fails the case if f does not become nil in time.
func (h *harness) eventually(f func() error) {
	h.Helper()
	var err error
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	h.Fatalf("after %v: %v", bound, err)
}

// output runs a Spec and returns both of its outputs.
func (h *harness) output(spec execenv.Spec) (out string, err error) {
	h.Helper()
	var b []byte
	h.within("CombinedOutput", func() { b, err = h.command(spec).CombinedOutput() })
	return string(b), err
}

// must is output of a Spec that succeeds.
func (h *harness) must(spec execenv.Spec) string {
	h.Helper()
	out, err := h.output(spec)
	if err != nil {
		h.Fatalf("%q: %v\n%s", spec.Args, err, show(out))
	}
	return out
}

// has skips the case where the place lacks a program.
func (h *harness) has(programs ...string) {
	h.Helper()
	for _, program := range programs {
		if _, err := h.output(sh(`command -v "$1"`, program)); err != nil {
			h.Skipf("the place has no %s", program)
		}
	}
}

// dir makes a directory at the place, which is removed with the case.
func (h *harness) dir() string {
	h.Helper()
	dir := strings.TrimSpace(h.must(sh(`i=$$; while ! mkdir "$1/execenvtest.$i" 2>/dev/null; do i=$((i+1)); [ $i -lt $(($$+1000)) ] || exit 1; done; echo "$1/execenvtest.$i"`, h.c.Dir)))
	h.Cleanup(func() {
		p := h.c.Executor.Command(context.Background(), sh(`rm -rf "$1"`, dir))
		if out, err := p.CombinedOutput(); err != nil && !errors.Is(err, terminal.ErrClosed) {
			h.Errorf("%s is left at the place: %v: %s", dir, err, out)
		}
	})
	return dir
}

// A running is a started process whose output is collected: of its terminal, or
// of its standard output.
type running struct {
	execenv.Session
	h    *harness
	term execenv.Terminal // nil without Spec.TTY
	in   io.WriteCloser   // StdinPipe, if it was asked for
	done chan struct{}    // closed at the end of the output
	err  error            // then; nil for io.EOF

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
	over sync.Once
	exit error // of Wait
}

// start starts a process. It is stopped and waited for with the case.
func (h *harness) start(spec execenv.Spec) *running { return h.startWith(spec, false) }

func (h *harness) startWith(spec execenv.Spec, input bool) *running {
	h.Helper()
	r := &running{Session: h.command(spec), h: h, done: make(chan struct{})}
	var out io.Reader
	var err error
	if spec.TTY == nil {
		if out, err = r.StdoutPipe(); err != nil {
			h.Fatalf("StdoutPipe: %v", err)
		}
	}
	if input {
		if r.in, err = r.StdinPipe(); err != nil {
			h.Fatalf("StdinPipe: %v", err)
		}
	}
	h.within("Start", func() { err = r.Start() })
	if err != nil {
		h.Fatalf("Start: %v", err)
	}
	if spec.TTY != nil {
		var ok bool
		if r.term, ok = r.Session.Terminal(); !ok {
			h.Fatalf("Terminal: false with Spec.TTY")
		}
		out = r.term
	}
	go func() { // joined by the Cleanup
		defer close(r.done)
		_, r.err = io.Copy(r, struct{ io.Reader }{out})
	}()
	h.Cleanup(func() {
		h.within("the end of the case", func() {
			select {
			case <-r.Exited():
			default:
				r.StopTree(0)
			}
			_ = r.Wait()
			<-r.done
		})
	})
	return r
}

// Write collects output.
func (r *running) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *running) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// until waits for a text in the output.
func (r *running) until(want string) {
	r.h.Helper()
	r.h.eventually(func() error {
		if out := r.output(); !strings.Contains(out, want) {
			return fmt.Errorf("no %q in the output %s", want, show(out))
		}
		return nil
	})
}

// rest waits for the end of the output, and returns all of it.
func (r *running) rest() string {
	r.h.Helper()
	r.h.within("the output", func() { <-r.done })
	return r.output()
}

// exited waits for the exit.
func (r *running) exited() terminal.Exit {
	r.h.Helper()
	r.h.within("the exit", func() { <-r.Exited() })
	return r.Exit()
}

// Wait may be called more than once.
func (r *running) Wait() error {
	r.over.Do(func() { r.exit = r.Session.Wait() })
	return r.exit
}

// checkExit compares an exit with a code, or with the signal NAME.
func (h *harness) checkExit(what string, got terminal.Exit, code int, signal string) {
	h.Helper()
	switch {
	case signal == "" && got.Signal == "" && got.Code != nil && *got.Code == code:
	case signal != "" && got.Signal == signal:
	case signal != "" && !h.c.Signals && got.Signal == "" && got.Code != nil && *got.Code == code:
	case signal != "":
		h.Errorf("%s: %v, want %s", what, got, signal)
	default:
		h.Errorf("%s: %v, want exit code %d", what, got, code)
	}
}

// exitOf returns the exit in the error of a Wait.
func exitOf(err error) terminal.Exit {
	if err == nil {
		return terminal.Exit{Code: new(0)}
	}
	if e, ok := errors.AsType[*execenv.ExitError](err); ok {
		return e.Exit
	}
	return terminal.Exit{}
}

// show makes an output short enough for the text of a failure.
func show(out string) string {
	if len(out) > 600 {
		return fmt.Sprintf("%q … (%d bytes)", out[:600], len(out))
	}
	return fmt.Sprintf("%q", out)
}
