package execenv

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// WriteTo writes the output to w until its end, as Read would return it. It
// holds a buffer only while there is something to read, so that an idle output
// costs no memory.
func (s *stream) WriteTo(w io.Writer) (written int64, err error) {
	s.letGo()
	s.reading.Lock()
	defer s.reading.Unlock()
	written, err = s.copy(w, nil)
	if err == io.EOF {
		err = nil
	}
	return written, err
}

// copy writes the output to w until an error, which is io.EOF at its end. While
// there is nothing to read it waits, until stop, if that is not nil, returns true.
// Called with reading held.
func (s *stream) copy(w io.Writer, stop func() bool) (written int64, err error) {
	r, err := s.reader()
	if err != nil {
		return 0, err
	}
	r.stop = stop
	defer r.drop()
	for {
		p, err := r.next()
		if err != nil {
			return written, err
		}
		n, err := w.Write(p)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
}

// A reader reads a stream piece by piece, for who holds the stream's lock.
type reader struct {
	*stream
	raw  syscall.RawConn
	once func(fd uintptr) bool // the method, which would be allocated at each use
	stop func() bool           // of copy

	buf   *[]byte // nil while there is nothing to read
	n     int     // of the last read
	err   error   // of the last read
	burst int     // bytes since there was nothing to read
	wide  bool
}

// A terminal rarely has more to read than fits into the small one, and a pipe
// holds the large one.
var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, 8<<10); return &b }}
	largeBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}
)

// widePipe is the size of a pipe that was once full.
const widePipe = 256 << 10

var errIdle = errors.New("nothing to read")

// reader returns the stream's reader. Called with reading held.
func (s *stream) reader() (*reader, error) {
	if s.r == nil {
		raw, err := s.f.SyscallConn()
		if err != nil {
			return nil, err
		}
		s.r = &reader{stream: s, raw: raw}
		s.r.once = s.r.read
	}
	return s.r, nil
}

// next returns a piece, which is valid until the next; or, if stop returned true,
// errIdle.
func (r *reader) next() ([]byte, error) {
	if r.closed.Load() {
		return nil, os.ErrClosed
	}
	r.n, r.err = 0, nil
	err := r.raw.Read(r.once)
	switch {
	case r.n > 0:
		return (*r.buf)[:r.n], nil
	case r.closed.Load():
		return nil, os.ErrClosed
	case err != nil:
		return nil, err
	case r.err == nil, isEnd(r.err):
		r.ended.Store(true)
		return nil, io.EOF
	case errors.Is(r.err, unix.EAGAIN):
		return nil, errIdle
	}
	return nil, &os.PathError{Op: "read", Path: r.f.Name(), Err: r.err}
}

// read reads once, and returns false to wait.
func (r *reader) read(fd uintptr) bool {
	if r.buf == nil {
		r.buf = r.buffers().Get().(*[]byte)
	}
	for {
		r.n, r.err = unix.Read(int(fd), *r.buf)
		if !errors.Is(r.err, unix.EINTR) {
			break
		}
	}
	if errors.Is(r.err, unix.EAGAIN) {
		r.drop()
		stop := r.stop != nil && r.stop()
		r.burst = 0
		return stop
	}
	r.burst += max(r.n, 0)
	if r.full() && !r.wide && !r.terminal {
		// A flood: with a larger pipe the two sides wait for each other less. It
		// may be denied to users with many pipes.
		r.wide = true
		unix.FcntlInt(fd, unix.F_SETPIPE_SZ, widePipe)
	}
	return true
}

// full reports whether there may be more than was read.
func (r *reader) full() bool { return r.buf != nil && r.n == len(*r.buf) }

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

// A delivery is what Deliver was asked for. At any time one of three owns it, who
// alone reads: the poller, which waits for something to read, and loses it to who
// claims it; the goroutine of pump; or the caller of Pull.
type delivery struct {
	w      io.Writer
	ended  func(error)
	ready  func()        // the stream's ready
	key    atomic.Uint64 // in the poller, while that owns it
	wanted atomic.Bool   // somebody has tried to Pull

	mu sync.Mutex
	// guards following
	waiting     bool // in Pull
	interrupted bool // this Pull, or the next, is to return
}

// Deliver makes a stream a [Deliverer]. The goroutine that reads is started once
// there is something to read.
func (s *stream) Deliver(w io.Writer, ended func(error)) {
	d := &delivery{w: w, ended: ended, ready: s.ready}
	s.delivery.Store(d)
	s.await(d)
}

// await makes the poller the owner.
func (s *stream) await(d *delivery) {
	ok := false
	s.control(func(fd int) { ok = s.local.poller.once(fd, &d.key, d.ready) })
	switch {
	case !ok:
		s.pump(d, nil)
	case s.closed.Load():
		s.check() // Close may have come before the key
	}
}

// claim takes the delivery from the poller, and returns nil if that is not its
// owner.
func (s *stream) claim() *delivery {
	d := s.delivery.Load()
	if d == nil || s.local.poller.drop(d.key.Load()) == nil {
		return nil
	}
	return d
}

// check looks for the end of the output, if nobody reads it.
func (s *stream) check() {
	if s.claim() != nil {
		s.ready()
	}
}

// ready is called, by the poller or by who has claimed the delivery, when there is
// something to read, or nothing any more.
func (s *stream) ready() {
	d := s.delivery.Load()
	if s.closed.Load() {
		d.ended(os.ErrClosed)
		return
	}
	var buf [256]byte
	n, err := 0, os.ErrClosed
	s.control(func(fd int) { n, err = unix.Read(fd, buf[:]) })
	if n == 0 && err == nil || isHangup(err) {
		s.ended.Store(true)
		d.ended(nil)
		return
	}
	s.control(s.local.poller.leave)
	s.pump(d, bytes.Clone(buf[:max(n, 0)]))
}

// pump delivers what was read already, and then the rest in a goroutine. If that
// finds nothing to read, and it was no flood, it gives the delivery back to the
// poller for those who would Pull. The goroutine ends with the stream, and so with
// Wait at the latest: if the Local's Close joined it, a stranger who holds the
// output would keep Close from its caller, who is about to Wait.
func (s *stream) pump(d *delivery, first []byte) {
	go func() {
		var err error
		if len(first) > 0 {
			_, err = d.w.Write(first)
		}
		if err == nil {
			s.reading.Lock()
			_, err = s.copy(d.w, func() bool { return s.r.burst < floodBurst && d.wanted.Swap(false) })
			s.reading.Unlock()
		}
		s.release(d, err)
	}()
}

// floodBurst is how many bytes make a flood, if they come without a pause.
const floodBurst = 4 << 10

// release gives the delivery back after err, which is nil or errIdle if it goes on.
func (s *stream) release(d *delivery, err error) {
	switch {
	case err == nil, errors.Is(err, errIdle), errors.Is(err, os.ErrDeadlineExceeded):
		s.await(d)
	case errors.Is(err, io.EOF):
		d.ended(nil)
	default:
		d.ended(err)
	}
}

// Pull makes a stream a [Puller].
func (s *stream) Pull() bool {
	d := s.claim()
	if d == nil {
		if d = s.delivery.Load(); d != nil {
			d.wanted.Store(true)
		}
		return false
	}
	s.control(s.local.poller.leave)
	full, err := s.pull(d)
	if full {
		s.pump(d, nil)
	} else {
		s.release(d, err)
	}
	return true
}

// pull delivers one piece, for which it waits until Interrupt, and reports whether
// there may be more.
func (s *stream) pull(d *delivery) (full bool, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	r, err := s.reader()
	if err != nil {
		return false, err
	}
	r.stop = nil
	defer r.drop()

	d.mu.Lock()
	d.waiting = !d.interrupted
	wait := d.waiting
	d.mu.Unlock()
	var p []byte
	err = errIdle
	if wait {
		p, err = r.next()
	}
	d.mu.Lock()
	if d.waiting && d.interrupted {
		s.f.SetReadDeadline(time.Time{})
	}
	d.waiting = false
	d.mu.Unlock()
	if err == nil {
		_, err = d.w.Write(p)
	}
	d.mu.Lock()
	d.interrupted = false // whatever it was for, Pull returns
	d.mu.Unlock()
	return err == nil && r.full(), err
}

// Interrupt is that of a [Puller].
func (s *stream) Interrupt() {
	d := s.delivery.Load()
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.interrupted = true
	if d.waiting {
		s.f.SetReadDeadline(time.Unix(1, 0))
	}
}

func (s *stream) control(f func(fd int)) {
	if raw, err := s.f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
