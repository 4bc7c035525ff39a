package execenv

import (
	"errors"
	"math"
	"os"
	"syscall"
	"unsafe"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// A child is a started process that is not reaped. Its pidfd sits in the
// runtime's poller, so that waiting for it costs a goroutine but no thread.
type child struct {
	pid   int
	pidfd *os.File // nil where the kernel has none: wait then holds a thread
	group *cgroup  // that it was started in; nil: none
}

// startChild starts a process, in group if that can be; child.group tells.
func startChild(path string, argv []string, attr *syscall.ProcAttr, group *cgroup) (*child, error) {
	pidfd := -1
	attr.Sys.PidFD = &pidfd
	grouped := group.enter(attr.Sys)
	if grouped {
		pid, err := syscall.ForkExec(path, argv, attr)
		attr.Sys.UseCgroupFD = false
		switch {
		case err == nil:
			c := newChild(pid, pidfd)
			c.group = group
			return c, nil
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
	return newChild(pid, pidfd), nil
}

func newChild(pid, pidfd int) *child {
	c := &child{pid: pid}
	if pidfd < 0 {
		return c
	}
	unix.SetNonblock(pidfd, true) // before NewFile, which then uses the poller
	c.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	return c
}

// wait returns once the process has exited, and does not reap it. An exit that
// somebody else has taken is unknown.
func (c *child) wait() terminal.Exit {
	var info siginfo
	if c.pidfd == nil {
		waitid(unix.P_PID, c.pid, &info, unix.WEXITED|unix.WNOWAIT)
		return info.exit()
	}
	raw, err := c.pidfd.SyscallConn()
	if err != nil {
		return terminal.Exit{}
	}
	raw.Read(func(fd uintptr) bool {
		err := waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG)
		return err != nil || info.pid != 0
	})
	return info.exit()
}

// reap takes the exited process from the kernel; its process id is free then.
func (c *child) reap() {
	if c.pidfd == nil {
		waitid(unix.P_PID, c.pid, nil, unix.WEXITED)
		return
	}
	if raw, err := c.pidfd.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED) })
	}
	c.pidfd.Close()
}

// signal signals the process. Without pidfds the caller must know that it is
// not reaped.
func (c *child) signal(sig os.Signal) error {
	s, err := toSignal(sig)
	if err != nil {
		return err
	}
	if c.pidfd == nil {
		err = unix.Kill(c.pid, s)
	} else if raw, e := c.pidfd.SyscallConn(); e != nil {
		return os.ErrProcessDone
	} else if e := raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), s, nil, 0) }); e != nil {
		return os.ErrProcessDone // reaped
	}
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func waitid(idType, id int, info *siginfo, options int) error {
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

// keepToOurselves marks the descriptors that the agent itself inherited, or
// that careless code opened, so that no process gets them. Go opens all of its
// own like that.
func keepToOurselves() {
	unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}
