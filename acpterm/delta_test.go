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
			{lines(0, 10)[:100], false, lines(0, 10)[:100]},
			{lines(0, 10), false, lines(0, 10)[100:]},
			{lines(3, 13), true, lines(10, 13)},
			{lines(3, 13), true, ""},
			{lines(4, 14)[5:], true, lines(13, 14)},
		}},
		{"a window that slid too far", len(lines(10, 20)), false, []shot{
			{lines(10, 20), true, gap + lines(10, 20)},
			{lines(30, 40), true, gap + lines(30, 40)},
			{lines(31, 41), true, lines(40, 41)},
		}},
		{"a full window may be cut, whatever the client says", 200, false, []shot{
			{lines(0, 10)[:200], false, gap + lines(0, 10)[:200]},
			{lines(0, 10)[:200], false, ""},
			{lines(0, 10)[50:250], false, lines(0, 10)[200:250]},
		}},
		{"a window that is not full is not", 200, false, []shot{
			{lines(0, 10)[:199], false, lines(0, 10)[:199]},
		}},
		{"nor is one of a client that ignores the limit", 200, false, []shot{
			{lines(0, 10), false, lines(0, 10)},
		}},
		{"a window that slides over equal lines may have lost any number of them", 200, false, []shot{
			{strings.Repeat("yes\n", 50), true, gap + strings.Repeat("yes\n", 50)},
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
			{"one\n", false, "one\n"}, {"", false, ""}, {"one\ntwo\n", false, gap + "two\n"}, // or all is new
		}},
		{"a rune that comes in two halves", 1000, false, []shot{
			{"caf\uFFFD", false, "caf"}, {"café", false, "é"},
		}},
		{"a window that begins in a rune", len(lines(0, 10)), false, []shot{
			{lines(0, 10)[1:], false, lines(0, 10)[1:]}, {"\uFFFD\uFFFD" + lines(3, 13), true, lines(10, 13)},
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

// A client whose word on truncation is wrong may keep more than it was asked for.
func TestStreamOfAnUnsureClient(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		s := stream{limit: 100, unsure: unsure}
		want := lines(0, 10)
		if unsure {
			want = gap + want
		}
		if got := s.next(lines(0, 10), false, false, false); got != want {
			t.Errorf("unsure %v: got %q, want %q", unsure, got, want)
		}
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

// A client that gives out each piece of an output once is recognised, or a mark says
// that something may be missing. What two reads after the end tell is known from then
// on.
func TestStreamOfADrainedBuffer(t *testing.T) {
	type shot struct {
		text string
		over bool
		want string
	}
	same := shot{"same\n", false, "same\n"}
	none := shot{"", false, ""}
	for _, test := range []struct {
		rule   string
		shots  []shot
		buffer buffer // then
	}{
		{"the same again and again, with pauses: the second may be the first, then it is clear", []shot{
			same, none, {"same\n", false, gap}, none, same, none, same, none, same, none, same,
		}, unknownBuffer},
		{"the same in each read: a mark at the end", []shot{
			same, {"same\n", false, ""}, {"same\n", false, ""}, {"same\n", true, ""}, {"", true, gap},
		}, drainedBuffer},
		{"growing pieces", []shot{
			same, {"same\nsame\n", false, "same\n"}, {"same\n", true, ""}, {"", true, gap},
		}, drainedBuffer},
		{"different pieces", []shot{
			same, none, {"other\n", false, "other\n"}, {"more\n", true, gap + "more\n"}, {"", true, ""},
		}, drainedBuffer},
		{"a buffer that is kept", []shot{
			same, {"same\n", false, ""}, {"same\n", true, ""}, {"same\n", true, ""},
		}, keptBuffer},
		{"a screen that is cleared, and shows the same again", []shot{
			same, {"same\n", false, ""}, {"", false, gap}, {"same\n", false, ""}, {"same\nnew\n", true, "new\n"}, {"same\nnew\n", true, ""},
		}, keptBuffer},
		{"a screen that is empty at the end", []shot{
			same, {"", true, ""}, {"", true, ""},
		}, unknownBuffer},
		{"nothing at all", []shot{none, {"", true, ""}, {"", true, ""}}, unknownBuffer},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var client Client
			s := Profile{}.stream(1000, &client)
			for i, shot := range test.shots {
				if got := s.next(shot.text, false, i == len(test.shots)-1 && shot.over, shot.over); got != shot.want {
					t.Errorf("snapshot %d: got %q, want %q", i, got, shot.want)
				}
			}
			if got := client.outputs(); got != test.buffer {
				t.Errorf("known of the buffer: %v, want %v", got, test.buffer)
			}
		})
	}
	t.Run("a client that is known to drain", func(t *testing.T) {
		client := Client{buffer: drainedBuffer}
		s := Profile{}.stream(8, &client)
		for i, want := range []string{"same\n", "same\n", "", "same\n", "\uFFFD", "caf\uFFFD"} {
			if got := s.next(want, false, false, false); got != want {
				t.Errorf("snapshot %d: got %q, want %q", i, got, want)
			}
		}
		if got := s.next("the tail", true, true, true); got != gap+"the tail" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a client that is known to keep, and a screen", func(t *testing.T) {
		client := Client{buffer: keptBuffer}
		s := Profile{}.stream(1000, &client)
		for i, shot := range []shot{
			same, {"same\nb\n", false, "b\n"}, none, {"c\n", false, "c\n"}, none, {"d\n", false, "d\n"}, {"d\ne\n", false, "e\n"},
		} {
			if got := s.next(shot.text, false, false, false); got != shot.want {
				t.Errorf("snapshot %d: got %q, want %q", i, got, shot.want)
			}
		}
	})
}

// Which part of an output over the limit a client keeps, two snapshots show that tell:
// one that says it is truncated, and begins as before; one that begins inside the one
// before. A text of few patterns shows nothing, and a client that has kept the end once
// does so.
func TestStreamLearnsThePart(t *testing.T) {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	lines, dots := b.String(), strings.Repeat(".", 1000)
	type shot struct {
		from, to  int
		truncated bool
	}
	head := []shot{{0, 90, false}, {0, 100, true}}
	tail := []shot{{0, 100, false}, {50, 150, true}}
	for _, test := range []struct {
		rule  string
		text  string
		shots []shot
		want  kept
	}{
		{"it begins as before, and is truncated", lines, head, keptHead},
		{"and does not grow", lines, []shot{{0, 100, false}, {0, 100, true}}, keptHead},
		{"or is shorter", lines, []shot{{0, 100, false}, {0, 90, true}}, keptHead},
		{"it begins as before, and is not truncated", lines, []shot{{0, 50, false}, {0, 80, false}}, unknownPart},
		{"it begins inside the one before", lines, tail, keptTail},
		{"dots begin as dots do", dots, head, unknownPart},
		{"a line begins as a line does", lines, []shot{{0, 7, false}, {0, 14, true}}, unknownPart},
		{"the first one is truncated", lines, []shot{{0, 100, true}}, unknownPart},
		{"the end, and then the start", lines, append(tail, shot{50, 150, true}), keptTail},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var client Client
			s := Profile{}.stream(100, &client)
			for _, shot := range test.shots {
				s.next(test.text[shot.from:shot.to], shot.truncated, false, false)
			}
			if client.part != test.want {
				t.Errorf("learned %v, want %v", client.part, test.want)
			}
		})
	}
	var client Client
	for _, shots := range [][]shot{tail, head} {
		s := client.profile(Profile{}).stream(100, &client)
		for _, shot := range shots {
			s.next(lines[shot.from:shot.to], shot.truncated, false, false)
		}
	}
	if client.part != keptTail {
		t.Error("what has kept the end is believed to keep the start")
	}
}

// What stands for the bytes of a character that is cut, at the end of what was
// written so far or at the limit, is neither shown twice nor taken for a loss; what
// the program wrote itself is neither lost nor doubled.
func TestStreamOfBrokenCharacters(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	pieces := []string{"é", "漢", "😀", "\xff", "\xe6\xbc", "a", "b\n", "\uFFFD", "\xf0\x9f\x98", " plain text "}
	decoders := map[string]func(string) string{
		"one for each byte":     func(s string) string { return decodeBytes(s) },
		"one for each sequence": func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") },
	}
	for name, decode := range decoders {
		for range 3000 {
			var b strings.Builder
			for i := range rng.IntN(60) {
				b.WriteString(pieces[rng.IntN(len(pieces))])
				fmt.Fprintf(&b, "<%d>", i) // what is not unique is another test's
			}
			output := b.String()
			limit := 60 + rng.IntN(300)
			head := rng.IntN(2) == 0
			s := stream{limit: limit, keepsHead: head}
			var got strings.Builder
			ask := func(end int, final bool) {
				seen := output[:end]
				shown := seen[max(0, end-limit):]
				if head {
					shown = seen[:min(end, limit)]
				}
				got.WriteString(s.next(decode(shown), len(shown) < end, final, final))
			}
			for end := 0; end < len(output); end += 1 + rng.IntN(20) {
				ask(end, false)
			}
			ask(len(output), true)

			all := got.String()
			whole := decode(output)
			if len(whole) < limit && all != whole {
				t.Fatalf("%s: got\n%q, want\n%q", name, all, whole)
			}
			plain := func(s string) string { return strings.ReplaceAll(s, "\uFFFD", "") }
			if !head && !strings.Contains(all, gap) && plain(all) != plain(whole) {
				t.Fatalf("%s: limit %d, lost or doubled, without a mark: got\n%q, want\n%q", name, limit, all, whole)
			}
			check(t, plain(whole), plain(all))
		}
	}
}

// decodeBytes makes a U+FFFD of each byte that is no UTF-8.
func decodeBytes(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

func TestStreamEndsAtACutCharacter(t *testing.T) {
	// A client that keeps the head cuts inside a character, and says so.
	for _, before := range [][]string{nil, {"caf"}, {"caf\uFFFD"}} {
		s := stream{limit: 5, keepsHead: true}
		var got strings.Builder
		for _, shot := range before {
			got.WriteString(s.next(shot, false, false, false))
		}
		got.WriteString(s.next("caf\uFFFD", true, false, false))
		got.WriteString(s.next("caf\uFFFD", true, true, true))
		if want := "caf" + gap; got.String() != want {
			t.Errorf("after %q: got %q, want %q", before, got.String(), want)
		}
	}
	// A program wrote it, and nothing is cut.
	s := stream{limit: 1000, keepsHead: true}
	if got, want := s.next("caf\uFFFD", false, false, false)+s.next("caf\uFFFD", false, true, true), "caf\uFFFD"; got != want {
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
		} else if marked && !far && len(output) != limit {
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
		if len(output) < int(limit) && got != output {
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
