package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/terminal"
)

// screenWidth is what the demo's lines fit in.
const screenWidth = 78

// A screen draws what the user of the demo's client sees, line by line, so that
// it can be read in a log as well as on a terminal.
type screen struct {
	color bool

	mu sync.Mutex
	// guards following
	w        io.Writer
	open     bool // a line of output has no end yet
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
	live      bool // its output comes from terminals, not from text
	over      bool // it has said how its command ended
}

func newScreen(w io.Writer, color bool) *screen {
	return &screen{w: w, color: color, cards: map[acp.ToolCallId]*drawn{}, ended: map[string]bool{}}
}

// Styles, as the parameters of an SGR sequence.
const (
	bold = "1"
	dim  = "2"
	red  = "31"
)

func (s *screen) style(style, text string) string {
	if !s.color {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// line writes a line of its own.
func (s *screen) line(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawLine(text)
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
	s.line("")
	s.line(s.style(bold, text+" "+strings.Repeat("─", max(0, screenWidth-1-utf8.RuneCountInString(text)))))
}

// event draws what the client does.
func (s *screen) event(text string) {
	s.line("")
	s.line("  " + s.style(bold, "› "+clip(text, screenWidth-4)))
}

// show draws an event; see acphost.Options.Show.
func (s *screen) show(e acphost.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case acphost.ShowCard:
		s.drawCard(e.Card)
	case acphost.ShowOutput:
		s.drawOutput(e.Text)
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
	if acphost.Final(c.Status) {
		raw, _ := c.RawOutput.(map[string]any)
		d.over = raw["outcome"] != string(terminal.Running)
	}
	// Text in place of a terminal's output was seen already.
	if text := unfenced(c.Text); text != d.text && !d.live {
		grown, _ := strings.CutPrefix(text, d.text)
		s.drawOutput(grown)
		d.text = text
	}
}

// drawOutput draws output of a command as it comes.
func (s *screen) drawOutput(text string) {
	s.output.WriteString(text)
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for line := range strings.Lines(text) {
		if !s.open {
			fmt.Fprint(s.w, "    "+s.style(dim, "│ "))
		}
		fmt.Fprint(s.w, line)
		s.open = !strings.HasSuffix(line, "\n")
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
		for _, line := range wrap(strings.TrimSpace(text), screenWidth-4) {
			s.drawLine("    " + s.style(dim, line))
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

// wrap breaks text into lines of at most n columns, where it has blanks.
func wrap(text string, n int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > n {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, clip(line, n))
}
