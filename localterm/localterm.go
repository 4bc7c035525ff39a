// Package localterm is the [terminal.Manager] whose terminals are processes.
// An [execenv.Executor] starts, watches and ends them; localterm keeps their
// output, feeds their input and says how they ended.
//
//	m := localterm.New(nil)
//	defer m.Close()
//	t, err := m.Start(ctx, terminal.Command{Line: "make test", Dir: dir, TTY: true})
//	if err != nil {
//		return err
//	}
//	info, err := terminal.Wait(ctx, t)
//
// # Lifetime
//
// A command ends in two steps: its process exits, then its output is read to
// the end. A background process may hold the output open, so the second step is
// bounded (100 ms, 500 ms). What then still runs
// is named in Info.Survivors and left alone: its later output is read and dropped,
// so that it is neither blocked nor killed by it, and it ends with the Manager.
// On a controlling terminal (TTY and Stdin) the kernel hangs up on the
// foreground processes when the command exits.
//
// # Concurrency
//
// Everything may be called from any number of goroutines. A command of an
// [execenv.Local] needs none before its first output, and then one for each of
// its outputs. The Manager's own are joined by Close.
//
// Terminals also implement [terminal.StreamReader], for commands without TTY,
// [terminal.LineCounter], and [terminal.ActivityReader] and [terminal.ActivityWaiter]
// by what the executor knows.
//
// # Terminals
//
// A terminal ends lines with LF, without CR. While a program has switched off
// line editing, what it asks its terminal is answered: for the cursor's position
// (the size, where it was sent beyond that), the size, the terminal's kind and its
// colours.
//
// # Nobody at the keyboard
//
// A command without Stdin is told so by its environment ([terminal.NoInput]): it
// uses no pager, an editor that it opens fails at once with a reason, and git and
// ssh ask nobody. Options.Env and Command.Env may say otherwise. With TTY, a
// program that waits for a key all the same is hung up on ([execenv.TTY]).
package localterm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/logqueue"
	"github.com/termbridge/termbridge/internal/shelf"
	"github.com/termbridge/termbridge/terminal"
)

// Local is the name of the environment of a Manager without
// [Options.Executors].
const Local = "local"

// Options configure a Manager. The zero value of each field is its default.
type Options struct {
	// Executors are the places where commands run, by the name that
	// Command.Environment chooses. Their processes must be [execenv.Session]s.
	// They stay the caller's, who closes them after the Manager. A nil one is an
	// [execenv.Local] of the Manager's own; a nil map is that, named [Local].
	Executors map[string]execenv.Executor

	// Default is the environment of a Command that names none. It may be ""
	// where there is only one, or one that is named [Local].
	Default string

	// Dir is the absolute working directory of a Command that has none and runs in
	// the default environment; "" is the agent's own. In another environment it
	// begins where the Executor does.
	Dir string

	// Env is the environment of commands, under Command.Env. Nil is that of
	// [execenv.ClassShell]: the agent's own without what looks like a secret.
	Env *execenv.Env

	// Shell runs Command.Line in the default environment, as SHELL -c LINE; "" is
	// /bin/sh, as it is in all others.
	Shell string

	// MaxTerminals is how many terminals are kept, live and ended; 0 is
	// [terminal.DefaultMaxTerminals].
	MaxTerminals int

	// WaitForSlot has Start wait while so many run, until one has ended, the ctx
	// of Start ends (its Cause) or the Manager closes; otherwise it returns
	// [terminal.ErrTooMany] at once.
	WaitForSlot bool

	// OutputLimit is how many bytes of output are kept of a command that does
	// not say; 0 is [terminal.DefaultOutputLimit].
	OutputLimit int

	// ManagerBytes is how many bytes of output are kept of all commands
	// together; 0 is [terminal.DefaultManagerBytes]. Where they would be
	// more, ended terminals are evicted, oldest first; if that does not help,
	// outputs lose their start, those first that are over a fair share. A page
	// for each is always there.
	ManagerBytes int

	// KeepEnded is how long an ended terminal is kept; 0 is until it is
	// evicted for another reason.
	KeepEnded time.Duration

	// Grace is how long a command that is asked to end has before it is
	// killed; 0 is [terminal.StopGrace].
	Grace time.Duration

	// NewID returns the id of the next terminal, never the same twice. Nil
	// counts: "t1", "t2", …
	NewID func() string

	// IDEnv is the name of a variable of the environment that holds the terminal's id in
	// each command, in place of one of Command.Env; "" is none. The number of a command
	// that does not start is not given again then.
	IDEnv string

	// Logger gets what no caller can be told; nil discards it.
	Logger *slog.Logger
}

// A Manager is a [terminal.Manager] of processes. Make it with [New].
type Manager struct {
	opts    Options
	env     execenv.Env
	noInput execenv.Env    // env of commands without Stdin
	own     *execenv.Local // closed by Close; nil if all executors are the caller's
	ending  chan struct{}  // closed when Close begins
	swept   chan struct{}  // closed when own is
	close   func() error   // the one Close
	ids     atomic.Int64   // given by the default NewID

	// mu is taken after the lock of a buffer, which grows under it.
	mu sync.Mutex
	// guards following
	closed   bool
	kept     *shelf.Shelf[*term]
	budget   *shelf.Budget[*term] // of the outputs
	left     []leftover           // what outlived ended commands of the caller's executors
	leaks    []terminal.Leak      // what could not be ended of it
	starting map[*term]struct{}   // at places where a start can be interrupted
	expiry   *time.Timer          // evicts what KeepEnded is over for; nil before it is needed

	wg sync.WaitGroup // commands and goroutines; Add while !closed or from one of them
}

var _ terminal.Manager = (*Manager)(nil)

// New returns a Manager. Nil options are the defaults.
func New(opts *Options) *Manager {
	m := &Manager{
		ending: make(chan struct{}),
		swept:  make(chan struct{}),
	}
	m.close = sync.OnceValue(m.shutdown)
	if opts != nil {
		m.opts = *opts
		m.opts.Executors = maps.Clone(opts.Executors)
	}
	o := &m.opts
	o.Shell = cmp.Or(o.Shell, "/bin/sh")
	o.MaxTerminals = cmp.Or(o.MaxTerminals, terminal.DefaultMaxTerminals)
	o.OutputLimit = cmp.Or(o.OutputLimit, terminal.DefaultOutputLimit)
	o.ManagerBytes = cmp.Or(o.ManagerBytes, terminal.DefaultManagerBytes)
	o.Grace = cmp.Or(o.Grace, terminal.StopGrace)
	o.Logger = logqueue.New(o.Logger)
	m.kept = shelf.New(o.MaxTerminals, func(t *term) { m.budget.Free(t) })
	m.budget = shelf.NewBudget(m.kept, o.ManagerBytes, func(t *term, size int) int { return t.out.buf.Shrink(size) })
	if o.Env != nil {
		m.env = *o.Env
	} else {
		m.env = execenv.ClassShell.Env()
	}
	m.noInput = m.env.Default(terminal.NoInput())
	if o.Executors == nil {
		o.Executors = map[string]execenv.Executor{Local: nil}
	}
	for name, executor := range o.Executors {
		if executor != nil {
			continue
		}
		if m.own == nil {
			m.own = execenv.NewLocal(&execenv.LocalOptions{Grace: o.Grace})
		}
		o.Executors[name] = m.own
	}
	if o.Default == "" {
		o.Default = Local
		if len(o.Executors) == 1 {
			for o.Default = range o.Executors {
			}
		}
	}
	return m
}

// Start implements [terminal.Manager]. Besides the errors that it names, a
// failed start is the [*execenv.StartError] of the executor.
func (m *Manager) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	cmd = cmd.Clone()
	id, err := "", error(nil)
	if m.opts.NewID != nil {
		if id, err = caught.Value(m.opts.NewID); err != nil {
			return nil, fmt.Errorf("localterm: Options.NewID %w", err)
		}
	} else if m.opts.IDEnv != "" {
		id = m.nextID()
	}
	if m.opts.IDEnv != "" {
		cmd = cmd.WithEnv(m.opts.IDEnv, id)
	}
	t, err := m.start(ctx, cmd, id)
	if err != nil {
		// The executor's error repeats the program; the command says more.
		return nil, fmt.Errorf("localterm: start %.200q: %w", cmd.String(), err)
	}
	return t, nil
}

// start starts cmd; id is "" if it gets one only when it runs.
func (m *Manager) start(ctx context.Context, cmd terminal.Command, id string) (*term, error) {
	spec, err := m.spec(cmd)
	if err != nil {
		return nil, err
	}
	var t *term
	if failure := caught.Call(func() { t, err = m.newTerm(cmd, spec) }); failure != nil {
		return nil, m.panicked(failure)
	} else if err != nil {
		return nil, err
	}
	t.info.ID = id
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := m.reserve(ctx); err != nil {
		return nil, err
	}
	if ctx.Done() == nil {
		return t, m.launch(t)
	}
	// A start on this machine cannot be interrupted, only the wait for it.
	started := make(chan error, 1)
	go func() { started <- m.launch(t) }()
	select {
	case err = <-started:
	case <-ctx.Done():
		if m.abandon(t) {
			err = context.Cause(ctx)
			m.opts.Logger.Info("a command starts too late, and will be stopped", "command", cmd.String())
		}
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// reserve takes a slot for a command, and counts it in wg.
func (m *Manager) reserve(ctx context.Context) error {
	return shelf.TakeSlot(ctx, m.opts.WaitForSlot, m.ending, nil, m.tryReserve)
}

func (m *Manager) tryReserve() (freed <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, terminal.ErrClosed
	}
	if err := m.kept.Reserve(); err != nil {
		return m.kept.Freed(), err
	}
	m.wg.Add(1)
	return nil, nil
}

// join runs f in a goroutine that Close joins, unless that has begun.
func (m *Manager) join(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.wg.Go(f)
	}
	return !m.closed
}

// launch starts the process of t, and sees to its end.
func (m *Manager) launch(t *term) error {
	m.begin(t)
	var err error
	if failure := caught.Call(func() { err = t.start() }); failure != nil {
		err = m.panicked(failure)
	}
	switch {
	case err == nil && t.info.ID == "":
		t.info.ID = m.nextID()
	case errors.Is(err, syscall.E2BIG): // all words together
		err = fmt.Errorf("%w: %w", terminal.ErrTooLarge, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.starting, t)
	switch {
	case err != nil:
		m.kept.Unreserve()
		m.wg.Done()
		return err
	case m.closed:
		err = terminal.ErrClosed
	case t.abandoned:
		err = context.Canceled // nobody hears it
	default:
		t.started = true
		m.kept.Put(t.info.ID, t)
	}
	t.out.ingest(m.wg.Go)
	t.watch()
	if err != nil {
		t.requestStop() // it holds its slot until it has ended
	}
	return err
}

// panicked returns the error of a start whose executor panicked.
func (m *Manager) panicked(failure *caught.Panic) error {
	m.opts.Logger.Error("the executor panicked", "panic", failure.Value, "stack", failure.Stack)
	return fmt.Errorf("the executor %w", failure)
}

// begin notes a start that Close, or the end of its caller's context, interrupts:
// that of an [execenv.Local] is over before anybody could.
func (m *Manager) begin(t *term) {
	if t.here {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starting == nil {
		m.starting = make(map[*term]struct{})
	}
	if m.starting[t] = struct{}{}; m.closed {
		t.cancel(terminal.ErrClosed)
	}
}

// nextID returns an id of the Manager's own.
func (m *Manager) nextID() string { return "t" + strconv.FormatInt(m.ids.Add(1), 10) }

// abandon stops t as soon as it has started, and reports whether it is not too
// late for that: else t has started, and is kept.
func (m *Manager) abandon(t *term) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.abandoned = !t.started; t.abandoned {
		t.cancel(context.Canceled)
	}
	return t.abandoned
}

// spec returns what an executor is told to run, or what is wrong with cmd.
func (m *Manager) spec(cmd terminal.Command) (execenv.Spec, error) {
	if err := cmd.Check(); err != nil {
		return execenv.Spec{}, err
	}
	dir, shell := m.opts.Dir, m.opts.Shell
	if cmd.Environment != "" && cmd.Environment != m.opts.Default {
		dir, shell = "", "/bin/sh"
	}
	spec := execenv.Spec{
		Class: execenv.ClassShell,
		Dir:   cmp.Or(cmd.Dir, dir),
		Env:   m.env,
		Group: true,
	}
	if !cmd.Stdin {
		spec.Env = m.noInput
	}
	spec.Env = spec.Env.With(cmd.Env)
	if spec.Dir != "" && !filepath.IsAbs(spec.Dir) {
		return spec, fmt.Errorf("%w: directory %q is relative: give an absolute path", terminal.ErrBadCommand, spec.Dir)
	}
	if cmd.Line != "" {
		line := cmd.Line
		if line[0] == '-' || line[0] == '+' {
			line = " " + line // or the shell takes it for options
		}
		spec.Path, spec.Args = cmp.Or(cmd.Shell, shell), []string{"-c", line}
	} else {
		spec.Path, spec.Args = cmd.Args[0], cmd.Args[1:]
	}
	if cmd.TTY {
		spec.TTY = &execenv.TTY{Size: cmp.Or(cmd.Size, terminal.DefaultSize), Input: cmd.Stdin}
	}
	return spec, checkWords(spec, cmd.Env)
}

// checkWords returns ErrTooLarge for a word that no exec would take.
func checkWords(spec execenv.Spec, env map[string]string) error {
	words := append([]string{spec.Path}, spec.Args...)
	for name, value := range env {
		words = append(words, name+"="+value)
	}
	for _, word := range words {
		if len(word) >= limits.MaxWord { // a NUL follows
			return fmt.Errorf("%w: the word %.20q… has %d bytes of at most %d: put it in a file",
				terminal.ErrTooLarge, word, len(word), limits.MaxWord-1)
		}
	}
	return nil
}

// grow is the Reserve of the buffer of t.
func (m *Manager) grow(t *term, n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.budget.Grow(t, n)
}

// ended gives back the slot of t and publishes its end.
func (m *Manager) ended(t *term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept.End(t)
	close(t.done)
	if !t.started { // never kept
		m.budget.Free(t)
	}
	unknown := m.closed && t.final.Survivors == nil
	if !t.own && (len(t.final.Survivors) > 0 || unknown || t.final.Outcome == terminal.Failed) { // else Close of own ends it
		if l := (leftover{t.info.ID, t.sess}); m.closed {
			m.wg.Go(func() { l.end(m) })
		} else {
			m.left = append(m.left, l)
		}
	}
	m.expire()
}

// expire evicts what KeepEnded is over for, and sets the clock for the next.
// Called with mu held.
func (m *Manager) expire() {
	if m.opts.KeepEnded <= 0 || m.closed {
		return
	}
	var left time.Duration
	m.kept.Evict(func(t *term) bool {
		left = time.Until(t.final.Ended.Add(m.opts.KeepEnded))
		return left <= 0
	})
	switch {
	case left <= 0: // none is left
	case m.expiry == nil:
		m.expiry = time.AfterFunc(left, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.expire()
		})
	default:
		m.expiry.Reset(left)
	}
}

// A leftover is a session some of whose processes outlived its command.
type leftover struct {
	id   string
	sess execenv.Session
}

// end ends the processes, and notes what could not be ended.
func (l leftover) end(m *Manager) {
	leak := terminal.Leak{ID: l.id, What: "process", Procs: l.sess.StopTree(m.opts.Grace)}
	switch {
	case !isClosed(l.sess.Exited()):
		leak.Err = errUnsettled
	case leak.Procs == nil:
		leak.What, leak.Err = "possibly a process", errCannotTell
	case len(leak.Procs) == 0:
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaks = append(m.leaks, leak)
}

// Get implements [terminal.Manager].
func (m *Manager) Get(id string) (terminal.Terminal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t, ok := m.kept.Get(id); ok {
		return t, nil
	}
	return nil, fmt.Errorf("localterm: %w: %q", terminal.ErrNotFound, id)
}

// List implements [terminal.Manager].
func (m *Manager) List() []terminal.Terminal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept.List()
}

// Busy implements [terminal.Manager].
func (m *Manager) Busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept.Busy()
}

// Close implements [terminal.Manager]. All commands have the grace to end, at
// the same time, and so has what ended commands had left behind.
func (m *Manager) Close() error { return m.close() }

// These are why a command is a leak.
var (
	errUnsettled  = errors.New("its end could not be waited for")
	errCannotTell = errors.New("cannot tell what is left")
)

func (m *Manager) shutdown() error {
	m.mu.Lock()
	m.closed = true
	for _, t := range m.kept.List() {
		t := t.(*term)
		t.early = isClosed(t.sess.Exited())
	}
	close(m.ending)
	for _, t := range m.kept.List() {
		t.(*term).end(terminal.Stopped)
	}
	if m.expiry != nil {
		m.expiry.Stop()
	}
	for t := range m.starting {
		t.cancel(terminal.ErrClosed)
	}
	for _, l := range m.left {
		m.wg.Go(func() { l.end(m) })
	}
	m.mu.Unlock()

	var err error
	if m.own != nil {
		err = m.own.Close()
		close(m.swept)
	}
	joined := make(chan struct{})
	go func() {
		m.wg.Wait()
		close(joined)
	}()
	select {
	case <-joined:
	case <-time.After(m.opts.Grace + terminal.SettleTimeout):
		// Only a process that nothing can kill, or an executor that hangs.
		return errors.Join(err, &terminal.LeakError{Leaks: []terminal.Leak{{What: "goroutine", Err: errUnsettled}}})
	}
	if leak, ok := errors.AsType[*terminal.LeakError](err); ok {
		m.leaks = append(m.leaks, leak.Leaks...)
		err = nil
	}
	if len(m.leaks) > 0 {
		err = &terminal.LeakError{Leaks: m.leaks}
	}
	return err
}
