//go:build unix

package terminaltest

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/termbridge/termbridge/terminal"
)

var moreHandled = []os.Signal{syscall.SIGWINCH, syscall.SIGUSR1, syscall.SIGUSR2}

// winsize returns the size of the terminal that f is, and false if it is none.
func winsize(f *os.File) (terminal.Size, bool) {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return terminal.Size{}, false
	}
	return terminal.Size{Rows: int(ws.Row), Cols: int(ws.Col)}, true
}

// raise ends this process by the signal with this name.
func raise(name string) {
	sig := unix.SignalNum(name)
	signal.Reset(sig)
	syscall.Kill(os.Getpid(), sig)
	time.Sleep(time.Second) // it is on its way
}
