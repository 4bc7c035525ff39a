package bridge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/terminal"
)

// updater is what a wire needs of a connection.
type updater interface {
	SessionUpdate(ctx context.Context, n acp.SessionNotification) error
}

// A wire writes the session/updates of a Bridge, one at a time and in the order
// in which they were put. A write blocks while the client does not read, and no
// context ends it; so it happens on a goroutine of the wire, which lives as long
// as there is something to write, and callers wait for it as long as they like.
type wire struct {
	conn updater
	lost <-chan struct{} // closed when the connection is gone; nil if nobody can tell

	mu sync.Mutex
	// guards following
	queue   []*update // the first is being written while writing is set
	writing bool
	idle    chan struct{} // not nil while writing: closed when nothing is left
}

// An update is a session/update on its way.
type update struct {
	n      acp.SessionNotification
	embeds []string // ids of client terminals that it embeds

	done chan struct{} // closed by the wire; err is valid afterwards
	err  error
}

// errWithdrawn is the error of an update that was taken back before it was written.
var errWithdrawn = errors.New("bridge: the update was not sent: the client does not read")

// put queues an update. It never blocks.
func (w *wire) put(n acp.SessionNotification, embeds ...string) *update {
	u := &update{n: n, embeds: embeds, done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, u)
	if !w.writing {
		w.writing = true
		w.idle = make(chan struct{})
		go w.write(w.idle)
	}
	return u
}

// write writes the queue until it is empty.
func (w *wire) write(idle chan struct{}) {
	defer close(idle)
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.queue, w.writing, w.idle = nil, false, nil
			w.mu.Unlock()
			return
		}
		u := w.queue[0]
		w.mu.Unlock()

		err := terminal.ErrConnectionLost
		if !closed(w.lost) {
			err = w.conn.SessionUpdate(context.Background(), u.n)
		}
		if err != nil && closed(w.lost) {
			err = terminal.ErrConnectionLost
		}

		w.mu.Lock()
		w.queue = w.queue[1:]
		u.err = err
		close(u.done)
		w.mu.Unlock()
	}
}

// wait waits until u was written and returns the error of that. If ctx ends
// first, u is taken back unless it is being written, and the Cause of ctx
// returned.
func (w *wire) wait(ctx context.Context, u *update) error {
	select {
	case <-u.done:
		return u.err
	case <-w.lost:
		return terminal.ErrConnectionLost
	case <-ctx.Done():
		w.withdraw(u)
		return context.Cause(ctx)
	}
}

// within waits until u was written, but no longer than d.
func (w *wire) within(d time.Duration, u *update) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-u.done:
		return u.err
	case <-w.lost:
		return terminal.ErrConnectionLost
	case <-timer.C:
		w.withdraw(u)
		return errWithdrawn
	}
}

// linger waits until u was written, but no longer than d, and leaves it queued.
func (w *wire) linger(d time.Duration, u *update) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-u.done:
	case <-w.lost:
	case <-timer.C:
	}
}

// withdraw takes an update back unless it was written or is being written.
func (w *wire) withdraw(u *update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.queue, u); i > 0 {
		w.queue = slices.Delete(w.queue, i, i+1)
		u.err = errWithdrawn
		close(u.done)
	}
}

// settle waits until every update that embeds the client's terminal id was
// written. When ctx ends it takes back those that are still queued: after
// settle none will be written that was not being written.
func (w *wire) settle(ctx context.Context, id string) {
	w.mu.Lock()
	var open []*update
	for _, u := range w.queue {
		if slices.Contains(u.embeds, id) {
			open = append(open, u)
		}
	}
	w.mu.Unlock()
	for _, u := range open {
		_ = w.wait(ctx, u)
	}
}

// close waits at most d until all is written, and takes back the rest. What is
// being written ends with the connection.
func (w *wire) close(d time.Duration) {
	w.mu.Lock()
	idle := w.idle
	w.mu.Unlock()
	if idle == nil {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-idle:
	case <-w.lost:
	case <-timer.C:
		w.mu.Lock()
		rest := slices.Clone(w.queue)
		w.mu.Unlock()
		for _, u := range rest {
			w.withdraw(u)
		}
	}
}

// A pacer spaces out the display updates of a connection: a client that handles
// them more slowly than they come closes the connection when its queue is full.
type pacer struct {
	mu   sync.Mutex
	next time.Time
}

// wait waits for the next free place.
func (p *pacer) wait(ctx context.Context) error {
	p.mu.Lock()
	at := time.Now()
	if p.next.After(at) {
		at = p.next
	}
	p.next = at.Add(time.Second / terminal.DisplayRate)
	p.mu.Unlock()
	return sleep(ctx, time.Until(at))
}

// sleep waits for d or for the end of ctx, whose Cause it returns.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
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

// closed reports whether c is closed; a nil channel is not.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
