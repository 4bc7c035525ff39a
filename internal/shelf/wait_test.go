package shelf_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/termbridge/termbridge/internal/shelf"
	"github.com/termbridge/termbridge/terminal"
)

// Whoever waits for a slot asks again when one is given back, when the manager closes
// and when its other end is gone; the end of the context ends the wait.
func TestTakeSlot(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	gone := errors.New("gone")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	open, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	for name, c := range map[string]struct {
		ctx                  context.Context
		freed, closing, lost <-chan struct{}
		asked                int
	}{
		"freed":   {open, ended, nil, nil, 2},
		"closing": {open, nil, ended, nil, 2},
		"lost":    {open, nil, nil, ended, 2},
		"ctx":     {over, nil, nil, nil, 1},
	} {
		asked := 0
		err := shelf.TakeSlot(c.ctx, true, c.closing, c.lost, func() (<-chan struct{}, error) {
			if asked++; asked == 1 {
				return c.freed, terminal.ErrTooMany
			}
			return nil, gone
		})
		if !errors.Is(err, gone) || asked != c.asked {
			t.Errorf("%s: asked %d times, %v", name, asked, err)
		}
	}
}
