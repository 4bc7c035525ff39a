// Package fakeconn is a fake ACP client for tests of agents: the real SDK on
// both sides, terminals whose commands are Go functions, and between them a
// wire on which every line is recorded and judged, and on which anything can
// go wrong.
//
//	c := fakeconn.New(&fakeconn.Options{
//		Agent: func(conn *acp.AgentSideConnection) acp.Agent { return myagent.New(conn) },
//	})
//	c.Inject(fakeconn.Fault{Method: "terminal/create", N: 2, Error: denied})
//	id, err := c.NewSession(ctx, "/work")
//	resp, err := c.Prompt(ctx, id, "run the tests")
//	fmt.Println(c.Cards()[0].Status, c.Cards()[0].Visible())
//	if err := c.Close(); err != nil {
//		t.Errorf("%v\n%s", err, c.Transcript())
//	}
//
// Without an Agent, [Client.Conn] is for code that needs no more than a
// connection.
//
// # Time
//
// Everything works in a bubble of testing/synctest, where nothing of it waits
// on anything but channels and timers, and in real time. The one exception is
// [Fault.StopReading], which needs real time.
//
// # The wire
//
// The wire never makes a sender wait: it takes every line at once and queues
// it for the receiver. Faults act on queued lines. The audit judges the agent
// by what it sent and by what reached it, so that a fault is never held
// against it: an id that got lost need not be released, nor does anything
// after the connection was lost.
//
// # Real clients
//
// Package emulate makes clients that treat terminals as known ones do, with all
// that they do wrong.
//
// # Lifetime
//
// [Client.Close] ends the connection, the agent if it is an io.Closer, every
// command, and waits for every goroutine that the connection started, those of
// the agent's handlers and of their own goroutines too. What is left after
// that is in its error, with the findings of the audit. The package does not
// import testing.
package fakeconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/acpwire"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/memterm/memshell"
)

// defaultMaxQueue is the default of Options.MaxQueue.
const defaultMaxQueue = 64 << 20

// Options of a Client. The zero value is a client with terminals and an agent
// that does nothing.
type Options struct {
	// Agent makes the agent, which gets its connection as in the SDK. Nil is
	// an agent that answers initialize, session/new, session/prompt and
	// session/close and does nothing else; use [Client.Conn].
	Agent func(*acp.AgentSideConnection) acp.Agent

	// Serve, if not nil, is the agent's side of the connection in place of Agent:
	// it speaks ACP until in ends, as bridge.Serve does. [Client.Conn] is nil
	// then, and [Client.Close] joins it.
	Serve func(in io.Reader, out io.Writer)

	// NoTerminal makes a client without terminal/*: it does not advertise
	// them, and does not know the methods. Display makes it advertise and show
	// display-only terminals.
	NoTerminal bool
	Display    bool
	// ClientInfo is sent with initialize; nil is "fakeconn".
	ClientInfo *acp.Implementation

	// Programs are added to those of [Programs].
	Programs map[string]memterm.Program
	// Memterm are further options of the Manager that runs them; its Shell is one of
	// package memshell if they name none.
	Memterm *memterm.Options
	// Manager, if not nil, takes its place. Its Managers are the caller's, who
	// closes them after the Client.
	Manager func(acp.SessionId) terminal.Manager
	// Host are further options of what serves terminal/*, such as Show and
	// Command.
	Host *acphost.Options
	// Wrap, if not nil, wraps what handles the agent's requests: a client
	// with manners of its own. It passes session/updates on; else a
	// terminal/release waits a second for them.
	Wrap func(acp.Client) acp.Client

	// Permission answers session/request_permission; nil selects the first
	// option that allows.
	Permission func(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error)

	// Bare connects the agent with acp.NewAgentSideConnection, and not with
	// [acpwire.Connect].
	Bare bool

	// Latency is how long a line travels, in each direction.
	Latency time.Duration
	// Keep is how many of the last lines Lines returns; 0 is all, -1 none.
	Keep int
	// MaxQueue is how many bytes may be on the way to a side before the audit
	// objects; 0 is 64 MiB.
	MaxQueue int
	// Allow are rules that the audit does not judge.
	Allow []Rule
	// Logger is for the diagnostics of the SDK; nil discards them.
	Logger *slog.Logger
}

// A Client is a fake client with a connection to an agent. Its methods may be
// called from any number of goroutines.
type Client struct {
	opts   Options
	filter *filter
	host   *acphost.Host
	mem    *memterm.Manager         // nil with Options.Manager
	agent  acp.Agent                // nil with Options.Serve
	conn   *acp.AgentSideConnection // the same
	served <-chan struct{}          // closed when the agent's side has ended
	peer   *acp.ClientSideConnection
	label  string // of every goroutine that the connection starts

	endInput   sync.Once     // closes inputEnded
	inputEnded chan struct{} // closed by EndInput

	initialized chan error    // holds the result of initialize while nobody sends it
	closing     chan struct{} // takes one value, from the first Close
	closed      chan struct{} // closed by the first Close when closeErr is set
	closeErr    error
}

// New connects a Client and an agent. Close the Client.
func New(options *Options) *Client {
	c := &Client{
		inputEnded:  make(chan struct{}),
		initialized: make(chan error, 1),
		closing:     make(chan struct{}, 1),
		closed:      make(chan struct{}),
		label:       nextLabel(),
	}
	if options != nil {
		c.opts = *options
	}
	c.opts.MaxQueue = cmp.Or(c.opts.MaxQueue, defaultMaxQueue)
	if c.opts.Logger == nil {
		c.opts.Logger = slog.New(slog.DiscardHandler)
	}
	if c.opts.ClientInfo == nil {
		c.opts.ClientInfo = &acp.Implementation{Name: "fakeconn", Version: "1"}
	}
	manager := c.opts.Manager
	if manager == nil {
		var o memterm.Options
		if c.opts.Memterm != nil {
			o = *c.opts.Memterm
		}
		programs := Programs()
		maps.Copy(programs, o.Programs)
		maps.Copy(programs, c.opts.Programs)
		o.Programs = programs
		if o.Shell == nil {
			o.Shell = memshell.New(nil)
		}
		c.mem = memterm.New(&o)
		manager = func(acp.SessionId) terminal.Manager { return c.mem }
	}
	var host acphost.Options
	if c.opts.Host != nil {
		host = *c.opts.Host
	}
	host.Display = c.opts.Display
	c.host = acphost.New(manager, &host)
	c.filter = newFilter(c.opts.Latency, c.opts.Keep, newAudit(c.opts))

	var client acp.Client = &client{c.host, &c.opts, c.label}
	if c.opts.Wrap != nil {
		client = c.opts.Wrap(client)
	}
	labelled(c.label, func() {
		// The wire is empty until New returns, so nothing calls the agent
		// before there is one.
		proxy := &proxy{new: c.opts.Agent}
		switch {
		case c.opts.Serve != nil:
			served := make(chan struct{})
			c.served = served
			c.filter.holds.Go(func() {
				defer close(served)
				c.opts.Serve(c.filter.to[Agent], c.filter.to[Editor])
			})
		case c.opts.Bare:
			c.conn = acp.NewAgentSideConnection(proxy, c.filter.to[Editor], c.filter.to[Agent])
			c.conn.SetLogger(c.opts.Logger)
			proxy.SetAgentConnection(c.conn)
		default:
			c.conn = acpwire.Connect(proxy, c.filter.to[Agent], c.filter.to[Editor], &acpwire.Options{Logger: c.opts.Logger})
		}
		if c.conn != nil {
			c.agent, c.served = proxy.Agent, c.conn.Done()
		}
		c.peer = acp.NewClientSideConnection(client, c.filter.to[Agent], c.host.Reader(c.filter.to[Editor]))
		c.peer.SetLogger(c.opts.Logger)
	})
	c.initialized <- errNotInitialized
	c.filter.holds.Go(c.watch)
	return c
}

// watch ends the connection when the SDK has given it up on one side, as the
// process of that side would by exiting. Close joins it.
func (c *Client) watch() {
	select {
	case <-c.served:
		if over(c.inputEnded) {
			select {
			case <-c.peer.Done():
			case <-c.filter.ended:
			}
		}
	case <-c.peer.Done():
	}
	c.noteLoss()
	c.filter.disconnect()
}

// noteLoss tells the audit if the SDK has given up the connection on one side.
func (c *Client) noteLoss() {
	c.filter.mu.Lock()
	defer c.filter.mu.Unlock()
	a := &c.filter.audit
	switch {
	case a.lost: // by disconnect, of which the SDK's end is the result
	case over(c.peer.Done()):
		a.lost = true
		a.found(RuleQueue, nil, "the client's SDK gave the connection up: it queues 1,024 updates")
	case over(c.served):
		a.lost = true
	}
}

// Conn is the agent's side of the connection; nil with Options.Serve.
func (c *Client) Conn() *acp.AgentSideConnection { return c.conn }

// Peer is the client's side of the connection, for what has no method here.
func (c *Client) Peer() *acp.ClientSideConnection { return c.peer }

// Memterm is the Manager that runs the commands, nil with Options.Manager. Its
// Starts tell what has really run.
func (c *Client) Memterm() *memterm.Manager { return c.mem }

// Starts returns how often a program was started, be it by a command or within one. It
// must not be called with Options.Manager.
func (c *Client) Starts(program string) int { return c.mem.Starts(program) }

// Host is what serves terminal/* and keeps the tool calls.
func (c *Client) Host() *acphost.Host { return c.host }

// Init is the initialize request of this client.
func (c *Client) Init() acp.InitializeRequest {
	req := acp.InitializeRequest{
		ProtocolVersion:    acp.ProtocolVersionNumber,
		ClientInfo:         c.opts.ClientInfo,
		ClientCapabilities: acp.ClientCapabilities{Terminal: !c.opts.NoTerminal},
	}
	if c.opts.Display {
		req.ClientCapabilities.Meta = map[string]any{"terminal_output": true}
	}
	return req
}

var errNotInitialized = errors.New("fakeconn: not initialized")

// Initialize sends initialize, once: later calls return what the first did.
// NewSession calls it.
func (c *Client) Initialize(ctx context.Context) error {
	select {
	case err := <-c.initialized:
		if err == errNotInitialized {
			_, err = c.peer.Initialize(ctx, c.Init())
		}
		c.initialized <- err
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// NewSession opens a session with this directory.
func (c *Client) NewSession(ctx context.Context, cwd string) (acp.SessionId, error) {
	if err := c.Initialize(ctx); err != nil {
		return "", err
	}
	resp, err := c.peer.NewSession(ctx, acp.NewSessionRequest{Cwd: cwd, McpServers: []acp.McpServer{}})
	return resp.SessionId, err
}

// Prompt sends a prompt and returns its answer. When ctx ends before, the SDK
// sends session/cancel and the answer is lost; see Cancel.
func (c *Client) Prompt(ctx context.Context, id acp.SessionId, text string) (acp.PromptResponse, error) {
	return c.peer.Prompt(ctx, acp.PromptRequest{SessionId: id, Prompt: []acp.ContentBlock{acp.TextBlock(text)}})
}

// Cancel sends session/cancel.
func (c *Client) Cancel(ctx context.Context, id acp.SessionId) error {
	return c.peer.Cancel(ctx, acp.CancelNotification{SessionId: id})
}

// CloseSession sends session/close. What the client has seen of the session is
// kept, so that the agent can be judged by it.
func (c *Client) CloseSession(ctx context.Context, id acp.SessionId) error {
	_, err := c.peer.CloseSession(ctx, acp.CloseSessionRequest{SessionId: id})
	return err
}

// syncMethod is a method that no agent has.
const syncMethod = "_fakeconn/sync"

// Sync returns once the client has handled every update that the agent sent
// before. Prompt and CloseSession do as much by themselves.
func (c *Client) Sync(ctx context.Context) error {
	// The SDK hands out a reply only after the notifications that came before.
	_, err := c.peer.CallExtension(ctx, syncMethod, nil)
	if re, ok := errors.AsType[*acp.RequestError](err); ok && re.Code == acp.NewMethodNotFound("").Code {
		return nil
	}
	return err
}

// Inject lets a fault act on lines that are sent from now on.
func (c *Client) Inject(f Fault) *Injected {
	i := &Injected{Fault: f, f: c.filter}
	c.filter.mu.Lock()
	defer c.filter.mu.Unlock()
	c.filter.faults = append(c.filter.faults, i)
	return i
}

// Disconnect ends the connection as a client that dies does: the agent reads
// EOF, and owes nothing from then on.
func (c *Client) Disconnect() { c.filter.disconnect() }

// EndInput ends what the agent reads, as a client does that closes the agent's
// standard input and goes on reading its output. The agent owes nothing from then
// on; the client still does what it asks. Close ends the other direction.
func (c *Client) EndInput() {
	c.filter.mu.Lock()
	c.filter.audit.lost = true
	c.filter.mu.Unlock()
	c.endInput.Do(func() { close(c.inputEnded) })
	c.filter.to[Agent].close()
}

// Card returns what the user sees now of a tool call, of any session; the zero
// Card if it was never announced.
func (c *Client) Card(id acp.ToolCallId) acphost.Card {
	for _, session := range c.host.Sessions() {
		if card, ok := c.host.Card(session, id); ok {
			return card
		}
	}
	return acphost.Card{}
}

// Cards returns what the user sees now of all tool calls: by session, then in
// the order in which they were announced.
func (c *Client) Cards() []acphost.Card {
	var cards []acphost.Card
	for _, session := range c.host.Sessions() {
		cards = append(cards, c.host.Cards(session)...)
	}
	return cards
}

// Messages returns the text that the agent has sent in sessions; without ids,
// in all of them.
func (c *Client) Messages(ids ...acp.SessionId) string {
	if len(ids) == 0 {
		ids = c.host.Sessions()
	}
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(c.host.Messages(id))
	}
	return b.String()
}

// Lines returns the lines of the wire in the order in which they were sent.
func (c *Client) Lines() []Line {
	c.filter.mu.Lock()
	defer c.filter.mu.Unlock()
	lines := c.filter.lines
	if keep := c.opts.Keep; keep > 0 && len(lines) > keep {
		lines = lines[len(lines)-keep:]
	}
	return slices.Clone(lines)
}

// Count returns how many of the kept lines are requests or notifications of a
// method that their sender sent.
func (c *Client) Count(method string) int {
	n := 0
	for _, l := range c.Lines() {
		if l.Method == method && l.Kind != Reply && !l.Made {
			n++
		}
	}
	return n
}

// Transcript returns Lines as text, for the message of a failing test.
func (c *Client) Transcript() string {
	var b strings.Builder
	for _, l := range c.Lines() {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}

// HighWater returns the most bytes that were on the way to a side at once.
func (c *Client) HighWater(to Side) int { return c.filter.to[to].highWater() }

// Audit returns an [*AuditError] with the findings so far. What is missing at
// the end is judged by Close.
func (c *Client) Audit() error {
	c.filter.mu.Lock()
	defer c.filter.mu.Unlock()
	return c.filter.audit.err()
}

// Close judges what is missing, ends the connection and everything behind it,
// and returns what was wrong: an [*AuditError], a [*terminal.LeakError] of the
// commands, a [*GoroutineError]. So sessions that hold terminals are to be
// closed before. It may be called again, and returns the same.
func (c *Client) Close() error {
	select {
	case c.closing <- struct{}{}:
	default: // not a sync.Once, whose mutex would stop the clock of a bubble
		<-c.closed
		return c.closeErr
	}
	defer close(c.closed)

	c.noteLoss()
	c.filter.mu.Lock()
	for _, side := range []Side{Agent, Editor} {
		if n := c.HighWater(side); n > c.opts.MaxQueue {
			c.filter.audit.found(RuleQueue, nil, "%d bytes were on the way to the %s at once", n, side)
		}
	}
	c.filter.audit.end()
	c.filter.mu.Unlock()

	c.filter.disconnect()
	c.filter.holds.Wait()
	var errs []error
	if closer, ok := c.agent.(io.Closer); ok {
		if err := closer.Close(); err != nil {
			errs = append(errs, fmt.Errorf("fakeconn: close the agent: %w", err))
		}
	}
	errs = append(errs, c.host.Close())
	if c.mem != nil {
		errs = append(errs, c.mem.Close())
	}
	errs = append(errs, join(c.label))
	c.closeErr = errors.Join(append([]error{c.Audit()}, errs...)...)
	return c.closeErr
}
