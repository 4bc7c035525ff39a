package fakeconn_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

var (
	wireEvents = flag.Int("events", 20_000, "how many lines TestModel puts on the wire, in all its rounds")
	firstSeed  = flag.Uint64("seed", 1, "the seed of TestModel's first round; the others count on")
)

// TestModel lets several sessions make random calls, of both routes, while their
// client does random things and the wire fails at random, and compares what is
// owned, pending and released with a model that only counts. It runs rounds of
// one connection each, in fake time, until -events lines were on the wire. A
// round that fails prints its seed; the same round again is
//
//	go test -run TestModel ./fakeconn -seed=SEED -events=1
//
// as far as the scheduler repeats itself: -count=20 helps. A long run is
//
//	go test -run TestModel -timeout 0 ./fakeconn -seed=$RANDOM -events=100000000 -v
//
// which takes about two hours on two cores.
func TestModel(t *testing.T) {
	var (
		mu     sync.Mutex
		events int
		rounds uint64
		sum    = map[string]int{}
	)
	start := time.Now()
	next := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if events >= *wireEvents || t.Failed() {
			return 0, false
		}
		rounds++
		return *firstSeed + rounds - 1, true
	}
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for seed, ok := next(); ok; seed, ok = next() {
				var r *round
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r = newRound(t, seed)
						r.play()
					})
				})
				mu.Lock()
				if r == nil { // another -run
					mu.Unlock()
					return
				}
				events += r.events
				for what, n := range r.did {
					sum[what] += n
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var did []string
	for what, n := range sum {
		did = append(did, fmt.Sprintf("%s %d", what, n))
	}
	slices.Sort(did)
	t.Logf("%d wire events in %d rounds from seed %d on, %v: %s", events, rounds, *firstSeed, time.Since(start).Round(time.Second), strings.Join(did, ", "))
}

// A round is one connection.
type round struct {
	*testing.T
	seed   uint64
	c      *fakeconn.Client
	b      *bridge.Bridge
	events int

	mu sync.Mutex
	// guards following
	did      map[string]int
	sessions map[acp.SessionId]*actor
	jobs     map[string]*task
	lost     bool                   // the connection was ended
	unsure   map[acp.SessionId]bool // a fault may have left something that Close must report
	kept     map[acp.SessionId]int  // releases that a fault refused: an answer, and so the end of the matter
	alone    bool                   // a fault may have ended the delegation
	denied   map[acp.SessionId]int  // reads and waits that a fault refused: evidence that the terminal is gone
}

func newRound(t *testing.T, seed uint64) *round {
	r := &round{
		T: t, seed: seed,
		did:      map[string]int{},
		sessions: map[acp.SessionId]*actor{},
		jobs:     map[string]*task{},
		unsure:   map[acp.SessionId]bool{},
		kept:     map[acp.SessionId]int{},
		denied:   map[acp.SessionId]int{},
	}
	programs := map[string]memterm.Program{"task": r.program}
	r.c = fakeconn.New(&fakeconn.Options{
		Programs: programs,
		Memterm:  &memterm.Options{MaxTerminals: 10_000},
		Keep:     400,
		Agent:    func(*acp.AgentSideConnection) acp.Agent { return &modelAgent{r: r} },
	})
	r.b = bridge.New(r.c.Conn(), r.c.Init(), &bridge.Options{
		Local: func(acp.SessionId) terminal.Manager {
			return memterm.New(&memterm.Options{Programs: programs, MaxTerminals: 10_000, NewID: r.newID("local")})
		},
		MaxTerminals:  10_000, // eviction has tests of its own
		MaxBackground: maxBackground,
	})
	return r
}

const maxBackground = 4

var ids = struct {
	sync.Mutex
	n int
}{}

// newID returns a maker of ids that are used once in the whole test.
func (r *round) newID(prefix string) func() string {
	return func() string {
		ids.Lock()
		defer ids.Unlock()
		ids.n++
		return fmt.Sprint(prefix, "-", ids.n)
	}
}

func (r *round) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did[what]++
}

// A modelAgent hands prompts to the actors.
type modelAgent struct {
	acp.Agent
	r *round
}

func (a *modelAgent) actor(id acp.SessionId) *actor {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	return a.r.sessions[id]
}

func (a *modelAgent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	x := a.actor(req.SessionId)
	defer close(x.over)
	return x.s.Turn(ctx, x.turn)
}

func (a *modelAgent) Cancel(_ context.Context, n acp.CancelNotification) error {
	a.actor(n.SessionId).s.Cancel()
	return nil
}

func (a *modelAgent) Close() error { return a.r.b.Close() }

// A task is what a command of the model does, and what became of it.
type task struct {
	name     string
	lines    int
	interval time.Duration
	code     int
	stubborn bool // it ends only when it is killed

	mu sync.Mutex
	// guards following
	starts, running int
	wrote           strings.Builder
	byClient        bool // the client has ended it
}

// program is the program of every task, which the second word names.
func (r *round) program(p *memterm.Process) terminal.Exit {
	r.mu.Lock()
	k := r.jobs[p.Args[1]]
	r.mu.Unlock()
	k.mu.Lock()
	k.starts++
	k.running++
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.running--
	}()
	for i := range k.lines {
		text := fmt.Sprintf("%s: line %d\n", k.name, i+1)
		k.mu.Lock()
		_, err := io.WriteString(p.Stdout, text)
		if err == nil {
			k.wrote.WriteString(text)
		}
		k.mu.Unlock()
		if err != nil {
			return p.Death()
		}
		if !p.Sleep(k.interval) {
			if k.stubborn {
				<-p.Killed
			}
			return p.Death()
		}
	}
	return memterm.Code(k.code)
}

// An owned is a command as the model has it.
type owned struct {
	*task
	cmd    terminal.Command
	term   terminal.Terminal
	client bool        // where it runs
	killed bool        // by us, or by the turn that owned it
	slot   bool        // it takes one of the background slots
	seen   chan string // what a reader has seen of it, when it has ended; nil without
}

func (o *owned) live() bool {
	select {
	case <-o.term.Done():
		return false
	default:
		return true
	}
}

// An actor is a session: what it does, and what it must own.
type actor struct {
	*round
	id   acp.SessionId
	s    *bridge.State
	rng  *rand.Rand
	turn func(context.Context, *bridge.Turn) (acp.PromptResponse, error)
	over chan struct{} // closed when the handler of the prompt has returned

	parallel bool // the calls of the turn run at once

	mu sync.Mutex
	// guards following
	all    []*owned // every command that has started, in the order in which that was known
	closed bool
	calls  int
	errs   int
}

func (x *actor) chance(percent int) bool { return x.rng.IntN(100) < percent }

func (x *actor) upTo(d time.Duration) time.Duration { return time.Duration(x.rng.Int64N(int64(d))) }

// newTask makes a command.
func (x *actor) newTask() (*task, terminal.Command) {
	k := &task{
		name:     x.newID("task")(),
		lines:    1 + x.rng.IntN(20),
		interval: 10*time.Millisecond + x.upTo(400*time.Millisecond),
		code:     x.rng.IntN(3),
		stubborn: x.chance(10),
	}
	if x.chance(25) { // more than is read in time, where little is kept
		k.lines, k.interval = 10+x.rng.IntN(100), time.Millisecond+x.upTo(20*time.Millisecond)
	}
	x.round.mu.Lock()
	x.jobs[k.name] = k
	x.round.mu.Unlock()
	cmd := terminal.Command{Args: []string{"task", k.name}}
	switch {
	case x.chance(25):
		cmd.Environment = bridge.EnvironmentLocal
	case x.chance(10):
		cmd.Environment = bridge.EnvironmentClient
	}
	if x.chance(20) {
		cmd.OutputLimit = 100 + x.rng.IntN(300) // its start is lost before anybody has seen it
	}
	if x.chance(10) {
		cmd.Timeout = 100*time.Millisecond + x.upTo(3*time.Second)
	}
	return k, cmd
}

// own enters a command that has started.
func (x *actor) own(o *owned) *owned {
	how, _ := x.s.Presentation(o.term.Info().ID)
	o.client = how == bridge.PresentClient
	x.round.mu.Lock()
	if want := o.cmd.Environment != bridge.EnvironmentLocal; o.client != want && (o.client || !x.alone) {
		x.Errorf("%s is to run in %q, and runs in the client: %v", o.name, o.cmd.Environment, o.client)
	}
	lost := x.lost
	x.round.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	o.killed = o.killed || x.closed || lost
	x.all = append(x.all, o)
	return o
}

// slots counts the commands that take a background slot.
func (x *actor) slots() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, o := range x.all {
		if o.slot && o.live() {
			n++
		}
	}
	return n
}

// prompt is one turn of the session, and what must hold when it is answered.
func (x *actor) prompt() {
	var open []*owned // of calls that have not ended when the turn does
	var plans []func(context.Context, *bridge.Turn)
	x.parallel = x.chance(30)
	for range 1 + x.rng.IntN(3) {
		plans = append(plans, x.call(&open))
	}
	leave := x.chance(10) // the turn panics
	x.over = make(chan struct{})
	x.turn = func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		var all sync.WaitGroup
		for _, plan := range plans {
			if x.parallel {
				all.Go(func() { plan(ctx, t) })
			} else {
				plan(ctx, t)
			}
		}
		all.Wait()
		if leave {
			panic("of the agent")
		}
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	}
	before := len(x.c.Messages(x.id))
	start := time.Now()
	_, err := x.c.Prompt(context.Background(), x.id, "go")
	x.round.mu.Lock()
	lost := x.lost
	x.round.mu.Unlock()
	x.mu.Lock()
	closed := x.closed
	x.mu.Unlock()
	if err != nil && !lost && !closed && !leave {
		x.Errorf("the prompt: %v", err)
	}
	select {
	case <-x.over:
	case <-time.After(time.Minute):
		if !lost { // it came too late to be read
			x.Error("the prompt is answered, and its handler runs")
		}
	}
	if d := time.Since(start); d > 3*(terminal.CreateTimeout+30*time.Second) {
		x.Errorf("the prompt took %v", d)
	}
	x.mu.Lock()
	for _, o := range open {
		o.killed = true
	}
	x.mu.Unlock()
	if lost || closed {
		return
	}
	messages := x.c.Messages(x.id)[before:]
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range open {
		if o.live() && !strings.Contains(messages, o.term.Info().ID) {
			x.Errorf("the turn is over, and nobody says that its %s may run", o.name)
		}
	}
}

// call is a tool call with one command, or a few.
func (x *actor) call(open *[]*owned) func(context.Context, *bridge.Turn) {
	x.calls++
	id := acp.ToolCallId(fmt.Sprint("call-", x.calls))
	type step struct {
		k          *task
		cmd        terminal.Command
		background bool
		promote    time.Duration // when End comes while Exec waits; 0 is never
		giveUp     time.Duration // when the agent's own context ends; 0 is never
		look       time.Duration // how often somebody reads its output; 0 is never
	}
	var steps []step
	for range 1 + x.rng.IntN(2) {
		k, cmd := x.newTask()
		st := step{k: k, cmd: cmd, background: x.chance(40)}
		if x.chance(40) {
			st.look = time.Millisecond + x.upTo(3*time.Second)
		}
		if x.chance(15) {
			st.promote = x.upTo(3 * time.Second)
		}
		if x.chance(10) {
			st.giveUp = x.upTo(3 * time.Second)
		}
		steps = append(steps, st)
	}
	end, pause := x.chance(80), x.upTo(time.Second)
	return func(ctx context.Context, t *bridge.Turn) {
		call := t.ToolCall(acp.SessionUpdateToolCall{ToolCallId: id, Title: string(id), Kind: acp.ToolKindExecute})
		var mine []*owned
		ended := false
		for _, st := range steps {
			ctx, cancel := ctx, context.CancelFunc(func() {})
			if st.giveUp > 0 {
				ctx, cancel = context.WithTimeout(ctx, st.giveUp)
			}
			if st.background {
				mine = append(mine, x.startBackground(ctx, call, st.k, st.cmd, st.look)...)
			} else {
				o, promoted := x.exec(ctx, call, st.k, st.cmd, st.promote)
				mine = append(mine, o...)
				ended = ended || promoted
			}
			cancel()
		}
		time.Sleep(pause)
		if ctx.Err() == nil && end {
			call.End("", nil)
			ended = true
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if !ended {
			*open = append(*open, mine...)
		} else if ctx.Err() != nil { // which came first, the end of the call or that of the turn?
			for _, o := range mine {
				o.killed = true
			}
		}
	}
}

func (x *actor) startBackground(ctx context.Context, call *bridge.Call, k *task, cmd terminal.Command, look time.Duration) []*owned {
	x.count("background")
	before := x.slots()
	term, err := call.StartBackground(ctx, cmd)
	if err != nil {
		if errors.Is(err, terminal.ErrTooMany) && before < maxBackground && !x.parallel {
			x.Errorf("no slot is free, and %d are taken", before)
		}
		x.started(k, err)
		return nil
	}
	if after := x.slots(); after >= maxBackground && !x.parallel {
		x.Errorf("a slot was free, and %d were taken", after)
	}
	o := &owned{task: k, cmd: cmd, term: term, slot: true}
	if look > 0 {
		o.seen = make(chan string, 1)
		go follow(term, look, o.seen) // ends with the command; settle receives
	}
	return []*owned{x.own(o)}
}

// follow reads an output now and then until its end.
func follow(t terminal.Terminal, every time.Duration, seen chan<- string) {
	var b strings.Builder
	for cursor := int64(0); ; time.Sleep(every) {
		out, err := t.ReadOutput(context.Background(), cursor, every)
		if err != nil {
			fmt.Fprint(&b, err) // which nobody wrote
		}
		if out.Truncated {
			b.WriteString(terminal.GapMark)
		}
		b.WriteString(out.Text)
		cursor = out.NextCursor
		if out.EOF() {
			seen <- b.String()
			return
		}
	}
}

// started judges a start that failed.
func (x *actor) started(k *task, err error) {
	x.count("failed start")
	if err == nil {
		x.Errorf("%s: no terminal and no error", k.name)
	}
}

func (x *actor) exec(ctx context.Context, call *bridge.Call, k *task, cmd terminal.Command, promote time.Duration) (mine []*owned, promoted bool) {
	x.count("Exec")
	var all sync.WaitGroup
	done := make(chan struct{})
	if promote > 0 {
		all.Go(func() {
			select {
			case <-time.After(promote):
				x.count("promotion")
				promoted = true
				call.End("", nil)
			case <-done:
			}
		})
	}
	res, err := call.Exec(ctx, cmd)
	close(done)
	all.Wait()
	if res == nil {
		x.started(k, err)
		return nil, promoted
	}
	term, getErr := x.s.Get(res.ID)
	if getErr != nil {
		x.Errorf("%s: %v", k.name, getErr)
		return nil, promoted
	}
	o := x.own(&owned{task: k, cmd: cmd, term: term, slot: res.Outcome == terminal.Running, killed: ctx.Err() != nil})
	if res.Outcome.Ended() {
		text := res.Output
		if res.Truncated {
			text = terminal.GapMark + text
		}
		x.judge(o, text, res.Outcome, res.Exit, err)
	} else if promote == 0 && err == nil {
		x.Errorf("%s runs, and Exec has returned: %+v", k.name, res)
	}
	return []*owned{o}, promoted
}

// judge compares how a command ended with what became of its task.
func (x *actor) judge(o *owned, text string, outcome terminal.Outcome, exit terminal.Exit, err error) {
	o.task.mu.Lock()
	defer o.task.mu.Unlock()
	wrote := o.wrote.String()
	bad := func(format string, args ...any) {
		x.Errorf("%s (client: %v): %s; %q, %v, %v", o.name, o.client, fmt.Sprintf(format, args...), outcome, exit, err)
	}
	if o.starts > 1 || o.starts == 0 && text != "" {
		bad("it was started %d times, and wrote %q", o.starts, text)
	}
	rest, marked := wrote, false
	for i, part := range strings.Split(text, strings.TrimSuffix(terminal.GapMark, "\n")) {
		if i > 0 {
			part, marked = strings.TrimPrefix(part, "\n"), true
		}
		at := strings.Index(rest, part)
		if at < 0 || i == 0 && at > 0 {
			bad("the text is not what was written: %q of %q", text, wrote)
			return
		}
		rest = rest[at+len(part):]
	}
	switch outcome {
	case terminal.Exited:
		if exit.Code == nil || *exit.Code != o.code || o.running > 0 {
			bad("it should be code %d; %d run", o.code, o.running)
		}
		if err == nil && rest != "" && !marked {
			bad("%q is missing", rest)
		}
	case terminal.Signalled, terminal.StoppedByClient:
		x.round.mu.Lock()
		denied := x.denied[x.id]
		x.round.mu.Unlock()
		if !o.byClient && denied < 3 {
			bad("the client has not ended it")
		}
	case terminal.Stopped, terminal.Cancelled:
		x.mu.Lock()
		if !o.killed {
			bad("nobody has stopped it")
		}
		x.mu.Unlock()
	case terminal.TimedOut:
		if o.cmd.Timeout == 0 {
			bad("it has no timeout")
		}
	case terminal.ConnectionLost, terminal.Unknown, terminal.Failed:
		if err == nil {
			bad("there is no error")
		}
	}
	if exit.Success() && o.code != 0 {
		bad("a success that never was")
	}
}

// kill stops a command of the session.
func (x *actor) kill() {
	x.mu.Lock()
	var o *owned
	if len(x.all) > 0 {
		o = x.all[x.rng.IntN(len(x.all))]
		o.killed = true
	}
	x.mu.Unlock()
	if o == nil {
		return
	}
	x.count("kill")
	start := time.Now()
	info, err := x.s.Kill(o.term.Info().ID)
	if d := time.Since(start); d > terminal.SettleTimeout {
		x.Errorf("the kill of %s took %v", o.name, d)
	}
	if err == nil && !info.Outcome.Ended() {
		x.Errorf("%s was killed, and is %s", o.name, info.Outcome)
	}
}

// check compares what the session has with the model, between two turns.
func (x *actor) check() {
	x.count("check")
	x.mu.Lock()
	defer x.mu.Unlock()
	var want, got []string
	for _, o := range x.all {
		want = append(want, o.term.Info().ID)
	}
	for _, t := range x.s.List() {
		got = append(got, t.Info().ID)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		x.Errorf("the session has %v, the model %v", got, want)
	}
}

// settle judges every command of the session, which is over.
func (x *actor) settle() {
	x.mu.Lock()
	all := slices.Clone(x.all)
	x.mu.Unlock()
	for _, o := range all {
		if o.live() {
			x.Errorf("the session is closed, and %s runs", o.name)
			continue
		}
		var b strings.Builder
		if _, err := terminal.Copy(context.Background(), &b, o.term, 0); err != nil {
			x.Errorf("%s: %v", o.name, err)
		}
		info := o.term.Info()
		x.judge(o, b.String(), info.Outcome, info.Exit, info.Err)
		if o.seen != nil {
			x.judge(o, <-o.seen, info.Outcome, info.Exit, info.Err)
		}
	}
}

// run is the life of a session.
func (x *actor) run(turns int) {
	for range turns {
		x.round.mu.Lock()
		lost := x.lost
		x.round.mu.Unlock()
		x.mu.Lock()
		closed := x.closed
		x.mu.Unlock()
		if lost || closed {
			break
		}
		switch {
		case x.chance(70):
			x.prompt()
		case x.chance(60):
			x.kill()
		default:
			time.Sleep(x.upTo(5 * time.Second))
		}
		x.mu.Lock()
		closed = x.closed
		x.mu.Unlock()
		if !closed {
			x.check()
		}
	}
}

// end notes that what runs is about to be stopped. Called with mu held.
func (x *actor) end() {
	for _, o := range x.all {
		o.killed = o.killed || o.live()
	}
}

func (x *actor) close() {
	x.mu.Lock()
	x.closed = true
	x.end()
	x.mu.Unlock()
	start := time.Now()
	err := x.s.Close()
	if d := time.Since(start); d > 2*terminal.SettleTimeout {
		x.Errorf("Close took %v", d)
	}
	x.round.mu.Lock()
	unsure, lost := x.unsure[x.id], x.lost
	x.round.mu.Unlock()
	leak, isLeak := errors.AsType[*terminal.LeakError](err)
	if err != nil && (!isLeak || !unsure && !lost) {
		x.Errorf("close: %v", err)
	}
	if isLeak {
		x.count("reported leak")
		x.mu.Lock()
		x.errs = len(leak.Leaks)
		x.mu.Unlock()
	}
}

// weather is what the client and the wire do, until stop is closed.
func (r *round) weather(rng *rand.Rand, stop <-chan struct{}, actors []*actor) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.Int64N(int64(700 * time.Millisecond)))):
		}
		x := actors[rng.IntN(len(actors))]
		switch n := rng.IntN(100); {
		case n < 60:
			r.fault(rng, x)
		case n < 75:
			r.count("cancel")
			r.c.Cancel(context.Background(), x.id) // fails on a lost connection only
		case n < 85:
			r.userKills(rng, x)
		case n < 90:
			r.clientForgets(rng, x)
		case n == 98 && rng.IntN(4) == 0:
			r.count("session closed")
			x.close()
		case n == 99 && rng.IntN(8) == 0:
			r.count("disconnect")
			r.mu.Lock()
			r.lost = true
			r.mu.Unlock()
			for _, x := range actors {
				x.mu.Lock()
				x.end()
				x.mu.Unlock()
			}
			r.c.Disconnect()
		}
	}
}

// pick returns a command of x in the client that lives.
func (r *round) pick(rng *rand.Rand, x *actor) *owned {
	x.mu.Lock()
	defer x.mu.Unlock()
	var live []*owned
	for _, o := range x.all {
		if o.client && o.live() {
			live = append(live, o)
		}
	}
	if len(live) == 0 {
		return nil
	}
	o := live[rng.IntN(len(live))]
	o.task.mu.Lock()
	o.byClient = true
	o.task.mu.Unlock()
	return o
}

// userKills ends a command in the client, as its user can.
func (r *round) userKills(rng *rand.Rand, x *actor) {
	o := r.pick(rng, x)
	if o == nil {
		return
	}
	_, id := x.s.Presentation(o.term.Info().ID)
	if t, err := r.c.Memterm().Get(id); err == nil {
		r.count("killed by the user")
		ctx, cancel := context.WithTimeout(context.Background(), terminal.SettleTimeout)
		defer cancel()
		t.Stop(ctx)
	}
}

// clientForgets has the client release a terminal by itself.
func (r *round) clientForgets(rng *rand.Rand, x *actor) {
	o := r.pick(rng, x)
	if o == nil {
		return
	}
	r.count("forgotten by the client")
	_, id := x.s.Presentation(o.term.Info().ID)
	r.c.Host().ReleaseTerminal(context.Background(), acp.ReleaseTerminalRequest{SessionId: x.id, TerminalId: id})
}

// fault brings on one fault, for the next line that it fits.
func (r *round) fault(rng *rand.Rand, x *actor) {
	all := troubles()
	tr := all[rng.IntN(len(all))]
	m := methods[rng.IntN(len(methods))]
	switch {
	case tr.effect == cut, tr.only != "" && tr.only != m, tr.not == m:
		return
	case tr.name == "10 MiB" && rng.IntN(20) > 0: // slow
		return
	case tr.effect == empty && m == toOutput:
		return // a silent program, for all that anybody can know
	case m == toCreate && tr.acts && tr.effect != honest && tr.effect != late:
		return // the program runs, and nobody can know where
	case m == toCreate && tr.fault.Error != nil && tr.fault.Error.Code == -32601 && rng.IntN(20) > 0:
		return // once is for the rest of the round
	}
	f := tr.fault
	f.Method, f.Session, f.N = m, x.id, 1
	r.c.Inject(f)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did["fault"]++
	if m == toCreate && (tr.effect == empty || tr.fault.Error != nil && tr.fault.Error.Code == -32601) {
		r.alone = true
	}
	switch {
	case m == toRelease && tr.effect == refused && !tr.acts:
		r.kept[x.id]++
	case m == toCreate, m == toRelease:
		r.unsure[x.id] = true
	case tr.effect == refused:
		r.denied[x.id]++
	}
}

// play is the round.
func (r *round) play() {
	rng := rand.New(rand.NewPCG(r.seed, 0))
	var actors []*actor
	for i := range 1 + rng.IntN(4) {
		id := acp.SessionId(fmt.Sprint("session-", i+1))
		s, err := r.b.Session(id, "/work")
		if err != nil {
			r.Fatal(err)
		}
		x := &actor{round: r, id: id, s: s, rng: rand.New(rand.NewPCG(r.seed, uint64(i+1)))}
		actors = append(actors, x)
		r.mu.Lock()
		r.sessions[id] = x
		r.mu.Unlock()
	}
	stop := make(chan struct{})
	var weather, all sync.WaitGroup
	weather.Go(func() { r.weather(rng, stop, actors) })
	for _, x := range actors {
		all.Go(func() { x.run(20) })
	}
	all.Wait()
	close(stop)
	weather.Wait()
	for _, x := range actors {
		all.Go(x.close)
	}
	all.Wait()
	time.Sleep(2 * long) // what comes late has come
	for _, x := range actors {
		x.settle()
		unreleased := r.c.Host().Unreleased(x.id)
		x.mu.Lock()
		if len(unreleased) > x.errs+r.kept[x.id] && !r.lost {
			r.Errorf("%s: never released: %v; %d leaks were reported", x.id, unreleased, x.errs)
		}
		x.mu.Unlock()
	}
	r.mu.Lock()
	for _, k := range r.jobs {
		k.mu.Lock()
		if k.starts > 1 {
			r.Errorf("%s was started %d times", k.name, k.starts)
		}
		k.mu.Unlock()
	}
	r.mu.Unlock()
	if lines := r.c.Lines(); len(lines) > 0 {
		r.events = lines[len(lines)-1].N
	}
	if err := r.c.Close(); err != nil {
		r.Errorf("%v", err)
	}
	if r.Failed() {
		r.Logf("seed %d; the end of the wire:\n%s", r.seed, r.c.Transcript())
	}
}
