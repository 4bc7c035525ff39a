package execenv

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A terminal rarely has more to read than fits into the small one, and a pipe
// holds the large one.
var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, 8<<10); return &b }}
	largeBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}
)

// widePipe is the size of a pipe that was once full.
const widePipe = 256 << 10

// Deliver is WriteTo in a goroutine of the Local's own, which is started only
// once there is something to read. It makes a stream a [Deliverer].
func (s *stream) Deliver(w io.Writer, ended func(error)) {
	var key uint64
	s.control(func(fd int) {
		key = s.local.poller.once(fd, func() { s.ready(w, ended) })
		s.key.Store(key)
	})
	switch {
	case key == 0:
		s.pump(nil, w, ended)
	case s.closed.Load():
		s.check() // Close may have come before the key
	}
}

// ready is called when there is something to read, or nothing any more, and when
// that is to be looked at.
func (s *stream) ready(w io.Writer, ended func(error)) {
	if s.closed.Load() {
		ended(os.ErrClosed)
		return
	}
	var buf [256]byte
	n, err := 0, error(nil)
	s.control(func(fd int) { n, err = unix.Read(fd, buf[:]) })
	if n == 0 && err == nil || isHangup(err) {
		s.ended.Store(true)
		ended(nil)
		return
	}
	s.control(s.local.poller.leave)
	s.pump(bytes.Clone(buf[:max(n, 0)]), w, ended)
}

// pump delivers what was read already, and the rest.
func (s *stream) pump(first []byte, w io.Writer, ended func(error)) {
	s.local.background.Go(func() {
		var err error
		if len(first) > 0 {
			_, err = w.Write(first)
		}
		if err == nil {
			_, err = s.writeTo(w)
		}
		ended(err)
	})
}

// check calls ready, if Deliver waits for it.
func (s *stream) check() {
	if key := s.key.Swap(0); key != 0 {
		if ready := s.local.poller.drop(key); ready != nil {
			ready()
		}
	}
}

func (s *stream) control(f func(fd int)) {
	if raw, err := s.f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// WriteTo writes the output to w until its end, as Read would return it. It
// holds a buffer only while there is something to read, so that an idle output
// costs no memory.
func (s *stream) WriteTo(w io.Writer) (written int64, err error) {
	s.letGo()
	return s.writeTo(w)
}

func (s *stream) writeTo(w io.Writer) (written int64, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	raw, err := s.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	buffers := &largeBuffers
	if s.terminal {
		buffers = &smallBuffers
	}
	var (
		buf  *[]byte
		n    int
		fail error
		wide bool
	)
	drop := func() {
		if buf != nil {
			buffers.Put(buf)
			buf = nil
		}
	}
	defer drop()
	read := func(fd uintptr) bool {
		if buf == nil {
			buf = buffers.Get().(*[]byte)
		}
		for {
			n, fail = unix.Read(int(fd), *buf)
			if n == len(*buf) && !wide && !s.terminal {
				// A flood: with a larger pipe the two sides wait for each
				// other less. It may be denied to users with many pipes.
				wide = true
				unix.FcntlInt(fd, unix.F_SETPIPE_SZ, widePipe)
			}
			switch {
			case errors.Is(fail, unix.EINTR):
				continue
			case errors.Is(fail, unix.EAGAIN):
				drop()
				return false
			}
			return true
		}
	}
	for !s.closed.Load() {
		n = 0
		err := raw.Read(read)
		switch {
		case s.closed.Load():
		case err != nil:
			return written, err
		case n == 0 && fail == nil, isEnd(fail):
			s.ended.Store(true)
			return written, nil
		case fail != nil:
			return written, &os.PathError{Op: "read", Path: s.f.Name(), Err: fail}
		}
		if n > 0 {
			m, err := w.Write((*buf)[:n])
			written += int64(m)
			if err != nil {
				return written, err
			}
		}
	}
	return written, os.ErrClosed
}
