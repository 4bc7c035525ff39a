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
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/registry"
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

	// Grace is how long a program that is asked to end has before it is
	// killed; 0 is 2 s.
	Grace time.Duration

	// Env is the environment of programs, under Command.Env.
	Env map[string]string

	// NewID returns the id of the next terminal, never the same twice. It is called
	// once at a time. Nil counts: "mem-1", "mem-2", …
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
	registry *registry.Registry[*term] // its Starts are calls of Start
	watchers sync.WaitGroup            // one goroutine per live terminal

	mu sync.Mutex
	// guards following
	pids    int            // as the kernel, from some number on
	running map[*term]bool // those with a goroutine of a program, evicted ones too
	counts  map[string]int // starts by program
}

// New returns a Manager. Nil options are the defaults.
func New(opts *Options) *Manager {
	m := &Manager{
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
	m.opts.OutputLimit = limits.Or(m.opts.OutputLimit, limits.DefaultOutputLimit)
	m.opts.Grace = limits.Or(m.opts.Grace, limits.StopGrace)
	m.registry = registry.New(registry.Options[*term]{
		MaxTerminals: m.opts.MaxTerminals,
		WaitForSlot:  m.opts.WaitForSlot,
		ManagerBytes: m.opts.ManagerBytes,
		Shrink:       func(t *term, size int) int { return t.buf.Shrink(size) },
		NewID:        m.opts.NewID,
		Prefix:       "mem-",
	})
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
	if err := m.registry.Reserve(ctx, nil); err != nil {
		return nil, err
	}
	t, err := m.launch(ctx, cmd)
	if err != nil {
		m.registry.Unreserve()
		return nil, err
	}
	m.registry.Starts.Done()
	return t, nil
}

// launch starts the program of cmd, which has a slot.
func (m *Manager) launch(ctx context.Context, cmd terminal.Command) (*term, error) {
	args, prog, err := m.resolve(cmd)
	if err != nil {
		return nil, err
	}
	if err := m.hook(ctx, cmd); err != nil {
		return nil, err
	}
	id, err := m.registry.NextID()
	if err != nil {
		return nil, err
	}
	t := newTerm(m, id, cmd)
	if err := m.registry.Put(id, t); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.running[t] = true
	m.mu.Unlock()
	t.launch(args, prog)
	m.watchers.Go(t.watch)
	return t, nil
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
		case <-m.registry.Closing:
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

// Get implements [terminal.Manager].
func (m *Manager) Get(id string) (terminal.Terminal, error) {
	t, err := m.registry.Get(id)
	if err != nil {
		return nil, fmt.Errorf("memterm: %w", err)
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

// Close implements [terminal.Manager]. Programs have the grace to end, and a
// moment more to return once they are killed; those that still run then are in
// the [*terminal.LeakError].
func (m *Manager) Close() error { return m.registry.Close(m.shut) }

func (m *Manager) shut([]*term) error {
	m.registry.Starts.Wait()
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
	if len(leaks) == 0 {
		return nil
	}
	slices.SortFunc(leaks, func(a, b terminal.Leak) int { return a.Procs[0].PID - b.Procs[0].PID })
	return &terminal.LeakError{Leaks: leaks}
}

// errStubborn is why a program is a leak.
var errStubborn = errors.New("its function has not returned")
