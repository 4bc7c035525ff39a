//go:build !unix

package launcher

import (
	"strings"
	"syscall"

	"github.com/termbridge/termbridge/internal/signals"
)

// signalWord returns what kill calls a signal of this machine, "" if it is none.
func signalWord(sig syscall.Signal) string {
	return strings.TrimPrefix(signals.Name(int(sig)), "SIG")
}

const windowChanged = syscall.Signal(28)
