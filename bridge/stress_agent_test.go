package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// An actor is a session of the stress: what its agent does, and what must come
// of it.
type actor struct {
	*round
	id acp.SessionId
	s  *bridge.State

	mu sync.Mutex
	// guards following
	all    []*owned  // every command that is known to have started
	closed time.Time // when the close began; zero before
}

// An owned is a command that has started.
type owned struct {
	*job
	cmd     terminal.Command
	term    terminal.Terminal
	stopped bool // somebody stops it: a kill, the end of a turn, of a session, of a ctx
}

func newActor(r *round, id acp.SessionId) *actor {
	s, err := r.b.Session(id, "/work")
	if err != nil {
		r.Fatal(err)
	}
	return &actor{round: r, id: id, s: s}
}

func (x *actor) isClosed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.closed.IsZero()
}

// run is the life of a session.
func (x *actor) run() {
	rng := x.rand(x.id)
	if chance(rng, 10) {
		x.replay(rng)
	}
	var prompts sync.WaitGroup
	for n := range 1 + rng.IntN(3) {
		if x.isClosed() {
			break
		}
		switch {
		case chance(rng, 80):
			name := fmt.Sprintf("%s.%d", x.id, n)
			newest := chance(rng, 60)
			prompts.Go(func() { x.prompt(name, newest) })
			if chance(rng, 25) {
				x.did.count("overlap")
				time.Sleep(upTo(rng, time.Second))
				break
			}
			prompts.Wait()
		case chance(rng, 40):
			x.killAny(rng)
		case chance(rng, 40):
			x.start(rng, fmt.Sprintf("job-%s.%d", x.id, n))
		default:
			time.Sleep(upTo(rng, 3*time.Second))
		}
	}
	prompts.Wait()
}

// replayed begins the ids of tool calls that are replayed.
const replayed = "old-"

// replay shows a tool call of an earlier connection.
func (x *actor) replay(rng *rand.Rand) {
	x.did.count("replay")
	start := time.Now()
	code := 0
	err := x.s.Replay(context.Background(), bridge.Record{
		ToolCallID: acp.ToolCallId(replayed + string(x.id)), Title: "old", Status: acp.ToolCallStatusCompleted,
		Ran: true, Dir: "/work", Output: strings.Repeat("output\n", rng.IntN(10_000)), ExitCode: &code,
	})
	x.note("replay: %v", err)
	x.within("Replay", start, limits.SettleTimeout)
}

// start starts a command that no tool call has.
func (x *actor) start(rng *rand.Rand, name string) {
	x.did.count("start")
	k, cmd := x.newJob(rng, name, "")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	end := x.watch(ctx)
	term, err := x.s.Manager().Start(ctx, cmd)
	x.within("Manager.Start", end(), limits.SettleTimeout)
	x.note("start of %s: %v", name, err)
	if err == nil {
		x.own(k, cmd, term, false)
	}
}

// close closes the session, again if it is closed.
func (x *actor) close() {
	x.mu.Lock()
	if x.closed.IsZero() {
		x.closed = time.Now()
	}
	for _, o := range x.all {
		o.stopped = true
	}
	x.mu.Unlock()
	x.note("close of %s", x.id)
	start := time.Now()
	err := x.s.Close()
	x.within("State.Close", start, 2*limits.SettleTimeout)
	x.note("%s is closed: %v", x.id, err)
	x.c.noteClosed(x.id, x.leaked("close", err))
}

// killAny kills a command of the session.
func (x *actor) killAny(rng *rand.Rand) {
	x.mu.Lock()
	if len(x.all) == 0 {
		x.mu.Unlock()
		return
	}
	o := x.all[rng.IntN(len(x.all))]
	o.stopped = true
	x.mu.Unlock()
	x.kill(o)
}

func (x *actor) kill(o *owned) {
	x.did.count("kill")
	id := o.term.Info().ID
	x.note("kill of %s (%s)", o.name, id)
	start := time.Now()
	info, err := x.s.Stop(id)
	x.within("Kill", start, limits.SettleTimeout)
	if err == nil && !info.Outcome.Ended() {
		x.Errorf("%s was killed, and is %s", o.name, info.Outcome)
	}
}

// own enters a command that has started.
func (x *actor) own(k *job, cmd terminal.Command, term terminal.Terminal, stopped bool) *owned {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := &owned{job: k, cmd: cmd, term: term, stopped: stopped || !x.closed.IsZero()}
	x.all = append(x.all, o)
	return o
}

// prompt is one turn of the session.
func (x *actor) prompt(name string, newest bool) {
	rng := x.rand("prompt", name)
	x.did.count("prompt")
	calls := pick(rng, 1, 1, 2, 3)
	parallel := chance(rng, 40)
	leave := pick(rng, "", "", "", "", "", "", "", "", "error", "panic")
	var mu sync.Mutex
	var left []*owned // of calls that the turn ends; guarded by mu
	play := func(ctx context.Context, t *bridge.Turn, name string) {
		open := x.call(ctx, t, name)
		mu.Lock()
		defer mu.Unlock()
		left = append(left, open...)
	}
	over := make(chan struct{})
	go func() { // how long the user waits
		select {
		case <-over:
		case <-time.After(2 * time.Minute):
			x.c.cancel(x.rand("deadline", name), x)
		}
	}()
	defer close(over)
	x.c.prompt(x, name, newest, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		x.note("turn %s begins", name)
		var all sync.WaitGroup
		for n := range calls {
			call := fmt.Sprintf("%s.%d", name, n)
			if !parallel {
				play(ctx, t, call)
				continue
			}
			all.Go(func() { play(ctx, t, call) })
		}
		all.Wait()
		x.note("turn %s ends", name)
		switch leave {
		case "error":
			return acp.PromptResponse{}, errOwn
		case "panic":
			panic(errOwn)
		}
		return done, nil
	})
	x.c.mu.Lock()
	excused := await.Closed(x.c.lost) || x.c.stalled
	x.c.mu.Unlock()
	if excused || x.isClosed() {
		return
	}
	said := x.c.host.Messages(x.id)
	for _, o := range left {
		switch id := o.term.Info().ID; {
		case await.Closed(o.term.Done()):
		case x.rough == 0:
			x.Errorf("the turn %s is answered, and its %s (%s) runs", name, o.name, id)
		case !strings.Contains(said, id):
			x.Errorf("the turn %s is answered, and nobody says that its %s (%s) may run", name, o.name, id)
		}
	}
}

// A script is a tool call.
type script struct {
	*actor
	id       acp.ToolCallId
	call     *bridge.Call
	attached bool // the agent itself tells the client of it
	late     bool // when the turn had ended, which then does not end it
	turn     context.Context

	mu sync.Mutex
	// guards following
	mine  []*owned
	used  bool // a method was called: the end of the turn ends an attached Call, too
	ended bool // End was called
}

// call plays a tool call, and returns the commands of one that is left to the turn
// to end.
func (x *actor) call(ctx context.Context, t *bridge.Turn, name string) (left []*owned) {
	rng := x.rand("call", name)
	y := &script{actor: x, id: acp.ToolCallId("call-" + name), turn: ctx}
	if chance(rng, 15) {
		if !y.attach(t) {
			return nil
		}
	} else {
		y.call = t.ToolCall(acp.SessionUpdateToolCall{ToolCallId: y.id, Title: name, Kind: acp.ToolKindExecute})
	}
	if chance(rng, 20) && !y.permit(rng) && !y.late {
		return nil
	}
	var steps sync.WaitGroup
	parallel := chance(rng, 30)
	for n := range pick(rng, 1, 1, 2, 3) {
		own := x.rand("step", name, n)
		step := func() { y.step(own, fmt.Sprintf("job-%s.%d", name, n)) }
		if parallel {
			steps.Go(step)
		} else {
			step()
		}
	}
	if chance(rng, 15) { // while they run
		time.Sleep(upTo(rng, time.Second))
		y.end("")
	}
	steps.Wait()
	y.mu.Lock()
	must := y.attached && (!y.used || y.late)
	y.mu.Unlock()
	if must || chance(rng, 80) {
		y.end(pick(rng, "", "", "what the agent says"))
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.ended {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range y.mine {
		o.stopped = true
	}
	return y.mine
}

// ctx is what the agent gives a method: that of the turn, or one that does not end
// with it, which must make no difference.
func (y *script) ctx(rng *rand.Rand) context.Context {
	return pick(rng, y.turn, y.turn, context.Background())
}

// attach begins a tool call of which the agent tells the client, and reports
// whether the client was told.
func (y *script) attach(t *bridge.Turn) bool {
	y.did.count("attach")
	y.attached = true
	call, card := t.Attach(y.id, terminal.Command{Args: []string{"job"}})
	y.call, y.late = call, y.turn.Err() != nil
	err := y.tell(acp.SessionUpdate{ToolCall: &acp.SessionUpdateToolCall{
		ToolCallId: y.id, Title: "attached", Status: card.Status, Content: card.Content, Meta: card.Meta,
	}})
	y.note("attach of %s: %v", y.id, err)
	return err == nil
}

// tell tells the client of an attached tool call, in the agent's own way.
func (y *script) tell(u acp.SessionUpdate) error {
	if await.Closed(y.c.Done()) {
		return terminal.ErrConnectionLost
	}
	return y.c.conn().SessionUpdate(context.Background(), acp.SessionNotification{SessionId: y.actor.id, Update: u})
}

func (y *script) use() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.used = true
}

// permit asks the user, and reports whether the agent goes on.
func (y *script) permit(rng *rand.Rand) bool {
	y.use()
	end := y.watch(y.turn)
	err := y.call.Permit(y.ctx(rng), pick(rng, "", "a", "b"))
	y.within("Permit", end(), 2*time.Second)
	y.note("permit of %s: %v", y.id, err)
	return err == nil
}

// watch returns a function that returns when the method that is called meanwhile
// should have begun to return: when ctx, or the session's close, ended it, or now.
func (x *actor) watch(ctx context.Context) func() time.Time {
	var ended time.Time
	var mu sync.Mutex
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		ended = time.Now()
	})
	return func() time.Time {
		stop()
		mu.Lock()
		defer mu.Unlock()
		if ended.IsZero() {
			return time.Now()
		}
		return ended
	}
}

func (y *script) end(text string) {
	y.mu.Lock()
	again := y.ended
	y.ended = true
	y.mu.Unlock()
	start := time.Now()
	y.note("end of %s", y.id)
	end := y.call.End(text, nil)
	y.within("End", start, limits.SettleTimeout)
	if end.Status != acp.ToolCallStatusCompleted && end.Status != acp.ToolCallStatusFailed {
		y.Errorf("%s ends %q", y.id, end.Status)
	}
	if again {
		return
	}
	if y.attached && !end.Sent {
		err := y.tell(acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{
			ToolCallId: y.id, Status: &end.Status, Content: end.Content, RawOutput: end.RawOutput, Meta: end.Meta,
		}})
		y.note("the agent ends %s: %v", y.id, err)
	}
	if start := time.Now(); y.call.End("other", errOwn).Status != end.Status {
		y.Errorf("a second End of %s returns something else", y.id)
	} else {
		y.within("a second End", start, 0)
	}
	if err := y.call.Update(acp.SessionToolCallUpdate{Title: new("late")}); err == nil {
		y.Errorf("an update of %s after its End", y.id)
	}
}

// step is something that an agent does in a tool call.
func (y *script) step(rng *rand.Rand, name string) {
	switch n := rng.IntN(100); {
	case n < 50:
		y.exec(rng, name)
	case n < 75:
		y.background(rng, name)
	case n < 82:
		y.use()
		start := time.Now()
		u := acp.SessionToolCallUpdate{Title: new("title of " + name)}
		if chance(rng, 50) {
			u.Content = []acp.ToolCallContent{acp.ToolContent(acp.TextBlock("content of " + name))}
		}
		_ = y.call.Update(u)
		y.within("Update", start, limits.SettleTimeout)
	case n < 88:
		start := time.Now()
		_ = y.s.Update(y.turn, acp.UpdateAgentMessageText("a message"))
		y.within("State.Update", start, limits.SettleTimeout)
	case n < 92:
		y.killAny(rng)
	case n < 96:
		y.permit(rng)
	default:
		time.Sleep(upTo(rng, time.Second))
	}
}

// have enters a command that the tool call has started.
func (y *script) have(k *job, cmd terminal.Command, term terminal.Terminal, stopped bool) *owned {
	o := y.own(k, cmd, term, stopped)
	y.mu.Lock()
	defer y.mu.Unlock()
	y.mine = append(y.mine, o)
	return o
}

func (y *script) background(rng *rand.Rand, name string) {
	y.did.count("background")
	y.use()
	k, cmd := y.newJob(rng, name, y.id)
	end := y.watch(y.turn)
	term, err := y.call.StartBackground(y.ctx(rng), cmd)
	y.within("StartBackground", end(), limits.SettleTimeout)
	y.note("background %s: %v", name, err)
	if (term == nil) != (err != nil) {
		y.Errorf("StartBackground: %v, %v", term, err)
	}
	if term == nil {
		return
	}
	o := y.have(k, cmd, term, y.turn.Err() != nil)
	if chance(rng, 30) {
		ctx, cancel := context.WithTimeout(context.Background(), upTo(rng, 3*time.Second))
		defer cancel()
		var b strings.Builder
		_, _ = terminal.Copy(ctx, &b, term, 0)
	}
	if chance(rng, 10) {
		y.actor.mu.Lock()
		o.stopped = true
		y.actor.mu.Unlock()
		y.kill(o)
	}
}

func (y *script) exec(rng *rand.Rand, name string) {
	y.did.count("exec")
	y.use()
	k, cmd := y.newJob(rng, name, y.id)
	ctx := y.ctx(rng)
	if chance(rng, 10) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, upTo(rng, 2*time.Second))
		defer cancel()
	}
	var promotion sync.WaitGroup
	returned := make(chan struct{})
	if chance(rng, 20) {
		after := upTo(rng, 1500*time.Millisecond)
		promotion.Go(func() {
			select {
			case <-time.After(after):
				y.did.count("promotion")
				y.end("")
			case <-returned:
			}
		})
	}
	end, over := y.watch(ctx), y.watch(y.turn)
	within := time.Duration(math.MaxInt64)
	if chance(rng, 30) {
		within = upTo(rng, 1500*time.Millisecond)
	}
	res, err := y.call.ExecFor(ctx, cmd, within)
	since := end()
	if t := over(); t.Before(since) {
		since = t
	}
	y.within("Exec", since, limits.SettleTimeout+2*time.Second)
	close(returned)
	promotion.Wait()
	y.note("exec %s: %+v, %v", name, res, err)
	if res == nil {
		if err == nil {
			y.Errorf("exec %s: neither a result nor an error", name)
		}
		return
	}
	term, getErr := y.s.Get(res.ID)
	if getErr != nil {
		if !errors.Is(getErr, terminal.ErrNotFound) { // it may have ended meanwhile, and given way
			y.Errorf("exec %s: %v", name, getErr)
		}
		return
	}
	o := y.have(k, cmd, term, ctx.Err() != nil || y.turn.Err() != nil)
	text := res.Output
	if res.Truncated {
		text = terminal.GapMark + text
	}
	switch {
	case res.Outcome == terminal.Running:
		y.did.count("went on")
		if res.Exit.Known() {
			y.Errorf("exec %s goes on: %+v", name, res)
		}
	case res.Outcome.Ended():
		y.judge(o, text, res.Outcome, res.Exit, err)
	case err != nil:
		y.Errorf("exec %s: %s, and %v", name, res.Outcome, err)
	}
}

// settle judges every command of the session, which is closed.
func (x *actor) settle() {
	x.mu.Lock()
	all := slices.Clone(x.all)
	x.mu.Unlock()
	for _, o := range all {
		if !await.Closed(o.term.Done()) {
			x.Errorf("the session is closed, and %s runs", o.name)
			continue
		}
		var b strings.Builder
		if _, err := terminal.Copy(context.Background(), &b, o.term, 0); err != nil {
			x.Errorf("%s: %v", o.name, err)
		}
		info := o.term.Info()
		x.judge(o, b.String(), info.Outcome, info.Exit, info.Err)
	}
}

// judge compares what is said of a command with what it did.
func (x *actor) judge(o *owned, text string, outcome terminal.Outcome, exit terminal.Exit, err error) {
	x.mu.Lock()
	stopped := o.stopped
	x.mu.Unlock()
	x.c.mu.Lock()
	lost, stalled := await.Closed(x.c.lost), x.c.stalled
	x.c.mu.Unlock()
	k := o.job
	k.mu.Lock()
	defer k.mu.Unlock()
	wrote := k.wrote.String()
	bad := func(format string, args ...any) {
		x.Errorf("%s: %s; %s, %v, %v; it wrote %q and finished: %v", k.name, fmt.Sprintf(format, args...), outcome, exit, err, wrote, k.finished)
	}
	if k.starts != 1 && !k.missing {
		bad("it was started %d times", k.starts)
	}
	rest, marked := wrote, false
	for i, part := range strings.Split(text, strings.TrimSuffix(terminal.GapMark, "\n")) {
		if i > 0 {
			part, marked = strings.TrimPrefix(part, "\n"), true
		}
		at := strings.Index(rest, part)
		if at < 0 || i == 0 && at > 0 {
			bad("the text is not what it wrote: %q", text)
			return
		}
		rest = rest[at+len(part):]
	}
	if exit.Code != nil && (*exit.Code != k.code || !k.finished) {
		bad("it never exited so")
	}
	switch outcome {
	case terminal.Exited:
		if !k.finished || k.running > 0 {
			bad("it has not exited")
		}
		if err == nil && rest != "" && !marked {
			bad("%q is missing in %q", rest, text)
		}
	case terminal.Signalled, terminal.StoppedByClient:
		if !k.byUser && len(k.wronged) == 0 {
			bad("the client has not ended it")
		}
	case terminal.Stopped, terminal.Cancelled:
		if !stopped && !lost {
			bad("nobody has stopped it")
		}
	case terminal.TimedOut:
		if o.cmd.Timeout == 0 {
			bad("it has no timeout")
		}
	case terminal.ConnectionLost:
		if !lost {
			bad("the connection is there")
		}
	case terminal.Unknown, terminal.Failed:
		if err == nil {
			bad("there is no error")
		}
		if len(k.wronged) == 0 && !k.byUser && !lost && !stalled && !stopped {
			bad("the client got nothing wrong")
		}
	default:
		bad("it has ended")
	}
}
