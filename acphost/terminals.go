package acphost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/jsonrpc"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// answerWithin bounds how long a kill or a release waits for the end of its
// command before it answers: half of what our own agent side waits for it.
const answerWithin = limits.KillTimeout / 2

// A source is where a card's terminal output comes from: a terminal of the
// client's, or a display-only terminal that the agent fills.
type source struct {
	id    string
	limit int
	shown time.Time // when a card first had it; Host.mu guards it

	// A client's terminal.
	session  *session
	t        terminal.Terminal
	released chan struct{} // closed when the id became unknown

	// A display-only terminal. Host.mu guards first and exit.
	buffer *tail.Buffer
	dir    string
	first  time.Time
	exit   *terminal.Exit
}

// ended reports whether the command of a client's terminal has ended.
func (x *source) ended() bool {
	select {
	case <-x.t.Done():
		return true
	default:
		return false
	}
}

// Command is the command that the specification means by a create request: the
// program req.Command with the words req.Args, run without a shell, in the
// absolute directory req.Cwd or in the Manager's default. The portable form of
// a shell line, "/bin/sh" with "-c" and the line, is nothing special to it.
func Command(req acp.CreateTerminalRequest) (terminal.Command, error) {
	cmd := terminal.Command{Args: append([]string{req.Command}, req.Args...)}
	if req.Cwd != nil {
		if cmd.Dir = *req.Cwd; cmd.Dir == "" {
			return cmd, errors.New("cwd is empty: leave it out, or give an absolute path")
		}
	}
	if n := req.OutputByteLimit; n != nil {
		cmd.OutputLimit = *n
	}
	if len(req.Env) > 0 {
		cmd.Env = make(map[string]string, len(req.Env))
		for _, v := range req.Env {
			cmd.Env[v.Name] = v.Value
		}
	}
	return cmd, cmd.Check()
}

// CreateTerminal is terminal/create: it starts the command and returns at once.
func (h *Host) CreateTerminal(ctx context.Context, req acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	var none acp.CreateTerminalResponse
	// A limit of 0 keeps nothing, which a Command cannot say: 0 is its default.
	limit := h.opts.OutputLimit
	if n := req.OutputByteLimit; n != nil {
		if *n < 0 {
			return none, requestError(jsonrpc.InvalidParams, fmt.Errorf("acphost: outputByteLimit %d is negative", *n))
		}
		limit = min(limit, *n)
	}
	var cmd terminal.Command
	var err error
	if failure := caught.Call(func() { cmd, err = h.opts.Command(req) }); failure != nil {
		return none, requestError(jsonrpc.Internal, fmt.Errorf("acphost: Options.Command %w", failure))
	}
	if err != nil {
		return none, requestError(jsonrpc.InvalidParams, err)
	}
	cmd.OutputLimit = max(limit, 1)
	cmd.TTY = cmd.TTY || h.opts.TTY

	s, err := h.starting(req.SessionId)
	if err != nil {
		return none, err
	}
	var manager terminal.Manager
	if failure := caught.Call(func() { manager = s.manager() }); failure != nil {
		return none, requestError(jsonrpc.Internal, fmt.Errorf("acphost: the Manager of session %q %w", s.id, failure))
	}
	if manager == nil {
		return none, requestError(jsonrpc.InvalidParams, fmt.Errorf("acphost: session %q has no terminals", s.id))
	}
	t, err := manager.Start(ctx, cmd)
	if err != nil {
		code := jsonrpc.Internal
		if errors.Is(err, terminal.ErrBadCommand) {
			code = jsonrpc.InvalidParams
		}
		return none, requestError(code, err)
	}
	x := &source{id: t.Info().ID, limit: limit, session: s, t: t, released: make(chan struct{})}
	if err := h.started(x); err != nil {
		stop(t, limits.SettleTimeout)
		return none, err
	}
	return acp.CreateTerminalResponse{TerminalId: x.id}, nil
}

// starting returns the session of a create, or why it is refused.
func (h *Host) starting(id acp.SessionId) (*session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, requestError(jsonrpc.Internal, terminal.ErrClosed)
	}
	s, err := h.session(id)
	if err != nil {
		return nil, requestError(jsonrpc.InvalidParams, err)
	}
	return s, nil
}

// started enters a terminal, unless its session, or the Host, was closed while
// the command started.
func (h *Host) started(x *source) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prune()
	h.running[x] = true
	if h.closed || h.sessions[x.session.id] != x.session {
		return requestError(jsonrpc.Internal, terminal.ErrClosed)
	}
	x.session.terminals[x.id] = x
	return nil
}

// find returns a terminal that is not released, or the error -32002.
func (h *Host) find(session acp.SessionId, id string) (*source, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[session]; s != nil {
		if x := s.terminals[id]; x != nil {
			return x, nil
		}
	}
	return nil, notFound(id)
}

// TerminalOutput is terminal/output: the output that is kept, and how the
// command exited, once it has and nothing follows.
func (h *Host) TerminalOutput(ctx context.Context, req acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error) {
	x, err := h.find(req.SessionId, req.TerminalId)
	if err != nil {
		return acp.TerminalOutputResponse{}, err
	}
	out, truncated, exit, err := x.output(ctx)
	if err != nil {
		return acp.TerminalOutputResponse{}, requestError(jsonrpc.Internal, err)
	}
	resp := acp.TerminalOutputResponse{Output: out, Truncated: truncated}
	if exit != nil {
		resp.ExitStatus = &acp.TerminalExitStatus{ExitCode: exit.Code, Signal: signal(*exit)}
	}
	return resp, nil
}

// WaitForTerminalExit is terminal/wait_for_exit: it returns once the command
// has exited, or has ended by a release.
func (h *Host) WaitForTerminalExit(ctx context.Context, req acp.WaitForTerminalExitRequest) (acp.WaitForTerminalExitResponse, error) {
	x, err := h.find(req.SessionId, req.TerminalId)
	if err != nil {
		return acp.WaitForTerminalExitResponse{}, err
	}
	select {
	case <-x.t.Done():
	case <-x.released:
		// The release ends the command; if it cannot, the exit stays unknown.
		timer := time.NewTimer(limits.SettleTimeout)
		defer timer.Stop()
		select {
		case <-x.t.Done():
		case <-timer.C:
		case <-ctx.Done():
		}
	case <-ctx.Done():
		return acp.WaitForTerminalExitResponse{}, context.Cause(ctx)
	}
	exit := x.t.Info().Exit
	return acp.WaitForTerminalExitResponse{ExitCode: exit.Code, Signal: signal(exit)}, nil
}

// KillTerminal is terminal/kill: it ends the command and keeps the terminal.
// It answers when the command has ended, or after a second: a command that
// ignores SIGTERM ends later.
func (h *Host) KillTerminal(_ context.Context, req acp.KillTerminalRequest) (acp.KillTerminalResponse, error) {
	x, err := h.find(req.SessionId, req.TerminalId)
	if err == nil {
		stop(x.t, answerWithin)
	}
	return acp.KillTerminalResponse{}, err
}

// ReleaseTerminal is terminal/release: it makes the id unknown and ends the
// command. Cards that show the terminal go on showing it.
func (h *Host) ReleaseTerminal(_ context.Context, req acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	h.mu.Lock()
	var x *source
	if s := h.sessions[req.SessionId]; s != nil {
		if x = s.terminals[req.TerminalId]; x != nil {
			delete(s.terminals, x.id)
			close(x.released)
		}
	}
	h.mu.Unlock()
	if x == nil {
		return acp.ReleaseTerminalResponse{}, notFound(req.TerminalId)
	}
	stop(x.t, answerWithin)
	return acp.ReleaseTerminalResponse{}, nil
}

// signal is the signal as the protocol has it: null for none.
func signal(e terminal.Exit) *string {
	if e.Signal == "" {
		return nil
	}
	return &e.Signal
}

// output returns the last x.limit bytes of a client's terminal, cut between
// runes, whether anything is missing before them, and how the command exited, or nil
// while output may follow.
func (x *source) output(ctx context.Context) (out string, truncated bool, exit *terminal.Exit, err error) {
	var last terminal.Output
	out, truncated, err = snapshot(x.limit, func(cursor int64) (terminal.Output, error) {
		last, err = x.t.ReadOutput(ctx, cursor, 0)
		return last, err
	})
	if err == nil && last.EOF() {
		exit = &last.Info.Exit
	}
	return out, truncated, exit, err
}

// kept is the text of a display-only terminal.
func (x *source) kept() (out string, truncated bool) {
	out, truncated, _ = snapshot(x.limit, func(cursor int64) (terminal.Output, error) {
		c := x.buffer.Read(cursor, limits.MaxText)
		return terminal.Output{Text: c.Text, NextCursor: c.Next, More: c.More, Truncated: c.Truncated}, nil
	})
	return out, truncated
}

// snapshot returns the last limit bytes of an output, cut between runes, and
// whether anything is missing before them. Read reads from a cursor without
// waiting. A writer that is faster than the reads must not hold them, nor make
// them fill the memory: what was read by then is the tail of that instant.
func snapshot(limit int, read func(cursor int64) (terminal.Output, error)) (out string, truncated bool, err error) {
	var b strings.Builder
	var cursor int64
	for n := 0; n <= 2*limit+limits.MaxText; {
		o, err := read(cursor)
		if err != nil {
			return "", false, err
		}
		if o.Truncated {
			truncated = true
			b.Reset() // what was read no longer joins what is left
		}
		b.WriteString(o.Text)
		n += len(o.Text)
		cursor = o.NextCursor
		if !o.More || o.Text == "" {
			break
		}
	}
	out = text.Tail(b.String(), limit)
	return out, truncated || len(out) < b.Len(), nil
}
