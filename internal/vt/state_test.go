package vt_test

import (
	"strings"
	"testing"

	"github.com/termbridge/termbridge/internal/vt"
)

// Where a sequence ends, whatever follows.
func TestSkip(t *testing.T) {
	for _, seq := range []string{
		"\x1b[31m", "\x1b[1;38:2::1:2:3m", "\x1b(0", "\x1b7", "\x1bM", "\x1b[?1049h", "\x1b[2'~", "\x1b[!p", "\x1b[>0;276;0c",
		"\x1b[3<x", "\x1b[\r1m", "\x1b\x1b[m", "\x1b[3\x18", "\x1b[3é",
		"\x1b]0;title\a", "\x1b]8;;http://x\x1b\\", "\x1b]0;\u2733 x\u009c", "\x1b]0;line\nline\a", "\x1b]0;\x1a",
		"\x1bPq#0\a\x1b\\", "\x1bX1\x1b\\", "\x1b^1\x1b\\", "\x1b_é\x1b\\", "\x1bktitle\x1b\\",
		"\u009b31m", "\u009d0;t\a", "\u0090q\u009c", "\u0098\u009c", "\u0085",
	} {
		for _, after := range []string{"", "m", "1;2H", "\a", "é", "\x1b[m"} {
			state, n := vt.Ground.Step(seq + after)
			in, end := state.Skip((seq + after)[n:])
			if n+in != len(seq) || end != vt.Ground {
				t.Errorf("%q before %q has %d bytes and ends in state %d, want %d and 0", seq, after, n+in, end, len(seq))
			}
		}
	}
}

// What is missing the end of a sequence is found from the end, wherever it is cut.
func TestIncomplete(t *testing.T) {
	for _, seq := range []string{"\x1b[1;31m", "\x1b]0;a title\a", "\x1b(0", "\u009b31m", "\x1bPq#0;2\x1b\\", "\x1b]0;é\u009c"} {
		for cut := range len(seq) {
			if !strings.HasPrefix(seq[cut:], "\x9b") && !strings.HasPrefix(seq[cut:], "\xa9") && !strings.HasPrefix(seq[cut:], "\x9c") {
				before := "text \x1b[m° text"
				want := cut
				if i := strings.LastIndex(seq[:cut], "\x1b\\"[:1]); i > 0 {
					want = cut - i // of the sequence that ends the string
				}
				if got := vt.Incomplete(before + seq[:cut]); got != want {
					t.Errorf("%q: %d bytes are missing their end, want %d", seq[:cut], got, want)
				}
				state := vt.Ground.After(before + seq[:cut])
				if n, end := state.Skip(seq[cut:] + "text"); n != len(seq)-cut && cut > 0 || end != vt.Ground {
					t.Errorf("%q: %d bytes belong to it, want %d", seq[cut:], n, len(seq)-cut)
				}
			}
		}
	}
	if n := vt.Incomplete("no sequence: 5[31m °C"); n != 0 {
		t.Errorf("plain text: %d bytes", n)
	}
}

// What follows a gap in the output and looks like the rest of a sequence is taken
// for one, but not what may well be text.
func TestRemnant(t *testing.T) {
	for _, tt := range []struct{ text, rest string }{
		{"31mred", "red"}, {"[31mred", "red"}, {"1;31mred", "red"}, {"38:5:1mred", "red"}, {"10;20Hx", "x"}, {"[2Kx", "x"}, {"[?25lx", "x"}, {"?25;1hx", "x"},
		{"title\x1b\\x", "x"}, {"q#0\x1b\\x\n", "x\n"},
		{"text", "text"}, {"12 files", "12 files"}, {"[INFO] x", "[INFO] x"}, {"[12:30:01] x", "[12:30:01] x"}, {"2K lines", "2K lines"}, {"", ""}, {"31", "31"},
		{"text\n\x1b\\", "text\n\x1b\\"}, {"[m", "[m"}, {"a\x1b[31mb", "a\x1b[31mb"},
	} {
		if got := tt.text[vt.Remnant(tt.text):]; got != tt.rest {
			t.Errorf("%q: %q is text, want %q", tt.text, got, tt.rest)
		}
	}
}

func FuzzState(f *testing.F) {
	for _, s := range []string{"a\x1b[31mb", "\x1b]0;t\a", "\u009b\u0098x\u009c", "\x1b\x1b\x1b[", "°\u0090é\x1b"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, cut int) {
		s = strings.ToValidUTF8(s, "\ufffd")
		slow := vt.Ground
		for rest := s; rest != ""; {
			var n int
			slow, n = slow.Step(rest)
			rest = rest[n:]
		}
		if got := vt.Ground.After(s); got != slow {
			t.Errorf("%q ends in state %d, want %d", s, got, slow)
		}
		if n := vt.Incomplete(s); n < 0 || n > len(s) || vt.Ground.After(s[:len(s)-n]) != vt.Ground && n > 0 && s[len(s)-n] != '\x1b' || (n > 0) != (slow != vt.Ground) {
			t.Errorf("%q: %d bytes are missing their end", s, n)
		}
		if n := vt.Remnant(s); n < 0 || n > len(s) {
			t.Errorf("%q: a rest of %d bytes", s, n)
		}
	})
}
