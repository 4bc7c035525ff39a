package localterm

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/terminal"
)

// FuzzStreams compares the streams that are read from one buffer with what was
// written to each.
func FuzzStreams(f *testing.F) {
	f.Add([]byte("out err out €uro\xff err"), []byte{3, 1, 4, 1, 5, 9, 2, 6}, uint8(12))
	f.Add([]byte("€€€€€€"), []byte{1}, uint8(200))
	f.Fuzz(func(t *testing.T, data, cuts []byte, limit uint8) {
		o := newOutput(int(limit), nil)
		var written [2][]byte
		var owner []int // of each byte
		names := [2]terminal.Stream{terminal.Stdout, terminal.Stderr}
		for i := 0; len(data) > 0; i++ {
			n := 1
			if len(cuts) > 0 {
				n = 1 + int(cuts[i%len(cuts)])%8
			}
			n = min(n, len(data))
			which := i % 2
			if len(cuts) > 0 && cuts[i%len(cuts)]&64 != 0 {
				which = 0
			}
			o.write(names[which], data[:n])
			written[which] = append(written[which], data[:n]...)
			for range n {
				owner = append(owner, which)
			}
			data = data[n:]
		}
		o.close()
		start, end := o.buf.Bounds()
		for which, name := range names {
			var got strings.Builder
			truncated := false
			for cursor := int64(0); ; {
				c, _ := o.readStream(name, cursor)
				truncated = truncated || c.Truncated
				got.WriteString(c.Text)
				if c.Next < cursor || c.Next > end || c.More && c.Next == cursor {
					t.Fatalf("read of %s at %d of %d: %+v", name, cursor, end, c)
				}
				if cursor = c.Next; !c.More {
					break
				}
			}
			gone := 0
			for _, w := range owner[:start] {
				if w == which {
					gone++
				}
			}
			kept := written[which][gone:]
			want := string([]rune(string(kept)))
			if start > 0 { // the cut may have gone through a rune
				if !truncated || !strings.HasSuffix(want, got.String()) || len(want)-len(got.String()) > 9 {
					t.Fatalf("%s after eviction is %q (truncated: %v), want %q", name, got.String(), truncated, want)
				}
			} else if got.String() != want || truncated {
				t.Fatalf("%s is %q (truncated: %v), want %q", name, got.String(), truncated, want)
			}
		}
	})
}

// The streams stay apart while their start is evicted, wherever that cuts.
func TestStreamsOfWhatIsKept(t *testing.T) {
	o := newOutput(64, nil)
	for i := range 500 {
		// Pieces of different lengths, so that the oldest that is kept is of either.
		o.write(terminal.Stdout, []byte(strings.Repeat("o", 1+i%3)))
		o.write(terminal.Stderr, []byte(strings.Repeat("e", 1+i%5)))
		for stream, want := range map[terminal.Stream]string{terminal.Stdout: "o", terminal.Stderr: "e"} {
			if c, _ := o.readStream(stream, 0); c.Text == "" || strings.Trim(c.Text, want) != "" {
				t.Fatalf("after %d pieces %s is %q", 2*(i+1), stream, c.Text)
			}
		}
	}
}

func TestMarksAreBounded(t *testing.T) {
	o := newOutput(4*maxMarks, nil)
	for range 2 * maxMarks {
		o.write(terminal.Stdout, []byte("o"))
		o.write(terminal.Stderr, []byte("e"))
	}
	if n := len(o.marks.at); n > maxMarks {
		t.Errorf("%d marks, want at most %d", n, maxMarks)
	}
	for name, letter := range map[terminal.Stream]string{terminal.Stdout: "o", terminal.Stderr: "e"} {
		c, _ := o.readStream(name, 0)
		if !c.Truncated || strings.Trim(c.Text, letter) != "" || len(c.Text) < maxMarks/4 {
			t.Errorf("%s: %d bytes, truncated: %v; want only %q, and a gap", name, len(c.Text), c.Truncated, letter)
		}
	}
	if start, end := o.buf.Bounds(); start != 0 || end != 4*maxMarks {
		t.Errorf("the output itself is %d..%d, want all of it", start, end)
	}
}

func TestWaitStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutput(64, nil)
		time.AfterFunc(time.Second, func() { o.write(terminal.Stderr, []byte("noise")) })
		time.AfterFunc(2*time.Second, func() { o.write(terminal.Stdout, []byte("news")) })
		start := time.Now()
		got, err := o.waitStream(t.Context(), terminal.Stdout, 0, time.Hour)
		if want := (tail.Chunk{Text: "news", Next: 9}); got != want || err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("got %+v, %v after %v; want %+v after 2s", got, err, time.Since(start), want)
		}
		got, err = o.waitStream(t.Context(), terminal.Stdout, 9, time.Second)
		if want := (tail.Chunk{Next: 9}); got != want || err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("got %+v, %v after %v; want %+v after its wait", got, err, time.Since(start), want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = o.waitStream(ctx, terminal.Stdout, 9, 1<<63-1); err != context.DeadlineExceeded {
			t.Errorf("an ended context: %v", err)
		}
	})
}

func TestIngestAllocatesNothing(t *testing.T) {
	o := newOutput(1<<20, nil)
	p := bytes.Repeat([]byte("eighty columns of output\n"), 300)
	for range 2 << 20 / len(p) {
		o.write("", p)
	}
	if n := testing.AllocsPerRun(100, func() { o.write("", p) }); n != 0 {
		t.Errorf("%v allocations a piece, want none", n)
	}
}
