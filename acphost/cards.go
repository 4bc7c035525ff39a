package acphost

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/terminal"
)

// A Card is what a user sees of a tool call.
type Card struct {
	Session acp.SessionId
	ID      acp.ToolCallId

	Title     string
	Kind      acp.ToolKind
	Status    acp.ToolCallStatus
	Content   []acp.ToolCallContent
	RawInput  any
	RawOutput any

	// Text is the text in Content.
	Text string
	// Terminals are the terminals in Content, in its order.
	Terminals []CardTerminal

	// Announced is when the tool_call came, Ended when its final status did,
	// and FirstVisible when the first byte of Text, or of the output of a
	// terminal, was there for the user to see. They are zero before.
	Announced, Ended, FirstVisible time.Time
}

// A CardTerminal is what a user sees of a terminal in a card.
type CardTerminal struct {
	ID string
	// Display says that the agent fills the terminal; Dir is the directory
	// that it named.
	Display bool
	Dir     string
	// Released says that the agent has released the terminal, which goes on
	// being shown.
	Released bool
	// Output is the output that is kept, and Truncated that its start is gone.
	Output    string
	Truncated bool
	// Exit is nil while the command runs.
	Exit *terminal.Exit
	// FirstVisible is when the first byte was there for the user to see.
	FirstVisible time.Time
}

// Visible returns the texts and the output of the card, as the user sees them
// one below the other.
func (c Card) Visible() string {
	var parts []string
	views := c.Terminals
	for _, content := range c.Content {
		switch {
		case content.Terminal != nil && len(views) > 0:
			parts = append(parts, views[0].Output)
			views = views[1:]
		case content.Content != nil && content.Content.Content.Text != nil:
			parts = append(parts, content.Content.Content.Text.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// Final reports whether a status is the last of a tool call.
func Final(s acp.ToolCallStatus) bool {
	return s == acp.ToolCallStatusCompleted || s == acp.ToolCallStatusFailed
}

// card is a Card in the making, with the terminals that its content named when
// it came: an id may mean another terminal later. Host.mu guards it.
type card struct {
	Card
	sources []*source
	text    time.Time // when Text was first not empty
}

// SessionUpdate is session/update. An update that embeds a terminal which the
// client does not know, or which was released, is an error and changes
// nothing; so is an update of a tool call that was never announced, output for a
// display-only terminal that is not there, and what comes for a session that is
// not open. A client with a SessionUpdate of its own passes every update on to
// this one, since [Host.Reader] waits for them.
func (h *Host) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	defer h.handled.add()
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.session(n.SessionId)
	if err != nil {
		return err
	}
	switch u := n.Update; {
	case u.ToolCall != nil:
		return h.announce(s, u.ToolCall)
	case u.ToolCallUpdate != nil:
		return h.update(s, u.ToolCallUpdate)
	case u.AgentMessageChunk != nil:
		if text := u.AgentMessageChunk.Content.Text; text != nil {
			s.message.WriteString(text.Text)
			h.show(Event{Kind: ShowMessage, Session: s.id, Text: text.Text})
		}
	}
	return nil
}

// announce handles a tool_call. Called with mu held.
func (h *Host) announce(s *session, u *acp.SessionUpdateToolCall) error {
	var info *source
	if m := meta(u.Meta, "terminal_info"); h.opts.Display && m != nil {
		id, _ := m["terminal_id"].(string)
		if id == "" {
			return fmt.Errorf("acphost: terminal_info of tool call %s has no terminal_id", u.ToolCallId)
		}
		if s.displays[id] == nil {
			info = &source{id: id, limit: h.opts.OutputLimit, buffer: tail.New(h.opts.OutputLimit)}
			info.dir, _ = m["cwd"].(string)
		}
	}
	sources, err := s.resolve(u.Content, info)
	if err != nil {
		return fmt.Errorf("acphost: tool call %s: %w", u.ToolCallId, err)
	}
	if info != nil {
		s.displays[info.id] = info
	}
	c := s.cards[u.ToolCallId]
	if c == nil {
		c = &card{Card: Card{Session: s.id, ID: u.ToolCallId, Announced: time.Now()}}
		s.cards[u.ToolCallId] = c
		s.order = append(s.order, c)
	}
	c.Title, c.Kind = u.Title, u.Kind
	c.RawInput, c.RawOutput = u.RawInput, u.RawOutput
	c.setStatus(u.Status)
	fresh := c.setContent(u.Content, sources)
	h.showCard(c)
	h.follow(c, fresh)
	return nil
}

// update handles a tool_call_update. Called with mu held.
func (h *Host) update(s *session, u *acp.SessionToolCallUpdate) error {
	c := s.cards[u.ToolCallId]
	if c == nil {
		return fmt.Errorf("acphost: update of tool call %s, which was never announced", u.ToolCallId)
	}
	sources, err := s.resolve(u.Content, nil)
	if err != nil {
		return fmt.Errorf("acphost: tool call %s: %w", u.ToolCallId, err)
	}
	if h.opts.Display {
		if err := h.displayOutput(s, c, u.Meta); err != nil {
			return err
		}
	}
	changed := false
	set := func(change bool, f func()) {
		if change {
			changed = true
			f()
		}
	}
	set(u.Title != nil, func() { c.Title = *u.Title })
	set(u.Kind != nil, func() { c.Kind = *u.Kind })
	set(u.RawInput != nil, func() { c.RawInput = u.RawInput })
	set(u.RawOutput != nil, func() { c.RawOutput = u.RawOutput })
	set(u.Status != nil, func() { c.setStatus(*u.Status) })
	var fresh []*source
	set(u.Content != nil, func() { fresh = c.setContent(u.Content, sources) })
	if changed {
		h.showCard(c)
		h.follow(c, fresh)
	}
	return nil
}

// displayOutput handles the _meta of a tool_call_update: output and exit of a
// display-only terminal. Called with mu held.
func (h *Host) displayOutput(s *session, c *card, m map[string]any) error {
	out, exit := meta(m, "terminal_output"), meta(m, "terminal_exit")
	find := func(m map[string]any) (*source, error) {
		id, _ := m["terminal_id"].(string)
		if x := s.displays[id]; x != nil {
			return x, nil
		}
		return nil, fmt.Errorf("acphost: tool call %s: no display terminal %q: it needs a terminal_info on a tool_call", c.ID, id)
	}
	// Both are found before either is applied: an update is taken as a whole.
	var to, end *source
	var err error
	if out != nil {
		if to, err = find(out); err != nil {
			return err
		}
	}
	if exit != nil {
		if end, err = find(exit); err != nil {
			return err
		}
	}
	if to != nil {
		if data, _ := out["data"].(string); data != "" {
			if to.first.IsZero() {
				to.first = time.Now()
			}
			to.buffer.Write([]byte(data))
			h.show(Event{Kind: ShowOutput, Session: s.id, ToolCall: c.ID, Terminal: to.id, Text: data})
		}
	}
	if end != nil {
		end.exit = &terminal.Exit{}
		// Anything but a code is unknown: text, a fraction, what no int holds.
		if code, ok := exit["exit_code"].(float64); ok && code >= 0 && code <= math.MaxUint32 && code == math.Trunc(code) {
			end.exit.Code = new(int(code))
		}
		end.exit.Signal, _ = exit["signal"].(string)
		end.buffer.Close()
		h.show(Event{Kind: ShowEnd, Session: s.id, ToolCall: c.ID, Terminal: end.id, Exit: *end.exit})
	}
	return nil
}

// meta returns an object in a _meta, or nil.
func meta(m map[string]any, name string) map[string]any {
	object, _ := m[name].(map[string]any)
	return object
}

// resolve returns the terminals that content names; info is one that this very
// update brings. Called with mu held.
func (s *session) resolve(content []acp.ToolCallContent, info *source) ([]*source, error) {
	var sources []*source
	for _, c := range content {
		if c.Terminal == nil {
			continue
		}
		id := c.Terminal.TerminalId
		x := s.terminals[id]
		if x == nil {
			x = s.displays[id]
		}
		if x == nil && info != nil && info.id == id {
			x = info
		}
		if x == nil {
			return nil, fmt.Errorf("content names terminal %q, which is not known or was released", id)
		}
		sources = append(sources, x)
	}
	return sources, nil
}

// setContent replaces the content of a card, and returns the terminals that no card had
// before. Called with Host.mu held.
func (c *card) setContent(content []acp.ToolCallContent, sources []*source) (fresh []*source) {
	c.Content, c.sources = content, sources
	var texts []string
	for _, content := range content {
		if content.Content != nil && content.Content.Content.Text != nil {
			texts = append(texts, content.Content.Content.Text.Text)
		}
	}
	now := time.Now()
	if c.Text = strings.Join(texts, "\n"); c.Text != "" && c.text.IsZero() {
		c.text = now
	}
	for _, x := range sources {
		if x.shown.IsZero() {
			x.shown = now
			fresh = append(fresh, x)
		}
	}
	return fresh
}

func (c *card) setStatus(s acp.ToolCallStatus) {
	c.Status = s
	if Final(s) && c.Ended.IsZero() {
		c.Ended = time.Now()
	}
}

// brief is the card without the output of its terminals. Called with Host.mu
// held.
func (c *card) brief() Card {
	b := c.Card
	b.FirstVisible = c.text
	for _, x := range c.sources {
		v := CardTerminal{ID: x.id, Display: x.t == nil, Dir: x.dir}
		first := x.first
		if x.t != nil {
			first = x.t.Info().FirstOutput
			select {
			case <-x.released:
				v.Released = true
			default:
			}
		}
		if !first.IsZero() {
			// Output that was there before the card had the terminal became
			// visible with the card.
			v.FirstVisible = later(first, x.shown)
			if b.FirstVisible.IsZero() || v.FirstVisible.Before(b.FirstVisible) {
				b.FirstVisible = v.FirstVisible
			}
		}
		b.Terminals = append(b.Terminals, v)
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Card returns the tool call with the output of its terminals, and false if it
// was never announced.
func (h *Host) Card(session acp.SessionId, id acp.ToolCallId) (Card, bool) {
	h.mu.Lock()
	s := h.sessions[session]
	if s == nil || s.cards[id] == nil {
		h.mu.Unlock()
		return Card{}, false
	}
	c, sources := s.cards[id].brief(), s.cards[id].sources
	h.mu.Unlock()
	h.fill(&c, sources)
	return c, true
}

// Cards returns the tool calls of a session, in the order in which they were
// announced, with the output of their terminals.
func (h *Host) Cards(session acp.SessionId) []Card {
	h.mu.Lock()
	var cards []Card
	var sources [][]*source
	if s := h.sessions[session]; s != nil {
		for _, c := range s.order {
			cards = append(cards, c.brief())
			sources = append(sources, c.sources)
		}
	}
	h.mu.Unlock()
	for i := range cards {
		h.fill(&cards[i], sources[i])
	}
	return cards
}

// fill reads the output of the terminals of a card. A terminal that cannot be
// read shows what is wrong, as it would to a user.
func (h *Host) fill(c *Card, sources []*source) {
	for i, x := range sources {
		v := &c.Terminals[i]
		if x.t == nil {
			h.mu.Lock()
			v.Exit = x.exit
			h.mu.Unlock()
			v.Output, v.Truncated = x.kept()
			continue
		}
		var err error
		if v.Output, v.Truncated, v.Exit, err = x.output(context.Background()); err != nil {
			v.Output = err.Error()
		}
	}
	c.Content = slices.Clone(c.Content)
}

// Messages returns the text that the agent has sent in a session.
func (h *Host) Messages(session acp.SessionId) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sessions[session]; s != nil {
		return s.message.String()
	}
	return ""
}
