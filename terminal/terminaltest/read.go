package terminaltest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/terminal"
)

var readRule = rule{
	name: "2-read",
	text: "ReadOutput: what lies after cursor at once, else waits for output, the end, wait or ctx; ctx ends only this wait, and an ended one is an error of every read. " +
		"Text at most 64 KiB, valid UTF-8, never cut inside a rune. Cursors are opaque, absolute since the start, and eviction never moves them; " +
		"Truncated when the cursor's text is gone (Text starts at the oldest kept). Many readers, none destructive; readable after the end, until evicted.",
	cases: []testCase{
		{name: "at once", run: func(h *harness) {
			t := h.start("hold")
			h.waitText(t, "ready\n")
			start := time.Now()
			out := h.read(t, 0, bound)
			if plain(out.Text) != "ready\n" || out.EOF() || out.Truncated || out.More {
				h.Errorf("output that is there: %+v", out)
			}
			h.checkPrompt("a read of what is there", start)
		}},
		{name: "waits for output", run: func(h *harness) {
			t := h.start("drip", "500ms", "one", "two", "three", "four")
			var text string
			var cursor int64
			for text != "one\ntwo\nthree\nfour\n" {
				out := h.read(t, cursor, bound)
				if out.Text == "" {
					h.Fatalf("after %q a read returned nothing, before its time and the end: %+v", text, out)
				}
				text += plain(out.Text)
				cursor = out.NextCursor
				if !strings.HasPrefix("one\ntwo\nthree\nfour\n", text) {
					h.Fatalf("output %q", text)
				}
			}
		}},
		{name: "waits for the end", run: func(h *harness) {
			t := h.start("drip", "0s", "one")
			_, cursor := h.waitText(t, "one\n")
			start := time.Now()
			if out := h.read(t, cursor, bound); out.Text != "" || !out.EOF() {
				h.Errorf("a read behind all output: %+v, want the end", out)
			}
			h.checkPrompt("a read that waits for the end", start)
			sleeper := h.start("sleep", "1")
			if out := h.read(sleeper, 0, bound); out.Text != "" || !out.EOF() {
				h.Errorf("a read of a command that ends without output: %+v, want the end", out)
			}
		}},
		{name: "wait passes", run: func(h *harness) {
			t := h.start("hold")
			_, cursor := h.waitText(t, "ready\n")
			for _, wait := range []time.Duration{-1, 0, 300 * time.Millisecond} {
				start := time.Now()
				out := h.read(t, cursor, wait)
				if out.Text != "" || out.More || out.NextCursor != cursor || out.Info.Outcome != terminal.Running {
					h.Errorf("wait %v: %+v", wait, out)
				}
				if took := time.Since(start); took < wait {
					h.Errorf("a read that waits %v returned after %v", wait, took)
				}
				h.checkPrompt("a short read", start)
			}
		}},
		{name: "ctx ends this wait", run: func(h *harness) {
			t := h.start("drip", "2s", "one")
			because := errors.New("because")
			ctx, cancel := context.WithCancelCause(h.Context())
			var other terminal.Output
			var otherErr error
			var all sync.WaitGroup
			all.Go(func() { other, otherErr = t.ReadOutput(h.Context(), 0, bound) })
			time.Sleep(100 * time.Millisecond)
			all.Go(func() {
				time.Sleep(200 * time.Millisecond)
				cancel(because)
			})
			start := time.Now()
			if out, err := h.tryRead(ctx, t, 0, bound); !errors.Is(err, because) || out.Text != "" {
				h.Errorf("a read whose context ended: %q, %v; want the cause", out.Text, err)
			}
			h.checkPrompt("a read whose context ended", start)
			h.within(2*bound, "the other reader", all.Wait)
			if otherErr != nil || plain(other.Text) != "one\n" {
				h.Errorf("the other reader got %q, %v", other.Text, otherErr)
			}
			h.checkExit(h.end(t), 0)
		}},
		{name: "an ended ctx", run: func(h *harness) {
			// Also where nothing must be waited for: a loop of reads ends with
			// its ctx, however much the command writes.
			t := h.start("hold")
			_, cursor := h.waitText(t, "ready\n")
			because := errors.New("because")
			ctx, cancel := context.WithCancelCause(h.Context())
			cancel(because)
			for _, wait := range []time.Duration{0, bound} {
				if out, err := h.tryRead(ctx, t, 0, wait); !errors.Is(err, because) || plain(out.Text) != "ready\n" {
					h.Errorf("a read of what is there, wait %v: %q, %v; want the text and the cause", wait, out.Text, err)
				}
				if out, err := h.tryRead(ctx, t, cursor, wait); !errors.Is(err, because) || out.Text != "" {
					h.Errorf("a read behind it, wait %v: %q, %v; want the cause", wait, out.Text, err)
				}
			}
			ended := h.start("print", "text")
			h.end(ended)
			if out, err := h.tryRead(ctx, ended, 0, 0); !errors.Is(err, because) || out.Text != "text" {
				h.Errorf("a read after the end: %q, %v; want the text and the cause", out.Text, err)
			}
		}},
		{name: "all of it", run: func(h *harness) {
			// More than one read returns, and to the last byte.
			t := h.start("lines", "40000")
			text, truncated := h.all(t)
			h.checkText(text, numbered(40000), truncated)
			h.checkExit(h.end(t), 0)
		}},
		{name: "the last byte", run: func(h *harness) {
			// Output right before the exit is read by those who wait for the
			// end, every time.
			for range 10 {
				t := h.start("print", "last")
				info := h.end(t)
				out := h.read(t, 0, 0)
				if out.Text != "last" || !out.EOF() {
					h.Fatalf("after the end (%s, %v): %+v", info.Outcome, info.Exit, out)
				}
			}
		}},
		{name: "runes", run: func(h *harness) {
			// Runes of all lengths, so that any cut of a read falls into one
			// sooner or later.
			want := strings.Repeat("aé漢😀", 20000)
			t := h.start("repeat", "20000", "aé漢😀")
			text, truncated := h.all(t)
			h.checkText(text, want, truncated)
		}},
		{name: "runes in pieces", run: func(h *harness) {
			t := h.start("bytes", "20ms", "é漢😀")
			var cursor int64
			var text strings.Builder
			for {
				out := h.read(t, cursor, bound)
				text.WriteString(out.Text)
				if strings.ContainsRune(out.Text, utf8.RuneError) {
					h.Fatalf("a rune was cut: %q", text.String())
				}
				cursor = out.NextCursor
				if out.EOF() {
					break
				}
			}
			h.checkText(text.String(), "é漢😀", false)
		}},
		{name: "bytes that are no text", run: func(h *harness) {
			t := h.start("print", `a\xffb\xc3`)
			text, truncated := h.all(t)
			h.checkText(text, "a\uFFFDb\uFFFD", truncated)
		}},
		{name: "the end", run: func(h *harness) {
			// A cursor behind the end is the end: at once without a wait, else what
			// comes after the read has begun.
			t := h.start("hold")
			_, end := h.waitText(t, "ready\n")
			for _, cursor := range []int64{terminal.End, end + 1000} {
				if out := h.read(t, cursor, 0); out.Text != "" || out.NextCursor != end || out.More || out.Truncated {
					h.Errorf("a read at %d, which is behind the end: %q, next cursor %d, more %v, truncated %v; want nothing, and %d",
						cursor, out.Text, out.NextCursor, out.More, out.Truncated, end)
				}
			}
			t = h.start("both")
			h.end(t)
			if out := h.read(t, terminal.End, bound); out.Text != "" || !out.EOF() {
				h.Errorf("a read behind the end of an ended command: %q, end %v; want the end", out.Text, out.EOF())
			}
			t = h.start("drip", append([]string{"200ms", "one"}, slices.Repeat([]string{"more"}, 100)...)...)
			h.waitText(t, "one\n")
			for _, beyond := range []int64{terminal.End, 1 << 40} {
				if out := h.read(t, beyond, bound); out.Text == "" || strings.Contains(out.Text, "one") {
					h.Errorf("a read that waits behind the end: %q, want what comes next", out.Text)
				}
			}
		}},
		{name: "cursors stay", run: func(h *harness) {
			// Read while old output is evicted; afterwards each cursor means
			// what it meant, or its text is gone.
			words := make([]string, 20)
			for i := range words {
				words[i] = strings.Repeat(string(rune('a'+i)), 15)
			}
			cmd := h.c.Program("drip", append([]string{"100ms"}, words...)...)
			cmd.OutputLimit = 128
			t := h.startCommand(cmd)
			type piece struct {
				cursor int64
				at     int // in text
			}
			var pieces []piece
			var text string
			for cursor := int64(0); ; {
				out := h.read(t, cursor, bound)
				if !out.Truncated { // else its text starts elsewhere
					pieces = append(pieces, piece{cursor, len(text)})
				}
				text += out.Text
				cursor = out.NextCursor
				if out.EOF() {
					pieces = append(pieces, piece{cursor, len(text)})
					break
				}
			}
			kept := 0
			for i, p := range pieces {
				got, truncated := h.allFrom(t, p.cursor)
				if rest, ok := strings.CutPrefix(got, terminal.GapMark); ok && !h.c.Exact {
					got, truncated = rest, true
				}
				switch {
				case !truncated && got != text[p.at:]:
					h.Errorf("from cursor %d: %q, then %q", p.cursor, text[p.at:], got)
				case !truncated:
					kept++
				case !strings.HasSuffix(text, got):
					h.Errorf("from cursor %d, truncated: %q, which is not the end of %q", p.cursor, got, text)
				case i == len(pieces)-1:
					h.Errorf("the last cursor is said to be gone")
				}
			}
			if kept == 0 || kept == len(pieces) && len(pieces) > 2 {
				h.Errorf("%d of %d cursors are kept of %d bytes with a limit of 128", kept, len(pieces), len(text))
			}
		}},
		{name: "truncated", run: func(h *harness) {
			cmd := h.c.Program("lines", "2000")
			cmd.OutputLimit = 4096
			t := h.startCommand(cmd)
			h.end(t)
			out := h.read(t, 0, 0)
			marked := out.Truncated || !h.c.Exact && strings.Contains(out.Text, terminal.GapMark)
			if !marked {
				h.Errorf("output is gone, and the read does not say so: %q…", headOf(out.Text))
			}
			_, text, found := strings.Cut(out.Text, terminal.GapMark)
			if !found {
				text = out.Text
			}
			if text == "" || !strings.HasSuffix(numbered(2000), plain(text)) {
				h.Errorf("%d bytes, not the end of the output: %q … %q", len(text), headOf(text), tailOf(text))
			}
			if again := h.read(t, out.NextCursor, 0); again.Truncated || again.Text != "" || !again.EOF() {
				h.Errorf("behind the end: %+v", again)
			}
		}},
		{name: "both outputs", run: func(h *harness) {
			t := h.start("both")
			h.end(t)
			text, _ := h.all(t)
			for _, want := range []string{"to stdout\n", "to stderr\n"} {
				if strings.Count(plain(text), want) != 1 {
					h.Errorf("output %q, want %q in it once", text, want)
				}
			}
			streams, ok := terminal.As[terminal.StreamReader](t)
			if !ok {
				return
			}
			for _, stream := range []terminal.Stream{terminal.Stdout, terminal.Stderr} {
				out, err := streams.ReadStream(h.ctx(bound), stream, 0, bound)
				if t.Info().Command.TTY && errors.Is(err, errors.ErrUnsupported) {
					continue
				}
				if want := "to " + string(stream) + "\n"; err != nil || out.Text != want {
					h.Errorf("ReadStream(%s): %q, %v; want %q", stream, out.Text, err, want)
				}
			}
		}},
		{name: "evicted lines", run: func(h *harness) {
			cmd := h.c.Program("lines", "2000")
			cmd.OutputLimit = 4000
			t := h.startCommand(cmd)
			h.end(t)
			counter, ok := terminal.As[tail.LineCounter](t)
			if !ok {
				return
			}
			evicted, cursor := counter.EvictedLines()
			text, truncated := h.allFrom(t, cursor)
			if truncated || text == "" {
				h.Errorf("from the oldest kept: %d bytes, truncated %v", len(text), truncated)
			}
			if kept := int64(strings.Count(text, "\n")); h.c.Exact && evicted+kept != 2000 {
				h.Errorf("%d lines evicted and %d kept of 2000", evicted, kept)
			}
		}},
		{name: "many readers", run: func(h *harness) {
			t := h.start("drip", "50ms", "one", "two", "three", "four", "five")
			const n = 8
			var got [n]string
			var all sync.WaitGroup
			for i := range n {
				all.Go(func() {
					var b strings.Builder
					if _, err := terminal.Copy(h.Context(), &b, t, 0); err != nil {
						h.Errorf("Copy: %v", err)
					}
					got[i] = b.String()
				})
			}
			h.within(bound, "eight readers", all.Wait)
			for _, text := range got {
				h.checkText(text, "one\ntwo\nthree\nfour\nfive\n", false)
			}
			time.Sleep(100 * time.Millisecond)
			text, truncated := h.all(t) // and once more, after the end
			h.checkText(text, "one\ntwo\nthree\nfour\nfive\n", truncated)
		}},
	},
}

// checkPrompt fails the case if what has taken since start did not happen at
// once.
func (h *harness) checkPrompt(what string, start time.Time) {
	h.Helper()
	if took := time.Since(start); took > prompt {
		h.Errorf("%s took %v", what, took)
	}
}
