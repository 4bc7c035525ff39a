//go:build linux || darwin

package execenv

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A watchdog ends the processes of a Local when the agent has died. It is a
// shell that waits for the end of a pipe, whose other end only the agent holds.
// Thus it works for every death, kill -9 included, and needs no thread:
// PR_SET_PDEATHSIG would follow the thread that started a process, and reach
// no grandchild.
//
// It finds them by the mark; and by the groups that the agent names over the
// pipe while their leaders are not reaped, for leaders that have no mark to
// see.
type watchdog struct {
	child *child
	pipe  *os.File
	gone  chan struct{} // closed when it is reaped
}

// watchdogGroups is the part of the script that keeps the list until the agent
// is dead, and then ends the groups.
const watchdogGroups = `
trap '' HUP INT QUIT TERM TSTP TTIN TTOU PIPE
groups=' '
while read -r what group; do
	case $what in
	start) groups="$groups$group " ;;
	end) groups="${groups%% $group *} ${groups#* $group }" ;;
	esac
done
for group in $groups; do kill -KILL "-$group"; done
`

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
	dog, err := l.startWatchdog()
	if errors.Is(err, os.ErrNotExist) {
		return nil // no shell on this machine: what cannot be guarded can still run
	}
	l.dog = dog
	for p := range l.live {
		l.dog.tell("start", p)
	}
	return err
}

func (l *Local) startWatchdog() (*watchdog, error) {
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, explain(err, "", "")
	}
	defer pr.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		pw.Close()
		return nil, explain(err, "", "")
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

// tell tells that the group of p exists, or is about to be reaped. A watchdog
// that does not listen might end a stranger's group later, so it must go.
func (w *watchdog) tell(what string, p *process) {
	if w == nil || p.session == nil {
		return
	}
	line := what + " " + strconv.Itoa(p.child.pid) + "\n"
	n := 0
	raw, err := w.pipe.SyscallConn()
	if err == nil {
		raw.Write(func(fd uintptr) bool {
			n, err = unix.Write(int(fd), []byte(line)) // never waits
			return true
		})
	}
	if err != nil || n != len(line) {
		w.child.signal(os.Kill)
	}
}

// dismiss ends the watchdog, when what it was to end has ended.
func (w *watchdog) dismiss() {
	if w == nil {
		return
	}
	w.child.signal(os.Kill)
	<-w.gone
	w.pipe.Close()
}
