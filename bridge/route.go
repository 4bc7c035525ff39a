package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/terminal"
)

// A route is where a command goes.
type route struct {
	client   bool // to the client
	fallback bool // and locally if the client has no such method
}

// route decides where cmd goes, or says why it can go nowhere.
func (b *Bridge) route(cmd terminal.Command) (route, error) {
	why := b.delegates()
	switch {
	case cmd.Environment == EnvironmentClient, cmd.Environment == "" && b.opts.Policy == Require:
		if cmd.Stdin {
			return route{}, fmt.Errorf("bridge: %w: a client's terminal has none, and the command must run in the client", terminal.ErrNoInput)
		}
		if why != nil {
			return route{}, fmt.Errorf("bridge: the command must run in the client, and cannot: %w", why)
		}
		return route{client: true}, nil
	case cmd.Environment == "" && b.opts.Policy == Prefer && why == nil && !cmd.Stdin:
		return route{client: true, fallback: true}, nil
	}
	return route{}, nil
}

// prepare returns cmd as a Call runs it.
func (s *State) prepare(cmd terminal.Command) (terminal.Command, error) {
	if err := cmd.Check(); err != nil {
		return cmd, fmt.Errorf("bridge: %w", err)
	}
	cmd = cmd.Clone()
	if !s.b.opts.Pipes {
		cmd.TTY = true
	}
	if !cmd.Stdin {
		env := terminal.NoPagers() // on both routes
		maps.Copy(env, cmd.Env)
		cmd.Env = env
	}
	return cmd, nil
}

// launch starts the command of k on its route, and locally if it may and the
// client has no terminals after all: then, and only then, the client certainly
// did not run it.
func (s *State) launch(ctx context.Context, k *command) (terminal.Terminal, error) {
	if k.route.client {
		t, err := s.client.StartWith(ctx, k.cmd, s.hooks(k))
		switch {
		case err == nil:
			return t, nil
		case errors.Is(err, errors.ErrUnsupported):
			s.b.stopDelegating(err)
			if !k.route.fallback {
				return nil, err
			}
		case errors.Is(err, acpterm.ErrBadReply):
			s.b.stopDelegating(err)
			return nil, err
		default:
			return nil, err
		}
		if err := s.reroute(k); err != nil {
			return nil, err
		}
	}
	cmd := k.cmd
	if cmd.Environment == EnvironmentLocal {
		cmd.Environment = ""
	}
	if cmd.Dir == "" {
		cmd.Dir = s.cwd
	}
	m, err := s.localManager()
	if err != nil {
		return nil, err
	}
	return m.Start(ctx, cmd)
}

// localManager returns the Manager of local commands, and makes it when the
// first one asks for it.
func (s *State) localManager() (terminal.Manager, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.local == nil {
		if s.closed {
			return nil, fmt.Errorf("bridge: %w", terminal.ErrClosed)
		}
		s.local = s.b.newLocal(s)
	}
	return s.local, nil
}

// hooks keep the release of the client's terminal behind the updates that embed it,
// and note as long as nobody knows whether the command runs.
func (s *State) hooks(k *command) acpterm.Hooks {
	return acpterm.Hooks{
		Sent: func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			k.created = make(chan struct{})
		},
		Created: func(ctx context.Context, t terminal.Terminal) { s.showCreated(ctx, k, t) },
		// From the release on no update embeds the terminal: "The terminal must be
		// added before calling terminal/release" (ACP v1, tool call content), and a
		// client may refuse a whole update that names a released one.
		Releasing: func(ctx context.Context) {
			s.mu.Lock()
			k.released = true
			t, id := k.term, k.clientID
			s.mu.Unlock()
			if t != nil {
				s.b.judge(t)
			}
			if id != "" {
				s.b.wire.settle(ctx, id)
			}
		},
		Settled: func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			close(k.created)
		},
	}
}

// judge asks the client for no more terminals if t, which has ended, was none.
func (b *Bridge) judge(t terminal.Terminal) {
	if err := t.Info().Err; errors.Is(err, acpterm.ErrStub) {
		b.stopDelegating(err)
	}
}

// showCreated shows a client's terminal in the card of its Call, before it can
// be released.
func (s *State) showCreated(ctx context.Context, k *command, t terminal.Terminal) {
	id := acpterm.TerminalID(t)
	c := k.call
	if c != nil {
		c.readReleased()
	}
	s.mu.Lock()
	k.clientID = id
	if c == nil {
		s.mu.Unlock()
		return
	}
	if c.usable() != nil {
		s.mu.Unlock()
		return
	}
	if k.show == nil {
		k.show = &clientPresenter{k}
	}
	content, embeds := c.compose(false)
	status := acp.ToolCallStatusInProgress
	c.card.Status = status
	u := s.put(c, acp.SessionToolCallUpdate{Status: &status, Content: content}, embeds...)
	s.mu.Unlock()
	if u == nil {
		return
	}
	_ = s.b.wire.wait(ctx, u)
	// Only an update that was taken back is certainly not seen.
	embedded := !(closed(u.done) && u.err != nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	k.embedded = embedded
}
