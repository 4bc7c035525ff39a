package vt

import (
	"math/bits"
	"strings"
	"unicode/utf8"
)

// Plain returns what a [Text] makes of s, and true, if s has nothing but text,
// tabs, line ends and colours, which is most output. It returns s itself where
// there is nothing to leave out.
func Plain(s string) (string, bool) {
	switch {
	case plain(s) < len(s):
		return "", false
	case strings.IndexByte(s, esc) < 0 && strings.IndexByte(s, '\r') < 0:
		return s, true
	}
	return string(appendPlain(make([]byte, 0, len(s)), s)), true
}

// plain returns how many bytes at the start of s are text whose only controls are
// tabs, line ends and colours. More than markLimit bytes in a row that may have
// to find a place in one cell are none: combining characters, and tabs at the end
// of a row.
func plain(s string) int {
	run := 0 // bytes that may be in the last cell
	for i := 0; i < len(s); {
		if n := letters(s[i:]); n > 0 {
			i += n
			run = 0
			continue
		}
		n := 0
		switch c := s[i]; {
		case c == '\n':
			n, run = 1, 0
		case c == '\t':
			n = 1
			run++
		case c == '\r':
			for i+n < len(s) && s[i+n] == '\r' {
				n++
			}
			if i+n == len(s) || s[i+n] != '\n' {
				return i
			}
		case c == esc:
			n = colour(s[i:])
		case c >= utf8.RuneSelf:
			var r rune
			r, n = utf8.DecodeRuneInString(s[i:])
			switch {
			case n == 1, isC1(r):
				return i
			case width(r) == 0:
				run += n
			default:
				run = 0
			}
		}
		if n == 0 || run > markLimit {
			return i
		}
		i += n
	}
	return len(s)
}

// Printable returns how many bytes at the start of s are text, tabs and line
// feeds: no other control is among them.
func Printable(s string) int {
	for i := 0; i < len(s); {
		if n := letters(s[i:]); n > 0 {
			i += n
			continue
		}
		n := 1
		switch c := s[i]; {
		case c == '\n', c == '\t':
		case c < utf8.RuneSelf:
			return i
		default:
			var r rune
			if r, n = utf8.DecodeRuneInString(s[i:]); isC1(r) {
				return i
			}
		}
		i += n
	}
	return len(s)
}

// letters returns how many bytes at the start of s are printable ASCII.
func letters(s string) int {
	const ones = 0x0101010101010101
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		// The high bits of bytes that are not ASCII, under ' ', or DEL. The lowest
		// one is right; those above it may not be.
		if x = (x | (x - ones*' ') | ((x ^ ones*del) - ones)) & (ones * 0x80); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < len(s) && s[i]-' ' < del-' ' {
		i++
	}
	return i
}

// colour returns the length of the sequence at the start of s if it only sets
// colours and the like, else 0.
func colour(s string) int {
	if len(s) < 3 || s[1] != '[' {
		return 0
	}
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c == 'm':
			return i + 1
		case c < '0' || c > ';':
			return 0
		}
	}
	return 0
}

// appendPlain appends s, which is plain, to b without carriage returns and
// colours.
func appendPlain(b []byte, s string) []byte {
	cr, seq := strings.IndexByte(s, '\r'), strings.IndexByte(s, esc)
	for cr >= 0 || seq >= 0 {
		var at, n int
		if seq < 0 || cr >= 0 && cr < seq {
			at, n = cr, 1
		} else {
			at, n = seq, colour(s[seq:])
		}
		b = append(b, s[:at]...)
		s = s[at+n:]
		if at == cr {
			cr = strings.IndexByte(s, '\r')
			if seq >= 0 {
				seq -= at + n
			}
		} else {
			seq = strings.IndexByte(s, esc)
			if cr >= 0 {
				cr -= at + n
			}
		}
	}
	return append(b, s...)
}
