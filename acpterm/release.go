package acpterm

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
)

// releases are the client's terminals that are not released. Each is released
// once.
type releases struct {
	mu sync.Mutex
	// guards following
	list []*release // in the order of track
}

// A release is a terminal of the client that must be released.
type release struct {
	session acp.SessionId
	id      string // the client's; it may give it again once the terminal is released
	hooks   Hooks

	releases *releases
	done     chan struct{} // closed by end

	// Requests about it. Their ctx ends before it is released, so that one which
	// is never answered does not stay with the connection.
	ctx    context.Context
	cancel context.CancelFunc
	calls  sync.WaitGroup

	// releases.mu guards following:
	owner string    // our id of the terminal, "" for one that came too late
	sent  time.Time // when the client was told first; zero if it was not
}

// track adds the terminal that the client says it has made, or reports that it has
// given the id of one that lives. A client that gives the id of a terminal which
// it was told to release has released it, though its answer is still to come.
func (r *releases) track(session acp.SessionId, id string, hooks Hooks) (*release, bool) {
	r.mu.Lock()
	i := slices.IndexFunc(r.list, func(old *release) bool { return old.session == session && old.id == id })
	if i >= 0 && r.list[i].sent.IsZero() {
		r.mu.Unlock()
		return nil, false
	}
	var old *release
	if i >= 0 {
		old = r.list[i]
	}
	added := &release{session: session, id: id, hooks: hooks, releases: r, done: make(chan struct{})}
	added.ctx, added.cancel = context.WithCancel(context.Background())
	r.list = append(r.list, added)
	r.mu.Unlock()
	if old != nil {
		old.end()
	}
	return added, true
}

// open returns those that are not done, in the order of track.
func (r *releases) open() []*release {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// own sets our id of the terminal.
func (r *release) own(id string) {
	r.releases.mu.Lock()
	defer r.releases.mu.Unlock()
	r.owner = id
}

// of returns our id of the terminal, and when the client was told to release it.
func (r *release) of() (owner string, sent time.Time) {
	r.releases.mu.Lock()
	defer r.releases.mu.Unlock()
	return r.owner, r.sent
}

// send notes that the client is told to release it now, and reports false if it is
// released already: then it must not be told, since the id may be another
// terminal's by now.
func (r *release) send() bool {
	r.releases.mu.Lock()
	defer r.releases.mu.Unlock()
	if await.Closed(r.done) {
		return false
	}
	if r.sent.IsZero() {
		r.sent = time.Now()
	}
	return true
}

// end notes that it is released, or that the client is gone. Later calls do nothing.
func (r *release) end() {
	if r.remove() && r.hooks.Done != nil {
		r.hooks.Done()
	}
}

func (r *release) remove() bool {
	r.releases.mu.Lock()
	defer r.releases.mu.Unlock()
	if await.Closed(r.done) {
		return false
	}
	close(r.done)
	r.releases.list = slices.DeleteFunc(r.releases.list, func(other *release) bool { return other == r })
	return true
}

// release tells the client to release a terminal, and waits for the answer until
// its bound or giveUp. An answer of any kind will do, also one that comes later. After
// the end of the connection the terminal is abandoned; ended reports whether its
// command has ended.
func (m *Manager) release(p peer, r *release, ended bool, giveUp <-chan struct{}) {
	if p.lost() {
		p.abandon(r, ended)
		return
	}
	if _, sent := r.of(); sent.IsZero() && r.hooks.Releasing != nil {
		ctx, cancel := context.WithTimeout(context.Background(), limits.ReleaseTimeout/2)
		r.hooks.Releasing(ctx)
		cancel()
	}
	r.cancel()
	go func() { // owned by the connection
		// A request that is still to be written when the release is may reach the
		// next terminal with the id.
		r.calls.Wait()
		if !r.send() {
			return
		}
		_, err := p.conn.ReleaseTerminal(context.Background(), acp.ReleaseTerminalRequest{SessionId: p.session, TerminalId: r.id})
		if err != nil {
			m.options.Logger.Debug("acpterm: terminal/release", "terminal", r.id, "err", err)
		}
		r.end()
	}()
	if !p.released(r, limits.ReleaseTimeout, giveUp) {
		m.options.Logger.Warn("acpterm: terminal/release is not answered", "terminal", r.id)
	}
}

// inTransit is how long an answer that the client has sent may take to be here.
const inTransit = 10 * time.Millisecond

// releaseAgain is the last try for a terminal whose release is not answered. The
// first one gets the time that it has left.
func (m *Manager) releaseAgain(p peer, r *release) {
	_, sent := r.of()
	if sent.IsZero() || p.released(r, time.Until(sent.Add(limits.ReleaseTimeout+inTransit)), nil) {
		return
	}
	m.release(p, r, true, nil)
}

// released waits within limit until a release is answered, and reports whether it
// was. With the connection, what the client held for us has ended.
func (p peer) released(r *release, limit time.Duration, giveUp <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-p.gone:
		p.abandon(r, true)
	case <-giveUp:
	case <-timer.C:
	}
	return await.Closed(r.done) // the answer counts, also if the time was up just then
}

// farewell bounds what is still written when the connection has ended.
const farewell = 200 * time.Millisecond

// abandon kills, unless the command has ended, and releases a terminal after the
// end of the connection. No answer can come, but a client that has only closed
// our input still reads, and may live on with its commands. It returns when both
// requests are written, or after the bound.
func (p peer) abandon(r *release, ended bool) {
	r.cancel()
	if _, sent := r.of(); !sent.IsZero() || !r.send() {
		r.end()
		return
	}
	written := make(chan struct{})
	go func() { // owned by the connection
		defer close(written)
		ctx, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		if !ended {
			half, cancel := context.WithTimeout(ctx, farewell/2)
			defer cancel()
			p.conn.KillTerminal(half, acp.KillTerminalRequest{SessionId: p.session, TerminalId: r.id})
		}
		p.conn.ReleaseTerminal(ctx, acp.ReleaseTerminalRequest{SessionId: p.session, TerminalId: r.id})
	}()
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
	}
	r.end()
}
