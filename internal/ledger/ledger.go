// Package ledger records what a session holds: which commands it runs and on
// whose behalf, which of them a user was shown and no tool-end has taken note
// of, and how many slots are taken.
//
// It only keeps the books. It starts, stops and releases nothing, so no method
// blocks, and all of them may be called from any number of goroutines.
package ledger

import (
	"fmt"
	"slices"
	"sync"

	"github.com/termbridge/termbridge/terminal"
)

// A Ledger holds the entries of one session. O is what owns a command: a tool
// call, the session itself. It is read by equality only.
type Ledger[O comparable] struct {
	slots int

	mu sync.Mutex
	// guards following, and the fields of every Entry
	kept    int         // how many entries there may be; 0 is any number
	entries []*Entry[O] // in the order of Reserve
	closed  bool
}

// An Entry is one command, from before it is started until it is forgotten.
type Entry[O comparable] struct {
	ledger  *Ledger[O]
	slot    bool              // it takes one of the slots while it lives
	owner   O                 // who ends it
	term    terminal.Terminal // nil until Started, as id and done are
	id      string
	done    <-chan struct{}
	pending bool // shown, and no tool-end took note yet
	swept   bool // no longer in the ledger
}

// New returns an empty Ledger with so many slots.
func New[O comparable](slots int) *Ledger[O] { return &Ledger[O]{slots: slots} }

// Limit bounds the number of entries: a new one takes the place of the oldest
// ended one, of those that no tool-end has taken note of last. 0 is no bound.
func (l *Ledger[O]) Limit(kept int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = kept
}

// Reserve enters a command that is about to be started on behalf of owner. With
// slot it takes one of the slots, now: a start that is still under way counts,
// a command that has ended does not. Without a free slot, or a place within
// Limit, the error wraps [terminal.ErrTooMany], and after Close it is
// [terminal.ErrClosed].
//
// The caller ends every reservation by Started or Forget.
func (l *Ledger[O]) Reserve(owner O, slot bool) (*Entry[O], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, terminal.ErrClosed
	}
	if slot {
		if err := l.freeSlot(); err != nil {
			return nil, err
		}
	}
	if err := l.makeRoom(); err != nil {
		return nil, err
	}
	e := &Entry[O]{ledger: l, slot: slot, owner: owner}
	l.entries = append(l.entries, e)
	return e, nil
}

// freeSlot returns nil if a slot is free. Called with mu held.
func (l *Ledger[O]) freeSlot() error {
	taken := 0
	for _, e := range l.entries {
		if e.slot && e.live() {
			taken++
		}
	}
	if taken >= l.slots {
		return fmt.Errorf("%w: %d of %d run already", terminal.ErrTooMany, taken, l.slots)
	}
	return nil
}

// makeRoom evicts an ended entry if there is no room for one more. Called with mu
// held.
func (l *Ledger[O]) makeRoom() error {
	for l.kept > 0 && len(l.entries) >= l.kept {
		var oldest *Entry[O]
		for _, e := range l.entries {
			if !e.live() && (oldest == nil || oldest.pending && !e.pending) {
				oldest = e
			}
		}
		if oldest == nil {
			return fmt.Errorf("%w: %d run already", terminal.ErrTooMany, l.kept)
		}
		l.sweep(func(e *Entry[O]) bool { return e == oldest })
	}
	return nil
}

// live reports whether the command is starting or running. Called with mu held.
func (e *Entry[O]) live() bool {
	if e.term == nil {
		return true
	}
	select {
	case <-e.done:
		return false
	default:
		return true
	}
}

// Started enters the terminal of a command that has started. It returns false
// if the entry was swept meanwhile: then nobody else knows t, and the caller
// must stop it.
func (e *Entry[O]) Started(t terminal.Terminal) bool {
	id, done := t.Info().ID, t.Done() // no code of others runs under the lock
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	e.term, e.id, e.done = t, id, done
	return !e.swept
}

// Forget removes the entry and so gives its slot back.
func (e *Entry[O]) Forget() {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	e.ledger.sweep(func(other *Entry[O]) bool { return other == e })
}

// TakeSlot has a command that was entered without a slot take one, if one is free;
// else the error wraps [terminal.ErrTooMany].
func (e *Entry[O]) TakeSlot() error {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	if err := e.ledger.freeSlot(); err != nil {
		return err
	}
	e.slot = true
	return nil
}

// Show marks that the user sees the command's terminal in its owner's card.
func (e *Entry[O]) Show() {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	e.pending = true
}

// Terminal returns the entry's terminal, nil before Started.
func (e *Entry[O]) Terminal() terminal.Terminal {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	return e.term
}

// Owner returns who owns the command now.
func (e *Entry[O]) Owner() O {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	return e.owner
}

// TakePending reports whether a command whose owner matches was shown and not
// taken note of, and takes note: the next call returns false until another one
// is shown. Match is called under the Ledger's lock: it must not call back.
func (l *Ledger[O]) TakePending(match func(owner O) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := false
	for _, e := range l.entries {
		if e.pending && match(e.owner) {
			e.pending = false
			taken = true
		}
	}
	return taken
}

// Adopt hands the commands of one owner to another, also those that are still
// starting.
func (l *Ledger[O]) Adopt(from, to O) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.owner == from {
			e.owner = to
		}
	}
}

// Occupy has every command of owner take a slot while it lives, even if there
// is none free: it goes on in the background, and nobody can be refused any more.
func (l *Ledger[O]) Occupy(owner O) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.owner == owner {
			e.slot = true
		}
	}
}

// Owned returns the terminals of the started commands of owner, live and ended,
// in the order of their starts.
func (l *Ledger[O]) Owned(owner O) []terminal.Terminal {
	return l.terminals(func(e *Entry[O]) bool { return e.owner == owner })
}

// All returns the terminals of all started commands.
func (l *Ledger[O]) All() []terminal.Terminal {
	return l.terminals(func(*Entry[O]) bool { return true })
}

func (l *Ledger[O]) terminals(match func(*Entry[O]) bool) []terminal.Terminal {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ts []terminal.Terminal
	for _, e := range l.entries {
		if e.term != nil && match(e) {
			ts = append(ts, e.term)
		}
	}
	return ts
}

// Find returns the entry of the terminal with this id, or an error that wraps
// [terminal.ErrNotFound].
func (l *Ledger[O]) Find(id string) (*Entry[O], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.term != nil && e.id == id {
			return e, nil
		}
	}
	return nil, fmt.Errorf("%w: %q", terminal.ErrNotFound, id)
}

// Sweep removes the entries that match and returns the terminals of those that
// had started; for the others Started will return false. Match is called with
// the owner, and whether the entry has a slot, under the Ledger's lock: it must
// not call back.
func (l *Ledger[O]) Sweep(match func(owner O, slot bool) bool) []terminal.Terminal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sweep(func(e *Entry[O]) bool { return match(e.owner, e.slot) })
}

// Busy reports whether a command is starting or running.
func (l *Ledger[O]) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.entries, (*Entry[O]).live)
}

// Close refuses new entries and sweeps all that there are.
func (l *Ledger[O]) Close() []terminal.Terminal {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.sweep(func(*Entry[O]) bool { return true })
}

// sweep removes what matches and returns its terminals. Called with mu held.
func (l *Ledger[O]) sweep(match func(*Entry[O]) bool) []terminal.Terminal {
	var ts []terminal.Terminal
	l.entries = slices.DeleteFunc(l.entries, func(e *Entry[O]) bool {
		if !match(e) {
			return false
		}
		e.swept = true
		if e.term != nil {
			ts = append(ts, e.term)
		}
		return true
	})
	return ts
}
