// Package memterm is the reference [terminal.Manager]: its programs are Go
// functions, so that whatever uses terminals can be tested without processes,
// in real time or in the fake time of testing/synctest.
//
//	m := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{
//		"greet": func(p *memterm.Process) terminal.Exit {
//			fmt.Fprintln(p.Stdout, "hello,", p.Args[1])
//			return memterm.Code(0)
//		},
//	}})
//	defer m.Close()
//	t, err := m.Start(ctx, terminal.Command{Line: "greet 'big world'"})
//
// # Commands
//
// Command.Args name a program by its first word; an unknown one fails the
// start. Command.Line is one simple shell command: quotes are understood,
// nothing is expanded, and an unknown program prints "sh: NAME: not found" and
// exits with 127. A line with more in it needs Options.Shell. The words "sh", "-c",
// LINE are that line. Command.Shell is ignored.
//
// # What is modelled
//
// A program gets signals, may spawn children that outlive it, and is killed
// when it ignores its stop for longer than the grace. Input is a bounded queue
// that makes writers wait. With Command.TTY and Stdin, input is edited by line
// and echoed, Ctrl-C sends SIGINT, and a line has the limit of Linux. Output is
// never changed: a line feed stays one, as on the terminals of localterm.
//
// # Lifetime
//
// The Manager owns the goroutines of its programs; Close joins them. A program
// that never returns is reported by Close as a leak.
package memterm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/shelf"
	"github.com/termbridge/termbridge/terminal"
)

// Environment is the Info.Environment of every command of a Manager.
const Environment = "memory"

// settle is how long a killed program has to return, before it counts as left.
const settle = 100 * time.Millisecond

// Options configure a Manager. The zero value of each field is its default.
type Options struct {
	// Programs are what commands can run, by name. Nil is [Standard].
	Programs map[string]Program

	// Shell runs the lines that are no simple command, with the Args "/bin/sh", "-c",
	// LINE or as a command or a program has them: memshell.New returns one. Nil takes
	// each line for a simple command.
	Shell Program

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

	// Grace is how long a program that is asked to end has before it is
	// killed; 0 is [terminal.StopGrace].
	Grace time.Duration

	// Env is the environment of programs, under Command.Env.
	Env map[string]string

	// NewID returns the id of the next terminal, never the same twice, without
	// calling the Manager. Nil counts: "mem-1", "mem-2", …
	NewID func() string

	// Starting, if not nil, runs before each start, which fails with what it
	// returns. It may wait, and must return when ctx ends: that is when the
	// context of Start does, or the Manager closes.
	Starting func(ctx context.Context, cmd terminal.Command) error
}

// A Manager is a [terminal.Manager] whose programs are Go functions. Make it
// with [New].
type Manager struct {
	opts     Options
	closing  chan struct{}  // closed when Close begins
	closed   chan struct{}  // closed when Close is done and closeErr is set
	closeErr error          // valid once closed is
	starts   sync.WaitGroup // calls of Start that are past their checks
	watchers sync.WaitGroup // one goroutine per live terminal

	// mu is taken after the locks of a terminal and its buffer, which grows
	// under them.
	mu sync.Mutex
	// guards following
	shut    bool
	ids     int // ids given by the default NewID
	pids    int // as the kernel, from some number on
	kept    *shelf.Shelf[*term]
	budget  *shelf.Budget[*term] // of the outputs
	running map[*term]bool       // those with a goroutine of a program, evicted ones too
	counts  map[string]int       // starts by program
}

// New returns a Manager. Nil options are the defaults.
func New(opts *Options) *Manager {
	m := &Manager{
		closing: make(chan struct{}),
		closed:  make(chan struct{}),
		pids:    1000,
		running: map[*term]bool{},
		counts:  map[string]int{},
	}
	if opts != nil {
		m.opts = *opts
	}
	m.opts.Programs = maps.Clone(m.opts.Programs)
	if m.opts.Programs == nil {
		m.opts.Programs = Standard()
	}
	defaults := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	defaults(&m.opts.MaxTerminals, terminal.DefaultMaxTerminals)
	defaults(&m.opts.OutputLimit, terminal.DefaultOutputLimit)
	defaults(&m.opts.ManagerBytes, terminal.DefaultManagerBytes)
	if m.opts.Grace == 0 {
		m.opts.Grace = terminal.StopGrace
	}
	m.kept = shelf.New(m.opts.MaxTerminals, func(t *term) { m.budget.Free(t) })
	m.budget = shelf.NewBudget(m.kept, m.opts.ManagerBytes, func(t *term, size int) int { return t.buf.Shrink(size) })
	return m
}

// Starts returns how often the program with this name was started.
func (m *Manager) Starts(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[name]
}

// count counts a start of the program with this name.
func (m *Manager) count(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[name]++
}

// newPID returns a pid.
func (m *Manager) newPID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pids++
	return m.pids
}

// Start implements [terminal.Manager].
func (m *Manager) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	t, err := m.start(ctx, cmd.Clone())
	if err != nil {
		return nil, fmt.Errorf("memterm: start %q: %w", cmd.String(), err)
	}
	return t, nil
}

func (m *Manager) start(ctx context.Context, cmd terminal.Command) (*term, error) {
	if err := cmd.Check(); err != nil {
		return nil, err
	}
	if cmd.Environment != "" && cmd.Environment != Environment {
		return nil, fmt.Errorf("%w: no environment %q: there is only %q", terminal.ErrBadCommand, cmd.Environment, Environment)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := m.reserve(ctx); err != nil {
		return nil, err
	}
	defer m.starts.Done()
	args, prog, err := m.resolve(cmd)
	if err == nil {
		err = m.hook(ctx, cmd)
	}

	m.mu.Lock()
	if err == nil && m.shut {
		err = terminal.ErrClosed
	}
	id := ""
	if err == nil && m.opts.NewID != nil {
		id, err = caught.Value(m.opts.NewID)
	}
	if err != nil {
		m.kept.Unreserve()
		m.mu.Unlock()
		return nil, err
	}
	if m.opts.NewID == nil {
		m.ids++
		id = "mem-" + strconv.Itoa(m.ids)
	}
	t := newTerm(m, id, cmd)
	m.kept.Put(id, t)
	m.running[t] = true
	m.mu.Unlock()
	t.launch(args, prog)
	m.watchers.Go(t.watch)
	return t, nil
}

// reserve takes a slot for a command that is about to start.
func (m *Manager) reserve(ctx context.Context) error {
	return shelf.TakeSlot(ctx, m.opts.WaitForSlot, m.closing, nil, m.tryReserve)
}

func (m *Manager) tryReserve() (freed <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut {
		return nil, terminal.ErrClosed
	}
	if err := m.kept.Reserve(); err != nil {
		return m.kept.Freed(), err
	}
	m.starts.Add(1)
	return nil, nil
}

// hook runs Options.Starting.
func (m *Manager) hook(ctx context.Context, cmd terminal.Command) error {
	if m.opts.Starting == nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-m.closing:
			cancel(terminal.ErrClosed)
		case <-done:
		}
	})
	err := m.opts.Starting(ctx, cmd)
	close(done)
	watch.Wait()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // a start that comes too late
	}
	return err
}

// join runs f in a goroutine that Close joins, unless that has begun.
func (m *Manager) join(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.shut {
		m.watchers.Go(f)
	}
	return !m.shut
}

// ended gives back the slot of t and publishes its end.
func (m *Manager) ended(t *term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept.End(t)
	close(t.done)
}

// grow is the Reserve of the buffer of t.
func (m *Manager) grow(t *term, n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.budget.Grow(t, n)
}

// Get implements [terminal.Manager].
func (m *Manager) Get(id string) (terminal.Terminal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t, ok := m.kept.Get(id); ok {
		return t, nil
	}
	return nil, fmt.Errorf("memterm: %w: %q", terminal.ErrNotFound, id)
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

// Close implements [terminal.Manager]. Programs have the grace to end, and a
// moment more to return once they are killed; those that still run then are in
// the [*terminal.LeakError].
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.shut {
		m.mu.Unlock()
		<-m.closed
		return m.closeErr
	}
	m.shut = true
	close(m.closing)
	m.mu.Unlock()
	defer close(m.closed)
	m.starts.Wait()

	m.mu.Lock()
	running := slices.Collect(maps.Keys(m.running))
	m.mu.Unlock()
	var all sync.WaitGroup
	for _, t := range running {
		all.Go(func() {
			t.ask(terminal.Stopped)
			<-t.done
			t.reap()
		})
	}
	all.Wait()
	m.watchers.Wait()

	var leaks []terminal.Leak
	for _, t := range running {
		if procs := t.left(); len(procs) > 0 {
			leaks = append(leaks, terminal.Leak{ID: t.id, What: "program", Procs: procs, Err: errStubborn})
		}
	}
	if len(leaks) > 0 {
		slices.SortFunc(leaks, func(a, b terminal.Leak) int { return a.Procs[0].PID - b.Procs[0].PID })
		m.closeErr = &terminal.LeakError{Leaks: leaks}
	}
	return m.closeErr
}

// errStubborn is why a program is a leak.
var errStubborn = errors.New("its function has not returned")
