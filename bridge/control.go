package bridge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/terminal"
)

// A controlled is what serves the terminals of a Bridge to others.
type controlled struct {
	control *control.Control
	server  *control.Server
}

// ServeControl serves the terminals of all sessions at a Unix socket until Close, to
// the user's other processes, see package [control]: they can list, read, name, group,
// wait for, type into, end and attach to them. Call it once, before the first session.
//
// What they start (a new shell) belongs to the session whose working directory is its
// directory or the nearest above it, else to the newest. A card of its own shows it. It
// runs locally, since a client's terminal has no input. Commands in the client's
// terminals can be followed, and are typed into there.
//
// Commands have [control.EnvSocket], unless they run at one of Options.Executors, and
// [control.EnvTerminal], unless Options.Local makes their Manager. Requests are logged at Info.
// For the errors see [control.Listen].
func (b *Bridge) ServeControl(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return fmt.Errorf("bridge: %w", terminal.ErrClosed)
	case b.control.Load() != nil:
		return fmt.Errorf("bridge: the terminals are served already, at %s", b.socket())
	}
	c := control.New(&desk{everywhere: everywhere{b}}, &control.Options{Shell: b.opts.Shell, Logger: b.opts.Logger})
	server, err := control.Listen(path, c, &control.ServerOptions{Logger: b.opts.Logger})
	if err != nil {
		_ = c.Close()
		return err
	}
	b.control.Store(&controlled{c, server})
	return nil
}

// hangUp ends all requests.
func (c *controlled) hangUp(log *slog.Logger) {
	if c == nil {
		return
	}
	if err := c.server.Close(); err != nil {
		log.Warn("bridge: close the control socket", "err", err)
	}
	_ = c.control.Close()
}

// socket returns the path at which the terminals are served, or "".
func (b *Bridge) socket() string {
	if c := b.control.Load(); c != nil {
		return c.server.Path()
	}
	return ""
}

// idEnv is the IDEnv of a session's Managers.
func (b *Bridge) idEnv() string {
	if b.socket() == "" {
		return ""
	}
	return control.EnvTerminal
}

// findable returns cmd as it runs, so that it can find its own terminal.
func (b *Bridge) findable(cmd terminal.Command) terminal.Command {
	switch cmd.Environment {
	case "", EnvironmentClient, EnvironmentLocal:
		if socket := b.socket(); socket != "" {
			return cmd.WithEnv(control.EnvSocket, socket)
		}
	}
	return cmd
}

// A desk is the Manager of a Bridge for others: what they start is shown, and no two
// terminals have the same id.
type desk struct {
	everywhere
	calls atomic.Int64 // tool calls so far

	mu sync.Mutex
	// guards following
	names map[origin]string // the ids of the terminals here
}

// An origin is a terminal: its session, and the id that its Manager has given to it.
type origin struct {
	session acp.SessionId
	id      string
}

// A renamed is a terminal whose id another session has given as well.
type renamed struct {
	terminal.Terminal
	id string
}

func (t renamed) Unwrap() terminal.Terminal { return t.Terminal }

func (t renamed) Info() terminal.Info {
	info := t.Terminal.Info()
	info.ID = t.id
	return info
}

func (d *desk) List() []terminal.Terminal {
	var from []origin
	var all []terminal.Terminal
	for _, s := range d.b.states() {
		for _, t := range s.List() {
			all = append(all, t)
			from = append(from, origin{s.id, t.Info().ID})
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := make(map[origin]string)
	for i, o := range from {
		all[i] = d.named(o, all[i])
		kept[o] = d.names[o]
	}
	d.names = kept
	return all
}

// named returns a terminal with its id here. Called with mu held.
func (d *desk) named(o origin, t terminal.Terminal) terminal.Terminal {
	if d.names[o] == "" {
		name := o.id
		for _, taken := range d.names {
			if taken == name {
				name = string(o.session) + "/" + o.id
				break
			}
		}
		if d.names == nil {
			d.names = make(map[origin]string)
		}
		d.names[o] = name
	}
	if d.names[o] == o.id {
		return t
	}
	return renamed{t, d.names[o]}
}

// Start starts a command in the session that its directory belongs to, and shows it in
// a card.
func (d *desk) Start(ctx context.Context, cmd terminal.Command) (t terminal.Terminal, err error) {
	s := nearest(d.b.states(), cmd.Dir)
	if s == nil {
		return nil, fmt.Errorf("bridge: %w: no session is open", terminal.ErrBadCommand)
	}
	_, turnErr := s.Turn(ctx, func(ctx context.Context, turn *Turn) (acp.PromptResponse, error) {
		call := turn.ToolCall(acp.SessionUpdateToolCall{
			ToolCallId: acp.ToolCallId("control-" + strconv.FormatInt(d.calls.Add(1), 10)),
			Title:      cmp.Or(cmd.Labels[control.TypedLabel], cmd.Labels[control.NameLabel], cmd.String()),
			Kind:       acp.ToolKindExecute,
		})
		t, err = call.StartBackground(ctx, cmd)
		call.End("", err)
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	})
	switch {
	case err != nil:
		return nil, err
	case t == nil:
		return nil, cmp.Or(turnErr, errCancelled)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.named(origin{s.id, t.Info().ID}, t), nil
}

// nearest returns the session whose working directory is dir or the nearest above it,
// else the newest; nil if there is none.
func nearest(states []*State, dir string) (found *State) {
	longest := -1
	for _, s := range states {
		rel, err := filepath.Rel(s.cwd, dir)
		n := len(s.cwd)
		if dir == "" || err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			n = -1
		}
		if n >= longest {
			longest, found = n, s
		}
	}
	return found
}
