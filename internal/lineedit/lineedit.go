// Package lineedit edits a line of input as the line discipline of a Linux
// terminal does, so that both who model a terminal and who write to one know what
// becomes of what is typed. It imports only the standard library.
package lineedit

import (
	"slices"
	"unicode/utf8"
)

// Max is how many bytes a line may have, its end not counted: of a longer one
// Linux drops the rest silently (N_TTY_BUF_SIZE).
const Max = 4095

// Modes are the keys of a terminal that edits lines; 0 is a key that there is
// not. A key does nothing where the terminal has switched off its kind.
type Modes struct {
	Erase, EraseWord, Kill, Literal, Reprint byte // of editing
	EOF, EOL, EOL2                           byte // they end a line, as LF does
	Interrupt, Quit, Suspend                 byte // they send signals
	Start, Stop                              byte // of output
	CR                                       byte // what CR becomes: LF, CR, or 0 for nothing
	NoFlush                                  bool // signals leave what was typed
}

// Default are the modes of a terminal that no program has changed.
var Default = Modes{
	Erase: '\x7f', EraseWord: ctrl('W'), Kill: ctrl('U'), Literal: ctrl('V'), Reprint: ctrl('R'),
	EOF:       ctrl('D'),
	Interrupt: ctrl('C'), Quit: ctrl('\\'), Suspend: ctrl('Z'),
	Start: ctrl('Q'), Stop: ctrl('S'),
	CR: '\n',
}

// ctrl is the byte of Ctrl with this key.
func ctrl(key byte) byte { return key & 0x1f }

// A Line is what was typed and is not ended yet. The zero value is an empty one.
type Line struct {
	Text    []byte
	literal bool // the next byte is no key
}

// An Effect is what a typed byte did.
type Effect int

// The effects.
const (
	Typed     Effect = iota // Text was changed, or nothing was
	Ended                   // the line has ended; Text still has it, with its LF
	EOF                     // as Ended, but Text has no end: if it is empty, a read returns nothing
	Interrupt               // a signal: Text, and all that waited to be read, is gone
	Quit
	Suspend
)

// Type types c. After Ended and EOF the caller begins a new line.
func (l *Line) Type(c byte, m *Modes) Effect {
	if l.literal {
		l.literal = false
		l.Text = append(l.Text, c)
		return Typed
	}
	if c == '\r' {
		if c = m.CR; c == 0 {
			return Typed
		}
	}
	switch c {
	case 0:
	case m.Start, m.Stop:
		return Typed
	case m.Interrupt, m.Quit, m.Suspend:
		if !m.NoFlush {
			l.Text = l.Text[:0]
		}
		switch c {
		case m.Interrupt:
			return Interrupt
		case m.Quit:
			return Quit
		}
		return Suspend
	case m.Erase:
		l.erase()
		return Typed
	case m.EraseWord:
		l.eraseWord()
		return Typed
	case m.Kill:
		for erased := true; erased; {
			_, erased = l.erase()
		}
		return Typed
	case m.Literal:
		l.literal = true
		return Typed
	case m.Reprint:
		return Typed
	case '\n', m.EOL, m.EOL2:
		l.Text = append(l.Text, c)
		return Ended
	case m.EOF:
		return EOF
	}
	l.Text = append(l.Text, c)
	return Typed
}

// EOFKeys returns what has to be typed so that a program which reads sees the end
// of its input: once at the start of a line, again behind what is not ended. It is
// "" if there is no such key.
func (l *Line) EOFKeys(m *Modes) string {
	var keys []byte
	after, _ := l.Check("", m)
	for m.EOF != 0 {
		keys = append(keys, m.EOF)
		empty := len(after.Text) == 0
		if after.Type(m.EOF, m) == EOF {
			if empty {
				break
			}
			after = Line{}
		}
	}
	return string(keys)
}

// erase takes away the last character, all bytes of it, and returns the first.
// The bytes of what is no whole character stay.
func (l *Line) erase() (first byte, erased bool) {
	n := len(l.Text) - 1
	for n > 0 && !utf8.RuneStart(l.Text[n]) {
		n--
	}
	if n < 0 || !utf8.RuneStart(l.Text[n]) {
		return 0, false
	}
	first = l.Text[n]
	l.Text = l.Text[:n]
	return first, true
}

// eraseWord takes away the last word, and what lies behind it.
func (l *Line) eraseWord() {
	for word := false; ; {
		before := l.Text
		c, erased := l.erase()
		switch {
		case !erased:
			return
		case isWord(c):
			word = true
		case word:
			l.Text = before
			return
		}
	}
}

// isWord reports whether the kernel takes a character that begins with c for
// one of a word.
func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0xc0 && c != 0xd7 && c != 0xf7
}

// Check types text into a copy of l, and returns that and how many bytes the
// longest line had, its end not counted.
func (l *Line) Check(text string, m *Modes) (after Line, longest int) {
	after = Line{slices.Clone(l.Text), l.literal}
	for i := range len(text) {
		switch after.Type(text[i], m) {
		case Ended, EOF:
			after.Text = after.Text[:0]
		}
		longest = max(longest, len(after.Text))
	}
	return after, longest
}
