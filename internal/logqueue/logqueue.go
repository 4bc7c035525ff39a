// Package logqueue makes loggers that nobody waits for: their records go through
// a queue, and what does not fit is counted.
//
// The protocol must not stop because a log does. An agent's stderr is often a
// pipe whose other end reads late or never, and a handler may do anything, call
// the logging package itself included.
package logqueue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/text"
)

const (
	// Size is how many records wait for a handler at most.
	Size = 1024
	// maxValue is how many bytes of a value are kept: a record may hold what a
	// client sent.
	maxValue = 1 << 10
)

// New returns a logger whose calls do not wait for the handler of l. Records
// come to that in their order and one at a time; where some were lost, one says
// how many. Nil discards, and a logger that New made is returned as it is.
func New(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	if _, ok := l.Handler().(handler); ok || l.Handler() == slog.DiscardHandler {
		return l
	}
	return slog.New(handler{new(queue), l.Handler()})
}

// flushTimeout is how long Flush waits for a handler.
const flushTimeout = 100 * time.Millisecond

// Flush waits until the handler of a logger that New made has got every record,
// but not for long: the process is about to end, or somebody reads the log.
func Flush(l *slog.Logger) {
	h, ok := l.Handler().(handler)
	if !ok {
		return
	}
	h.q.mu.Lock()
	idle := h.q.idle
	h.q.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(flushTimeout):
	}
}

// A handler queues records for the next one.
type handler struct {
	q    *queue
	next slog.Handler
}

// Enabled reports false if the next handler panics.
func (h handler) Enabled(ctx context.Context, l slog.Level) (enabled bool) {
	defer func() { _ = recover() }()
	return h.next.Enabled(ctx, l)
}

func (h handler) Handle(_ context.Context, r slog.Record) error {
	kept := slog.NewRecord(r.Time, r.Level, head(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		kept.AddAttrs(bounded(a))
		return true
	})
	h.q.put(item{h.next, kept})
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.q, h.next.WithAttrs(attrs)}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.q, h.next.WithGroup(name)} }

// bounded returns an attribute that can wait: it is small, and nobody changes it.
func bounded(a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(head(v.String()))
	case slog.KindGroup:
		var group []slog.Attr
		for _, a := range v.Group() {
			group = append(group, bounded(a))
		}
		a.Value = slog.GroupValue(group...)
	case slog.KindAny:
		a.Value = slog.StringValue(head(fmt.Sprint(v.Any())))
	default:
		a.Value = v
	}
	return a
}

// head returns the start of a text, without the memory of the rest.
func head(s string) string {
	if len(s) <= maxValue {
		return s
	}
	return strings.Clone(text.Head(s, maxValue)) + "…"
}

// A queue holds records on their way to a handler. A goroutine of the queue
// hands them out while there are any: it ends with the last, or never, if the
// handler does not return.
type queue struct {
	mu sync.Mutex
	// guards following
	items []item
	last  slog.Handler  // of the last of them
	lost  int           // records since that
	idle  chan struct{} // not nil while the goroutine runs: closed when it ends
}

// An item is a record and its handler.
type item struct {
	next   slog.Handler
	record slog.Record
}

// put queues a record, unless there is no room for it.
func (q *queue) put(i item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Once some are lost, all are until there is room for many: one gap, not one
	// in every second record.
	if len(q.items) >= Size || q.lost > 0 && len(q.items) > Size/2 {
		q.lost++
		return
	}
	q.noteLost(i.next)
	q.items = append(q.items, i)
	q.last = i.next
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run(q.idle)
	}
}

// noteLost queues a record of those that were lost, if any were. Called with mu
// held.
func (q *queue) noteLost(next slog.Handler) {
	if q.lost > 0 {
		r := slog.NewRecord(time.Now(), slog.LevelWarn, "log records were lost: the handler is too slow", 0)
		r.AddAttrs(slog.Int("records", q.lost))
		q.items, q.lost = append(q.items, item{next, r}), 0
	}
}

// run hands out the records until there are none.
func (q *queue) run(idle chan struct{}) {
	defer close(idle)
	for {
		q.mu.Lock()
		if len(q.items) == 0 {
			q.noteLost(q.last)
		}
		if len(q.items) == 0 {
			q.items, q.idle = nil, nil
			q.mu.Unlock()
			return
		}
		i := q.items[0]
		q.items = q.items[1:]
		q.mu.Unlock()
		i.handle()
	}
}

// handle calls the handler. One that panics has lost the record.
func (i item) handle() {
	defer func() { _ = recover() }()
	if i.next.Enabled(context.Background(), i.record.Level) {
		_ = i.next.Handle(context.Background(), i.record)
	}
}
