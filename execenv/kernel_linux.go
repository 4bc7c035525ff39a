package execenv

import (
	"errors"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A kernel says what this one has of what is not old enough to be everywhere, or
// what the system call filter of a container leaves of it. Each is tried once, as
// package os does, and none is a condition.
type kernel struct {
	clonePidfd  bool // clone returns a pidfd (Linux 5.2)
	pidfdOpen   bool // pidfd_open (5.3)
	pidfdWait   bool // waitid takes one (5.4)
	pidfdSignal bool // pidfd_send_signal (5.1)
}

var triedKernel atomic.Pointer[kernel]

// offered returns what the kernel offers.
func offered() *kernel {
	if k := triedKernel.Load(); k != nil {
		return k
	}
	k, err := tryKernel()
	if err == nil {
		triedKernel.Store(k)
	}
	return k
}

// tryKernel returns an error if that could not be found out, for want of
// descriptors.
func tryKernel() (*kernel, error) {
	k := &kernel{}
	fd, err := unix.PidfdOpen(self, 0)
	if _, short := shortages[errnoOf(err)]; short {
		return k, err
	}
	if k.pidfdOpen = err == nil; !k.pidfdOpen {
		return k, nil // the pidfd of a clone would be of little use
	}
	defer unix.Close(fd)
	err = unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG, nil)
	k.pidfdWait = errors.Is(err, unix.ECHILD) // nobody is its own child
	k.pidfdSignal = unix.PidfdSendSignal(fd, 0, nil, 0) == nil
	// To try clone takes a process. Package os has done it, and gives out handles
	// if that and all of the above works.
	if p, err := os.FindProcess(self); err == nil {
		k.clonePidfd = p.WithHandle(func(uintptr) {}) == nil
		p.Release()
	}
	return k, nil
}

// keepToOurselves marks the descriptors that the agent itself inherited, or
// that careless code opened, so that no process gets them. Go opens all of its
// own like that.
func keepToOurselves() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	// Before Linux 5.11.
	if dir, err := os.Open("/proc/self/fd"); err == nil {
		names, err := dir.Readdirnames(-1)
		dir.Close()
		if err == nil && len(names) > 0 {
			for _, name := range names {
				if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
					keepFromExec(fd)
				}
			}
			return
		}
	}
	var limit unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	// What was inherited may be over a limit that was lowered since.
	keepInherited.Do(func() { keepAllFromExec(min(limit.Max, 1<<20)) })
	keepAllFromExec(min(limit.Cur, 1<<16))
}

var keepInherited sync.Once

func keepAllFromExec(limit uint64) {
	for fd := 3; fd < int(limit); fd++ {
		keepFromExec(fd)
	}
}

func keepFromExec(fd int) { unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC) }
