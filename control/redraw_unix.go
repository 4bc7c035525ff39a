//go:build unix

package control

import "syscall"

// redraw asks the program in the foreground to draw its screen again.
func redraw(s session) {
	if s.info.Command.TTY && s.info.Environment != inClient {
		_ = s.Signal(syscall.SIGWINCH)
	}
}
