package localterm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// An output is what a command wrote: to its terminal, or to its two pipes,
// which share one buffer with marks of where the stream changes.
type output struct {
	buf     *tail.Buffer
	streams []stream
	queries *responder    // nil for a command that nobody can answer
	open    atomic.Int32  // streams that go on
	eof     chan struct{} // closed when the last has ended

	// mu is held while a piece is written with its mark. It is taken before the
	// lock of buf.
	mu sync.Mutex
	// guards following
	began  time.Time // the first output
	last   time.Time // the last output
	active time.Time // that, or the last input
	input  int64     // how far the output was at the last input; -1: there was none
	failed error     // why a stream could not be read to its end
	closed bool      // nothing is kept any more
	marks  marks
}

// A stream is one end of an output.
type stream struct {
	io.ReadCloser
	name terminal.Stream // "" for a terminal
}

func newOutput(limit int, reserve func(int) int) *output {
	o := &output{buf: tail.New(limit), eof: make(chan struct{}), active: time.Now(), input: -1}
	o.buf.Reserve = reserve
	return o
}

// add adds an end to read. It is called before the first read.
func (o *output) add(r io.ReadCloser, name terminal.Stream) {
	o.streams = append(o.streams, stream{r, name})
	o.open.Add(1)
}

// A deliverer is an output that its executor reads, so that nothing waits for it
// before there is something to read: [execenv.Local]'s outputs are. Deliver
// returns at once; it has w called, then ended, once, with what a Read would
// return at the end (nil for io.EOF, os.ErrClosed after Close).
type deliverer interface {
	Deliver(w io.Writer, ended func(error))
}

// ingest reads all streams to their end. The executor ends that when the
// process's resources are released. A goroutine that has to be started is
// started by join.
func (o *output) ingest(join func(func())) {
	for _, s := range o.streams {
		k := sink{o, s.name}
		if d, ok := s.ReadCloser.(deliverer); ok {
			d.Deliver(k, o.ended)
			continue
		}
		join(func() {
			// An executor's own WriteTo holds a buffer only while there is
			// something to read.
			_, err := io.Copy(k, s.ReadCloser)
			o.ended(err)
		})
	}
}

// ended notes the end of a stream.
func (o *output) ended(err error) {
	o.mu.Lock()
	if o.failed == nil && !errors.Is(err, os.ErrClosed) {
		o.failed = err
	}
	o.mu.Unlock()
	if o.open.Add(-1) == 0 {
		close(o.eof)
	}
}

// A sink keeps what is written of one stream.
type sink struct {
	out  *output
	name terminal.Stream
}

func (k sink) Write(p []byte) (int, error) {
	k.out.write(k.name, p)
	if k.out.queries != nil {
		k.out.queries.scan(p)
	}
	return len(p), nil
}

// write keeps p.
func (o *output) write(stream terminal.Stream, p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.active = time.Now()
	o.last = o.active
	if o.began.IsZero() {
		o.began = o.active
	}
	if stream != "" {
		o.marks.add(stream, o.buf)
	}
	o.buf.Write(p)
}

// times returns when the first output came, and the last.
func (o *output) times() (first, last time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.began, o.last
}

// clamp returns a cursor that is not behind the end.
func (o *output) clamp(cursor int64) int64 {
	_, end := o.buf.Bounds()
	return min(cursor, end)
}

// typed notes input that was written when the output was at a cursor.
func (o *output) typed(at int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.active, o.input = time.Now(), at
}

// quiet returns for how long there was neither output nor input.
func (o *output) quiet() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.active)
}

// news reports whether there was output or input since cursor, or whether that
// is the start.
func (o *output) news(cursor int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, end := o.buf.Bounds()
	return cursor <= 0 || end > cursor || o.input >= cursor
}

// drain returns true, after the exit of the process, once its output has been
// read to the end, or once somebody else evidently holds it open; and false if
// either channel is closed before.
func (o *output) drain(stop, ending <-chan struct{}) bool {
	if await.Closed(o.eof) {
		return true
	}
	const step = limits.DrainQuiet / 4
	tick := time.NewTicker(step)
	defer tick.Stop()
	limit := time.Now().Add(limits.DrainLimit)
	_, last := o.buf.Bounds()
	for quiet := time.Duration(0); quiet < limits.DrainQuiet && time.Now().Before(limit); quiet += step {
		select {
		case <-o.eof:
			return true
		case <-stop:
			return false
		case <-ending:
			return false
		case <-tick.C:
		}
		if _, end := o.buf.Bounds(); end != last {
			last, quiet = end, -step
		}
	}
	return true
}

// abandon ends the reads of a process that does not exit.
func (o *output) abandon() {
	for _, s := range o.streams {
		s.Close()
	}
}

// close ends the output, so that no reader waits for more, and returns why some
// of it was lost, or nil.
func (o *output) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.buf.Close()
	if o.failed != nil {
		return fmt.Errorf("output was lost: %w", o.failed)
	}
	return nil
}

// waitStream is [tail.Buffer.Wait] for one stream.
func (o *output) waitStream(ctx context.Context, stream terminal.Stream, cursor int64, wait time.Duration) (tail.Chunk, error) {
	deadline := time.Now().Add(wait)
	if wait > 0 && deadline.Before(time.Now()) {
		deadline = time.Now().Add(1<<63 - 1)
	}
	for {
		c, seen := o.readStream(stream, cursor)
		if c.Text != "" || c.Closed || c.Truncated || wait <= 0 {
			return c, nil
		}
		if err := o.buf.Await(ctx, seen, wait); err != nil {
			return c, err
		}
		wait = time.Until(deadline)
	}
}

// readStream is [tail.Buffer.Read] for one stream. It also returns the cursor
// behind what it has seen of both.
func (o *output) readStream(stream terminal.Stream, cursor int64) (c tail.Chunk, seen int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	start, end := o.buf.Bounds()
	start = max(start, o.marks.known)
	c.Closed = o.closed
	c.Truncated = max(cursor, 0) < start
	from := min(max(cursor, start), end)

	// A rune's worth more than is returned tells whether more text follows.
	var raw []byte
	last := true
	for i, j := range o.marks.pieces(stream, from, end) {
		room := int64(limits.MaxText + utf8.UTFMax - len(raw))
		if last = j-i <= room; !last {
			j = i + room
		}
		raw = o.buf.Append(raw, i, j)
		if !last {
			break
		}
	}
	skip := 0
	if c.Truncated {
		skip = text.Continuation(raw[:min(len(raw), utf8.UTFMax)])
	}
	final := c.Closed && last
	var n int
	c.Text, n = text.Decode(raw[skip:], limits.MaxText, final)
	n += skip
	rest := raw[n:]
	c.More = len(rest) > 0 && (final || text.Incomplete(rest) < len(rest))

	c.Next = end
	if len(rest) > 0 {
		for i, j := range o.marks.pieces(stream, from, end) {
			if int64(n) < j-i {
				c.Next = i + int64(n)
				break
			}
			n -= int(j - i)
		}
	}
	return c, end
}

// marks say which pieces of a buffer belong to which stream. Pieces alternate,
// so a mark is a cursor only, and a new one is needed only where the stream
// changes.
type marks struct {
	known   int64           // what lies before belongs to nobody knows whom
	first   terminal.Stream // of the piece before at[0]
	current terminal.Stream // of the last piece
	at      []int64         // where pieces begin
}

// maxMarks bounds the memory of marks: a command that changes streams with
// every byte loses the marks of its older output, not the output.
const maxMarks = 1 << 16

// add notes that what is written to buf next belongs to stream.
func (m *marks) add(stream terminal.Stream, buf *tail.Buffer) {
	if stream == m.current {
		return
	}
	start, end := buf.Bounds()
	if m.current == "" {
		m.first = stream
	} else {
		if len(m.at) == cap(m.at) {
			m.trim(start)
		}
		m.at = append(m.at, end)
	}
	m.current = stream
}

// trim drops the marks of what was evicted, and the older half of too many.
func (m *marks) trim(start int64) {
	n, _ := slices.BinarySearch(m.at, start+1)
	if len(m.at)-n >= maxMarks {
		n += (len(m.at) - n) / 2
		m.known = m.at[n-1]
	}
	if n%2 == 1 {
		m.first = other(m.first)
	}
	m.at = slices.Delete(m.at, 0, n)
}

// pieces yields where the pieces of stream between two cursors begin and end.
func (m *marks) pieces(stream terminal.Stream, from, to int64) iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		n, _ := slices.BinarySearch(m.at, from+1)
		name := m.first
		if n%2 == 1 {
			name = other(name)
		}
		for ; from < to; n, name = n+1, other(name) {
			next := to
			if n < len(m.at) {
				next = min(next, m.at[n])
			}
			if name == stream && from < next && !yield(from, next) {
				return
			}
			from = next
		}
	}
}

func other(s terminal.Stream) terminal.Stream {
	if s == terminal.Stdout {
		return terminal.Stderr
	}
	return terminal.Stdout
}
