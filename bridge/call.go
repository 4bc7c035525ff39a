package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/terminal"
)

// A Call is one tool call. [Turn.ToolCall] makes it. It sends the call's card to
// the client: the tool_call when it is known how its commands will be shown, the
// live output, and exactly one final status, by End or by the end of the turn.
type Call struct {
	s     *State
	turn  *Turn
	id    acp.ToolCallId
	dead  error         // why its methods fail from the start
	ended chan struct{} // closed when result is valid

	// guarded by State.mu

	card      acp.SessionUpdateToolCall // as the client has it, or will first get it
	sent      bool                      // it was put on the wire
	attached  bool                      // it is the agent's, who sends its start and its end
	content   []acp.ToolCallContent     // the agent's own part of the content
	rawOutput any                       // for the final update
	terminal  *displayTerminal          // that the card embeds; nil if none
	commands  []*command                // in the order of their starts
	questions []*question               // that wait for an answer of the user
	denied    error                     // why the last Permit failed
	failed    bool                      // a command failed, or could not be started
	last      time.Time                 // of its last update
	latest    *update                   // its last update; nil if there is none
	beat      *update                   // the last keep-alive
	ending    bool                      // End was called: the State owns the commands
	over      bool                      // the final update was queued
	words     string                    // what End was told, and why it failed
	reason    string
	result    End // valid once ended is closed
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

// alive returns nil until the Call ends: what became of its commands can be told
// after the turn was cancelled, too.
func (c *Call) alive() error {
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
// does not is a [terminal.ErrTooLarge]. Update returns when the update is written,
// and after [terminal.SettleTimeout] if the client does not read.
func (c *Call) Update(u acp.SessionToolCallUpdate) error {
	if u.ToolCallId != "" && u.ToolCallId != c.id {
		return fmt.Errorf("bridge: an update of tool call %q for tool call %q", u.ToolCallId, c.id)
	}
	if u.Status != nil && (*u.Status == acp.ToolCallStatusCompleted || *u.Status == acp.ToolCallStatusFailed) {
		return fmt.Errorf("bridge: tool call %q: the final status %q is for End to say", c.id, *u.Status)
	}
	if b, err := json.Marshal(u.Content); err != nil || len(b) > terminal.MaxUpdateLine/2 {
		return fmt.Errorf("bridge: tool call %q: %w: %d bytes of content; at most %d are sent", c.id, terminal.ErrTooLarge, len(b), terminal.MaxUpdateLine/2)
	}
	c.readReleased()
	w, err := c.update(u)
	if err != nil || w == nil {
		return err
	}
	return c.s.b.wire.within(terminal.SettleTimeout, w)
}

func (c *Call) update(u acp.SessionToolCallUpdate) (*update, error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.alive(); err != nil {
		return nil, err
	}
	if u.RawOutput != nil {
		c.rawOutput, u.RawOutput = u.RawOutput, nil
	}
	replaced := u.Content != nil
	if replaced {
		c.content = u.Content
	}
	merge(&c.card, u)
	if !c.sent {
		return c.openAny()
	}
	if !replaced && u.Kind == nil && u.Locations == nil && u.RawInput == nil && u.Status == nil && u.Title == nil && u.Meta == nil {
		return nil, nil
	}
	var embeds []string
	if replaced {
		u.Content, embeds = c.compose(false)
	}
	u.ToolCallId = c.id
	n, err := fit(acp.SessionNotification{SessionId: s.id, Update: acp.SessionUpdate{ToolCallUpdate: &u}}, false)
	if err != nil {
		return nil, err
	}
	c.last = time.Now()
	c.latest = s.b.wire.put(n, embeds...)
	return c.latest, nil
}

// merge applies u to a card, without content and rawOutput.
func merge(card *acp.SessionUpdateToolCall, u acp.SessionToolCallUpdate) {
	if u.Title != nil {
		card.Title = *u.Title
	}
	if u.Kind != nil {
		card.Kind = *u.Kind
	}
	if u.Status != nil {
		card.Status = *u.Status
	}
	if u.Locations != nil {
		card.Locations = u.Locations
	}
	if u.RawInput != nil {
		card.RawInput = u.RawInput
	}
	if u.Meta != nil {
		card.Meta = maps.Clone(card.Meta)
		if card.Meta == nil {
			card.Meta = make(map[string]any)
		}
		maps.Copy(card.Meta, u.Meta)
	}
}

// open sends the card, if it is held back still; with a display terminal if
// display is set and the client shows them. Called with mu held.
func (c *Call) open(display bool, cwd string) (*update, error) {
	if c.sent {
		return nil, nil
	}
	if c.card.Status == "" {
		c.card.Status = acp.ToolCallStatusInProgress
	}
	card := c.card
	card.Content = c.content
	display = display && c.s.b.display
	if display {
		addTerminal(&card, cwd)
	}
	n, err := fit(acp.SessionNotification{SessionId: c.s.id, Update: acp.SessionUpdate{ToolCall: &card}}, false)
	if err != nil {
		return nil, err
	}
	if display {
		c.terminal = new(displayTerminal)
	}
	c.sent = true
	c.last = time.Now()
	return c.s.b.wire.put(n), nil
}

// openAny sends the card before it is known what it will run, if anything: a
// display terminal must be there from the start, and this card may need one.
// Called with mu held.
func (c *Call) openAny() (*update, error) {
	r, err := c.s.b.route(terminal.Command{})
	return c.open(c.card.Kind == acp.ToolKindExecute && err == nil && !r.client, c.s.cwd)
}

// begin makes a place for a command, and shows the card if it is not shown yet.
// The ctx that it returns ends with the given one, the Call and the turn. After
// an error of begin nothing is left of the command, else leave must be called.
func (c *Call) begin(ctx context.Context, cmd terminal.Command, background bool) (context.Context, *command, error) {
	s := c.s
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
	k := &command{call: c, cmd: cmd, background: background, route: r}
	if err == nil {
		err = s.enter(k)
	}
	if err == nil {
		if !c.sent {
			c.card.Status = acp.ToolCallStatusInProgress
			if c.card.Title == "" {
				c.card.Title = cmd.String()
			}
		}
		dir := cmd.Dir
		if dir == "" {
			dir = s.cwd
		}
		if _, err = c.open(!r.client, dir); err != nil {
			k.entry.Forget()
		}
	}
	if err != nil {
		c.failed = true
		return nil, nil, err
	}
	ctx, k.cancel = context.WithCancelCause(ctx)
	c.commands = append(c.commands, k)
	c.turn.enter()
	return ctx, k, nil
}

// leave ends what begin has begun.
func (c *Call) leave(k *command) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	k.cancel(nil)
	k.cancel = nil
	if k.term == nil {
		c.failed = true
	}
	c.turn.leave()
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
	ctx, k, err := c.begin(ctx, cmd, false)
	if err != nil {
		return nil, err
	}
	defer c.leave(k)
	if err := c.s.start(ctx, k); err != nil {
		return nil, err
	}
	select {
	case <-k.term.Done():
	case <-ctx.Done():
	case <-c.s.b.lost:
	}
	return c.outcome(ctx, k)
}

// outcome is what Exec returns when its wait is over.
func (c *Call) outcome(ctx context.Context, k *command) (*Result, error) {
	s := c.s
	cause := context.Cause(ctx)
	lost := s.b.gone()
	adopted := errors.Is(cause, errAdopted)
	if k.live() && cause != nil && !lost && !adopted {
		s.mu.Lock()
		k.stopping = true
		s.mu.Unlock()
		stop(k.term)
	}
	r, err := s.result(k)
	if r.Outcome == terminal.Running || r.Outcome == terminal.Stopped {
		switch {
		case lost:
			r.Outcome = terminal.ConnectionLost
			return r, fmt.Errorf("bridge: %w", terminal.ErrConnectionLost)
		case cause == nil:
			return r, errors.Join(k.term.Info().Err, err)
		case adopted:
			return r, err
		case r.Outcome == terminal.Running:
			r.Outcome = terminal.Unknown // the stop is not confirmed
		case closed(c.turn.done) && !errors.Is(cause, errTurnOver):
			r.Outcome = terminal.Cancelled
		}
		if info := k.term.Info(); unconfirmed(info) && info.Err != nil {
			return r, fmt.Errorf("%w; %w", cause, info.Err)
		}
		return r, cause
	}
	s.b.judge(k.term) // before the caller can start the next command
	// The reason for the outcome, or what of the output could not be read.
	reason := k.term.Info().Err
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

// StartBackground starts a command and returns once it runs. It goes on when the
// Call has ended; if the turn ends before the Call does, it is stopped, since
// nobody has been told of it.
func (c *Call) StartBackground(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	ctx, k, err := c.begin(ctx, cmd, true)
	if err != nil {
		return nil, err
	}
	defer c.leave(k)
	if err := c.s.start(ctx, k); err != nil {
		return nil, err
	}
	return k.term, nil
}

// Terminals returns the commands of the Call that have started, in the order in
// which it was asked for them: while Exec waits, too, so that a command can be
// read, or named when End sends it to the background.
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
// The final content is text, or what the commands have written; but where the
// card shows a terminal, content is omitted and the terminal stays. End sends
// once: later calls return what the first did. It returns when the update is
// written, and after [terminal.SettleTimeout] if the client does not read.
func (c *Call) End(text string, err error) End {
	return c.end(text, err, terminal.SettleTimeout, false)
}

// end is End with a bound. With orphaned nobody else sends the final update.
func (c *Call) end(words string, err error, bound time.Duration, orphaned bool) End {
	s := c.s
	s.mu.Lock()
	if c.dead != nil {
		s.mu.Unlock()
		return End{Status: acp.ToolCallStatusFailed}
	}
	if c.ending {
		s.mu.Unlock()
		<-c.ended
		return c.result
	}
	c.ending = true
	if len(c.questions) > 0 {
		c.failed = true // the user has not allowed it
		c.dismiss(errAdopted)
	}
	for _, k := range c.commands {
		if k.cancel != nil && k.term == nil {
			c.failed = true // it has not started, and will not
		}
		if k.cancel != nil {
			k.cancel(errAdopted)
		}
	}
	commands := slices.Clone(c.commands)
	s.mu.Unlock()

	deadline := time.Now().Add(bound)
	c.readOutputs(commands, deadline)
	s.mu.Lock()
	u := c.finish(words, err, !c.attached || orphaned && (c.latest != nil || len(c.commands) > 0))
	s.mu.Unlock()
	if u != nil {
		s.b.wire.linger(time.Until(deadline), u)
	}
	close(c.ended)
	return c.result
}

// readOutputs waits until the terminals of ended commands show all that there
// is, and reads the outputs that the final text consists of.
func (c *Call) readOutputs(commands []*command, deadline time.Time) {
	s := c.s
	c.readReleased()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for _, k := range commands {
		s.mu.Lock()
		term, show, shown := k.term, k.show, k.shown
		s.mu.Unlock()
		switch show := show.(type) {
		case *displayPresenter:
			if closed(term.Done()) {
				select {
				case <-shown:
				case <-s.b.lost:
				case <-timer.C:
					return
				}
			}
		case *textPresenter:
			text, _, _ := readPlain(term, 2*terminal.TextLimit, 0)
			s.mu.Lock()
			show.text = text
			s.mu.Unlock()
		}
	}
}

// readReleased reads the outputs that stand, as text, for terminals that no
// update can embed any more.
func (c *Call) readReleased() {
	s := c.s
	s.mu.Lock()
	var ended []*command
	for _, k := range c.commands {
		if k.route.client && k.final == nil && k.term != nil && !k.live() {
			ended = append(ended, k)
		}
	}
	s.mu.Unlock()
	for _, k := range ended {
		out, _, _ := readPlain(k.term, terminal.TextLimit, 0)
		s.mu.Lock()
		k.final = &out
		s.mu.Unlock()
	}
}

// finish hands the commands to the State and queues the final update, if it is to
// be sent. It returns the last update. Called with mu held.
func (c *Call) finish(words string, err error, send bool) *update {
	s := c.s
	c.over = true
	if err == nil {
		err = c.denied
	}
	status := acp.ToolCallStatusCompleted
	if err != nil || c.failed {
		status = acp.ToolCallStatusFailed
	}
	embedded, texts := c.terminal != nil && c.terminal.used, false
	for _, k := range c.commands {
		if k.term == nil {
			continue
		}
		info := k.term.Info()
		switch {
		case k.background:
		case info.Outcome == terminal.Running && !k.stopping: // promoted
		case info.Outcome == terminal.Exited && info.Exit.Success():
		default:
			status = acp.ToolCallStatusFailed
		}
		switch k.show.(type) {
		case *clientPresenter:
			embedded = embedded || k.embedded
			k.hush()
		case *textPresenter:
			texts = true
			k.hush()
		}
	}
	s.ledger.Occupy(c)
	s.ledger.Adopt(c, nil)
	delete(s.cards, c.id)

	if _, err := c.open(false, ""); err != nil {
		// What does not fit cannot be shown, but that there was a call must be.
		c.card = acp.SessionUpdateToolCall{ToolCallId: c.id, Title: c.card.Title, Kind: c.card.Kind}
		c.content = nil
		_, _ = c.open(false, "")
	}
	c.words, c.reason = words, reason(err)
	u := acp.SessionToolCallUpdate{Status: &status, RawOutput: c.rawOutput}
	switch {
	case !embedded:
		u.Content = c.finalContent(words, err)
	case texts:
		if content, embeds := c.compose(false); len(embeds) == 0 {
			u.Content = content
		}
	}
	if c.terminal != nil {
		c.terminal.end(&u, c.id)
	}
	c.result = End{Status: status, Content: u.Content, RawOutput: u.RawOutput, Meta: u.Meta, Sent: send}
	if !send {
		if n, err := s.fitCard(c, u); err == nil {
			c.result.Content, c.result.RawOutput = n.Update.ToolCallUpdate.Content, n.Update.ToolCallUpdate.RawOutput
		} else {
			c.result = End{Status: status}
		}
		return c.latest
	}
	if sent := s.put(c, u); sent != nil {
		return sent
	}
	c.result = End{Status: status, Sent: true}
	return s.put(c, acp.SessionToolCallUpdate{Status: &status})
}

// finalContent is the content of a card that shows no terminal.
func (c *Call) finalContent(words string, err error) []acp.ToolCallContent {
	if words != "" {
		return append(slices.Clone(c.content), acp.ToolContent(acp.TextBlock(words)))
	}
	content, _ := c.compose(true)
	if err != nil {
		content = append(content, acp.ToolContent(acp.TextBlock(reason(err))))
	}
	if len(content) == 0 {
		return nil
	}
	return content
}

// reason says to a person why a tool call failed.
func reason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errTurnOver):
		return "The turn ended before this did."
	case errors.Is(err, context.Canceled):
		return "Cancelled."
	}
	return strings.TrimPrefix(err.Error(), "bridge: ")
}

// compose returns the content of the card: the agent's own part, and what shows
// the commands; and the ids of client terminals in it, none for the final update.
// Called with mu held.
func (c *Call) compose(final bool) (content []acp.ToolCallContent, embeds []string) {
	content = slices.Clone(c.content)
	if c.terminal != nil && (c.terminal.used || !final) {
		content = append(content, acp.ToolTerminalRef(string(c.id)))
	}
	room := terminal.MaxUpdateLine - 4<<10
	if b, err := json.Marshal(c.content); err == nil {
		room -= len(b)
	}
	room /= max(1, len(c.commands))
	for _, k := range c.commands {
		if k.show == nil {
			continue
		}
		if id := k.show.embeds(); id != "" && !final {
			content = append(content, acp.ToolTerminalRef(id))
			embeds = append(embeds, id)
		} else if text := k.show.stands(); text != "" {
			content = append(content, textContent(text, room))
		}
	}
	return content, embeds
}

// quiet returns how long from now a keep-alive is due.
func (c *Call) quiet() time.Duration {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.ending {
		return forever
	}
	return max(time.Until(c.last.Add(terminal.KeepAlive)), time.Millisecond)
}

const forever = time.Duration(1<<63 - 1)

// keepAlive sends an update without content if there was none for long: relays
// and clients give up on calls that they hear nothing of.
func (c *Call) keepAlive() {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ending || time.Since(c.last) < terminal.KeepAlive {
		return
	}
	if c.beat != nil && !closed(c.beat.done) {
		c.last = time.Now() // the client does not read: one is enough
		return
	}
	c.beat = s.put(c, acp.SessionToolCallUpdate{Status: new(acp.ToolCallStatusInProgress)})
}
