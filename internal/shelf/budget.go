package shelf

import (
	"slices"

	"github.com/termbridge/termbridge/terminal"
)

// A Budget shares the memory for outputs among the terminals of a Shelf, under
// the same lock. A command may have more than its fair share as long as nobody
// else wants that: then the outputs over it lose their start. For a growth that
// can be granted in full ended terminals give way, oldest first. Make one with
// [NewBudget].
type Budget[T terminal.Terminal] struct {
	shelf  *Shelf[T]
	limit  int
	shrink func(t T, size int) (freed int)
	used   int
	bytes  map[terminal.Terminal]int // of T
}

// page is the least growth that is worth its copy.
const page = 4 << 10

// NewBudget returns a Budget of limit bytes. Shrink makes the output of a terminal
// keep size bytes, if that can be done at once, and returns how many it has freed.
func NewBudget[T terminal.Terminal](shelf *Shelf[T], limit int, shrink func(t T, size int) int) *Budget[T] {
	return &Budget[T]{shelf: shelf, limit: limit, shrink: shrink, bytes: map[terminal.Terminal]int{}}
}

// Grow returns how many of the n bytes that a live command wants more it gets.
func (b *Budget[T]) Grow(t T, n int) int {
	if grant := b.limit - b.used; grant < n {
		share := b.limit / max(b.shelf.slots, 1)
		ended, over := b.give(t, share)
		// Who is below the share may take what others have above theirs.
		over = min(over, max(share-b.bytes[t], 0))
		if grant+ended+over >= n {
			b.shelf.Evict(func(T) bool { return b.used+n > b.limit })
		} else if n = grant + over; n < page {
			return 0
		}
		b.take(t, n, share)
		if n = min(n, b.limit-b.used); n <= 0 {
			return 0 // an output could not shrink just now
		}
	}
	b.used += n
	b.bytes[t] += n
	return n
}

// give returns what the ended terminals have, and what live ones but t have above
// the share.
func (b *Budget[T]) give(t T, share int) (ended, over int) {
	for other, bytes := range b.bytes {
		switch {
		case other == terminal.Terminal(t):
		case b.shelf.places[other].ended:
			ended += bytes
		default:
			over += max(bytes-share, 0)
		}
	}
	return ended, over
}

// take frees what is missing for a growth of t: the largest live outputs shrink to
// the share.
func (b *Budget[T]) take(t T, n, share int) {
	if b.used+n <= b.limit {
		return
	}
	var large []T
	for other, bytes := range b.bytes {
		if other != terminal.Terminal(t) && bytes > share && !b.shelf.places[other].ended {
			large = append(large, other.(T))
		}
	}
	slices.SortFunc(large, func(x, y T) int { return b.bytes[y] - b.bytes[x] })
	for _, other := range large {
		if b.used+n <= b.limit {
			return
		}
		freed := b.shrink(other, share)
		b.used -= freed
		b.bytes[other] -= freed
	}
}

// Free gives back what a terminal has that is not kept, or no longer.
func (b *Budget[T]) Free(t T) {
	b.used -= b.bytes[t]
	delete(b.bytes, t)
}

// Used returns how many bytes are in use.
func (b *Budget[T]) Used() int { return b.used }
