package shelf

import (
	"context"
	"errors"

	"github.com/termbridge/termbridge/terminal"
)

// freed wakes whoever waits for a slot: one was given back.
func (s *Shelf[T]) freed() {
	s.slots--
	if s.waiting != nil {
		close(s.waiting)
		s.waiting = nil
	}
}

// Freed returns a channel that is closed when a slot is given back.
func (s *Shelf[T]) Freed() <-chan struct{} {
	if s.waiting == nil {
		s.waiting = make(chan struct{})
	}
	return s.waiting
}

// TakeSlot calls reserve, which locks what guards a Shelf and returns what Reserve
// and Freed do; with wait, until there is a slot, or another error. It waits until
// ctx ends, whose Cause it returns, and calls reserve again when one of the other two
// does, which says why then; nil ones never end.
func TakeSlot(ctx context.Context, wait bool, closing, gone <-chan struct{}, reserve func() (freed <-chan struct{}, err error)) error {
	for {
		freed, err := reserve()
		if !wait || !errors.Is(err, terminal.ErrTooMany) {
			return err
		}
		select {
		case <-freed:
		case <-closing:
		case <-gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
