package emulate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/jsonrpc"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/memterm/memshell"
)

// Client returns options for a client that treats terminals as a known one does,
// by its name in [Behaviours]; it panics if there is none. See [Behaviour.Client].
func Client(name string, o *fakeconn.Options) *fakeconn.Options {
	for _, b := range Behaviours() {
		if b.Name == name {
			return b.Client(o)
		}
	}
	panic(fmt.Sprintf("emulate: no behaviour %q", name))
}

// Client returns options for a client that treats terminals as b says: those of o,
// which may be nil, with another ClientInfo, and with Wrap, Programs and the
// Host's Command taken. The options serve one Client.
func (b Behaviour) Client(o *fakeconn.Options) *fakeconn.Options {
	var opts fakeconn.Options
	if o != nil {
		opts = *o
	}
	l := &client{b: b, started: map[string]*term{}, terminals: map[string]*term{}, turn: make(chan struct{}, 1)}
	l.programs = fakeconn.Programs()
	if opts.Memterm != nil {
		maps.Copy(l.programs, opts.Memterm.Programs)
		l.shell = opts.Memterm.Shell
	}
	if l.shell == nil {
		l.shell = memshell.New(nil)
	}
	maps.Copy(l.programs, opts.Programs)
	opts.Programs = maps.Clone(l.programs)
	opts.Programs[runner] = func(p *memterm.Process) terminal.Exit {
		l.mu.Lock()
		x := l.started[p.Args[1]]
		l.mu.Unlock()
		return x.run(p)
	}
	opts.ClientInfo = &b.Info
	if opts.NoTerminal {
		return &opts
	}
	var host acphost.Options
	if opts.Host != nil {
		host = *opts.Host
	}
	host.Command = func(req acp.CreateTerminalRequest) (terminal.Command, error) {
		cmd, err := acphost.Command(req)
		cmd.Stdin = b.OpenInput // to which nobody writes
		return cmd, err
	}
	opts.Host = &host
	opts.Wrap = func(c acp.Client) acp.Client {
		l.Client = c
		return l
	}
	return &opts
}

// runner is the program of memterm in which a group runs.
const runner = "emulate"

// A client treats terminals as its Behaviour says.
type client struct {
	acp.Client
	b        Behaviour
	programs map[string]memterm.Program
	shell    memterm.Program
	turn     chan struct{} // held by a create that is InTurn

	mu sync.Mutex
	// guards following
	n         int
	starting  int              // of terminals that are in no map yet
	started   map[string]*term // by the word of runner
	terminals map[string]*term
}

func (l *client) CreateTerminal(ctx context.Context, req acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	none := acp.CreateTerminalResponse{}
	b := l.b
	if b.Stub != "" {
		return acp.CreateTerminalResponse{TerminalId: b.Stub}, nil
	}
	if err := pause(ctx, b.Ask); err != nil {
		return none, err
	}
	if b.Refuse != nil {
		return none, b.Refuse
	}
	if b.InTurn {
		select {
		case l.turn <- struct{}{}:
			defer func() { <-l.turn }()
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	if err := pause(ctx, b.Create); err != nil {
		return none, err
	}
	for _, v := range req.Env {
		if slices.Contains(b.DeniedEnv, v.Name) {
			return none, &acp.RequestError{Code: jsonrpc.InvalidParams, Message: "environment variable not allowed: " + v.Name}
		}
	}

	x := newTerm(req.SessionId)
	x.argv, x.pipe, x.shell = l.argv(req), b.Pipe, l.shell
	if x.argv == nil {
		if b.BadStart.Wait == nil {
			return none, &acp.RequestError{Code: b.BadStart.code(), Message: b.BadStart.Text}
		}
		x.bad, x.report = true, b.BadStart.Text
	}
	switch {
	case b.NoLimit:
	case req.OutputByteLimit != nil:
		x.limit = *req.OutputByteLimit
	case b.DefaultLimit > 0:
		x.limit = b.DefaultLimit
	}

	l.mu.Lock()
	live := l.starting
	for _, t := range l.terminals {
		if t.released.IsZero() {
			live++
		}
	}
	if b.MaxTerminals > 0 && live >= b.MaxTerminals {
		l.mu.Unlock()
		return none, &acp.RequestError{Code: jsonrpc.Internal, Message: fmt.Sprintf("more than %d terminals", b.MaxTerminals)}
	}
	l.n++
	l.starting++
	key := strconv.Itoa(l.n)
	l.started[key] = x
	l.mu.Unlock()
	resp, err := l.Client.CreateTerminal(ctx, acp.CreateTerminalRequest{
		SessionId: req.SessionId, Command: runner, Args: []string{key}, Cwd: req.Cwd, Env: req.Env,
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starting--
	if err == nil {
		x.host = resp.TerminalId
		resp.TerminalId = l.newID(resp.TerminalId)
		l.terminals[resp.TerminalId] = x
	}
	return resp, err
}

// newID returns the id for a terminal that the Host knows by id. Called with mu
// held.
func (l *client) newID(id string) string {
	if !l.b.ReuseIDs {
		return id
	}
	for n := 1; ; n++ {
		id := fmt.Sprint("term-", n)
		if x := l.terminals[id]; x == nil || !x.released.IsZero() {
			return id
		}
	}
}

// SessionUpdate hands the Host its own ids of the terminals that content names.
func (l *client) SessionUpdate(ctx context.Context, n acp.SessionNotification) error {
	var content []acp.ToolCallContent
	switch u := n.Update; {
	case u.ToolCall != nil:
		content = u.ToolCall.Content
	case u.ToolCallUpdate != nil:
		content = u.ToolCallUpdate.Content
	}
	l.mu.Lock()
	for _, c := range content {
		if c.Terminal == nil {
			continue
		}
		if x := l.terminals[c.Terminal.TerminalId]; x != nil {
			c.Terminal.TerminalId = x.host
		}
	}
	l.mu.Unlock()
	return l.Client.SessionUpdate(ctx, n)
}

func (s BadStart) code() int {
	if s.Code == 0 {
		return jsonrpc.Internal
	}
	return s.Code
}

// argv returns what is executed, or nil if that is not there.
func (l *client) argv(req acp.CreateTerminalRequest) []string {
	if req.Cwd != nil && strings.HasPrefix(*req.Cwd, MissingDir) {
		return nil
	}
	words := l.b.Argv(req.Command, req.Args)
	if l.programs[words[0]] != nil || memterm.IsShell(words) {
		return words
	}
	if l.b.FallBack && req.Args == nil {
		return runLine(req.Command, nil)
	}
	return nil
}

// find returns a terminal that answers.
func (l *client) find(session acp.SessionId, id string) (*term, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.terminals[id]
	switch {
	case x == nil, !x.released.IsZero() && l.b.AfterRelease >= 0 && time.Since(x.released) >= l.b.AfterRelease:
		code := l.b.UnknownCode
		if code == 0 {
			code = jsonrpc.NotFound
		}
		return nil, &acp.RequestError{Code: code, Message: fmt.Sprintf("Unknown terminal %q", id)}
	case x.session != session && l.b.SessionCode != 0:
		return nil, &acp.RequestError{Code: l.b.SessionCode, Message: "Invalid session"}
	}
	return x, nil
}

func (l *client) TerminalOutput(ctx context.Context, req acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error) {
	if l.b.Stub != "" {
		return acp.TerminalOutputResponse{}, nil
	}
	x, err := l.find(req.SessionId, req.TerminalId)
	if err != nil {
		return acp.TerminalOutputResponse{}, err
	}
	return x.output(ctx, l.b)
}

// output is what the terminal shows now.
func (x *term) output(ctx context.Context, b Behaviour) (acp.TerminalOutputResponse, error) {
	var resp acp.TerminalOutputResponse
	from := 0
	if b.Destructive || b.Blocking {
		select {
		case x.outputs <- struct{}{}:
			defer func() { <-x.outputs }()
		case <-ctx.Done():
			return resp, context.Cause(ctx)
		}
		if b.Destructive {
			x.mu.Lock()
			from = x.taken
			x.mu.Unlock()
		}
		taken := x.take()
		if b.Blocking {
			select {
			case <-x.closed:
			case <-ctx.Done():
				return resp, context.Cause(ctx)
			}
		}
		defer taken()
	}
	ended := over(x.ended(b))
	all := x.visible(b, ended)
	if b.TTY {
		all = []byte(strings.ReplaceAll(string(all), "\n", "\r\n"))
	}
	all = all[min(from, len(all)):]
	resp.Output = decode(all)
	size, limit := len(resp.Output), x.limit
	if limit >= 0 && size > limit {
		resp.Output, resp.Truncated = b.Cut([]byte(resp.Output), limit), true
	}
	if b.Truncated != nil && limit >= 0 {
		resp.Truncated = b.Truncated(size, len(resp.Output), limit)
	}
	if ended && !b.NoExitStatus {
		switch {
		case !x.bad:
			resp.ExitStatus = new(b.ExitStatus(x.exit.Code, x.exit.Signal))
		case b.BadStart.Output != nil:
			resp.ExitStatus = b.BadStart.Output
		}
	}
	return resp, nil
}

// ended returns what is closed when the client reports the exit.
func (x *term) ended(b Behaviour) <-chan struct{} {
	if b.WaitsForClose {
		return x.closed
	}
	return x.exited
}

// visible returns the output that the client has read.
func (x *term) visible(b Behaviour, ended bool) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	var all []byte
	for _, w := range x.writes {
		if now.Sub(w.at) < b.Lag || ended && b.LosesTail && !x.bad && x.exitAt.Sub(w.at) < b.Lag {
			break
		}
		if b.SplitRunes {
			all = append(all, decode(w.text)...)
		} else {
			all = append(all, w.text...)
		}
	}
	return all
}

func (l *client) WaitForTerminalExit(ctx context.Context, req acp.WaitForTerminalExitRequest) (acp.WaitForTerminalExitResponse, error) {
	var resp acp.WaitForTerminalExitResponse
	if l.b.Stub != "" {
		return resp, nil
	}
	x, err := l.find(req.SessionId, req.TerminalId)
	if err != nil {
		return resp, err
	}
	select {
	case <-x.ended(l.b):
	case <-ctx.Done():
		return resp, context.Cause(ctx)
	}
	status := l.b.ExitStatus(x.exit.Code, x.exit.Signal)
	if x.bad {
		status = *l.b.BadStart.Wait
	}
	return acp.WaitForTerminalExitResponse{ExitCode: status.ExitCode, Signal: status.Signal}, nil
}

func (l *client) KillTerminal(ctx context.Context, req acp.KillTerminalRequest) (acp.KillTerminalResponse, error) {
	var resp acp.KillTerminalResponse
	if l.b.Stub != "" {
		return resp, nil
	}
	x, err := l.find(req.SessionId, req.TerminalId)
	if err != nil {
		if l.b.KillUnknown {
			err = nil
		}
		return resp, err
	}
	return resp, x.kill(ctx, l.b.Kill)
}

// kill kills, and waits for the answer to the client's own question.
func (x *term) kill(ctx context.Context, k Kill) error {
	name := k.Signal
	if name == "" {
		name = "SIGKILL"
	}
	x.signal(name, !k.Leader)
	if k.Escalate == 0 {
		return nil
	}
	timer := time.NewTimer(k.Escalate)
	defer timer.Stop()
	select {
	case <-x.exited:
		return nil
	case <-timer.C:
		x.signal("SIGKILL", !k.Leader)
	case <-ctx.Done():
		x.signal("SIGKILL", !k.Leader)
		return context.Cause(ctx)
	}
	select {
	case <-x.exited:
	case <-ctx.Done():
	}
	return nil
}

func (l *client) ReleaseTerminal(ctx context.Context, req acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	var resp acp.ReleaseTerminalResponse
	if l.b.Stub != "" {
		return resp, nil
	}
	x, err := l.find(req.SessionId, req.TerminalId)
	if err == nil {
		l.mu.Lock()
		again := !x.released.IsZero()
		if !again {
			x.released = time.Now()
		}
		l.mu.Unlock()
		if again {
			return resp, nil
		}
	}
	if err != nil {
		if l.b.KillUnknown || l.b.ReleaseUnknown {
			err = nil
		}
		return resp, err
	}
	if !l.b.Outlives {
		if err := x.kill(ctx, l.b.Kill); err != nil {
			return resp, err
		}
		if over(x.closed) {
			// What still runs is the Host's until its Close.
			req.TerminalId = x.host
			if _, err := l.Client.ReleaseTerminal(ctx, req); err != nil {
				return resp, err
			}
		}
	}
	return resp, pause(ctx, l.b.Release)
}

// decode makes text of bytes: each that is no UTF-8 becomes U+FFFD.
func decode(b []byte) string {
	s, _ := text.Decode(b, 4*len(b)+4, true)
	return s
}

// over reports whether c is closed.
func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pause waits for d, unless that is nothing.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return await.Sleep(ctx, d)
}
