package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/internal/noinput"
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

// face returns the title of a card of cmd, and the directory where it runs, "" if that
// is not known here.
func (s *State) face(cmd terminal.Command) (title, dir string) {
	switch cmd.Environment {
	case "", EnvironmentClient, EnvironmentLocal:
		return cmd.String(), cmp.Or(cmd.Dir, s.cwd)
	}
	return "[on " + cmd.Environment + "] " + cmd.String(), cmd.Dir
}

// prepare returns cmd as a Call runs it.
func (s *State) prepare(cmd terminal.Command) (terminal.Command, error) {
	if err := cmd.Check(); err != nil {
		return cmd, fmt.Errorf("bridge: %w", err)
	}
	cmd = s.b.withShell(cmd.Clone())
	if !s.b.opts.Pipes {
		cmd.TTY = true
	}
	if !cmd.Stdin {
		env := noinput.Env() // on both routes
		maps.Copy(env, cmd.Env)
		cmd.Env = env
	}
	return cmd, nil
}

// withShell gives a line the shell of the options, if it has none of its own.
func (b *Bridge) withShell(cmd terminal.Command) terminal.Command {
	if cmd.Line != "" {
		cmd.Shell = cmp.Or(cmd.Shell, b.opts.Shell)
	}
	return cmd
}

// launch starts the command of k on its route, and locally if it may and the
// client has no terminals after all: then, and only then, the client certainly
// did not run it.
func (s *State) launch(ctx context.Context, k *command) (terminal.Terminal, error) {
	cmd := s.b.findable(k.cmd)
	if k.route.client {
		t, err := s.client.StartWith(ctx, cmd, s.hooks(k))
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
	if cmd.Environment == EnvironmentLocal {
		cmd.Environment = ""
	}
	if cmd.Dir == "" && cmd.Environment == "" { // at another place there may be no such directory
		cmd.Dir = s.cwd
	}
	m, err := s.localManager(ctx)
	if err != nil {
		return nil, err
	}
	return m.Start(ctx, cmd)
}

// routesLocally reports whether a command that says nothing runs locally.
func (b *Bridge) routesLocally() bool {
	r, err := b.route(terminal.Command{})
	return err == nil && !r.client
}

// reroute sends the command of k, which the client cannot run, to the local
// route. Its card was shown without a display terminal, and those cannot be
// added later.
func (s *State) reroute(k *command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.route = route{}
	if k.call != nil {
		return k.call.usable()
	}
	return nil
}

// hooks keep the release of the client's terminal behind the updates that embed it,
// and note as long as nobody knows whether the command runs.
func (s *State) hooks(k *command) acpterm.Hooks {
	return acpterm.Hooks{
		Sent:      func() { s.noteSent(k) },
		Created:   func(ctx context.Context, t terminal.Terminal) { s.showCreated(ctx, k, t) },
		Releasing: func(ctx context.Context) { s.unembed(ctx, k) },
		Done:      func() { s.noteDone(k) },
	}
}

func (s *State) noteSent(k *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.created = make(chan struct{})
}

func (s *State) noteDone(k *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(k.created)
}

// unembed sees to it that from now on no update embeds the terminal of k: "The
// terminal must be added before calling terminal/release" (ACP v1, tool call
// content), and a client may refuse a whole update that names a released one.
func (s *State) unembed(ctx context.Context, k *command) {
	v := s.noteReleased(k)
	if v.term != nil {
		s.b.judge(v.term)
	}
	if v.clientID != "" && s.out.Unembed(ctx, v.clientID) && v.pane != nil {
		v.call.card.lose(v.pane)
	}
}

// noteReleased notes that no update may embed the terminal of k any more, and
// returns a view of it.
func (s *State) noteReleased(k *command) *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.released = true
	if k.pane != nil {
		k.call.card.release(k.pane)
	}
	view := *k
	return &view
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
	if k.call != nil {
		k.call.card.keepReleased()
	}
	if p := s.embed(k, s.client.TerminalID(t)); p != nil {
		_ = p.embed.Wait(ctx)
	}
}

// embed notes the client's id of the terminal of k, and has its Call, if it is
// open, show it.
func (s *State) embed(k *command, id string) *pane {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.clientID = id
	if k.call == nil || k.call.usable() != nil || k.pane != nil {
		return nil
	}
	k.pane = k.call.card.embed(id)
	return k.pane
}
