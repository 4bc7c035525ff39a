package execenv

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/termbridge/termbridge/internal/limits"
	"golang.org/x/sys/unix"
)

// A ptmx is the agent's side of a pseudo-terminal. The kernel throws away what
// was written but not read when the last descriptor of the other side closes,
// so one is held until the process has exited and all was read. The master is
// blocking, since kqueue does not work for it: a terminal holds a thread while
// it is read, SetWriteDeadline returns os.ErrNoDeadline, and a blocked Read
// ends with the processes that hold the other side.
type ptmx struct {
	*stream
	side *os.File

	closeSide sync.Once
}

// leave is called when the process has exited.
func (t *ptmx) leave() {
	limit := time.Now().Add(limits.DrainLimit)
	for time.Now().Before(limit) && !t.closed.Load() {
		unread := 0
		if raw, err := t.side.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { unread, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
		}
		if unread == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.closeSide.Do(func() { t.side.Close() })
}

// watch does nothing: who waits is not to be seen, and without input the terminal
// cannot be read.
func (t *ptmx) watch(*session) {}

// An absence is known on Linux only.
type absence struct{}

func (*absence) wake() {}

func (t *ptmx) Close() error {
	t.closeSide.Do(func() { t.side.Close() })
	return t.stream.Close()
}

func (t *ptmx) Write(b []byte) (int, error) {
	n, err := t.f.Write(b)
	if isHangup(err) {
		err = io.ErrClosedPipe // nobody holds the other side
	}
	return n, err
}

const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
	maxLine    = 1023 // MAX_CANON, less the end of the line
	noKey      = 0xff // _POSIX_VDISABLE
)

func foreground(fd int) (pgid int, err error) { return unix.IoctlGetInt(fd, unix.TIOCGPGRP) }

// openTerminal opens a pseudo-terminal and returns both sides.
func (l *Local) openTerminal(tty TTY) (*ptmx, *os.File, error) {
	master, held, err := pty.Open()
	if err != nil {
		return nil, nil, because(ErrNoTerminal, err)
	}
	t := &ptmx{stream: &stream{local: l, f: master, terminal: true}, side: held}
	flag := os.O_WRONLY // without input nothing can wait for it on the terminal
	if tty.Input {
		flag = os.O_RDWR
	}
	side, err := os.OpenFile(held.Name(), flag|syscall.O_NOCTTY, 0)
	if err == nil {
		_, err = setModes(int(held.Fd()))
	}
	if err == nil {
		err = t.Resize(tty.Size.OrDefault())
	}
	if err != nil {
		if side != nil {
			side.Close()
		}
		t.Close()
		return nil, nil, because(ErrNoTerminal, err)
	}
	return t, side, nil
}
