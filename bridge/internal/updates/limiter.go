package updates

import (
	"context"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/await"
)

// A Limiter spaces out the display updates of a connection: a client that handles
// them more slowly than they come closes the connection when its queue is full.
type Limiter struct {
	interval time.Duration

	mu sync.Mutex
	// guards following
	next time.Time
}

// NewLimiter returns a Limiter to so many updates a second.
func NewLimiter(rate int) *Limiter { return &Limiter{interval: time.Second / time.Duration(rate)} }

// Wait waits for the next free place, or for the end of ctx, whose Cause it
// returns.
func (l *Limiter) Wait(ctx context.Context) error { return await.Sleep(ctx, time.Until(l.take())) }

// take returns the time of the next free place, and takes it.
func (l *Limiter) take() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	if l.next.After(at) {
		at = l.next
	}
	l.next = at.Add(l.interval)
	return at
}
