//go:build linux || darwin

package execenv

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/internal/lineedit"
	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// setModes: no CR is put before LF, which costs five sixths of the speed of
// short lines and says nothing to a reader; erasing knows UTF-8. It returns the modes.
func setModes(slave int) (*unix.Termios, error) {
	t, err := unix.IoctlGetTermios(slave, getTermios)
	if err != nil {
		return nil, err
	}
	t.Oflag &^= unix.ONLCR
	t.Iflag |= unix.IUTF8
	return t, unix.IoctlSetTermios(slave, setTermios, t)
}

// openNull opens /dev/null, for a process.
func openNull() (*os.File, error) {
	fd, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	return os.NewFile(uintptr(fd), os.DevNull), nil // not by os.Open, which tries to poll it
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

func (t *ptmx) SetWriteDeadline(d time.Time) error { return t.f.SetWriteDeadline(d) }

func (t *ptmx) Resize(s terminal.Size) error {
	if s.Rows < 1 || s.Cols < 1 || s.Rows > 1<<16-1 || s.Cols > 1<<16-1 {
		return fmt.Errorf("execenv: size %d × %d: %w", s.Rows, s.Cols, syscall.EINVAL)
	}
	return t.control(func(fd int) error { return setSize(fd, s) })
}

// CanonicalLimit: of a longer line the kernel drops the rest, and says nothing.
func (t *ptmx) CanonicalLimit() int {
	limit, _ := t.LineMode()
	return limit
}

// LineMode returns CanonicalLimit, and the keys that edit a line now.
func (t *ptmx) LineMode() (limit int, keys lineedit.Modes) {
	t.control(func(fd int) error {
		modes, err := unix.IoctlGetTermios(fd, getTermios)
		if err == nil && modes.Lflag&unix.ICANON != 0 {
			limit, keys = maxLine, lineKeys(modes)
		}
		return err
	})
	return limit, keys
}

func lineKeys(t *unix.Termios) (m lineedit.Modes) {
	key := func(n int) byte {
		if t.Cc[n] == noKey {
			return 0
		}
		return t.Cc[n]
	}
	m.Erase, m.Kill, m.EOF, m.EOL = key(unix.VERASE), key(unix.VKILL), key(unix.VEOF), key(unix.VEOL)
	if t.Lflag&unix.IEXTEN != 0 {
		m.EraseWord, m.Literal, m.EOL2 = key(unix.VWERASE), key(unix.VLNEXT), key(unix.VEOL2)
		if t.Lflag&unix.ECHO != 0 {
			m.Reprint = key(unix.VREPRINT)
		}
	}
	if t.Lflag&unix.ISIG != 0 {
		m.Interrupt, m.Quit, m.Suspend = key(unix.VINTR), key(unix.VQUIT), key(unix.VSUSP)
	}
	if t.Iflag&unix.IXON != 0 {
		m.Start, m.Stop = key(unix.VSTART), key(unix.VSTOP)
	}
	switch {
	case t.Iflag&unix.IGNCR != 0:
	case t.Iflag&unix.ICRNL != 0:
		m.CR = '\n'
	default:
		m.CR = '\r'
	}
	m.NoFlush = t.Lflag&unix.NOFLSH != 0
	return m
}

// signal signals the processes in the foreground, and reports whether there
// are any.
func (t *ptmx) signal(sig os.Signal) (done bool, err error) {
	s, err := toSignal(sig)
	if err != nil {
		return true, err
	}
	pgid := 0
	t.control(func(fd int) (err error) {
		pgid, err = foreground(fd)
		return err
	})
	if pgid <= 1 {
		return false, nil
	}
	switch s {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP:
		// The kernel finds the group itself, so it cannot be an unrelated process's by now.
		err := t.control(func(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCSIG, int(s)) })
		if err == nil {
			return true, nil
		}
	}
	err = signalGroup(pgid, s)
	return !errors.Is(err, os.ErrProcessDone), err
}
