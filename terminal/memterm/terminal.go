package memterm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/terminal"
)

// A term is one command: a leader and the children that it spawned.
//
// It ends when the leader has returned, or, once it was asked to end, when all
// have returned or were killed. Then Info is published and done is closed.
type term struct {
	m   *Manager
	id  string
	cmd terminal.Command
	buf *tail.Buffer
	in  *input // nil without Command.Stdin

	asked  chan struct{} // closed by the first ask
	leader chan struct{} // closed when the leader has returned
	gone   chan struct{} // closed when every process has returned
	killed chan struct{} // closed by SIGKILL to all
	done   chan struct{} // closed by watch, last, with its slot: Info is final

	mu sync.Mutex
	// guards following
	info     terminal.Info
	exit     terminal.Exit    // the leader's
	reason   terminal.Outcome // who asked first; "" for nobody
	launched bool             // there has been a process
	natural  bool             // the leader returned before anybody asked
	dead     bool             // killed is closed
	size     terminal.Size
	procs    map[*Child]bool // those that have not returned
}

// newTerm returns a term without processes.
func newTerm(m *Manager, id string, cmd terminal.Command) *term {
	limit := cmd.OutputLimit
	if limit == 0 {
		limit = m.opts.OutputLimit
	}
	t := &term{
		m: m, id: id, cmd: cmd, buf: tail.New(limit),
		asked: make(chan struct{}), leader: make(chan struct{}), gone: make(chan struct{}),
		killed: make(chan struct{}), done: make(chan struct{}),
		size:  cmd.Size,
		procs: map[*Child]bool{},
		info: terminal.Info{
			ID: id, Environment: Environment, Command: cmd, Dir: cmd.Dir,
			Outcome: terminal.Running, Started: time.Now(),
		},
	}
	t.buf.Reserve = func(n int) int { return m.registry.Grow(t, n) }
	t.size = t.size.OrDefault()
	if cmd.Stdin {
		t.in = newInput(nil)
		if cmd.TTY {
			t.in.tty = &tty{out: t.output, signal: func(sig os.Signal) { t.signal(sig) }}
		}
	}
	return t
}

// launch starts the leader.
func (t *term) launch(args []string, prog Program) {
	env := maps.Clone(t.m.opts.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, t.cmd.Env)
	leader := Process{Args: args, Dir: t.cmd.Dir, Env: env, Stdin: reader{in: t.in}, Stdout: screen{t}, Stderr: screen{t}}
	t.m.count(args[0])
	t.run(nil, leader, prog, func(exit terminal.Exit) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.exit = exit
		t.natural = t.reason == ""
		close(t.leader)
	})
}

// run starts a process like p, of which parent, if there is one, is the parent; ended
// is called with its exit. It reports false if the command is past having processes.
// The goroutine is the Manager's, which joins it in Close by way of gone.
func (t *term) run(parent *Child, p Process, prog Program, ended func(terminal.Exit)) (*Child, bool) {
	c := &Child{
		t: t, Proc: terminal.Proc{PID: t.m.newPID(), Command: strings.Join(p.Args, " ")},
		signals: make(chan os.Signal, 16), stopped: make(chan struct{}), killed: make(chan struct{}), done: make(chan struct{}),
	}
	t.mu.Lock()
	if t.dead || t.launched && len(t.procs) == 0 || parent != nil && await.Closed(parent.killed) {
		t.mu.Unlock()
		return nil, false
	}
	t.launched = true
	t.procs[c] = true
	if parent != nil {
		c.ignored = parent.ignored
	}
	t.mu.Unlock()
	p.Args, p.Env = slices.Clone(p.Args), maps.Clone(p.Env)
	p.TTY, p.Size = t.cmd.TTY, t.sizeNow
	p.Signals, p.Stopped, p.Killed, p.Death = c.signals, c.stopped, c.killed, c.deathNow
	p.self = c
	p.Find = t.m.find
	p.Spawn = func(args ...string) (terminal.Proc, error) { return t.spawn(&p, args) }
	c.connect(&p)
	process := p // which the program may change
	go func() {
		var exit terminal.Exit // unknown, if the program leaves by runtime.Goexit
		defer func() {
			if await.Closed(c.killed) {
				exit = Signal("SIGKILL") // whatever it still says
			}
			ended(exit)
			t.returned(c, exit)
		}()
		exit = prog(&process)
	}()
	return c, true
}

// returned is the end of a process's goroutine.
func (t *term) returned(c *Child, exit terminal.Exit) {
	t.mu.Lock()
	delete(t.procs, c)
	last := len(t.procs) == 0
	c.exit = exit
	close(c.done)
	t.mu.Unlock()
	if last {
		t.m.mu.Lock()
		delete(t.m.running, t)
		t.m.mu.Unlock()
		close(t.gone)
	}
}

// spawn is Process.Spawn of p.
func (t *term) spawn(p *Process, args []string) (terminal.Proc, error) {
	if len(args) == 0 {
		return terminal.Proc{}, fmt.Errorf("memterm: spawn: %w: no words", terminal.ErrBadCommand)
	}
	words, prog, err := t.m.words(args)
	if err != nil {
		return terminal.Proc{}, fmt.Errorf("memterm: spawn %q: %w", args[0], err)
	}
	child := *p
	child.Args, child.Stdin = words, reader{}
	c, err := p.Fork(child, prog)
	if err != nil {
		return terminal.Proc{}, fmt.Errorf("memterm: spawn %q: %w", args[0], errKilled)
	}
	t.m.count(words[0])
	return c.Proc, nil
}

// watch waits for the end, brings it about when it is asked to, and publishes
// it. It always returns: a killed process is waited for only a moment.
func (t *term) watch() {
	var timeout <-chan time.Time
	if t.cmd.Timeout > 0 {
		timer := time.NewTimer(t.cmd.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-t.leader:
	case <-t.killed:
	case <-t.asked:
	case <-timeout:
		t.ask(terminal.TimedOut)
	}
	t.mu.Lock()
	asked := t.reason != ""
	t.mu.Unlock()
	if asked {
		t.reap()
	} else {
		t.await(t.leader, settle) // killed by a signal, or there already
	}
	t.finish()
}

// reap ends every process: it asks, waits for the grace, kills, and waits a
// moment more.
func (t *term) reap() {
	t.signal(sigTERM)
	if !t.await(t.gone, t.m.opts.Grace) {
		t.kill()
		t.await(t.gone, settle)
	}
}

// await waits for c, for at most d, and not for the rest of d if the processes
// are killed in the meantime.
func (t *term) await(c <-chan struct{}, d time.Duration) bool {
	select {
	case <-c:
		return true
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	killed := t.killed
	if t.isDead() {
		killed = nil
	}
	select {
	case <-c:
		return true
	case <-killed:
	case <-timer.C:
	}
	return false
}

func (t *term) isDead() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dead
}

// finish publishes the end.
func (t *term) finish() {
	t.mu.Lock()
	exit := t.exit
	select {
	case <-t.leader:
	default:
		exit = Signal("SIGKILL")
	}
	t.info.Exit = exit
	switch {
	case t.reason != "":
		t.info.Outcome = t.reason
	case exit.Signal != "":
		t.info.Outcome = terminal.Signalled
	case exit.Code != nil:
		t.info.Outcome = terminal.Exited
	default:
		t.info.Outcome = terminal.Unknown
		t.info.Err = errNoExit
	}
	t.info.Ended = time.Now()
	t.info.Survivors = t.leftLocked()
	t.buf.Close()
	t.mu.Unlock()
	if t.in != nil {
		t.in.close()
	}
	t.m.registry.End(t, t.done)
}

// errNoExit is the Info.Err of a program that returned neither code nor signal.
var errNoExit = errors.New("the program did not say how it exited")

// ask asks the command to end, for a reason; the first reason counts.
func (t *term) ask(reason terminal.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reason == "" && !t.natural && !t.info.Outcome.Ended() {
		t.reason = reason
		close(t.asked)
	}
}

// kill is SIGKILL.
func (t *term) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dead {
		t.dead = true
		close(t.killed)
		for c := range t.procs {
			c.signal(syscall.SIGKILL)
		}
	}
}

// signal sends sig to every process.
func (t *term) signal(sig os.Signal) {
	if SignalName(sig) == "SIGKILL" {
		t.kill()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.procs {
		c.signal(sig)
	}
}

// A screen is the output of a term.
type screen struct{ t *term }

func (s screen) Write(b []byte) (int, error) {
	s.t.output(b)
	return len(b), nil
}

// output appends to the output, unless the processes are killed or the command
// has ended.
func (t *term) output(b []byte) {
	if len(b) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead || t.info.Outcome.Ended() {
		return
	}
	t.info.LastOutput = time.Now()
	if t.info.FirstOutput.IsZero() {
		t.info.FirstOutput = t.info.LastOutput
	}
	t.buf.Write(b)
}

func (t *term) sizeNow() terminal.Size {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size
}

// ended reports whether done is closed. It takes no lock.
func (t *term) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// left returns the processes that have not returned, never nil.
func (t *term) left() []terminal.Proc {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leftLocked()
}

// leftLocked is left with mu held.
func (t *term) leftLocked() []terminal.Proc {
	left := []terminal.Proc{}
	for p := range t.procs {
		left = append(left, p.Proc)
	}
	slices.SortFunc(left, func(a, b terminal.Proc) int { return a.PID - b.PID })
	return left
}

// Info implements [terminal.Terminal].
func (t *term) Info() terminal.Info {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := t.info
	info.Survivors = slices.Clone(info.Survivors)
	return info
}

// Done implements [terminal.Terminal].
func (t *term) Done() <-chan struct{} { return t.done }

// ReadOutput implements [terminal.Terminal].
func (t *term) ReadOutput(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
	c, err := t.buf.Wait(ctx, cursor, limits.MaxText, wait)
	t.mu.Lock()
	defer t.mu.Unlock()
	// Output is written and closed under mu: read again what may have changed
	// since, so that text and Info are of one instant.
	if err == nil && (c.Text == "" || c.Closed != t.info.Outcome.Ended()) {
		c = t.buf.Read(cursor, limits.MaxText)
	}
	info := t.info
	info.Survivors = slices.Clone(info.Survivors)
	return terminal.Output{Text: c.Text, NextCursor: c.Next, More: c.More, Truncated: c.Truncated, Info: info}, err
}

// WriteInput implements [terminal.Terminal].
func (t *term) WriteInput(ctx context.Context, text string) (int, error) {
	if t.in == nil {
		return 0, t.noInput()
	}
	n, err := t.in.Write(ctx, text)
	if err != nil {
		err = fmt.Errorf("memterm: terminal %s: write: %w", t.id, err)
	}
	return n, err
}

func (t *term) noInput() error {
	return fmt.Errorf("memterm: terminal %s: %w: start the command with Stdin", t.id, terminal.ErrNoInput)
}

// CloseInput implements [terminal.InputCloser].
func (t *term) CloseInput(ctx context.Context) error {
	if t.in == nil {
		return t.noInput()
	}
	if err := t.in.Close(ctx); err != nil {
		return fmt.Errorf("memterm: terminal %s: close input: %w", t.id, err)
	}
	return nil
}

// Resize implements [terminal.Terminal].
func (t *term) Resize(size terminal.Size) error {
	if !t.cmd.TTY {
		return fmt.Errorf("memterm: terminal %s: resize: the command has no terminal: %w", t.id, errors.ErrUnsupported)
	}
	if err := (terminal.Command{Args: []string{"resize"}, Size: size}).Check(); err != nil || size.IsZero() {
		return fmt.Errorf("memterm: terminal %s: resize to %d × %d: rows and columns must be positive", t.id, size.Rows, size.Cols)
	}
	t.mu.Lock()
	changed := size != t.size && !t.info.Outcome.Ended()
	if changed {
		t.size = size
	}
	t.mu.Unlock()
	if changed {
		t.signal(sigWINCH)
	}
	return nil
}

// Signal implements [terminal.Terminal].
func (t *term) Signal(sig os.Signal) error {
	if t.ended() {
		return fmt.Errorf("memterm: terminal %s: signal: %w", t.id, terminal.ErrEnded)
	}
	t.signal(sig)
	return nil
}

// Stop implements [terminal.Terminal].
func (t *term) Stop(ctx context.Context) (terminal.Info, error) {
	over := t.ended()
	t.ask(terminal.Stopped)
	info, err := terminal.Wait(ctx, t)
	if err != nil || !over || len(info.Survivors) == 0 {
		return info, err
	}
	// It ended by itself and left something behind.
	reaped := make(chan struct{})
	if !t.m.registry.Go(func() { defer close(reaped); t.reap() }) {
		return info, nil // Close ends it
	}
	select {
	case <-reaped:
		info.Survivors = t.left()
		return info, nil
	case <-ctx.Done():
		return info, context.Cause(ctx)
	}
}

// EvictedLines implements [tail.LineCounter].
func (t *term) EvictedLines() (lines, cursor int64) { return t.buf.EvictedLines() }
