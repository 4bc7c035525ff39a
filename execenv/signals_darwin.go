package execenv

import "syscall"

// inheritedIgnored is not known.
func inheritedIgnored(syscall.Signal) bool { return false }

func unblockSignals() (block func()) { return func() {} }
