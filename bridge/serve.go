package bridge

import (
	"context"
	"fmt"
	"io"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpwire"
)

// Serve is the main of an agent: it speaks ACP on in and out, by package acpwire,
// until in ends, out breaks or ctx ends. Then it closes every session, with all its
// commands, and returns: nil, a [*terminal.LeakError] of what could not be ended,
// or why out broke.
//
// NewAgent returns the agent of the connection, before anything is read. Its
// Bridge knows the client from the client's initialize on, which it takes note of
// by itself; before, [Bridge.Session] fails. A session/cancel ends the ctx of the
// prompt, and so its Turn; the agent's Cancel need do nothing. Embed
// [UnimplementedAgent] for the methods that the agent does not have. Options may
// be nil.
func Serve(ctx context.Context, in io.Reader, out io.Writer, newAgent func(*Bridge) acp.Agent, o *Options) error {
	b := newBridge(o)
	err := acpwire.Serve(ctx, newAgent(b), in, out, b.Close, &acpwire.Options{
		Logger: b.opts.Logger,
		Initialize: func(conn *acp.AgentSideConnection, req acp.InitializeRequest) error {
			if !b.initialize(conn, req) {
				return badRequest("this connection is initialized already")
			}
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	return nil
}

// State returns the State of an open session: that which [Bridge.Session] made.
// The error, for an id that is not open, is one that the client gets as it is, an
// *acp.RequestError (invalid params); as a handler's error return it unchanged.
func (b *Bridge) State(id acp.SessionId) (*State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[id]; s != nil {
		return s, nil
	}
	return nil, acp.NewInvalidParams(map[string]any{"error": fmt.Sprintf("no session %q is open", id)})
}

// badRequest is the answer to a request that comes at the wrong time.
func badRequest(why string) error {
	return acp.NewInvalidRequest(map[string]any{"error": why})
}

// An UnimplementedAgent is an [acp.Agent] whose every method answers "method not
// found". Embed it, so that what a client asks for and an agent does not have is
// an error of that request.
type UnimplementedAgent struct{}

var _ acp.Agent = UnimplementedAgent{}

func (UnimplementedAgent) Authenticate(context.Context, acp.AuthenticateRequest) (r acp.AuthenticateResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodAuthenticate)
}

func (UnimplementedAgent) Initialize(context.Context, acp.InitializeRequest) (r acp.InitializeResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodInitialize)
}

// Cancel does nothing: a notification has no answer.
func (UnimplementedAgent) Cancel(context.Context, acp.CancelNotification) error { return nil }

func (UnimplementedAgent) CloseSession(context.Context, acp.CloseSessionRequest) (r acp.CloseSessionResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionClose)
}

func (UnimplementedAgent) ListSessions(context.Context, acp.ListSessionsRequest) (r acp.ListSessionsResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionList)
}

func (UnimplementedAgent) NewSession(context.Context, acp.NewSessionRequest) (r acp.NewSessionResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionNew)
}

func (UnimplementedAgent) Prompt(context.Context, acp.PromptRequest) (r acp.PromptResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionPrompt)
}

func (UnimplementedAgent) ResumeSession(context.Context, acp.ResumeSessionRequest) (r acp.ResumeSessionResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionResume)
}

func (UnimplementedAgent) SetSessionConfigOption(context.Context, acp.SetSessionConfigOptionRequest) (r acp.SetSessionConfigOptionResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionSetConfigOption)
}

func (UnimplementedAgent) SetSessionMode(context.Context, acp.SetSessionModeRequest) (r acp.SetSessionModeResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionSetMode)
}
