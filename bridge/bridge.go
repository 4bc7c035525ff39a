// Package bridge runs an agent's commands where the user can see them: in the
// terminals of the ACP client if it has any, else locally, and shows them live
// in either case.
//
//	b := bridge.New(conn, initializeRequest, nil) // per connection
//	defer b.Close()
//	s, err := b.Session(sessionID, cwd) // per session
//
//	func (a *agent) Prompt(ctx context.Context, p acp.PromptRequest) (acp.PromptResponse, error) {
//		return s.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
//			call := t.ToolCall(acp.SessionUpdateToolCall{ToolCallId: "1", Title: "go test", Kind: acp.ToolKindExecute})
//			r, err := call.Exec(ctx, terminal.Command{Line: "go test ./..."})
//			call.End("", err)
//			…
//		})
//	}
//	func (a *agent) Cancel(context.Context, acp.CancelNotification) error { s.Cancel(); return nil }
//
// A [State] is the set of a session's terminals, a [Turn] is one prompt, a
// [Call] is one tool call. A command is started under a Call and is from then
// on a [terminal.Terminal], wherever it runs.
//
// # Lifetime
//
// The Call owns its commands until it ends, then the State does. A Turn that
// ends or is cancelled stops what its open Calls own, and answers when all of
// that has ended. A State that closes stops everything. So a command that goes
// on in the background is one whose Call has ended, and nothing else.
//
// # Concurrency
//
// Everything may be called from any goroutine. [State.Cancel] never blocks and
// may be called inside the SDK's handler of session/cancel, where a request
// would wait for ever. Nothing here waits without a bound for a client that does
// not answer or does not read.
//
// # Caveats
//
// A client on another host, or outside the agent's container, is another
// machine: its terminals see other files. [Local] keeps commands here.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/logqueue"
	"github.com/termbridge/termbridge/terminal"
)

// A Policy says where commands run that do not say so themselves
// ([terminal.Command.Environment]).
type Policy string

// The policies.
const (
	// Prefer runs commands in the client if it offers terminals, else locally.
	// It is the default.
	Prefer Policy = "prefer"
	// Require runs commands in the client, or not at all.
	Require Policy = "require"
	// Local runs commands locally.
	Local Policy = "local"
)

// What a Command.Environment may say beside the names of local executors.
const (
	EnvironmentClient = acpterm.Environment // in the client, or not at all
	EnvironmentLocal  = "local"             // where the local Manager runs commands that do not say
)

// Options configure a Bridge. The zero value is sensible.
type Options struct {
	// Policy is where commands run; "" is [Prefer].
	Policy Policy

	// Local makes the Manager of a session's local commands, when the first of
	// them starts. The State closes it. It may use the State, but it cannot start a
	// local command. Nil is a localterm.Manager in the session's working directory. If
	// it has the method OnEvict(func(terminal.Terminal)), as the Managers of this module
	// do, the State forgets a terminal when the Manager does; of any other it keeps up
	// to MaxTerminals.
	Local func(acp.SessionId) terminal.Manager

	// Executors are further places where commands run, by the name that
	// Command.Environment chooses: neither "" nor [EnvironmentClient] nor
	// [EnvironmentLocal]. Commands there are shown as local ones are, begin where the
	// Executor does, and count for the same limits. They stay the caller's, who
	// closes them after the Bridge. With Local, its Manager is to know the names.
	Executors map[string]execenv.Executor

	// Pipes has Exec and StartBackground ask for no terminal (Command.TTY)
	// where the command does not ask itself.
	Pipes bool

	// Shell runs the lines of commands that name no shell, as SHELL -c LINE, on both
	// routes; "" is /bin/sh.
	Shell string

	// MaxTerminals is how many commands a session keeps, live and ended, over
	// both routes; 0 is 64. MaxBackground is how
	// many of them may run in the background; 0 is 32.
	MaxTerminals, MaxBackground int

	// StopAtLimit has ExecFor stop a command that is to go on in the background
	// while MaxBackground do; otherwise it stays in the foreground until there is a
	// slot.
	StopAtLimit bool

	// ResultLimit is the most output in a Result, in bytes; 0 is
	// 50 KiB.
	ResultLimit int

	// Profiles are how known clients treat terminals: the first row that fits
	// the client counts. Nil is [acpterm.DefaultProfiles]; see
	// [acpterm.LoadProfiles] for those of a file.
	Profiles acpterm.Profiles

	// Env is the environment of local commands, under Command.Env; nil is
	// execenv.Env{}.InheritSafe(): the agent's own without its secrets.
	Env *execenv.Env

	// Host finds what the client leaves behind of its commands on this host, and
	// ends it; nil is execenv.Tagged, [acpterm.NoHost] looks for nothing.
	Host acpterm.Host

	// NewID makes the ids of terminals of both routes; each is used once. It is called
	// once at a time. Nil counts. A Manager that Local makes must not make the same ids.
	NewID func() string

	// Logger gets what no caller is told; nil discards it. Output and values
	// of the environment are never logged.
	Logger *slog.Logger
}

// A Bridge is what an agent has for one connection. Make it with [New].
type Bridge struct {
	opts    Options
	client  acpterm.Client // what is known of it
	close   once
	quit    chan struct{}
	watcher sync.WaitGroup             // waits for lost or quit
	control atomic.Pointer[controlled] // nil without ServeControl; set with mu held

	// set by initialize, before there is a session
	conn     acpterm.Conn
	terminal bool            // the client advertised terminal/*
	display  bool            // the client shows display-only terminals
	profile  acpterm.Profile // of the client
	lost     <-chan struct{} // closed when the connection is gone; nil if nobody can tell
	queue    *updates.Queue
	limiter  *updates.Limiter

	mu sync.Mutex
	// guards following
	noClient error                    // why the client is asked for no terminals
	sessions map[acp.SessionId]*State // those that are not closed
	order    []*State                 // the same, in the order of Session
	past     Stats                    // of the closed ones
	closed   bool
}

// New returns the Bridge of a connection whose client sent init. Options may be
// nil. A conn that has the method Done() <-chan struct{}, as the SDK's has, is
// watched: when it is done everything ends, and nothing more is sent.
func New(conn acpterm.Conn, init acp.InitializeRequest, options *Options) *Bridge {
	b := newBridge(options)
	b.initialize(conn, init)
	return b
}

// newBridge returns a Bridge that waits for initialize.
func newBridge(options *Options) *Bridge {
	b := &Bridge{
		close:    newOnce(),
		quit:     make(chan struct{}),
		sessions: make(map[acp.SessionId]*State),
	}
	if options != nil {
		b.opts = *options
	}
	o := &b.opts
	switch o.Policy {
	case "":
		o.Policy = Prefer
	case Prefer, Require, Local:
	default:
		panic(fmt.Sprintf("bridge: no policy %q", o.Policy))
	}
	for name, executor := range o.Executors {
		if name == "" || name == EnvironmentClient || name == EnvironmentLocal || executor == nil {
			panic(fmt.Sprintf("bridge: no environment can be named %q", name))
		}
	}
	o.MaxTerminals = limits.Or(o.MaxTerminals, limits.DefaultMaxTerminals)
	o.MaxBackground = limits.Or(o.MaxBackground, limits.MaxBackground)
	o.ResultLimit = min(limits.Or(o.ResultLimit, limits.DefaultResultLimit), maxResult)
	if o.Host == nil {
		o.Host = execenv.Tagged{}
	}
	if o.NewID == nil {
		var n atomic.Int64
		o.NewID = func() string { return "t" + strconv.FormatInt(n.Add(1), 10) }
	} else {
		o.NewID = oneAtATime(o.NewID)
	}
	o.Logger = logqueue.New(o.Logger)
	if o.Profiles == nil {
		o.Profiles = acpterm.DefaultProfiles()
	}
	return b
}

// oneAtATime returns f behind a lock: the Managers of all sessions call it.
func oneAtATime(f func() string) func() string {
	var mu sync.Mutex
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return f()
	}
}

// initialize gives the Bridge its connection, whose client sent init. It returns
// false if it has one.
func (b *Bridge) initialize(conn acpterm.Conn, init acp.InitializeRequest) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil || b.closed {
		return false
	}
	b.conn = conn
	b.terminal = init.ClientCapabilities.Terminal
	b.display = init.ClientCapabilities.Meta["terminal_output"] == true
	b.profile = b.opts.Profiles.Find(init.ClientInfo)
	if !b.terminal {
		b.noClient = errNoTerminals
	}
	if c, ok := conn.(interface{ Done() <-chan struct{} }); ok {
		b.lost = c.Done()
	}
	b.queue = updates.NewQueue(conn.SessionUpdate, b.lost)
	b.limiter = updates.NewLimiter(limits.DisplayRate)
	if b.lost != nil {
		b.watcher.Go(b.watch)
	}
	return true
}

// maxResult is more than any output has; the sums that it is part of do not
// overflow.
const maxResult = 1 << 30

// errNoTerminals is why a client is not asked for a terminal. An agent must not
// even try: "If terminal is false or not present, the Agent MUST NOT attempt to
// call any terminal methods" (ACP v1, Terminals).
var errNoTerminals = errors.New("the client offers no terminals")

// watch ends everything when the connection is gone, until Close.
func (b *Bridge) watch() {
	select {
	case <-b.lost:
		if err := b.closeSessions(); err != nil {
			b.opts.Logger.Warn("bridge: the connection is gone", "err", err)
		}
	case <-b.quit:
	}
}

// Session returns the State of a session, whose working directory is cwd, an
// absolute path; a relative one is an *acp.RequestError for the client. While the session is open it is the same State for the same
// cwd, and an error for another one. After Close the error wraps
// [terminal.ErrClosed]. On a lost connection nothing can be started in it.
func (b *Bridge) Session(id acp.SessionId, cwd string) (*State, error) {
	switch {
	case id == "":
		return nil, errors.New("bridge: a session without an id")
	case !filepath.IsAbs(cwd):
		return nil, acp.NewInvalidParams(map[string]any{"error": fmt.Sprintf("the working directory %q is not an absolute path", cwd)})
	}
	if err := updates.CheckID(string(id)); err != nil {
		return nil, fmt.Errorf("bridge: a session: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[id]; s != nil {
		if s.cwd != cwd {
			return nil, fmt.Errorf("bridge: session %q is open already, in %s", id, s.cwd)
		}
		return s, nil
	}
	switch {
	case b.closed:
		return nil, fmt.Errorf("bridge: %w", terminal.ErrClosed)
	case b.conn == nil:
		return nil, badRequest("call initialize first")
	}
	s := newState(b, id, cwd)
	b.sessions[id] = s
	b.order = append(b.order, s)
	return s, nil
}

// forget drops a closed State.
func (b *Bridge) forget(s *State) {
	stats := s.Stats()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.past.add(stats)
	delete(b.sessions, s.id)
	for i := range b.order {
		if b.order[i] == s {
			b.order = append(b.order[:i:i], b.order[i+1:]...)
			break
		}
	}
}

// states returns the open sessions in the order of Session.
func (b *Bridge) states() []*State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*State(nil), b.order...)
}

// Close closes every session, see [State.Close], and waits (bounded) until what
// was to be sent is sent. What could not be settled is listed in a
// [*terminal.LeakError]. Later calls return the result of the first.
func (b *Bridge) Close() error { return b.close.do(b.shut) }

func (b *Bridge) shut() error {
	control := b.refuse()
	close(b.quit)
	control.hangUp(b.opts.Logger)
	err := b.closeSessions()
	b.watcher.Wait()
	logqueue.Flush(b.opts.Logger)
	return err
}

// refuse lets no session begin, and returns what serves others.
func (b *Bridge) refuse() *controlled {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.control.Load()
}

// A once runs a function once, for all who call do. Unlike with sync.Once they
// wait on a channel, which the fake time of testing/synctest understands.
type once struct {
	begun *atomic.Bool
	done  chan struct{} // closed when err is valid
	err   *error
}

func newOnce() once { return once{new(atomic.Bool), make(chan struct{}), new(error)} }

func (o once) do(f func() error) error {
	if o.begun.CompareAndSwap(false, true) {
		defer close(o.done)
		*o.err = f()
		return *o.err
	}
	<-o.done
	return *o.err
}

// closeSessions closes every session at once.
func (b *Bridge) closeSessions() error {
	states := b.states()
	errs := make([]error, len(states))
	var all sync.WaitGroup
	for i, s := range states {
		all.Go(func() { errs[i] = s.Close() })
	}
	all.Wait()
	return leaks(errs...)
}

// leaks makes one error of those of several closes.
func leaks(errs ...error) error {
	var all terminal.LeakError
	var others []error
	for _, err := range errs {
		if leak, ok := errors.AsType[*terminal.LeakError](err); ok {
			all.Leaks = append(all.Leaks, leak.Leaks...)
		} else if err != nil {
			others = append(others, err)
		}
	}
	if len(all.Leaks) > 0 {
		others = append(others, &all)
	}
	if len(others) == 1 {
		return others[0]
	}
	return errors.Join(others...)
}

// delegates returns nil if the client may be asked for a terminal, else why not.
func (b *Bridge) delegates() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.noClient
}

// stopDelegating asks the client for no more terminals, because of err.
func (b *Bridge) stopDelegating(err error) {
	if b.setNoClient(err) {
		b.opts.Logger.Warn("bridge: the client is asked for no more terminals", "err", err)
	}
}

// setNoClient reports whether err is the first reason.
func (b *Bridge) setNoClient(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noClient != nil {
		return false
	}
	b.noClient = err
	return true
}

// gone reports whether the connection has ended.
func (b *Bridge) gone() bool { return await.Closed(b.lost) }

// Manager returns a [terminal.Manager] over all sessions. Start runs a command
// in the session that the label [SessionLabel] names, or in the only one. Close
// closes the Bridge. Terminals are those of the sessions' own Managers, see
// [State.Manager].
func (b *Bridge) Manager() terminal.Manager { return everywhere{b} }

// SessionLabel is the label of a command that names its session.
const SessionLabel = "session"

// everywhere is the Manager of a Bridge.
type everywhere struct{ b *Bridge }

func (m everywhere) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	states := m.b.states()
	if id, ok := cmd.Labels[SessionLabel]; ok {
		for _, s := range states {
			if string(s.id) == id {
				return s.Manager().Start(ctx, cmd)
			}
		}
		return nil, fmt.Errorf("bridge: %w: no session %q", terminal.ErrBadCommand, id)
	}
	switch len(states) {
	case 1:
		return states[0].Manager().Start(ctx, cmd)
	case 0:
		m.b.mu.Lock()
		defer m.b.mu.Unlock()
		if m.b.closed {
			return nil, fmt.Errorf("bridge: %w", terminal.ErrClosed)
		}
		return nil, fmt.Errorf("bridge: %w: no session is open", terminal.ErrBadCommand)
	}
	return nil, fmt.Errorf("bridge: %w: %d sessions are open: name one in the label %q", terminal.ErrBadCommand, len(states), SessionLabel)
}

func (m everywhere) Get(id string) (terminal.Terminal, error) {
	for _, s := range m.b.states() {
		if t, err := s.Get(id); err == nil {
			return t, nil
		}
	}
	return nil, fmt.Errorf("bridge: %w: %q", terminal.ErrNotFound, id)
}

func (m everywhere) List() []terminal.Terminal {
	var all []terminal.Terminal
	for _, s := range m.b.states() {
		all = append(all, s.List()...)
	}
	return all
}

func (m everywhere) Busy() bool {
	for _, s := range m.b.states() {
		if s.busy() {
			return true
		}
	}
	return false
}

func (m everywhere) Close() error { return m.b.Close() }
