// Package agent is a deterministic ACP agent without a model: a prompt is
// command lines, and each is one tool call. Point an editor at it to see what
// the editor does with an agent's terminals, or a test at an editor.
//
//	err := agent.Serve(ctx, os.Stdin, os.Stdout, nil)
//
// What may be asked is in docs/demo-agent.md, and in the answer to the prompt
// "help". Every final update of a tool call carries a [Report] as its
// rawOutput.
//
// An Agent serves one connection, and all that it has started ends with that. Its
// methods are called by the SDK and may run at once.
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/acpwire"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/jsonrpc"
	"github.com/termbridge/termbridge/internal/logqueue"
	"github.com/termbridge/termbridge/internal/wirelog"
	"github.com/termbridge/termbridge/probe"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// Options configure an [Agent]. The zero value and nil mean the defaults.
type Options struct {
	// Policy says where commands run; "" is [bridge.Prefer].
	Policy bridge.Policy

	// Shell runs shell lines, as SHELL -c LINE; "" is /bin/sh.
	Shell string

	// Local makes the manager of a session's local commands; nil is a
	// localterm.Manager.
	Local func(acp.SessionId) terminal.Manager

	// Executors are further places where commands run, by the names for --on. They
	// stay the caller's, who closes them after the Agent.
	Executors map[string]execenv.Executor

	// Profiles are how known clients treat terminals; nil is
	// [acpterm.DefaultProfiles].
	Profiles acpterm.Profiles

	// Ask makes the agent ask the user before it runs a command.
	Ask bool

	// Examine makes the agent do nothing but examine its client.
	Examine *Examine

	// Control is the path of the socket at which others see and drive the terminals of
	// the connection ([bridge.Bridge.ServeControl]); "" serves none. A path that cannot
	// be served is logged, and the agent works without.
	Control string

	// Record, if not nil, gets the wire as a txtar archive, redacted: fakeconn.Replay
	// plays it back. An error of it is logged, and ends the record only.
	Record io.Writer

	// StateDir is where sessions are kept for session/list, session/load and
	// session/resume, a file each, readable by the user only; the directory is made
	// when it is needed. "" keeps none.
	StateDir string

	// Version is told to the client; "" is "devel".
	Version string

	// Logger gets diagnostics, never output of commands; nil discards them.
	Logger *slog.Logger
}

// An Agent is the agent's side of one connection.
type Agent struct {
	opts  Options
	wire  *probe.Wire  // set by Serve
	calls atomic.Int64 // tool calls so far

	// ctx is that of an examination without a prompt. It ends with Close.
	ctx context.Context
	end context.CancelFunc

	ready chan struct{} // closed by Initialize

	mu sync.Mutex
	// guards following
	conn     acpterm.Conn
	init     acp.InitializeRequest
	bridge   *bridge.Bridge // nil before initialize
	sessions map[acp.SessionId]*session
	closed   bool
}

var _ acpwire.Agent = (*Agent)(nil)

// A session is one session/new, or session/load.
type session struct {
	id      acp.SessionId
	cwd     string
	state   *bridge.State
	history *history    // nil if nothing is kept
	titled  atomic.Bool // it has a title

	mu sync.Mutex
	// guards following
	screens map[string]*view.Screen // of commands that are kept, by their ids
}

// New returns an Agent; nil is the default Options. SetAgentConnection must be
// called before the first request arrives.
func New(o *Options) *Agent {
	a := &Agent{ready: make(chan struct{}), sessions: map[acp.SessionId]*session{}}
	if o != nil {
		a.opts = *o
	}
	a.ctx, a.end = context.WithCancel(context.Background())
	if a.opts.Version == "" {
		a.opts.Version = "devel"
	}
	a.opts.Logger = logqueue.New(a.opts.Logger)
	return a
}

// SetAgentConnection sets the connection that the agent answers on.
func (a *Agent) SetAgentConnection(conn *acp.AgentSideConnection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn = conn
}

// Close ends every session with all its commands and waits until that has
// settled, bounded. What could not be ended is a [*terminal.LeakError]. Requests
// that come later are refused.
func (a *Agent) Close() error {
	a.end()
	a.mu.Lock()
	b := a.bridge
	a.closed = true
	clear(a.sessions)
	a.mu.Unlock()
	if b == nil {
		return nil
	}
	return b.Close()
}

// Serve speaks ACP on in and out until in ends, out breaks or ctx ends, see
// [acpwire.Serve]. Then it ends every session with all its commands and returns:
// nil, what Close returned, or why out broke.
func Serve(ctx context.Context, in io.Reader, out io.Writer, o *Options) error {
	a := New(o)
	if a.opts.Record != nil {
		record := wirelog.New(a.opts.Record, "acp-demo-agent "+a.opts.Version)
		in, out = record.Reader(in), record.Writer(out)
		defer func() {
			if err := record.Err(); err != nil {
				a.opts.Logger.Error("the record is not complete", "err", err)
			}
		}()
	}
	a.wire = probe.NewWire(in, out)
	return acpwire.Serve(ctx, a, a.wire, a.wire, a.Close, &acpwire.Options{Logger: a.opts.Logger})
}

// Initialize implements [acp.Agent].
func (a *Agent) Initialize(_ context.Context, req acp.InitializeRequest) (acp.InitializeResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return acp.InitializeResponse{}, requestError(jsonrpc.InvalidRequest, "the agent is ending")
	case a.bridge != nil:
		return acp.InitializeResponse{}, requestError(jsonrpc.InvalidRequest, "this connection is initialized already")
	}
	a.init = req
	a.opts.Examine.seen("initialize")
	a.bridge = bridge.New(a.conn, req, &bridge.Options{
		Policy:    a.opts.Policy,
		Local:     a.opts.Local,
		Profiles:  a.opts.Profiles,
		Executors: a.opts.Executors,
		Logger:    a.opts.Logger,
	})
	if path := a.opts.Control; path != "" {
		if err := a.bridge.ServeControl(path); err != nil {
			a.opts.Logger.Error("control is not served", "err", err)
		}
	}
	close(a.ready)
	can := acp.AgentCapabilities{SessionCapabilities: acp.SessionCapabilities{Close: &acp.SessionCloseCapabilities{}}}
	if a.opts.StateDir != "" {
		can.LoadSession = true
		can.SessionCapabilities.List = &acp.SessionListCapabilities{}
		can.SessionCapabilities.Resume = &acp.SessionResumeCapabilities{}
	}
	return acp.InitializeResponse{
		ProtocolVersion:   acp.ProtocolVersionNumber,
		AgentInfo:         &acp.Implementation{Name: "acp-demo-agent", Title: new("termbridge demo agent"), Version: a.opts.Version},
		AgentCapabilities: can,
		AuthMethods:       []acp.AuthMethod{},
	}, nil
}

// NewSession implements [acp.Agent].
func (a *Agent) NewSession(ctx context.Context, req acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	if err := checkDir(req.Cwd); err != nil {
		return acp.NewSessionResponse{}, requestError(jsonrpc.InvalidParams, "cwd "+err.Error())
	}
	id := acp.SessionId("sess_" + rand.Text())
	_, err := a.open(ctx, id, req.Cwd, newHistory(a.opts.StateDir, id, req.Cwd))
	if err != nil {
		return acp.NewSessionResponse{}, err
	}
	a.opts.Examine.opened(a, id, req.Cwd)
	return acp.NewSessionResponse{SessionId: id}, nil
}

// open opens a session for a request with this context.
func (a *Agent) open(ctx context.Context, id acp.SessionId, cwd string, h *history) (*session, error) {
	// The SDK handles requests at once, so one that came right behind
	// initialize may be here first.
	select {
	case <-a.ready:
	case <-time.After(overtaking):
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return nil, requestError(jsonrpc.InvalidRequest, "the agent is ending")
	case a.bridge == nil:
		return nil, requestError(jsonrpc.InvalidRequest, "call initialize first")
	case a.sessions[id] != nil:
		return nil, requestError(jsonrpc.InvalidRequest, fmt.Sprintf("session %q is open already", id))
	}
	state, err := a.bridge.Session(id, cwd)
	if err != nil {
		return nil, err
	}
	s := &session{id: id, cwd: cwd, state: state, history: h}
	s.titled.Store(h.hasTitle())
	s.announce(ctx)
	a.sessions[id] = s
	return s, nil
}

// forget closes a session.
func (a *Agent) forget(s *session) error {
	a.mu.Lock()
	delete(a.sessions, s.id)
	a.mu.Unlock()
	return s.state.Close()
}

// overtaking is how long a request waits for one that it may have overtaken.
const overtaking = 5 * time.Second

// checkDir says what is wrong with a directory, if anything.
func checkDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%q is relative: give an absolute path", dir)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%q does not exist: give an existing directory", dir)
	case err != nil:
		return fmt.Errorf("%q cannot be used: %w", dir, err)
	case !info.IsDir():
		return fmt.Errorf("%q is not a directory", dir)
	}
	return nil
}

// session returns a session by its id.
func (a *Agent) session(id acp.SessionId) (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[id]; s != nil {
		return s, nil
	}
	return nil, requestError(jsonrpc.NotFound, fmt.Sprintf("no session %q: it was never made by session/new, or is closed", id))
}

// Prompt implements [acp.Agent].
func (a *Agent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	s, err := a.session(req.SessionId)
	if err != nil {
		return acp.PromptResponse{}, err
	}
	return s.state.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		turn := turn{agent: a, session: s, turn: t}
		turn.run(ctx, req.Prompt)
		if err := s.history.save(); err != nil {
			a.opts.Logger.Warn("the session is not kept", "session", s.id, "err", err)
		}
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	})
}

// Cancel implements [acp.Agent].
func (a *Agent) Cancel(_ context.Context, n acp.CancelNotification) error {
	s, err := a.session(n.SessionId)
	if err != nil {
		return err // for the log: a notification has no answer
	}
	s.state.Cancel()
	return nil
}

// CloseSession implements [acp.Agent].
func (a *Agent) CloseSession(_ context.Context, req acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	s, err := a.session(req.SessionId)
	if err != nil {
		return acp.CloseSessionResponse{}, err
	}
	if err := a.forget(s); err != nil {
		return acp.CloseSessionResponse{}, requestError(jsonrpc.Internal, "the session is closed, but: "+err.Error())
	}
	return acp.CloseSessionResponse{}, nil
}

// Authenticate implements [acp.Agent]: no authentication is needed or known.
func (a *Agent) Authenticate(context.Context, acp.AuthenticateRequest) (acp.AuthenticateResponse, error) {
	return acp.AuthenticateResponse{}, acp.NewMethodNotFound(acp.AgentMethodAuthenticate)
}

// SetSessionConfigOption implements [acp.Agent]: there are no options.
func (a *Agent) SetSessionConfigOption(context.Context, acp.SetSessionConfigOptionRequest) (acp.SetSessionConfigOptionResponse, error) {
	return acp.SetSessionConfigOptionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionSetConfigOption)
}

// SetSessionMode implements [acp.Agent]: there are no modes.
func (a *Agent) SetSessionMode(context.Context, acp.SetSessionModeRequest) (acp.SetSessionModeResponse, error) {
	return acp.SetSessionModeResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionSetMode)
}

// requestError is an error that the client can show: the SDK's own have their
// reason in data, where few clients look.
func requestError(code int, reason string) error {
	return &acp.RequestError{Code: code, Message: reason}
}
