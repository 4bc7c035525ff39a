// Package await has what every wait is made of.
package await

import (
	"context"
	"math"
	"time"
)

// Forever is longer than anything takes.
const Forever = math.MaxInt64 * time.Nanosecond

// Closed reports whether c is closed. A nil channel is not.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Sleep waits for d or for the end of ctx, whose Cause it returns, also if d is zero
// or less.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
