//go:build linux || darwin

package execenv

import (
	"errors"
	"os"
	"syscall"
)

// A watchdog ends everything with a Local's mark when the agent has died. It is
// a shell that waits for the end of a pipe, whose other end only the agent
// holds. Thus it works for every death, kill -9 included, and needs no thread:
// PR_SET_PDEATHSIG would follow the thread that started a process, and reach
// no grandchild.
type watchdog struct {
	child *child
	pipe  *os.File
	gone  chan struct{} // closed when it is reaped
}

// guard sees to it that the watchdog runs, and that cgroups were looked for.
// Called with mu held.
func (l *Local) guard() error {
	if l.count == 0 {
		l.groups = newCgroups(l.opts.Cgroup, l.mark)
	}
	if l.dog != nil {
		select {
		case <-l.dog.gone: // somebody ended it
			l.dog.pipe.Close()
		default:
			return nil
		}
	}
	var err error
	if l.dog, err = l.startWatchdog(); errors.Is(err, os.ErrNotExist) {
		err = nil // no shell on this machine: what has no watchdog can still run
	}
	return err
}

func (l *Local) startWatchdog() (*watchdog, error) {
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, because(ErrNoResources, err)
	}
	defer pr.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		pw.Close()
		return nil, err
	}
	defer null.Close()
	dir := ""
	if l.groups != nil {
		dir = l.groups.dir
	}
	shell := launch{
		path:    "/bin/sh",
		argv:    []string{"/bin/sh", "-c", watchdogScript, "termbridge-watchdog", l.mark, dir},
		env:     []string{"PATH=" + os.Getenv("PATH") + ":/usr/bin:/bin"},
		dir:     "/",
		session: true, // what the terminal of the agent sends does not reach it
	}
	c, err := shell.start([3]*os.File{pr, null, null}, nil)
	if err != nil {
		pw.Close()
		return nil, explain(err, shell.path, shell.dir)
	}
	w := &watchdog{child: c, pipe: pw, gone: make(chan struct{})}
	l.background.Go(func() {
		c.wait()
		c.reap()
		close(w.gone)
	})
	return w, nil
}

// dismiss ends the watchdog. What it was to end has ended.
func (w *watchdog) dismiss() {
	if w == nil {
		return
	}
	select {
	case <-w.gone:
	default:
		w.child.signal(syscall.SIGKILL)
		<-w.gone
	}
	w.pipe.Close()
}
