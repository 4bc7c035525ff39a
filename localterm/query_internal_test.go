package localterm

import (
	"strings"
	"testing"

	"github.com/termbridge/termbridge/terminal"
)

// What a program asks about size and position is answered, however its output is
// cut.
func TestCursor(t *testing.T) {
	for output, want := range map[string]string{
		// The size, by the ways that programs have to ask for it.
		"\x1b[999;999H\x1b[6n":                          "\x1b[40;120R",
		"\x1b7\x1b[r\x1b[9999;9999f\x1b[6n\x1b8\x1b[6n": "\x1b[40;120R\x1b[1;1R",
		"\x1b[6n\x1b[999C\x1b[999B\x1b[6n":              "\x1b[1;1R\x1b[40;120R",
		"\x1b[s\x1b[32766;32766H\x1b[?6n\x1b[u\x1b[6n":  "\x1b[?40;120R\x1b[1;1R",
		"\x1b[18t\x1b[19t\x1b[14t":                      "\x1b[8;40;120t\x1b[9;40;120t",
		"\x1b[2;1H▽\x1b[6n":                             "\x1b[2;2R",
		"\x1b[5;7Hab\ncd\x1b[6n":                        "\x1b[6;3R",
		"\x1b[5;7Hab\x1b[m\ncd\x1b[6n":                  "\x1b[6;3R",
		"\x1b[5;7Hab\x1b[m\rcd\x1b[6n":                  "\x1b[5;3R",
		"\x1b[5;7H\x1b[2A\x1b[3D\x1b[6n":                "\x1b[3;4R",
		"\x1b[5;7H\x1b[9d\x1b[11G\x1b[6n":               "\x1b[9;11R",
		"\x1b[5;7H\x1b[99A\x1b[99D\x1b[6n":              "\x1b[1;1R",
		"\x1b[5;7H\r\x1b[2E\x1b[6n":                     "\x1b[7;1R",
		"\x1b[5;7H\x1b[F\x1b[6n":                        "\x1b[4;1R",
		"\x1b[5;7H\x1bc\x1b[6n":                         "\x1b[1;1R",
		"\x1b[;9H\x1b[6n":                               "\x1b[1;9R",
	} {
		pieces := func(p []string) string {
			writers := 0
			r := &responder{join: func(func()) { writers++ }, size: func() terminal.Size { return terminal.Size{}.OrDefault() }}
			for _, piece := range p {
				r.scan([]byte(piece))
			}
			if writers != 1 {
				t.Errorf("%q is answered by %d goroutines, which may change places", p, writers)
			}
			return r.pending
		}
		if got := pieces([]string{output}); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
		if got := pieces(strings.SplitAfter(output, "")); got != want {
			t.Errorf("%q, a rune at a time: %q, want %q", output, got, want)
		}
		for i := range len(output) {
			if got := pieces([]string{output[:i], output[i:]}); got != want && output[:i] != "\x1b[2;1H\xe2" && output[:i] != "\x1b[2;1H\xe2\x96" {
				t.Errorf("%q, cut at %d: %q, want %q", output, i, got, want)
			}
		}
	}
}

// Output that is not what it seems costs no memory and answers nothing.
func FuzzScan(f *testing.F) {
	f.Add([]byte("\x1b[999;999H\x1b[6n"), 3)
	f.Add([]byte("\x1b["+strings.Repeat("1;", 100)+"\x1b[6n\x1b]11;?\x1b\\"), 50)
	f.Fuzz(func(t *testing.T, p []byte, cut int) {
		size := terminal.Size{Rows: 24, Cols: 80}
		r := &responder{join: func(func()) {}, size: func() terminal.Size { return size }}
		cut = min(max(cut, 0), len(p))
		r.scan(p[:cut])
		r.scan(p[cut:])
		if len(r.part) > maxSequence+1 || len(r.pending) > 3*maxPending {
			t.Errorf("%d bytes of a sequence and %d of answers are kept", len(r.part), len(r.pending))
		}
		if c := r.cursor; c.row < 0 || c.col < 0 || c.row >= size.Rows || c.col >= size.Cols {
			t.Errorf("the cursor is at %+v", c)
		}
	})
}
