package execenv

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A stream is the agent's end of an output: of a pipe or of a terminal.
//
// The agent holds the process's end too, until somebody reads or the process has
// exited: to learn of the end of the output just before the exit would take the
// processor from the exit.
type stream struct {
	local    *Local
	f        *os.File
	theirs   *os.File // the process's end
	terminal bool

	ended    atomic.Bool // all was read, and nobody holds the other end
	closed   atomic.Bool // for the caller
	delivery atomic.Pointer[delivery]

	inHand  atomic.Bool             // what was read is not with the caller yet
	absence atomic.Pointer[absence] // of a terminal without input

	holding atomic.Bool // theirs is open, and only held
	free    atomic.Bool // closeChild was called

	reading sync.Mutex // held by the caller's Read; above no other lock
}

// hold is called when the process has started, and has an end of its own.
func (s *stream) hold() {
	s.holding.Store(true)
	if s.free.Load() {
		s.closeChild()
	}
}

// closeChild closes the process's end, now or as soon as the process has started.
func (s *stream) closeChild() {
	s.free.Store(true)
	if s.holding.Swap(false) {
		s.theirs.Close()
	}
}

func (s *stream) Read(b []byte) (int, error) {
	s.closeChild()
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.closed.Load() {
		return 0, os.ErrClosed
	}
	n, err := s.f.Read(b)
	switch {
	case err == nil:
		s.note()
		return n, nil
	case s.closed.Load():
		return n, os.ErrClosed
	case isEnd(err):
		s.ended.Store(true)
		return n, io.EOF
	}
	return n, err
}

// note notes that there was output.
func (s *stream) note() {
	if a := s.absence.Load(); a != nil {
		a.wake()
	}
}

// held reports whether a process holds the other end. What is still to be read
// does not count.
func (s *stream) held() (held bool) {
	if s.ended.Load() {
		return false
	}
	if raw, err := s.f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { held = !hungUp(int(fd)) })
	}
	return held // false if it is closed: then nobody has to know
}

// Close ends a blocked Read.
func (s *stream) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.closeChild()
	s.check()
	return s.f.Close()
}

// takeOver takes the stream from the caller: Close without closing the file, if
// somebody holds the other end. It reports whether the file is still open.
func (s *stream) takeOver() bool {
	held := s.held()
	if s.closed.Swap(true) {
		return false
	}
	s.check()
	if !held || s.f.SetReadDeadline(time.Unix(1, 0)) != nil {
		s.f.Close()
		return false
	}
	s.reading.Lock() // the caller's Read is out
	defer s.reading.Unlock()
	return s.f.SetReadDeadline(time.Time{}) == nil
}

// abandon closes an output that nobody will read any more. If a process that
// outlived its starter still holds the other end, a closed pipe or terminal
// would kill it at its next word; so what it writes is read to nowhere.
func (l *Local) abandon(s *stream) {
	if s.takeOver() {
		l.drain(s)
	}
}

// drain reads an output to nowhere, until its end or that of the Local.
func (l *Local) drain(s *stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		s.f.Close()
		return
	}
	l.drained[s] = struct{}{}
	l.background.Go(func() {
		io.Copy(io.Discard, s.f)
		s.f.Close()
		l.mu.Lock()
		delete(l.drained, s)
		l.mu.Unlock()
	})
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || isHangup(err) }
