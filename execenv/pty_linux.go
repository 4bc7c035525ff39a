package execenv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// A ptmx is the agent's side of a pseudo-terminal: its master, non-blocking and
// in the runtime's poller. Nothing here calls Fd, which would end that.
type ptmx struct{ *stream }

// openTerminal opens a pseudo-terminal and returns both sides.
func openTerminal(tty TTY) (_ *ptmx, side *os.File, err error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, because(ErrNoTerminal, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err})
	}
	f := os.NewFile(uintptr(master), "/dev/ptmx")
	defer func() {
		if err != nil {
			f.Close()
			err = because(ErrNoTerminal, err)
		}
	}()
	size := tty.Size
	if size.IsZero() {
		size = terminal.DefaultSize
	}
	if err := setSize(master, size); err != nil {
		return nil, nil, fmt.Errorf("set size: %w", err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock: %w", err)
	}
	// Without input the process must not be able to read from the terminal:
	// a pager or an editor that finds no other keyboard reads its standard
	// error, and would wait there for ever.
	flags := unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_WRONLY
	if tty.Input {
		flags = unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_RDWR
	}
	slave, err := openPeer(master, flags)
	if err != nil {
		return nil, nil, fmt.Errorf("open the other side: %w", err)
	}
	side = os.NewFile(uintptr(slave), "pts")
	if err := setModes(slave); err != nil {
		side.Close()
		return nil, nil, fmt.Errorf("set modes: %w", err)
	}
	return &ptmx{&stream{f: f}}, side, nil
}

// openPeer opens the other side without a path, which may mean another terminal
// in a mount namespace; kernels that cannot get the path.
func openPeer(master, flags int) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, uintptr(flags))
	if errno == 0 {
		return int(fd), nil
	}
	if errno != unix.EINVAL && errno != unix.ENOTTY {
		return -1, errno
	}
	n, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	return unix.Open("/dev/pts/"+strconv.Itoa(int(n)), flags, 0)
}

// setModes: no CR is put before LF, which costs five sixths of the speed of
// short lines and says nothing to a reader; erasing knows UTF-8.
func setModes(slave int) error {
	t, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Oflag &^= unix.ONLCR
	t.Iflag |= unix.IUTF8
	return unix.IoctlSetTermios(slave, unix.TCSETS, t)
}

func setSize(fd int, s terminal.Size) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(s.Rows), Col: uint16(s.Cols)})
}

// control runs f with the descriptor of the master.
func (t *ptmx) control(f func(fd int) error) error {
	raw, err := t.f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

func (t *ptmx) Write(b []byte) (int, error) {
	n, err := t.f.Write(b)
	if isHangup(err) {
		err = io.ErrClosedPipe // nobody holds the other side
	}
	return n, err
}

func (t *ptmx) SetWriteDeadline(d time.Time) error { return t.f.SetWriteDeadline(d) }

func (t *ptmx) Resize(s terminal.Size) error {
	if s.Rows < 1 || s.Cols < 1 || s.Rows > 1<<16-1 || s.Cols > 1<<16-1 {
		return fmt.Errorf("execenv: size %d × %d: %w", s.Rows, s.Cols, syscall.EINVAL)
	}
	return t.control(func(fd int) error { return setSize(fd, s) })
}

// CanonicalLimit: of a longer line the kernel drops the rest, and says nothing.
func (t *ptmx) CanonicalLimit() (limit int) {
	t.control(func(fd int) error {
		if modes, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil && modes.Lflag&unix.ICANON != 0 {
			limit = 4095
		}
		return nil
	})
	return limit
}

// foreground returns the process group in the foreground, 0 if there is none.
func (t *ptmx) foreground() (pgid int) {
	t.control(func(fd int) error {
		n, err := unix.IoctlGetUint32(fd, unix.TIOCGPGRP)
		pgid = int(n)
		return err
	})
	return pgid
}

// signal signals the processes in the foreground, and reports whether there
// are any.
func (t *ptmx) signal(sig os.Signal) (done bool, err error) {
	s, err := toSignal(sig)
	if err != nil {
		return true, err
	}
	pgid := t.foreground()
	if pgid <= 1 {
		return false, nil
	}
	switch s {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP:
		// The kernel finds the group itself, so it cannot be a stranger's by now.
		err := t.control(func(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCSIG, int(s)) })
		if err == nil {
			return true, nil
		}
	}
	err = signalGroup(pgid, s)
	return !errors.Is(err, os.ErrProcessDone), err
}
