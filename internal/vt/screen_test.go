package vt_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/internal/vt"
)

// Whatever is written, in whatever pieces and sizes, a screen is whole.
func FuzzScreen(f *testing.F) {
	f.Add("日本語\x1b[1;2H\x1b[P\x1b[?1049hx\x1b[2J\u0301", 3, 5, 20, 7, 4)
	f.Add("\x1b[1;4r\x1b[S\x1b[999999999b\x1b#8\x1b[4h日\x1b[5@", 1, 2, 20, 40, 3)
	f.Add("a\tb\x1b[3g\t\x1b[2'}\x1b[ @\x1b[2;3r\x1b[?6h\x1b[9;9H\x1bM\x1b[L\x1b7\x1b8", 2, 4, 9, 4, 30)
	f.Fuzz(func(t *testing.T, s string, piece, rows, cols, newRows, newCols int) {
		whole := vt.New(rows, cols, true)
		whole.Write(s)
		inPieces := vt.New(rows, cols, true)
		for rest := s; rest != ""; {
			n := min(max(piece, 1), len(rest))
			inPieces.Write(rest[:n])
			rest = rest[n:]
		}
		if diff := cmp.Diff(shoot(whole, 0), shoot(inPieces, 0)); diff != "" {
			t.Errorf("%q (-whole +in pieces of %d):\n%s", s, piece, diff)
		}
		text := vt.NewText(rows, cols, 0, vt.Notes{})
		text.Write(s)
		for _, screen := range []*vt.Screen{whole, text.Screen()} {
			if err := screen.Check(); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
		whole.Resize(newRows, newCols)
		if err := whole.Check(); err != nil {
			t.Errorf("%q, then resized: %v", s, err)
		}
		whole.Write(s)
		if err := whole.Check(); err != nil {
			t.Errorf("%q twice, resized between: %v", s, err)
		}
		for _, line := range shoot(whole, 0).Rows {
			if !utf8.ValidString(line) {
				t.Errorf("%q shows %q", s, line)
			}
		}
	})
}

// A bit of everything leaves a screen whole, with tabs or without.
func TestRandomScreens(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		c := randomScreen(random)
		s, text := vt.New(c.rows, c.cols, true), vt.NewText(c.rows, c.cols, 0, vt.Notes{})
		for i, piece := range c.pieces {
			if c.resize != nil && c.resizeAt == i {
				s.Resize(c.resize.rows, c.resize.cols)
			}
			s.Write(piece)
			text.Write(piece + "\t")
		}
		for _, s := range []*vt.Screen{s, text.Screen()} {
			if err := s.Check(); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, c, err)
			}
		}
	}
}

// Whatever asks for a lot gets no more than was read for it.
func TestBounds(t *testing.T) {
	for _, s := range []string{
		"\x1b[1;4r\x1b[S", "\x1b[999999999b", "x\x1b[999999999b", "\x1b[999999999L", "\x1b[999999999@", "\x1b[999999999S", "\x1b[999999999T",
		"\x1b[999999999I", "\x1b[999999999 @", "\x1b[99999999999999999999;99999999999999999999H", "\x1b]0;" + strings.Repeat("t", 1<<20),
		"\x1bP" + strings.Repeat("t", 1<<20), "x" + strings.Repeat("\u0301", 1<<18), strings.Repeat("\x1b[", 1<<18), "\x1b[" + strings.Repeat(";", 1<<20) + "m",
		strings.Repeat("\x1b[22t\x1b]0;x\a", 1<<16),
	} {
		name := s[:min(len(s), 20)]
		began := time.Now()
		screen := vt.New(1_000_000, 1_000_000, false)
		if rows, cols := screen.Size(); rows != 1000 || cols != 1000 {
			t.Fatalf("%d×%d, want 1000×1000", rows, cols)
		}
		screen.Write(s)
		if err := screen.Check(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("%q took %v", name, d)
		}
		if n := len(screen.Title()); n > 4<<10 {
			t.Errorf("%q: a title of %d bytes", name, n)
		}
	}
}

// What programs ask of the keyboard and the mouse, and the title, can be asked
// for.
func TestModes(t *testing.T) {
	s := vt.New(24, 80, false)
	s.Write("\x1b[?1h\x1b[?2004h\x1b[?1002h\x1b[?25l\x1b[?2026h\x1b]2;one\a\x1b[22;0t\x1b]0;two\a")
	want := vt.AppCursor | vt.Paste | vt.Mouse | vt.CursorHidden | vt.Synchronized
	if got := s.Modes(); got != want || s.Title() != "two" {
		t.Errorf("%+v, %q; want %+v, two", got, s.Title(), want)
	}
	s.Write("\x1b[?1;25;1002;2004l\x1b[?25h\x1b[?2026l\x1b[23;0t")
	if got := s.Modes(); got != 0 || s.Title() != "one" {
		t.Errorf("after all were switched off: %+v, %q", got, s.Title())
	}
}

// A wider screen has room behind a row that was full, and a taller one takes back
// what has left it; lines are wrapped anew, but not the one with the cursor.
func TestResize(t *testing.T) {
	s := vt.New(2, 5, false)
	s.Write("one\r\n1234567\r\nlast5")
	s.Resize(5, 8)
	s.Write("6")
	if got, want := shoot(s, 0), (shot{Cols: 8, Rows: []string{"one", "1234567", "last56", "", ""}, Y: 2, X: 6}); !cmp.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	s.Resize(4, 3)
	if got, want := shoot(s, 0), (shot{Cols: 3, Rows: []string{"123", "456", "7", "las"}, Y: 3, X: 2}); !cmp.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A saved cursor stays at its text when the screen gets taller and takes back what has
// left it.
func TestResizeKeepsTheSavedCursor(t *testing.T) {
	s := vt.New(2, 6, false)
	s.Write("one\r\ntwo\r\nthree\x1b7")
	s.Resize(4, 6)
	s.Write("\x1b[H\x1b8!")
	if got, want := shoot(s, 0).Rows, []string{"one", "two", "three!", ""}; !cmp.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A line feed returns the carriage where nobody put a carriage return before it,
// but not on the alternate screen, where programs move by it.
func TestNewline(t *testing.T) {
	s := vt.New(3, 10, true)
	s.Write("ab\ncd\x1b[?1049h\x1b[Hab\ncd")
	if got := []string{s.Line(0), s.Line(1)}; !cmp.Equal(got, []string{"ab", "  cd"}) {
		t.Errorf("on the alternate screen: %q", got)
	}
	s.Write("\x1b[?1049l")
	if got := []string{s.Line(0), s.Line(1)}; !cmp.Equal(got, []string{"ab", "cd"}) {
		t.Errorf("on the main screen: %q", got)
	}
}
