package acpwire

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watchReader calls gone once nobody can read any more what is written to w, if
// that is a pipe or a socket, until stop returns. It writes nothing.
func watchReader(w io.Writer, gone func()) (stop func()) {
	epoll, err := epollOf(w)
	if err != nil {
		return func() {}
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		defer epoll.Close()
		raw, err := epoll.SyscallConn()
		if err == nil {
			err = raw.Read(func(fd uintptr) bool {
				n, _ := unix.EpollWait(int(fd), make([]unix.EpollEvent, 1), 0)
				return n > 0
			})
		}
		if err == nil {
			gone()
		}
	})
	return func() {
		epoll.Close()
		watch.Wait()
	}
}

// epollOf returns an epoll instance that is readable when w is broken. The
// runtime's poller can wait for that one, but not for w itself: its descriptor
// may be blocking, which it shares with other processes.
func epollOf(w io.Writer) (*os.File, error) {
	f, ok := w.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	var addErr error
	err = conn.Control(func(w uintptr) {
		// EPOLLERR and EPOLLHUP need not be asked for.
		addErr = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, int(w), &unix.EpollEvent{})
	})
	if err := errors.Join(err, addErr, unix.SetNonblock(fd, true)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "epoll"), nil
}
