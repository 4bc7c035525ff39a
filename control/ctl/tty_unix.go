//go:build unix

package ctl

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/termbridge/termbridge/terminal"
)

// onTerminal calls f with the descriptor of a terminal, and reports whether it
// succeeded. It does not use Fd, which would make a pipe that somebody else holds
// blocking.
func onTerminal(f *os.File, do func(fd int) error) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var result error
	err = raw.Control(func(fd uintptr) { result = do(int(fd)) })
	return err == nil && result == nil
}

// terminalSize returns the size of the terminal that f is; false if it is none.
func terminalSize(f *os.File) (size terminal.Size, ok bool) {
	ok = onTerminal(f, func(fd int) error {
		s, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			size = terminal.Size{Rows: int(s.Row), Cols: int(s.Col)}
		}
		return err
	})
	return size, ok
}

// makeRaw hands every key of a terminal to this program as it is. Restore undoes
// that, and may be called more than once.
func makeRaw(f *os.File) (restore func(), ok bool) {
	var old unix.Termios
	ok = onTerminal(f, func(fd int) error {
		now, err := unix.IoctlGetTermios(fd, getTermios)
		if err != nil {
			return err
		}
		old = *now
		now.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		now.Oflag &^= unix.OPOST
		now.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		now.Cflag = now.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
		now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
		return unix.IoctlSetTermios(fd, setTermios, now)
	})
	return func() {
		onTerminal(f, func(fd int) error { return unix.IoctlSetTermios(fd, setTermios, &old) })
	}, ok
}

// resizes sends whenever the size of this terminal has changed, until stop.
func resizes() (changed <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	return c, func() { signal.Stop(c) }
}
