// Package terminaltest is the suite that every [terminal.Manager] passes: the
// rules of the contract, each with its cases.
//
//	func TestMain(m *testing.M) { terminaltest.Main(m) }
//
//	func TestManager(t *testing.T) {
//		terminaltest.Test(t, terminaltest.Config{
//			New:     func(t terminaltest.T) terminal.Manager { return localterm.New(nil) },
//			Program: terminaltest.ReexecProgram,
//			Input:   true, TTY: true, Tree: true, Signal: true, Exact: true,
//		})
//	}
//
// Each case is a subtest RULE/CASE with a Manager of its own, which it closes;
// in real time cases run in parallel.
// Its log starts with the rule, so that a failure says what was broken. Where a
// Manager lacks something (see [Config]) the case asserts what it must do
// instead. No case waits for ever, and no case expects real time to be quick:
// the same cases run with real processes on a busy machine and in the fake time
// of testing/synctest.
package terminaltest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// T is what the cases need of a *testing.T. Fatalf and Skipf do not return.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Context() context.Context
	Cleanup(func())
	TempDir() string
}

// Limits are options that every Manager has in some form; zero is the default.
type Limits struct {
	MaxTerminals int // kept, live and ended
	OutputLimit  int // bytes kept of a command that does not say
	ManagerBytes int // bytes kept of all commands together

	WaitForSlot bool // Start waits while MaxTerminals commands run
}

// Config describes a Manager to the suite.
type Config struct {
	// New returns a new Manager with default limits. The case closes it; what
	// else it needs is ended by t.Cleanup.
	New func(t T) terminal.Manager

	// Limited is New with limits, and returns nil if the Manager does not have
	// one of those that are not zero: then the case is skipped and says so.
	// Limited may be nil if the Manager has none at all.
	Limited func(t T, l Limits) terminal.Manager

	// Program returns the command that runs one of [Programs]; nil is the
	// program's name and args as Args. It sets Args, which the cases may also
	// join to a Line, and it may set TTY, to run the cases on terminals; those
	// that need a terminal or a pipe see to it themselves.
	Program func(name string, args ...string) terminal.Command

	Input  bool // WriteInput works; without it Start refuses Command.Stdin with ErrNoInput
	TTY    bool // Command.TTY is a terminal; without it it is accepted, and Resize may be unsupported
	Tree   bool // Stop reaches every process; without it only what it can, and Info.Survivors may be nil
	Signal bool // Signal works; without it it may be unsupported
	Exact  bool // output is never lost before it is read; without it losses are marked, by Truncated or GapMark
	Codes  bool // the death by a signal may be reported as the exit code 128 and its number
	Alone  bool // a command's background processes end when it does

	// Lasting are texts of the stacks of goroutines that outlive the Manager's
	// Close: those of executors, which the test closes itself.
	Lasting []string

	// Bubble runs f in fake time, as synctest.Test does, which most Configs
	// set it to. Nil is real time.
	Bubble func(t *testing.T, f func(t *testing.T))
}

// A rule is one of the contract's, with the cases that pin it.
type rule struct {
	name  string // short, for the names of subtests
	text  string
	cases []testCase
}

// A testCase pins one sentence of a rule.
type testCase struct {
	name  string
	run   func(h *harness)
	alone bool // no other case may run at the same time
}

// rules are all, in the order of the contract.
func rules() []rule {
	return []rule{
		commandRule, startRule, readRule, inputRule, stopRule, exitRule, limitRule, concurrencyRule,
	}
}

// Test runs every case as a subtest of t.
func Test(t *testing.T, c Config) {
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			if c.Bubble == nil && !slices.ContainsFunc(r.cases, func(tc testCase) bool { return tc.alone }) {
				t.Parallel() // cases mostly sleep
			}
			for _, tc := range r.cases {
				t.Run(tc.name, func(t *testing.T) {
					if c.Bubble != nil {
						c.Bubble(t, func(t *testing.T) { runCase(t, c, r, tc) })
						return
					}
					if !tc.alone {
						t.Parallel()
					}
					runCase(t, c, r, tc)
				})
			}
		})
	}
}

// bound is how long a case waits for what must happen. It is far more than
// anything needs, since a real machine may be busy.
const bound = 30 * time.Second

// prompt is the upper bound for what must happen at once. It is far less than
// what a case makes the Manager wait for, and far more than a busy machine needs.
const prompt = 10 * time.Second

// runCase runs a case with a Manager of its own.
func runCase(t T, c Config, r rule, tc testCase) {
	t.Helper()
	t.Logf("rule %s: %s", r.name, r.text)
	if c.Program == nil {
		c.Program = func(name string, args ...string) terminal.Command {
			return terminal.Command{Args: append([]string{name}, args...)}
		}
	}
	t.TempDir() // so that it is removed after the Manager has closed
	tc.run(&harness{T: t, c: c})
}

// A harness is a case's T, with what cases have in common. Its methods fail
// the case where something cannot go on, and none waits longer than bound.
type harness struct {
	T
	c Config
	m terminal.Manager // of manager or limited
}

// manager returns the case's Manager.
func (h *harness) manager() terminal.Manager {
	h.Helper()
	if h.m == nil {
		h.own(h.c.New(h.T))
	}
	return h.m
}

// own makes m the case's Manager, which the case closes before what m needs is
// cleaned up.
func (h *harness) own(m terminal.Manager) {
	h.m = m
	h.Cleanup(h.close)
}

// limited makes the case's Manager one with limits.
func (h *harness) limited(l Limits) terminal.Manager {
	h.Helper()
	var m terminal.Manager
	if h.c.Limited != nil {
		m = h.c.Limited(h.T, l)
	}
	if m == nil {
		h.Skipf("the Manager has no limits like %+v", l)
	}
	h.own(m)
	return m
}

// close closes the Manager. A case may do it before its end does.
func (h *harness) close() {
	h.Helper()
	h.within(bound, "Close", func() {
		if err := h.m.Close(); err != nil {
			h.Errorf("Close: %v", err)
		}
	})
}

// within fails the case if f does not return in time. F runs in a goroutine,
// and so must not end the case.
func (h *harness) within(d time.Duration, what string, f func()) {
	h.Helper()
	done := make(chan struct{})
	go func() { // joined, or the case has failed
		defer close(done)
		f()
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		h.Fatalf("%s has not returned after %v", what, d)
	}
}

// start starts one of Programs, and fails the case if it cannot.
func (h *harness) start(name string, args ...string) terminal.Terminal {
	h.Helper()
	return h.startCommand(h.c.Program(name, args...))
}

func (h *harness) startCommand(cmd terminal.Command) terminal.Terminal {
	h.Helper()
	t, err := h.tryStart(h.ctx(bound), cmd)
	if err != nil {
		h.Fatalf("Start(%s): %v", cmd, err)
	}
	return t
}

// tryStart is a Start that must return.
func (h *harness) tryStart(ctx context.Context, cmd terminal.Command) (t terminal.Terminal, err error) {
	h.Helper()
	m := h.manager()
	h.within(bound, "Start", func() { t, err = m.Start(ctx, cmd) })
	switch {
	case err == nil && t == nil:
		h.Fatalf("Start(%s) returned neither a terminal nor an error", cmd)
	case err != nil && t != nil:
		h.Errorf("Start(%s) returned a terminal beside the error %v", cmd, err)
	}
	return t, err
}

// ctx returns a context that ends after d, or with the case.
func (h *harness) ctx(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(h.Context(), d, fmt.Errorf("the case's bound of %v", d))
	h.Cleanup(cancel)
	return ctx
}

// read is a ReadOutput that must return, and without an error.
func (h *harness) read(t terminal.Terminal, cursor int64, wait time.Duration) terminal.Output {
	h.Helper()
	out, err := h.tryRead(h.ctx(2*bound), t, cursor, wait)
	if err != nil {
		h.Fatalf("ReadOutput(%d, %v): %v", cursor, wait, err)
	}
	return out
}

// tryRead is a ReadOutput that must return, with a look at what every Output
// must be.
func (h *harness) tryRead(ctx context.Context, t terminal.Terminal, cursor int64, wait time.Duration) (out terminal.Output, err error) {
	h.Helper()
	h.within(wait+bound, "ReadOutput", func() { out, err = t.ReadOutput(ctx, cursor, wait) })
	h.checkOutput(out)
	return out, err
}

// end waits for the end of the command, and checks the final Info.
func (h *harness) end(t terminal.Terminal) terminal.Info {
	h.Helper()
	return h.endWithin(t, bound)
}

func (h *harness) endWithin(t terminal.Terminal, d time.Duration) terminal.Info {
	h.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.Done():
	case <-timer.C:
		h.Fatalf("the command has not ended after %v: %+v", d, t.Info())
	}
	info := t.Info()
	h.checkFinal(info)
	return info
}

// stop is a Stop that must return, and without an error.
func (h *harness) stop(t terminal.Terminal) (info terminal.Info) {
	h.Helper()
	var err error
	ctx := h.ctx(bound)
	h.within(bound, "Stop", func() { info, err = t.Stop(ctx) })
	if err != nil {
		h.Fatalf("Stop: %v", err)
	}
	h.checkFinal(info)
	return info
}
