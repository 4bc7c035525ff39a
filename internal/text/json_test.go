package text_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/text"
)

var awkward = []string{"", "plain", "\"\\\b\f\n\r\t", "\x00\x1b\x7f", "<>&\u2028\u2029", "h€llo w😀rld", "\xe2\x82", "a\xff\xfe\xf0\x9f\x98b", "\xed\xa0\x80\xc0\x80\xf5", "\ufffd"}

// inJSON is how long encoding/json makes the inside of a string.
func inJSON(t *testing.T, s string) int {
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return len(b) - 2
}

// JSONLen counts what encoding/json writes, and JSONHead and JSONTail are the
// longest that fit.
func FuzzJSON(f *testing.F) {
	for _, s := range awkward {
		f.Add(s, 7)
		f.Add(s, -1)
	}
	f.Add("all of it", math.MaxInt)
	f.Add("nothing", math.MinInt)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if got, want := text.JSONLen(s), inJSON(t, s); got != want {
			t.Fatalf("JSONLen(%q) = %d, want %d", s, got, want)
		}
		head, tail := text.JSONHead(s, limit), text.JSONTail(s, limit)
		rest, ok := strings.CutPrefix(s, head)
		before, suffix := strings.CutSuffix(s, tail)
		if !ok || !suffix {
			t.Fatalf("%q and %q are not the start and the end of %q", head, tail, s)
		}
		for _, part := range []string{head, tail} {
			if n := inJSON(t, part); n > max(limit, 0) {
				t.Fatalf("%q takes %d bytes, at most %d were allowed", part, n, limit)
			}
		}
		if _, size := utf8.DecodeRuneInString(rest); size > 0 && inJSON(t, s[:len(head)+size]) <= limit {
			t.Fatalf("JSONHead(%q, %d) = %q: one more fits", s, limit, head)
		}
		if _, size := utf8.DecodeLastRuneInString(before); size > 0 && inJSON(t, s[len(before)-size:]) <= limit {
			t.Fatalf("JSONTail(%q, %d) = %q: one more fits", s, limit, tail)
		}
	})
}

// What is not shown is spelled out, and nothing else is changed.
func TestVisible(t *testing.T) {
	for _, test := range []struct{ in, keep, want string }{
		{"", "", ""},
		{"git --version", "", "git --version"},
		{"漢字 🙂 שלום مرحبا e\u0301 👩\u200d💻", "", "漢字 🙂 שלום مرحبا e\u0301 👩\u200d💻"},
		{"a\x1b[2K\rb\tc\nd", "", `a\x1b[2K\rb\tc\nd`},
		{"a\x1b[2K\rb\tc\nd", "\n\t", "a\\x1b[2K\\rb\tc\nd"},
		{"\x00\x7f\u0085", "", `\x00\x7f\x85`},
		{"rm \u202e/ fr- \u202c\u2066x\u2069\u200e\u200f\u061c", "", `rm \u202e/ fr- \u202c\u2066x\u2069\u200e\u200f\u061c`},
		{"gi\u200bt\u00ad st\ufeffa\u2060tus \u0600\u06f1 \U000e0041\U0001f600 می\u200cخواهم", "", `gi\u200bt\xad st\ufeffa\u2060tus ` + "\u0600\u06f1 " + `\U000e0041` + "\U0001f600 می\u200cخواهم"},
		{"a\u2028b\u2029", "\n", `a\u2028b\u2029`},
		{"a\xff\ufffdb", "", "a\ufffd\ufffdb"},
	} {
		if got := text.Visible(test.in, test.keep); got != test.want {
			t.Errorf("Visible(%q, %q) = %q, want %q", test.in, test.keep, got, test.want)
		}
	}
}
