package execenv

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// A child is a started process that is not reaped.
type child struct {
	pid   int
	group *cgroup // nil
}

func startChild(path string, argv []string, attr *syscall.ProcAttr, _ *cgroup) (*child, error) {
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	return &child{pid: pid}, nil
}

// wait returns once the process has exited, and does not reap it; waitid with
// WNOWAIT would return for a stop too. It holds a thread.
func (c *child) wait() terminal.Exit {
	kq, err := unix.Kqueue()
	if err != nil {
		return terminal.Exit{}
	}
	defer unix.Close(kq)
	change := unix.Kevent_t{Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT | unix.NOTE_EXITSTATUS}
	change.Ident = uint64(c.pid)
	events := make([]unix.Kevent_t, 1)
	n, err := unix.Kevent(kq, []unix.Kevent_t{change}, events, nil)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Kevent(kq, nil, events, nil)
	}
	if n == 1 && err == nil && events[0].Flags&unix.EV_ERROR == 0 && events[0].Fflags&unix.NOTE_EXITSTATUS != 0 {
		return exitOf(syscall.WaitStatus(events[0].Data))
	}
	// It was dead already: a zombie cannot be watched, but it can be looked at.
	info, err := unix.SysctlKinfoProc("kern.proc.pid", c.pid)
	if err != nil || info.Proc.P_stat != statZombie {
		return terminal.Exit{}
	}
	return exitOf(syscall.WaitStatus(info.Proc.P_xstat))
}

// exitOf returns the exit that a wait status tells.
func exitOf(ws syscall.WaitStatus) (e terminal.Exit) {
	switch {
	case ws.Exited():
		e.Code = new(ws.ExitStatus())
	case ws.Signaled():
		e.Signal = signalName(ws.Signal())
	}
	return e
}

// watch has exited called, once, when c has exited, before it is reaped.
func (l *Local) watch(c *child, exited func(terminal.Exit)) {
	l.background.Go(func() { exited(c.wait()) })
}

// pipe returns the agent's end of a pipe, and the command's: its standard input,
// or an output of it.
func pipe(input bool) (ours, theirs *os.File, err error) {
	r, w, err := os.Pipe()
	if input {
		r, w = w, r
	}
	return r, w, err
}

// A poller would be the one goroutine that waits for all processes; kqueue could
// do it, and here each process has a goroutine.
type poller struct{}

func newPoller() (*poller, error) { return &poller{}, nil }
func (*poller) run()              {}
func (*poller) close()            {}

func (*stream) check() {}

type delivery struct{}

// reap takes the exited process from the kernel; its process id is free then.
func (c *child) reap() {
	for {
		_, err := syscall.Wait4(c.pid, nil, 0, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// signal signals the process, which the caller knows not to be reaped.
func (c *child) signal(sig os.Signal) error {
	s, err := toSignal(sig)
	if err != nil {
		return err
	}
	return done(unix.Kill(c.pid, s))
}

// keepToOurselves marks the descriptors that the agent inherited; Go opens all
// of its own like that.
var keepToOurselves = sync.OnceFunc(func() {
	entries, _ := os.ReadDir("/dev/fd")
	for _, e := range entries {
		fd := 0
		for _, c := range e.Name() {
			fd = fd*10 + int(c-'0')
		}
		if fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
})
