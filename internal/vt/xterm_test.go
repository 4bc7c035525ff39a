package vt_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/internal/vt"
)

var (
	cases = flag.Int("cases", 300, "random cases that are compared with xterm.js")
	seed  = flag.Uint64("seed", 0, "seed of the random cases; 0 is a new one")
)

// An xtermCase is what xterm.js is given.
type xtermCase struct {
	rows, cols int
	newline    bool
	pieces     []string
	resizeAt   int // before that piece
	resize     *resize
}

// input returns the output of the case, and the part of it that comes before the
// resize.
func (c xtermCase) input() (all, before string) {
	all = strings.Join(c.pieces, "")
	return all, strings.Join(c.pieces[:min(c.resizeAt, len(c.pieces))], "")
}

func (c xtermCase) MarshalJSON() ([]byte, error) {
	all, before := c.input()
	m := map[string]any{"input": []byte(all), "rows": c.rows, "cols": c.cols, "newline": c.newline}
	if r := c.resize; r != nil {
		m["resize"] = map[string]int{"at": len(before), "rows": r.rows, "cols": r.cols}
	}
	return json.Marshal(m)
}

func (c xtermCase) String() string {
	all, before := c.input()
	s := fmt.Sprintf("%d×%d %q", c.rows, c.cols, all)
	if r := c.resize; r != nil {
		s = fmt.Sprintf("%d×%d %q, resize to %d×%d, %q", c.rows, c.cols, before, r.rows, r.cols, all[len(before):])
	}
	return s
}

// without returns the case without a piece.
func (c xtermCase) without(i int) xtermCase {
	c.pieces = slices.Delete(slices.Clone(c.pieces), i, i+1)
	if i < c.resizeAt {
		c.resizeAt--
	}
	return c
}

// An xtermShot is the answer of xterm.js.
type xtermShot struct {
	Rows              []string
	Cols, Y, X        int
	Pending           bool
	Alternate, Hidden bool
	Title, Text       string
	Broken            string
}

func (x xtermShot) shot() shot {
	return shot{Cols: x.Cols, Rows: x.Rows, Y: x.Y, X: x.X, Pending: x.Pending, Alternate: x.Alternate, Hidden: x.Hidden}
}

// xterm returns what xterm.js shows of the cases.
func xterm(t *testing.T, cases []xtermCase) []xtermShot {
	t.Helper()
	const dir = "testdata/xterm"
	lacks := func(what string) {
		if os.Getenv("TERMBRIDGE_REAL") != "" {
			t.Fatal(what)
		}
		t.Skip(what)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		lacks("node is not installed")
	}
	if _, err := os.Stat(dir + "/node_modules/@xterm/headless"); err != nil {
		lacks("xterm.js is not installed: npm ci --prefix internal/vt/" + dir)
	}
	cmd := exec.Command(node, "xterm.mjs")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer in.Close()
		e := json.NewEncoder(in)
		for _, c := range cases {
			if e.Encode(c) != nil {
				return // the answers are missing then
			}
		}
	}()
	shots := make([]xtermShot, len(cases))
	d := json.NewDecoder(bufio.NewReader(out))
	for i := range shots {
		if err := d.Decode(&shots[i]); err != nil {
			t.Fatalf("after %d cases: %v", i, err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return shots
}

// screenDiff returns how the screen differs from what xterm.js shows.
func screenDiff(c xtermCase, want xtermShot) string {
	s := vt.New(c.rows, c.cols, c.newline)
	all, before := c.input()
	if c.resize != nil {
		s.Write(before)
		s.Resize(c.resize.rows, c.resize.cols)
		all = all[len(before):]
	}
	s.Write(all)
	return cmp.Diff(want.shot(), shoot(s, 0))
}

// compare compares random cases with xterm.js. One that differs is made as small
// as it can be.
func compare(t *testing.T, generate func(*rand.Rand) xtermCase, diff func(xtermCase, xtermShot) string) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	list := make([]xtermCase, *cases)
	for i := range list {
		list[i] = generate(random)
	}
	broken, failed := 0, 0
	for i, want := range xterm(t, list) {
		c := list[i]
		if want.Broken != "" {
			broken++
			continue
		}
		d := diff(c, want)
		if d == "" {
			continue
		}
		for smaller := true; smaller; {
			smaller = false
			var tries []xtermCase
			for i := range c.pieces {
				tries = append(tries, c.without(i))
			}
			for i, want := range xterm(t, tries) {
				if want.Broken == "" && diff(tries[i], want) != "" {
					c, d, smaller = tries[i], diff(tries[i], want), true
					break
				}
			}
		}
		t.Errorf("%s (-xterm.js +here):\n%s", c, d)
		if failed++; failed == 3 {
			break
		}
	}
	t.Logf("%d cases, -seed %d; xterm.js itself broke on %d of them", len(list), *seed, broken)
}

// Random output is shown as xterm.js shows it.
func TestScreenAsXterm(t *testing.T) {
	compare(t, randomScreen, screenDiff)
}

// randomScreen returns output that does a bit of everything on a small screen.
// What is left out on purpose: what testdata/differences.tsv lists; saving the
// cursor before the screen scrolls, which xterm.js restores to the row that the
// text has moved to; wide characters and REP where rows do not wrap; character
// sets that last over a change of the screen, and tab stops, which it keeps for
// each screen; inserting columns behind the last one; and on a screen that gets
// narrower what is behind the cursor, or on the alternate screen, of which it
// shows and keeps what has no place.
func randomScreen(r *rand.Rand) xtermCase {
	c := xtermCase{rows: 2 + r.IntN(8), cols: 4 + r.IntN(28)}
	cols := c.cols
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	n := func() int { return r.IntN(cols + 3) }
	add := func(format string, args ...any) { c.pieces = append(c.pieces, fmt.Sprintf(format, args...)) }
	alternate := ""        // the mode that switched to it
	wide := r.IntN(2) == 0 // or there may be rows that do not wrap
	for range 5 + r.IntN(60) {
		switch r.IntN(30) {
		default:
			var b strings.Builder
			for range 1 + r.IntN(cols) {
				b.WriteByte("abcdefghij klm"[r.IntN(14)])
			}
			add("%s", b.String())
		case 0, 1:
			if wide {
				add("%s", pick("日", "語本", "🙂", "한"))
			}
			add("%s", pick("é", "e\u0301", "─", "ｱ", "x\u200d", "\u00ad"))
		case 2, 3:
			add("%s", pick("\r\n", "\n", "\r", "\b", "\t", "\v", "\f"))
		case 4, 5:
			add("\x1b[%d%s", n(), pick("A", "B", "C", "D", "E", "F", "G", "`", "a", "e", "d"))
		case 6, 7:
			add("\x1b[%d;%d%s", n(), n(), pick("H", "f"))
		case 8, 9:
			add("\x1b[%s%s%s", pick("", "", "?"), pick("", "0", "1", "2"), pick("J", "K", "K"))
		case 10, 11:
			add("\x1b[%d%s", n(), pick("L", "M", "P", "@", "X", "S", "T", " @", " A"))
		case 12:
			if wide {
				add("%s\x1b[%db", pick("x", "日", "─"), r.IntN(8))
			}
		case 13:
			add("\x1b[%d;%dr", 1+r.IntN(c.rows), r.IntN(c.rows+2))
		case 14:
			add("\x1b[r")
		case 15:
			add("%s", pick("\x1bM", "\x1bD", "\x1bE"))
		case 16:
			add("\x1b[%d;%dm", 30+r.IntN(20), r.IntN(10))
		case 17:
			if !wide {
				add("%s", pick("\x1b[?7l", "\x1b[?7h", "\x1b[?7h"))
			}
			add("%s", pick("\x1b[4h", "\x1b[4l", "\x1b[4l", "\x1b[?25l", "\x1b[?25h"))
		case 18:
			if alternate == "" {
				alternate = pick("1049", "47", "1047")
				add("\x1b[?%sh", alternate)
			} else {
				add("\x1b[?%sl", alternate)
				alternate = ""
			}
		case 19:
			add("%s", pick("\x1b(0lqqk\x1b(B", "\x1b)0\x0elqqk\x0f", "\x1b(A#\x1b(B", "\x1b*0\x1bnqx\x0f"))
		case 20:
			add("%s", pick("\x1b]0;title\a", "\x1b]8;;http://x\x1b\\", "\x1bPq#0\x1b\\", "\x1b_x\x1b\\", "\x1b^y\x1b\\", "\x1b]0;x\x18", "\x1b[3\x18"))
		case 21:
			add("\x1b[%d%s", n(), pick("I", "Z"))
		case 22:
			add("%s", pick("\u0085", "\u0084", "\u009b2C", "\x00", "\a", "\x7f"))
		case 23:
			add("\r\x1b[%dC\x1b[%d%s", n(), n(), pick("'}", "'~"))
		case 24:
			if r.IntN(4) > 0 || c.resize != nil {
				break
			}
			c.resize = &resize{rows: 2 + r.IntN(8), cols: 4 + r.IntN(28)}
			if c.resize.cols < cols {
				if alternate != "" {
					c.resize.cols = cols + r.IntN(10)
				}
				add("\r\x1b[J")
			}
			c.resizeAt = len(c.pieces)
		}
	}
	return c
}

// Random output as text is what xterm.js has on its screen and above it.
func TestTextAsXterm(t *testing.T) {
	compare(t, randomText, func(c xtermCase, want xtermShot) string {
		text := vt.NewText(c.rows, c.cols, 0, vt.Notes{})
		all, _ := c.input()
		text.Write(all)
		return cmp.Diff(strings.TrimSpace(want.Text), strings.TrimSpace(text.String()))
	})
}

// randomText returns output as that of [randomScreen], without what is text here
// and not in xterm.js: what a program clears or scrolls away, tabs, and the
// alternate screen; and without the space that xterm.js leaves where a wide
// character did not fit.
func randomText(r *rand.Rand) xtermCase {
	c := randomScreen(r)
	c.newline, c.resize = true, nil
	other := regexp.MustCompile(`^\r?\x1b\[[0-9?]*([JSh]|(47|1047|1049)l)|\t|[日語🙂한]`)
	c.pieces = slices.DeleteFunc(c.pieces, other.MatchString)
	return c
}
