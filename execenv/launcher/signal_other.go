//go:build !unix

package launcher

import "syscall"

// signalWord returns what kill calls a signal of this machine, "" if it is none.
func signalWord(sig syscall.Signal) string {
	if n := int(sig); n > 0 && n < len(linuxSignals) {
		return linuxSignals[n]
	}
	return ""
}

const windowChanged = syscall.Signal(28)
