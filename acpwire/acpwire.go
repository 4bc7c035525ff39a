// Package acpwire makes the agent's side of an ACP connection, on which order,
// sizes and types are not left to luck.
//
//	conn := acpwire.Connect(agent, os.Stdin, os.Stdout, nil)
//	<-conn.Done()
//
// [Connect] is acp.NewAgentSideConnection with a guard around it.
//
// # Prompts
//
// A session/cancel cancels the prompts of its session that the client sent
// before it and that are not answered, and nothing else, however close they
// are on the wire: their contexts end at once, then the agent's Cancel is
// called. The next prompt of the session begins when Cancel has returned. A
// cancel that finds no prompt open cancels nothing.
//
// A prompt cancels those of its session that are not answered: the newest wins,
// whatever their number. It begins at once, beside the ones that are ending.
//
// # Sizes and types
//
// A line of 10 MiB or more, which would end the connection and every command
// with it, is an error of the one request: the client's own gets an error reply,
// ours fails. Optional members of the wrong type count as absent, as they do in
// the official SDKs, and cost no message. A line that is no message is answered
// with an error if it has an id.
//
// # Ids
//
// The ids of the agent's requests begin at 2^30, far from those that clients
// count. A reply to no request is dropped.
//
// # Logging
//
// Logging never blocks: a handler that is slower than what it gets, such as one
// that writes to a pipe that nobody reads, loses records, and is told how many.
// The lines of the wire are not logged, since the output of commands is in them.
//
// # Concurrency
//
// The agent's handlers run at once, as with the SDK, but for those of Cancel,
// which run one after the other for each session. A handler may send requests,
// Cancel too. Notifications are handled one after the other, in their order, and
// any number of them may wait, of 64 MiB at most.
package acpwire

import (
	"bufio"
	"context"
	"io"
	"log/slog"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/logqueue"
	"github.com/termbridge/termbridge/terminal"
)

// An Agent is an acp.Agent that [Connect] gives its connection.
type Agent interface {
	acp.Agent

	// SetAgentConnection is called once, before any other method.
	SetAgentConnection(*acp.AgentSideConnection)
}

// Options configure a connection. The zero value and nil mean the defaults.
type Options struct {
	// Logger gets diagnostics, the SDK's too; nil discards them.
	Logger *slog.Logger

	// Initialize, if not nil, is called with each initialize of the client,
	// before the agent's own and before anything behind it is read. An error is
	// the answer, and the agent is not called.
	Initialize func(*acp.AgentSideConnection, acp.InitializeRequest) error
}

// Connect makes the connection of an agent whose client writes to in and reads
// from out, and gives it to the agent, if that is an [Agent], before anything is
// read. The connection is done when in ends. Options may be nil.
func Connect(agent acp.Agent, in io.Reader, out io.Writer, o *Options) *acp.AgentSideConnection {
	if o == nil {
		o = new(Options)
	}
	logger := logqueue.New(o.Logger)
	ctx, end := context.WithCancelCause(context.Background())
	g := &guard{
		agent:    agent,
		logger:   logger,
		in:       bufio.NewReaderSize(in, 64<<10),
		open:     make(chan struct{}),
		ctx:      ctx,
		answers:  make(chan struct{}, maxAnswers),
		out:      make(chan io.Writer, 1),
		sent:     map[int64]string{},
		prompts:  map[string]*prompt{},
		sessions: map[string]*session{},
		told:     map[string]bool{},
	}
	g.out <- out
	// The SDK reads as soon as there is a connection, and so would call the agent
	// before the agent has it.
	conn := acp.NewAgentSideConnection(agent, g, g)
	conn.SetLogger(logger)
	if a, ok := agent.(Agent); ok {
		a.SetAgentConnection(conn)
	}
	if o.Initialize != nil {
		g.initialize = func(req acp.InitializeRequest) error { return o.Initialize(conn, req) }
	}
	go func() {
		<-conn.Done()
		end(terminal.ErrConnectionLost)
	}()
	close(g.open)
	return conn
}
