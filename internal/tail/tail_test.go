package tail_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/tail"
)

const forever = time.Duration(1<<63 - 1)

func TestRead(t *testing.T) {
	b := tail.New(8)
	check := func(cursor int64, max int, want tail.Chunk) {
		t.Helper()
		if got := b.Read(cursor, max); got != want {
			t.Errorf("Read(%d, %d) = %+v, want %+v", cursor, max, got, want)
		}
	}
	check(0, 4, tail.Chunk{})
	b.Write([]byte("abcdef"))
	check(0, 64, tail.Chunk{Text: "abcdef", Next: 6})
	check(0, 4, tail.Chunk{Text: "abcd", Next: 4, More: true})
	check(4, 4, tail.Chunk{Text: "ef", Next: 6})
	check(-3, 4, tail.Chunk{Text: "abcd", Next: 4, More: true})
	check(99, 4, tail.Chunk{Next: 6})
	b.Write([]byte("ghij"))
	check(0, 64, tail.Chunk{Text: "cdefghij", Next: 10, Truncated: true})
	check(2, 64, tail.Chunk{Text: "cdefghij", Next: 10})
	b.Write([]byte("0123456789xyz"))
	check(10, 64, tail.Chunk{Text: "56789xyz", Next: 23, Truncated: true})
	b.Close()
	check(23, 64, tail.Chunk{Next: 23, Closed: true})
	b.Write([]byte("late"))
	check(15, 64, tail.Chunk{Text: "56789xyz", Next: 23, Closed: true})
	if start, end := b.Bounds(); start != 15 || end != 23 {
		t.Errorf("Bounds = %d, %d, want 15, 23", start, end)
	}
	if got := string(b.Append([]byte("> "), 0, 17)); got != "> 56" {
		t.Errorf("Append = %q", got)
	}
}

func TestReadHoldsBackHalfARune(t *testing.T) {
	b := tail.New(64)
	b.Write([]byte("a\xe2"))
	if got, want := b.Read(0, 64), (tail.Chunk{Text: "a", Next: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := b.Read(1, 64), (tail.Chunk{Next: 1}); got != want {
		t.Errorf("half a rune alone: got %+v, want %+v", got, want)
	}
	b.Write([]byte("\x82\xac"))
	if got, want := b.Read(1, 64), (tail.Chunk{Text: "€", Next: 4}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	b.Write([]byte("\xe2\x82"))
	b.Close()
	if got, want := b.Read(4, 64), (tail.Chunk{Text: "\ufffd\ufffd", Next: 6, Closed: true}); got != want {
		t.Errorf("after the end: got %+v, want %+v", got, want)
	}
}

func TestReadStartsAtARune(t *testing.T) {
	b := tail.New(10)
	b.Write([]byte(strings.Repeat("€", 100)))
	if got, want := b.Read(0, 64), (tail.Chunk{Text: "€€€", Next: 300, Truncated: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEvictedLines(t *testing.T) {
	b := tail.New(4)
	var all []byte
	for i := range 40 {
		piece := []byte(strings.Repeat("a\n", i%5) + "b")
		all = append(all, piece...)
		b.Write(piece)
		lines, start := b.EvictedLines()
		if want := int64(bytes.Count(all[:start], []byte("\n"))); lines != want {
			t.Fatalf("%d line ends before %d, want %d", lines, start, want)
		}
	}
}

func TestReserve(t *testing.T) {
	b := tail.New(64 << 10)
	var asked []int
	allow := 1 << 20
	b.Reserve = func(n int) int { asked = append(asked, n); return min(n, allow) }
	b.Write(make([]byte, 5000))
	allow = 0
	b.Write(make([]byte, 5000))
	if got, want := fmt.Sprint(asked, b.Size()), "[8192 8192] 8192"; got != want {
		t.Errorf("asked and size: %s, want %s", got, want)
	}
	if start, end := b.Bounds(); start != 10000-8192 || end != 10000 {
		t.Errorf("a refused growth keeps %d..%d, want the last 8192 bytes", start, end)
	}
	b.Write(make([]byte, 1000))
	if len(asked) != 2 {
		t.Errorf("asked again at once: %v", asked)
	}
	allow = 1000 // some of what it wants
	b.Write(make([]byte, 20000))
	b.Write(make([]byte, 20000))
	if b.Size() != 9192 {
		t.Errorf("size %d, want what was granted", b.Size())
	}
	if start, end := b.Bounds(); start != 51000-9192 || end != 51000 {
		t.Errorf("keeps %d..%d, want the last 9192 bytes", start, end)
	}
	if n := len(asked); n != 3 {
		t.Errorf("asked %d times", n)
	}

	b = tail.New(64 << 10)
	asked = nil
	b.Reserve = func(n int) int { asked = append(asked, n); return n }
	b.Write(make([]byte, 5000))
	b.Write(make([]byte, 8192-5000))
	if len(asked) != 1 {
		t.Errorf("asked for more than a ring that just holds all: %v", asked)
	}

	b = tail.New(64 << 10)
	b.Reserve = func(int) int { return 0 }
	b.Write([]byte("first"))
	if got := b.Read(0, 64).Text; got != "first" {
		t.Errorf("with no room at all: %q, want the first bytes all the same", got)
	}
}

// A ring that shrinks keeps the newest bytes, and its cursors and counts.
func TestShrink(t *testing.T) {
	b := tail.New(64 << 10)
	var asked []int
	b.Reserve = func(n int) int { asked = append(asked, n); return n }
	var all []byte
	for i := range 6000 {
		all = fmt.Appendf(all, "%05d\n", i)
	}
	b.Write(all)
	before := b.Size()
	if freed := b.Shrink(10_000); freed != before-10_000 || b.Size() != 10_000 {
		t.Errorf("freed %d of %d, and %d are left; want 10,000", freed, before, b.Size())
	}
	lines, start := b.EvictedLines()
	if start != int64(len(all)-10_000) || lines != int64(bytes.Count(all[:start], []byte("\n"))) {
		t.Errorf("%d lines before %d", lines, start)
	}
	if got := b.Read(start, 1<<20).Text; got != string(all[start:]) {
		t.Errorf("%d bytes, want the last 10,000", len(got))
	}
	if freed := b.Shrink(20_000); freed != 0 {
		t.Errorf("a ring that is smaller freed %d", freed)
	}
	asked = nil
	b.Write(all[:3000])
	if len(asked) > 0 || b.Size() != 10_000 {
		t.Errorf("it asks for what it has just given back: %v", asked)
	}
	b.Write(all)
	b.Write(all)
	if len(asked) == 0 || b.Size() <= 10_000 {
		t.Errorf("it never asks again: size %d", b.Size())
	}
	if got := b.Read(0, 1<<20); !strings.HasSuffix(got.Text, "05999\n") || !got.Truncated {
		t.Errorf("…%q, truncated: %v", got.Text[max(0, len(got.Text)-20):], got.Truncated)
	}
	if freed := b.Shrink(0); b.Size() != 4<<10 || freed == 0 {
		t.Errorf("to nothing: size %d, want a page", b.Size())
	}
	if freed := tail.New(64 << 10).Shrink(0); freed != 0 {
		t.Errorf("an empty one freed %d", freed)
	}
	b = tail.New(64 << 10)
	b.Write(all[:5000])
	before = b.Size()
	if freed := b.Shrink(before); freed != 0 {
		t.Errorf("a ring of that size freed %d", freed)
	}
	if b.Write(all[:before]); b.Size() <= before {
		t.Errorf("a shrink that did nothing keeps it from growing: size %d", b.Size())
	}

	// Who uses the buffer is not waited for: there may be two that shrink each other.
	b = tail.New(64 << 10)
	b.Reserve = func(n int) int {
		if freed := b.Shrink(0); freed != 0 {
			t.Errorf("freed %d in the middle of a write", freed)
		}
		return n
	}
	b.Write(all)
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tail.New(64)
		wait := func(cursor int64, wait time.Duration, want tail.Chunk, passed time.Duration) {
			t.Helper()
			start := time.Now()
			got, err := b.Wait(t.Context(), cursor, 64, wait)
			if got != want || err != nil || time.Since(start) != passed {
				t.Errorf("Wait(%d) = %+v, %v after %v; want %+v after %v", cursor, got, err, time.Since(start), want, passed)
			}
		}
		wait(0, 0, tail.Chunk{}, 0)
		wait(0, time.Second, tail.Chunk{}, time.Second)
		time.AfterFunc(time.Second, func() { b.Write([]byte("\xe2")) }) // no text yet
		time.AfterFunc(2*time.Second, func() { b.Write([]byte("\x82\xac")) })
		wait(0, forever, tail.Chunk{Text: "€", Next: 3}, 2*time.Second)
		wait(0, forever, tail.Chunk{Text: "€", Next: 3}, 0)

		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if got, err := b.Wait(ctx, 3, 64, forever); err != cause || got != (tail.Chunk{Next: 3}) {
			t.Errorf("an ended context: %+v, %v", got, err)
		}
		for _, d := range []time.Duration{0, forever} {
			if got, err := b.Wait(ctx, 0, 64, d); err != cause || got != (tail.Chunk{Text: "€", Next: 3}) {
				t.Errorf("what is there, and an ended context: %+v, %v", got, err)
			}
		}

		time.AfterFunc(time.Second, b.Close)
		wait(3, forever, tail.Chunk{Next: 3, Closed: true}, time.Second)
		wait(3, forever, tail.Chunk{Next: 3, Closed: true}, 0)
	})
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tail.New(64)
		start := time.Now()
		time.AfterFunc(time.Second, func() { b.Write([]byte("\xe2")) })
		if err := b.Await(t.Context(), 0, forever); err != nil || time.Since(start) != time.Second {
			t.Errorf("Await: %v after %v, want the first byte after 1s", err, time.Since(start))
		}
		if err := b.Await(t.Context(), 1, time.Second); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("Await: %v after %v, want its wait", err, time.Since(start))
		}
		b.Close()
		if err := b.Await(t.Context(), 1, forever); err != nil {
			t.Errorf("Await after Close: %v", err)
		}
	})
}

// In a flood a reader is woken seldom, never later than five milliseconds, and for
// small pieces at once.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tail.New(1 << 20)
		var wakes, last atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() {
			for cursor := int64(0); ; wakes.Add(1) {
				c, err := b.Wait(t.Context(), cursor, 64<<10, forever)
				if err != nil || c.Closed {
					return
				}
				last.Store(time.Now().UnixNano())
				cursor = c.Next
			}
		})
		flood := func(pieces, size int, gap time.Duration) int64 {
			synctest.Wait()
			before := wakes.Load()
			for range pieces {
				b.Write(make([]byte, size))
				synctest.Wait()
				time.Sleep(gap)
			}
			synctest.Wait()
			return wakes.Load() - before
		}
		if n := flood(100, 4<<10, 10*time.Microsecond); n > 10 {
			t.Errorf("%d wakes for 100 large pieces in a millisecond", n)
		}
		time.Sleep(time.Second)
		if n := flood(100, 1<<10, 10*time.Microsecond); n > 10 {
			t.Errorf("%d wakes for 100 pieces of 1 KiB in a millisecond", n)
		}
		time.Sleep(time.Second)
		for size := 10; size < 1<<10; size += 1<<10 - 11 {
			if n := flood(100, size, 10*time.Microsecond); n != 100 {
				t.Errorf("%d wakes for 100 pieces of %d bytes", n, size)
			}
		}
		if n := flood(100, 4<<10, 5*time.Millisecond); n != 100 {
			t.Errorf("%d wakes for 100 large pieces with pauses", n)
		}
		flood(2, 4<<10, 0)
		written := time.Now()
		time.Sleep(time.Second)
		synctest.Wait()
		if delay := time.Unix(0, last.Load()).Sub(written); delay > 5*time.Millisecond {
			t.Errorf("the last piece of a flood was read %v later", delay)
		}
		_, end := b.Bounds()
		if c, _ := b.Wait(t.Context(), end-1, 8, 0); c.Next != end {
			t.Errorf("what is there is read at once: %+v", c)
		}
		b.Close()
		wg.Wait()
	})
}

// However fast the flood is, a reader is woken before it misses something: for a
// quarter of what is kept.
func TestFloodOfASmallBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tail.New(64 << 10)
		defer b.Close()
		pieces := func() (n int) { // of 4 KiB, until a reader is woken
			_, cursor := b.Bounds()
			woken := make(chan struct{})
			go func() {
				defer close(woken)
				b.Await(t.Context(), cursor, forever)
			}()
			for synctest.Wait(); n < 16; n++ {
				b.Write(make([]byte, 4<<10))
				synctest.Wait()
				select {
				case <-woken:
					return n + 1
				default:
				}
			}
			return n
		}
		if n := pieces(); n != 1 {
			t.Errorf("woken for %d pieces after a pause, want 1", n)
		}
		for range 16 {
			if n := pieces(); n != 4 {
				t.Errorf("woken for %d pieces of 4 KiB, want 4", n)
			}
		}
	})
}

// Every reader of a stream that is not evicted sees it whole, however writes
// and reads fall.
func TestConcurrentReaders(t *testing.T) {
	var want strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&want, "%d €uro\n", i)
	}
	b := tail.New(want.Len())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var got strings.Builder
			for cursor := int64(0); ; {
				c, err := b.Wait(t.Context(), cursor, 4+i*500, forever)
				if err != nil || c.Truncated || !utf8.ValidString(c.Text) {
					t.Errorf("reader %d: %+v, %v", i, c, err)
					return
				}
				got.WriteString(c.Text)
				cursor = c.Next
				if c.Closed && !c.More {
					break
				}
			}
			if got.String() != want.String() {
				t.Errorf("reader %d saw %d bytes that are not the %d written", i, got.Len(), want.Len())
			}
		})
	}
	for s := want.String(); s != ""; {
		n := min(len(s), 1+rand.IntN(3000))
		b.Write([]byte(s[:n]))
		s = s[n:]
	}
	b.Close()
	wg.Wait()
}

// FuzzBuffer compares a Buffer with the whole stream: data is written in
// pieces, read in pieces in between, and evicted.
func FuzzBuffer(f *testing.F) {
	f.Add([]byte("h€llo w😀rld, and more\xff\xfe\n of it\n"), uint16(7), uint8(3), uint8(5))
	f.Add(bytes.Repeat([]byte("€\n"), 300), uint16(401), uint8(99), uint8(0))
	f.Fuzz(func(t *testing.T, stream []byte, limit uint16, step, size uint8) {
		b := tail.New(int(limit))
		keep, piece, max := max(int64(limit), 1), 1+int(step), 4+int(size)
		var cursor int64 // of a reader that follows
		var got strings.Builder
		gap := false
		read := func(seen int64, closed bool) {
			for {
				start := int64(0)
				if seen > keep {
					start = seen - keep
				}
				c := b.Read(cursor, max)
				if !utf8.ValidString(c.Text) || len(c.Text) > max || c.Next < cursor || c.Next > seen || c.Closed != closed {
					t.Fatalf("Read(%d, %d) = %+v of %d..%d", cursor, max, c, start, seen)
				}
				if c.Truncated != (cursor < start) {
					t.Fatalf("Read(%d) of %d..%d: Truncated is %v", cursor, start, seen, c.Truncated)
				}
				held := seen - c.Next
				if !c.More && (closed && held > 0 || held > 3) || c.More && held == 0 || c.More && c.Text == "" && !c.Truncated {
					t.Fatalf("Read(%d, %d) of %d..%d = %+v", cursor, max, start, seen, c)
				}
				gap = gap || c.Truncated
				got.WriteString(c.Text)
				cursor = c.Next
				if !c.More {
					return
				}
			}
		}
		for at := 0; at < len(stream); at += piece {
			b.Write(stream[at:min(at+piece, len(stream))])
			seen := int64(min(at+piece, len(stream)))
			lines, start := b.EvictedLines()
			if want := int64(bytes.Count(stream[:start], []byte("\n"))); lines != want || seen-start > keep {
				t.Fatalf("%d lines before %d of %d, want %d", lines, start, seen, want)
			}
			if kept := b.Append(nil, 0, seen); !bytes.Equal(kept, stream[start:seen]) {
				t.Fatalf("keeps %q, want %q", kept, stream[start:seen])
			}
			if at%3 == 0 {
				read(seen, false)
			}
		}
		b.Close()
		read(int64(len(stream)), true)
		if want := string([]rune(string(stream))); !gap && got.String() != want {
			t.Fatalf("followed to %q, want %q", got.String(), want)
		}
	})
}

func TestAllocations(t *testing.T) {
	b := tail.New(1 << 20)
	p := bytes.Repeat([]byte("0123456789 123456789 123456789\n"), 200)
	for range 2 << 20 / len(p) {
		b.Write(p)
	}
	if n := testing.AllocsPerRun(100, func() { b.Write(p) }); n != 0 {
		t.Errorf("a write into a full ring: %v allocations, want none", n)
	}
	for _, size := range []int{64 << 10, 1 << 20} { // of one part of the ring, and of both
		if n := testing.AllocsPerRun(100, func() { b.Read(0, size) }); n != 1 {
			t.Errorf("a read of %d: %v allocations, want the text only", size, n)
		}
	}
}

// Each wait ends at its own deadline, in any order, with wakes in between.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tail.New(1 << 20)
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
				for range 5 {
					wait := time.Duration(1 + rand.IntN(int(2*time.Second)))
					ctx, cancel := context.WithCancel(t.Context())
					if i%7 == 0 {
						ctx, cancel = context.WithTimeout(ctx, wait/2)
					}
					want := wait
					if i%7 == 0 {
						want = wait / 2
					}
					began := time.Now()
					err := b.Await(ctx, 1<<40, wait)
					if took := time.Since(began); took != want || (err != nil) != (i%7 == 0) {
						t.Errorf("a wait of %v took %v, want %v: %v", wait, took, want, err)
					}
					cancel()
				}
			})
		}
		wg.Go(func() {
			for range 100 {
				time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
				b.Write(make([]byte, 1+rand.IntN(3000)))
			}
		})
		wg.Wait()
		began := time.Now()
		time.AfterFunc(time.Millisecond, b.Close)
		if b.Await(t.Context(), 1<<40, forever); time.Since(began) != time.Millisecond {
			t.Errorf("Close was seen after %v", time.Since(began))
		}
	})
}
