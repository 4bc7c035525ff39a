// Package text cuts text without cutting runes, measures it in JSON, and shows
// what is hidden in it. A limit below 0 is 0, since limits are often what is left
// of another. It imports only the standard library.
package text

import (
	"strings"
	"unicode/utf8"
)

// Decode returns the text of the bytes at the start of b: valid UTF-8 of at
// most limit bytes, in which every byte that is no UTF-8 became U+FFFD, and the
// number of bytes of b that it stands for. With a limit of less than 4 that may
// be none. A rune whose end is still missing is held back unless final is set.
// It allocates the text only, and nothing if b is a valid string.
func Decode[T ~string | ~[]byte](b T, limit int, final bool) (text string, n int) {
	limit = max(limit, 0)
	if len(b) > limit {
		b = b[:limit]
		final = false // what is cut here goes on behind
	}
	if !final {
		b = b[:len(b)-Incomplete(b)]
	}
	text = string(b)
	if utf8.ValidString(text) {
		return text, len(text)
	}
	var s strings.Builder
	s.Grow(min(limit, len(text)+len(text)/4))
	for n < len(text) {
		r, size := utf8.DecodeRuneInString(text[n:])
		if s.Len()+utf8.RuneLen(r) > limit {
			break
		}
		s.WriteRune(r)
		n += size
	}
	return s.String(), n
}

// Incomplete returns how many bytes at the end of b are the start of a rune
// whose end is missing.
func Incomplete[T ~string | ~[]byte](b T) int {
	for i := 1; i <= min(len(b), utf8.UTFMax-1); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRuneInString(string(b[len(b)-i:])) {
				return i
			}
			return 0
		}
	}
	return 0
}

// Cancel is the control character CAN, which ends an escape sequence that is not
// over (ECMA-48 8.3.6) and does nothing else.
const Cancel = "\x18"

// Tail returns the last bytes of s, at most limit, from the start of a rune on.
func Tail[T ~string | ~[]byte](s T, limit int) T {
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-max(limit, 0):]
	return s[Continuation(s):]
}

// TrimRest returns s, whose start was cut away, without the rest of a mark that
// the cut went through: it would read as output that nobody wrote. One byte is
// taken for output.
func TrimRest(s, mark string) string {
	for n := len(mark) - 1; n > 1; n-- {
		if rest, ok := strings.CutPrefix(s, mark[len(mark)-n:]); ok {
			return rest
		}
	}
	return s
}

// Head returns the first bytes of s, at most limit, up to the end of a rune.
func Head[T ~string | ~[]byte](s T, limit int) T {
	if len(s) <= limit {
		return s
	}
	s = s[:max(limit, 0)]
	return s[:len(s)-Incomplete(s)]
}

// Continuation returns how many bytes at the start of s are the end of a rune
// whose start was cut away: at most three.
func Continuation[T ~string | ~[]byte](s T) int {
	for i := range min(len(s), utf8.UTFMax) {
		if utf8.RuneStart(s[i]) {
			return i
		}
	}
	if len(s) < utf8.UTFMax {
		return len(s)
	}
	return 0 // no text at all
}
