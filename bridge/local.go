package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// newLocal returns the Manager of a session's local commands.
func (b *Bridge) newLocal(s *State) terminal.Manager {
	if b.opts.Local != nil {
		return b.opts.Local(s.id)
	}
	executors := maps.Clone(b.opts.Executors)
	if executors == nil {
		executors = make(map[string]execenv.Executor)
	}
	executors[EnvironmentLocal] = nil // of the Manager's own
	return localterm.New(&localterm.Options{
		Executors:    executors,
		Dir:          s.cwd,
		Env:          b.opts.Env, // nil: without what looks like a secret
		MaxTerminals: b.opts.MaxTerminals,
		NewID:        b.opts.NewID,
		IDEnv:        b.idEnv(),
		Logger:       b.opts.Logger,
	})
}

// localManager returns the Manager of local commands, and makes it when the
// first one asks for it. Others wait for that, until ctx ends.
func (s *State) localManager(ctx context.Context) (terminal.Manager, error) {
	for {
		m, making, err := s.claimLocal()
		switch {
		case err != nil || m != nil:
			return m, err
		case making == nil:
			return s.makeLocal()
		}
		select {
		case <-making:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claimLocal returns the Manager of local commands, or what to wait for while
// another makes it; neither if the caller must make it.
func (s *State) claimLocal() (m terminal.Manager, making <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.local != nil:
		return s.local, nil, nil
	case s.closed:
		return nil, nil, fmt.Errorf("bridge: %w", terminal.ErrClosed)
	case s.making != nil:
		return nil, s.making, nil
	}
	s.making = make(chan struct{})
	return nil, nil, nil
}

// makeLocal makes the Manager of local commands, with no lock held: what makes it
// is the caller's code. One that comes after Close is closed.
func (s *State) makeLocal() (m terminal.Manager, err error) {
	if failure := caught.Call(func() { m = s.hear(s.b.newLocal(s)) }); failure != nil {
		m, err = nil, fmt.Errorf("bridge: Options.Local %w", failure)
	} else if m == nil {
		err = errors.New("bridge: Options.Local made no Manager")
	}
	if err = s.setLocal(m, err); err != nil && m != nil {
		_ = closeLocal(m)
		m = nil
	}
	return m, err
}

// hear has m tell the State what it keeps no longer, if it can.
func (s *State) hear(m terminal.Manager) terminal.Manager {
	if e, ok := m.(interface {
		OnEvict(func(terminal.Terminal))
	}); ok {
		e.OnEvict(s.evicted)
	}
	return m
}

// setLocal ends the claim with a Manager, or with the error that there is none.
func (s *State) setLocal(m terminal.Manager, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.making)
	s.making = nil
	switch {
	case err != nil:
		return err
	case s.closed:
		return fmt.Errorf("bridge: %w", terminal.ErrClosed)
	}
	s.local = m
	return nil
}
