package acpterm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/ledger"
	"github.com/termbridge/termbridge/terminal"
)

// Defaults of a State.
const (
	DefaultMaxBytes      = 50 << 10 // output kept, and asked of the client, of each command
	DefaultMaxBackground = 10       // live background commands
)

// ErrAborted is returned by [State.Exec] when its ctx ended, or CleanupPending
// was called, before the command had ended. The command is then stopped.
var ErrAborted = errors.New("aborted")

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
	// Output is the end of the output, at most [DefaultMaxBytes].
	Output string
}

// A State is the set of a session's terminals, for an agent that has a
// connection and runs its own loop. Use package bridge to get the same, and
// terminals of our own where the client has none, with less to think about.
//
// Each command's terminal is embedded in its tool call by a tool_toolCallupdate
// and stays pending until the agent's tool-end calls TakePending, however long
// after the end of the command that is.
//
// The conn of every call is that of the session; it must be comparable, as
// pointers are. A State may be used from any number of goroutines. Make one
// with NewState.
type State struct {
	slots int
	books *ledger.Ledger[toolCall]
	ids   atomic.Int64

	mu sync.Mutex
	// guards following
	managers map[managerKey]*Manager
}

// A toolCall is a tool call of a session: the owner of its commands.
type toolCall struct{ session, id string }

type managerKey struct {
	conn    Conn
	session string
}

// NewState returns a State with [DefaultMaxBackground].
func NewState() *State { return NewStateWithLimit(DefaultMaxBackground) }

// NewStateWithLimit returns a State that runs at most limit commands in the
// background at once; zero or less is [DefaultMaxBackground].
func NewStateWithLimit(limit int) *State {
	if limit <= 0 {
		limit = DefaultMaxBackground
	}
	s := &State{
		slots:    limit,
		books:    ledger.New[toolCall](limit),
		managers: make(map[managerKey]*Manager),
	}
	s.books.Limit(s.kept())
	return s
}

// kept is how many commands are known, live and ended.
func (s *State) kept() int { return s.slots + terminal.DefaultMaxTerminals }

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
	t, err := s.start(ctx, conn, toolCall{sessionID, toolCallID}, false, terminal.Command{
		Line:    command,
		Dir:     cwd,
		Timeout: time.Duration(max(timeout, 0)) * time.Second,
	})
	if err != nil {
		return nil, err
	}
	info, err := terminal.Wait(ctx, t)
	if err != nil {
		info, _ = t.Stop(context.WithoutCancel(ctx)) // bounded by itself
	}
	result := &ExecResult{exitCode(info.Exit), textOf(t)}
	switch {
	case info.Outcome == terminal.ConnectionLost:
		return result, info.Err
	case err != nil, info.Outcome == terminal.Stopped:
		return result, ErrAborted
	case info.Outcome == terminal.TimedOut:
		return result, &TimeoutError{Seconds: timeout, Output: result.Output}
	}
	return result, info.Err
}

// StartBackground starts a shell line in the client's terminal, shows it in the
// tool call toolCallID, and returns the id of the command once it runs. Without a
// free slot the error wraps [terminal.ErrTooMany]; the other errors are
// ErrAborted, if ctx ended, and those of [Manager.Start].
func (s *State) StartBackground(ctx context.Context, conn Conn, sessionID, command, cwd, toolCallID string) (string, error) {
	t, err := s.start(ctx, conn, toolCall{sessionID, toolCallID}, true, terminal.Command{Line: command, Dir: cwd})
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
	t, err := s.background(sessionID, commandID)
	if err != nil {
		return "", false, nil, err
	}
	err = t.refresh(ctx)
	output = textOf(t)
	info := t.Info()
	if info.Outcome.Ended() {
		output, err = textOf(t), info.Err
	}
	return output, !info.Outcome.Ended(), exitCode(info.Exit), err
}

// KillBackground stops a background command and returns its last output and its
// exit code. It does so even if ctx has ended, and within bounds. On a command
// that has ended it returns the same without a kill.
func (s *State) KillBackground(ctx context.Context, conn Conn, sessionID, commandID string) (output string, code *int, err error) {
	t, err := s.background(sessionID, commandID)
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
	s.cleanup(ctx, sessionID, false)
}

// CleanupBackground stops and forgets the background commands of a session, and
// waits until their terminals are released, within bounds and even if ctx has
// ended.
func (s *State) CleanupBackground(ctx context.Context, conn Conn, sessionID string) {
	s.cleanup(ctx, sessionID, true)
}

// TakePending reports whether a terminal was shown in the tool call toolCallID
// since the last call, in the foreground or the background. An agent's tool-end
// then leaves the content of the tool call out of its update: the user sees the
// output already, and content would replace the terminal.
func (s *State) TakePending(toolCallID string) bool {
	return s.books.TakePending(func(owner toolCall) bool { return owner.id == toolCallID })
}

// start starts a command on behalf of owner.
func (s *State) start(ctx context.Context, conn Conn, owner toolCall, background bool, cmd terminal.Command) (terminal.Terminal, error) {
	m := s.manager(conn, owner.session)
	if ctx.Err() != nil && !m.peer.lost() {
		return nil, ErrAborted
	}
	entry, err := s.books.Reserve(owner, background)
	if err != nil {
		return nil, fmt.Errorf("acpterm: %w", err)
	}
	t, err := m.Start(context.WithValue(ctx, embedKey{}, embed{entry, owner}), cmd)
	if err != nil {
		entry.Forget()
		if ctx.Err() != nil && !m.peer.lost() {
			return nil, ErrAborted
		}
		return nil, err
	}
	if !entry.Started(t) { // a cleanup came in between
		t.Stop(context.WithoutCancel(ctx))
		return nil, ErrAborted
	}
	return t, nil
}

// An embed is what showing a new terminal takes. It comes to Options.Created in
// the context of Start.
type embed struct {
	entry *ledger.Entry[toolCall]
	owner toolCall
}

type embedKey struct{}

// manager returns the Manager of a session, and makes it for its first command.
func (s *State) manager(conn Conn, session string) *Manager {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, m := range s.managers {
		if m.peer.lost() {
			delete(s.managers, key)
		}
	}
	key := managerKey{conn, session}
	m := s.managers[key]
	if m == nil {
		m = New(conn, acp.SessionId(session), &Options{
			MaxTerminals: s.kept(),
			OutputLimit:  DefaultMaxBytes,
			NewID:        func() string { return "cmd-" + strconv.FormatInt(s.ids.Add(1), 10) },
			Created: func(ctx context.Context, t terminal.Terminal) {
				e := ctx.Value(embedKey{}).(embed)
				if e.owner.id == "" {
					return
				}
				err := conn.SessionUpdate(ctx, acp.SessionNotification{
					SessionId: acp.SessionId(session),
					Update: acp.UpdateToolCall(acp.ToolCallId(e.owner.id),
						acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolTerminalRef(TerminalID(t))})),
				})
				if err == nil {
					e.entry.Show()
				}
			},
		})
		s.managers[key] = m
	}
	return m
}

// background returns a background command of a session.
func (s *State) background(session, id string) (*term, error) {
	entry, err := s.books.Find(id)
	if err != nil || entry.Owner().session != session {
		return nil, fmt.Errorf("acpterm: %w: %q", terminal.ErrNotFound, id)
	}
	return entry.Terminal().(*term), nil
}

// cleanup stops and forgets commands of a session, all at once.
func (s *State) cleanup(ctx context.Context, session string, background bool) {
	swept := s.books.Sweep(func(owner toolCall, slot bool) bool { return owner.session == session && slot == background })
	var all sync.WaitGroup
	for _, t := range swept {
		all.Go(func() {
			t.Stop(context.WithoutCancel(ctx))
			t.(*term).settled(terminal.ReleaseTimeout)
		})
	}
	all.Wait()
}

// textOf returns all output that is kept.
func textOf(t terminal.Terminal) string {
	var b strings.Builder
	for cursor := int64(0); ; {
		out, _ := t.ReadOutput(context.Background(), cursor, 0) // no ctx, no error
		b.WriteString(out.Text)
		cursor = out.NextCursor
		if !out.More {
			return b.String()
		}
	}
}

// exitCode returns the code of an exit that had one.
func exitCode(exit terminal.Exit) *int {
	if exit.Signal != "" {
		return nil
	}
	return exit.Code
}
