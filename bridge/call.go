package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// A Call is one tool call. [Turn.ToolCall] makes it. It sends the call's card to
// the client: the tool_call when it is known how its commands will be shown, the
// live output, and exactly one final status, by End or by the end of the turn.
type Call struct {
	s        *State
	id       acp.ToolCallId
	card     *card
	attached bool          // the card is the agent's, who sends its start and its end
	dead     error         // why its methods fail from the start
	ended    chan struct{} // closed when result is valid

	// guarded by State.mu

	turn      *Turn       // nil when the Call has ended and none of its methods is under way
	called    bool        // a method that begins or changes something was called, whatever came of it
	busy      int         // methods under way
	commands  []*command  // in the order of their starts
	questions []*question // that wait for an answer of the user
	denied    error       // why the last Permit failed
	failed    bool        // a command failed, or could not be started
	ending    bool        // End was called
	verdict   verdict     // valid once ended is closed, as result is
	result    End
}

// End is what the last update of a tool call carried.
type End struct {
	Status acp.ToolCallStatus
	// Content replaced the content of the card; nil if it was omitted, since
	// the card shows a terminal that stays.
	Content   []acp.ToolCallContent
	RawOutput any
	Meta      map[string]any

	// Sent reports that the client was told: always, but for an attached Call
	// (see [Turn.Attach]) that its agent has ended.
	Sent bool
}

// errAdopted ends the wait of an Exec whose Call has ended: the command goes on.
var errAdopted = fmt.Errorf("bridge: the tool call: %w", terminal.ErrEnded)

// usable returns nil if the Call can begin something, else why not. Called with
// the State's mu held.
func (c *Call) usable() error {
	switch err := c.alive(); {
	case err != nil:
		return err
	case c.s.closed:
		return fmt.Errorf("bridge: %w", terminal.ErrClosed)
	}
	return c.turn.cause
}

// enter notes that a method of the Call is under way, for which the answer of
// its turn waits. Called with the State's mu held.
func (c *Call) enter() {
	c.busy++
	c.turn.enter()
}

// exit notes that it has returned. Called with the State's mu held.
func (c *Call) exit() {
	c.busy--
	c.turn.leave()
	c.detach()
}

// detach lets the turn of a Call go that has ended: a command that is kept does
// not keep all others of its turn. Called with the State's mu held.
func (c *Call) detach() {
	if c.busy == 0 && await.Closed(c.ended) && c.turn != nil {
		c.turn.drop(c)
		c.turn = nil
	}
}

// alive returns nil until the Call ends: what became of its commands can be told
// after the turn was cancelled, too.
func (c *Call) alive() error {
	c.called = true
	switch {
	case c.s.b.gone():
		return fmt.Errorf("bridge: %w", terminal.ErrConnectionLost)
	case c.dead != nil:
		return c.dead
	case c.ending:
		return fmt.Errorf("bridge: tool call %q: %w", c.id, terminal.ErrEnded)
	}
	return nil
}

// Update changes the card: its title, kind, locations, rawInput, status and the
// agent's own content, beside which commands are shown. RawOutput is held for
// the final update, and a final status is refused: End says it. Update works until
// the Call ends, on a cancelled turn too, since how a command was cancelled
// belongs in the card.
//
// Title and rawInput are cut if they do not fit a line of the wire, content that
// does not is a [terminal.ErrTooLarge]. Control and bidirectional characters in the
// title and in text content are spelled out. Update returns when the update is
// written, and after 5 s if the client does not read: then it
// is written when the client reads again.
func (c *Call) Update(u acp.SessionToolCallUpdate) error {
	if u.ToolCallId != "" && u.ToolCallId != c.id {
		return fmt.Errorf("bridge: an update of tool call %q for tool call %q", u.ToolCallId, c.id)
	}
	if u.Status != nil && (*u.Status == acp.ToolCallStatusCompleted || *u.Status == acp.ToolCallStatusFailed) {
		return fmt.Errorf("bridge: tool call %q: the final status %q is for End to say", c.id, *u.Status)
	}
	u, err := updates.FreezeUpdate(u)
	if err != nil {
		return fmt.Errorf("bridge: tool call %q: %w", c.id, err)
	}
	if n := updates.Size(u.Content) + updates.Size(u.Locations) + updates.Size(u.Meta); n > updates.Line/2 {
		return fmt.Errorf("bridge: tool call %q: %w: %d bytes of content; at most %d are sent", c.id, terminal.ErrTooLarge, n, updates.Line/2)
	}
	if err := c.isAlive(); err != nil {
		return err
	}
	c.card.keepReleased()
	w, err := c.card.update(u, c.s.b.routesLocally())
	if err != nil || w == nil {
		return err
	}
	return w.Within(limits.SettleTimeout)
}

func (c *Call) isUsable() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.usable()
}

func (c *Call) wasCalled() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.called
}

func (c *Call) isAlive() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.alive()
}

// begin makes a place for a command, and shows the card if it is not shown yet.
// The ctx that it returns ends with the given one, the Call and the turn. After
// an error of begin nothing is left of the command, else leave must be called.
func (c *Call) begin(ctx context.Context, cmd terminal.Command, background bool) (context.Context, *command, error) {
	s := c.s
	if err := c.isUsable(); err != nil {
		return nil, nil, err
	}
	if ctx.Err() != nil {
		return nil, nil, s.failure(ctx, nil)
	}
	cmd, err := s.prepare(cmd)
	var r route
	if err == nil {
		r, err = s.b.route(cmd)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.usable(); err != nil {
		return nil, nil, err
	}
	k := &command{call: c, owner: c, cmd: cmd, background: background, route: r}
	if err == nil {
		err = s.enter(k)
	}
	if err == nil {
		title, dir := s.face(cmd)
		if err = c.card.openFor(title, dir, !r.client); err != nil {
			s.leave(k)
		}
	}
	if err != nil {
		c.failed = true
		return nil, nil, err
	}
	ctx, k.cancel = context.WithCancelCause(ctx)
	c.commands = append(c.commands, k)
	c.enter()
	return ctx, k, nil
}

// leave ends what begin has begun.
func (c *Call) leave(k *command) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	k.cancel(nil)
	k.cancel = nil
	if k.done == nil {
		c.failed = true
	}
	c.exit()
}

// Exec runs a command and returns when it has ended. How it ended is a value:
// the error is nil for every exit, signal and timeout, and when somebody stopped
// it. When the Call ends first, the command goes on in the background and the
// outcome is [terminal.Running].
//
// When ctx or the turn ends the command is stopped, and its Result is returned
// with the Cause, and with what went wrong if it is not known to have ended. A
// Result and an error are returned, too, when the connection is gone
// ([terminal.ErrConnectionLost]), when nobody knows how the command ended, and
// when its output could not be read. A command that did not start has no Result:
// see [terminal.Manager] for the errors; a client that refused is an
// *acp.RequestError, with its own words.
func (c *Call) Exec(ctx context.Context, cmd terminal.Command) (*Result, error) {
	return c.ExecFor(ctx, cmd, await.Forever)
}

// ExecFor is Exec for a command that may take long. A command that still runs after
// the given time, counted from its start, becomes a background command, as if
// [Call.StartBackground] had started it, and ExecFor returns: the outcome is
// [terminal.Running], and the Cursor of the Result is where the next read goes on.
// Whether it has ended or goes on is decided once, so that the Result and the final
// status of the Call agree; a command that ends right after that was a background
// command.
//
// While Options.MaxBackground commands run in the background, the command stays in
// the foreground until it ends or one of them does. With Options.StopAtLimit it is
// stopped instead: its Result is returned with a [terminal.ErrTooMany].
func (c *Call) ExecFor(ctx context.Context, cmd terminal.Command, after time.Duration) (*Result, error) {
	ctx, k, err := c.begin(ctx, cmd, false)
	if err != nil {
		return nil, err
	}
	defer c.leave(k)
	t, err := c.s.start(ctx, k)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			went, err := c.promote(ctx, k)
			if went {
				return c.s.running(k, t)
			}
			if err != nil && c.s.b.opts.StopAtLimit {
				k.cancel(fmt.Errorf("bridge: the command was stopped after %v, as it could not go on in the background: %w", after, err))
			}
			timer.Reset(limits.PollMin)
			continue
		case <-t.Done():
		case <-ctx.Done():
		case <-c.s.b.lost:
		}
		return c.outcome(ctx, k, t)
	}
}

// promote makes the command of k, if it runs and nobody ends it, a background
// command. The error is that there is no slot for one.
func (c *Call) promote(ctx context.Context, k *command) (bool, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if k.background {
		return true, nil // its Call has ended meanwhile
	}
	if !k.live() || k.stopping || ctx.Err() != nil {
		return false, nil
	}
	if err := c.s.slot(); err != nil {
		return false, err
	}
	k.background = true
	return true, nil
}

// outcome is what Exec of the command of k, in the terminal t, returns when its
// wait is over.
func (c *Call) outcome(ctx context.Context, k *command, t terminal.Terminal) (*Result, error) {
	s := c.s
	cause := context.Cause(ctx)
	lost := s.b.gone()
	if !lost && s.view(k).background {
		return s.running(k, t) // its Call has ended
	}
	if !await.Closed(t.Done()) && cause != nil && !lost {
		s.stopping(k)
		stop(t)
	}
	r, err := s.result(k, t, t.Info())
	if r.Outcome == terminal.Running || r.Outcome == terminal.Stopped {
		switch {
		case lost:
			r.Outcome = terminal.ConnectionLost
			return r, fmt.Errorf("bridge: %w", terminal.ErrConnectionLost)
		case cause == nil:
			return r, errors.Join(t.Info().Err, err)
		case r.Outcome == terminal.Running:
			r.Outcome = terminal.Unknown // the stop is not confirmed
		case c.turnOver() && !errors.Is(cause, errTurnOver):
			r.Outcome = terminal.Cancelled
		}
		if info := t.Info(); info.Unconfirmed() && info.Err != nil {
			return r, fmt.Errorf("%w; %w", cause, info.Err)
		}
		return r, cause
	}
	s.b.judge(t) // before the caller can start the next command
	// The reason for the outcome, or what of the output could not be read.
	reason := t.Info().Err
	switch {
	case reason != nil:
		return r, reason
	case r.Outcome == terminal.ConnectionLost:
		return r, fmt.Errorf("bridge: %w", terminal.ErrConnectionLost)
	case r.Outcome == terminal.Unknown, r.Outcome == terminal.Failed:
		return r, errUnknown
	}
	return r, err
}

// turnOver reports whether the turn of a Call, of which a method is under way, has
// ended.
func (c *Call) turnOver() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return await.Closed(c.turn.done)
}

// StartBackground starts a command and returns once it runs. It goes on when the
// Call has ended; if the turn ends before the Call does, it is stopped, since
// nobody has been told of it.
func (c *Call) StartBackground(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	ctx, k, err := c.begin(ctx, cmd, true)
	if err != nil {
		return nil, err
	}
	defer c.leave(k)
	return c.s.start(ctx, k)
}

// Terminals returns the commands of the Call that have started and are kept, in
// the order in which it was asked for them: while Exec waits, too, so that a
// command can be read, or named when End sends it to the background.
func (c *Call) Terminals() []terminal.Terminal {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	var all []terminal.Terminal
	for _, k := range c.commands {
		if k.term != nil {
			all = append(all, k.term)
		}
	}
	return all
}

// End ends the tool call and sends its final status: failed if err is not nil,
// if a command did not start, or if a command of Exec ended in any other way than
// with exit code 0; else completed. A command that runs goes on in the
// background and belongs to the session.
//
// The final content is what the commands have written, then text, and why err
// failed the call if there is no text; but where the card shows a terminal, content
// is omitted and the terminal stays. What a command writes later in the background
// is added, as long as its session is open. The final status is sent
// once: later calls return what the first did. End returns when the update is
// written, and after 5 s if the client does not read.
func (c *Call) End(text string, err error) End {
	return c.end(text, err, limits.SettleTimeout, false)
}

// end is End with a bound. With orphaned nobody else sends the final update.
func (c *Call) end(words string, err error, bound time.Duration, orphaned bool) End {
	if c.dead != nil {
		return End{Status: acp.ToolCallStatusFailed}
	}
	commands, first := c.close()
	if !first {
		<-c.ended
		return c.result
	}
	defer c.over()
	deadline := time.Now().Add(bound)
	c.card.settling()
	v := verdict{status: acp.ToolCallStatusFailed}
	if failure := caught.Call(func() {
		c.readOutputs(commands, deadline)
		v = c.judge(commands, words, err)
	}); failure != nil {
		c.s.b.opts.Logger.Error("bridge: the end of a tool call panicked", "toolCall", c.id, "panic", failure.Value, "stack", failure.Stack)
		v.reason = reasonFor(failure)
	}
	send := !c.attached || orphaned && c.wasCalled()
	u, final := c.card.finish(v, send)
	c.leaveCard(commands)
	if !send { // what the agent sends fits a line, too
		if n, err := updates.Force(c.card.out.Notification(acp.SessionUpdate{ToolCallUpdate: &final})); err == nil {
			final = *n.Update.ToolCallUpdate
		}
	}
	c.verdict = v
	c.result = End{Status: v.status, Content: final.Content, RawOutput: final.RawOutput, Meta: final.Meta, Sent: send}
	if u != nil {
		u.Linger(time.Until(deadline))
	}
	return c.result
}

// close lets nothing more begin, and returns the commands of the Call; false if
// that was done before.
func (c *Call) close() ([]*command, bool) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.ending {
		return nil, false
	}
	c.ending = true
	if len(c.questions) > 0 {
		c.failed = true // the user has not allowed it
		c.cancelPermits(errAdopted)
	}
	for _, k := range c.commands {
		k.owner = nil // before an Exec can return, and the next command asks for a slot
		if k.cancel != nil && k.done == nil {
			c.failed = true // it has not started, and will not
		}
		if k.live() && !k.stopping {
			k.background = true
		}
		if k.cancel != nil {
			k.cancel(errAdopted)
		}
	}
	return slices.Clone(c.commands), true
}

// over publishes the result.
func (c *Call) over() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	close(c.ended)
	c.detach()
}

// readOutputs waits until the terminals of ended commands show all that there
// is, and reads the outputs that the final text consists of.
func (c *Call) readOutputs(commands []*command, deadline time.Time) {
	c.card.keepTexts()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for _, k := range commands {
		v := c.s.view(k)
		if v.pane == nil || v.pane.how != PresentDisplay || !v.ended() {
			continue
		}
		select {
		case <-v.shown:
		case <-c.s.b.lost:
		case <-timer.C:
			return
		}
	}
}

// judge decides the final status.
func (c *Call) judge(commands []*command, words string, err error) verdict {
	status := acp.ToolCallStatusCompleted
	for _, k := range commands {
		v := c.s.view(k)
		if v.done == nil {
			continue
		}
		info := v.info()
		switch {
		case v.background:
		case info.Outcome == terminal.Exited && info.Exit.Success():
		default:
			status = acp.ToolCallStatusFailed
		}
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err == nil {
		err = c.denied
	}
	if err != nil || c.failed {
		status = acp.ToolCallStatusFailed
	}
	return verdict{status: status, words: updates.Message(words), reason: reasonFor(err)}
}

// leaveCard ends what the card shows of its commands, but for what goes on, and lets
// another Call have its id.
func (c *Call) leaveCard(commands []*command) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range commands {
		if k.cancelDisplay != nil && !c.card.goesOn(k.pane) {
			k.cancelDisplay()
		}
	}
	delete(s.cards, c.id)
}

// reasonFor says to a person why a tool call failed.
func reasonFor(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errTurnOver):
		return "The turn ended before this did."
	case errors.Is(err, context.Canceled):
		return "Cancelled."
	}
	return updates.Message(strings.TrimPrefix(err.Error(), "bridge: "))
}
