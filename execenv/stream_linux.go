package execenv

import (
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

// WriteTo writes the output to w until its end, as Read would return it. It
// holds a buffer only while there is something to read, so that an idle output
// costs no memory.
func (s *stream) WriteTo(w io.Writer) (written int64, err error) {
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
