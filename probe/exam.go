package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/text"
)

// An exam is one probe at work. What it runs, it runs through these methods, which
// bound every request, and remember what must be released.
type exam struct {
	ctx context.Context
	w   *Wire
	o   Options

	// Set by checks that run alone, before those that use them.
	form   string // how commands are sent
	linger string // behind a command, where output right before the exit is late

	releasing sync.WaitGroup

	mu sync.Mutex
	// guards following
	found     map[string]Finding
	stopped   string
	live      map[*term]struct{} // created, and not released
	ids       map[string]*term   // the last terminal of each id
	mute      map[string]int     // requests of a method without an answer, in a row
	took      map[string][]time.Duration
	seesLater bool            // what a child wrote after the end of its command was shown
	late      []chan struct{} // of creates that nobody waits for; closed when all is done
}

func newExam(ctx context.Context, w *Wire, o Options) *exam {
	return &exam{
		ctx: ctx, w: w, o: o,
		found: map[string]Finding{},
		live:  map[*term]struct{}{},
		ids:   map[string]*term{},
		mute:  map[string]int{},
		took:  map[string][]time.Duration{},
	}
}

// Bounds of requests, which [exam.bound] adds to for a slow client.
const (
	firstBound  = 15 * time.Second // of the first create: the client may ask its user
	createBound = 8 * time.Second
	callBound   = 3 * time.Second
	muteBound   = 300 * time.Millisecond // where a client does not answer anyway
	exitBound   = 5 * time.Second        // of a command that ends at once
	confirm     = 60 * time.Millisecond  // between two reads of an output
	sweepBound  = 4 * time.Second
)

// over reports whether nothing more is to be asked.
func (x *exam) over() bool { return x.ctx.Err() != nil || x.w.gone() || x.isStopped() }

func (x *exam) isStopped() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stopped != ""
}

// stop ends the probe early.
func (x *exam) stop(why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stopped == "" {
		x.stopped = why
	}
}

// bound is how long to wait for what a client does at once: more where it, or its machine, is
// slow.
func (x *exam) bound(d time.Duration) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	more := 5 * middle(slices.Clone(x.took[acp.ClientMethodTerminalCreate]))
	return d + min(more, 4*d).Truncate(100*time.Millisecond)
}

// pause waits, and reports false when the probe is over.
func (x *exam) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.ctx.Done():
	case <-x.w.ended:
	}
	return !x.over()
}

// all does checks at once, few at a time.
func (x *exam) all(checks ...func()) {
	var done sync.WaitGroup
	slots := make(chan struct{}, 4)
	for _, check := range checks {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			if !x.over() {
				check()
			}
		})
	}
	done.Wait()
}

// A term is a terminal of the client.
type term struct {
	x        *exam
	id       string
	released bool // guarded by exam.mu
}

// A command is what a terminal/create asks for. Nil and negative leave a member out.
type command struct {
	command string
	args    []string
	dir     string
	env     map[string]string
	limit   int // 0 leaves it out
}

// sh is a shell line in the form that the client understands.
func (x *exam) sh(line string) command {
	line += x.linger
	if x.form == formLine {
		return command{command: line}
	}
	return command{command: "/bin/sh", args: []string{"-c", ":;" + line}}
}

// sleep is a program that does nothing for at least d, the first process of its terminal.
func (x *exam) sleep(d time.Duration) command {
	seconds := strconv.Itoa(int((d + time.Second - 1) / time.Second))
	if x.form == formLine {
		return command{command: "sleep " + seconds}
	}
	return command{command: "sleep", args: []string{seconds}}
}

func (x *exam) params(c command) map[string]any {
	p := map[string]any{"sessionId": x.o.Session, "command": c.command}
	if c.args != nil {
		p["args"] = c.args
	}
	if c.dir != "" {
		p["cwd"] = c.dir
	}
	if c.limit != 0 {
		p["outputByteLimit"] = c.limit
	}
	if c.env != nil {
		env := []map[string]string{}
		for name, value := range c.env {
			env = append(env, map[string]string{"name": name, "value": value})
		}
		p["env"] = env
	}
	return p
}

// do makes a request and waits for its answer within a bound, which is short for a
// method that the client does not answer.
func (x *exam) do(method string, params any, limit time.Duration, late func(reply)) (reply, bool) {
	x.mu.Lock()
	if x.mute[method] >= 2 {
		limit = min(limit, muteBound)
	}
	x.mu.Unlock()
	r, ok := x.w.await(x.ctx, x.w.send(method, params), limit, late)
	x.mu.Lock()
	defer x.mu.Unlock()
	if ok {
		x.mute[method] = 0
		x.took[method] = append(x.took[method], r.took)
	} else {
		x.mute[method]++
	}
	return r, ok
}

// create makes a terminal. Without one, err says why not.
func (x *exam) create(c command) (*term, error) {
	limit := x.bound(createBound)
	x.mu.Lock()
	if len(x.took[acp.ClientMethodTerminalCreate]) == 0 {
		limit = firstBound
	}
	x.mu.Unlock()
	done := make(chan struct{})
	r, ok := x.do(acp.ClientMethodTerminalCreate, x.params(c), limit, func(r reply) {
		defer close(done)
		x.createdLate(r)
	})
	if ok {
		return x.created(r)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.late = append(x.late, done)
	return nil, errNoAnswer
}

type plainError string

func (e plainError) Error() string { return string(e) }

const (
	errNoAnswer = plainError("terminal/create is not answered")
	errNoID     = plainError("terminal/create is answered without a terminalId")
	errSameID   = plainError("terminal/create is answered with the id of a terminal that is not released")
)

// created takes on what a create was answered with.
func (x *exam) created(r reply) (*term, error) {
	if r.err != nil {
		return nil, r.err
	}
	var made struct {
		TerminalID json.RawMessage `json:"terminalId"`
	}
	t := &term{x: x}
	_ = json.Unmarshal(r.result, &made)
	var number json.Number
	numbered := json.Unmarshal(made.TerminalID, &t.id) != nil && json.Unmarshal(made.TerminalID, &number) == nil
	if numbered {
		t.id = number.String()
	}
	if t.id == "" {
		return nil, errNoID
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if numbered {
		x.find(Finding{Name: "ids", Verdict: Deviates, Value: "a number", Spec: specID + " It is a string.", Detail: t.id})
	}
	if before := x.ids[t.id]; before != nil {
		if !before.released {
			x.find(Finding{Name: "ids", Verdict: Deviates, Value: "given twice", Spec: specCreate, Detail: fmt.Sprintf("%q is given again while its terminal lives", t.id)})
			return nil, errSameID
		}
		x.find(Finding{Name: "ids", Verdict: Deviates, Value: "come again", Spec: specReleased, Detail: fmt.Sprintf("%q was released before", t.id)})
	}
	x.ids[t.id] = t
	x.live[t] = struct{}{}
	return t, nil
}

// createdLate ends what a create brings that nobody waits for any more.
func (x *exam) createdLate(r reply) {
	t, err := x.created(r)
	if err != nil {
		return
	}
	ctx := context.WithoutCancel(x.ctx)
	x.w.await(ctx, x.w.send(acp.ClientMethodTerminalKill, t.params()), sweepBound/4, nil)
	if c := t.sendRelease(); c != nil {
		x.w.await(ctx, c, sweepBound/4, nil)
	}
}

func (t *term) params() map[string]any {
	return map[string]any{"sessionId": t.x.o.Session, "terminalId": t.id}
}

// A status is an exit status as it came. Null and missing are the same.
type status struct {
	Code   *json.Number `json:"exitCode"`
	Signal *string      `json:"signal"`
}

func (s *status) String() string {
	switch {
	case s == nil:
		return "no exit status"
	case s.Code == nil && s.Signal == nil:
		return "neither exitCode nor signal"
	case s.Signal == nil:
		return "exitCode " + s.Code.String()
	case s.Code == nil:
		return fmt.Sprintf("signal %q", *s.Signal)
	}
	return fmt.Sprintf("exitCode %s and signal %q", s.Code, *s.Signal)
}

func (s *status) void() bool { return s == nil || s.Code == nil && s.Signal == nil }
func (s *status) success() bool {
	return s != nil && s.Code != nil && s.Code.String() == "0" && s.quiet()
}
func (s *status) quiet() bool        { return s.Signal == nil || *s.Signal == "" || *s.Signal == "0" }
func (s *status) code(n string) bool { return s != nil && s.Code != nil && s.Code.String() == n }

// An output is a terminal/output as it came.
type output struct {
	ok        bool
	err       *rpcError
	text      string
	truncated bool
	status    *status
	took      time.Duration
}

func (t *term) output() output { return t.outputWithin(t.x.bound(callBound)) }

func (t *term) outputWithin(limit time.Duration) output {
	r, ok := t.x.do(acp.ClientMethodTerminalOutput, t.params(), limit, nil)
	return readOutput(r, ok)
}

func readOutput(r reply, ok bool) output {
	var o struct {
		Output     string          `json:"output"`
		Truncated  bool            `json:"truncated"`
		ExitStatus json.RawMessage `json:"exitStatus"`
	}
	if !ok || r.err != nil {
		return output{err: r.err, took: r.took}
	}
	_ = json.Unmarshal(r.result, &o) // what does not fit stays zero
	out := output{ok: true, text: o.Output, truncated: o.Truncated, took: r.took}
	if len(o.ExitStatus) > 0 && string(o.ExitStatus) != "null" {
		out.status = new(status)
		_ = json.Unmarshal(o.ExitStatus, out.status)
	}
	return out
}

// A wait is a terminal/wait_for_exit under way.
type wait struct {
	t    *term
	call *call
}

func (t *term) wait() wait {
	return wait{t, t.x.w.send(acp.ClientMethodTerminalWaitForExit, t.params())}
}

// within returns how the command has ended, if the client says it in time; err is
// an error that it answered with.
func (w wait) within(limit time.Duration) (s *status, err *rpcError, ok bool) {
	r, ok := w.t.x.w.await(w.t.x.ctx, w.call, limit, nil)
	if !ok || r.err != nil {
		return nil, r.err, ok
	}
	s = new(status)
	_ = json.Unmarshal(r.result, s)
	return s, nil, true
}

func (t *term) kill() (reply, bool) { return t.killWithin(t.x.bound(callBound)) }

func (t *term) killWithin(limit time.Duration) (reply, bool) {
	return t.x.do(acp.ClientMethodTerminalKill, t.params(), limit, nil)
}

// release releases the terminal, once, and waits for nothing.
func (t *term) release() {
	if c := t.sendRelease(); c != nil {
		t.x.releasing.Go(func() { t.x.w.await(context.WithoutCancel(t.x.ctx), c, sweepBound, nil) })
	}
}

// sendRelease sends the release, unless that is done.
func (t *term) sendRelease() *call {
	x := t.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.released {
		return nil
	}
	t.released = true
	delete(x.live, t)
	return x.w.send(acp.ClientMethodTerminalRelease, t.params())
}

// sweep ends and releases what is left, and waits for the answers within bounds.
func (x *exam) sweep() {
	if x.w.gone() {
		return
	}
	detached, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), sweepBound)
	defer cancel()
	x.mu.Lock()
	left := make([]*term, 0, len(x.live))
	for t := range x.live {
		left = append(left, t)
	}
	late := x.late
	x.mu.Unlock()
	var all sync.WaitGroup
	for _, done := range late {
		all.Go(func() {
			select {
			case <-done:
			case <-detached.Done():
			case <-x.w.ended:
			}
		})
	}
	for _, t := range left {
		all.Go(func() {
			x.w.await(detached, x.w.send(acp.ClientMethodTerminalKill, t.params()), sweepBound/2, nil)
			if c := t.sendRelease(); c != nil {
				x.w.await(detached, c, sweepBound/2, nil)
			}
		})
	}
	all.Wait()
	x.releasing.Wait()
}

// A result is what became of a command that ends by itself.
type result struct {
	err           error // why it was not started
	first, second output
	early         output  // read before the exit, if that was asked for
	exit          *status // of terminal/wait_for_exit
	exitErr       *rpcError
	waited        bool          // that was answered
	limit         time.Duration // for how long it was waited for
	term          *term
}

// text is all that the outputs have shown.
func (r *result) text() string {
	a, b := r.first.text, r.second.text
	if e := r.early.text; len(e) > len(a) {
		a = e
	}
	if strings.Contains(b, a) {
		return b
	}
	if strings.Contains(a, b) {
		return a
	}
	return a + b
}

// lines is text with line feeds as ends.
func (r *result) lines() string { return strings.ReplaceAll(r.text(), "\r\n", "\n") }

// ended returns the exit status that is known, by one source or the other.
func (r *result) ended() *status {
	if !r.exit.void() {
		return r.exit
	}
	if !r.second.status.void() {
		return r.second.status
	}
	return r.exit
}

// run runs a command that ends by itself, and releases its terminal unless keep is
// set. With read the output is read from the start on, or a client whose output is a
// pipe would hold up the command.
func (x *exam) run(c command, read, keep bool) (r result) {
	if r.term, r.err = x.create(c); r.err != nil {
		return r
	}
	if !keep {
		defer r.term.release()
	}
	w := r.term.wait()
	var early *call
	if read {
		early = x.w.send(acp.ClientMethodTerminalOutput, r.term.params())
	}
	r.limit = x.bound(exitBound)
	r.exit, r.exitErr, r.waited = w.within(r.limit)
	if early != nil {
		a, ok := x.w.await(x.ctx, early, x.bound(callBound), nil)
		r.early = readOutput(a, ok)
	}
	r.first = r.term.output()
	if x.pause(confirm) {
		r.second = r.term.output()
	}
	return r
}

// find takes a finding; the first of each name counts. Called with mu held.
func (x *exam) find(f Finding) {
	if _, ok := x.found[f.Name]; !ok {
		x.found[f.Name] = f
	}
}

func (x *exam) report(f Finding) {
	if x.over() && f.Verdict != Pass && x.ctx.Err() != nil {
		return // it may be only that the time is up
	}
	f.Detail = text.Head(f.Detail, maxDetail)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.find(f)
}

// maxDetail bounds what is said of one finding, so that a report fits into an update.
const maxDetail = 200

func (x *exam) pass(name, value, detail string, args ...any) {
	x.report(Finding{Name: name, Verdict: Pass, Value: value, Detail: fmt.Sprintf(detail, args...)})
}

func (x *exam) deviates(name, value, spec, detail string, args ...any) {
	x.report(Finding{Name: name, Verdict: Deviates, Value: value, Spec: spec, Detail: fmt.Sprintf(detail, args...)})
}

func (x *exam) unknown(name, detail string, args ...any) {
	x.report(Finding{Name: name, Verdict: Unknown, Detail: fmt.Sprintf(detail, args...)})
}
