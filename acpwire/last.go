package acpwire

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

var errNoReader = errors.New("nobody reads the output")

// A lastWriter writes to the client, and knows when that is over: SDK 0.13 drops
// the error of a notification or an answer, and goes on.
//
// What comes when the input has ended is kept for settle, which writes it in one
// piece. A client on the TypeScript SDK that has closed the agent's input reads on
// only until an answer of its own fails, and so would kill the first of several
// commands only.
type lastWriter struct {
	w      io.Writer
	writes atomic.Int64
	once   sync.Once
	broken chan struct{} // closed by fail; err is valid afterwards
	err    error

	mu sync.Mutex
	// guards following
	ended bool
	kept  []byte // written since then
}

func newLastWriter(w io.Writer) *lastWriter {
	return &lastWriter{w: w, broken: make(chan struct{})}
}

func (l *lastWriter) Write(p []byte) (int, error) {
	defer l.writes.Add(1)
	if l.keep(p) {
		return len(p), nil
	}
	n, err := l.w.Write(p)
	if err != nil {
		l.fail(err)
	}
	return n, err
}

// keep keeps what is written after the end of the input.
func (l *lastWriter) keep(p []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		l.kept = append(l.kept, p...)
	}
	return l.ended
}

// last says that the input has ended.
func (l *lastWriter) last() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// fail makes the writer broken, for the first reason that there was.
func (l *lastWriter) fail(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.broken)
	})
}

// settle waits until nothing was written for a while, and writes what was kept,
// all of it bounded.
func (l *lastWriter) settle() {
	const quiet, limit = 100 * time.Millisecond, 200 * time.Millisecond
	for end, changed := time.Now().Add(limit), true; changed && time.Now().Before(end); {
		before := l.writes.Load()
		select {
		case <-time.After(quiet):
		case <-l.broken:
			return
		}
		changed = l.writes.Load() != before
	}
	l.mu.Lock()
	kept := l.kept
	l.kept = nil
	l.mu.Unlock()
	if len(kept) == 0 {
		return
	}
	written := make(chan struct{})
	go func() { // ends at the latest with the process
		defer close(written)
		_, _ = l.w.Write(kept)
	}()
	select {
	case <-written:
	case <-l.broken:
	case <-time.After(limit):
	}
}
