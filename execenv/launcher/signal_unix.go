//go:build unix

package launcher

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalWord returns what kill calls a signal of this machine, "" if it is none.
func signalWord(sig syscall.Signal) string { return strings.TrimPrefix(unix.SignalName(sig), "SIG") }

const windowChanged = syscall.SIGWINCH
