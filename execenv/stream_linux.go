package execenv

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// WriteTo writes the output to w until its end, as Read would return it. It
// holds a buffer only while there is something to read, so that an idle output
// costs no memory.
func (s *stream) WriteTo(w io.Writer) (written int64, err error) {
	s.closeChild()
	return s.copy(w)
}

func (s *stream) copy(w io.Writer) (written int64, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	raw, err := s.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	r := reader{stream: s}
	once := r.read // here, since each use would allocate it
	defer r.drop()
	for {
		switch p, err := r.next(raw, once); err {
		case nil:
			n, err := w.Write(p)
			written += int64(n)
			s.inHand.Store(false)
			if err != nil {
				return written, err
			}
		case io.EOF:
			return written, nil
		default:
			return written, err
		}
	}
}

// A reader reads a stream piece by piece. Its caller holds the stream's lock.
type reader struct {
	*stream
	buf  *[]byte // nil while there is nothing to read
	n    int     // of the last read
	err  error   // of the last read
	wide bool
}

// A terminal rarely has more to read than fits into the small one, and a pipe
// holds the large one.
var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, 8<<10); return &b }}
	largeBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}
)

// widePipe is the size of a pipe that was once full.
const widePipe = 256 << 10

// next returns a piece, which is valid until the next. Once is r.read.
func (r *reader) next(raw syscall.RawConn, once func(uintptr) bool) ([]byte, error) {
	if r.closed.Load() {
		return nil, os.ErrClosed
	}
	r.n, r.err = 0, nil
	err := raw.Read(once)
	switch {
	case r.n > 0:
		r.note()
		return (*r.buf)[:r.n], nil
	case r.closed.Load():
		return nil, os.ErrClosed
	case err != nil:
		return nil, err
	case r.err == nil, isEnd(r.err):
		r.ended.Store(true)
		return nil, io.EOF
	}
	return nil, &os.PathError{Op: "read", Path: r.f.Name(), Err: r.err}
}

// read reads once, and returns false to wait.
func (r *reader) read(fd uintptr) bool {
	if r.buf == nil {
		r.buf = r.buffers().Get().(*[]byte)
	}
	r.inHand.Store(true)
	for {
		r.n, r.err = unix.Read(int(fd), *r.buf)
		if !errors.Is(r.err, unix.EINTR) {
			break
		}
	}
	if errors.Is(r.err, unix.EAGAIN) {
		r.inHand.Store(false)
		r.drop()
		return false
	}
	if r.n == len(*r.buf) && !r.wide && !r.terminal {
		// A flood: with a larger pipe the two sides wait for each other less. It
		// may be denied to users with many pipes.
		r.wide = true
		unix.FcntlInt(fd, unix.F_SETPIPE_SZ, widePipe)
	}
	return true
}

func (r *reader) drop() {
	if r.buf != nil {
		r.buffers().Put(r.buf)
		r.buf = nil
	}
}

func (r *reader) buffers() *sync.Pool {
	if r.terminal {
		return &smallBuffers
	}
	return &largeBuffers
}

// A delivery is what Deliver was asked for, before the first output.
type delivery struct {
	w     io.Writer
	ended func(error)
	key   atomic.Uint64 // in the poller
}

// Deliver writes the output to w until its end, and then calls ended with what a
// Read would return there: nil for io.EOF, and os.ErrClosed after Close. It is
// called once, after Start, and returns at once; w and ended are called from any
// goroutine, one at a time. Ended must not block. Before the first output the
// poller waits for it, then a goroutine reads.
func (s *stream) Deliver(w io.Writer, ended func(error)) {
	d := &delivery{w: w, ended: ended}
	s.delivery.Store(d)
	ok := false
	s.control(func(fd int) { ok = s.local.poller.once(fd, &d.key, s.ready) })
	switch {
	case !ok:
		s.pump(d, nil)
	case s.closed.Load():
		s.check() // Close may have come before the key
	}
}

// check looks for the end of the output, if the poller waits for its first.
func (s *stream) check() {
	if d := s.delivery.Load(); d != nil && s.local.poller.drop(d.key.Load()) != nil {
		s.ready()
	}
}

// ready is called when there is something to read, or nothing any more.
func (s *stream) ready() {
	d := s.delivery.Load()
	if s.closed.Load() {
		d.ended(os.ErrClosed)
		return
	}
	var buf [256]byte
	n, err := 0, os.ErrClosed
	s.inHand.Store(true)
	s.control(func(fd int) { n, err = unix.Read(fd, buf[:]) })
	if n == 0 && err == nil || isHangup(err) {
		s.ended.Store(true)
		d.ended(nil)
		return
	}
	s.note()
	s.control(s.local.poller.leave)
	s.pump(d, bytes.Clone(buf[:max(n, 0)]))
}

// pending reports whether there is output that the caller has not got.
func (s *stream) pending() (is bool) {
	s.control(func(fd int) { is = polls(fd, unix.POLLIN) })
	return is || s.inHand.Load() // in this order: a read has it in hand before it takes it
}

// pump delivers what was read already, and then the rest, in a goroutine. It
// ends with the stream, and so with Wait at the latest: if the Local's Close
// joined it, an unrelated process that holds the output would keep Close from
// its caller, who is about to Wait.
func (s *stream) pump(d *delivery, first []byte) {
	go func() {
		var err error
		if len(first) > 0 {
			_, err = d.w.Write(first)
		}
		s.inHand.Store(false)
		if err == nil {
			_, err = s.copy(d.w) // the process's end is held until its exit
		}
		d.ended(err)
	}()
}

func (s *stream) control(f func(fd int)) {
	if raw, err := s.f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
