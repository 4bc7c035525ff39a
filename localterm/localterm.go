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
// count lines for view.Pager, and are [terminal.ActivityReader]
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
// A command without Stdin is told so by its environment (PAGER, EDITOR, GIT_TERMINAL_PROMPT and the like): it
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
	"sync"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/logqueue"
	"github.com/termbridge/termbridge/internal/noinput"
	"github.com/termbridge/termbridge/internal/registry"
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
	// 64.
	MaxTerminals int

	// WaitForSlot has Start wait while so many run, until one has ended, the ctx
	// of Start ends (its Cause) or the Manager closes; otherwise it returns
	// [terminal.ErrTooMany] at once.
	WaitForSlot bool

	// OutputLimit is how many bytes of output are kept of a command that does
	// not say; 0 is 1 MiB.
	OutputLimit int

	// ManagerBytes is how many bytes of output are kept of all commands
	// together; 0 is 256 MiB. Where they would be
	// more, ended terminals are evicted, oldest first; if that does not help,
	// outputs lose their start, those first that are over a fair share. A page
	// for each is always there.
	ManagerBytes int

	// KeepEnded is how long an ended terminal is kept; 0 is until it is
	// evicted for another reason.
	KeepEnded time.Duration

	// Grace is how long a command that is asked to end has before it is
	// killed; 0 is 2 s.
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
	ending  chan struct{}  // closed when Close begins, once term.early is valid
	swept   chan struct{}  // closed when own is

	// The commands that are kept. Its Starts count each until it has ended, and the
	// goroutines of commands.
	registry *registry.Registry[*term]

	mu sync.Mutex
	// guards following, and the close of ending
	left     []leftover         // what outlived ended commands of the caller's executors
	leaks    []terminal.Leak    // what could not be ended of it
	starting map[*term]struct{} // at places where a start can be interrupted
}

var _ terminal.Manager = (*Manager)(nil)

// New returns a Manager. Nil options are the defaults.
func New(opts *Options) *Manager {
	m := &Manager{
		ending: make(chan struct{}),
		swept:  make(chan struct{}),
	}
	if opts != nil {
		m.opts = *opts
		m.opts.Executors = maps.Clone(opts.Executors)
	}
	o := &m.opts
	o.Shell = cmp.Or(o.Shell, "/bin/sh")
	o.OutputLimit = limits.Or(o.OutputLimit, limits.DefaultOutputLimit)
	o.Grace = limits.Or(o.Grace, limits.StopGrace)
	o.Logger = logqueue.New(o.Logger)
	m.registry = registry.New(registry.Options[*term]{
		MaxTerminals: o.MaxTerminals,
		WaitForSlot:  o.WaitForSlot,
		ManagerBytes: o.ManagerBytes,
		Shrink:       func(t *term, size int) int { return t.out.buf.Shrink(size) },
		KeepEnded:    o.KeepEnded,
		NewID:        o.NewID,
		Prefix:       "t",
		Logger:       o.Logger,
	})
	if o.Env != nil {
		m.env = *o.Env
	} else {
		m.env = execenv.ClassShell.Env()
	}
	m.noInput = m.env.Default(noinput.Env())
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
	if m.opts.NewID != nil || m.opts.IDEnv != "" {
		if id, err = m.registry.NextID(); err != nil {
			return nil, fmt.Errorf("localterm: %w", err)
		}
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
	if err := m.registry.Reserve(ctx, nil); err != nil {
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

// launch starts the process of t, and sees to its end.
func (m *Manager) launch(t *term) error {
	m.begin(t)
	var err error
	if failure := caught.Call(func() { err = t.start() }); failure != nil {
		err = m.panicked(failure)
	}
	m.begun(t)
	switch {
	case errors.Is(err, syscall.E2BIG): // all words together
		err = fmt.Errorf("%w: %w", terminal.ErrTooLarge, err)
	case err == nil && t.info.ID == "":
		t.info.ID, _ = m.registry.NextID() // which counts
	}
	if err != nil {
		m.registry.Unreserve()
		return err
	}
	t.out.ingest(m.registry.Starts.Go)
	if t.fate.CompareAndSwap(undecided, kept) {
		err = m.registry.Put(t.info.ID, t) // from now on others may stop it
	} else {
		err = context.Canceled // nobody hears it
	}
	t.watch()
	close(t.launched)
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
	if m.starting[t] = struct{}{}; await.Closed(m.ending) {
		t.cancel(terminal.ErrClosed)
	}
}

// begun notes that the start is over.
func (m *Manager) begun(t *term) {
	if t.here {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.starting, t)
}

// abandon stops t as soon as it has started, and reports whether it is not too
// late for that: else t has started, and is kept.
func (m *Manager) abandon(t *term) bool {
	if !t.fate.CompareAndSwap(undecided, abandoned) {
		return false
	}
	t.cancel(context.Canceled)
	return true
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
		spec.TTY = &execenv.TTY{Size: cmd.Size.OrDefault(), Input: cmd.Stdin}
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

// ended publishes the end of t.
func (m *Manager) ended(t *term) {
	if !t.own { // else Close of own ends what is left
		m.outlived(t)
	}
	m.registry.End(t, t.done)
}

// outlived notes what t, which has ended, leaves behind for Close to end.
func (m *Manager) outlived(t *term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := leftover{t.info.ID, t.sess}
	closing := await.Closed(m.ending)
	switch {
	case len(t.final.Survivors) == 0 && t.final.Outcome != terminal.Failed && !(closing && t.final.Survivors == nil):
	case closing:
		m.registry.Starts.Go(func() { l.end(m) })
	default:
		m.left = append(m.left, l)
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
	case !await.Closed(l.sess.Exited()):
		leak.Err = errNoEnd
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
	t, err := m.registry.Get(id)
	if err != nil {
		return nil, fmt.Errorf("localterm: %w", err)
	}
	return t, nil
}

// List implements [terminal.Manager].
func (m *Manager) List() []terminal.Terminal { return m.registry.List() }

// Busy implements [terminal.Manager].
func (m *Manager) Busy() bool { return m.registry.Busy() }

// OnEvict has f called with each terminal that is kept no longer, right after that.
// F may read the terminal; it must neither wait nor call the Manager.
func (m *Manager) OnEvict(f func(terminal.Terminal)) { m.registry.OnEvict(f) }

// Close implements [terminal.Manager]. All commands have the grace to end, at
// the same time, and so has what ended commands had left behind.
func (m *Manager) Close() error { return m.registry.Close(m.shut) }

// These are why a command is a leak.
var (
	errNoEnd      = errors.New("its end could not be waited for")
	errCannotTell = errors.New("cannot tell what is left")
)

func (m *Manager) shut(kept []*term) error {
	m.refuse(kept)
	for _, t := range kept {
		t.end(terminal.Stopped)
	}
	var err error
	if m.own != nil {
		err = m.own.Close()
		close(m.swept)
	}
	joined := make(chan struct{})
	go func() {
		m.registry.Starts.Wait()
		close(joined)
	}()
	select {
	case <-joined:
	case <-time.After(m.opts.Grace + limits.SettleTimeout):
		// Only a process that nothing can kill, or an executor that hangs.
		return errors.Join(err, &terminal.LeakError{Leaks: []terminal.Leak{{What: "goroutine", Err: errNoEnd}}})
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

// refuse interrupts the starts that are under way, and has what ended commands had
// left behind ended. Whatever ends from now on is no natural end.
func (m *Manager) refuse(kept []*term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range kept {
		t.early = await.Closed(t.sess.Exited())
	}
	close(m.ending)
	for t := range m.starting {
		t.cancel(terminal.ErrClosed)
	}
	for _, l := range m.left {
		m.registry.Starts.Go(func() { l.end(m) })
	}
}
