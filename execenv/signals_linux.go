package execenv

import (
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inheritedIgnored reports whether a signal that Go does not touch, and so does
// not know of, is ignored.
func inheritedIgnored(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
	default:
		return false
	}
	// The action is the first word of a struct sigaction, on MIPS the second.
	var action [16]uintptr
	handler, set := 0, uintptr(8)
	if strings.HasPrefix(runtime.GOARCH, "mips") {
		handler, set = 1, 16
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&action)), set, 0, 0)
	return errno == 0 && action[handler] == sigIgn
}

const sigIgn = 1 // SIG_IGN

// startedBlocked reports whether the agent was started with blocked signals.
// Each of its threads has, then.
var startedBlocked = sync.OnceValue(func() bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var mask unix.Sigset_t
	return unix.PthreadSigmask(unix.SIG_BLOCK, nil, &mask) == nil && mask != unix.Sigset_t{}
})

// unblockSignals unblocks all signals for this goroutine, and what it starts,
// until block is called.
func unblockSignals() (block func()) {
	if !startedBlocked() {
		return func() {}
	}
	runtime.LockOSThread()
	var mask unix.Sigset_t
	unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, &mask)
	return func() {
		unix.PthreadSigmask(unix.SIG_SETMASK, &mask, nil)
		runtime.UnlockOSThread()
	}
}
