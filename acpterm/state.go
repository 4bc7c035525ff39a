package acpterm

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/output"
	"github.com/termbridge/termbridge/terminal"
)

// A TimeoutError is returned by [State.Exec] for a command that was stopped
// after its timeout.
type TimeoutError struct {
	// Seconds is the timeout.
	Seconds int
	// Output is what the command had written until then.
	Output string
}

// Error says how long the command has run.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("command timed out after %d seconds", e.Seconds)
}

// An ExecResult is what came of a command in the foreground.
type ExecResult struct {
	// ExitCode is the exit code, or nil if there was none, since a signal ended
	// the command, or the client did not say.
	ExitCode *int
	// Signal is the name of the signal that ended the command, such as
	// "SIGKILL", or "" if there was none or the client did not say.
	Signal string
	// Output is the end of the output, at most [DefaultMaxBytes].
	Output string
}

// A State is the set of a session's terminals, for an agent that has a
// connection and runs its own loop. Use package bridge to get the same, and
// terminals of our own where the client has none, with less to think about.
//
// Each command's terminal is embedded in its tool call by a tool_call_update and
// stays pending until the agent's tool-end calls TakePending, however long after
// the end of the command that is.
//
// The conn of a call is that of the session, or a wrapper around it, which may be
// another one in each call: the requests of a command go through the conn of the
// last call that concerns it. A State may be used from any number of goroutines.
// Make one with NewState.
type State struct {
	options StateOptions
	manager *Manager // of all sessions; it is never closed

	mu sync.Mutex
	// guards following
	clients  map[<-chan struct{}]*Client // by what is closed when the connection ends
	commands []*command                  // in the order of their starts
}

// A command is one of a State, from before its start until it is cleaned up or gives
// way to a later one. State.mu guards it, but for what never changes.
type command struct {
	session, toolCall string
	background        bool

	term    *term // nil until it has started
	pending bool  // shown, and TakePending was not called yet
	removed bool  // from the State's commands
}

// live reports whether the command starts or runs. Called with mu held.
func (c *command) live() bool { return c.term == nil || !c.term.ended() }

// StateOptions configure a State. The zero value is sensible.
type StateOptions struct {
	// MaxBackground is how many commands run in the background at once; zero or
	// less is [DefaultMaxBackground].
	MaxBackground int

	// Profile is how the client treats terminals; [Profiles] have those of known
	// clients. The zero Profile works with every client that was measured.
	Profile Profile

	// Shell runs the lines, as SHELL -c LINE; "" is /bin/sh.
	Shell string

	// CreateTimeout bounds the client's answer to terminal/create, besides the ctx
	// of the call. Zero is 5 min, since a client may ask its
	// user first; negative is no bound.
	CreateTimeout time.Duration

	// Host finds what the client leaves behind of a command that is stopped on the
	// agent's own host, and ends it; nil is [NoHost].
	Host Host

	// Logger gets what callers are not told; nil discards it.
	Logger *slog.Logger
}

// NewState returns a State with [DefaultMaxBackground].
func NewState() *State { return StateOptions{}.NewState() }

// NewStateWithLimit returns a State that runs at most limit commands in the
// background at once; zero or less is [DefaultMaxBackground].
func NewStateWithLimit(limit int) *State {
	return StateOptions{MaxBackground: limit}.NewState()
}

// NewState returns a State with these options.
func (o StateOptions) NewState() *State {
	o.MaxBackground = limits.Or(o.MaxBackground, DefaultMaxBackground)
	if o.CreateTimeout == 0 {
		o.CreateTimeout = limits.PermitTimeout
	}
	s := &State{options: o, clients: make(map[<-chan struct{}]*Client)}
	var ids atomic.Int64
	s.manager = newManager(peer{}, Options{
		MaxTerminals:  s.maxTerminals(),
		OutputLimit:   DefaultMaxBytes,
		CreateTimeout: o.CreateTimeout,
		Profile:       o.Profile,
		Host:          o.Host,
		NewID:         func() string { return "cmd-" + strconv.FormatInt(ids.Add(1), 10) },
		Logger:        o.Logger,
	})
	return s
}

// Exec runs a shell line in the client's terminal, shows it in the tool call
// toolCallID, and waits for its end. The terminal is about to be released when
// Exec returns, which CleanupPending waits for, and pending until TakePending. Cwd
// is absolute, or "" for the agent's own.
//
// A command that ended is a result, whatever its code. With an error, the result
// is what is known, and nil if the command was not started. Errors: ErrAborted; a
// *TimeoutError after timeout seconds, zero or less being none;
// [terminal.ErrConnectionLost]; the reason why the output could not be read, or
// how it ended could not be found out; those of [Manager.Start].
func (s *State) Exec(ctx context.Context, conn Conn, sessionID, toolCallID, command, cwd string, timeout int) (*ExecResult, error) {
	const most = math.MaxInt64 / int64(time.Second)
	t, err := s.start(ctx, s.peer(conn, sessionID), toolCallID, false, terminal.Command{
		Line:    command,
		Dir:     cwd,
		Timeout: time.Duration(min(max(int64(timeout), 0), most)) * time.Second,
	})
	if err != nil {
		return nil, err
	}
	info, err := terminal.Wait(ctx, t)
	if err != nil {
		info, _ = t.Stop(context.WithoutCancel(ctx)) // bounded by itself
	}
	result := &ExecResult{ExitCode: exitCode(info.Exit), Signal: info.Exit.Signal, Output: textOf(t)}
	s.manager.registry.Evict(t) // nobody can ask for it
	switch {
	case info.Outcome == terminal.ConnectionLost:
		return result, info.Err
	case err != nil:
		return result, aborted(err)
	case info.Outcome == terminal.Stopped:
		return result, ErrAborted
	case info.Outcome == terminal.TimedOut:
		return result, &TimeoutError{Seconds: timeout, Output: result.Output}
	}
	return result, info.Err
}

// aborted is ErrAborted because of cause.
func aborted(cause error) error { return fmt.Errorf("%w: %w", ErrAborted, cause) }

// StartBackground starts a shell line in the client's terminal, shows it in the
// tool call toolCallID, and returns the id of the command once it runs. Without a
// free slot the error wraps [terminal.ErrTooMany]; the other errors are
// ErrAborted, if ctx ended, and those of [Manager.Start].
func (s *State) StartBackground(ctx context.Context, conn Conn, sessionID, command, cwd, toolCallID string) (string, error) {
	t, err := s.start(ctx, s.peer(conn, sessionID), toolCallID, true, terminal.Command{Line: command, Dir: cwd})
	if err != nil {
		return "", err
	}
	return t.Info().ID, nil
}

// BackgroundOutput returns the end of the output of a background command as the
// client shows it now, whether it runs, and how it has ended: the exit code is
// nil as in ExecResult. With an error, they are what is known. An id that is not
// known, or was cleaned up, is [terminal.ErrNotFound].
func (s *State) BackgroundOutput(ctx context.Context, conn Conn, sessionID, commandID string) (output string, isRunning bool, code *int, err error) {
	t, err := s.background(conn, sessionID, commandID)
	if err != nil {
		return "", false, nil, err
	}
	seen := t.refresh(ctx)
	if seen.exit.Known() {
		// The last output is about to be read.
		bounded, cancel := context.WithTimeout(ctx, limits.OutputTimeout)
		defer cancel()
		terminal.Wait(bounded, t)
	}
	info := t.Info()
	output = textOf(t)
	switch {
	case info.Outcome.Ended():
		return output, false, exitCode(info.Exit), info.Err
	case seen.ended:
		return output, false, exitCode(seen.exit), nil
	}
	return output, true, nil, seen.err
}

// KillBackground stops a background command and returns its last output and its
// exit code. It does so even if ctx has ended, and within bounds. On a command
// that has ended it returns the same without a kill.
func (s *State) KillBackground(ctx context.Context, conn Conn, sessionID, commandID string) (output string, code *int, err error) {
	t, err := s.background(conn, sessionID, commandID)
	if err != nil {
		return "", nil, err
	}
	info, _ := t.Stop(context.WithoutCancel(ctx))
	return textOf(t), exitCode(info.Exit), info.Err
}

// CleanupPending stops the commands of a session that run in the foreground, and
// waits until their terminals are released, within bounds and even if ctx has
// ended; what was pending of them is no longer. It does not touch background
// commands.
func (s *State) CleanupPending(ctx context.Context, conn Conn, sessionID string) {
	s.cleanup(ctx, conn, sessionID, false)
}

// CleanupBackground stops and forgets the background commands of a session, and
// waits until their terminals are released, within bounds and even if ctx has
// ended.
func (s *State) CleanupBackground(ctx context.Context, conn Conn, sessionID string) {
	s.cleanup(ctx, conn, sessionID, true)
}

// TakePending reports whether a terminal was shown in the tool call toolCallID
// since the last call, in the foreground or the background. An agent's tool-end
// then leaves the content of the tool call out of its update: the user sees the
// output already, and content would replace the terminal.
func (s *State) TakePending(toolCallID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := false
	for _, c := range s.commands {
		if c.pending && c.toolCall == toolCallID {
			c.pending, taken = false, true
		}
	}
	return taken
}

// maxTerminals is how many commands a State has at most, live and ended.
func (s *State) maxTerminals() int { return s.options.MaxBackground + limits.DefaultMaxTerminals }

// start starts a command on behalf of a tool call.
func (s *State) start(ctx context.Context, p peer, toolCallID string, background bool, cmd terminal.Command) (*term, error) {
	if ctx.Err() != nil && !p.lost() {
		return nil, aborted(context.Cause(ctx))
	}
	c := &command{session: string(p.session), toolCall: toolCallID, background: background}
	if err := s.reserve(c); err != nil {
		return nil, fmt.Errorf("acpterm: %w", err)
	}
	cmd.Shell = s.options.Shell
	t, err := s.manager.start(ctx, p, cmd, Hooks{Created: func(ctx context.Context, t terminal.Terminal) {
		if toolCallID != "" && p.embed(ctx, toolCallID, s.manager.TerminalID(t)) == nil {
			s.shown(c)
		}
	}})
	if err != nil {
		s.remove(func(other *command) bool { return other == c })
		if ctx.Err() != nil && !p.lost() {
			return nil, aborted(context.Cause(ctx))
		}
		return nil, err
	}
	if !s.started(c, t) { // a cleanup came in between
		t.Stop(context.WithoutCancel(ctx))
		s.manager.registry.Evict(t)
		return nil, ErrAborted
	}
	return t, nil
}

// reserve enters a command that is about to start. Without a background slot, or if
// as many run as are kept, the error wraps [terminal.ErrTooMany]; else the first that
// has ended gives way, of those that TakePending has not asked for the last.
func (s *State) reserve(c *command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	background, oldest := 0, -1
	for i, other := range s.commands {
		switch {
		case !other.live():
			if oldest < 0 || s.commands[oldest].pending && !other.pending {
				oldest = i
			}
		case other.background:
			background++
		}
	}
	if c.background && background >= s.options.MaxBackground {
		return fmt.Errorf("%w: %d of %d run already", terminal.ErrTooMany, background, s.options.MaxBackground)
	}
	if len(s.commands) >= s.maxTerminals() {
		if oldest < 0 {
			return fmt.Errorf("%w: %d run already", terminal.ErrTooMany, len(s.commands))
		}
		s.manager.registry.Evict(s.commands[oldest].term)
		s.commands = slices.Delete(s.commands, oldest, oldest+1)
	}
	s.commands = append(s.commands, c)
	return nil
}

// shown notes that the user sees the terminal of c in its tool call.
func (s *State) shown(c *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.pending = true
}

// started enters the terminal of c. It returns false if c was removed meanwhile: then
// nobody else knows t, and the caller must stop it.
func (s *State) started(c *command, t *term) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.term = t
	return !c.removed
}

// remove removes the commands that match, and returns the terminals of those that had
// started. Match is called with mu held.
func (s *State) remove(match func(*command) bool) (removed []*term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = slices.DeleteFunc(s.commands, func(c *command) bool {
		if !match(c) {
			return false
		}
		if c.removed = true; c.term != nil {
			removed = append(removed, c.term)
		}
		return true
	})
	return removed
}

// embed shows the client's terminal id in a tool call.
func (p peer) embed(ctx context.Context, toolCallID, id string) error {
	return p.conn.SessionUpdate(ctx, acp.SessionNotification{
		SessionId: p.session,
		Update: acp.UpdateToolCall(acp.ToolCallId(toolCallID),
			acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolTerminalRef(id)})),
	})
}

// peer returns the other end of conn. What is known of it is that of its
// connection, however often conn is wrapped.
func (s *State) peer(conn Conn, session string) peer {
	p := newPeer(conn, acp.SessionId(session), nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.clients, func(gone <-chan struct{}, _ *Client) bool { return await.Closed(gone) })
	p.client = s.clients[p.gone]
	if p.client == nil {
		p.client = new(Client)
		s.clients[p.gone] = p.client
	}
	return p
}

// background returns a background command of a session, which conn serves from
// now on.
func (s *State) background(conn Conn, session, id string) (*term, error) {
	t := s.find(session, id)
	if t == nil {
		return nil, fmt.Errorf("acpterm: %w: %q", terminal.ErrNotFound, id)
	}
	t.use(s.peer(conn, session))
	return t, nil
}

// find returns the terminal of a session with this id, or nil.
func (s *State) find(session, id string) *term {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		if c.term != nil && c.session == session && c.term.info.ID == id {
			return c.term
		}
	}
	return nil
}

// cleanup stops and removes commands of a session, all at once.
func (s *State) cleanup(ctx context.Context, conn Conn, session string, background bool) {
	p := s.peer(conn, session)
	var all sync.WaitGroup
	for _, t := range s.remove(func(c *command) bool { return c.session == session && c.background == background }) {
		t.use(p)
		all.Go(func() {
			t.Stop(context.WithoutCancel(ctx))
			s.manager.registry.Evict(t)
			t.awaitRelease()
		})
	}
	all.Wait()
}

// textOf returns all output that is kept.
func textOf(t terminal.Terminal) string {
	var b strings.Builder
	for out := range output.Rest(context.Background(), t, 0) { // no ctx, no error
		b.WriteString(out.Text)
	}
	return b.String()
}

// exitCode returns the code of an exit that had one.
func exitCode(exit terminal.Exit) *int {
	if exit.Signal != "" {
		return nil
	}
	return exit.Code
}
