package view

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/ansi/parser"
)

// A stripper removes escape sequences and other controls than tabs and line
// ends from a stream of text, and applies none of them: what it leaves is where
// it was, so that a match in it is a place in the output. CRLF becomes LF.
type stripper struct {
	state parser.State
	cr    bool // a CR was the last, and may belong to an LF
}

// strip appends what is left of text to dst, until that is as long as max, and
// returns dst and how much of text that took. A max of -1 is none.
func (s *stripper) strip(dst []byte, text string, max int) (_ []byte, n int) {
	for n < len(text) && (max < 0 || len(dst) < max) {
		if s.state != parser.GroundState {
			n += s.sequence(text[n:])
			continue
		}
		if s.cr {
			s.cr = false
			if text[n] != '\n' {
				dst = append(dst, '\r')
				continue
			}
		}
		run := special(text[n:])
		if max >= 0 {
			run = min(run, max-len(dst))
		}
		dst = append(dst, text[n:n+run]...)
		if n += run; run > 0 || n == len(text) {
			continue
		}
		switch c := text[n]; {
		case c == '\r':
			s.cr = true
		case c == ansi.ESC:
			s.state = parser.EscapeState
		case c >= utf8.RuneSelf:
			n++ // a C1 control as UTF-8
		}
		n++
	}
	return dst, n
}

// sequence returns how much of text the sequence takes that the state is in.
func (s *stripper) sequence(text string) int {
	for i := 0; i < len(text); i++ {
		if i += inString(s.state, text[i:]); i == len(text) {
			break
		}
		if text[i] >= utf8.RuneSelf {
			s.state = parser.GroundState
			return i
		}
		if s.state == parser.DcsEntryState && text[i] == ansi.ESC {
			s.state = parser.EscapeState
			continue
		}
		s.state, _ = parser.Table.Transition(s.state, text[i])
		if s.state == parser.GroundState {
			return i + 1
		}
	}
	return len(text)
}

// inString returns how much of text certainly belongs to the control string
// that the state is in; 0 if it is in none.
func inString(state parser.State, text string) int {
	switch state {
	case parser.OscStringState, parser.DcsStringState, parser.SosStringState, parser.PmStringState, parser.ApcStringState:
		if n := strings.IndexAny(text, "\a\x18\x1a\x1b"); n >= 0 {
			return n
		}
		return len(text)
	}
	return 0
}
