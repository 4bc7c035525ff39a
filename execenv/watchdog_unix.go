//go:build linux || darwin

package execenv

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// A watchdog ends the processes of a Local when the agent has died. It is a
// shell that waits for the end of a pipe, whose other end only the agent holds.
// Thus it works for every death, kill -9 included, and needs no thread:
// PR_SET_PDEATHSIG would follow the thread that started a process, and reach
// no grandchild.
//
// It finds them by the tag; and by their groups, for leaders that have no tag
// to see. Those stand in a file without a name, which the agent changes as it
// starts and reaps leaders, and which nobody reads before the agent is dead.
type watchdog struct {
	child *child
	pipe  *os.File
	gone  chan struct{} // closed when it has exited
}

// watchdogGroups is the part of the script that waits for the agent's death and
// then ends the groups.
const watchdogGroups = `
trap '' HUP INT QUIT TERM TSTP TTIN TTOU PIPE
while read -r line; do :; done
while read -r group; do
	[ -z "$group" ] || kill -KILL "-$group"
done <&3
`

var watchdogShell = "/bin/sh"

// A pgidFile is the list of the groups whose leaders are not reaped. A nil *pgidFile
// has none.
type pgidFile struct {
	file  *os.File
	size  int
	spare []int
}

// pgidLine is the length of a line, which holds a process id or blanks.
const pgidLine = 12

// add enters a group, and returns its place.
func (r *pgidFile) add(pgid int) int {
	if r == nil {
		return 0
	}
	place := r.size
	if n := len(r.spare); n > 0 {
		place, r.spare = r.spare[n-1], r.spare[:n-1]
	} else {
		r.size++
	}
	r.set(place, strconv.Itoa(pgid))
	return place
}

// drop takes a group out, before its number can be an unrelated process's.
func (r *pgidFile) drop(place int) {
	if r != nil {
		r.set(place, "")
		r.spare = append(r.spare, place)
	}
}

func (r *pgidFile) set(place int, text string) {
	line := [pgidLine]byte([]byte("           \n"))
	copy(line[:pgidLine-1], text)
	r.file.WriteAt(line[:], int64(place*pgidLine))
}

// unlinked returns a file that has no name any more.
func unlinked() (*os.File, error) {
	f, err := os.CreateTemp("", "termbridge")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// A guarding is the start of a watchdog. The kernel may hold it, and with it nobody
// else for long.
type guarding struct {
	bound time.Time     // until then Starts wait for it
	over  chan struct{} // closed when it is over; err is valid then
	err   error
}

// wait waits until p may start. What cannot be guarded yet can still run.
func (g *guarding) wait(p *process) error {
	bound := time.NewTimer(time.Until(g.bound))
	defer bound.Stop()
	select {
	case <-g.over:
		return g.err
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	case <-p.local.ending:
		return terminal.ErrClosed
	case <-bound.C:
		return nil
	}
}

// guard sees to it that what all processes need is there: poller, watchdog, and
// cgroups if they can be had. It returns the start of the watchdog, if that is
// under way. Called with mu held.
func (l *Local) guard() (*guarding, error) {
	if l.guarding != nil {
		return l.guarding, nil
	}
	if l.count == 0 {
		l.groups = newCgroups(l.opts.Cgroup, l.tag)
	}
	if l.poller == nil {
		poller, err := newPoller()
		if err != nil {
			return nil, explain(err, "", "")
		}
		l.poller = poller
		l.background.Go(poller.run)
	}
	if l.null == nil && l.count == 0 {
		null, err := openNull()
		if short(err) {
			return nil, explain(err, "", "")
		}
		l.null = null // nil where there is none
	}
	if l.watchdog != nil {
		select {
		case <-l.watchdog.gone: // somebody ended it
			l.watchdog.pipe.Close()
			l.watchdog = nil
		default:
			return nil, nil
		}
	}
	if l.pgids == nil {
		f, err := nameless()
		if short(err) {
			return nil, explain(err, "", "")
		}
		if err == nil { // else it finds what has a tag
			l.pgids = &pgidFile{file: f}
		}
	}
	g := &guarding{bound: time.Now().Add(limits.KillTimeout), over: make(chan struct{})}
	l.guarding = g
	shell := l.Command(context.Background(), Spec{Path: watchdogShell}).(*process)
	l.starting.begin(shell)
	go func() { // Close waits for it as for a Start
		defer l.leave(shell)
		w, err := l.startWatchdog(shell)
		if errors.Is(err, os.ErrNotExist) {
			err = nil // no shell on this machine: what cannot be guarded can still run
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.giveBack()
		}
		l.watchdog, l.guarding, g.err = w, nil, err
		close(g.over)
	}()
	return g, nil
}

// startWatchdog starts the watchdog as p.
func (l *Local) startWatchdog(p *process) (*watchdog, error) {
	if err := p.awaitProgram(p.spec.Path, "/"); err != nil {
		return nil, err
	}
	pw, pr, err := pipe(true)
	if err != nil {
		return nil, explain(err, "", "")
	}
	defer pr.Close()
	null := l.null
	if null == nil { // as good: the script ignores SIGPIPE
		unread, closed, err := pipe(false)
		if err != nil {
			pw.Close()
			return nil, explain(err, "", "")
		}
		unread.Close()
		defer closed.Close()
		null = closed
	}
	groups := null // no line can be read from it
	if l.pgids != nil {
		groups = l.pgids.file
	}
	dir := ""
	if l.groups != nil {
		dir = l.groups.dir
	}
	shell := launch{
		path:    p.spec.Path,
		argv:    []string{p.spec.Path, "-c", watchdogScript, "termbridge-watchdog", l.tag, dir, l.limits.digits()},
		env:     []string{"PATH=" + os.Getenv("PATH") + ":/usr/bin:/bin"},
		dir:     "/",
		session: true, // what the terminal of the agent sends does not reach it
	}
	c, err := shell.start([]*os.File{pr, null, null, groups}, nil)
	if err != nil {
		pw.Close()
		return nil, explain(err, shell.path, shell.dir)
	}
	if !l.arrived(p) {
		c.abandon()
		pw.Close()
		return nil, terminal.ErrClosed
	}
	w := &watchdog{child: c, pipe: pw, gone: make(chan struct{})}
	l.watch(c, func(terminal.Exit) {
		close(w.gone)
		c.reap()
	})
	return w, nil
}

// stop ends the watchdog, when what it was to end has ended. If it cannot be
// killed, it ends by itself.
func (w *watchdog) stop() {
	if w == nil {
		return
	}
	w.child.signal(os.Kill)
	defer w.pipe.Close()
	select {
	case <-w.gone:
	case <-time.After(limits.KillTimeout):
	}
}

func (r *pgidFile) close() {
	if r != nil {
		r.file.Close()
	}
}
