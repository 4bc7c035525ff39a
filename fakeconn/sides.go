package fakeconn

import (
	"context"
	"encoding/json"
	"strconv"
	"sync/atomic"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
)

// client is what handles the agent's requests.
type client struct {
	*acphost.Host
	opts  *Options
	label string
}

// A test's agent may have sessions that it never told the client of.
func (c *client) SessionUpdate(ctx context.Context, n acp.SessionNotification) error {
	c.Host.OpenSession(n.SessionId)
	return c.Host.SessionUpdate(ctx, n)
}

func (c *client) CreateTerminal(ctx context.Context, req acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	if c.opts.NoTerminal {
		return acp.CreateTerminalResponse{}, acp.NewMethodNotFound(acp.ClientMethodTerminalCreate)
	}
	// What the Manager starts is not the connection's: it has its own Close.
	defer relabel(c.label)
	relabel("")
	c.Host.OpenSession(req.SessionId)
	return c.Host.CreateTerminal(ctx, req)
}

func (c *client) TerminalOutput(ctx context.Context, req acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error) {
	if c.opts.NoTerminal {
		return acp.TerminalOutputResponse{}, acp.NewMethodNotFound(acp.ClientMethodTerminalOutput)
	}
	return c.Host.TerminalOutput(ctx, req)
}

func (c *client) WaitForTerminalExit(ctx context.Context, req acp.WaitForTerminalExitRequest) (acp.WaitForTerminalExitResponse, error) {
	if c.opts.NoTerminal {
		return acp.WaitForTerminalExitResponse{}, acp.NewMethodNotFound(acp.ClientMethodTerminalWaitForExit)
	}
	return c.Host.WaitForTerminalExit(ctx, req)
}

func (c *client) KillTerminal(ctx context.Context, req acp.KillTerminalRequest) (acp.KillTerminalResponse, error) {
	if c.opts.NoTerminal {
		return acp.KillTerminalResponse{}, acp.NewMethodNotFound(acp.ClientMethodTerminalKill)
	}
	return c.Host.KillTerminal(ctx, req)
}

func (c *client) ReleaseTerminal(ctx context.Context, req acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	if c.opts.NoTerminal {
		return acp.ReleaseTerminalResponse{}, acp.NewMethodNotFound(acp.ClientMethodTerminalRelease)
	}
	return c.Host.ReleaseTerminal(ctx, req)
}

func (c *client) RequestPermission(ctx context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	if c.opts.Permission != nil {
		return c.opts.Permission(ctx, req)
	}
	for _, o := range req.Options {
		if o.Kind == acp.PermissionOptionKindAllowOnce || o.Kind == acp.PermissionOptionKindAllowAlways {
			return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(o.OptionId)}, nil
		}
	}
	return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
}

func (c *client) ReadTextFile(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
	return acp.ReadTextFileResponse{}, acp.NewMethodNotFound(acp.ClientMethodFsReadTextFile)
}

func (c *client) WriteTextFile(context.Context, acp.WriteTextFileRequest) (acp.WriteTextFileResponse, error) {
	return acp.WriteTextFileResponse{}, acp.NewMethodNotFound(acp.ClientMethodFsWriteTextFile)
}

// proxy is an agent that is made after its connection. The optional methods
// that an agent may have are passed on.
type proxy struct {
	acp.Agent
	new func(*acp.AgentSideConnection) acp.Agent // nil for one that does nothing
}

// SetAgentConnection implements [acpwire.Agent].
func (p *proxy) SetAgentConnection(conn *acp.AgentSideConnection) {
	p.Agent = &idle{}
	if p.new != nil {
		p.Agent = p.new(conn)
	}
}

func (p *proxy) LoadSession(ctx context.Context, req acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	if a, ok := p.Agent.(acp.AgentLoader); ok {
		return a.LoadSession(ctx, req)
	}
	return acp.LoadSessionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionLoad)
}

func (p *proxy) HandleExtensionMethod(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if a, ok := p.Agent.(acp.ExtensionMethodHandler); ok {
		return a.HandleExtensionMethod(ctx, method, params)
	}
	return nil, acp.NewMethodNotFound(method)
}

// idle is the agent of Options without one.
type idle struct{ sessions atomic.Int64 }

func (a *idle) Initialize(_ context.Context, req acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{ProtocolVersion: req.ProtocolVersion, AuthMethods: []acp.AuthMethod{}}, nil
}

func (a *idle) NewSession(context.Context, acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	return acp.NewSessionResponse{SessionId: acp.SessionId("session-" + strconv.FormatInt(a.sessions.Add(1), 10))}, nil
}

func (a *idle) Prompt(context.Context, acp.PromptRequest) (acp.PromptResponse, error) {
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
}

func (a *idle) Cancel(context.Context, acp.CancelNotification) error { return nil }

func (a *idle) CloseSession(context.Context, acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	return acp.CloseSessionResponse{}, nil
}

func (a *idle) Authenticate(context.Context, acp.AuthenticateRequest) (acp.AuthenticateResponse, error) {
	return acp.AuthenticateResponse{}, acp.NewMethodNotFound(acp.AgentMethodAuthenticate)
}

func (a *idle) ListSessions(context.Context, acp.ListSessionsRequest) (acp.ListSessionsResponse, error) {
	return acp.ListSessionsResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionList)
}

func (a *idle) ResumeSession(context.Context, acp.ResumeSessionRequest) (acp.ResumeSessionResponse, error) {
	return acp.ResumeSessionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionResume)
}

func (a *idle) SetSessionConfigOption(context.Context, acp.SetSessionConfigOptionRequest) (acp.SetSessionConfigOptionResponse, error) {
	return acp.SetSessionConfigOptionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionSetConfigOption)
}

func (a *idle) SetSessionMode(context.Context, acp.SetSessionModeRequest) (acp.SetSessionModeResponse, error) {
	return acp.SetSessionModeResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionSetMode)
}
