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
		t, err := s.client.Start(context.WithValue(ctx, commandKey{}, k), k.cmd)
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

// commandKey is the key, in the context of a start in the client, of its
// *command.
type commandKey struct{}

// A gate is the connection as the Manager of the client's terminals has it: it
// keeps a release behind the updates that embed the terminal, and knows which
// creates are not answered yet.
type gate struct {
	acpterm.Conn
	s *State
}

// Done implements what acpterm looks for; nil if nobody can tell.
func (g gate) Done() <-chan struct{} { return g.s.b.lost }

// noteCreate notes that from now until the client answers nobody knows whether
// the command runs. It is acpterm's Options.Creating.
func (s *State) noteCreate(ctx context.Context) {
	if k, _ := ctx.Value(commandKey{}).(*command); k != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		k.created = make(chan struct{})
	}
}

// CreateTerminal takes the client's answer. One that comes after its command was
// given up settles with the release of the terminal.
func (g gate) CreateTerminal(ctx context.Context, p acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	k, _ := ctx.Value(commandKey{}).(*command)
	if k == nil {
		return g.Conn.CreateTerminal(ctx, p)
	}
	s := g.s
	r, err := g.Conn.CreateTerminal(ctx, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.clients[r.TerminalId]
	switch {
	case err != nil, r.TerminalId == "", old != nil && !old.released:
		close(k.created)
		return r, err
	case old != nil: // an id may come again, and overtake the answer to the release
		close(old.created)
	}
	k.clientID = r.TerminalId
	s.clients[r.TerminalId] = k
	return r, nil
}

// ReleaseTerminal releases a terminal that from now on no update embeds: "The
// terminal must be added before calling terminal/release" (ACP v1, tool call
// content), and a client may refuse a whole update that names a released one.
func (g gate) ReleaseTerminal(ctx context.Context, p acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	s := g.s
	s.mu.Lock()
	k := s.clients[p.TerminalId]
	var t terminal.Terminal
	if k != nil {
		k.released = true
		t = k.term
	}
	s.mu.Unlock()
	if t != nil {
		s.b.judge(t)
	}
	if k != nil {
		wait, cancel := context.WithTimeout(ctx, terminal.ReleaseTimeout/2)
		s.b.wire.settle(wait, p.TerminalId)
		cancel()
	}
	r, err := g.Conn.ReleaseTerminal(ctx, p)
	if k != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.clients[p.TerminalId] == k {
			delete(s.clients, p.TerminalId)
			close(k.created)
		}
	}
	return r, err
}

// judge asks the client for no more terminals if t, which has ended, was none.
func (b *Bridge) judge(t terminal.Terminal) {
	if err := t.Info().Err; errors.Is(err, acpterm.ErrStub) {
		b.stopDelegating(err)
	}
}

// showCreated shows a client's terminal in the card of its Call, before it can
// be released. It is acpterm's Options.Created.
func (s *State) showCreated(ctx context.Context, t terminal.Terminal) {
	k, _ := ctx.Value(commandKey{}).(*command)
	if k == nil || k.call == nil {
		return
	}
	id := acpterm.TerminalID(t)
	c := k.call
	c.readReleased()
	s.mu.Lock()
	if c.usable() != nil || id == "" {
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
