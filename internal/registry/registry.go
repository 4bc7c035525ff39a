// Package registry keeps the terminals of a manager, live and ended: their ids,
// their slots, the memory of their outputs, which of the ended ones gives way, and
// whether the manager is closing.
//
// A Registry has a lock of its own and calls nothing of others while it holds it,
// but Options.Shrink. Its methods may be called from any number of goroutines.
package registry

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// Options configure a Registry.
type Options[T terminal.Terminal] struct {
	// MaxTerminals is how many terminals are kept, live and ended, and how many
	// commands run at once; zero or less is 64.
	MaxTerminals int

	// WaitForSlot has Reserve wait while so many run.
	WaitForSlot bool

	// ManagerBytes is how many bytes all outputs have together; zero or less is
	// 256 MiB.
	ManagerBytes int

	// Shrink makes the output of a terminal keep size bytes, if that can be done at
	// once, and returns how many it has freed. It is called under the Registry's lock.
	Shrink func(t T, size int) (freed int)

	// KeepEnded is how long an ended terminal is kept; zero or less is until it is
	// evicted for another reason.
	KeepEnded time.Duration

	// NewID returns the id of the next terminal, never the same twice; nil counts,
	// after Prefix. It is called once at a time.
	NewID  func() string
	Prefix string

	// Logger gets the panics of those that OnEvict entered; nil discards them.
	Logger *slog.Logger
}

// A Registry holds the terminals of one manager. Make one with [New].
type Registry[T terminal.Terminal] struct {
	opts Options[T]

	// Starts counts the commands from Reserve on, and the goroutines of Go. Unreserve
	// takes one away; the manager calls Done for a command that it has started, when it
	// thinks fit, and waits in the function of Close.
	Starts sync.WaitGroup

	// Closing is closed when Close begins.
	Closing chan struct{}

	over     chan struct{} // closed when Close is through: closeErr is valid
	closeErr error

	idMu sync.Mutex
	ids  int64 // given in place of Options.NewID; idMu guards it

	mu sync.Mutex
	// guards following
	closed      bool
	slots       int           // taken by commands that start or run
	freed       chan struct{} // not nil while a Reserve waits: closed when a slot is given back
	entries     map[terminal.Terminal]*entry[T]
	byID        map[string]*entry[T]
	kept        list.List   // of the entries that Put has made, in its order
	ended       list.List   // of those of kept that have ended, in the order of End
	used        int         // bytes of all outputs
	expiry      *time.Timer // evicts terminals that ended KeepEnded ago; nil before it is needed
	subscribers []func(terminal.Terminal)
}

// An entry is what a Registry knows of a terminal. One that is not kept has an entry
// from its first Grow until End.
type entry[T terminal.Terminal] struct {
	t     T
	id    string
	bytes int           // of its output
	kept  *list.Element // nil if it is not kept
	ended *list.Element // nil while it runs
	since time.Time     // when it ended
}

// New returns an empty Registry.
func New[T terminal.Terminal](o Options[T]) *Registry[T] {
	o.MaxTerminals = limits.Or(o.MaxTerminals, limits.DefaultMaxTerminals)
	o.ManagerBytes = limits.Or(o.ManagerBytes, limits.DefaultManagerBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Registry[T]{
		opts:    o,
		Closing: make(chan struct{}),
		over:    make(chan struct{}),
		entries: map[terminal.Terminal]*entry[T]{},
		byID:    map[string]*entry[T]{},
	}
}

// NextID returns the id of the next terminal; the error is a panic of
// Options.NewID.
func (r *Registry[T]) NextID() (string, error) {
	r.idMu.Lock()
	defer r.idMu.Unlock()
	if r.opts.NewID != nil {
		id, err := caught.Value(r.opts.NewID)
		if err != nil {
			return "", fmt.Errorf("Options.NewID %w", err)
		}
		return id, nil
	}
	r.ids++
	return r.opts.Prefix + strconv.FormatInt(r.ids, 10), nil
}

// Reserve takes a slot for a command that is about to start. The caller ends the
// reservation by Unreserve, or else by End.
//
// While every slot is taken the error wraps [terminal.ErrTooMany]; with
// Options.WaitForSlot, Reserve waits until one is given back or ctx ends, whose Cause
// it returns then. The error is [terminal.ErrClosed] once Close has begun, and
// [terminal.ErrConnectionLost] once gone is closed; a nil one never is.
func (r *Registry[T]) Reserve(ctx context.Context, gone <-chan struct{}) error {
	for {
		freed, err := r.tryReserve(gone)
		if !r.opts.WaitForSlot || !errors.Is(err, terminal.ErrTooMany) {
			return err
		}
		select {
		case <-freed:
		case <-r.Closing:
		case <-gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryReserve is Reserve without a wait: freed is closed when another try may succeed.
func (r *Registry[T]) tryReserve(gone <-chan struct{}) (freed <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, terminal.ErrClosed
	}
	select {
	case <-gone:
		return nil, terminal.ErrConnectionLost
	default:
	}
	if r.slots >= r.opts.MaxTerminals {
		if r.freed == nil {
			r.freed = make(chan struct{})
		}
		return r.freed, fmt.Errorf("%w: %d run, and no more are kept: stop one, or wait for one", terminal.ErrTooMany, r.slots)
	}
	r.slots++
	r.Starts.Add(1)
	return nil, nil
}

// Unreserve gives back the slot of a command that has not started.
func (r *Registry[T]) Unreserve() {
	defer r.Starts.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unslot()
}

// unslot gives a slot back. Called with mu held.
func (r *Registry[T]) unslot() {
	r.slots--
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

// Put keeps the terminal of a command that has started; if there are too many, the
// one that ended first gives way. Once Close has begun it is not kept, and the error
// is [terminal.ErrClosed].
func (r *Registry[T]) Put(id string, t T) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return terminal.ErrClosed
	}
	e := r.entry(t)
	e.id, e.kept = id, r.kept.PushBack(e)
	r.byID[id] = e
	evicted := r.evict(func(*entry[T]) bool { return r.kept.Len() > r.opts.MaxTerminals })
	r.unlockAndTell(evicted)
	return nil
}

// entry returns the entry of t, which it makes if there is none. Called with mu held.
func (r *Registry[T]) entry(t T) *entry[T] {
	e := r.entries[t]
	if e == nil {
		e = &entry[T]{t: t}
		r.entries[t] = e
	}
	return e
}

// End gives back the slot of a command that has ended, and closes done at the same
// time. Its terminal stays until it is evicted, if it is kept.
func (r *Registry[T]) End(t T, done chan<- struct{}) {
	r.mu.Lock()
	r.unslot()
	var evicted []T
	if e := r.entries[t]; e != nil && e.kept != nil {
		e.ended, e.since = r.ended.PushBack(e), time.Now()
		evicted = r.expire()
	} else if e != nil {
		r.forget(e)
	}
	close(done)
	r.unlockAndTell(evicted)
}

// expire evicts the terminals that ended KeepEnded ago, and sets the clock for the
// next. Called with mu held.
func (r *Registry[T]) expire() (evicted []T) {
	if r.opts.KeepEnded <= 0 || r.closed {
		return nil
	}
	var left time.Duration
	evicted = r.evict(func(e *entry[T]) bool {
		left = time.Until(e.since.Add(r.opts.KeepEnded))
		return left <= 0
	})
	switch {
	case left <= 0: // none is left
	case r.expiry == nil:
		r.expiry = time.AfterFunc(left, func() {
			r.mu.Lock()
			r.unlockAndTell(r.expire())
		})
	default:
		r.expiry.Reset(left)
	}
	return evicted
}

// Evict removes a terminal that has ended, if it is kept.
func (r *Registry[T]) Evict(t T) {
	r.mu.Lock()
	var evicted []T
	if e := r.entries[t]; e != nil && e.ended != nil {
		r.forget(e)
		evicted = []T{t}
	}
	r.unlockAndTell(evicted)
}

// evict removes ended terminals, earliest end first, while while returns true for
// the next one. Called with mu held.
func (r *Registry[T]) evict(while func(*entry[T]) bool) (evicted []T) {
	for front := r.ended.Front(); front != nil; front = r.ended.Front() {
		e := front.Value.(*entry[T])
		if !while(e) {
			break
		}
		r.forget(e)
		evicted = append(evicted, e.t)
	}
	return evicted
}

// forget removes an entry. Called with mu held.
func (r *Registry[T]) forget(e *entry[T]) {
	r.used -= e.bytes
	delete(r.entries, e.t)
	if e.kept != nil {
		r.kept.Remove(e.kept)
	}
	if e.ended != nil {
		r.ended.Remove(e.ended)
	}
	if r.byID[e.id] == e { // else a later one has its id
		delete(r.byID, e.id)
	}
}

// OnEvict has f called with each terminal that is kept no longer, right after that.
// F may read the terminal; it must neither wait nor call the manager.
func (r *Registry[T]) OnEvict(f func(terminal.Terminal)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscribers = append(r.subscribers, f)
}

// unlockAndTell unlocks mu and tells the subscribers what was evicted under it.
func (r *Registry[T]) unlockAndTell(evicted []T) {
	subscribers := r.subscribers
	r.mu.Unlock()
	for _, t := range evicted {
		for _, f := range subscribers {
			if failure := caught.Call(func() { f(t) }); failure != nil {
				r.opts.Logger.Error("the function of an OnEvict panicked", "panic", failure.Value, "stack", failure.Stack)
			}
		}
	}
}

// Get returns the terminal with this id, or an error that wraps
// [terminal.ErrNotFound].
func (r *Registry[T]) Get(id string) (t T, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.byID[id]; e != nil {
		return e.t, nil
	}
	return t, fmt.Errorf("%w: %q", terminal.ErrNotFound, id)
}

// List returns the terminals that are kept, in the order of Put.
func (r *Registry[T]) List() []terminal.Terminal {
	r.mu.Lock()
	defer r.mu.Unlock()
	ts := make([]terminal.Terminal, 0, r.kept.Len())
	for at := r.kept.Front(); at != nil; at = at.Next() {
		ts = append(ts, at.Value.(*entry[T]).t)
	}
	return ts
}

// Busy reports whether a slot is taken.
func (r *Registry[T]) Busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slots > 0
}

// Go runs f in a goroutine that Starts counts, unless Close has begun.
func (r *Registry[T]) Go(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.Starts.Go(f)
	}
	return !r.closed
}

// Close refuses what would begin from now on, closes Closing, and returns what shut
// returns, which it calls with the terminals that are kept. Each later call waits for
// the first, and returns the same.
func (r *Registry[T]) Close(shut func(kept []T) error) error {
	if kept, first := r.refuse(); first {
		defer close(r.over)
		r.closeErr = shut(kept)
		return r.closeErr
	}
	<-r.over // no lock: fake time goes on
	return r.closeErr
}

// refuse lets nothing begin any more, and returns what is kept; false if that was done
// before.
func (r *Registry[T]) refuse() (kept []T, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false
	}
	r.closed = true
	if r.expiry != nil {
		r.expiry.Stop()
	}
	close(r.Closing)
	for at := r.kept.Front(); at != nil; at = at.Next() {
		kept = append(kept, at.Value.(*entry[T]).t)
	}
	return kept, true
}

// page is the least growth that is worth its copy.
const page = 4 << 10

// Grow returns how many of the n bytes that the output of a live command wants more
// it gets. A command may have more than its fair share as long as nobody else wants
// that: then the outputs over it lose their start. For a growth that can be granted
// in full ended terminals give way, earliest end first.
func (r *Registry[T]) Grow(t T, n int) int {
	r.mu.Lock()
	granted, evicted := r.grow(r.entry(t), n)
	r.unlockAndTell(evicted)
	return granted
}

// grow is Grow. Called with mu held.
func (r *Registry[T]) grow(e *entry[T], n int) (granted int, evicted []T) {
	if free := r.opts.ManagerBytes - r.used; free < n {
		share := r.opts.ManagerBytes / max(r.slots, 1)
		ended, over := r.give(e, share)
		// Who is below the share may take what others have above theirs.
		over = min(over, max(share-e.bytes, 0))
		if free+ended+over >= n {
			evicted = r.evict(func(*entry[T]) bool { return r.used+n > r.opts.ManagerBytes })
		} else if n = free + over; n < page {
			return 0, nil
		}
		r.take(e, n, share)
		if n = min(n, r.opts.ManagerBytes-r.used); n <= 0 {
			return 0, evicted // an output could not shrink just now
		}
	}
	r.used += n
	e.bytes += n
	return n, evicted
}

// give returns what the ended terminals have, and what live ones but e have above
// the share. Called with mu held.
func (r *Registry[T]) give(e *entry[T], share int) (ended, over int) {
	for _, other := range r.entries {
		switch {
		case other == e:
		case other.ended != nil:
			ended += other.bytes
		default:
			over += max(other.bytes-share, 0)
		}
	}
	return ended, over
}

// take frees what is missing for a growth of e: the largest live outputs shrink to
// the share. Called with mu held.
func (r *Registry[T]) take(e *entry[T], n, share int) {
	if r.used+n <= r.opts.ManagerBytes {
		return
	}
	var large []*entry[T]
	for _, other := range r.entries {
		if other != e && other.bytes > share && other.ended == nil {
			large = append(large, other)
		}
	}
	slices.SortFunc(large, func(x, y *entry[T]) int { return y.bytes - x.bytes })
	for _, other := range large {
		if r.used+n <= r.opts.ManagerBytes {
			return
		}
		freed := r.opts.Shrink(other.t, share)
		r.used -= freed
		other.bytes -= freed
	}
}
