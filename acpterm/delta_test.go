package acpterm

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

const gap = terminal.GapMark

// lines returns lines from to, from one number to the next, all different.
func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "this is line number %d of many\n", i)
	}
	return b.String()
}

func TestStream(t *testing.T) {
	type shot struct {
		text      string
		truncated bool
		want      string
	}
	tests := []struct {
		rule  string
		limit int
		head  bool
		shots []shot
	}{
		{"a buffer that grows", 1000, false, []shot{
			{"", false, ""}, {"a", false, "a"}, {"a", false, ""}, {"ab\nc", false, "b\nc"},
		}},
		{"a window that slides", len(lines(0, 10)), false, []shot{
			{lines(0, 10), false, lines(0, 10)},
			{lines(3, 13), true, lines(10, 13)},
			{lines(3, 13), true, ""},
			{lines(4, 14)[5:], true, lines(13, 14)},
		}},
		{"a window that slid too far", len(lines(10, 20)), false, []shot{
			{lines(10, 20), true, gap + lines(10, 20)},
			{lines(30, 40), true, gap + lines(30, 40)},
			{lines(31, 41), true, lines(40, 41)},
		}},
		{"a window that slides over equal lines may have lost any number of them", 200, false, []shot{
			{strings.Repeat("yes\n", 50), false, strings.Repeat("yes\n", 50)},
			{strings.Repeat("yes\n", 50), true, gap},
			{strings.Repeat("yes\n", 50), true, ""},
			{strings.Repeat("yes\n", 49) + "end\n", true, "end\n"}, // behind the mark
		}},
		{"a mark behind an escape sequence that is not over ends it", 200, false, []shot{
			{strings.Repeat("\x1b", 200), true, gap + strings.Repeat("\x1b", 200)},
			{strings.Repeat("\x1b", 200), true, text.Cancel + gap},
			{lines(0, 6), true, lines(0, 6)},
			{lines(90, 96), true, gap + lines(90, 96)},
			{"\x1b]0;a title" + lines(0, 6), true, gap + "\x1b]0;a title" + lines(0, 6)},
			{lines(90, 96), true, text.Cancel + gap + lines(90, 96)},
		}},
		{"a client that keeps the head, known", 100, true, []shot{
			{lines(0, 2), false, lines(0, 2)},
			{lines(0, 3), true, lines(2, 3) + gap},
			{lines(0, 3), true, ""},
		}},
		{"a client that keeps the head, unknown", 100, false, []shot{
			{lines(0, 2) + "this", false, lines(0, 2) + "this"},
			{lines(0, 2), true, gap}, // Zed takes the line back that does not fit
			{lines(0, 2), true, ""},
		}},
		{"the head only, known", 100, true, []shot{{lines(0, 2), true, lines(0, 2) + gap}}},
		{"a progress bar on a screen", 1000, false, []shot{
			{"make\n 10%", false, "make\n 10%"},
			{"make\n 20%", false, "\r 20%"},
			{"make\n100%\ndone\n", false, "\r100%\ndone\n"},
		}},
		{"a screen that changed further up", 1000, false, []shot{
			{"one\ntwo\nthree\n", false, "one\ntwo\nthree\n"},
			{"one\nTWO\nthree\n", false, gap + "TWO\nthree\n"},
		}},
		{"an erased line", 1000, false, []shot{
			{"one\ntwo", false, "one\ntwo"}, {"one\n", false, ""}, {"one\ntwo\n", false, "\n"},
		}},
		{"a scrollback that slides unannounced", 1 << 20, false, []shot{
			{lines(0, 10), false, lines(0, 10)}, {lines(3, 13), false, lines(10, 13)},
		}},
		{"a read that empties the buffer", 1000, false, []shot{
			{"one\n", false, "one\n"}, {"", false, ""}, {"two\n", false, "two\n"}, {"", false, ""},
		}},
		{"an empty answer once", 1000, false, []shot{
			{"one\n", false, "one\n"}, {"", false, ""}, {"one\ntwo\n", false, "two\n"},
		}},
		{"a rune that comes in two halves", 1000, false, []shot{
			{"caf\uFFFD", false, "caf"}, {"café", false, "é"},
		}},
		{"a window that begins in a rune", len(lines(0, 10)), false, []shot{
			{lines(0, 10), false, lines(0, 10)}, {"\uFFFD\uFFFD" + lines(3, 13), true, lines(10, 13)},
		}},
		{"a client that ignores the limit", 100, false, []shot{
			{lines(0, 10), false, lines(0, 10)},
			{lines(0, 12), false, lines(10, 12)},
			{lines(0, 12), false, ""},
			{lines(2, 14), true, lines(12, 14)},
		}},
	}
	for _, test := range tests {
		t.Run(test.rule, func(t *testing.T) {
			s := stream{limit: test.limit, keepsHead: test.head}
			for i, shot := range test.shots {
				if got := s.next(shot.text, shot.truncated, false, false); got != shot.want {
					t.Errorf("snapshot %d: got %q, want %q", i, got, shot.want)
				}
				if len(s.last) > test.limit {
					t.Errorf("snapshot %d: %d bytes remembered, the limit is %d", i, len(s.last), test.limit)
				}
			}
		})
	}
}

// While a command runs, a window of equal lines may have slid by some of them and
// look the same. After the exit it stands still.
func TestStreamStandsStill(t *testing.T) {
	window := strings.Repeat("yes\n", 50)
	s := stream{limit: len(window)}
	s.next(window, true, false, false)
	if got := s.next(window, true, false, true); got != gap {
		t.Errorf("after the exit, it may have slid before: %q", got)
	}
	if got := s.next(window, true, true, true); got != "" {
		t.Errorf("after the exit: %q", got)
	}
}

func TestStreamEndsWithWhatWasHeldBack(t *testing.T) {
	s := stream{limit: 100}
	got := s.next("a\uFFFD", false, false, false) + s.next("a\uFFFD", false, true, false)
	if want := "a\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// play shows successive snapshots of output to a stream, and returns what it
// makes of them. After each step, of so many bytes, the client is asked.
func play(output string, steps []int, limit int, head, known bool) string {
	s := stream{limit: limit, keepsHead: head && known}
	var got strings.Builder
	end := 0
	ask := func(final bool) {
		seen := text.Head(output[:end], end) // clients do not show half a rune
		shown := text.Tail(seen, limit)
		if head {
			shown = text.Head(seen, limit)
		}
		got.WriteString(s.next(shown, len(shown) < len(seen), final, final))
	}
	for _, n := range steps {
		end = min(end+n, len(output))
		ask(false)
	}
	end = len(output)
	ask(true)
	return got.String()
}

// check fails the test if got, as play returns it, has anything twice, out of
// order or changed.
func check(t *testing.T, output, got string) {
	t.Helper()
	rest := output
	for part := range strings.SplitSeq(got, gap) {
		i := strings.Index(rest, part)
		if i < 0 {
			t.Fatalf("%q of\n%q is not, or not again, in\n%q", part, got, output)
		}
		rest = rest[i+len(part):]
	}
}

func TestStreamOfUniqueLines(t *testing.T) {
	// It is exact where two snapshots share a line, and marked where not.
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		output := lines(0, rng.IntN(100))
		limit := 100 + rng.IntN(1000)
		var steps []int
		var far bool // some window slid too far
		for sum := 0; sum < len(output); {
			n := rng.IntN(limit + limit/4)
			steps = append(steps, n)
			sum += n
			far = far || n > limit-minOverlap
		}
		got := play(output, steps, limit, false, false)
		check(t, output, got)
		if marked := strings.Contains(got, gap); !marked && got != output {
			t.Fatalf("limit %d, steps %v: lost without a mark:\n%q", limit, steps, got)
		} else if marked && !far {
			t.Fatalf("limit %d, steps %v: a mark, and nothing was lost:\n%q", limit, steps, got)
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add("a\nb\nc\n", []byte{1, 2, 3}, uint16(4), false, false)
	f.Add(lines(0, 40), []byte{100, 200, 50, 255}, uint16(300), false, false)
	f.Add(lines(0, 40), []byte{100, 200, 50, 255}, uint16(300), true, false)
	f.Add(lines(0, 40), []byte{100, 200, 50, 255}, uint16(300), true, true)
	f.Add(strings.Repeat("y\n", 400), []byte{100, 200, 50, 255}, uint16(100), false, false)
	f.Add(strings.Repeat("é漢😀", 100), []byte{7, 99, 200, 3}, uint16(99), false, false)
	f.Add(strings.Repeat(".", 300)+"\n"+strings.Repeat(".", 300), []byte{255, 50, 50, 255}, uint16(100), false, false)
	f.Fuzz(func(t *testing.T, output string, steps []byte, limit uint16, head, known bool) {
		output = strings.ToValidUTF8(output, "?")
		if strings.Contains(output, gap[:2]) || strings.Contains(output, "\uFFFD") || limit < 4 || len(output) > 1<<16 {
			t.Skip("not what is tested here")
		}
		var n []int
		for _, s := range steps {
			n = append(n, int(s))
		}
		got := play(output, n, int(limit), head, known)
		check(t, output, got)
		if len(output) <= int(limit) && got != output {
			t.Fatalf("nothing was lost, and got\n%q of\n%q", got, output)
		}
		if !head && len(output) > int(limit) && !strings.HasSuffix(strings.TrimSuffix(got, gap), text.Tail(output, 1)) {
			t.Fatalf("the end is missing: got\n%q of\n%q", got, output)
		}
	})
}

func TestOverlapIsTheLongest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		letters := 1 + rng.IntN(3)
		word := func(n int) string {
			b := make([]byte, n)
			for i := range b {
				b[i] = "ab\n"[rng.IntN(letters)]
			}
			return string(b)
		}
		old := word(rng.IntN(200))
		new := old[len(old)-rng.IntN(len(old)+1):] + word(rng.IntN(50))
		want := min(len(old), len(new))
		for !strings.HasPrefix(new, old[len(old)-want:]) {
			want--
		}
		if got, _ := overlap(old, new); got != want {
			t.Fatalf("overlap(%q, %q) = %d, want %d", old, new, got, want)
		}
		if got := border(old, new); got != want {
			t.Fatalf("border(%q, %q) = %d, want %d", old, new, got, want)
		}
	}
}

func TestNeedle(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 5000 {
		b := make([]byte, rng.IntN(300))
		letters := 1 + rng.IntN(40)
		for i := range b {
			b[i] = byte('a' + rng.IntN(letters))
		}
		s := string(b)
		text := s[rng.IntN(len(s)+1):]
		text = text[:rng.IntN(len(text)+1)] + "b"[:rng.IntN(2)]
		if text == "" {
			continue
		}
		if got, want := newNeedle(text, s).index(s), strings.Index(s, text); got != want {
			t.Fatalf("%q in %q: %d, want %d", text, s, got, want)
		}
	}
}

func TestOverlapIsLinear(t *testing.T) {
	// Of texts in which everything looks alike, too: quadratic would take hours.
	dots := strings.Repeat(".", 1<<20)
	texts := map[string][2]string{
		"a mismatch at the end": {dots + "x", dots},
		"a match at the end":    {"x" + dots, dots + "y"},
		"two letters":           {strings.Repeat("ab", 1<<19) + "c", strings.Repeat("ab", 1<<19)},
		"a nearly equal start":  {strings.Repeat(dots[:63]+"\n", 1<<14), dots[:63] + "\n" + dots},
	}
	start := time.Now()
	for name, text := range texts {
		for range 4 {
			overlap(text[0], text[1])
		}
		if took := time.Since(start); took > time.Minute {
			t.Fatalf("%s: %v", name, took)
		}
	}
}

func BenchmarkStreamSlides(b *testing.B) {
	const limit, step = 1 << 20, 1 << 10
	all := lines(0, (limit+step*1000)/30)
	s := stream{limit: limit}
	s.next(all[:limit], true, false, false)
	b.SetBytes(limit)
	b.ReportAllocs()
	at := 0
	for b.Loop() {
		at = (at + step) % (len(all) - limit)
		s.next(all[at:at+limit], true, false, false)
	}
}
