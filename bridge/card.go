package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// A card is what the user sees of one tool call: the tool_call, the live output
// of its commands, and exactly one final status. It knows nothing of turns, nor
// of the owners of commands: a command is a [pane] here. What the agent gives is
// frozen before it comes here.
type card struct {
	surface
	id    acp.ToolCallId
	empty int // how long the line of an update without content is

	mu sync.Mutex
	// guards following, and the panes

	face          acp.SessionUpdateToolCall // as the client has it, or will first get it; without content and rawOutput
	content       []acp.ToolCallContent     // the agent's own part of the content
	size          int                       // bytes of JSON of that
	rawOutput     any                       // for the final update
	broken        error                     // why what the agent gave can never be sent
	unfit         error                     // why the card as it is does not fit a line
	sent          bool                      // the tool_call was queued, or is the agent's
	stage         stage
	terminal      *displayTerminal // that the card embeds; nil if none
	panes         []*pane          // in the order of their starts
	last          time.Time        // of its last update
	latest        *updates.Update  // its last update; nil if there is none
	final         *updates.Update  // nil before the end, and if the agent sends it
	verdict       verdict          // what the final update said
	grows         bool             // text is added to it as long as the commands write
	lastKeepAlive *updates.Update  // the last keep-alive
}

// A surface is where the cards of a session are shown.
type surface struct {
	out     *updates.Stream
	limiter *updates.Limiter // of display updates
	log     *slog.Logger
	cwd     string // of the session
	display bool   // the client shows display-only terminals
}

// A stage is how far the end of a card has come.
type stage int

const (
	live   stage = iota
	ending       // the outputs of its commands are being read: nothing else changes them
	over         // the final update was queued
)

// A pane is what a card shows of one command. The card's mu guards it, but for
// what is set before it is shared.
type pane struct {
	how      Presentation
	clientID string            // of the client's terminal; "" for a local command
	term     terminal.Terminal // nil before the start, and when it is no longer kept
	embed    *updates.Update   // the first update that embeds the client's terminal
	released bool              // no update may embed it any more
	text     string            // stands for it where no terminal does
	cursor   int64             // behind text
	final    bool              // text is final
	dropped  bool              // and no longer kept
}

// textKept is how much of an output a pane keeps: more than is shown, so that a
// cut shows.
const textKept = limits.TextLimit + 4

// newCard returns the card of a tool call, which the agent sends itself if
// attached is set.
func newCard(on surface, face acp.SessionUpdateToolCall, attached bool) *card {
	c := &card{surface: on, id: face.ToolCallId, sent: attached}
	frozen, err := updates.FreezeCall(face)
	if err != nil { // what can be said of it
		frozen, _ = updates.FreezeCall(acp.SessionUpdateToolCall{ToolCallId: face.ToolCallId, Title: face.Title, Kind: face.Kind, Status: face.Status})
	}
	c.broken = err
	c.face, c.content, c.rawOutput = frozen, frozen.Content, frozen.RawOutput
	c.face.Content, c.face.RawOutput = nil, nil
	c.size = updates.Size(c.content)
	_, c.unfit = updates.Fit(c.out.Notification(c.opening(c.face, c.content, c.display, c.cwd)))
	c.empty, _ = updates.LineSize(c.out.Notification(acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{
		ToolCallId: c.id, Status: new(acp.ToolCallStatusInProgress),
	}}))
	return c
}

// opening returns the tool_call of a card that looks like this, with its display
// terminal if it has one.
func (c *card) opening(face acp.SessionUpdateToolCall, content []acp.ToolCallContent, display bool, cwd string) acp.SessionUpdate {
	face.Content = content
	if display {
		addTerminal(&face, cwd)
	}
	return acp.SessionUpdate{ToolCall: &face}
}

// open sends the card, if it is held back still; with a display terminal if
// display is set and the client shows them.
func (c *card) open(display bool, cwd string) (*updates.Update, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent {
		return nil, nil
	}
	if err := cmp.Or(c.broken, c.unfit); err != nil {
		return nil, err
	}
	return c.openNow(display && c.display, cwd), nil
}

// openNow sends the card as far as it can be. Called with mu held.
func (c *card) openNow(display bool, cwd string) *updates.Update {
	if c.face.Status == "" {
		c.face.Status = acp.ToolCallStatusInProgress
	}
	if display {
		c.terminal = new(displayTerminal)
	}
	c.sent = true
	c.last = time.Now()
	return c.out.PutCard(c.opening(c.face, c.content, display, cwd))
}

// openFor is open for a command, which a card that is held back names, in a directory.
func (c *card) openFor(title, dir string, local bool) error {
	c.name(updates.Title(title))
	_, err := c.open(local, dir)
	return err
}

// name gives a card that is held back the title of its first command, if it has
// none, and notes that it runs.
func (c *card) name(title string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sent {
		c.face.Status = acp.ToolCallStatusInProgress
		c.face.Title = cmp.Or(c.face.Title, title)
	}
}

// openAny sends the card before it is known what it will run, if anything: a
// display terminal must be there from the start, and a card that may run
// something locally may need one.
func (c *card) openAny(local bool) (*updates.Update, error) {
	return c.open(local && c.executes(), c.cwd)
}

func (c *card) executes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.face.Kind == acp.ToolKindExecute
}

// attached gives a card that the agent sends itself what its tool_call must
// embed.
func (c *card) attached(dir string) acp.SessionUpdateToolCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.terminal = new(displayTerminal)
	shown := acp.SessionUpdateToolCall{ToolCallId: c.id}
	addTerminal(&shown, dir)
	return shown
}

// put queues an update of the card. Called with mu held.
func (c *card) put(u acp.SessionToolCallUpdate, embeds ...string) *updates.Update {
	u.ToolCallId = c.id
	c.last = time.Now()
	c.latest = c.out.PutCard(acp.SessionUpdate{ToolCallUpdate: &u}, embeds...)
	return c.latest
}

// wait waits until an update of live output was written, and reports whether it
// was.
func (c *card) wait(ctx context.Context, u *updates.Update) bool {
	err := u.Wait(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, terminal.ErrConnectionLost) && !errors.Is(err, terminal.ErrClosed) && err != updates.ErrUnread {
		c.log.Warn("bridge: live output cannot be sent", "toolCall", c.id, "err", err)
	}
	return err == nil
}

// update changes the card. It returns the update to wait for, nil if none was
// sent. local is that a command of it may run locally.
func (c *card) update(u acp.SessionToolCallUpdate, local bool) (*updates.Update, error) {
	if !c.merge(u) {
		return c.openAny(local)
	}
	if u.RawOutput = nil; u.Content == nil && u.Kind == nil && u.Locations == nil && u.RawInput == nil && u.Status == nil && u.Title == nil && u.Meta == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var embeds []string
	if u.Content != nil {
		u.Content, embeds = c.compose(false)
	}
	return c.put(u, embeds...), nil
}

// merge applies u to the card, and reports whether the client has it already.
func (c *card) merge(u acp.SessionToolCallUpdate) (sent bool) {
	face, content, sent := c.change(u, updates.Size(u.Content))
	if sent {
		return true
	}
	_, unfit := updates.Fit(c.out.Notification(c.opening(face, content, c.display, c.cwd)))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unfit = unfit
	return c.sent
}

// change is merge without a look at the length. It returns the card as it is now.
func (c *card) change(u acp.SessionToolCallUpdate, size int) (face acp.SessionUpdateToolCall, content []acp.ToolCallContent, sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u.RawOutput != nil {
		c.rawOutput = u.RawOutput
	}
	if u.Content != nil {
		c.content, c.size = u.Content, size
	}
	mergeFace(&c.face, u)
	return c.face, c.content, c.sent
}

// mergeFace applies u to a tool call, without content and rawOutput.
func mergeFace(face *acp.SessionUpdateToolCall, u acp.SessionToolCallUpdate) {
	if u.Title != nil {
		face.Title = *u.Title
	}
	if u.Kind != nil {
		face.Kind = *u.Kind
	}
	if u.Status != nil {
		face.Status = *u.Status
	}
	if u.Locations != nil {
		face.Locations = u.Locations
	}
	if u.RawInput != nil {
		face.RawInput = u.RawInput
	}
	if u.Meta != nil {
		meta := maps.Clone(u.Meta)
		for name, v := range face.Meta {
			if _, newer := meta[name]; !newer {
				meta[name] = v
			}
		}
		face.Meta = meta
	}
}

// ask shows the card because the user will be asked about it, as pending unless
// something of it runs. It returns the update to wait for, nil if there is none,
// and what the question is about.
func (c *card) ask(pending, local bool) (*updates.Update, acp.SessionUpdateToolCall, error) {
	shown, face := c.pend(pending)
	if shown != nil {
		return shown, face, nil
	}
	shown, err := c.openAny(local)
	return shown, face, err
}

// pend notes that the card waits for its user, and says so if it was sent.
func (c *card) pend(pending bool) (*updates.Update, acp.SessionUpdateToolCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pending {
		c.face.Status = acp.ToolCallStatusPending
	}
	if !c.sent {
		return nil, c.face
	}
	return c.put(acp.SessionToolCallUpdate{Status: new(c.face.Status)}), c.face
}

// begins notes that a command of the card runs.
func (c *card) begins() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.face.Status == acp.ToolCallStatusPending {
		c.face.Status = acp.ToolCallStatusInProgress
		c.put(acp.SessionToolCallUpdate{Status: new(c.face.Status)})
	}
}

// embed adds a terminal of the client, and queues the update that shows it.
func (c *card) embed(id string) *pane {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &pane{how: PresentClient, clientID: id}
	c.panes = append(c.panes, p)
	content, embeds := c.compose(false)
	c.face.Status = acp.ToolCallStatusInProgress
	p.embed = c.put(acp.SessionToolCallUpdate{Status: new(c.face.Status), Content: content}, embeds...)
	return p
}

// add adds a command that runs, locally or, without a place in the card, in the
// client.
func (c *card) add(t terminal.Terminal, local bool) *pane {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &pane{term: t, how: PresentClient}
	switch {
	case !local:
	case c.terminal != nil:
		p.how = PresentDisplay
		c.terminal.used = true
		c.terminal.live++
	default:
		p.how = PresentText
	}
	c.panes = append(c.panes, p)
	return p
}

// set gives a pane the terminal of its command.
func (c *card) set(p *pane, t terminal.Terminal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.term = t
}

// release notes that from now on no update may embed the terminal of p.
func (c *card) release(p *pane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.released = true
}

// lose has text stand for the terminal of p, which was taken out of an update
// that was not written in time. The final update counted on it; it is behind that
// one, and so is not written either, and nothing may follow it.
func (c *card) lose(p *pane) {
	c.keepReleased()
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := cmp.Or(c.final, c.latest); c.stage == over && last != nil {
		content, _ := c.compose(true)
		last.SetContent(content)
	}
}

// forget reads what is left to be known of the output of p, whose terminal is no
// longer kept. All panes of a card together keep no more than is shown.
func (c *card) forget(p *pane, t terminal.Terminal) {
	out, _ := readPlain(t, textKept, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	p.term = nil
	p.text, p.final = out.Text, true
	kept := 0
	for _, p := range slices.Backward(c.panes) {
		if p.term == nil {
			if kept += len(p.text); kept > textKept {
				p.text, p.dropped = "", true
			}
		}
	}
}

// embedded reports whether the card shows the client's terminal of p, whose command
// has started. Called with mu held.
func (p *pane) embedded() bool {
	return p.embed != nil && (p.term != nil || p.final) && p.embed.Embeds(p.clientID)
}

// embeds returns the id of the client's terminal that the card's content may
// embed now, or "". Called with the card's mu held, as is stands.
func (p *pane) embeds() string {
	if p.released {
		return ""
	}
	return p.clientID
}

// stands returns the plain text that stands for the command in the card's content
// where no terminal does, or "".
func (p *pane) stands() string {
	if p.how == PresentText || p.how == PresentClient && p.final {
		return p.text
	}
	return ""
}

// keep keeps the output of a command for where no terminal shows it; of one that
// has ended that is final.
func (c *card) keep(p *pane, t terminal.Terminal) {
	ended := await.Closed(t.Done())
	out, _ := readPlain(t, textKept, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ended || out.Cursor >= p.cursor {
		p.text, p.cursor, p.final = out.Text, out.Cursor, ended
	}
}

// keepReleased reads the outputs that stand, as text, for terminals that no
// update can embed any more.
func (c *card) keepReleased() {
	for _, p := range c.all() {
		if t := c.terminalOf(p); t != nil && p.how == PresentClient && await.Closed(t.Done()) && !c.isFinal(p) {
			c.keep(p, t)
		}
	}
}

func (c *card) all() []*pane {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.panes)
}

func (c *card) terminalOf(p *pane) terminal.Terminal {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.term
}

func (c *card) isFinal(p *pane) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.final
}

// compose returns the content of the card: the agent's own part, and what shows
// the commands, the later ones first if there is no room for all; and the ids of
// client terminals in it, none for the final update. Called with mu held.
func (c *card) compose(final bool) (content []acp.ToolCallContent, embeds []string) {
	room := updates.Rest(c.empty + c.size)
	if c.terminal != nil && (c.terminal.used || !final) {
		if block, ok := room.Terminal(string(c.id)); ok {
			content = append(content, block)
		}
	}
	omitted := 0
	room.Take(len(omittedMark) + 128)
	if final {
		room.Take(min(text.JSONLen(c.verdict.text()), updates.Line/4) + 64)
	}
	blocks := make([]acp.ToolCallContent, len(c.panes)) // without any of its members where there is none
	texts := 0
	for i, p := range slices.Backward(c.panes) {
		id := p.embeds()
		switch {
		case p.dropped:
			omitted++
		case id == "" || final:
			if p.stands() != "" {
				texts++
			}
		default:
			block, ok := room.Terminal(id)
			if !ok {
				omitted++
				continue
			}
			blocks[i] = block
			embeds = append(embeds, id)
		}
	}
	for i, p := range slices.Backward(c.panes) {
		if blocks[i].Terminal != nil || p.embeds() != "" && !final || p.stands() == "" {
			continue
		}
		block, ok := room.Output(p.stands(), texts)
		if !ok {
			omitted++
		}
		blocks[i] = block
		texts--
	}
	if omitted > 0 {
		content = append(content, acp.ToolContent(acp.TextBlock(fmt.Sprintf(omittedMark, omitted))))
	}
	for _, block := range blocks {
		if block.Terminal != nil || block.Content != nil {
			content = append(content, block)
		}
	}
	return append(slices.Clone(c.content), content...), embeds
}

// omittedMark stands in a card for commands that there is no room for.
const omittedMark = "[... %d more commands are not shown ...]"

// quiet returns how long from now a keep-alive is due.
func (c *card) quiet() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stage != live {
		return await.Forever
	}
	return max(time.Until(c.last.Add(limits.KeepAlive)), time.Millisecond)
}

// keepAlive sends an update without content if there was none for long: relays
// and clients give up on calls that they hear nothing of.
func (c *card) keepAlive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stage != live || time.Since(c.last) < limits.KeepAlive {
		return
	}
	if c.lastKeepAlive != nil && !await.Closed(c.lastKeepAlive.Done()) {
		c.last = time.Now() // the client does not read: one is enough
		return
	}
	c.lastKeepAlive = c.put(acp.SessionToolCallUpdate{Status: new(acp.ToolCallStatusInProgress)})
}

// A verdict is what the end of a tool call says.
type verdict struct {
	status acp.ToolCallStatus
	words  string // what End was given
	reason string // why it failed
}

// text is what stands below what the commands wrote.
func (v verdict) text() string { return cmp.Or(v.words, v.reason) }

// settling keeps live output from changing what the final update will say.
func (c *card) settling() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stage = ending
}

// keepTexts reads the outputs that the final text consists of.
func (c *card) keepTexts() {
	c.keepReleased()
	for _, p := range c.all() {
		if t := c.terminalOf(p); t != nil && p.how == PresentText && !c.isFinal(p) {
			c.keep(p, t)
		}
	}
}

// finish queues the final update, if it is to be sent. It returns what it says,
// and the last update of the card, nil if there was none.
func (c *card) finish(v verdict, send bool) (*updates.Update, acp.SessionToolCallUpdate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stage, c.verdict = over, v
	if !c.sent {
		c.openNow(false, "")
	}
	embedded, texts := c.terminal != nil && c.terminal.used, false
	for _, p := range c.panes {
		embedded = embedded || p.embedded()
		texts = texts || p.how == PresentText
	}
	u := acp.SessionToolCallUpdate{ToolCallId: c.id, Status: new(v.status), RawOutput: c.rawOutput}
	switch {
	case !embedded:
		u.Content = c.finalContent()
		c.grows = send
	case texts:
		if content, embeds := c.compose(false); len(embeds) == 0 {
			u.Content = content
		}
	}
	if c.terminal != nil {
		c.terminal.end(&u, c.id)
	}
	if send {
		c.final = c.put(u)
	}
	return c.latest, u
}

// finalContent is the content of a card that shows no terminal. Called with mu
// held.
func (c *card) finalContent() []acp.ToolCallContent {
	content, _ := c.compose(true)
	if text := c.verdict.text(); text != "" {
		content = append(content, acp.ToolContent(acp.TextBlock(text)))
	}
	return content
}

// goesOn reports whether the card, whose Call has ended, shows what the command of p
// still writes.
func (c *card) goesOn(p *pane) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.how == PresentDisplay || p.how == PresentText && c.grows && !p.final
}

// given returns what the agent gave of the card.
func (c *card) given() acp.SessionUpdateToolCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	face := c.face
	face.Content = c.content
	return face
}

// kept returns what is left of the output of a pane, which may be nil.
func (c *card) kept(p *pane) string {
	if p == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.text
}
