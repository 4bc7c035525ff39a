package ledger

import (
	"slices"
	"sync"
	"time"
)

// Releases lists what a peer holds for us and must be told to release, each
// thing exactly once. The zero value is an empty list.
type Releases struct {
	mu sync.Mutex
	// guards following
	held map[string]*Release
	list []*Release // the same, in the order of Hold
}

// A Release is the duty to release one thing.
type Release struct {
	// ID is the peer's name for it. A peer may use it again once it is settled.
	ID string

	releases *Releases
	settled  chan struct{} // closed by Settle
	sent     time.Time     // guarded by Releases.mu
}

// Hold enters a duty, or returns the one that there is for id already, and
// false: then a peer gave the same name to two things.
func (r *Releases) Hold(id string) (*Release, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.held[id]; h != nil {
		return h, false
	}
	if r.held == nil {
		r.held = make(map[string]*Release)
	}
	h := &Release{ID: id, releases: r, settled: make(chan struct{})}
	r.held[id] = h
	r.list = append(r.list, h)
	return h, true
}

// Send marks that the peer is being told. Only the first call counts.
func (h *Release) Send() {
	h.releases.mu.Lock()
	defer h.releases.mu.Unlock()
	if h.sent.IsZero() {
		h.sent = time.Now()
	}
}

// Sent returns when the peer was told first, or the zero time.
func (h *Release) Sent() time.Time {
	h.releases.mu.Lock()
	defer h.releases.mu.Unlock()
	return h.sent
}

// Settle ends the duty: the peer answered, or is gone. Later calls do nothing.
func (h *Release) Settle() {
	r := h.releases
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[h.ID] != h {
		return
	}
	delete(r.held, h.ID)
	r.list = slices.DeleteFunc(r.list, func(other *Release) bool { return other == h })
	close(h.settled)
}

// Settled returns a channel that Settle closes.
func (h *Release) Settled() <-chan struct{} { return h.settled }

// Open returns the duties that are not settled, in the order of Hold.
func (r *Releases) Open() []*Release {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}
