package execenv

import "golang.org/x/sys/unix"

// The system calls that wait for descriptors, the older ones included.
var (
	pollCalls   = []uint64{unix.SYS_POLL, unix.SYS_PPOLL}
	selectCalls = []uint64{unix.SYS_SELECT, unix.SYS_PSELECT6}
	epollCalls  = []uint64{unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2}
)
