package view_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// read reads and fails the test if that fails.
func read(t *testing.T, p *view.Pager, offset int64, limit int) view.Page {
	t.Helper()
	page, err := p.Read(t.Context(), offset, limit)
	if err != nil {
		t.Fatalf("Read(%d, %d): %v", offset, limit, err)
	}
	return page
}

// want compares the lines and numbers of a page.
func want(t *testing.T, what string, page view.Page, from, total, remaining int64, open bool, lines ...string) {
	t.Helper()
	type numbers struct {
		From, Total, Remaining int64
		Open                   bool
		Lines                  []string
	}
	got := numbers{page.From, page.Total, page.Remaining, page.Open, page.Lines}
	if diff := cmp.Diff(numbers{from, total, remaining, open, lines}, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestPagerGoesOnWhereTheLastReadEnded(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		p := view.NewPager(s, nil)
		want(t, "no output", read(t, p, 0, 0), 1, 0, 0, false)
		s.write("one\ntwo\nthree\n")
		want(t, "two of three lines", read(t, p, 0, 2), 1, 3, 1, false, "one", "two")
		want(t, "the third", read(t, p, 0, 2), 3, 3, 0, false, "three")
		want(t, "nothing new", read(t, p, 0, 2), 4, 3, 0, false)

		s.write("par")
		want(t, "an unfinished line", read(t, p, 0, 0), 4, 4, 0, true, "par")
		want(t, "which has not grown", read(t, p, 0, 0), 4, 4, 0, false)
		s.write("tial")
		want(t, "which has grown", read(t, p, 0, 0), 4, 4, 0, true, "partial")
		s.write("\r\n")
		want(t, "whose end is no news", read(t, p, 0, 0), 5, 4, 0, false)
		s.write("x\ny")
		want(t, "what follows", read(t, p, 0, 0), 5, 6, 0, true, "x", "y")
		s.write("z\nlast\n")
		want(t, "grown and followed, one line", read(t, p, 0, 1), 6, 7, 1, false, "yz")
		want(t, "and the other", read(t, p, 0, 1), 7, 7, 0, false, "last")

		s.write("again")
		want(t, "the next unfinished line", read(t, p, 0, 1), 8, 8, 0, true, "again")
		s.write("\nagain")
		want(t, "the same text is news in a new line", read(t, p, 0, 1), 9, 9, 0, true, "again")
		s.write("\n1\n2\n")
		want(t, "an old line does not count in the limit", read(t, p, 0, 1), 10, 11, 1, false, "1")
		want(t, "nor is anything skipped", read(t, p, 0, 1), 11, 11, 0, false, "2")
	})
}

func TestPagerOffsets(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		p := view.NewPager(s, nil)
		s.write("1\n2\n3\n4\n5")
		want(t, "from a line", read(t, p, 2, 2), 2, 5, 2, false, "2", "3")
		want(t, "from the first", read(t, p, 1, 1), 1, 5, 4, false, "1")
		want(t, "from the unfinished one", read(t, p, 5, 0), 5, 5, 0, true, "5")
		want(t, "from behind the end", read(t, p, 9, 0), 6, 5, 0, false)
		want(t, "the tail", read(t, p, -2, 0), 4, 5, 0, true, "4", "5")
		want(t, "the start of the tail", read(t, p, -4, 2), 2, 5, 2, false, "2", "3")
		want(t, "a tail longer than the output", read(t, p, -99, 0), 1, 5, 0, true, "1", "2", "3", "4", "5")
		want(t, "none of these moved the position", read(t, p, 0, 0), 1, 5, 0, true, "1", "2", "3", "4", "5")
	})
}

func TestPagerPeekAndUnread(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		p := view.NewPager(s, nil)
		unread := func(when string, want bool) {
			t.Helper()
			if got, err := p.Unread(t.Context()); got != want || err != nil {
				t.Errorf("Unread %s = %v, %v, want %v", when, got, err, want)
			}
		}
		unread("without output", false)
		s.write("a\nb")
		unread("with output", true)
		for range 2 {
			page, err := p.Peek(t.Context(), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			want(t, "Peek moves nothing", page, 1, 2, 0, true, "a", "b")
		}
		read(t, p, 0, 0)
		unread("after a read", false)
		s.write("b")
		unread("of a line that has grown", true)
		read(t, p, 0, 0)
		s.write("\n")
		unread("of a line that has only ended", false)
		s.write("\n")
		unread("of an empty line", true)
		want(t, "the empty line", read(t, p, 0, 0), 3, 3, 0, false, "")
		s.exit()
		unread("after the end", false)
	})
}

func TestPagerOfACommandThatHasEnded(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		p := view.NewPager(s, nil)
		if page := read(t, p, 0, 0); page.Complete {
			t.Error("complete before the end")
		}
		s.write("a\nb")
		time.Sleep(5 * time.Second)
		s.exit()
		page := read(t, p, 0, 1)
		want(t, "a line", page, 1, 2, 1, false, "a")
		if code := page.Info.Exit.Code; !page.Complete || code == nil || *code != 3 || page.Info.RunTime() != 5*time.Second {
			t.Errorf("complete %v, %v, %v, want an exit code 3 after 5s", page.Complete, page.Info.Exit, page.Info.RunTime())
		}
		want(t, "the rest", read(t, p, 0, 0), 2, 2, 0, true, "b")
		want(t, "again, by number", read(t, p, 1, 0), 1, 2, 0, true, "a", "b")
		want(t, "another reader", read(t, view.NewPager(s, nil), 0, 0), 1, 2, 0, true, "a", "b")
	})
}

func TestPagerMakesLinesPlain(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		s.write("\x1b[31mred\x1b[0m\r\n10%\r100%\r\n")
		want(t, "plain", read(t, view.NewPager(s, nil), 0, 0), 1, 2, 0, false, "red", "100%")
		want(t, "raw", read(t, view.NewPager(s, &view.PagerOptions{Raw: true}), 0, 0), 1, 2, 0, false, "\x1b[31mred\x1b[0m", "10%\r100%")
	})
}

// numbered returns lines with their numbers, of 16 bytes each.
func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "line %010d\n", i)
	}
	return b.String()
}

func numberedLines(from, to int) []string {
	return strings.Split(strings.TrimSuffix(numbered(from, to), "\n"), "\n")
}

func TestPagerNumbersAreAbsolute(t *testing.T) {
	const limit, all = 64 << 10, 100_000
	const kept = limit / 16
	t.Run("with a LineCounter a Pager that comes late knows them", func(t *testing.T) {
		bubble(t, limit, func(t *testing.T, s *script) {
			s.write(numbered(1, all))
			p := view.NewPager(s, nil)
			page := read(t, p, 0, 2)
			want(t, "what is left", page, all-kept+1, all, kept-2, false, numberedLines(all-kept+1, all-kept+2)...)
			if page.Evicted != all-kept || !page.Truncated || page.Inexact {
				t.Errorf("evicted %d, truncated %v, inexact %v; want %d, true, false", page.Evicted, page.Truncated, page.Inexact, all-kept)
			}
			page = read(t, p, 17, 1)
			want(t, "a line that is gone", page, all-kept+1, all, kept-1, false, numberedLines(all-kept+1, all-kept+1)...)
			if !page.Truncated {
				t.Error("a line that is gone: not truncated")
			}
			page = read(t, p, all-100, 3)
			want(t, "a line that is there", page, all-100, all, 98, false, numberedLines(all-100, all-98)...)
			if page.Truncated {
				t.Error("a line that is there: truncated")
			}
			want(t, "the tail", read(t, p, -3, 0), all-2, all, 0, false, numberedLines(all-2, all)...)
		})
	})
	for _, c := range []struct {
		name string
		wrap func(terminal.Terminal) terminal.Terminal
		gone int64 // how many lines may be gone too early
	}{
		{"LineCounter", func(t terminal.Terminal) terminal.Terminal { return t }, 0},
		{"none", func(t terminal.Terminal) terminal.Terminal { return uncounted{t} }, 2 * kept / 16},
	} {
		t.Run("a Pager that keeps up knows them: "+c.name, func(t *testing.T) {
			bubble(t, limit, func(t *testing.T, s *script) {
				p := view.NewPager(c.wrap(s), nil)
				var got []string
				for i := 1; i < all; i += 1000 {
					s.write(numbered(i, i+999))
					page := read(t, p, 0, 0)
					if page.Truncated || page.Inexact || page.Evicted > max(0, page.Total-kept)+c.gone {
						t.Fatalf("line %d: truncated %v, inexact %v, evicted %d", i, page.Truncated, page.Inexact, page.Evicted)
					}
					got = append(got, page.Lines...)
				}
				if !slices.Equal(got, numberedLines(1, all)) {
					t.Errorf("%d lines differ from what was written", len(got))
				}
				want(t, "by number", read(t, p, all-3000, 2), all-3000, all, 2999, false, numberedLines(all-3000, all-2999)...)
			})
		})
	}
	t.Run("without a LineCounter a gap is marked, and numbers go on", func(t *testing.T) {
		bubble(t, limit, func(t *testing.T, s *script) {
			p := view.NewPager(uncounted{s}, nil)
			s.write(numbered(1, 100))
			read(t, p, 0, 0)
			s.write(numbered(101, all))
			page := read(t, p, 0, 2)
			want(t, "behind the gap", page, 101, 100+kept, kept-2, false, numberedLines(all-kept+1, all-kept+2)...)
			if !page.Inexact || !page.Truncated || page.Evicted != 100 {
				t.Errorf("inexact %v, truncated %v, evicted %d; want true, true, 100", page.Inexact, page.Truncated, page.Evicted)
			}
			page = read(t, p, 0, 1)
			want(t, "the next", page, 103, 100+kept, kept-3, false, numberedLines(all-kept+3, all-kept+3)...)
			if page.Truncated || !page.Inexact {
				t.Errorf("the next: truncated %v, inexact %v; want false, true", page.Truncated, page.Inexact)
			}
		})
	})
	t.Run("a line whose start is gone is what is left of it", func(t *testing.T) {
		bubble(t, 10, func(t *testing.T, s *script) {
			p := view.NewPager(s, nil)
			s.write("one\n€€€€€") // the first rune that is left is cut
			want(t, "no half rune", read(t, p, 0, 0), 2, 2, 0, true, "€€€")
			s.write("€")
			want(t, "grown", read(t, p, 0, 0), 2, 2, 0, true, "€€€")
			want(t, "not grown", read(t, p, 0, 0), 2, 2, 0, false)
		})
	})
}

func TestPagerContextEndsTheWaitForATurn(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		slow := &slowTerminal{Terminal: s.Terminal}
		p := view.NewPager(slow, nil)
		go p.Read(t.Context(), 0, 0) // takes a minute of fake time
		time.Sleep(time.Second)
		why := errors.New("no more time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		start := time.Now()
		if _, err := p.Read(ctx, 0, 0); !errors.Is(err, why) || time.Since(start) != time.Second {
			t.Errorf("err %v after %v, want the cause after 1s", err, time.Since(start))
		}
		time.Sleep(time.Minute)
	})
}

// slowTerminal takes a minute for a read.
type slowTerminal struct{ terminal.Terminal }

func (s *slowTerminal) ReadOutput(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
	time.Sleep(time.Minute)
	return s.Terminal.ReadOutput(ctx, cursor, wait)
}

// Whatever a command writes, in whatever pieces and over whatever limit: default
// reads return every line once, in order, and an unfinished one as it grows.
func TestPagerAgainstSplit(t *testing.T) {
	for seed := range uint64(100) {
		bubble(t, 1<<20, func(t *testing.T, s *script) {
			rng := rand.New(rand.NewPCG(seed, 1))
			p := view.NewPager(s, &view.PagerOptions{Raw: true})
			var all strings.Builder
			got := map[int64]string{}
			last := int64(0)
			for range 40 {
				text := strings.Repeat([]string{"a", "bc", "\n", "x\n", "é\n\n", strings.Repeat("long", 3000)}[rng.IntN(6)], 1+rng.IntN(3))
				all.WriteString(text)
				s.write(text)
				lines := strings.Split(all.String(), "\n")
				total := int64(len(lines))
				if lines[total-1] == "" {
					lines = lines[:total-1]
					total--
				}
				if rng.IntN(2) == 0 {
					page := read(t, p, 0, rng.IntN(6))
					if len(page.Lines) > 0 && page.From < last || page.From > last+1 {
						t.Fatalf("seed %d: from %d after %d", seed, page.From, last)
					}
					for i, l := range page.Lines {
						last = page.From + int64(i)
						got[last] = l
					}
				}
				offset := rng.Int64N(2*total+1) - total
				if offset == 0 {
					continue
				}
				page := read(t, p, offset, 3)
				from := offset
				if offset < 0 {
					from = total + offset + 1
				}
				want := lines[from-1 : min(from+2, total)]
				if page.From != from || page.Total != total || !slices.Equal(page.Lines, want) {
					t.Fatalf("seed %d: Read(%d, 3) = %d %q of %d, want %d %q of %d", seed, offset, page.From, page.Lines, page.Total, from, want, total)
				}
			}
			for read := true; read; {
				page, err := p.Read(t.Context(), 0, 5)
				if err != nil {
					t.Fatal(err)
				}
				for i, l := range page.Lines {
					got[page.From+int64(i)] = l
				}
				read = len(page.Lines) > 0
			}
			for i, l := range strings.Split(strings.TrimSuffix(all.String(), "\n"), "\n") {
				if got[int64(i+1)] != l {
					t.Fatalf("seed %d: line %d is %q, want %q", seed, i+1, got[int64(i+1)], l)
				}
			}
		})
	}
}

func TestPagerOnEachManager(t *testing.T) {
	onEach(t, func(t *testing.T, m terminal.Manager, program func(string, ...string) terminal.Command) {
		cmd := program("lines", "5000")
		cmd.OutputLimit = 8 * 1000
		term := start(t, m, cmd)
		wait(t, term)
		p := view.NewPager(term, nil)
		page := read(t, p, -2, 0)
		if got := page.Lines; !page.Complete || len(got) != 2 || got[1] != "0004999" || page.Remaining != 0 {
			t.Errorf("the tail is %q of %d", got, page.Total)
		}
		if code := page.Info.Exit.Code; code == nil || *code != 0 {
			t.Errorf("the exit is %v, want 0", page.Info.Exit)
		}
		page = read(t, p, 0, 10)
		if page.From != page.Evicted+1 || len(page.Lines) != 10 || page.Total-page.Evicted > 1001 {
			t.Errorf("the start is %d lines from %d, with %d gone of %d", len(page.Lines), page.From, page.Evicted, page.Total)
		}
		again := read(t, p, page.From+3, 1)
		if !slices.Equal(again.Lines, page.Lines[3:4]) {
			t.Errorf("line %d is %q, then %q", page.From+3, page.Lines[3], again.Lines)
		}
		if unread, err := p.Unread(t.Context()); !unread || err != nil {
			t.Errorf("Unread = %v, %v, want true", unread, err)
		}
	})
}

func BenchmarkPager(b *testing.B) {
	// A static terminal, so that only the Pager is measured.
	text := numbered(1, 1<<16)
	s := static{text: text}
	b.Run("count", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		b.ReportAllocs()
		for b.Loop() {
			if page, err := view.NewPager(s, nil).Read(b.Context(), -1, 0); err != nil || page.Total != 1<<16 {
				b.Fatal(page.Total, err)
			}
		}
	})
	b.Run("page", func(b *testing.B) {
		p := view.NewPager(s, nil)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.Read(b.Context(), 40_000, 100); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A static is the output of a command that has ended.
type static struct {
	terminal.Terminal
	text string
}

func (s static) Info() terminal.Info { return terminal.Info{Outcome: terminal.Exited} }

func (s static) ReadOutput(_ context.Context, cursor int64, _ time.Duration) (terminal.Output, error) {
	end := min(cursor+limits.MaxText, int64(len(s.text)))
	return terminal.Output{Text: s.text[cursor:end], NextCursor: end, More: end < int64(len(s.text)), Info: s.Info()}, nil
}
