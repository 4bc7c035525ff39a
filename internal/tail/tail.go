// Package tail keeps the end of a stream of bytes under absolute cursors. It is
// the buffer of every Manager of this module and imports only the standard
// library.
package tail

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/text"
)

// A Buffer keeps the last bytes of a stream, at most its limit, in a ring that
// grows as it fills. Bytes are numbered from the start of the stream, so a
// cursor means the same for ever. Any number of goroutines write and read.
type Buffer struct {
	// Reserve, if it is set before the first Write, is asked before the ring
	// grows by n bytes, and returns how many it may have. With fewer it keeps less
	// than the limit for now. It is called with the buffer locked.
	Reserve func(n int) int

	limit int

	mu sync.Mutex
	// guards following
	ring   []byte // as long as it has grown
	start  int64  // cursor of the oldest byte that is kept
	end    int64  // cursor behind the newest
	lines  int64  // line ends before start
	full   int64  // Reserve said no: it is not asked again before this cursor
	closed bool   // nothing follows

	wake   chan struct{} // closed when there is news; nil while nobody waits
	woken  time.Time     // when that was last
	wokeAt int64         // and where the end was then
	late   *time.Timer   // wakes those who wait in a flood; nil before the first
	armed  bool          // late is set
}

// minRing is the first size of a ring: an idle terminal costs nothing before
// its first output. It needs no Reserve.
const minRing = 4 << 10

// New returns an empty Buffer that keeps limit bytes.
func New(limit int) *Buffer { return &Buffer{limit: max(limit, 1)} }

// Write appends p, evicts what is over the limit and wakes those who wait. It
// never fails and does no work per byte beyond the copy and the count of line
// ends at eviction. After Close it drops p.
func (b *Buffer) Write(p []byte) (int, error) {
	n := len(p)
	if n == 0 {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return n, nil
	}
	b.grow(int(b.end-b.start) + n)
	if over := n - len(b.ring); over > 0 {
		b.evict(b.end)
		b.lines += int64(bytes.Count(p[:over], newline))
		b.end += int64(over)
		b.start = b.end
		p = p[over:]
	}
	b.evict(b.end + int64(len(p)-len(b.ring)))
	at := int(b.end % int64(len(b.ring)))
	copied := copy(b.ring[at:], p)
	copy(b.ring, p[copied:])
	b.end += int64(len(p))
	b.announce(n)
	return n, nil
}

var newline = []byte{'\n'}

// evict drops what lies before the cursor to. Called with mu held.
func (b *Buffer) evict(to int64) {
	for _, part := range b.bytes(b.start, to) {
		b.lines += int64(bytes.Count(part, newline))
	}
	b.start = max(b.start, to)
}

// grow makes the ring hold want bytes, or the limit, or what Reserve allows.
// Called with mu held.
func (b *Buffer) grow(want int) {
	size := len(b.ring)
	if want <= size || size == b.limit || b.end < b.full {
		return
	}
	size = max(size, minRing)
	for size < want && size < b.limit {
		size *= 2
	}
	size = min(size, b.limit)
	if b.Reserve != nil {
		granted := len(b.ring) + b.Reserve(size-len(b.ring))
		if granted < size {
			b.full = b.end + int64(granted)
		}
		if granted == 0 {
			granted = min(minRing, b.limit)
		}
		size = granted
	}
	b.resize(size)
}

// Shrink makes the ring hold size bytes, if it holds more and nobody uses the
// buffer just now, and returns by how many it has shrunk.
func (b *Buffer) Shrink(size int) int {
	if !b.mu.TryLock() {
		return 0
	}
	defer b.mu.Unlock()
	size = max(size, min(minRing, b.limit))
	freed := len(b.ring) - size
	if freed <= 0 {
		return 0
	}
	b.evict(b.end - int64(size))
	b.full = b.end + int64(size)
	b.resize(size)
	return freed
}

// resize moves what is kept, which is no more than size bytes, to a new ring.
// Called with mu held.
func (b *Buffer) resize(size int) {
	if size == len(b.ring) {
		return
	}
	old := b.bytes(b.start, b.end)
	b.ring = make([]byte, size)
	at := int(b.start % int64(size))
	for _, part := range old {
		n := copy(b.ring[at:], part)
		copy(b.ring, part[n:])
		at = (at + len(part)) % size
	}
}

// bytes returns the kept bytes from one cursor to another, in at most two
// parts of the ring. Called with mu held; the parts are valid while it is.
func (b *Buffer) bytes(from, to int64) [2][]byte {
	if from >= to {
		return [2][]byte{}
	}
	size := int64(len(b.ring))
	i, j := from%size, (to-1)%size+1
	if i < j {
		return [2][]byte{b.ring[i:j]}
	}
	return [2][]byte{b.ring[i:], b.ring[:j]}
}

// Close says that nothing follows, and wakes those who wait.
func (b *Buffer) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	b.awaken()
}

// In a flood of large pieces, readers that keep up are woken for so many bytes,
// or after so long, and not for each piece: that would cost more than the piece,
// and take processor time from its writer. A piece that is small, or comes after
// a pause, wakes at once.
const (
	floodPiece = 1 << 10
	floodBytes = 256 << 10 // or a quarter of the limit
	floodPause = 5 * time.Millisecond
)

// announce wakes those who wait for the n bytes that were just written, now or
// in a moment. Called with mu held.
func (b *Buffer) announce(n int) {
	if b.wake == nil {
		return
	}
	if n >= floodPiece && b.end-b.wokeAt < min(floodBytes, int64(b.limit/4)) {
		if b.armed {
			return
		}
		if pause := floodPause - time.Since(b.woken); pause > 0 {
			b.armed = true
			if b.late == nil {
				b.late = time.AfterFunc(pause, b.overdue)
			} else {
				b.late.Reset(pause)
			}
			return
		}
	}
	b.awaken()
}

// overdue is the function of late.
func (b *Buffer) overdue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = false
	b.awaken()
}

// awaken wakes those who wait. Called with mu held.
func (b *Buffer) awaken() {
	if b.wake == nil {
		return
	}
	close(b.wake)
	b.wake = nil
	b.woken, b.wokeAt = time.Now(), b.end
}

// Append appends the kept bytes from one cursor to another to p.
func (b *Buffer) Append(p []byte, from, to int64) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, part := range b.bytes(max(from, b.start), min(to, b.end)) {
		p = append(p, part...)
	}
	return p
}

// A LineCounter is a Terminal that knows how many lines lie before what it keeps, so that
// lines can be numbered absolutely.
type LineCounter interface {
	// EvictedLines returns how many line ends lie before the oldest output
	// that is kept, and the cursor of that output.
	EvictedLines() (lines, cursor int64)
}

// EvictedLines returns how many line ends lie before the oldest byte that is
// kept, and its cursor.
func (b *Buffer) EvictedLines() (lines, start int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines, b.start
}

// Bounds returns the cursors of the oldest byte that is kept and behind the
// newest.
func (b *Buffer) Bounds() (start, end int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.start, b.end
}

// Size returns how many bytes of memory the ring takes.
func (b *Buffer) Size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ring)
}

// A Chunk is what a read returns.
type Chunk struct {
	Text      string
	Next      int64 // the cursor behind Text
	More      bool  // there is text behind Next already
	Truncated bool  // what lay at the cursor was evicted
	Closed    bool  // nothing is ever written behind what is there now
}

// Read returns the text from cursor on, at most max bytes of it (at least 4),
// valid UTF-8 and cut between runes. It does not wait. A cursor outside the
// stream is moved to its nearest end. Read costs O(text) and allocates the text
// only.
func (b *Buffer) Read(cursor int64, max int) Chunk {
	b.mu.Lock()
	r := b.raw(cursor, max)
	b.mu.Unlock()
	return r.chunk(max)
}

// Wait is Read, but while there is no text it waits until there is, until
// Close, or until wait has passed (zero or less: it does not wait). If ctx ends
// first, or has ended before, it returns the Cause of ctx with what is there.
func (b *Buffer) Wait(ctx context.Context, cursor int64, max int, wait time.Duration) (Chunk, error) {
	var r raw
	first := true
	err := b.await(ctx, wait, func() bool {
		if first {
			cursor, first = min(cursor, b.end), false
		}
		r = b.raw(cursor, max)
		return r.closed || r.truncated || text.Incomplete(r.bytes) < len(r.bytes)
	})
	return r.chunk(max), err
}

// Await waits until something lies behind cursor, until Close, until wait has
// passed, or until ctx ends, and returns its Cause then.
func (b *Buffer) Await(ctx context.Context, cursor int64, wait time.Duration) error {
	return b.await(ctx, wait, func() bool { return b.end > cursor || b.closed })
}

// await returns once ready does, which it calls with mu held at every change.
func (b *Buffer) await(ctx context.Context, wait time.Duration, ready func() bool) error {
	var over <-chan time.Time // once wait has passed
	for {
		b.mu.Lock()
		if ready() || wait <= 0 {
			b.mu.Unlock()
			// A reader that is never made to wait, by a flood or by its own wait
			// of zero, learns only here that it is to end.
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return nil
		}
		if b.wake == nil {
			b.wake = make(chan struct{})
		}
		wake := b.wake
		b.mu.Unlock()
		if over == nil {
			over = time.After(wait)
		}
		select {
		case <-wake:
		case <-over:
			wait = 0
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// raw is a piece of the stream that is not decoded yet.
type raw struct {
	bytes             string
	cursor            int64
	last              bool // nothing lies behind bytes yet
	truncated, closed bool
}

// raw copies what Read needs. Called with mu held, and so it only copies.
func (b *Buffer) raw(cursor int64, limit int) raw {
	r := raw{closed: b.closed, truncated: max(cursor, 0) < b.start}
	r.cursor = min(max(cursor, b.start), b.end)
	var first [utf8.UTFMax]byte
	if r.truncated {
		r.cursor += int64(text.Continuation(b.peek(first[:0], r.cursor)))
	}
	// A rune's worth more than asked for tells whether more text follows.
	to := min(b.end, r.cursor+int64(limit)+utf8.UTFMax)
	r.last = to == b.end
	var s strings.Builder // its bytes become the text without another copy
	s.Grow(int(to - r.cursor))
	for _, part := range b.bytes(r.cursor, to) {
		s.Write(part)
	}
	r.bytes = s.String()
	return r
}

// peek appends the first bytes from cursor on, at most a rune's worth. Called
// with mu held.
func (b *Buffer) peek(p []byte, cursor int64) []byte {
	for _, part := range b.bytes(cursor, min(cursor+utf8.UTFMax, b.end)) {
		p = append(p, part...)
	}
	return p
}

// chunk decodes r.
func (r raw) chunk(limit int) Chunk {
	c := Chunk{Truncated: r.truncated, Closed: r.closed}
	final := r.closed && r.last
	var n int
	c.Text, n = text.Decode(r.bytes, limit, final)
	c.Next = r.cursor + int64(n)
	// The start of a rune whose end is still to come is not there yet.
	rest := r.bytes[n:]
	c.More = len(rest) > 0 && (final || text.Incomplete(rest) < len(rest))
	return c
}
