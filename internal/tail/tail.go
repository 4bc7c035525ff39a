// Package tail keeps the end of a stream of bytes under absolute cursors. It is
// the buffer of every Manager of this module and imports only the standard
// library.
package tail

import (
	"context"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/text"
)

// A Buffer keeps the last bytes of a stream, at most its limit, in a ring that
// grows as it fills. Bytes are numbered from the start of the stream, so a
// cursor means the same for ever. One goroutine writes; any number read.
type Buffer struct {
	limit int

	mu sync.Mutex
	// guards following
	ring   []byte        // len is the capacity in use, a power of two or the limit
	start  int64         // cursor of the oldest byte that is kept
	end    int64         // cursor behind the newest
	closed bool          // nothing follows
	wake   chan struct{} // closed at the next change; nil while nobody waits
}

// minRing is the first size of a ring: an idle terminal costs nothing before
// its first output.
const minRing = 4 << 10

// New returns an empty Buffer that keeps limit bytes.
func New(limit int) *Buffer { return &Buffer{limit: max(limit, 1)} }

// Write appends p, evicts what is over the limit and wakes those who wait. It
// never fails and does no work per byte beyond the copy. After Close it drops p.
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
	if skip := n - len(b.ring); skip > 0 {
		b.end += int64(skip)
		p = p[skip:]
	}
	at := int(b.end % int64(len(b.ring)))
	copied := copy(b.ring[at:], p)
	copy(b.ring, p[copied:])
	b.end += int64(len(p))
	b.start = max(b.start, b.end-int64(len(b.ring)))
	b.changed()
	return n, nil
}

// grow makes the ring hold want bytes, or the limit. Called with mu held.
func (b *Buffer) grow(want int) {
	size := len(b.ring)
	if want <= size || size == b.limit {
		return
	}
	size = max(size, minRing)
	for size < want && size < b.limit {
		size *= 2
	}
	size = min(size, b.limit)
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
	if !b.closed {
		b.closed = true
		b.changed()
	}
}

// changed wakes those who wait. Called with mu held.
func (b *Buffer) changed() {
	if b.wake != nil {
		close(b.wake)
		b.wake = nil
	}
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
	defer b.mu.Unlock()
	return b.read(cursor, max)
}

// read is Read with mu held.
func (b *Buffer) read(cursor int64, limit int) Chunk {
	c := Chunk{Closed: b.closed}
	cursor = min(max(cursor, 0), b.end)
	if cursor < b.start {
		c.Truncated = true
		cursor = b.start
		cursor += int64(text.Continuation(b.peek(cursor)))
	}
	parts := b.bytes(cursor, min(b.end, cursor+int64(limit)))
	window := parts[0]
	if len(parts[1]) > 0 {
		window = make([]byte, 0, len(parts[0])+len(parts[1]))
		window = append(append(window, parts[0]...), parts[1]...)
	}
	final := b.closed && cursor+int64(len(window)) == b.end
	var n int
	c.Text, n = text.Decode(window, limit, final)
	c.Next = cursor + int64(n)
	// The start of a rune whose end is still to come is not there yet.
	rest := b.peek(c.Next)
	c.More = len(rest) > 0 && (b.closed || text.Incomplete(rest) < len(rest))
	return c
}

// peek returns the first bytes from cursor on, at most a rune's worth. Called
// with mu held.
func (b *Buffer) peek(cursor int64) []byte {
	parts := b.bytes(cursor, min(cursor+utf8.UTFMax, b.end))
	if len(parts[1]) == 0 {
		return parts[0]
	}
	return append(parts[0][:len(parts[0]):len(parts[0])], parts[1]...)
}

// Wait is Read, but while there is no text it waits until there is, until
// Close, or until wait has passed (zero or less: it does not wait), and returns
// the Cause of ctx, with what is there, if that ends first.
func (b *Buffer) Wait(ctx context.Context, cursor int64, max int, wait time.Duration) (Chunk, error) {
	var timeout <-chan time.Time
	for {
		b.mu.Lock()
		c := b.read(cursor, max)
		if c.Text != "" || c.Closed || c.Truncated || wait <= 0 {
			b.mu.Unlock()
			return c, nil
		}
		if b.wake == nil {
			b.wake = make(chan struct{})
		}
		wake := b.wake
		b.mu.Unlock()

		if timeout == nil {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-wake:
		case <-timeout:
			wait = 0
		case <-ctx.Done():
			return c, context.Cause(ctx)
		}
	}
}
