package localterm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/terminal"
)

// A term is one command. While it runs it has a goroutine for each output, and
// if the executor is a good one only for those that have begun.
type term struct {
	m    *Manager
	sess execenv.Session
	tty  execenv.Terminal // nil for pipes
	out  *output
	in   *input        // nil without Stdin
	info terminal.Info // does not change once the command has started

	here   bool                    // it runs on this machine, by a Local
	own    bool                    // which is the Manager's own
	cancel context.CancelCauseFunc // ends a start elsewhere

	prepare  func(*execenv.TTY) error // makes sess; nil once it has started
	stop     chan struct{}            // closed by requestStop
	stopOnce sync.Once
	timeout  *time.Timer // nil without Command.Timeout
	claimed  atomic.Bool // somebody finishes it

	size atomic.Pointer[terminal.Size]

	launched chan struct{} // closed by launch, last
	done     chan struct{} // closed by Manager.ended, once out is closed and final is valid
	final    terminal.Info

	early bool         // it had exited when the Manager began to close; valid once ending is closed
	fate  atomic.Int32 // of the start: undecided, and then one of the others
}

// The fates of a start.
const (
	undecided = iota
	kept      // it is the Manager's to keep
	abandoned // its caller has gone: it is stopped, and never kept
)

var (
	_ terminal.Terminal       = (*term)(nil)
	_ terminal.StreamReader   = (*term)(nil)
	_ terminal.ActivityReader = (*term)(nil)
	_ terminal.InputCloser    = (*term)(nil)
)

// newTerm prepares the process of cmd.
func (m *Manager) newTerm(cmd terminal.Command, spec execenv.Spec) (*term, error) {
	name := cmp.Or(cmd.Environment, m.opts.Default)
	executor, ok := m.opts.Executors[name]
	if !ok {
		return nil, fmt.Errorf("%w: no environment %q: there is %q", terminal.ErrBadCommand, name,
			slices.Sorted(maps.Keys(m.opts.Executors)))
	}
	t := &term{
		m:        m,
		info:     terminal.Info{Environment: name, Command: cmd, Dir: spec.Dir, Outcome: terminal.Running},
		stop:     make(chan struct{}),
		launched: make(chan struct{}),
		done:     make(chan struct{}),
	}
	local, here := executor.(*execenv.Local)
	t.here, t.own = here, here && local == m.own
	ctx := context.Background() // the command is bound to the Manager, not to the context of a call
	if t.cancel = func(error) {}; !here {
		ctx, t.cancel = context.WithCancelCause(ctx)
	}
	t.prepare = func(tty *execenv.TTY) error {
		spec.TTY = tty
		if t.sess, ok = executor.Command(ctx, spec).(execenv.Session); !ok {
			return fmt.Errorf("environment %q runs no terminals: %w", name, errors.ErrUnsupported)
		}
		return nil
	}
	if err := t.prepare(spec.TTY); err != nil {
		return nil, err
	}
	if here && t.info.Dir == "" {
		t.info.Dir, _ = os.Getwd()
	}
	t.size.Store(new(cmd.Size.OrDefault()))
	limit := cmp.Or(cmd.OutputLimit, m.opts.OutputLimit)
	t.out = newOutput(limit, func(n int) int { return m.registry.Grow(t, n) })
	return t, nil
}

// start starts the process: where there are no terminals, on pipes.
func (t *term) start() error {
	err := t.startProcess()
	if t.info.Command.TTY && noTerminals(err) {
		t.info.Command.TTY = false
		if err = t.prepare(nil); err == nil {
			err = t.startProcess()
		}
	}
	t.prepare = nil
	return err
}

// noTerminals reports whether this machine has none: where all are in use, or
// something else runs out, another start may succeed.
func noTerminals(err error) bool {
	return errors.Is(err, execenv.ErrNoTerminal) && !errors.Is(err, execenv.ErrNoResources) && !errors.Is(err, syscall.ENOSPC)
}

// startProcess starts the process and takes hold of its ends.
func (t *term) startProcess() error {
	cmd := &t.info.Command
	var stdout, stderr io.ReadCloser
	var stdin deadlineWriter
	if !cmd.TTY {
		// One that fails is a failed start, which closes the others.
		var err error
		if stdout, err = t.sess.StdoutPipe(); err != nil {
			return err
		}
		if stderr, err = t.sess.StderrPipe(); err != nil {
			return err
		}
		if cmd.Stdin {
			if stdin, err = t.stdin(); err != nil {
				return err
			}
		}
	}
	if err := t.sess.Start(); err != nil {
		return err
	}
	t.info.Started = time.Now()
	if cmd.TTY {
		tty, ok := t.sess.Terminal()
		if !ok {
			t.sess.StopTree(0)
			t.sess.Wait()
			return fmt.Errorf("environment %q gave no terminal: %w", t.info.Environment, errors.ErrUnsupported)
		}
		t.tty, stdin = tty, tty
		t.out.add(tty, "")
	} else {
		t.out.add(stdout, terminal.Stdout)
		t.out.add(stderr, terminal.Stderr)
	}
	if cmd.Stdin {
		t.in = newInput(stdin, t.tty, t.sess.Exited())
		if t.tty != nil {
			t.out.queries = &responder{in: t.in, join: t.m.registry.Starts.Go, size: func() terminal.Size { return *t.size.Load() }}
		}
	}
	return nil
}

// stdin returns the process's standard input, whose writes must end when they
// are told to.
func (t *term) stdin() (deadlineWriter, error) {
	w, err := t.sess.StdinPipe()
	if err != nil {
		return nil, err
	}
	if d, ok := w.(deadlineWriter); ok {
		return d, nil
	}
	return nil, fmt.Errorf("%w: environment %q cannot end a blocked write", terminal.ErrNoInput, t.info.Environment)
}

// A notifier is a session that reports its exit, so that nobody has to wait for
// it: [execenv.Local]'s sessions are. AfterExit has f called right after Exited
// was closed, and returns false, without a call, if it is closed already. Alone
// says that the process ended by itself and nothing hints at others that outlived
// it, so that Survivors and Wait return at once. F must not block.
type notifier interface {
	AfterExit(f func(alone bool)) bool
}

// watch sees to it that the command is finished when it exits, and when its time
// is over.
func (t *term) watch() {
	if d := t.info.Command.Timeout; d > 0 {
		t.timeout = time.AfterFunc(time.Until(t.info.Started.Add(d)), func() { t.end(terminal.TimedOut) })
	}
	n, ok := t.sess.(notifier)
	switch {
	case !ok:
		t.m.registry.Starts.Go(func() {
			select {
			case <-t.sess.Exited():
				t.end("")
			case <-t.done: // it has ended without
			}
		})
	case !n.AfterExit(t.exited):
		t.end("")
	}
}

// exited is called when the process has exited.
func (t *term) exited(alone bool) {
	if alone && await.Closed(t.out.eof) && t.claim() {
		t.finish("", true) // that does not block, and without a goroutine it is faster
	} else {
		t.end("")
	}
}

// requestStop asks for the end of the command.
func (t *term) requestStop() {
	t.stopOnce.Do(func() { close(t.stop) })
	t.end(terminal.Stopped)
}

// end finishes the command, which has exited or is asked to end. Only the first
// call counts.
func (t *term) end(asked terminal.Outcome) {
	if t.claim() {
		go func() { // which the Manager counts since the start
			<-t.launched
			t.finish(asked, false)
		}()
	}
}

func (t *term) claim() bool { return !t.claimed.Swap(true) }

// finish brings about the end of the command, if it was asked to end, and makes
// it known. Alone, it ended by itself and nothing is left to stop or to read.
func (t *term) finish(asked terminal.Outcome, alone bool) {
	defer t.m.registry.Starts.Done()
	if asked != terminal.TimedOut && t.timeout != nil { // in this order: timeout may be over before it is set
		t.timeout.Stop()
	}
	stopped := asked != ""
	switch {
	case alone: // even if the Manager begins to close now
	case asked != terminal.TimedOut && await.Closed(t.m.ending) && !t.early:
		// The executor may have ended it before anybody here could see why.
		asked, stopped = terminal.Stopped, true
	case stopped && await.Closed(t.sess.Exited()):
		asked = "" // it was faster
	}
	if !stopped {
		t.in.end()
		// A stop that comes now finds the outcome decided, but nothing may stay.
		stopped = !t.out.drain(t.stop, t.m.ending)
	}
	var left []terminal.Proc
	if stopped {
		left = t.stopTree()
		t.in.end()
		t.out.drain(nil, nil)
	} else {
		left = t.sess.Survivors()
	}

	info := t.Info()
	info.Survivors = left
	if await.Closed(t.sess.Exited()) {
		// From here on the executor sees to whoever still holds the output.
		info.Err = waitError(t.sess.Wait())
		info.Exit = t.sess.Exit()
		info.Outcome = outcome(asked, info.Exit)
	} else {
		info.Outcome, info.Err = terminal.Failed, errNoEnd
		t.out.abandon()
	}
	info.Err = errors.Join(info.Err, t.out.close())
	info.Ended = time.Now()
	t.final = info
	t.m.ended(t)
}

// stopTree ends the process and all that it started.
func (t *term) stopTree() []terminal.Proc {
	if t.own && await.Closed(t.m.ending) {
		<-t.m.swept // the executor ends everything, in one sweep
		return t.sess.Survivors()
	}
	return t.sess.StopTree(t.m.opts.Grace)
}

// waitError returns what of the error of a Wait is no way for a command to end.
func waitError(err error) error {
	if e, ok := errors.AsType[*execenv.ExitError](err); ok && e.Exit.Known() {
		return nil
	}
	return err
}

// outcome says how a command ended that had been asked to end, or not.
func outcome(asked terminal.Outcome, exit terminal.Exit) terminal.Outcome {
	switch {
	case asked != "":
		return asked
	case exit.Signal != "":
		return terminal.Signalled
	case exit.Code != nil:
		return terminal.Exited
	}
	return terminal.Unknown
}

// Info implements [terminal.Terminal].
func (t *term) Info() terminal.Info {
	if t.ended() {
		return t.final
	}
	info := t.info
	info.FirstOutput, info.LastOutput = t.out.times()
	return info
}

func (t *term) ended() bool { return await.Closed(t.done) }

// Done implements [terminal.Terminal].
func (t *term) Done() <-chan struct{} { return t.done }

// ReadOutput implements [terminal.Terminal].
func (t *term) ReadOutput(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
	cursor = t.out.clamp(cursor)
	return t.read(func() (tail.Chunk, error) {
		return t.out.buf.Wait(ctx, cursor, limits.MaxText, wait)
	})
}

// ReadStream implements [terminal.StreamReader].
func (t *term) ReadStream(ctx context.Context, stream terminal.Stream, cursor int64, wait time.Duration) (terminal.Output, error) {
	if t.info.Command.TTY {
		return terminal.Output{NextCursor: cursor, Info: t.Info()},
			fmt.Errorf("localterm: a terminal is one stream: %w", errors.ErrUnsupported)
	}
	cursor = t.out.clamp(cursor)
	return t.read(func() (tail.Chunk, error) {
		return t.out.waitStream(ctx, stream, cursor, wait)
	})
}

// read returns what a read of the output returned, with the Info of the same
// instant.
func (t *term) read(read func() (tail.Chunk, error)) (terminal.Output, error) {
	c, err := read()
	info := t.Info()
	if info.Outcome.Ended() && !c.Closed {
		c, err = read() // it ended in between: now everything is there
	}
	if c.Closed {
		<-t.done // any moment now
		info = t.final
	}
	return terminal.Output{Text: c.Text, NextCursor: c.Next, More: c.More, Truncated: c.Truncated, Info: info}, err
}

// EvictedLines implements [tail.LineCounter].
func (t *term) EvictedLines() (lines, cursor int64) { return t.out.buf.EvictedLines() }

// WriteInput implements [terminal.Terminal].
func (t *term) WriteInput(ctx context.Context, text string) (int, error) {
	if t.in == nil {
		return 0, errNoStdin
	}
	_, at := t.out.buf.Bounds()
	n, err := t.in.write(ctx, text, false)
	if n > 0 {
		t.out.typed(at)
	}
	if err != nil {
		err = fmt.Errorf("localterm: write input: %w", err)
	}
	return n, err
}

var errNoStdin = fmt.Errorf("localterm: %w: the command was started without Stdin", terminal.ErrNoInput)

// CloseInput implements [terminal.InputCloser].
func (t *term) CloseInput(ctx context.Context) error {
	if t.in == nil {
		return errNoStdin
	}
	if err := t.in.close(ctx); err != nil {
		return fmt.Errorf("localterm: close input: %w", err)
	}
	return nil
}

// Resize implements [terminal.Terminal].
func (t *term) Resize(size terminal.Size) error {
	switch {
	case t.tty == nil:
		return fmt.Errorf("localterm: resize: the command has no terminal: %w", errors.ErrUnsupported)
	case await.Closed(t.sess.Exited()):
		return nil
	}
	if size.IsZero() {
		return fmt.Errorf("localterm: resize: %w: no size", terminal.ErrBadCommand)
	}
	if err := (terminal.Command{Line: ":", Size: size}).Check(); err != nil {
		return fmt.Errorf("localterm: resize: %w", err)
	}
	if err := t.tty.Resize(size); err != nil && !await.Closed(t.sess.Exited()) {
		return fmt.Errorf("localterm: resize: %w", err)
	}
	t.size.Store(&size)
	return nil
}

// Signal implements [terminal.Terminal].
func (t *term) Signal(sig os.Signal) error {
	if await.Closed(t.sess.Exited()) {
		return fmt.Errorf("localterm: signal: %w", terminal.ErrEnded)
	}
	if err := t.sess.SignalGroup(sig); err != nil {
		if errors.Is(err, os.ErrProcessDone) || await.Closed(t.sess.Exited()) {
			err = terminal.ErrEnded
		}
		return fmt.Errorf("localterm: signal: %w", err)
	}
	return nil
}

// Stop implements [terminal.Terminal].
func (t *term) Stop(ctx context.Context) (terminal.Info, error) {
	over := t.ended()
	t.requestStop()
	info, err := terminal.Wait(ctx, t)
	if err != nil || !over || info.Survivors != nil && len(info.Survivors) == 0 {
		return info, err
	}
	// It ended by itself and left something behind, or a stop could not end all.
	left := make(chan []terminal.Proc, 1)
	if !t.m.registry.Go(func() { left <- t.sess.StopTree(t.m.opts.Grace) }) {
		return info, nil // Close ends it
	}
	select {
	case info.Survivors = <-left:
		return info, nil
	case <-ctx.Done():
		return info, context.Cause(ctx)
	}
}
