package execenv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/termbridge/termbridge/internal/lineedit"
	"golang.org/x/sys/unix"
)

// A ptmx is the agent's side of a pseudo-terminal: its master, non-blocking and
// in the runtime's poller. Nothing here calls Fd, which would end that.
type ptmx struct {
	*stream
	first *unix.Termios // the modes in the beginning
}

// leave is called when the process has exited.
func (t *ptmx) leave() {
	if a := t.absence.Load(); a != nil {
		a.stop()
	}
}

// Write is that of a file, but for one thing: when nobody holds the other side
// any more and its queue is full, the kernel says EAGAIN for ever.
func (t *ptmx) Write(b []byte) (n int, err error) {
	raw, err := t.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	for n < len(b) {
		var m int
		var fail error
		err := raw.Write(func(fd uintptr) bool {
			for {
				m, fail = unix.Write(int(fd), b[n:])
				switch {
				case errors.Is(fail, unix.EINTR):
					continue
				case errors.Is(fail, unix.EAGAIN) && hungUp(int(fd)):
					fail = unix.EIO
				case errors.Is(fail, unix.EAGAIN):
					return false
				}
				return true
			}
		})
		n += max(m, 0)
		switch {
		case n == len(b): // whatever the program does now
			return n, nil
		case t.closed.Load():
			return n, os.ErrClosed
		case err != nil:
			return n, err
		case isHangup(fail):
			return n, io.ErrClosedPipe
		case fail != nil:
			return n, &os.PathError{Op: "write", Path: t.f.Name(), Err: fail}
		}
	}
	return n, nil
}

const (
	getTermios = unix.TCGETS
	setTermios = unix.TCSETS
	maxLine    = lineedit.Max
	noKey      = 0 // _POSIX_VDISABLE
)

func foreground(fd int) (pgid int, err error) {
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPGRP)
	return int(n), err
}

// openTerminal opens a pseudo-terminal and returns both sides.
func (l *Local) openTerminal(tty TTY) (_ *ptmx, side *os.File, err error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		err = &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
		if errors.Is(err, unix.ENOSPC) {
			err = fmt.Errorf("all are in use: end some terminals, or raise the limit (sysctl kernel.pty.max): %w", err)
		}
		return nil, nil, because(ErrNoTerminal, err)
	}
	f := os.NewFile(uintptr(master), "/dev/ptmx")
	defer func() {
		if err != nil {
			f.Close()
			err = because(ErrNoTerminal, err)
		}
	}()
	if err := setSize(master, tty.Size.OrDefault()); err != nil {
		return nil, nil, fmt.Errorf("set size: %w", err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock: %w", err)
	}
	// Without input whoever waits for a key is hung up on; where that cannot be
	// seen, the process must not be able to read from the terminal at all: a pager
	// or an editor that finds no other keyboard reads its standard error, or opens
	// the terminal by its name, and would wait there for ever.
	flags := unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_RDWR
	unreadable := !tty.Input && !seesInput()
	if unreadable {
		flags = unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_WRONLY
	}
	slave, err := openPeer(master, flags)
	if err != nil {
		return nil, nil, fmt.Errorf("open the other side: %w", err)
	}
	side = os.NewFile(uintptr(slave), "pts")
	if unreadable {
		unix.Fchmod(slave, 0o200) // which root does not feel
	}
	first, err := setModes(slave)
	if err != nil {
		side.Close()
		return nil, nil, fmt.Errorf("set modes: %w", err)
	}
	if !tty.Input {
		// An end of the file: for whoever reads a line, and for whoever polls it.
		unix.Write(master, []byte{lineedit.Default.EOF})
	}
	return &ptmx{&stream{local: l, f: f, terminal: true}, first}, side, nil
}

// openPeer opens the other side without a path, which may mean another terminal
// in a mount namespace; kernels that cannot get the path.
func openPeer(master, flags int) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, uintptr(flags))
	if errno == 0 {
		return int(fd), nil
	}
	n, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return -1, errno
	}
	return unix.Open("/dev/pts/"+strconv.Itoa(int(n)), flags, 0)
}
