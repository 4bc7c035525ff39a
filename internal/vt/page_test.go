package vt_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/vt"
)

// A page ends behind a line, or at least not inside of anything.
func TestPage(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		max        int
		want       string
	}{
		{"all of it", "one\ntwo", 7, "one\ntwo"},
		{"whole lines", "one\ntwo\n", 7, "one\n"},
		{"no line fits", "one two", 4, "one "},
		{"a rune", "aé", 2, "a"},
		{"a colour", "ab\x1b[1;31mred", 6, "ab"},
		{"behind a colour", "ab\x1b[1;31mred", 9, "ab\x1b[1;31m"},
		{"a line, then a colour", "a\n\x1b[1;31mred", 6, "a\n"},
		{"CR LF", "ab\r\ncd", 3, "ab"},
		{"a CR whose LF may come", "ab\r", 9, "ab"},
		{"CR alone", "ab\rcd", 3, "ab\r"},
		{"a sequence without end", "ab\x1b[1;3", 9, "ab"},
		{"a line feed inside of a string", "ab\x1b]0;x\nyyyyyy\acd", 12, "ab"},
		{"nothing but the beginning of a sequence", "\x1b]0;title", 9, ""},
		{"a sequence longer than a page", "\x1b]0;title\aab", 4, "\x1b]0;title\a"},
		{"a string that ST ends", "\x1bPq12\x1b\\ab", 7, "\x1bPq12\x1b\\"},
		{"nothing", "", 4, ""},
		{"no room", "a", 0, "a"},
	} {
		if got := tt.text[:vt.Page(tt.text, tt.max)]; got != tt.want {
			t.Errorf("%s: %q at %d gives %q, want %q", tt.name, tt.text, tt.max, got, tt.want)
		}
	}
}

// Pages of any size come to the same text as one piece does, up to a sequence
// whose end is missing.
func FuzzPage(f *testing.F) {
	pieces := []string{
		"a", "é", "\t", "\n", "\r\n", "\x1b[31m", "\x1b[1;38;5;200m", "\x1b(B", "\x1b]0;a\ntitle\a", "\x1bPq#0\n\n12\x1b\\", "\x1b]8;;\x18",
	}
	f.Add([]byte{0, 5, 3, 1, 8, 4, 9, 2, 7, 0, 6, 10}, 3, "\x1b]0;with\nout")
	f.Add([]byte{4, 4, 9}, 1, "\x1b[1")
	f.Fuzz(func(t *testing.T, which []byte, max int, end string) {
		var b strings.Builder
		for _, i := range which {
			b.WriteString(pieces[int(i)%len(pieces)])
		}
		text, want := b.String(), plain(b.String())
		if strings.HasPrefix(end, "\x1b[") && strings.Trim(end[2:], "0123456789;") == "" {
			text += end
		}
		max = 1 + int(uint(max)%64)
		var got strings.Builder
		rest := text
		for n := vt.Page(rest, max); n > 0; n = vt.Page(rest, max) {
			if !utf8.ValidString(rest[:n]) {
				t.Errorf("%q is cut inside of a rune at %d", rest, n)
			}
			got.WriteString(plain(rest[:n]))
			rest = rest[n:]
		}
		if got.String() != want {
			t.Errorf("pages of %d of %q are %q, want %q", max, text, &got, want)
		}
	})
}

// plain returns s as text.
func plain(s string) string {
	t := vt.NewText(40, 120, 0, vt.Notes{})
	t.Write(s)
	return t.String()
}
