package execenv

import (
	"errors"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// A child is a started process that is not reaped.
type child struct {
	pid   int
	group *cgroup // that it was started in; nil: none

	pidfd int // -1: none

	mu     sync.Mutex
	reaped bool // guarded by mu; pid and pidfd may be an unrelated process's then
}

// startChild starts a process, in group if that can be; child.group tells.
func startChild(path string, argv []string, attr *syscall.ProcAttr, group *cgroup) (*child, error) {
	pidfd := -1
	if offered().clonePidfd {
		attr.Sys.PidFD = &pidfd
	}
	grouped := group.enter(attr.Sys)
	if grouped {
		pid, err := syscall.ForkExec(path, argv, attr)
		attr.Sys.UseCgroupFD = false
		switch {
		case err == nil:
			return newChild(pid, pidfd, group), nil
		case !group.mayHave(err):
			return nil, err
		}
		pidfd = -1
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	if grouped {
		group.of.turnOff() // it was the group
	}
	return newChild(pid, pidfd, nil), nil
}

func newChild(pid, pidfd int, group *cgroup) *child {
	if pidfd < 0 && offered().pidfdOpen {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil { // it is not reaped, so it is the very process
			pidfd = fd
		}
	}
	return &child{pid: pid, pidfd: pidfd, group: group}
}

// pipe returns the agent's end of a pipe, and the command's: its standard input,
// or an output of it. Only the agent's is non-blocking and in the runtime's
// poller.
func pipe(input bool) (ours, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	if input {
		fds[0], fds[1] = fds[1], fds[0]
	}
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETFL, unix.O_NONBLOCK) // before NewFile
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}

// watch has exited called, once, when c has exited, before it is reaped. An exit
// that somebody else has taken is unknown.
func (l *Local) watch(c *child, exited func(terminal.Exit)) {
	wait := func() {
		exit, _ := c.exit(0) // holds a thread
		exited(exit)
	}
	if c.pidfd < 0 || !l.poller.once(c.pidfd, new(atomic.Uint64), func() {
		if exit, ok := c.exit(unix.WNOHANG); ok {
			exited(exit)
		} else {
			l.background.Go(wait)
		}
	}) {
		l.background.Go(wait)
	}
}

// exit returns how the process exited, and with WNOHANG false if it has not.
func (c *child) exit(options int) (terminal.Exit, bool) {
	var info siginfo
	err := c.waitid(&info, unix.WEXITED|unix.WNOWAIT|options)
	return info.exit(), err != nil || info.pid != 0
}

// reap takes the exited process from the kernel; its process id is free then.
func (c *child) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaped = true
	c.waitid(nil, unix.WEXITED)
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
	}
}

// signal signals the process.
func (c *child) signal(sig os.Signal) error {
	s, err := toSignal(sig)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return os.ErrProcessDone
	}
	if c.pidfd >= 0 && offered().pidfdSignal {
		return done(unix.PidfdSendSignal(c.pidfd, s, nil, 0))
	}
	return done(unix.Kill(c.pid, s))
}

func (c *child) waitid(info *siginfo, options int) error {
	idType, id := unix.P_PID, c.pid
	if c.pidfd >= 0 && offered().pidfdWait {
		idType, id = unix.P_PIDFD, c.pidfd
	}
	for {
		err := unix.Waitid(idType, id, (*unix.Siginfo)(unsafe.Pointer(info)), options, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// siginfo is a unix.Siginfo as waitid fills it in.
type siginfo struct {
	signo int32
	codes [2]int32 // si_errno and si_code, which MIPS has the other way round
	_     [is64bit]int32

	pid    int32
	uid    uint32
	status int32

	_ [128 - (6+is64bit)*4]byte
}

const is64bit = math.MaxUint >> 63

const _ = -(unsafe.Sizeof(unix.Siginfo{}) ^ unsafe.Sizeof(siginfo{})) // both have one size

// exit: the code is one of CLD_EXITED (1), CLD_KILLED (2) and CLD_DUMPED (3),
// and the errno beside it is 0.
func (s *siginfo) exit() terminal.Exit {
	switch {
	case s.pid == 0:
		return terminal.Exit{}
	case s.codes[0]|s.codes[1] == 1:
		return terminal.Exit{Code: new(int(s.status))}
	}
	return terminal.Exit{Signal: signalName(syscall.Signal(s.status))}
}
