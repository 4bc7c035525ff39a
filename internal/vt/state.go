package vt

import (
	"strings"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/text"
)

// A State is where a stream of text stands: between control sequences, or in
// one. It is the state machine of a DEC terminal, without what the sequences
// do. The zero value is [Ground].
type State uint8

// The states. ESC begins a sequence in all of them, and CAN and SUB end it.
const (
	Ground      State = iota // outside of any sequence
	escape                   // behind ESC
	escapeInter              // behind ESC and intermediate bytes, as in ESC ( 0
	csiEntry                 // behind CSI
	csiParam                 // in its parameters
	csiInter                 // in its intermediate bytes
	csiIgnore                // in one that is malformed
	oscString                // in the text of an operating system command
	otherString              // in that of a DCS, SOS, PM or APC, or of a title for screen(1)
)

// The control characters that the machine knows.
const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
	del = 0x7f

	st     = 0x9c // C1, as the rune U+009C
	c1Lead = 0xc2 // the first byte of C1 controls, among other runes
)

// next returns the state behind c, which is ASCII.
func (s State) next(c byte) State {
	switch {
	case c == can, c == sub:
		return Ground
	case c == esc:
		return escape
	case s == oscString && c == bel:
		return Ground
	case s == Ground, s.inString(), c < ' ', c == del:
		return s
	}
	switch s {
	case escape:
		switch c {
		case '[':
			return csiEntry
		case ']':
			return oscString
		case 'P', 'X', '^', '_', 'k':
			return otherString
		}
		fallthrough
	case escapeInter:
		if c < '0' {
			return escapeInter
		}
	case csiEntry, csiParam, csiInter, csiIgnore:
		switch {
		case c >= '@':
			return Ground
		case s == csiIgnore:
			return s
		case c < '0':
			return csiInter
		case s == csiInter, s == csiParam && c >= '<':
			return csiIgnore
		}
		return csiParam
	}
	return Ground
}

// nextRune returns the state behind r, which is not ASCII. C1 controls are
// those that stand for ESC and a letter, as runes: single bytes are parts of
// other runes.
func (s State) nextRune(r rune) State {
	switch {
	case s.inString() && r == st:
		return Ground
	case s.inString():
		return s
	case isC1(r):
		return escape.next(byte(r - 0x40))
	}
	return Ground
}

func isC1(r rune) bool { return r >= 0x80 && r < 0xa0 }

func (s State) inString() bool { return s == oscString || s == otherString }

// Step returns the state behind the first character of text, and how many bytes
// that has.
func (s State) Step(text string) (State, int) {
	if text[0] < utf8.RuneSelf {
		return s.next(text[0]), 1
	}
	r, size := utf8.DecodeRuneInString(text)
	return s.nextRune(r), size
}

// Skip returns how many bytes at the start of text belong to the sequence that
// the state is in, and the state behind them, which is [Ground] unless the end
// of the sequence is missing.
func (s State) Skip(text string) (n int, _ State) {
	for s != Ground && n < len(text) {
		if n += s.inside(text[n:]); n == len(text) {
			break
		}
		var size int
		s, size = s.Step(text[n:])
		n += size
	}
	return n, s
}

// inside returns how many bytes at the start of text change nothing, since they
// are the text of a control string.
func (s State) inside(text string) int {
	if !s.inString() {
		return 0
	}
	if i := strings.IndexAny(text, "\a\x18\x1a\x1b"); i >= 0 {
		text = text[:i]
	}
	if i := strings.Index(text, string(rune(st))); i >= 0 {
		return i
	}
	return len(text)
}

// After returns the state behind text.
func (s State) After(text string) State {
	s, _ = s.after(text)
	return s
}

// Incomplete returns how many bytes at the end of text, which begins outside of
// a sequence, are the start of one whose end is missing.
func Incomplete(text string) int {
	if s, start := Ground.after(text); s != Ground {
		return len(text) - start
	}
	return 0
}

// after returns the state behind text, and where the sequence begins that it is
// in, which is 0 if that began before.
func (s State) after(text string) (_ State, start int) {
	n := 0
	if strings.IndexByte(text, esc) >= 0 { // whatever was before; to find that there is none is faster forwards
		start = strings.LastIndexByte(text, esc)
		s, n = escape, start+1
	}
	for n < len(text) {
		if s == Ground { // the rest has no ESC, but may have C1 controls
			i := strings.IndexByte(text[n:], c1Lead)
			if i < 0 {
				break
			}
			n += i
			start = n
		}
		if n += s.inside(text[n:]); n == len(text) {
			break
		}
		var size int
		s, size = s.Step(text[n:])
		n += size
	}
	return s, start
}

// Remnant returns how many bytes at the start of text, in front of which output
// was lost, look like the rest of a sequence. It is a guess, and takes the start
// of a line for one only where that is far likelier than text: numbers before the
// letter m, or with semicolons before another letter, and what ends with ST.
func Remnant(text string) int {
	params, cut := strings.CutPrefix(text, "[")
	n := 0
	for n < len(params) && params[n] >= '0' && params[n] <= '?' {
		n++
	}
	if n > 0 && n < len(params) {
		c := params[n]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if c == 'm' || letter && (cut || strings.Contains(params[:n], ";")) {
			return len(text) - len(params) + n + 1
		}
	}
	line, _, _ := strings.Cut(text, "\n")
	if i := strings.IndexByte(line, esc); i >= 0 && strings.HasPrefix(line[i+1:], `\`) {
		return i + 2
	}
	return 0
}

// From returns text from byte at on, without the rest of a sequence that what is
// before it ends in.
func From(text string, at int) string {
	n, _ := Ground.After(text[:at]).Skip(text[at:])
	return text[at+n:]
}

// Resume returns text, in front of which output was lost, with a mark in its place:
// a sequence that was not over ends there, and the rest of one is left out.
func Resume(mark, s string) string { return text.Cancel + mark + s[Remnant(s):] }
