package fakeconn_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// An effect is what a fault makes of the answers to a method, as far as the
// agent can tell. What must come of a command is derived from it.
type effect string

const (
	honest  effect = "honest"  // the true answer, within every bound
	late    effect = "late"    // the true answer, after every bound
	silent  effect = "silent"  // no answer, ever
	refused effect = "refused" // an error
	empty   effect = "empty"   // a success that says nothing
	bogus   effect = "bogus"   // the id of a terminal that the client does not know
	cut     effect = "cut"     // the connection ends
)

// A trouble is one kind of fault.
type trouble struct {
	name   string
	effect effect
	acts   bool // the client does what it was asked to
	once   bool // there is no point in a second time
	fault  fakeconn.Fault
	only   string // the method, "" is each
	not    string // a method that it is not for
}

const (
	toCreate  = acp.ClientMethodTerminalCreate
	toOutput  = acp.ClientMethodTerminalOutput
	toWait    = acp.ClientMethodTerminalWaitForExit
	toKill    = acp.ClientMethodTerminalKill
	toRelease = acp.ClientMethodTerminalRelease
)

var methods = []string{toCreate, toOutput, toWait, toKill, toRelease}

const (
	short = 300 * time.Millisecond
	long  = 47 * time.Second // more than limits.CreateTimeout and all that may follow before a Close is over
)

func troubles() []trouble {
	replace := func(with string) func(string) string { return func(string) string { return with } }
	upTo := func(last string) func(string) string {
		return func(raw string) string {
			start, _, _ := strings.Cut(raw, last)
			return start + last
		}
	}
	all := []trouble{
		{name: "request delayed", effect: honest, acts: true, fault: fakeconn.Fault{Delay: short}},
		{name: "answer delayed", effect: honest, acts: true, fault: fakeconn.Fault{Reply: true, Delay: short}},
		{name: "request late", effect: late, acts: true, fault: fakeconn.Fault{Delay: long}},
		{name: "answer late", effect: late, acts: true, fault: fakeconn.Fault{Reply: true, Delay: long}},
		{name: "request lost", effect: silent, fault: fakeconn.Fault{Drop: true}},
		{name: "answer lost", effect: silent, acts: true, fault: fakeconn.Fault{Reply: true, Drop: true}},
		{name: "answered twice", effect: honest, acts: true, fault: fakeconn.Fault{Reply: true, Twice: true}},
		// A request that comes twice makes two terminals, which no agent can help.
		{name: "asked twice", effect: honest, acts: true, not: toCreate, fault: fakeconn.Fault{Twice: true}},
		{name: "wrong id", effect: silent, acts: true, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("id", 999_999)}},
		{name: "id is a string", effect: silent, acts: true, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("id", "1")}},
		{name: "no id", effect: silent, acts: true, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Remove("id")}},
		{name: "unknown terminal", effect: refused, not: toCreate, fault: fakeconn.Fault{Edit: fakeconn.Set("params.terminalId", "nobody's")}},
		{name: "unknown terminal", effect: bogus, acts: true, only: toCreate, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result.terminalId", "nobody's")}},
		{name: "half an id", effect: silent, acts: true, fault: fakeconn.Fault{Reply: true, Edit: upTo(`"id":107`)}},
		{name: "most of a line", effect: refused, acts: true, fault: fakeconn.Fault{Reply: true, Edit: upTo(`,"result":`)}},
		{name: "half a request", effect: silent, fault: fakeconn.Fault{Edit: fakeconn.Cut}},
		{name: "no JSON", effect: silent, acts: true, fault: fakeconn.Fault{Reply: true, Edit: replace("]]> segmentation fault")}},
		{name: "an array", effect: silent, acts: true, fault: fakeconn.Fault{Reply: true, Edit: replace("[]")}},
		{name: "no result", effect: empty, acts: true, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Remove("result")}},
		{name: "result is a text", effect: refused, acts: true, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result", "done")}},
		{name: "empty result", effect: empty, acts: true, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result", map[string]any{})}},
		{name: "null result", effect: empty, acts: true, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result", nil)}},
		{name: "null terminalId", effect: empty, acts: true, only: toCreate, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result.terminalId", nil)}},
		{name: "no output", effect: empty, acts: true, only: toOutput, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Remove("result.output")}},
		{name: "null output", effect: empty, acts: true, only: toOutput, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result.output", nil)}},
		{name: "output is a list", effect: empty, acts: true, only: toOutput, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result.output", []any{7})}},
		{name: "null exitStatus", effect: honest, acts: true, only: toOutput, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result.exitStatus", nil)}},
		{name: "no exitCode", effect: empty, acts: true, only: toWait, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Remove("result.exitCode")}},
		{name: "null exitCode", effect: empty, acts: true, only: toWait, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result.exitCode", nil)}},
		{name: "10 MiB", effect: refused, acts: true, once: true, fault: fakeconn.Fault{Reply: true, Edit: fakeconn.Pad(10 << 20)}},
		{name: "disconnect, asked", effect: cut, once: true, fault: fakeconn.Fault{Disconnect: true}},
		{name: "disconnect, done", effect: cut, acts: true, once: true, fault: fakeconn.Fault{Reply: true, Disconnect: true}},
	}
	for _, code := range []int{-32601, -32603, -32800, -32002, -32000} {
		e := &acp.RequestError{Code: code, Message: "the client's own words"}
		all = append(all, trouble{name: fmt.Sprint("error ", code), effect: refused, fault: fakeconn.Fault{Error: e}})
		x := trouble{name: fmt.Sprint("error ", code, ", done"), effect: refused, acts: true, fault: fakeconn.Fault{Reply: true, Error: e}}
		if code == -32601 {
			x.not = toCreate // to have no such method and to create a terminal is a lie that nobody can see through
		}
		all = append(all, x)
	}
	return all
}

// A phase is when the fault comes, and what happens then.
type phase string

const (
	before   phase = "before start" // the command ends by itself in all but the last two
	running  phase = "running"
	atExit   phase = "at exit"
	atCancel phase = "at cancel" // the turn is cancelled while the command runs
	atClose  phase = "at close"  // the session is closed while the command runs
)

var phases = []phase{before, running, atExit, atCancel, atClose}

// A use is what the agent does with the command.
type use string

const (
	exec       use = "Exec"
	background use = "background"
	stopped    use = "Stop" // a background command that is stopped after a second
)

var uses = []use{exec, background, stopped}

// A cell is a case of the matrix.
type cell struct {
	method string
	trouble
	phase phase
	use   use
	every bool // the fault comes every time, not once
}

func (c cell) String() string {
	times := "once"
	if c.every {
		times = "every"
	}
	return strings.Join([]string{c.method[len("terminal/"):], c.name, string(c.phase), string(c.use), times}, "; ")
}

func cells() []cell {
	var all []cell
	for _, m := range methods {
		for _, t := range troubles() {
			if t.only != "" && t.only != m || t.not == m {
				continue
			}
			for _, p := range phases {
				for _, u := range uses {
					all = append(all, cell{m, t, p, u, false})
					if !t.once {
						all = append(all, cell{m, t, p, u, true})
					}
				}
			}
		}
	}
	return all
}

const (
	jobTime = 2 * time.Second
	jobCode = 3
	endAt   = time.Second // when the turn is cancelled, the session closed, the command stopped
	tick    = time.Millisecond
)

// A job is a program that remembers what it wrote.
type job struct {
	time time.Duration // how long it runs

	mu sync.Mutex
	// guards following
	wrote strings.Builder
}

func (j *job) run(p *memterm.Process) terminal.Exit {
	const lines = 20
	for i := range lines {
		text := fmt.Sprintf("line %d of the job\n", i+1)
		j.mu.Lock()
		_, err := io.WriteString(p.Stdout, text)
		if err == nil {
			j.wrote.WriteString(text)
		}
		j.mu.Unlock()
		if err != nil || !p.Sleep(j.time/lines) {
			return p.Death()
		}
	}
	return memterm.Code(jobCode)
}

func (j *job) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.wrote.String()
}

// A bridged is an agent of one session whose prompts are functions.
type bridged struct {
	acp.Agent
	b    *bridge.Bridge
	s    *bridge.State
	turn func(context.Context, *bridge.Turn) (acp.PromptResponse, error)
}

func (a *bridged) Prompt(ctx context.Context, _ acp.PromptRequest) (acp.PromptResponse, error) {
	return a.s.Turn(ctx, a.turn)
}

func (a *bridged) Cancel(context.Context, acp.CancelNotification) error {
	a.s.Cancel()
	return nil
}

func (a *bridged) Close() error { return a.b.Close() }

// A stage is where a cell plays.
type stage struct {
	*testing.T
	cell
	job      *job
	c        *fakeconn.Client
	local    *memterm.Manager
	agent    *bridged
	start    time.Time
	injected *fakeconn.Injected
	turned   chan struct{} // closed by turn: on a lost connection the prompt ends before it

	// What came of it.
	err       error // of Exec, StartBackground or Kill
	started   bool  // there was a terminal
	text      string
	outcome   terminal.Outcome
	exit      terminal.Exit
	display   bridge.Presentation
	infoErr   error         // why the outcome is what it is
	returned  time.Duration // when Exec returned, Kill did, or the command had ended
	answer    acp.PromptResponse
	promptErr error
	answered  time.Duration // when the prompt was
	alive     bool          // the program still ran then
	closeErr  error
	closing   time.Duration // how long it took
}

func newStage(t *testing.T, c cell) *stage {
	s := &stage{T: t, cell: c, job: &job{time: jobTime}, start: time.Now(), agent: &bridged{}, turned: make(chan struct{})}
	programs := map[string]memterm.Program{"job": s.job.run}
	s.local = memterm.New(&memterm.Options{Programs: programs})
	s.c = fakeconn.New(&fakeconn.Options{
		Programs: programs,
		Agent:    func(*acp.AgentSideConnection) acp.Agent { return s.agent },
	})
	s.agent.b = bridge.New(s.c.Conn(), s.c.Init(), &bridge.Options{
		Host:  acpterm.NoHost,
		Local: func(acp.SessionId) terminal.Manager { return s.local },
	})
	var err error
	if s.agent.s, err = s.agent.b.Session("s", "/work"); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stage) at() time.Duration { return time.Since(s.start) }

func (s *stage) until(at time.Duration) { time.Sleep(at - s.at()) }

func (s *stage) inject() {
	f := s.fault
	f.Method = s.method
	if !s.every {
		f.N = 1
	}
	s.injected = s.c.Inject(f)
}

// play runs the command and brings the fault on, in fake time.
func (s *stage) play() {
	if s.phase == before {
		s.inject()
	}
	var all sync.WaitGroup
	s.agent.turn = s.turn
	all.Go(func() {
		s.answer, s.promptErr = s.c.Prompt(context.Background(), "s", "go")
		s.answered, s.alive = s.at(), s.c.Memterm().Busy() || s.local.Busy()
	})
	switch s.phase {
	case running:
		s.until(endAt / 2)
		s.inject()
	case atExit:
		s.until(jobTime - tick)
		s.inject()
	case atCancel:
		s.until(endAt - 2*tick) // before a stop as well
		s.inject()
		s.until(endAt)
		if err := s.c.Cancel(context.Background(), "s"); err != nil && s.effect != cut {
			s.Errorf("cancel: %v", err)
		}
	case atClose:
		s.until(endAt - tick)
		s.inject()
		s.until(endAt)
		s.close()
	}
	all.Wait()
	<-s.turned
	s.close()
	time.Sleep(2 * long) // what comes late has come
}

func (s *stage) close() {
	start := time.Now()
	s.closeErr = s.agent.s.Close()
	s.closing = max(s.closing, time.Since(start))
}

// turn is the prompt.
func (s *stage) turn(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
	defer close(s.turned)
	call := t.ToolCall(acp.SessionUpdateToolCall{ToolCallId: "call", Title: "job", Kind: acp.ToolKindExecute})
	cmd := terminal.Command{Args: []string{"job"}}
	done := acp.PromptResponse{StopReason: acp.StopReasonEndTurn}
	if s.use == exec {
		r, err := call.Exec(ctx, cmd)
		s.returned, s.err = s.at(), err
		if r != nil {
			s.started, s.text, s.outcome, s.exit, s.display, s.infoErr = true, r.Output, r.Outcome, r.Exit, r.Presentation, err
		}
		call.End("", err)
		return done, nil
	}
	x, err := call.StartBackground(ctx, cmd)
	if err != nil {
		s.returned, s.err = s.at(), err
		call.End("", err)
		return done, nil
	}
	s.started = true
	s.display, _ = s.agent.s.Presentation(x.Info().ID)
	switch {
	case s.use == background && s.phase == atCancel:
		<-ctx.Done() // nobody was told of it: the turn ends it
	case s.use == background:
		call.End("", nil)
	case s.use == stopped:
		call.End("", nil)
		switch s.phase {
		case atExit:
			s.until(jobTime)
		case atCancel:
			s.until(endAt - tick) // the cancel finds it under way, or the prompt answered
		default:
			s.until(endAt)
		}
		_, s.err = s.agent.s.Stop(x.Info().ID)
	}
	bound, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	info, err := terminal.Wait(bound, x)
	s.returned = s.at()
	if err != nil {
		s.Errorf("the command has not ended after 5 minutes: %v", err)
	}
	var b strings.Builder
	if _, err := terminal.Copy(bound, &b, x, 0); err != nil {
		s.Errorf("its output: %v", err)
	}
	s.text, s.outcome, s.exit, s.infoErr = b.String(), info.Outcome, info.Exit, info.Err
	return done, nil
}

// judge compares what came of it with what the rules say. None of them knows
// what a cell did yesterday.
func (s *stage) judge() {
	e := s.effect
	if s.injected.Hits() == 0 {
		e = honest
	}
	of := func(method string) effect {
		if s.method == method {
			return e
		}
		return honest
	}
	lost := e == cut
	fallback := of(toCreate) == refused && !s.acts && s.fault.Error != nil && s.fault.Error.Code == -32601
	unstarted := of(toCreate) != honest && of(toCreate) != bogus && !fallback
	client, local := s.c.Memterm().Starts("job"), s.local.Starts("job")

	// Never twice, and where output is claimed, once.
	want := 1
	switch {
	case fallback:
	case unstarted && !s.acts:
		want = 0
	}
	if got := client + local; got != want {
		s.Errorf("the program was started %d times (%d locally), want %d", got, local, want)
	}
	if (local > 0) != fallback {
		s.Errorf("it was started %d times locally; the client has no such method: %v", local, fallback)
	}
	if !s.started && lost && s.phase == before {
		unstarted = true // the connection ended before the start returned
	}
	if s.started == unstarted {
		s.Errorf("there is a terminal: %v, want %v; %v", s.started, !unstarted, s.err)
	}

	s.judgeText(of(toOutput), of(toKill), lost || of(toCreate) == bogus)
	s.judgeOutcome(of, lost, unstarted, fallback)
	s.judgeTimes(of, unstarted)
	s.judgeEnd(of, lost, unstarted)
}

// judgeText: the text is what was written, from the start on and with a mark
// where something is missing; all of it, unless the outcome or an error says
// why not. A command that the client refuses to kill is ended by its release, at
// once: a line that it writes after the last read nobody can have, and the error
// of the kill says so.
func (s *stage) judgeText(outputs, kill effect, lost bool) {
	wrote := s.job.text()
	if !s.started {
		return
	}
	rest, parts := wrote, strings.Split(s.text, strings.TrimSuffix(terminal.GapMark, "\n"))
	for i, part := range parts {
		if i > 0 {
			part = strings.TrimPrefix(part, "\n")
		}
		at := strings.Index(rest, part)
		if at < 0 || i == 0 && at > 0 {
			s.Errorf("the text is not what was written: %q of %q", s.text, wrote)
			return
		}
		rest = rest[at+len(part):]
	}
	unread := rest != "" && strings.Count(rest, "\n") == 1 && kill == refused && s.infoErr != nil
	if outputs == honest && !lost && (rest != "" && !unread || len(parts) > 1) {
		s.Errorf("the client told all of its output, and %q is missing of the text %q", rest, s.text)
	}
	if rest != "" && len(parts) == 1 && s.infoErr == nil && outputs != empty {
		s.Errorf("%q is missing of the text, and neither a mark nor an error says so", rest)
	}
}

func (s *stage) judgeOutcome(of func(string) effect, lost, unstarted, fallback bool) {
	outcome := func(want ...terminal.Outcome) {
		if !slices.Contains(want, s.outcome) {
			s.Errorf("the outcome is %q, %v, %v; want one of %v", s.outcome, s.exit, s.infoErr, want)
		}
	}
	if s.exit.Code != nil && *s.exit.Code != jobCode {
		s.Errorf("the program exited with %d, not with %d", jobCode, *s.exit.Code)
	}
	if s.exit.Success() {
		s.Error("a success that never was")
	}
	natural := s.phase != atCancel && s.phase != atClose && s.use != stopped
	switch {
	case unstarted:
		s.judgeRefusal(of(toCreate), lost)
		return
	case lost && s.outcome == terminal.ConnectionLost:
		if !errors.Is(s.infoErr, terminal.ErrConnectionLost) {
			s.Errorf("the connection is lost, and the reason is %v", s.infoErr)
		}
		return
	case of(toCreate) == bogus:
		// The client does not know a terminal that it gave out a moment ago.
		outcome(terminal.StoppedByClient, terminal.Stopped, terminal.Cancelled)
		if s.infoErr == nil {
			s.Error("the client does not know the terminal, and there is no error")
		}
		return
	case lost && s.method != toRelease: // whose request is sent when all is over
		outcome(terminal.ConnectionLost)
		return
	case natural:
		outcome(terminal.Exited)
		if s.exit.Code == nil {
			s.Errorf("the exit is %v", s.exit)
		}
	case s.phase == atExit: // and stopped
		outcome(terminal.Exited, terminal.Stopped)
	case s.phase == atClose, s.use == stopped:
		outcome(terminal.Stopped, terminal.Cancelled)
	default:
		outcome(terminal.Cancelled, terminal.Stopped)
	}

	// An error says that something could not be done or found out.
	var reasons []string
	for _, m := range []string{toOutput, toKill} {
		if of(m) != honest {
			reasons = append(reasons, m)
		}
	}
	err := s.infoErr
	if s.use == exec && (s.phase == atCancel || s.phase == atClose) {
		if err == nil {
			s.Error("the command was ended, and Exec returned no error")
		}
		err = nil
	}
	if s.use == stopped && s.err != nil {
		s.Errorf("the stop: %v", s.err)
	}
	if err != nil && len(reasons) == 0 {
		s.Errorf("nothing went wrong with the command, but %v", err)
	}
	if of(toKill) != honest && !s.acts && of(toKill) != empty && !natural && s.phase != atExit && !s.exit.Known() && s.infoErr == nil {
		s.Error("the kill failed, and no error says so")
	}
	if want := map[bool]bridge.Presentation{true: bridge.PresentText, false: bridge.PresentClient}[fallback]; s.display != want {
		s.Errorf("the presentation is %q, want %q", s.display, want)
	}
}

// judgeRefusal: the command did not start, as far as the agent can know.
func (s *stage) judgeRefusal(creates effect, lost bool) {
	switch refusal, ok := errors.AsType[*acp.RequestError](s.err); {
	case s.err == nil:
		s.Error("the client created nothing, and there is no error")
	case lost:
		if !errors.Is(s.err, terminal.ErrConnectionLost) {
			s.Errorf("the connection is lost, and the error is %v", s.err)
		}
	case s.phase == atCancel, s.phase == atClose:
	case s.fault.Error != nil && (!ok || refusal.Code != s.fault.Error.Code || !strings.Contains(s.err.Error(), s.fault.Error.Message)):
		s.Errorf("the client said %v, the error is %v", s.fault.Error, s.err)
	case creates == empty && !errors.Is(s.err, acpterm.ErrBadReply):
		s.Errorf("the client answered nonsense, the error is %v", s.err)
	}
}

// judgeTimes: everything returns in time.
func (s *stage) judgeTimes(of func(string) effect, unstarted bool) {
	const slack = time.Second
	bound := jobTime + slack // by itself
	switch {
	case of(toCreate) == late, of(toCreate) == silent:
		bound = limits.CreateTimeout + slack
	case unstarted:
		bound = slack
	case of(toWait) != honest:
		bound = 2*jobTime + slack
	case of(toOutput) != honest:
		bound = jobTime + 2*limits.OutputTimeout + slack
	}
	if s.started && (s.phase == atCancel || s.phase == atClose || s.use == stopped) {
		bound = endAt + slack
		if s.phase == atExit {
			bound = jobTime + slack
		}
		if e := s.effect; e != honest && e != cut {
			bound += limits.SettleTimeout
		}
	} else if s.phase == atCancel || s.phase == atClose {
		bound = min(bound, endAt+slack)
	}
	if s.effect == honest {
		bound += 3 * short
	}
	if s.returned > bound {
		s.Errorf("it took %v, want at most %v", s.returned, bound)
	}
	if s.answered > bound+limits.SettleTimeout+slack {
		s.Errorf("the prompt was answered after %v, and the command over after %v", s.answered, s.returned)
	}
	if s.closing > 2*limits.SettleTimeout {
		s.Errorf("Close took %v", s.closing)
	}
}

// judgeEnd: the turn is over when its commands are; every terminal is released,
// or reported; nothing is left.
func (s *stage) judgeEnd(of func(string) effect, lost, unstarted bool) {
	switch {
	case lost:
		// Nobody is there to hear an answer.
	case s.promptErr != nil:
		s.Errorf("the prompt: %v", s.promptErr)
	case s.use == stopped && s.phase == atCancel && s.answered < endAt:
		if s.answer.StopReason != acp.StopReasonEndTurn {
			s.Errorf("the prompt was answered before the cancel, %q", s.answer.StopReason)
		}
	case (s.phase == atCancel || s.phase == atClose) && s.answer.StopReason != acp.StopReasonCancelled:
		s.Errorf("the prompt is answered %q", s.answer.StopReason)
	case s.phase == atCancel && s.use != stopped && s.alive && !strings.Contains(s.c.Messages(), "Not confirmed to have ended"):
		s.Error("the turn is over, the command runs, and nobody says so")
	}

	// What the agent could not know of, and what it could not reach.
	lie := of(toCreate) == bogus || unstarted && s.acts && of(toCreate) != late
	unreached := of(toRelease) != honest && !s.acts
	unreleased := s.c.Host().Unreleased("s")
	leaks := 0
	if leak, ok := errors.AsType[*terminal.LeakError](s.closeErr); ok {
		leaks = len(leak.Leaks)
	} else if s.closeErr != nil {
		s.Errorf("close: %v", s.closeErr)
	}
	if s.c.Memterm().Busy() && !lie && !lost {
		s.Errorf("the program still runs; unreleased: %v, reported: %v", unreleased, s.closeErr)
	}
	if len(unreleased) > 0 && !lie && !lost && !unreached {
		s.Errorf("never released: %v", unreleased)
	}
	wantLeaks := 0
	if !lost && (of(toCreate) == late || of(toCreate) == silent || s.every && (of(toRelease) == late || of(toRelease) == silent)) {
		wantLeaks = 1
	}
	if leaks != wantLeaks {
		s.Errorf("close reported %d leaks, want %d: %v", leaks, wantLeaks, s.closeErr)
	}
}

func (s *stage) finish() {
	if err := s.c.Close(); err != nil {
		s.Errorf("%v", err)
	}
	if err := s.local.Close(); err != nil {
		s.Errorf("the local side: %v", err)
	}
	if s.Failed() {
		s.Logf("Exec, Kill: %v; %q %v %v after %v; the prompt: %q %v after %v; close: %v\n%s", s.err, s.outcome, s.exit, s.infoErr, s.returned,
			s.answer.StopReason, s.promptErr, s.answered, s.closeErr, s.c.Transcript())
	}
}

var howMany = flag.Int("cells", 500, "how many cells of the fault matrix are tested; 0 is all")

// TestFaultMatrix is every terminal method × every fault × phase × use, through
// bridge, in fake time. Each cell is judged by rules, from what the client's
// programs really did. It prints its size and a table of the results; one cell
// runs again by -run with the name that it failed under. All cells are
//
//	go test -run TestFaultMatrix ./fakeconn -cells=0 -v
//
// and without -cells it is a sample, always the same.
func TestFaultMatrix(t *testing.T) {
	all := cells()
	results := &tally{of: len(all)}
	if n := *howMany; n > 0 && n < len(all) {
		sample := rand.New(rand.NewPCG(1, 2)).Perm(len(all))[:n]
		slices.Sort(sample)
		for i, at := range sample {
			all[i] = all[at]
		}
		all = all[:n]
	}
	for _, c := range all {
		hit, ran := 0, false
		ok := t.Run(c.String(), func(t *testing.T) {
			ran = true
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, c)
				s.play()
				s.judge()
				s.finish()
				hit = s.injected.Hits()
			})
		})
		if ran {
			results.add(c.name, c.method, ok, hit > 0)
		}
	}
	t.Logf("fault matrix: %s", results)
}

// A tally counts cells by fault and method.
type tally struct {
	of   int // cells that there are
	rows []string
	n    map[[2]string]*counts
	all  counts
}

type counts struct{ cells, hit, failed int }

func (r *tally) add(row, column string, ok, hit bool) {
	if r.n == nil {
		r.n = map[[2]string]*counts{}
	}
	if !slices.Contains(r.rows, row) {
		r.rows = append(r.rows, row)
	}
	c := r.n[[2]string{row, column}]
	if c == nil {
		c = &counts{}
		r.n[[2]string{row, column}] = c
	}
	for _, c := range []*counts{c, &r.all} {
		c.cells++
		if hit {
			c.hit++
		}
		if !ok {
			c.failed++
		}
	}
}

// String is the table: of each pair of a fault and a method, the cells and how
// many of them failed.
func (r *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d cells, in %d of them the fault came about; %d failed\n%-20s", r.all.cells, r.of, r.all.hit, r.all.failed, "")
	for _, m := range methods {
		fmt.Fprintf(&b, "%15s", m[len("terminal/"):])
	}
	for _, row := range r.rows {
		fmt.Fprintf(&b, "\n%-20s", row)
		for _, m := range methods {
			text := "-"
			if c := r.n[[2]string{row, m}]; c != nil {
				text = fmt.Sprintf("%d ok", c.cells-c.failed)
				if c.failed > 0 {
					text = fmt.Sprintf("%d/%d FAIL", c.failed, c.cells)
				}
			}
			fmt.Fprintf(&b, "%15s", text)
		}
	}
	return b.String()
}
