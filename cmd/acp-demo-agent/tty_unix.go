//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth returns how many columns the terminal has that f is; false if it
// is none. It does not use Fd, which would make a pipe that somebody else holds
// blocking.
func terminalWidth(f *os.File) (columns int, ok bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
		if ok = err == nil; ok {
			columns = int(size.Col)
		}
	})
	return columns, err == nil && ok
}
