package acpterm

import (
	"sync"
	"time"
)

// A Pace makes the reads of outputs that nobody waits for take turns. The zero
// value is ready.
type Pace struct {
	mu sync.Mutex
	// guards following
	next time.Time // the next turn
}

// idleRate is how many such reads are made in a second at most. It is above what
// 1,000 terminals need at one read in PollIdle each.
const idleRate = 36

// turn returns how long a read has to wait for its turn.
func (p *Pace) turn() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(time.Second / idleRate)
	return wait
}
