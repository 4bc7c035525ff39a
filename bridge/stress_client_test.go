package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A scripted is an ACP client that serves terminals with an acphost.Host, but for
// what a seed has it get wrong, and judges what it gets. It is the connection, too:
// what the SDK does for an agent, without the wire, so that even a client that does
// not read is in fake time. Every write waits for its turn, and for the client to
// read; a request waits for its answer, its ctx or the end of the connection. In
// some seeds it is a client of fakeconn, at the other end of a wire with the SDK on
// both sides, and then it always reads.
type scripted struct {
	r       *round
	wire    *fakeconn.Client // nil without
	garbles bool             // the wire loses, doubles and garbles lines
	host    *acphost.Host
	mem     *memterm.Manager
	reuse   bool          // ids come again
	slow    time.Duration // how long a create takes

	lost    chan struct{}   // closed when the connection is: Done
	broken  chan struct{}   // closed when nothing can be written any more
	ctx     context.Context // of what the client does; it ends with broken
	stop    context.CancelFunc
	pen     chan struct{} // held by the call that writes
	answers sync.WaitGroup

	mu sync.Mutex
	// guards following
	reads    chan struct{} // closed while the client reads
	stalled  bool          // it did not read at some time
	lostAt   time.Time
	n        int            // terminals so far
	asked    map[string]int // requests so far, by what they are about
	terms    map[termKey]*clientTerm
	made     []*clientTerm // all
	cards    map[cardKey]*clientCard
	sessions map[acp.SessionId]*clientSession
	asks     map[chan struct{}]acp.SessionId // open questions: closed by a cancel
}

type cardKey struct {
	session acp.SessionId
	id      acp.ToolCallId
}

// A termKey names a terminal as the agent does.
type termKey struct {
	session acp.SessionId
	id      string
}

// A clientTerm is a terminal of the client; of those with the same id it is the
// newest that counts.
type clientTerm struct {
	job       *job
	session   acp.SessionId
	id, host  string // what the agent and the Host call it; host is "" once it is released
	given     bool   // the agent was told of it
	killed    bool   // a kill was sent
	releases  int    // that were sent
	answered  bool   // one of them was
	forgotten bool   // the client itself has released it

	answeredAt time.Time // valid with answered
}

// A clientCard is what the client knows of a tool call.
type clientCard struct {
	announced, final int
	attached         bool // the agent tells of it
	exits            int
	status           acp.ToolCallStatus
}

// A clientSession is what the client knows of a session.
type clientSession struct {
	prompts map[*prompting]bool // not answered
	begun   bool                // there was one
	closed  bool                // by the agent, at closedAt
	cancels int                 // calls of the agent's Cancel, for which the next prompt waits
	idle    chan struct{}       // closed when there are none any more; nil before the first

	closedAt time.Time
}

func newScripted(r *round, rng *rand.Rand) *scripted {
	c := &scripted{
		r:        r,
		reuse:    chance(rng, 30),
		lost:     make(chan struct{}),
		broken:   make(chan struct{}),
		pen:      make(chan struct{}, 1),
		reads:    make(chan struct{}),
		asked:    map[string]int{},
		terms:    map[termKey]*clientTerm{},
		cards:    map[cardKey]*clientCard{},
		sessions: map[acp.SessionId]*clientSession{},
		asks:     map[chan struct{}]acp.SessionId{},
	}
	close(c.reads)
	c.ctx, c.stop = context.WithCancel(context.Background())
	if r.seed%wireEvery == 0 {
		o := r.kind.client
		o.Programs, o.Memterm = r.programs(), &memterm.Options{MaxTerminals: 1000}
		o.Agent = func(*acp.AgentSideConnection) acp.Agent { return &stressAgent{r: r} }
		o.Wrap = func(acp.Client) acp.Client { return c }
		c.wire = fakeconn.New(&o)
		c.host, c.mem = c.wire.Host(), c.wire.Memterm()
		c.garbles = r.rough > 0 && !o.NoTerminal
		return c
	}
	c.mem = memterm.New(&memterm.Options{Programs: r.programs(), MaxTerminals: 1000})
	c.host = acphost.New(func(acp.SessionId) terminal.Manager { return c.mem }, &acphost.Options{Display: r.kind.client.Display})
	return c
}

// wireEvery is of how many seeds one has a wire, which takes the time of ten.
const wireEvery = 64

// garbling is something that goes wrong with one line of the wire: with a request of
// the agent's, or with the answer.
func garbling(rng *rand.Rand) fakeconn.Fault {
	f := pick(rng,
		fakeconn.Fault{Drop: true},
		fakeconn.Fault{Edit: fakeconn.Cut},
		fakeconn.Fault{Twice: true},
		fakeconn.Fault{Reply: true, Twice: true},
		fakeconn.Fault{Reply: true, Drop: true},
		fakeconn.Fault{Reply: true, Edit: fakeconn.Cut},
		fakeconn.Fault{Reply: true, Edit: fakeconn.Remove("id")},
		fakeconn.Fault{Reply: true, Edit: fakeconn.Set("id", 999_999)},
		fakeconn.Fault{Reply: true, Edit: func(string) string { return "]]> segmentation fault" }},
		fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result", "done")},
	)
	f.N = 1
	f.Method = pick(rng, acp.ClientMethodTerminalOutput, acp.ClientMethodTerminalWaitForExit, acp.ClientMethodTerminalKill, acp.ClientMethodTerminalRelease)
	if f.Reply && chance(rng, 20) { // but for what makes a program run, and nobody know where
		f.Method = acp.ClientMethodTerminalCreate
		f.Edit = nil
		f.Drop = !f.Twice
	}
	return f
}

// A stressAgent is the agent at the other end of the wire.
type stressAgent struct {
	acp.Agent
	r *round
}

func (a *stressAgent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	a.r.mu.Lock()
	play := a.r.plays[req.Prompt[0].Text.Text]
	a.r.mu.Unlock()
	return play(ctx)
}

func (a *stressAgent) Cancel(_ context.Context, n acp.CancelNotification) error {
	for _, x := range a.r.actors {
		if x.id == n.SessionId {
			start := time.Now()
			x.s.Cancel()
			a.r.within("Cancel", start, 0)
		}
	}
	return nil
}

func (a *stressAgent) Close() error { return a.r.b.Close() }

// conn is the connection as the agent has it.
func (c *scripted) conn() acpterm.Conn {
	if c.wire != nil {
		return c.wire.Conn()
	}
	return c
}

func (c *scripted) session(id acp.SessionId) *clientSession {
	s := c.sessions[id]
	if s == nil {
		s = &clientSession{prompts: map[*prompting]bool{}}
		c.sessions[id] = s
	}
	return s
}

// Done is the SDK's: it is closed when the input has ended.
func (c *scripted) Done() <-chan struct{} { return c.lost }

var errBroken = &acp.RequestError{Code: -32603, Message: "Internal error", Data: map[string]any{"error": "write |1: broken pipe"}}

// write writes something and has the client look at it, in the order of the wire.
func (c *scripted) write(what string, look func()) error {
	c.mu.Lock()
	if began := time.Now(); !c.lostAt.IsZero() && began.After(c.lostAt) {
		last := what == acp.ClientMethodTerminalKill || what == acp.ClientMethodTerminalRelease
		if !last || began.Sub(c.lostAt) > 200*time.Millisecond {
			c.r.Errorf("%s %v after the end of the connection", what, began.Sub(c.lostAt))
		}
	}
	c.mu.Unlock()
	c.pen <- struct{}{}
	defer func() { <-c.pen }()
	c.mu.Lock()
	reads := c.reads
	c.mu.Unlock()
	select {
	case <-reads:
	case <-c.broken:
	}
	if await.Closed(c.broken) {
		return errBroken
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	look()
	return nil
}

// read has the client stop to read, or read again.
func (c *scripted) read(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch reading := await.Closed(c.reads); {
	case on && !reading:
		c.r.note("the client reads again")
		close(c.reads)
	case !on && reading && c.wire == nil:
		c.r.note("the client does not read")
		c.reads, c.stalled = make(chan struct{}), true
	}
}

// lose ends the connection: the client has died, or only closed the agent's input.
func (c *scripted) lose(dead bool) {
	c.mu.Lock()
	var open []*prompting
	if !await.Closed(c.lost) {
		c.r.note("the connection is lost, the client dead: %v", dead)
		c.lostAt = time.Now()
		close(c.lost)
		for _, s := range c.sessions {
			for p := range s.prompts {
				open = append(open, p)
			}
		}
	}
	if dead && !await.Closed(c.broken) {
		close(c.broken)
		c.stop()
	}
	c.mu.Unlock()
	switch {
	case c.wire != nil && dead:
		c.wire.Disconnect()
	case c.wire != nil:
		c.wire.EndInput()
	}
	for _, p := range open {
		p.end("the connection is lost")
	}
}

// A fate is what becomes of a request.
type fate struct {
	before, behind time.Duration // before the client acts, and before its answer
	idle, silent   bool          // it does not act, or does not answer
	err            *acp.RequestError
	empty          bool
}

func (f fate) String() string {
	if f == (fate{}) {
		return "right"
	}
	return fmt.Sprintf("acts: %v after %v, answers: %v after %v, with an error: %v, empty: %v", !f.idle, f.before, !f.silent, f.behind, f.err != nil, f.empty)
}

// answerOf is an answer as the log has it.
func answerOf(v any, err error) string {
	if err != nil {
		return err.Error()
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// fate returns what becomes of the next request of a method about a job.
func (c *scripted) fate(method string, k *job) fate {
	c.mu.Lock()
	name := method + " " + k.name
	c.asked[name]++
	n := c.asked[name]
	c.mu.Unlock()
	rng := c.r.rand(name, n)
	var f fate
	if !chance(rng, c.r.rough) {
		if chance(rng, 30) {
			f.before = upTo(rng, 30*time.Millisecond)
		}
		return f
	}
	code := pick(rng, -32603, -32800, -32002, -32000)
	switch n := rng.IntN(9); n {
	case 0:
		f.before = upTo(rng, 300*time.Millisecond)
		return f
	case 1:
		f.behind = upTo(rng, 300*time.Millisecond)
		return f
	case 2:
		f.before = time.Second + upTo(rng, 40*time.Second)
	case 3:
		f.behind = time.Second + upTo(rng, 40*time.Second)
	case 4:
		f.silent, f.idle = true, true
	case 5:
		f.silent = true
	case 6:
		f.err, f.idle = &acp.RequestError{Code: code, Message: "the client's own words"}, true
		if method == acp.ClientMethodTerminalCreate && chance(rng, 20) {
			f.err.Code = -32601
		}
	case 7, 8:
		if method == acp.ClientMethodTerminalCreate {
			return f // the program would run, and nobody could know where
		}
		if f.empty = n == 7 && method != acp.ClientMethodTerminalOutput; !f.empty { // nobody could know what it wrote
			f.err = &acp.RequestError{Code: code, Message: "the client's own words"}
		}
	}
	k.wrong(method)
	c.r.did.count("wrong " + method)
	return f
}

// request writes a request, has the client look at it and act, and waits for its
// answer. Look returns what the request is about; answered is told of the answer,
// if there is one.
func request[R any](ctx context.Context, c *scripted, method string, look func() *job, act func() (R, error), answered func()) (R, error) {
	var none R
	var k *job
	err := c.write(method, func() {
		k = look()
		c.r.note("→ %s of %s", method, k.name)
	})
	if err != nil {
		return none, err
	}
	f := c.fate(method, k)
	c.mu.Lock()
	if await.Closed(c.broken) { // end may be waiting already
		c.mu.Unlock()
		return none, errBroken
	}
	c.answers.Add(1)
	c.mu.Unlock()
	type reply struct {
		value R
		err   error
	}
	answer := make(chan reply, 1)
	go func() {
		defer c.answers.Done()
		if pause(c.ctx, f.before) != nil {
			return
		}
		var a reply
		if !f.idle {
			a.value, a.err = act()
		}
		if pause(c.ctx, f.behind) != nil || f.silent || await.Closed(c.lost) {
			return
		}
		switch {
		case f.err != nil:
			a = reply{none, f.err}
		case f.empty:
			a = reply{}
		}
		c.mu.Lock()
		answered()
		c.r.note("← %s of %s: %s (%v)", method, k.name, answerOf(a.value, a.err), f)
		c.mu.Unlock()
		answer <- a
	}()
	gone := &acp.RequestError{Code: -32603, Message: "Internal error", Data: map[string]any{"error": "peer disconnected before response"}}
	select {
	case a := <-answer:
		return a.value, a.err
	case <-ctx.Done():
		if await.Closed(c.lost) {
			return none, gone
		}
		return none, &acp.RequestError{Code: -32800, Message: "Request cancelled", Data: map[string]any{"error": ctx.Err().Error()}}
	case <-c.lost:
		return none, gone
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *scripted) CreateTerminal(ctx context.Context, req acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	k := c.r.jobOf(req)
	if c.r.kind.client.NoTerminal {
		c.r.Errorf("create, and the client has no terminals")
	}
	x := &clientTerm{job: k, session: req.SessionId}
	return request(ctx, c, acp.ClientMethodTerminalCreate, func() *job { return k }, func() (acp.CreateTerminalResponse, error) {
		if err := pause(c.ctx, c.slow); err != nil {
			return acp.CreateTerminalResponse{}, err
		}
		resp, err := c.host.CreateTerminal(c.ctx, req)
		if err != nil {
			return resp, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		x.host, x.id = resp.TerminalId, c.newID(x.session)
		c.terms[termKey{x.session, x.id}] = x
		c.made = append(c.made, x)
		resp.TerminalId = x.id
		return resp, nil
	}, func() { x.given = true })
}

// jobOf returns the job that a create is for.
func (r *round) jobOf(req acp.CreateTerminalRequest) *job {
	line := strings.Join(append([]string{req.Command}, req.Args...), " ")
	name := line[strings.Index(line, "job-"):]
	if i := strings.IndexAny(name, "' "); i >= 0 {
		name = name[:i]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs[name]
}

// newID returns the id of a new terminal. Called with mu held.
func (c *scripted) newID(session acp.SessionId) string {
	if !c.reuse {
		c.n++
		return fmt.Sprint("term-", c.n)
	}
	for n := 1; ; n++ {
		id := fmt.Sprint("term-", n)
		if x := c.terms[termKey{session, id}]; x == nil || x.releases > 0 && x.host == "" {
			return id
		}
	}
}

// find returns what the agent calls id, which it must know. Called with mu held.
func (c *scripted) find(method string, session acp.SessionId, id string) *clientTerm {
	x := c.terms[termKey{session, id}]
	if x == nil {
		c.r.Errorf("%s of %q, which the client never gave out", method, id)
		x = &clientTerm{job: &job{name: "nobody's"}}
	}
	if method != acp.ClientMethodTerminalRelease && x.releases > 0 && c.wire == nil { // on the wire the audit sees the order
		c.r.Errorf("%s of %q (%s), which was released", method, id, x.job.name)
	}
	return x
}

// about is a request about a terminal that the Host answers, if it is there.
func about[R any](ctx context.Context, c *scripted, method string, session acp.SessionId, id string, look func(*clientTerm), act func(host string) (R, error), answered func(*clientTerm)) (R, error) {
	var x *clientTerm
	return request(ctx, c, method, func() *job {
		x = c.find(method, session, id)
		look(x)
		return x.job
	}, func() (R, error) {
		c.mu.Lock()
		host := x.host
		if method == acp.ClientMethodTerminalRelease {
			x.host = "" // the id is free
		}
		if x.forgotten {
			host = ""
		}
		c.mu.Unlock()
		if host == "" {
			var none R
			return none, &acp.RequestError{Code: -32002, Message: "Resource not found"}
		}
		return act(host)
	}, func() { answered(x) })
}

func nothing(*clientTerm) {}

func (c *scripted) TerminalOutput(ctx context.Context, req acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error) {
	return about(ctx, c, acp.ClientMethodTerminalOutput, req.SessionId, req.TerminalId, nothing, func(host string) (acp.TerminalOutputResponse, error) {
		req.TerminalId = host
		return c.host.TerminalOutput(c.ctx, req)
	}, nothing)
}

func (c *scripted) WaitForTerminalExit(ctx context.Context, req acp.WaitForTerminalExitRequest) (acp.WaitForTerminalExitResponse, error) {
	return about(ctx, c, acp.ClientMethodTerminalWaitForExit, req.SessionId, req.TerminalId, nothing, func(host string) (acp.WaitForTerminalExitResponse, error) {
		req.TerminalId = host
		return c.host.WaitForTerminalExit(c.ctx, req)
	}, nothing)
}

func (c *scripted) KillTerminal(ctx context.Context, req acp.KillTerminalRequest) (acp.KillTerminalResponse, error) {
	kill := func(x *clientTerm) { x.killed = true }
	return about(ctx, c, acp.ClientMethodTerminalKill, req.SessionId, req.TerminalId, kill, func(host string) (acp.KillTerminalResponse, error) {
		req.TerminalId = host
		return c.host.KillTerminal(c.ctx, req)
	}, nothing)
}

func (c *scripted) ReleaseTerminal(ctx context.Context, req acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	c.mu.Lock()
	old := c.terms[termKey{req.SessionId, req.TerminalId}]
	// Before this one, which may be written later; at the same instant it may cross.
	again := old != nil && old.answered && time.Now().After(old.answeredAt)
	c.mu.Unlock()
	release := func(x *clientTerm) {
		x.releases++
		x.job.mu.Lock()
		defer x.job.mu.Unlock()
		switch {
		case c.wire != nil: // what reaches the agent is for fakeconn's audit to say
		case again && x == old:
			c.r.Errorf("%s (%s) is released, and that was answered", req.TerminalId, x.job.name)
		case x.releases > 2:
			c.r.Errorf("%s (%s) is released %d times", req.TerminalId, x.job.name, x.releases)
		case x.job.running > 0 && !x.killed && !x.job.byUser && len(x.job.wronged) == 0 && !await.Closed(c.lost):
			c.r.Errorf("%s (%s) is released, and runs", req.TerminalId, x.job.name)
		}
	}
	return about(ctx, c, acp.ClientMethodTerminalRelease, req.SessionId, req.TerminalId, release, func(host string) (acp.ReleaseTerminalResponse, error) {
		req.TerminalId = host
		return c.host.ReleaseTerminal(c.ctx, req)
	}, func(x *clientTerm) {
		if !x.answered {
			x.answered, x.answeredAt = true, time.Now()
		}
	})
}

// RequestPermission is the user's answer.
func (c *scripted) RequestPermission(ctx context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	call := req.ToolCall.ToolCallId
	asked := make(chan struct{})
	var none acp.RequestPermissionResponse
	n := 0
	err := c.write(acp.ClientMethodSessionRequestPermission, func() {
		c.r.note("→ permission for %s", call)
		x := c.cards[cardKey{req.SessionId, call}]
		if x == nil || x.final > 0 {
			c.r.Errorf("the user is asked about %s: %+v", call, x)
		}
		name := "permission " + string(call)
		c.asked[name]++
		n = c.asked[name]
		c.asks[asked] = req.SessionId
	})
	if err != nil {
		return none, err
	}
	rng := c.r.rand("permission", call, n)
	think := upTo(rng, 2*time.Second)
	if chance(rng, 10) {
		think = time.Hour
	}
	answersAll := chance(rng, 80) // it answers what a cancel ends
	timer := time.NewTimer(think)
	defer timer.Stop()
	var closing <-chan struct{}
	if answersAll {
		closing = asked
	}
	cancelled := acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}
	select {
	case <-timer.C:
	case <-closing:
		return cancelled, nil
	case <-ctx.Done():
		return none, &acp.RequestError{Code: -32800, Message: "Request cancelled"}
	case <-c.lost:
		return none, errBroken
	}
	c.r.did.count("permission")
	option := req.Options[rng.IntN(len(req.Options))].OptionId
	switch n := rng.IntN(100); {
	case n < 70:
	case n < 80:
		return cancelled, nil
	case n < 85:
		option = "another"
	case n < 90:
		return none, acp.NewMethodNotFound(acp.ClientMethodSessionRequestPermission)
	case n < 95:
		return none, &acp.RequestError{Code: -32603, Message: "no"}
	default:
		return none, nil
	}
	c.r.note("← permission for %s: %s", call, option)
	return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(option)}, nil
}

func (c *scripted) SessionUpdate(ctx context.Context, n acp.SessionNotification) error {
	if ctx.Err() != nil {
		return &acp.RequestError{Code: -32603, Message: "Internal error", Data: map[string]any{"error": ctx.Err().Error()}}
	}
	return c.write(acp.ClientMethodSessionUpdate, func() {
		switch u := n.Update; {
		case u.ToolCall != nil:
			c.r.note("→ tool_call %s %s%s", u.ToolCall.ToolCallId, u.ToolCall.Status, embedded(u.ToolCall.Content))
			c.announced(n.SessionId, u.ToolCall)
		case u.ToolCallUpdate != nil:
			status := ""
			if u.ToolCallUpdate.Status != nil {
				status = string(*u.ToolCallUpdate.Status)
			}
			c.r.note("→ update %s %s%s %v", u.ToolCallUpdate.ToolCallId, status, embedded(u.ToolCallUpdate.Content), u.ToolCallUpdate.Meta)
			c.updated(n.SessionId, u.ToolCallUpdate)
		default:
			c.r.note("→ another update")
			c.ofTurn(n.SessionId, "a message")
		}
		if err := c.host.SessionUpdate(c.ctx, c.mapped(n)); err != nil {
			c.r.Errorf("the client refuses an update: %v", err)
		}
	})
}

func (c *scripted) ReadTextFile(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
	return acp.ReadTextFileResponse{}, acp.NewMethodNotFound(acp.ClientMethodFsReadTextFile)
}

func (c *scripted) WriteTextFile(context.Context, acp.WriteTextFileRequest) (acp.WriteTextFileResponse, error) {
	return acp.WriteTextFileResponse{}, acp.NewMethodNotFound(acp.ClientMethodFsWriteTextFile)
}

func embedded(content []acp.ToolCallContent) string {
	var b strings.Builder
	for _, x := range content {
		if x.Terminal != nil {
			fmt.Fprint(&b, " ", x.Terminal.TerminalId)
		}
	}
	return b.String()
}

// ofTurn judges that something of a turn comes in one. Called with mu held, as the
// following are.
func (c *scripted) ofTurn(id acp.SessionId, what string) {
	switch s := c.session(id); {
	case c.stalled || await.Closed(c.lost): // it may have been sent long ago
	case s.closed && (c.wire == nil || time.Now().After(s.closedAt)): // or it was on its way
		c.r.Errorf("%s of a session that is closed", what)
	case s.begun && len(s.prompts) == 0:
		c.r.Errorf("%s of a turn that is answered", what)
	}
}

func (c *scripted) announced(session acp.SessionId, u *acp.SessionUpdateToolCall) {
	c.ofTurn(session, fmt.Sprint("the tool_call ", u.ToolCallId))
	key := cardKey{session, u.ToolCallId}
	x := c.cards[key]
	if x == nil {
		x = &clientCard{attached: u.Title == "attached"}
		c.cards[key] = x
	}
	if x.announced++; x.announced > 1 {
		c.r.Errorf("%s has a second tool_call", u.ToolCallId)
	}
	c.status(u.ToolCallId, x, u.Status)
	c.embeds(session, u.ToolCallId, u.Content)
}

func (c *scripted) updated(session acp.SessionId, u *acp.SessionToolCallUpdate) {
	x := c.cards[cardKey{session, u.ToolCallId}]
	if x == nil {
		c.r.Errorf("an update of %s, which was never announced", u.ToolCallId)
		return
	}
	output := u.Meta["terminal_output"] != nil || u.Meta["terminal_exit"] != nil
	bare := u.Status == nil && u.Content == nil && u.Title == nil && u.RawOutput == nil
	grown := x.final > 0 && !x.attached && u.Status == nil && u.Title == nil && u.RawOutput == nil && u.Content != nil && embedded(u.Content) == ""
	if !grown && (!output || !bare) {
		c.ofTurn(session, fmt.Sprint("an update of ", u.ToolCallId))
		if x.final > 0 && !(x.attached && c.stalled) { // the agent does not wait for the bridge's own
			c.r.Errorf("%s has an update after its final status", u.ToolCallId)
		}
	}
	switch {
	case x.exits > 0 && output:
		c.r.Errorf("%s has output, or an exit, after its exit", u.ToolCallId)
	case u.Meta["terminal_exit"] != nil:
		x.exits++
	}
	if u.Status != nil {
		c.status(u.ToolCallId, x, *u.Status)
	}
	c.embeds(session, u.ToolCallId, u.Content)
}

func (c *scripted) status(id acp.ToolCallId, x *clientCard, s acp.ToolCallStatus) {
	if s != "" {
		x.status = s
	}
	if acphost.Final(s) {
		if x.final++; x.final > 1 {
			c.r.Errorf("%s has a second final status", id)
		}
	}
}

// embeds judges the terminals in the content of a card: they are its own.
func (c *scripted) embeds(session acp.SessionId, call acp.ToolCallId, content []acp.ToolCallContent) {
	for _, x := range content {
		if x.Terminal == nil || x.Terminal.TerminalId == string(call) {
			continue
		}
		id := x.Terminal.TerminalId
		switch t := c.terms[termKey{session, id}]; {
		case t == nil:
			c.r.Errorf("%s embeds %s, which the client never gave out", call, id)
		case t.releases > 0:
			c.r.Errorf("%s embeds %s, which was released", call, id)
		case t.job.call != call:
			c.r.Errorf("%s embeds %s, which runs %s of %s", call, id, t.job.name, t.job.call)
		}
	}
}

// mapped returns n with the Host's own ids.
func (c *scripted) mapped(n acp.SessionNotification) acp.SessionNotification {
	name := func(content []acp.ToolCallContent) []acp.ToolCallContent {
		content = slices.Clone(content)
		for i, x := range content {
			if x.Terminal == nil {
				continue
			}
			if t := c.terms[termKey{n.SessionId, x.Terminal.TerminalId}]; t != nil && !t.forgotten {
				content[i] = acp.ToolTerminalRef(t.host)
			}
		}
		return slices.DeleteFunc(content, func(x acp.ToolCallContent) bool {
			if x.Terminal == nil {
				return false
			}
			t := c.terms[termKey{n.SessionId, x.Terminal.TerminalId}]
			return t != nil && t.forgotten
		})
	}
	switch u := n.Update; {
	case u.ToolCall != nil:
		v := *u.ToolCall
		v.Content = name(v.Content)
		n.Update.ToolCall = &v
	case u.ToolCallUpdate != nil:
		v := *u.ToolCallUpdate
		v.Content = name(v.Content)
		n.Update.ToolCallUpdate = &v
	}
	return n
}

// userKills has the user end a command in the client, or close its terminal.
func (c *scripted) userKills(rng *rand.Rand) {
	c.mu.Lock()
	var live []*clientTerm
	for _, x := range c.made {
		if x.releases == 0 && !x.forgotten {
			live = append(live, x)
		}
	}
	if len(live) == 0 {
		c.mu.Unlock()
		return
	}
	x := live[rng.IntN(len(live))]
	host := x.host
	forget := chance(rng, 30)
	x.forgotten = forget
	x.job.mu.Lock()
	x.job.byUser = true
	x.job.mu.Unlock()
	c.r.note("the user ends %s, and closes it: %v", x.job.name, forget)
	c.mu.Unlock()
	c.r.did.count("ended by the user")
	if forget {
		c.host.ReleaseTerminal(c.ctx, acp.ReleaseTerminalRequest{SessionId: x.session, TerminalId: host})
		return
	}
	if t, err := c.mem.Get(host); err == nil {
		ctx, cancel := context.WithTimeout(c.ctx, limits.SettleTimeout)
		defer cancel()
		t.Stop(ctx)
	}
}

// A prompting is a prompt that is not answered.
type prompting struct {
	cancel context.CancelFunc // of its ctx
	unsure bool               // it may be cancelled or not; the client's mu guards it

	mu sync.Mutex
	// guards following
	ended  time.Time // when its ctx did, or when it was cancelled; zero before
	why    string
	answer time.Time // when f returned; zero before
}

// end ends the ctx of the prompt.
func (p *prompting) end(why string) {
	p.cancelled(why)
	p.cancel()
}

func (p *prompting) cancelled(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended.IsZero() {
		p.ended, p.why = time.Now(), why
	}
}

// prompt has the agent answer a prompt, as acpwire does: it cancels those before
// it. What it returns is judged.
func (c *scripted) prompt(x *actor, name string, newest bool, f turn) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := &prompting{cancel: cancel}
	c.mu.Lock()
	if await.Closed(c.lost) {
		c.mu.Unlock()
		return
	}
	s := c.session(x.id)
	for s.cancels > 0 {
		idle := s.idle
		c.mu.Unlock()
		<-idle
		c.mu.Lock()
	}
	for o := range s.prompts {
		switch {
		case c.wire != nil: // what then is cancelled is for the wire to say
			o.unsure, p.unsure = true, true
		case newest:
			o.end("superseded")
		}
	}
	s.prompts[p], s.begun = true, true
	c.mu.Unlock()
	var returned acp.PromptResponse
	failed := errOwn // what a panic becomes
	begun := false
	play := func(ctx context.Context) (acp.PromptResponse, error) {
		return x.s.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			begun = true
			defer func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.answer = time.Now()
			}()
			returned, failed = f(ctx, t)
			return returned, failed
		})
	}
	var answer acp.PromptResponse
	var err error
	if c.wire == nil {
		answer, err = play(ctx)
	} else {
		c.r.mu.Lock()
		c.r.plays[name] = play
		c.r.mu.Unlock()
		answer, err = c.wire.Prompt(context.Background(), x.id, name)
	}
	c.mu.Lock()
	delete(s.prompts, p)
	lost, gone, unsure := await.Closed(c.lost), s.closed, p.unsure
	c.mu.Unlock()
	c.r.note("a prompt of %s is answered %s, %v", x.id, answer.StopReason, err)

	p.mu.Lock()
	defer p.mu.Unlock()
	since := p.answer
	if !p.ended.IsZero() && (since.IsZero() || p.ended.After(since)) {
		since = p.ended
	}
	if !since.IsZero() {
		c.r.within("the end of a turn", since, limits.SettleTimeout+2*time.Second)
	}
	switch {
	case lost, gone, unsure, x.isClosed():
	case !p.ended.IsZero() && (!begun || p.ended.Before(p.answer)):
		if err != nil || answer.StopReason != acp.StopReasonCancelled {
			c.r.Errorf("a prompt that was cancelled (%s) is answered %q, %v", p.why, answer.StopReason, err)
		}
	case !p.ended.IsZero(): // at once, or after f: either may count
	case !begun:
		c.r.Errorf("a prompt has not begun: %q, %v", answer.StopReason, err)
	case (err == nil) != (failed == nil), failed == nil && answer.StopReason != returned.StopReason:
		c.r.Errorf("a prompt is answered %q, %v; want %q, %v", answer.StopReason, err, returned.StopReason, failed)
	}
}

// cancel cancels the prompts of a session as acpwire does: their ctx ends, and the
// agent's Cancel is called, before the next prompt begins; or it ends the ctx only,
// as for a prompt that is itself cancelled.
func (c *scripted) cancel(rng *rand.Rand, x *actor) {
	c.r.did.count("cancel")
	c.mu.Lock()
	c.r.note("session/cancel of %s", x.id)
	s := c.session(x.id)
	if s.cancels++; s.cancels == 1 {
		s.idle = make(chan struct{})
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.cancels--; s.cancels == 0 {
			close(s.idle)
		}
	}()
	open := make([]*prompting, 0, len(s.prompts))
	for p := range s.prompts {
		open = append(open, p)
	}
	for asked, session := range c.asks {
		if session == x.id {
			close(asked)
			delete(c.asks, asked)
		}
	}
	c.mu.Unlock()
	end := func() {
		for _, p := range open {
			p.end("cancelled")
		}
	}
	agent := func() {
		start := time.Now()
		x.s.Cancel()
		c.r.within("Cancel", start, 0)
	}
	for _, p := range open {
		p.cancelled("cancelled") // before the agent can answer
	}
	switch how := rng.IntN(4); {
	case c.wire != nil:
		_ = c.wire.Cancel(context.Background(), x.id) // an error only on a lost connection
	case how == 0:
		end()
	case how == 1:
		agent()
		end()
		agent()
	case how == 2:
		end()
		time.Sleep(upTo(rng, 10*time.Millisecond))
		agent()
	default:
		end()
		agent()
	}
}

// end judges what is missing, when nothing can follow, and ends the client.
func (c *scripted) end() {
	c.mu.Lock()
	if !await.Closed(c.lost) {
		for key, x := range c.cards {
			if x.final != 1 {
				c.r.Errorf("%s of %s has %d final statuses", key.id, key.session, x.final)
			}
		}
	}
	for _, x := range c.made {
		if x.given && x.releases == 0 && !c.garbles && !await.Closed(c.broken) && !(await.Closed(c.lost) && c.stalled) {
			c.r.Errorf("%s (%s) was never released", x.id, x.job.name)
		}
	}
	c.mu.Unlock()
	if c.wire != nil {
		if err := c.wire.Close(); err != nil {
			c.r.Errorf("%v", err)
		}
		if c.r.Failed() {
			c.r.Logf("the wire:\n%s", c.wire.Transcript())
		}
	}
	c.lose(true)
	c.answers.Wait()
	if err := c.host.Close(); err != nil {
		c.r.Errorf("the client's host: %v", err)
	}
	if err := c.mem.Close(); err != nil {
		c.r.Errorf("the client's terminals: %v", err)
	}
}

// noteClosed notes that the agent has closed a session, and judges what it lists
// as left.
func (c *scripted) noteClosed(id acp.SessionId, leaks []terminal.Leak) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.session(id)
	s.closed, s.closedAt = true, time.Now()
	if await.Closed(c.lost) || c.garbles {
		return
	}
	open := 0
	for _, x := range c.made {
		if x.session == id && x.given && !x.answered && c.terms[termKey{id, x.id}] == x { // an id that came again was free
			open++
		}
	}
	if open > len(leaks) {
		c.r.Errorf("%d releases of %s are not answered, and its close lists %v", open, id, leaks)
	}
}
