package vt_test

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/termbridge/termbridge/internal/vt"
)

// A shot is a screen at one moment.
type shot struct {
	Offset    int // bytes before it
	Cols      int
	Rows      []string
	Y, X      int
	Pending   bool
	Alternate bool
	Hidden    bool
}

// shoot returns what s shows.
func shoot(s *vt.Screen, offset int) shot {
	rows, cols := s.Size()
	p := shot{Offset: offset, Cols: cols, Alternate: s.Alternate(), Hidden: s.Modes().Has(vt.CursorHidden)}
	p.Y, p.X, p.Pending = s.Cursor()
	for y := range rows {
		p.Rows = append(p.Rows, s.Line(y))
	}
	return p
}

// A recording is what a program wrote, and what xterm.js showed of it.
type recording struct {
	name       string
	rows, cols int
	resizes    []resize
	raw        string
	shots      []shot
	plain      string
}

type resize struct{ offset, rows, cols int }

// recordings are what real programs wrote.
func recordings(t *testing.T) []recording {
	t.Helper()
	archive, err := zip.OpenReader("testdata/corpus.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	read := func(name string) string {
		f, err := archive.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var list []recording
	for _, f := range table(t, "testdata/corpus.tsv") {
		r := recording{name: f[0], raw: read(f[0] + ".raw"), plain: strings.TrimSuffix(read(f[0]+".plain"), "\n")}
		scan(t, f[1], "%dx%d", &r.cols, &r.rows)
		for s := range strings.FieldsSeq(strings.Trim(f[2], "-")) {
			var c resize
			scan(t, s, "%d:%dx%d", &c.offset, &c.cols, &c.rows)
			r.resizes = append(r.resizes, c)
		}
		lines := strings.Split(read(f[0]+".screens"), "\n")
		for lines[0] != "" {
			var p shot
			var rows, pending, alt, hidden int
			scan(t, lines[0], "@ offset=%d size=%dx%d cursor=%d,%d wrapnext=%d alt=%d hidden=%d", &p.Offset, &p.Cols, &rows, &p.Y, &p.X, &pending, &alt, &hidden)
			p.Pending, p.Alternate, p.Hidden = pending == 1, alt == 1, hidden == 1
			p.Rows, lines = lines[1:1+rows], lines[1+rows:]
			r.shots = append(r.shots, p)
		}
		list = append(list, r)
	}
	return list
}

// table returns the rows of a file of values between tabs, but its first.
func table(t *testing.T, file string) (rows [][]string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows[1:]
}

func scan(t *testing.T, s, format string, into ...any) {
	t.Helper()
	if _, err := fmt.Sscanf(s, format, into...); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
}

// What real programs wrote is shown as xterm.js shows it, whenever one looks.
func TestRecordings(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			s := vt.New(r.rows, r.cols, false)
			at := 0
			feed := func(to int) {
				s.Write(r.raw[at:to])
				at = to
			}
			resizes := r.resizes
			for _, want := range r.shots {
				for len(resizes) > 0 && resizes[0].offset < want.Offset {
					feed(resizes[0].offset)
					s.Resize(resizes[0].rows, resizes[0].cols)
					resizes = resizes[1:]
				}
				feed(want.Offset)
				if diff := cmp.Diff(want, shoot(s, want.Offset)); diff != "" {
					t.Errorf("(-xterm.js +here):\n%s", diff)
				}
			}
		})
	}
}

// Small cases, one for each thing that a terminal does, are shown as xterm.js
// shows them, but for those of which testdata/differences.tsv tells why not.
func TestCases(t *testing.T) {
	differs := make(map[string][]string)
	for _, f := range table(t, "testdata/differences.tsv") {
		differs[f[0]] = f[2:]
	}
	for _, f := range table(t, "testdata/cases.tsv") {
		t.Run(f[0], func(t *testing.T) {
			var rows, cols int
			scan(t, f[1], "%dx%d", &cols, &rows)
			s := vt.New(rows, cols, false)
			s.Write(unquote(t, f[2]))
			p := shoot(s, 0)
			bit := map[bool]string{true: "1", false: "0"}
			screen := strings.TrimRight(strings.Join(p.Rows, "\n"), "\n")
			got := []string{fmt.Sprintf("%d,%d", p.Y, p.X), bit[p.Pending], bit[p.Alternate], strconv.Quote(s.Title()), strconv.Quote(screen)}
			want := f[3:]
			if d, ok := differs[f[0]]; ok {
				delete(differs, f[0])
				want = d
			}
			for i, quoted := range want {
				if strings.HasPrefix(quoted, `"`) {
					want[i] = strconv.Quote(unquote(t, quoted))
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", f[2], diff)
			}
		})
	}
	for id := range differs {
		t.Errorf("differences.tsv: there is no case %q", id)
	}
}

func unquote(t *testing.T, s string) string {
	t.Helper()
	u, err := strconv.Unquote(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return u
}

// Recordings as text are what xterm.js has on its main screen and above it. There
// is more where the screen was cleared; tabs stay tabs, a note stands for the
// alternate screen, and what that shows stands at the end.
func TestTextOfRecordings(t *testing.T) {
	cleared := []string{"bash", "vttest-charset", "vttest-cursor", "vttest-screen", "vttest-vt102"}
	for _, r := range recordings(t) {
		if len(r.resizes) > 0 {
			continue // text knows one size
		}
		t.Run(r.name, func(t *testing.T) {
			text := vt.NewText(r.rows, r.cols, 0, vt.Notes{Left: "NOTE", Open: "OPEN"})
			text.Write(r.raw)
			got, _, open := strings.Cut(text.String(), "OPEN\n")
			if last := r.shots[len(r.shots)-1]; open != last.Alternate {
				t.Errorf("the text of the alternate screen stands at the end: %v, want %v", open, last.Alternate)
			}
			got = strings.ReplaceAll(got, "NOTE\n", "")
			got = expand(strings.TrimRight(strings.TrimSuffix(got, "NOTE"), "\n"))
			want, lines := strings.Split(r.plain, "\n"), strings.Split(got, "\n")
			if slices.Contains(cleared, r.name) { // all of xterm.js is there, with more between
				rest := want
				for _, line := range lines { // one that was cleared may go on in the next
					if len(rest) > 0 && strings.HasPrefix(line, rest[0]) {
						rest = rest[1:]
					}
				}
				want, lines = nil, rest
			}
			if diff := cmp.Diff(want, lines, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-xterm.js +here):\n%s", diff)
			}
		})
	}
}

// expand returns s with spaces in place of tabs.
func expand(s string) string {
	var b strings.Builder
	col := 0
	for _, r := range s {
		switch r {
		case '\t':
			n := 8 - col%8
			b.WriteString(strings.Repeat(" ", n))
			col += n
			continue
		case '\n':
			col = -1
		}
		b.WriteRune(r)
		col++
	}
	return b.String()
}
