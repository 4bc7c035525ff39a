package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/terminal"
)

// The columns of the screen: those of the terminal, within bounds; two are left
// free. Without a terminal there are 80.
const minColumns, defaultColumns, maxColumns = 40, 80, 120

// A screen draws what the user of the demo's client sees, line by line, so that
// it can be read in a log as well as on a terminal.
type screen struct {
	color bool
	width int // of a line

	mu sync.Mutex
	// guards following
	w        io.Writer
	open     bool   // a line of output has no end yet
	openID   string // whose it is
	cards    map[acp.ToolCallId]*drawn
	ended    map[string]bool // terminals whose command has ended
	held     []string        // messages that wait for the output before them
	messages int             // messages that were drawn
	output   strings.Builder // since forget
}

// drawn is what was drawn of a card.
type drawn struct {
	text      string
	terminals []string
	live      bool   // its output comes from terminals, not from text
	over      bool   // it has said how its command ended
	id        string // of its command, if that runs in the background
}

// columns returns the screen's, for a terminal of so many, or 0.
func columns(terminal int) int {
	return min(max(cmp.Or(terminal, defaultColumns), minColumns), maxColumns)
}

func newScreen(w io.Writer, columns int, color bool) *screen {
	return &screen{w: w, width: columns - 2, color: color, cards: map[acp.ToolCallId]*drawn{}, ended: map[string]bool{}}
}

// A style is the parameters of an SGR sequence.
type style string

const (
	plain style = ""
	bold  style = "1"
	dim   style = "2"
	red   style = "31"
)

func (s *screen) styled(style style, text string) string {
	if !s.color || style == plain {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// line writes text in lines of its own, as many as it takes.
func (s *screen) line(style style, text string) {
	for _, line := range wrap(text, s.width) {
		s.row(s.styled(style, line))
	}
}

// row writes a line that fits.
func (s *screen) row(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawLine(line)
}

func (s *screen) drawLine(text string) {
	if s.open {
		fmt.Fprintln(s.w)
		s.open = false
	}
	fmt.Fprintln(s.w, text)
}

// heading begins a part of the story.
func (s *screen) heading(text string) {
	s.row("")
	line := clip(text, s.width)
	if rest := s.width - 1 - utf8.RuneCountInString(line); rest > 0 {
		line += " " + strings.Repeat("─", rest)
	}
	s.row(s.styled(bold, line))
}

// event draws what the client does.
func (s *screen) event(text string) {
	s.row("")
	s.row("  " + s.styled(bold, "› "+clip(text, s.width-4)))
}

// show draws an event; see acphost.Options.Show.
func (s *screen) show(e acphost.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case acphost.ShowCard:
		s.drawCard(e.Card)
	case acphost.ShowOutput:
		id := ""
		if d := s.cards[e.ToolCall]; d != nil {
			id = d.id
		}
		s.drawOutput(id, e.Text)
	case acphost.ShowEnd:
		s.ended[e.Terminal] = true
		s.drawMessages()
	case acphost.ShowMessage:
		s.held = append(s.held, e.Text)
		s.drawMessages()
	}
}

func (s *screen) drawCard(c acphost.Card) {
	d := s.cards[c.ID]
	if d == nil {
		d = &drawn{}
		s.cards[c.ID] = d
	}
	d.terminals = d.terminals[:0]
	for _, v := range c.Terminals {
		d.terminals = append(d.terminals, v.ID)
		d.live = true
	}
	// Text in place of a terminal's output was seen already.
	if text := unfenced(c.Text); text != d.text && !d.live {
		grown, _ := strings.CutPrefix(text, d.text)
		s.drawOutput(d.id, grown)
		d.text = text
	}
	if acphost.Final(c.Status) {
		raw, _ := c.RawOutput.(map[string]any)
		if d.over = raw["outcome"] != string(terminal.Running); !d.over && d.id == "" {
			d.id, _ = raw["id"].(string)
		}
	}
}

// drawOutput draws output as it comes: that of the command which the last line
// has started, or, from the background, of the one with this id.
func (s *screen) drawOutput(id, text string) {
	s.output.WriteString(text)
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for line := range strings.Lines(text) {
		if s.open && s.openID != id {
			fmt.Fprintln(s.w)
			s.open = false
		}
		if !s.open {
			fmt.Fprint(s.w, s.styled(dim, fmt.Sprintf("%3s │ ", id)))
		}
		fmt.Fprint(s.w, line)
		s.open, s.openID = !strings.HasSuffix(line, "\n"), id
	}
}

// drawMessages draws the agent's messages, but none before the last output of a
// command that has ended: the client's own terminals are shown at their own
// pace.
func (s *screen) drawMessages() {
	for _, d := range s.cards {
		for _, id := range d.terminals {
			if d.over && !s.ended[id] {
				return
			}
		}
	}
	for _, text := range s.held {
		for _, line := range wrap(text, s.width-4) {
			s.drawLine("    " + s.styled(dim, line))
		}
		s.messages++
	}
	s.held = nil
}

// drawnMessages returns how many of the agent's messages were drawn.
func (s *screen) drawnMessages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages
}

// forget makes seen look only at output that is still to come.
func (s *screen) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.output.Reset()
}

// seen reports whether the user has seen text in an output.
func (s *screen) seen(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.output.String(), text)
}

// next forgets the cards of a session that has ended: the next agent's tool
// calls may have the same ids.
func (s *screen) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.cards)
	clear(s.ended)
	s.messages, s.held = 0, nil
}

// unfenced returns text without the lines that begin and end Markdown code.
func unfenced(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "```") || strings.Trim(line, "`\n") != "" {
			b.WriteString(line)
		}
	}
	return b.String()
}

// clip cuts s to n columns.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// wrap breaks text into lines of at most n columns: at blanks, or in a word that
// is longer than a line.
func wrap(text string, n int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch room := n - utf8.RuneCountInString(*last) - 1; {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(word) <= room:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
		for {
			last := []rune(lines[len(lines)-1])
			if len(last) <= n {
				break
			}
			lines[len(lines)-1] = string(last[:n])
			lines = append(lines, string(last[n:]))
		}
	}
	return lines
}
