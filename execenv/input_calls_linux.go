//go:build !amd64

package execenv

import "golang.org/x/sys/unix"

// The system calls that wait for descriptors, on machines that never had the
// older ones. On others those are not recognised.
var (
	pollCalls   = []uint64{unix.SYS_PPOLL}
	selectCalls = []uint64{unix.SYS_PSELECT6}
	epollCalls  = []uint64{unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2}
)
