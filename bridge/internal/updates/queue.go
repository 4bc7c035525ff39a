// Package updates sends the session/updates of a connection: one queue, one
// writer, and lines of a bounded length. It knows neither commands nor tool
// calls.
//
// Nothing of the caller's runs under a lock here: values are frozen ([Freeze])
// before they come to the queue, and the writer measures and cuts what needs it
// ([Force]) after it has left the queue.
package updates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/terminal"
)

// ErrUnread is the error of an update that was not written in time.
var ErrUnread = errors.New("bridge: the update was not sent in time: the client does not read")

// A Queue writes the updates of a connection one at a time and in the order in
// which they were put. A write blocks while the client does not read, and no
// context ends it; so it happens on a goroutine of the Queue, which lives as long
// as there is something to write, and callers wait for it as long as they like.
type Queue struct {
	send func(context.Context, acp.SessionNotification) error
	lost <-chan struct{} // closed when the connection is gone; nil if nobody can tell

	mu sync.Mutex
	// guards following
	queue   []*Update
	writing *Update // it has left the queue: nobody takes it back
	running bool    // there is a writer
}

// NewQueue returns a Queue that writes with send. Nothing is written once lost
// is closed; it may be nil.
func NewQueue(send func(context.Context, acp.SessionNotification) error, lost <-chan struct{}) *Queue {
	return &Queue{send: send, lost: lost}
}

// A Stream is the part of a Queue that belongs to one session.
type Stream struct {
	q       *Queue
	session acp.SessionId
	ended   bool // guarded by Queue.mu
}

// Stream returns a new Stream for a session.
func (q *Queue) Stream(session acp.SessionId) *Stream { return &Stream{q: q, session: session} }

// Session returns the id of the session.
func (s *Stream) Session() acp.SessionId { return s.session }

// Notification returns u as it is sent.
func (s *Stream) Notification(u acp.SessionUpdate) acp.SessionNotification {
	return acp.SessionNotification{SessionId: s.session, Update: u}
}

// An Update is a session/update on its way.
type Update struct {
	stream *Stream
	card   bool          // it stays queued, and is cut to fit
	done   chan struct{} // closed by the Queue; err is valid afterwards
	err    error

	// guarded by Queue.mu until it is being written
	n      acp.SessionNotification
	embeds []string // ids of the client's terminals in it
}

// Put queues an update that fits a line. It never blocks.
func (s *Stream) Put(u acp.SessionUpdate) *Update {
	return s.put(&Update{n: s.Notification(u)})
}

// PutCard queues an update of a tool call, which will be cut to fit a line. It
// never blocks. What was put so is never taken back, unless the Stream ends,
// since later updates build on it. The values in u must be frozen, and nobody
// may change them any more.
func (s *Stream) PutCard(u acp.SessionUpdate, embeds ...string) *Update {
	return s.put(&Update{n: s.Notification(u), card: true, embeds: embeds})
}

// PutCards is PutCard for several updates, of which all are queued or none. It
// returns the last.
func (s *Stream) PutCards(all []acp.SessionUpdate) *Update {
	var us []*Update
	for _, u := range all {
		us = append(us, &Update{n: s.Notification(u), card: true})
	}
	return s.put(us...)
}

// put queues updates, and returns the last.
func (s *Stream) put(us ...*Update) *Update {
	for _, u := range us {
		u.stream, u.done = s, make(chan struct{})
	}
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.ended {
		for _, u := range us {
			u.finish(fmt.Errorf("bridge: session %q: %w", s.session, terminal.ErrClosed))
		}
		return us[len(us)-1]
	}
	q.queue = append(q.queue, us...)
	if !q.running {
		q.running = true
		go q.write() // it ends when the queue is empty, or with the connection
	}
	return us[len(us)-1]
}

// finish publishes what became of u.
func (u *Update) finish(err error) {
	u.err = err
	close(u.done)
}

// Done returns a channel that is closed when u was written, or never will be.
func (u *Update) Done() <-chan struct{} { return u.done }

// Failed reports whether it is certain that u was not written.
func (u *Update) Failed() bool { return await.Closed(u.done) && u.err != nil }

// write writes the queue until it is empty.
func (q *Queue) write() {
	for u := q.next(nil); u != nil; u = q.next(u) {
		u.finish(q.deliver(u))
	}
}

// next returns the update to be written after last, nil if there is none.
func (q *Queue) next(last *Update) *Update {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		q.queue, q.writing, q.running = nil, nil, false
		return nil
	}
	q.writing, q.queue[0] = q.queue[0], nil
	q.queue = q.queue[1:]
	return q.writing
}

// deliver writes one update. A panic in a connection that is not the SDK's is
// the error of that update.
func (q *Queue) deliver(u *Update) (err error) {
	if await.Closed(q.lost) {
		return terminal.ErrConnectionLost
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("bridge: session/update panicked: %v", v)
		}
		if err != nil && await.Closed(q.lost) {
			err = terminal.ErrConnectionLost
		}
	}()
	n := u.n
	if u.card {
		if n, err = Force(n); err != nil {
			return err
		}
	}
	return q.send(context.Background(), n)
}

// Wait waits until u was written and returns the error of that, or until ctx
// ends, whose Cause it returns. Then u is taken back, unless it is one of a card
// or is being written.
func (u *Update) Wait(ctx context.Context) error {
	select {
	case <-u.done:
		return u.err
	case <-u.stream.q.lost:
		return terminal.ErrConnectionLost
	case <-ctx.Done():
		if !u.card {
			u.withdraw()
		}
		return context.Cause(ctx)
	}
}

// Within is Wait for no longer than d, with ErrUnread as the Cause.
func (u *Update) Within(d time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), d, ErrUnread)
	defer cancel()
	return u.Wait(ctx)
}

// Linger waits until u was written, but no longer than d, and leaves it queued.
func (u *Update) Linger(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-u.done:
	case <-u.stream.q.lost:
	case <-timer.C:
	}
}

// withdraw takes u back unless it was written or is being written.
func (u *Update) withdraw() {
	q := u.stream.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.queue, u); i >= 0 {
		q.queue = slices.Delete(q.queue, i, i+1)
		u.finish(ErrUnread)
	}
}

// SetContent gives an update of a tool call other content, and reports whether it
// was still queued. Content must be frozen, and embeds no terminal of the client's.
func (u *Update) SetContent(content []acp.ToolCallContent) bool {
	q := u.stream.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.Contains(q.queue, u) {
		return false
	}
	tu := *u.n.Update.ToolCallUpdate
	tu.Content, u.embeds = content, nil
	u.n.Update.ToolCallUpdate = &tu
	return true
}

// Embeds reports whether u embeds the client's terminal id, and was written or
// may still be.
func (u *Update) Embeds(id string) bool {
	q := u.stream.q
	q.mu.Lock()
	defer q.mu.Unlock()
	return !u.Failed() && slices.Contains(u.embeds, id)
}

// Unembed waits until every update that embeds the client's terminal id was
// written. When ctx ends it takes the terminal out of those that are still
// queued: after Unembed none will be written that was not being written. It
// reports whether it had to.
func (s *Stream) Unembed(ctx context.Context, id string) bool {
	for _, u := range s.pending(func(u *Update) bool { return slices.Contains(u.embeds, id) }) {
		_ = u.Wait(ctx)
	}
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := false
	for _, u := range q.queue {
		if u.stream == s && slices.Contains(u.embeds, id) {
			u.embeds = slices.DeleteFunc(slices.Clone(u.embeds), func(other string) bool { return other == id })
			tu := *u.n.Update.ToolCallUpdate
			tu.Content = slices.DeleteFunc(slices.Clone(tu.Content), func(c acp.ToolCallContent) bool {
				return c.Terminal != nil && c.Terminal.TerminalId == id
			})
			u.n.Update.ToolCallUpdate = &tu
			taken = true
		}
	}
	return taken
}

// End waits until all of the session was written, at most d, and takes back the
// rest. Nothing is written of the session afterwards, except what is being
// written. Later Puts fail.
func (s *Stream) End(d time.Duration) {
	open := s.pending(func(*Update) bool { return true })
	ctx, cancel := context.WithTimeoutCause(context.Background(), d, ErrUnread)
	defer cancel()
	for _, u := range open {
		select {
		case <-u.done:
		case <-s.q.lost:
		case <-ctx.Done():
		}
	}
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	s.ended = true
	q.queue = slices.DeleteFunc(q.queue, func(u *Update) bool {
		if u.stream == s {
			u.finish(ErrUnread)
		}
		return u.stream == s
	})
}

// pending returns the updates of the session that match and are not written.
func (s *Stream) pending(match func(*Update) bool) (open []*Update) {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.queue
	if q.writing != nil {
		all = append([]*Update{q.writing}, all...)
	}
	for _, u := range all {
		if u.stream == s && match(u) {
			open = append(open, u)
		}
	}
	return open
}
