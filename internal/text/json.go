package text

import "unicode/utf8"

// JSONLen returns the number of bytes that s takes inside a JSON string as
// encoding/json writes it: 6 for an invalid byte and for most control
// characters.
func JSONLen(s string) int {
	n := 0
	for i := 0; i < len(s); {
		width, size := jsonRune(s[i:])
		n += width
		i += size
	}
	return n
}

// JSONHead returns the longest start of s that takes at most limit bytes inside
// a JSON string.
func JSONHead(s string, limit int) string {
	for i := 0; i < len(s); {
		width, size := jsonRune(s[i:])
		if width > limit {
			return s[:i]
		}
		limit -= width
		i += size
	}
	return s
}

// JSONTail returns the longest end of s that takes at most limit bytes inside a
// JSON string.
func JSONTail(s string, limit int) string {
	for i := len(s); i > 0; {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		width, _ := jsonRune(s[i-size : i])
		if width > limit {
			return s[i:]
		}
		limit -= width
		i -= size
	}
	return s
}

// jsonRune returns how many bytes the first rune of s takes in JSON, and in s.
func jsonRune(s string) (width, size int) {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
		return 2, size
	case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029', r == utf8.RuneError && size == 1:
		return 6, size
	}
	return size, size
}
