package text_test

import (
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/text"
)

func TestDecode(t *testing.T) {
	for _, test := range []struct {
		in    string
		max   int
		final bool
		want  string
		n     int
	}{
		{"", 8, true, "", 0},
		{"abc", 8, false, "abc", 3},
		{"abcdefghij", 8, true, "abcdefgh", 8},
		{"abc", -1, true, "", 0},
		{"€", 2, true, "", 0},
		{"abc", math.MaxInt, true, "abc", 3},
		{"abc€", 8, false, "abc€", 6},
		{"abc€", 5, true, "abc", 3},         // max falls inside the rune
		{"abc\xe2\x82", 8, false, "abc", 3}, // its end is still to come
		{"abc\xe2\x82", 8, true, "abc\ufffd", 4},
		{"\xe2\x82", 8, true, "\ufffd\ufffd", 2},
		{"\xf0\x9f\x98", 8, false, "", 0},
		{"a\xffb", 8, false, "a\ufffdb", 3},
		{"\xff\xff\xff", 8, true, "\ufffd\ufffd", 2}, // what grows stays within max
		{"\xe2(", 8, false, "\ufffd(", 2},            // no rune can come of it any more
		{"\x80\x80", 8, false, "\ufffd\ufffd", 2},
		{"\xed\xa0\x80", 12, true, "\ufffd\ufffd\ufffd", 3}, // a surrogate is no UTF-8
	} {
		got, n := text.Decode([]byte(test.in), test.max, test.final)
		if got != test.want || n != test.n {
			t.Errorf("Decode(%q, %d, %v) = %q, %d; want %q, %d", test.in, test.max, test.final, got, n, test.want, test.n)
		}
	}
}

// Whatever the pieces and the limit, decoding yields what Go's own conversion
// makes of the whole.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "plain", "h€llo w😀rld", "\xe2\x82", "a\xff\xfe\xf0\x9f\x98b", "\xed\xa0\x80\xc0\x80\xf5"} {
		f.Add([]byte(s), uint8(4), uint8(3))
		f.Add([]byte(s), uint8(9), uint8(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, limit, step uint8) {
		max, size := 4+int(limit), 1+int(step)
		var got strings.Builder
		for at, seen := 0, 0; at < len(b) || seen < len(b); {
			seen = min(seen+size, len(b))
			final := seen == len(b)
			for {
				s, n := text.Decode(b[at:seen], max, final)
				if !utf8.ValidString(s) || len(s) > max || n < 0 || n > seen-at {
					t.Fatalf("Decode(%q, %d, %v) = %q, %d", b[at:seen], max, final, s, n)
				}
				if n == 0 {
					if held := seen - at; final && held > 0 || held > 3 {
						t.Fatalf("Decode(%q, %d, %v) makes no progress", b[at:seen], max, final)
					}
					break
				}
				got.WriteString(s)
				at += n
			}
		}
		if want := string([]rune(string(b))); got.String() != want {
			t.Errorf("decoded %q, want %q", got.String(), want)
		}
	})
}

// What is cut at max goes on behind, also of a text that is final: a rune that the
// cut goes through is held back, and not taken for one whose end is missing.
func TestDecodeCutIsNotFinal(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		text string
		n    int
	}{
		{"abc€def", 5, "abc", 3},
		{"abc€def", 6, "abc€", 6},
		{"ab😀", 5, "ab", 2},
		{"ab\xe2", 8, "ab\uFFFD", 3}, // the end of all
	} {
		if got, n := text.Decode(c.in, c.max, true); got != c.text || n != c.n {
			t.Errorf("Decode(%q, %d, final) = %q, %d; want %q, %d", c.in, c.max, got, n, c.text, c.n)
		}
	}
	// A reader of pieces gets the whole.
	var got strings.Builder
	for rest := strings.Repeat("x€", 100); rest != ""; {
		piece, n := text.Decode(rest, 7, true)
		got.WriteString(piece)
		rest = rest[n:]
	}
	if want := strings.Repeat("x€", 100); got.String() != want {
		t.Errorf("in pieces: %q", got.String())
	}
}

func TestDecodeAllocates(t *testing.T) {
	b := []byte(strings.Repeat("h€llo ", 1000))
	if n := testing.AllocsPerRun(100, func() { text.Decode(b, len(b), true) }); n > 1 {
		t.Errorf("%v allocations for plain text, want the text only", n)
	}
}

func TestIncomplete(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "a": 0, "€": 0, "😀": 0,
		"\xe2": 1, "\xe2\x82": 2, "a\xe2\x82": 2, "\xf0\x9f\x98": 3,
		"\xff": 0, "\x80": 0, "\x80\x80\x80\x80": 0, "\xc0": 0, "\xe2(": 0,
	} {
		if got := text.Incomplete(s); got != want {
			t.Errorf("Incomplete(%q) = %d, want %d", s, got, want)
		}
	}
}

func TestHeadAndTail(t *testing.T) {
	for _, test := range []struct {
		in         string
		max        int
		head, tail string
	}{
		{"abc", 8, "abc", "abc"},
		{"abcdef", 3, "abc", "def"},
		{"€€€", 3, "€", "€"},
		{"€€€", 4, "€", "€"},
		{"€€€", 5, "€", "€"},
		{"€€€", 6, "€€", "€€"},
		{"€€€", 2, "", ""},
		{"abc", 0, "", ""},
		{"abc", -1, "", ""},
		{"abc", math.MinInt, "", ""},
		{"abc", math.MaxInt, "abc", "abc"},
		{"\x80\x80\x80\x80\x80", 4, "\x80\x80\x80\x80", "\x80\x80\x80\x80"}, // no text: nothing to spare
	} {
		if got := text.Head(test.in, test.max); got != test.head {
			t.Errorf("Head(%q, %d) = %q, want %q", test.in, test.max, got, test.head)
		}
		if got := text.Tail(test.in, test.max); got != test.tail {
			t.Errorf("Tail(%q, %d) = %q, want %q", test.in, test.max, got, test.tail)
		}
	}
}

// Head and Tail keep valid text valid, within three bytes of what was asked.
func FuzzHeadTail(f *testing.F) {
	f.Add("h€llo w😀rld", 4)
	f.Add("\xe2\x82", 1)
	f.Add("a", -1)
	f.Add("a", math.MaxInt)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		head, tail := text.Head(s, limit), text.Tail(s, limit)
		max := max(limit, 0)
		if !strings.HasPrefix(s, head) || !strings.HasSuffix(s, tail) {
			t.Fatalf("Head(%q, %d) = %q, Tail = %q: not its ends", s, max, head, tail)
		}
		for _, part := range []string{head, tail} {
			if len(part) > max || len(part) < min(len(s), max)-3 {
				t.Errorf("cut %q to %d: %q has %d bytes", s, max, part, len(part))
			}
			if utf8.ValidString(s) && !utf8.ValidString(part) {
				t.Errorf("cut valid %q to %d: %q is not valid", s, max, part)
			}
		}
	})
}

func TestTrimRest(t *testing.T) {
	const mark = "\n[... missing ...]\n"
	for s, want := range map[string]string{
		"":                            "",
		"output":                      "output",
		mark + "output":               mark + "output",
		"[... missing ...]\noutput":   "output",
		"ssing ...]\noutput":          "output",
		"]\noutput":                   "output",
		"\noutput":                    "\noutput",
		"output\n[... missing ...]\n": "output\n[... missing ...]\n",
	} {
		if got := text.TrimRest(s, mark); got != want {
			t.Errorf("TrimRest(%q) = %q, want %q", s, got, want)
		}
	}
}
