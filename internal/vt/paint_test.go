package vt_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/termbridge/termbridge/internal/vt"
)

// paint returns a screen of the size of s that showed something else and was then
// painted.
func paint(s *vt.Screen) *vt.Screen {
	rows, cols := s.Size()
	other := vt.New(rows, cols, true)
	other.Write("\x1b[?1049h\x1b[31;44mwas here before\x1b[2;2r\x1b[?6h\x1b[4h\x1b(0\x0e\x1b[?7l\x1b[3g\x1b[?25l\x1b[?1003h\x1b[?1;2004h\x1b=")
	other.Write(s.Paint())
	return other
}

// A terminal that is painted shows what the screen shows, and goes on as it would.
func TestPaint(t *testing.T) {
	for name, s := range map[string]string{
		"text":        "one\ntwo \x1b[1;31mred\x1b[0m\n\n  日本語 e\u0301",
		"colours":     "\x1b[38;5;200;48;2;255;0;16mx\x1b[97;107my\x1b[7;3;4;9;2mz\x1b[0m",
		"background":  "\x1b[44m\x1b[2J\x1b[5;5Hx\x1b[0m\x1b[K",
		"blanks":      "a\x1b[5Cb\x1b[44m\x1b[3X\x1b[0m",
		"alternate":   "main\x1b7\x1b[?1049hfull\x1b[3;5r\x1b[4;4H\x1b7\x1b[?1;25l\x1b[?1002;1006h",
		"pending":     strings.Repeat("x", 20),
		"wide":        strings.Repeat("x", 18) + "日",
		"modes":       "\x1b[4h\x1b[?7l\x1b[20h\x1b[?2004h\x1b[?1004h\x1b=\x1b[6 q",
		"drawing":     "\x1b)0\x0elqk",
		"origin":      "\x1b[2;5r\x1b[?6h\x1b[2;2Hx",
		"tabs":        "\x1b[3g\x1b[1;5H\x1bH\r",
		"title":       "\x1b]2;a title\a",
		"nothing":     "",
		"mouse off":   "\x1b[?1000h\x1b[?1006h\x1b[?1000l",
		"old":         "main\x1b[?47hold",
		"lonely mark": "\x1b[1;3H\u0301x",
	} {
		t.Run(name, func(t *testing.T) {
			a := vt.New(6, 20, true)
			a.Write(s)
			b := paint(a)
			if diff := a.Differs(b); diff != "" {
				t.Fatalf("painted %q: %s", a.Paint(), diff)
			}
			for _, more := range []string{"z\nabc\tx", "\x1b8q", "\x1b[9Aw\x1b[?1049lv"} {
				if strings.Contains(more, "1049l") && !strings.Contains(s, "1049h") {
					continue // it was not entered like this
				}
				a.Write(more)
				b.Write(more)
				if diff := a.Differs(b); diff != "" {
					t.Errorf("then %q: %s", more, diff)
				}
			}
		})
	}
}

// The same holds for a bit of everything.
func TestPaintRandom(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		c := randomScreen(random)
		s := vt.New(c.rows, c.cols, true)
		all, _ := c.input()
		s.Write(all + "\x18\x0f") // out of any sequence
		if diff := s.Differs(paint(s)); diff != "" {
			t.Fatalf("seed %d, %d×%d %q, painted %q: %s", seed, c.rows, c.cols, all, s.Paint(), diff)
		}
	}
}
