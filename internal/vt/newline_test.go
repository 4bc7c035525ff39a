package vt_test

import (
	"strings"
	"testing"

	"github.com/termbridge/termbridge/internal/vt"
)

// A line feed returns the carriage on the main screen, and there only, also where
// the stream comes in pieces.
func TestNewlines(t *testing.T) {
	for in, want := range map[string]string{
		"":                 "",
		"a\nb\r\n\n\nc\r":  "a\r\nb\r\n\r\n\r\nc\r",
		"\x1b[31m\nx\x1b[": "\x1b[31m\r\nx\x1b[",
		"a\n\x1b[?1049h\x1b[2Jb\nc\r\n\x1b[?1049l\nd\n": "a\r\n\x1b[?1049h\x1b[2Jb\nc\r\n\x1b[?1049l\r\nd\r\n",
		"\x1b[?25;47hx\ny\x1bcz\n":                      "\x1b[?25;47hx\ny\x1bcz\r\n",
		"\x1b]0;ti\ntle\a\n\x1b]0;[?1049h\x1b\\\n":      "\x1b]0;ti\ntle\a\r\n\x1b]0;[?1049h\x1b\\\r\n",
		"\x1b[?10\n49hx\ny":                             "\x1b[?10\n49hx\ny",
		"\x1b[?1049\x18hx\ny":                           "\x1b[?1049\x18hx\r\ny",
	} {
		var whole, pieces vt.Newlines
		if got := whole.Convert(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		var got strings.Builder
		for i := range len(in) {
			got.WriteString(pieces.Convert(in[i : i+1]))
		}
		if got.String() != want {
			t.Errorf("%q in pieces: got %q, want %q", in, got.String(), want)
		}
	}
}
