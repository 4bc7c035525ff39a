package view

import "github.com/termbridge/termbridge/internal/vt"

// A stripper removes escape sequences and other controls than tabs and line
// ends from a stream of text, and applies none of them: what it leaves is where
// it was, so that a match in it is a place in the output. CRLF becomes LF.
type stripper struct {
	state vt.State
	cr    bool // a CR was the last, and may belong to an LF
}

// strip appends what is left of text to dst, until that is as long as max, and
// returns dst and how much of text that took. A max of -1 is none.
func (s *stripper) strip(dst []byte, text string, max int) (_ []byte, n int) {
	for n < len(text) && (max < 0 || len(dst) < max) {
		if s.state != vt.Ground {
			var in int
			in, s.state = s.state.Skip(text[n:])
			n += in
			continue
		}
		if s.cr {
			s.cr = false
			if text[n] != '\n' {
				dst = append(dst, '\r')
				continue
			}
		}
		run := vt.Printable(text[n:])
		if max >= 0 {
			run = min(run, max-len(dst))
		}
		dst = append(dst, text[n:n+run]...)
		if n += run; run > 0 || n == len(text) {
			continue
		}
		s.cr = text[n] == '\r'
		var size int
		s.state, size = s.state.Step(text[n:])
		n += size
	}
	return dst, n
}
