package bridge

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// A Turn is one prompt, from its request to its answer. [State.Turn] makes it.
type Turn struct {
	s       *State
	cancel  context.CancelCauseFunc // ends the Turn; the first cause counts
	done    <-chan struct{}         // closed when the Turn ends
	stopped chan struct{}           // closed when stopCommands has stopped all that it can
	over    chan struct{}           // closed when the last of its updates was sent and it is answered

	// guarded by State.mu

	calls     []*Call
	cause     error         // not nil: nothing may begin any more
	cancelled bool          // the answer is "cancelled"
	deadline  time.Time     // valid with cause: when all must have settled
	busy      int           // methods of Calls under way
	idle      chan struct{} // not nil with cause: closed when busy is 0
}

// The causes of the end of a turn that did not come from outside.
var (
	errCancelled = fmt.Errorf("bridge: the client cancelled the turn: %w", context.Canceled)
	errTurnOver  = fmt.Errorf("bridge: the turn is over: %w", terminal.ErrEnded)
)

// Turn runs f as one prompt of the session and returns its answer, when
// everything that its open Calls own has ended and every Call has its final
// status. The ctx that f gets ends with ctx, with [State.Cancel], when the
// State closes and when the connection is gone.
//
// A cancelled turn is answered with the stop reason cancelled and no error,
// whatever f returns. If not all of it has ended within
// 5 s, an agent message says what is not known to have
// ended. A turn that is cancelled before it has begun does not run f. A panic of
// f becomes the error of the turn. On a closed State the error wraps
// [terminal.ErrClosed], on a lost connection [terminal.ErrConnectionLost].
//
// Turns of one session may overlap. With [Serve], or [acpwire.Connect], prompts
// do so only while the older ones, which are cancelled, are ending.
func (s *State) Turn(ctx context.Context, f func(context.Context, *Turn) (acp.PromptResponse, error)) (answer acp.PromptResponse, err error) {
	prompt := ctx
	ctx, cancel := context.WithCancelCause(prompt)
	t := &Turn{s: s, cancel: cancel, done: ctx.Done(), stopped: make(chan struct{}), over: make(chan struct{})}
	if err := t.begin(); err != nil {
		cancel(err)
		return acp.PromptResponse{}, err
	}
	// Every end of the turn is an end of its context, and goes this one way.
	context.AfterFunc(ctx, func() { t.stopCommands(context.Cause(ctx)) })
	defer func() {
		if v := recover(); v != nil {
			s.b.opts.Logger.Error("bridge: a turn panicked", "session", s.id, "panic", v, "stack", string(debug.Stack()))
			answer, err = acp.PromptResponse{}, fmt.Errorf("bridge: the turn panicked: %v", v)
		}
		answer, err = t.end(prompt, answer, err)
	}()
	if ctx.Err() == nil {
		return f(ctx, t)
	}
	return acp.PromptResponse{}, context.Cause(ctx)
}

// begin opens the turn.
func (t *Turn) begin() error {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.b.gone():
		return fmt.Errorf("bridge: %w", terminal.ErrConnectionLost)
	case s.closed:
		return fmt.Errorf("bridge: session %q: %w", s.id, terminal.ErrClosed)
	}
	s.turns = append(s.turns, t)
	return nil
}

// Cancel cancels every turn of the session that is open now, and no later one.
// It never blocks, and may be called at any time.
//
// Call it in the agent's Cancel, and before that returns. With [Serve], or
// [acpwire.Connect], the turns that are open then are those of the prompts that
// the client sent before its session/cancel: a later prompt waits until Cancel
// has returned, and of a prompt whose turn is yet to begin the ctx has ended. On a
// connection that acp.NewAgentSideConnection made, the SDK decides which prompts
// are before a cancel and which are not, and it is wrong about those close by.
func (s *State) Cancel() {
	s.mu.Lock()
	turns := slices.Clone(s.turns)
	for _, t := range turns {
		t.cancelled = true
	}
	s.mu.Unlock()
	for _, t := range turns {
		t.cancel(errCancelled)
	}
}

// stopCommands stops everything that the turn's open Calls own, in parallel and under
// one deadline, and lets nothing new begin. It runs once, on a goroutine of the
// turn's context.
func (t *Turn) stopCommands(cause error) {
	defer close(t.stopped)
	live := t.refuse(cause)
	if t.s.b.gone() {
		return // the managers have ended, or are ending, what there is
	}
	var all sync.WaitGroup
	for _, term := range live {
		all.Go(func() { stop(term) })
	}
	all.Wait()
}

// refuse lets nothing more begin, ends every wait, and returns the terminals that
// are to be stopped.
func (t *Turn) refuse(cause error) (live []terminal.Terminal) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	t.cause = cause
	t.cancelled = t.cancelled || cause != errTurnOver
	t.deadline = time.Now().Add(limits.SettleTimeout)
	t.idle = make(chan struct{})
	if t.busy == 0 {
		close(t.idle)
	}
	for _, c := range t.calls {
		if !c.ending {
			c.cancelPermits(cause)
		}
		for _, k := range c.commands {
			if k.owner == nil {
				continue // the State's
			}
			if k.cancel != nil {
				k.cancel(cause)
			}
			if k.live() {
				k.stopping = true
				live = append(live, k.term)
			}
		}
	}
	return live
}

// enter notes that a method of a Call is under way, for which the answer of the
// turn waits; leave that it has returned. Called with mu held.
func (t *Turn) enter() { t.busy++ }

func (t *Turn) leave() {
	t.busy--
	if t.busy == 0 && t.idle != nil {
		close(t.idle)
	}
}

// drop lets a Call go that has ended, unless the turn waits for something of it
// still. Called with mu held.
func (t *Turn) drop(c *Call) {
	if !slices.ContainsFunc(c.commands, (*command).unwanted) {
		t.calls = slices.DeleteFunc(t.calls, func(o *Call) bool { return o == c })
	}
}

// end settles the turn and maps its answer: that is cancelled even if the
// prompt's ctx has ended only meanwhile.
func (t *Turn) end(prompt context.Context, answer acp.PromptResponse, err error) (acp.PromptResponse, error) {
	defer close(t.over)
	t.cancel(errTurnOver)
	<-t.stopped
	s := t.s
	unknown := t.settle()
	t.endCalls(unknown)
	if len(unknown) > 0 && !s.b.gone() {
		text := "Not confirmed to have ended: " + strings.Join(unknown, "; ") + "."
		parts, _ := s.out.Chunks(acp.UpdateAgentMessageText(text))
		for _, part := range parts {
			_ = s.out.Put(part).Within(lastWords)
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns = slices.DeleteFunc(s.turns, func(o *Turn) bool { return o == t })
	switch {
	case s.b.gone():
		return acp.PromptResponse{}, fmt.Errorf("bridge: %w", terminal.ErrConnectionLost)
	case t.cancelled || prompt.Err() != nil:
		answer.StopReason = acp.StopReasonCancelled
		return answer, nil
	}
	return answer, err
}

// lastWords is how long the end of a turn waits for an update to be written
// when its time is up: a client that reads has it by then.
const lastWords = time.Second

// settle waits, until the turn's deadline, for the methods of its Calls to
// return and for the client to answer the creates that were given up. It
// returns what is not known to have ended.
func (t *Turn) settle() (unknown []string) {
	s := t.s
	timer := time.NewTimer(time.Until(t.deadline))
	defer timer.Stop()
	select {
	case <-t.idle:
	case <-s.b.lost:
		return nil
	case <-timer.C:
	}
	ctx, cancel := context.WithDeadline(context.Background(), t.deadline)
	defer cancel()
	for _, k := range t.owned() {
		v := s.view(k)
		wait := v.done
		if wait == nil {
			wait = v.created
		}
		if wait == nil {
			continue // it never started
		}
		select {
		case <-wait:
		case <-s.b.lost:
		case <-ctx.Done():
		}
		switch {
		case s.b.gone():
		case !await.Closed(wait), v.done != nil && v.info().Unconfirmed():
			unknown = append(unknown, describe(v))
		}
	}
	return unknown
}

// owned returns the commands whose end the turn waits for.
func (t *Turn) owned() (open []*command) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	for _, c := range t.calls {
		for _, k := range c.commands {
			if k.owner != nil || k.unwanted() { // else it is the State's
				open = append(open, k)
			}
		}
	}
	return open
}

// describe names the command of a view to a person.
func describe(v *command) string {
	line := updates.Middle(v.cmd.String(), 200, updates.CutMark)
	if v.done == nil {
		return fmt.Sprintf("%q, which the client was asked to run and did not answer", line)
	}
	return fmt.Sprintf("%q (%s)", line, v.info().ID)
}

// endCalls gives every open Call its final status.
func (t *Turn) endCalls(unknown []string) {
	calls, err := t.open()
	if len(unknown) > 0 {
		err = fmt.Errorf("%w; not everything is known to have ended", err)
	}
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() { c.end("", err, max(lastWords, time.Until(t.deadline)), true) })
	}
	all.Wait()
}

// open returns the Calls that the turn has still, and why it ends.
func (t *Turn) open() ([]*Call, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return slices.Clone(t.calls), t.cause
}

// ToolCall begins a tool call. The client is told of it when the first method of
// the Call that concerns the user is called, since only then is it known how its
// commands will be shown. On a turn that has ended, and for an id that an open
// Call has or that is empty, the Call's methods fail.
func (t *Turn) ToolCall(card acp.SessionUpdateToolCall) *Call {
	switch card.Status {
	case acp.ToolCallStatusCompleted, acp.ToolCallStatusFailed:
		card.Status = "" // that is for End to say
	}
	return t.newCall(card, false)
}

// newCall enters a Call with this card, or one whose methods fail.
func (t *Turn) newCall(face acp.SessionUpdateToolCall, attached bool) *Call {
	s := t.s
	c := &Call{s: s, id: face.ToolCallId, attached: attached, card: newCard(s.surface(), face, attached), ended: make(chan struct{})}
	size := updates.CheckID(string(c.id))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t.cause != nil || !slices.Contains(s.turns, t):
		c.dead = fmt.Errorf("bridge: tool call %q: the turn is over: %w", c.id, terminal.ErrEnded)
	case c.id == "":
		c.dead = errors.New("bridge: a tool call without an id")
	case size != nil:
		c.dead = fmt.Errorf("bridge: a tool call: %w", size)
	case s.cards[c.id] != nil:
		c.dead = fmt.Errorf("bridge: tool call %q is open already", c.id)
	case s.replays[c.id]:
		c.dead = fmt.Errorf("bridge: tool call %q is being replayed", c.id)
	default:
		s.cards[c.id] = c
		t.calls = append(t.calls, c)
		c.turn = t
	}
	return c
}
