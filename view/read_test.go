package view_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// fitting returns what [view.Pager.ReadText] asks for pages of n bytes.
func fitting(n int) func(string) int { return func(string) int { return n } }

// Pages of any size that begin at any cursor are text: none begins or ends within
// a sequence.
func TestReadTextBeginsOutsideOfSequences(t *testing.T) {
	const coloured = "\x1b[1;31mone\x1b[0m \x1b]0;a title\atwo\x1b]8;;http://x\x1b\\ three\r\n日本\x1b[38;5;200mfour\x1b(Bfive\n"
	const plain = "one two three\n日本fourfive\n"
	bubble(t, 0, func(t *testing.T, s *script) {
		s.write(strings.Repeat(coloured, 5))
		for from := range int64(2 * len(coloured)) {
			for _, size := range []int{1, 30, 1000} {
				var got strings.Builder
				for cursor, more := from, true; more; {
					out, err := view.NewPager(s, nil).ReadText(t.Context(), cursor, 0, fitting(size))
					if err != nil {
						t.Fatal(err)
					}
					if out.Text == "" && out.More && out.NextCursor == cursor {
						t.Fatalf("from %d, in pages of %d: the cursor stays at %d", from, size, cursor)
					}
					got.WriteString(view.Plain(out.Text))
					cursor, more = out.NextCursor, out.More
				}
				text := strings.TrimLeft(got.String(), "\ufffd") // of a character that was cut by the cursor
				if whole := strings.Repeat(plain, 5); !strings.HasSuffix(whole, text) || len(text) < len(whole)/2 {
					t.Fatalf("from %d, in pages of %d: %.60q, which is not the end of the text", from, size, text)
				}
			}
		}
	})
}

// isEndOfWords reports whether s is the end of many words, whose colours may have
// left one letter in front: that may be text.
func isEndOfWords(s string) bool {
	return strings.HasSuffix("word", strings.TrimPrefix(strings.ReplaceAll(s, "word", ""), "m"))
}

// Nor does the page behind what was evicted.
func TestReadTextBehindEviction(t *testing.T) {
	for limit := 200; limit < 260; limit++ {
		bubble(t, limit, func(t *testing.T, s *script) {
			s.write(strings.Repeat("\x1b[1;31mword\x1b[0m", 100))
			out, err := view.NewPager(s, nil).ReadText(t.Context(), 0, 0, fitting(1000))
			if err != nil || !out.Truncated {
				t.Fatalf("%+v, %v", out, err)
			}
			if !isEndOfWords(view.Plain(out.Text)) {
				t.Errorf("limit %d: %q", limit, out.Text)
			}
		})
	}
}

// A sequence whose end is still missing is left for the next page, and waited for.
func TestReadTextWaitsForASequence(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		s.write("\x1b[1;3")
		out, err := view.NewPager(s, nil).ReadText(t.Context(), 0, 0, fitting(100))
		if err != nil || out.Text != "" || out.NextCursor != 0 {
			t.Errorf("%q up to %d, %v", out.Text, out.NextCursor, err)
		}
		playing := play(s, false, step{time.Second, "1mred"})
		out, err = view.NewPager(s, nil).ReadText(t.Context(), 0, time.Minute, fitting(100))
		if err != nil || out.Text != "\x1b[1;31mred" {
			t.Errorf("%q, %v", out.Text, err)
		}
		playing.Wait()
	})
}

// A line of a Pager never begins within a sequence: not where one goes on over
// line ends, and not where its start was evicted. A raw page does not, either.
func TestPagerBeginsOutsideOfSequences(t *testing.T) {
	const text = "one\n\x1bPq#0;1\n2;3\n4\x1b\\two\n\x1b]0;a\ntitle\athree\n\x1b[1;\n31mfour\n"
	bubble(t, 0, func(t *testing.T, s *script) {
		s.write(text)
		lines := []string{"one", "", "", "two", "", "three", "", "four"}
		p := view.NewPager(s, nil)
		want(t, "all lines", read(t, p, 1, 0), 1, 8, 0, false, lines...)
		for i := range lines {
			want(t, "a line", read(t, p, int64(i+1), 1), int64(i+1), 8, int64(7-i), false, lines[i])
		}
		raw := view.NewPager(s, &view.PagerOptions{Raw: true})
		want(t, "a raw page", read(t, raw, 4, 2), 4, 8, 3, false, "two", "\x1b]0;a")
		want(t, "and the next", read(t, raw, 6, 1), 6, 8, 2, false, "three")
	})
	t.Run("behind marks", func(t *testing.T) {
		bubble(t, 0, func(t *testing.T, s *script) {
			p := view.NewPager(s, nil)
			picture := "\x1bPq" + strings.Repeat("#0;2;0\n", 20_000) + "\x1b\\end\n"
			s.write(picture)
			want(t, "a picture", read(t, p, -2, 0), 20_000, 20_001, 0, false, "", "end")
		})
	})
	t.Run("behind eviction", func(t *testing.T) {
		for limit := 200; limit < 240; limit++ {
			bubble(t, limit, func(t *testing.T, s *script) {
				s.write(strings.Repeat("\x1b[1;31mword\x1b[0m", 100) + "\nend\n")
				for _, term := range []terminal.Terminal{s, uncounted{s}} {
					page := read(t, view.NewPager(term, nil), 1, 0)
					if !isEndOfWords(page.Lines[0]) {
						t.Errorf("limit %d: %q", limit, page.Lines)
					}
				}
			})
		}
	})
}

// A wait begins outside of a sequence, wherever its cursor lies.
func TestWaitForBeginsOutsideOfASequence(t *testing.T) {
	const text = "abc\x1b]0;ready\a\x1b[31mready"
	for cursor := range int64(len(text) - 5) {
		bubble(t, 0, func(t *testing.T, s *script) {
			s.write(text)
			ev, err := view.WaitFor(t.Context(), s, view.Until{Cursor: cursor, Literal: "ready", Timeout: -1})
			if err != nil || ev.Reason != view.ByMatch || ev.Cursor != int64(len(text)) {
				t.Errorf("from %d: %q up to %d, %v; want the last one", cursor, ev.Reason, ev.Cursor, err)
			}
		})
	}
	for name, before := range map[string]string{
		"characters of three bytes":          strings.Repeat("日", 12_000) + "\x1b[3",
		"the same, cut elsewhere":            strings.Repeat("日", 12_000) + "\x1b[31",
		"and elsewhere":                      strings.Repeat("日", 12_000) + "\x1b[031",
		"bytes that are no UTF-8, all known": "a\xff\xff\x1b]0;title\a",
	} {
		bubble(t, 0, func(t *testing.T, s *script) {
			s.write(before + "mready")
			ev, err := view.WaitFor(t.Context(), s, view.Until{Cursor: int64(len(before)), Regexp: regexp.MustCompile(`^m?ready`), Timeout: -1})
			if err != nil || ev.Reason != view.ByMatch || (ev.Match == "ready") != strings.Contains(before, "\x1b[") {
				t.Errorf("%s: %q %q, %v", name, ev.Reason, ev.Match, err)
			}
		})
	}
}

// What was not seen may have ended the sequence that a wait was in.
func TestWaitForBehindAGap(t *testing.T) {
	bubble(t, 200, func(t *testing.T, s *script) {
		s.write("\x1b]0;a title")
		playing := play(s, false, step{time.Second, strings.Repeat("word ", 100) + "ready"})
		ev, err := view.WaitFor(t.Context(), s, view.Until{Literal: "ready", Timeout: time.Minute})
		if err != nil || ev.Reason != view.ByMatch || !ev.Truncated {
			t.Errorf("%q, truncated %v, %v; want a match behind a gap", ev.Reason, ev.Truncated, err)
		}
		playing.Wait()
	})
	bubble(t, 20, func(t *testing.T, s *script) {
		s.write("some text \x1b[1;31m" + strings.Repeat("x", 15))
		ev, err := view.WaitFor(t.Context(), s, view.Until{Literal: "31m", Timeout: -1})
		if err != nil || ev.Reason != view.ByTimeout || !ev.Truncated {
			t.Errorf("%q, truncated %v, %v; the rest of a sequence is no text", ev.Reason, ev.Truncated, err)
		}
	})
}

// endless is a terminal with a lot of output.
type endless struct {
	terminal.Terminal
	size int64 // of which -1 has no end
}

const endlessLine = "0123456789abcde\n"

func (e endless) Info() terminal.Info { return terminal.Info{Outcome: terminal.Exited} }

func (e endless) ReadOutput(_ context.Context, cursor int64, _ time.Duration) (terminal.Output, error) {
	text := endlessText
	if e.size >= 0 {
		text = text[:min(int64(len(text)), e.size-cursor)]
	}
	next := cursor + int64(len(text))
	return terminal.Output{Text: text, NextCursor: next, More: next != e.size, Info: e.Info()}, nil
}

var endlessText = strings.Repeat(endlessLine, limits.MaxText/len(endlessLine))

// A Pager counts as much output as there is, or says that it has not.
func TestPagerCountsAll(t *testing.T) {
	const lines = 300 << 20 / int64(len(endlessLine))
	page, err := view.NewPager(endless{size: lines * int64(len(endlessLine))}, nil).Read(t.Context(), -2, 0)
	if err != nil || page.Inexact || page.Total != lines || page.From != lines-1 || len(page.Lines) != 2 {
		t.Errorf("300 MiB: %d lines, of which %d from %d on, inexact %v, %v; want %d", page.Total, len(page.Lines), page.From, page.Inexact, err, lines)
	}
	if page, err := view.NewPager(endless{size: -1}, nil).Read(t.Context(), -2, 0); err != nil || !page.Inexact {
		t.Errorf("without end: inexact %v, %v", page.Inexact, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("enough"))
	if _, err := view.NewPager(endless{size: -1}, nil).Read(ctx, 0, 0); err == nil || err.Error() != "enough" {
		t.Errorf("with an ended context: %v", err)
	}
}
