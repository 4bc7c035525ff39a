// Package shelf holds the terminals that a manager keeps, live and ended, and
// knows which of the ended ones gives way. It has no lock: the manager's guards it.
package shelf

import (
	"container/list"
	"fmt"

	"github.com/termbridge/termbridge/terminal"
)

// A Shelf has as many slots for commands that start or run as places for
// terminals. Make one with [New].
type Shelf[T terminal.Terminal] struct {
	limit   int
	evicted func(T)
	slots   int           // taken
	waiting chan struct{} // not nil while somebody waits: closed when a slot is given back
	kept    list.List     // of T, in the order of Put
	ended   list.List     // of those of kept that may be evicted, in the order of End
	places  map[terminal.Terminal]place
	byID    map[string]T
}

// A place is that of one terminal.
type place struct {
	id    string
	at    *list.Element // of kept
	ended bool
}

// New returns a Shelf with limit places. It calls evicted with each terminal that
// has lost its place.
func New[T terminal.Terminal](limit int, evicted func(T)) *Shelf[T] {
	return &Shelf[T]{limit: limit, evicted: evicted, places: map[terminal.Terminal]place{}, byID: map[string]T{}}
}

// Reserve takes a slot for a command that is about to start. If there is none the
// error wraps [terminal.ErrTooMany].
func (s *Shelf[T]) Reserve() error {
	if s.slots >= s.limit {
		return fmt.Errorf("%w: %d run, and no more are kept: stop one, or wait for one", terminal.ErrTooMany, s.slots)
	}
	s.slots++
	return nil
}

// Unreserve gives back the slot of a command that has not started.
func (s *Shelf[T]) Unreserve() { s.freed() }

// Busy reports whether a slot is taken.
func (s *Shelf[T]) Busy() bool { return s.slots > 0 }

// Put gives a place to the terminal of a command that has started. If there is none
// the terminal that ended first loses its own.
func (s *Shelf[T]) Put(id string, t T) {
	s.byID[id] = t
	s.places[t] = place{id: id, at: s.kept.PushBack(t)}
	s.Evict(func(T) bool { return s.kept.Len() > s.limit })
}

// End gives back the slot of a command that has ended. Its terminal keeps its place,
// if it has one, until it is evicted.
func (s *Shelf[T]) End(t T) {
	s.freed()
	if place, ok := s.places[t]; ok {
		place.ended = true
		s.places[t] = place
		s.ended.PushBack(t)
	}
}

// Evict takes away the places of ended terminals, of that which ended first first,
// as long as while says so of the next.
func (s *Shelf[T]) Evict(while func(T) bool) {
	for e := s.ended.Front(); e != nil && while(e.Value.(T)); e = s.ended.Front() {
		s.remove(e)
	}
}

// Drop takes away the place of an ended terminal, if it has one.
func (s *Shelf[T]) Drop(t T) {
	for e := s.ended.Front(); e != nil; e = e.Next() {
		if terminal.Terminal(e.Value.(T)) == terminal.Terminal(t) {
			s.remove(e)
			return
		}
	}
}

// remove takes away the place of a terminal in ended.
func (s *Shelf[T]) remove(e *list.Element) {
	t := s.ended.Remove(e).(T)
	place := s.places[t]
	s.kept.Remove(place.at)
	delete(s.places, t)
	if terminal.Terminal(s.byID[place.id]) == terminal.Terminal(t) { // else a later one has its id
		delete(s.byID, place.id)
	}
	s.evicted(t)
}

// Get returns the terminal with this id, and whether it has a place.
func (s *Shelf[T]) Get(id string) (T, bool) {
	t, ok := s.byID[id]
	return t, ok
}

// List returns the terminals in the order of their starts.
func (s *Shelf[T]) List() []terminal.Terminal {
	ts := make([]terminal.Terminal, 0, s.kept.Len())
	for e := s.kept.Front(); e != nil; e = e.Next() {
		ts = append(ts, e.Value.(T))
	}
	return ts
}
