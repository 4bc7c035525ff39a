package view_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

var plainCases = []struct{ name, in, want string }{
	{"plain text is returned as it is", "a\tb\nc", "a\tb\nc"},
	{"no final newline is added", "a\r\nb", "a\nb"},
	{"a final newline stays", "a\r\nb\r\n", "a\nb\n"},
	{"empty lines stay", "\r\n\r\na\r\n\r\n", "\n\na\n\n"},
	{"blanks at the end of a line stay", "a  \x1b[0m\r\n", "a  \n"},
	{"CR overwrites cells and does not clear", "longer\rshort", "shortr"},
	{"CR and a shorter line that ends", "longer\rshort\n", "shortr\n"},
	{"CR, a whole line, CRLF", "abc\rxyz\r\nd", "xyz\nd"},
	{"many CRs before LF", "abc\r\r\n", "abc\n"},
	{"progress by CR and EL", "10%\r\x1b[K20%\r\x1b[Kdone\n", "done\n"},
	{"EL after the new text", "downloading\rok\x1b[K\n", "ok\n"},
	{"EL 1 leaves blanks up to the cursor", "abcdef\b\b\x1b[1K", "     f"},
	{"EL 2 erases and the cursor stays", "abc\x1b[2Kd", "   d"},
	{"EL 2 and CR", "abc\x1b[2K\rd", "d"},
	{"BS overwrites", "abc\b\bX", "aXc"},
	{"BS stops at the first column", "a\b\b\bX", "X"},
	{"man page bold and underline", "N\bNA\bA _\bx", "NA x"},
	{"a spinner", "-\b\\\b|\b/\bdone", "done"},
	{"SGR", "\x1b[1;38;2;1;2;3mred\x1b[0m\x1b(B", "red"},
	{"SGR with sub-parameters", "\x1b[4:3mx\x1b[m", "x"},
	{"cursor up and a rewritten line", "one\ntwo\n\x1b[2A\x1b[2KONE\n\x1b[2KTWO\nend\n", "ONE\nTWO\nend\n"},
	{"cursor up keeps the column", "abc\nxy\x1b[AZ", "abZ\nxy"},
	{"cursor up stops at the top", "a\nc\x1b[99A\rb", "b\nc"},
	{"an erased line below the cursor is nothing", "a\nb\x1b[2K\x1b[A\rc", "c"},
	{"an empty row below the cursor is nothing", "a\n\x1b[A\rc", "c"},
	{"cursor down stops at the last row", "a\nb\x1b[A\x1b[99Bc", "a\nb" + strings.Repeat("\n", 38) + " c"},
	{"CNL and CPL", "a\nb\nc\x1b[2FX\x1b[EY", "X\nY\nc"},
	{"RI", "a\nb\x1bM\rX", "X\nb"},
	{"IND and NEL", "a\x1bDb\x1bEc", "a\n b\nc"},
	{"log-update: erase lines upwards", "a\nb\nc\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[Gx", "x"},
	{"ED 0 erases what is below", "a\nb\nc\x1b[2A\r\x1b[Jx", "x"},
	{"CHA", "abc\x1b[2GX", "aXc"},
	{"CHA to the right leaves blanks", "a\x1b[5Gb", "a   b"},
	{"blanks without text behind them are none", "a\x1b[50G\n", "a\n"},
	{"CUF and CUB", "a\x1b[3Cb\x1b[2Dc", "a  cb"},
	{"DCH, ICH and ECH", "abcdef\r\x1b[2P\x1b[1@X\x1b[2CY\x1b[D\x1b[X", "Xcd f"},
	{"save and restore", "abc\x1b7def\x1b8X\x1b[sY\x1b[uZ", "abcXZf"},
	{"restore without save goes to the top, as on a terminal", "abc\x1b8de", "dec"},
	{"OSC ended by BEL and by ST", "a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\c", "ablinkc"},
	{"OSC with the byte of ST in a rune", "\x1b]0;\u2733 title\x07a", "a"},
	{"DCS, SOS, PM and APC", "a\x1bPq#0\xe2\x9c\xb3\n\x1b\\b\x1bXx\u2733\x1b\\c\x1b^y\x1b\\d\x1b_z\x1b\\e", "abcde"},
	{"an empty DCS", "a\x1bP\x1b\\b", "ab"},
	{"a string cancelled by CAN", "a\x1b]0;t\x18b", "ab"},
	{"controls within a sequence are applied", "ab\x1b[\r1mX", "Xb"},
	{"other controls are dropped", "\x00a\x07b\x7fc\x0ed\x0f", "abcd"},
	{"C1 controls are those that they stand for", "a\u0085b\u009b2Dc", "a\nc"},
	{"VT and FF are line feeds", "a\vb\fc", "a\nb\nc"},
	{"an incomplete sequence at the end is dropped", "a\x1b[31", "a"},
	{"an incomplete string at the end is dropped", "a\x1b]0;tit", "a"},
	{"a single ESC at the end is dropped", "a\x1b", "a"},
	{"no sequence: text goes on", "a\x1b[3é", "aé"},
	{"bytes that are no UTF-8", "a\xff\xfe\xe2\x82b", "a\ufffd\ufffd\ufffd\ufffdb"},
	{"wide characters take two cells", "日本\rab", "ab本"},
	{"half of a wide character is cleared", "日本\ra", "a 本"},
	{"a wide character over narrow ones", "abcd\r日", "日cd"},
	{"combining characters stay with their cell", "e\u0301x\rab", "ab"},
	{"combining characters before a line are erased with it", "\u0301\r\x1b[Kx", "x"},
	{"combining characters can be added to a cell", "ax\re\u0301", "e\u0301x"},
	{"a tab moves over cells", "0123456789\r\tX", "01234567X9"},
	{"a tab that is overwritten becomes blanks", "a\tb\rxy", "xy      b"},
	{"a tab stays in a line that is overwritten elsewhere", "a\tb\rx", "x\tb"},
	{"alternate screen", "$ vim\r\n\x1b[?1049h\x1b[Hfoo\r\nbar\x1b[?1049l$ ok\r\n", "$ vim\n" + view.ScreenNote + "\n$ ok\n"},
	{"alternate screen in the middle of a line", "a\x1b[?1049hx\x1b[?1049lb", "ab\n" + view.ScreenNote},
	{"alternate screen that is never left", "a\n\x1b[?1047hxyz\n", "a\n" + openNote + "\nxyz\n"},
	{"alternate screen that is never left, in the middle of a line", "a\x1b[?1049h\x1b[Hxyz", "a\n" + openNote + "\nxyz"},
	{"alternate screen that is never left, behind a cleared one", "a\n\x1b[H\x1b[2J\x1b[?1049h\x1b[Hxyz", "a\n" + openNote + "\nxyz"},
	{"alternate screen that is never left, and empty", "a\n\x1b[?1047hxyz\x1b[2J", "a\n" + view.ScreenNote},
	{"alternate screen and nothing behind it", "a\n\x1b[?1049hx\x1b[?1049l", "a\n" + view.ScreenNote},
	{"alternate screen twice, one note", "\x1b[?1049hx\x1b[?1049l\x1b[?1049hy\x1b[?1049l", view.ScreenNote},
	{"alternate screen among other modes", "\x1b[?25;1049hx\x1b[?1049;25lb", view.ScreenNote + "\nb"},
	{"leaving an alternate screen that was not entered", "a\x1b[?1049lb", "ab"},
	{"clearing the screen loses nothing", "first\r\n\x1b[H\x1b[2J\x1b[3Jsecond\r\n", "first\nsecond\n"},
	{"clearing the screen in a line", "first\x1b[2J\x1b[Hsecond", "first\nsecond"},
	{"clearing the screen from its start loses nothing", "first\x1b[1;1H\x1b[0Jsecond", "first\nsecond"},
	{"clearing the screen and nothing behind it", "first\n\x1b[H\x1b[2J", "first"},
	{"resetting the terminal loses nothing", "first\x1bcsecond", "first\nsecond"},
	{"scrolling the screen loses nothing", "first\nsecond\x1b[2S\rthird", "first\nsecond\n\nthird"},
	{"erasing at a place erases", "first\x1b[H\x1b[Ksecond", "second"},
	{"moves along a row stay on the line", "\x1b[1;1Hname\x1b[1;10Hsize\x1b[2;1Hx", "name     size\nx"},
	{"the test pattern is no text", "a\x1b#8b", "b"},
	{"apt's progress bar", "\x1b7\x1b[3;1HProgress\x1b8Unpacking\r\n", "Unpacking\n\nProgress"},
	{"a link", "\x1b]8;id=1;https://x/\x1b\\ab\x1b]8;;\x1b\\c", "abc"},
	{"bytes that look like C1 controls are no UTF-8", "a\x9b31mb", "a\ufffd31mb"},

	// Up, down and clear count rows of the screen.
	{"cursor up after a line that wrapped", "keep\n" + strings.Repeat("0", 130) + "\r\x1b[K\x1b[A\x1b[Kdone\n", "keep\ndone\n"},
	{"cursor up and erasing after a hundred lines", linesOf(100) + "\x1b[999A\x1b[Jdone\n", linesOf(61) + "done\n"},
	{"a line that wrapped is one line", strings.Repeat("0", 130) + "\n\x1b[Kx", strings.Repeat("0", 130) + "\nx"},
	{"a wide character that wraps leaves no space", strings.Repeat("0", 119) + "日\x1b[m", strings.Repeat("0", 119) + "日"},
	{"zsh's mark of a partial line", "foo\x1b[7m%\x1b[m" + strings.Repeat(" ", 119) + "\r \r\r\x1b[J$ ", "foo%" + strings.Repeat(" ", 116) + "\n$ "},
	{"zsh's mark without a partial line", "foo\n\x1b[7m%\x1b[m" + strings.Repeat(" ", 119) + "\r \r\r\x1b[J$ ", "foo\n$ "},

	{"a line feed ends a line that had wrapped", strings.Repeat("0", 130) + "\x1b[A\rx\x1b[K\n", "x\n0000000000"},

	// Erasing and moving what is not there loses nothing of what follows.
	{"EL 1 on an empty line", "\x1b[1Kx", "x"},
	{"ECH on an empty line", "\x1b[5Xx", "x"},
	{"DCH on an empty line", "\x1b[5Px", "x"},
	{"ICH on an empty line", "\x1b[5@x", "x"},
	{"EL 1, ECH, DCH and ICH behind a line", "ab\x1b[5X\x1b[5P\x1b[5@x\x1b[1Ky", "   y"},

	{"REP", "a\x1b[3bX", "aaaaX"},
	{"REP wraps", "a\x1b[130bX", strings.Repeat("a", 131) + "X"},
	{"IL", "a\nb\x1b[LX", "a\nX\nb"},
	{"DL", "a\nb\nc\x1b[2A\x1b[MX", "X\nc"},
	{"CHT and CBT", "a\x1b[2Ib\x1b[ZX", "a               X"},
	{"VT and FF", "a\vb\fc", "a\nb\nc"},
	{"line drawing", "\x1b(0lqqk\x1b(B lqqk", "┌──┐ lqqk"},
	{"line drawing by SO and SI", "\x1b)0\x0ex\x0fx", "│x"},
	{"a region scrolls for itself", "a\nb\nc\x1b[1;2r\x1b[2;1H\nX\x1b[r", "a\nb\nX\nc"},
}

const openNote = "[full-screen program: its screen follows]"

// linesOf returns n lines.
func linesOf(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestPlain(t *testing.T) {
	for _, c := range plainCases {
		t.Run(c.name, func(t *testing.T) {
			if got := view.Plain(c.in); got != c.want {
				t.Errorf("Plain(%q)\n got %q\nwant %q", c.in, got, c.want)
			}
		})
	}
}

func TestPlainProgress(t *testing.T) {
	t.Run("ten thousand updates of a bar are one line", func(t *testing.T) {
		var b strings.Builder
		for i := range 10_001 {
			fmt.Fprintf(&b, "\r%s %5.1f%%", strings.Repeat("█", i/1000), float64(i)/100)
		}
		b.WriteString("\r\n")
		want := strings.Repeat("█", 10) + " 100.0%\n"
		if got := view.Plain(b.String()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("a dashboard of ten lines drawn a thousand times", func(t *testing.T) {
		var b, want strings.Builder
		for i := range 1000 {
			if i > 0 {
				b.WriteString("\x1b[10A")
			}
			for j := range 10 {
				fmt.Fprintf(&b, "\x1b[2K\x1b[3%dmtask %d\x1b[0m step %d\r\n", j%8, j, i)
			}
		}
		for j := range 10 {
			fmt.Fprintf(&want, "task %d step 999\n", j)
		}
		if got := view.Plain(b.String()); got != want.String() {
			t.Errorf("got %q, want %q", got, want.String())
		}
	})
}

func TestPlainLongInput(t *testing.T) {
	long := strings.Repeat("0123456789", 3000)
	for _, c := range []struct{ name, in, want string }{
		{"the cursor reaches the rows of the screen only", linesOf(1000) + "\x1b[9999A-\x1b[39B", strings.Replace(linesOf(1000), "line 961\n", "-ine 961\n", 1)},
		{"and the same where every line is coloured", strings.ReplaceAll(linesOf(1000), "line", "\x1b[1mline\x1b[m") + "\x1b[9999A-\x1b[39B", strings.Replace(linesOf(1000), "line 961\n", "-ine 961\n", 1)},
		{"a line of any length is kept", "\x1b[m" + long, long},
		{"and the next one too", "\x1b[m" + long + "\nx\r", long + "\nx"},
		{"a long line that is overwritten", "a\r" + long, long},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := view.Plain(c.in); got != c.want {
				t.Errorf("got %d bytes %.80q, want %d bytes %.80q", len(got), got, len(c.want), c.want)
			}
		})
	}
}

func TestPlainReturnsPlainTextUncopied(t *testing.T) {
	s := strings.Repeat("some output, ein Wörtchen\tand more\n", 1000)
	if n := testing.AllocsPerRun(10, func() { view.Plain(s) }); n != 0 {
		t.Errorf("plain text: %v allocations, want none", n)
	}
}

// Hostile input takes linear time and memory. The bounds are wide: quadratic
// time would take hours.
func TestPlainHostileInput(t *testing.T) {
	for _, unit := range []string{
		"\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b[1K", "\x1b[9999999999999999999C", "\x1b[256Gx\n", "\x1b[J", "\x1b7x\x1b8",
		"\r", "\b", "x\b", "\n\x1b[99A", "\x1b[99Ax\x1b[99B", "\x1b[2K", "\x1b[5Gx\x1b[2K", "\x1b[H", "\x1b[Hx", "\x1b[?1049h", "\x1b[?1049hx\x1b[?1049ly",
		"日\b", "\u0301", "\x1b[256@", "\x1b[99999b", "a\x1b[99999b", "\x1b#8\x1b[2J", "\x1b[99Hx\x1b[2J", "\x1b[99S", "\x1b[L", "\x1b[M", "\x1bM", "\x1bD", "\x1b[99I", "\x1b[99Z", "\x1bH", "\x1bc", "e\u0301\b", "\t\b", "\x1b[99@x", "\x1b[P", "\x1b[99X", "\x9b", "\xff", "\xe2\x82", "\u0085", "\x00", "x\x1b[m",
		"\x1b[;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;m", "\x1b[1;", "\x1b[" + strings.Repeat("9", 1000),
	} {
		t.Run(fmt.Sprintf("%.20q", unit), func(t *testing.T) {
			n := 1 << 19
			if unit == "\x1b" {
				n = 10 << 20
			}
			s := strings.Repeat("some text ", 1000) + strings.Repeat(unit, n/len(unit))
			start := time.Now()
			got := view.Plain(s)
			if d := time.Since(start); d > time.Minute {
				t.Errorf("%d bytes took %v", len(s), d)
			}
			if len(got) > 60*len(s) {
				t.Errorf("%d bytes became %d", len(s), len(got))
			}
			checkPlain(t, got)
		})
	}
}

// checkPlain checks what is true of any plain text.
func checkPlain(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Errorf("not UTF-8: %.200q", s)
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }); i >= 0 {
		t.Errorf("a control in %.200q", s[i:])
	}
	if view.Plain(s) != s {
		t.Errorf("plain text was changed: %.200q", s)
	}
}

func TestPlainer(t *testing.T) {
	t.Run("pieces of any size give what the whole gives", func(t *testing.T) {
		for _, c := range plainCases {
			want := view.Plain(c.in)
			for size := 1; size < 5; size++ {
				if got := inPieces(c.in, terminal.Size{}, size); got != want {
					t.Errorf("%s: in pieces of %d\n got %q\nwant %q", c.name, size, got, want)
				}
			}
		}
	})
	t.Run("a rune is held back until it is whole", func(t *testing.T) {
		var p view.Plainer
		fmt.Fprint(&p, "a\xe2\x82")
		if got := p.String(); got != "a" {
			t.Errorf("before its end: %q, want %q", got, "a")
		}
		fmt.Fprint(&p, "\xac")
		if got := p.String(); got != "a€" {
			t.Errorf("behind its end: %q, want %q", got, "a€")
		}
	})
	t.Run("the tail is kept, cut at a rune", func(t *testing.T) {
		p := view.Plainer{Max: 12}
		for range 1000 {
			fmt.Fprint(&p, "\x1b[31m€uro\x1b[0m\r\n")
		}
		if got, want := p.String(), "uro\n€uro\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("what follows a gap does not begin within a sequence", func(t *testing.T) {
		var p view.Plainer
		fmt.Fprint(&p, "a\x1b]0;tit")
		p.Gap("\n...\n")
		fmt.Fprint(&p, "31mred\x1b[m")
		if got, want := p.String(), "a\n...\nred"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("an alternate screen that is never left keeps its tail", func(t *testing.T) {
		for _, max := range []int{0, 10_000} {
			p := view.Plainer{Max: max}
			p.WriteString("before\n\x1b[?1049h\x1b[Hdrawn" + strings.Repeat("and then a log\n", 500_000) + "the end\n")
			got := p.String()
			if n := len(got); n > 3<<20 || max > 0 && n > max || max == 0 && n < 1<<20 || !strings.HasSuffix(got, "a log\nthe end\n") {
				t.Errorf("with Max %d: %d bytes that end in %q", max, n, got[n-min(n, 20):])
			}
		}
	})
	t.Run("memory stays bounded", func(t *testing.T) {
		p := view.Plainer{Max: 1 << 10}
		line := []byte(strings.Repeat("\x1b[31mlong line without an end ", 100))
		if n := testing.AllocsPerRun(2000, func() { p.Write(line) }); n > 2 {
			t.Errorf("%v allocations a write in the end, want the copy of the bytes only", n)
		}
		if got := p.String(); len(got) > 1<<10 {
			t.Errorf("%d bytes of text, want at most %d", len(got), 1<<10)
		}
	})
}

// inPieces returns the plain text of s on a screen of that size, written in
// pieces.
func inPieces(s string, size terminal.Size, piece int) string {
	p := view.Plainer{Size: size}
	for len(s) > 0 {
		n := min(piece, len(s))
		p.Write([]byte(s[:n]))
		s = s[n:]
	}
	return p.String()
}

// Whole lines of text take a short way. It gives what the long one gives, byte by
// byte, whatever stands in them and around them, and wherever it is tried.
func TestPlainShortWay(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	check := func(size terminal.Size, s, got, want string) {
		t.Helper()
		if got == want {
			return
		}
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		t.Fatalf("seed %d, %+v, %q: at byte %d the short way gives %.60q, the long way %.60q", seed, size, s, i, got[i:], want[i:])
	}
	for range 500 {
		size := terminal.Size{Rows: 1 + r.IntN(6), Cols: 2 + r.IntN(30)}
		s := randomOutput(r)
		want := inPieces(s, size, 1)
		check(size, s, inPieces(s, size, len(s)), want)
		for range 3 {
			p := view.Plainer{Size: size}
			for rest := s; rest != ""; {
				n := min(1+r.IntN(400), len(rest))
				p.WriteString(rest[:n])
				rest = rest[n:]
			}
			check(size, s, p.String(), want)
		}
	}
	for _, tt := range []struct{ before, after string }{ // what is not ready for the short way
		{"\xe6\x97", ""}, {"\x1b*0\n\x1bN", ""}, {"\x1b[?1049hx\x1b[?1049l", ""}, {"a\x1b[99999b\n", "a\x1b[99999bX"}, {"\x1b[31", ""}, {"\x1b[4h", "\ufeffa\n"},
	} {
		for _, rows := range []int{1, 5} {
			size := terminal.Size{Rows: rows, Cols: 10}
			p := view.Plainer{Size: size}
			p.WriteString(tt.before)
			p.WriteString(linesOf(100) + tt.after)
			s := tt.before + linesOf(100) + tt.after
			check(size, s, p.String(), inPieces(s, size, 1))
		}
	}
	for range 50 {
		s := randomOutput(r)
		check(terminal.Size{}, s, view.Plain(s), inPieces(s, terminal.Size{}, 1))
	}
}

// randomOutput returns lines, most of them plain, with what is hard about them:
// characters that have no cell of their own, that have two, tabs at the end of a
// row, and now and then something that is no plain text.
func randomOutput(r *rand.Rand) string {
	var b strings.Builder
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	odd := r.IntN(60)
	for range 1 + r.IntN(200) {
		for range r.IntN(12) {
			switch r.IntN(8) {
			default:
				b.WriteString(strings.Repeat(pick("a", "bc ", " ", "word "), r.IntN(9)))
			case 1:
				b.WriteString(pick("日", "é", "🙂", "─", "\u00ad", "한"))
			case 2:
				b.WriteString(strings.Repeat(pick("\u0301", "\u200d", "\ufeff", "\t"), 1+r.IntN(2)*r.IntN(40)))
			case 3:
				b.WriteString(pick("\x1b[31m", "\x1b[m", "\x1b[1;38;5;9m", "\x1b[4:3m"))
			}
		}
		if r.IntN(1+odd) == 0 {
			b.WriteString(pick("\r", "\x1b[A", "\x1b[K", "\b", "\x1b[2;3H", "\x1b[J", "\x1b[2J", "\x1b7", "\x1b8", "\xff", "\x1b[3b", "\x1b[?1049h", "\x1b[?1049l",
				"\x1b[2;3r", "\x1b[r", "\x1bM", "\x1b[4h", "\x1b[4l", "\x1b[?7l", "\x1b[?7h", "\x1b(0", "\x1b(B", "\x1b*0\n\x1bN", "\x1b[3g", "\x1b[31", "\x1b]0;", "\x1b[20;1H", "\x1b[99B", "\u0085", "\x00",
				"\r\x1b[K", "\r\x1b[2K", "\n\x1b[A", "\x1b[1J", "\x1b[1;1H\x1b[J", "\r\x1b[4h", "\x1b[D\x1b[1K\r", "\xe6\x97", "\x1b[99999b"))
		}
		b.WriteString(pick("\n", "\n", "\r\n", "\r\n", "\r\r\n", "\n\n\n", ""))
	}
	return b.String()
}

func FuzzPlain(f *testing.F) {
	for _, c := range plainCases {
		f.Add(c.in, 3, 4, 20)
	}
	f.Add(strings.Repeat("x", 5000)+"\r\x1b[K\x1b[Ay\n", 4096, 40, 120)
	f.Add(strings.Repeat("a line\n", 300)+"\x1b[200Ab", 100, 5, 5)
	f.Fuzz(func(t *testing.T, s string, piece, rows, cols int) {
		got := view.Plain(s)
		checkPlain(t, got)
		if limit := 200 * (len(s) + 1); len(got) > limit {
			t.Errorf("%d bytes became %d", len(s), len(got))
		}
		size := terminal.Size{Rows: min(max(rows, 1), 50), Cols: min(max(cols, 2), 200)}
		if got, want := inPieces(s, size, max(piece, 1)), inPieces(s, size, len(s)); got != want {
			t.Errorf("%+v, in pieces of %d: %q, want %q, for %q", size, piece, got, want, s)
		}
	})
}

func BenchmarkPlain(b *testing.B) {
	repeat := func(s string) string { return strings.Repeat(s, 1<<20/len(s)) }
	for _, c := range []struct{ name, in string }{
		{"text", repeat("ok  \tgithub.com/termbridge/termbridge/view\t0.123s coverage: 90.1% of statements\n")},
		{"utf8", repeat("größere Ausgabe – mit Wörtern, die nicht aus ASCII bestehen ✓\n")},
		{"crlf", repeat("ok  \tgithub.com/termbridge/termbridge/view\t0.123s coverage: 90.1% of statements\r\n")},
		{"colour", repeat("\x1b[32mok\x1b[0m  \tgithub.com/termbridge/termbridge/view\t\x1b[2m0.123s\x1b[0m\r\n")},
		{"grep", repeat("\x1b[35m\x1b[Kplain.go\x1b[m\x1b[K:\x1b[01;31m\x1b[Kfunc\x1b[m\x1b[K Plain(s string) string {\r\n")},
		{"progress", repeat("\rDownloading ██████████████░░░░░░  70% 12.3 MB/s")},
		{"screen", repeat("\x1b[H\x1b[7mPID USER\x1b[m\x1b[K\r\n\x1b[2;5H 4711 root   12.3  0.1 go\x1b[K\x1b[3;5H   12 user    0.3  0.1 less\x1b[K")},
		{"line", strings.Repeat("no end ", 1<<20/7) + "\x1b[m\r"},
		{"insert", strings.Repeat("no end ", 1<<10) + strings.Repeat("\x1b[256@", 200_000)},
		{"escapes", repeat("\x1b")},
		{"short", "10%\r\x1b[K100%, and done"},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.in)))
			b.ReportAllocs()
			for b.Loop() {
				view.Plain(c.in)
			}
		})
	}
	b.Run("a copy, to compare with", func(b *testing.B) {
		s := repeat("ok  \tgithub.com/termbridge/termbridge/view\t0.123s coverage: 90.1% of statements\r\n")
		b.SetBytes(int64(len(s)))
		for b.Loop() {
			strings.ReplaceAll(s, "\r", "")
		}
	})
}
