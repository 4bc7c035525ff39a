package execenv

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// subreapers counts the Locals with LocalOptions.Subreaper: what they ask for is an
// attribute of the whole agent.
var subreapers struct {
	sync.Mutex
	count int
	was   int // before the first
}

// adopt makes the agent adopt the orphans of its processes, or ends that.
func adopt(on bool) {
	subreapers.Lock()
	defer subreapers.Unlock()
	if on {
		if subreapers.count++; subreapers.count == 1 {
			subreapers.was = subreaper()
			unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		}
	} else if subreapers.count--; subreapers.count == 0 {
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(subreapers.was), 0, 0, 0)
	}
}

func subreaper() int {
	var on int32
	if unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&on)), 0, 0, 0) != nil {
		return 0
	}
	return int(on)
}

// adopts reports whether orphans become children of the agent.
func adopts() bool { return self == 1 || subreaper() != 0 }

// mayAdopt reports whether a process is one that the orphans of the agent's
// processes are given to: an ancestor of the agent, if not the agent.
func mayAdopt(pid int) bool {
	if adopts() {
		return pid == self
	}
	for a, ok := readProc(self); ok && a.ppid != 0; a, ok = readProc(a.ppid) {
		if a.ppid == pid {
			return true
		}
	}
	return false
}

// ownUserOnly reports whether all that the agent starts stays its own user's: then
// what another user runs is none of it.
func ownUserOnly() bool {
	on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return err == nil && on == 1 && unix.Geteuid() != 0
}
