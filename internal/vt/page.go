package vt

import "strings"

// Page returns how much of text a page takes that has at most max bytes. It ends
// behind a whole line if there is one and text goes on, else wherever neither an
// escape sequence nor a CR LF nor a rune is cut in two, so that the next page
// does not begin with the rest of one.
//
// It is 0 if text is the beginning of something whose end is not there, and more
// than max only for a sequence that is longer than a page.
func Page(text string, max int) int {
	whole, line := 0, 0 // where the page can end, and where behind a line
	for n := 0; n < len(text); {
		state, size := Ground.Step(text[n:])
		if strings.HasPrefix(text[n:], "\r\n") {
			size = 2
		}
		n += size
		size, state = state.Skip(text[n:])
		n += size
		if state != Ground || text[n-1:] == "\r" {
			break
		}
		if n > max {
			switch {
			case line > 0:
				return line
			case whole > 0:
				return whole
			}
			return n
		}
		if whole = n; text[n-1] == '\n' {
			line = n
		}
	}
	if len(text) > max && line > 0 {
		return line
	}
	return whole
}
