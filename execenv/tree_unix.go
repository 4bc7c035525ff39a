//go:build linux || darwin

package execenv

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// A tree finds and ends all that belongs to one process, or to all of a Local.
type tree struct {
	leaders map[int]bool // members of their sessions and groups belong; they are not reaped
	hangup  bool         // the leaders' terminals are theirs, and ending them means SIGHUP
	mark    []byte       // so do processes with this in their environment,
	group   interface {  // and those in here,
		procs() []int
		kill()
		populated() bool
	}
	known map[ident]bool // and whoever once belonged, and the children of all these
	since uint64         // nothing older belongs

	// Of the last look:
	blind  bool // it saw nothing, for want of descriptors
	missed bool // it has seen nobody, and may have missed somebody who was forked meanwhile
	empty  int  // it and so many before it saw nobody
}

// find returns the living members. It calls found, if that is not nil, for
// each at once: who ends a chain of forks must be faster than the forks.
func (t *tree) find(found func(proc)) []proc {
	last := lastPID()
	procs := allProcs()
	t.blind = procs == nil
	ids := make(map[int]ident, len(procs))
	for _, p := range procs {
		ids[p.pid] = p.ident
	}
	grouped := make(map[int]bool)
	for _, pid := range t.group.procs() {
		grouped[pid] = true
	}
	var members []proc
	add := func(p proc) {
		t.known[p.ident] = true
		if p.dead {
			// An agent that is process 1 adopts orphans. Who else would know of
			// these? Its own children are leaders, or in its own group.
			if p.ppid == self && !t.leaders[p.pid] && p.pgid != unix.Getpgrp() {
				unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
			}
			return
		}
		if found != nil {
			found(p)
		}
		members = append(members, p)
	}
	belongs := func(p proc) bool {
		return t.known[p.ident] || t.leaders[p.sid] || t.leaders[p.pgid] || grouped[p.pid] ||
			t.known[ids[p.ppid]] && ids[p.ppid].pid != 0
	}
	// Children may come before their parents, so look until nothing changes.
	rest := slices.DeleteFunc(procs, func(p proc) bool { return p.pid == self || p.start < t.since })
	descend := func() {
		for n := -1; n != len(rest); {
			n = len(rest)
			rest = slices.DeleteFunc(rest, func(p proc) bool {
				if !belongs(p) {
					return false
				}
				add(p)
				return true
			})
		}
	}
	descend()
	unsure := false
	for try := range 2 {
		var unknown []proc
		for _, p := range rest {
			if p.dead {
				continue
			}
			has, known := p.hasMark(t.mark)
			if has {
				add(p)
			}
			if !has && !known {
				unknown = append(unknown, p)
			}
		}
		descend()
		if len(unknown) == 0 || try > 0 {
			// The old ones have none for good.
			unsure = slices.ContainsFunc(unknown, func(p proc) bool { return p.young() && p.alive() })
			break
		}
		// A process has no environment in the middle of an exec.
		time.Sleep(time.Millisecond)
		rest = unknown
	}
	t.missed = !chase(last, func(p proc) {
		if ids[p.pid] == p.ident || p.start < t.since {
			return // the walk has seen it
		}
		ids[p.pid] = p.ident
		has, known := belongs(p) || slices.Contains(t.group.procs(), p.pid), p.dead
		for try := 0; !has && !known && try < 3; try++ {
			if has, known = p.hasMark(t.mark); !known {
				time.Sleep(200 * time.Microsecond) // in the middle of an exec
			}
		}
		if has && !isThread(p.pid) {
			add(p)
		}
		unsure = unsure || !has && !known
	}) || unsure
	if len(members) > 0 {
		t.missed, t.empty = false, 0
		return members
	}
	t.empty++
	if last == 0 && t.empty > 1 {
		t.missed = false // all that can be had
	}
	t.missed = t.missed || t.group.populated()
	return nil
}

// chase calls see for those who were forked after last. A walk does not see who is
// forked behind it, and in a chain of forks that is everybody; but they have new
// process ids, and there are few of them. It returns false if it cannot tell that
// it has come to an end.
func chase(last int, see func(proc)) bool {
	const most = 1000
	var unseen []int // ended, or not there yet: a fork takes its id first
	for range most {
		now := lastPID()
		switch {
		case last == 0, now < last, now-last > most:
			return false // the ids have begun anew, or that is no chain
		case now == last && len(unseen) == 0:
			return true
		case now == last:
			time.Sleep(300 * time.Microsecond)
			for _, pid := range unseen {
				if p, ok := readProc(pid); ok {
					see(p)
				}
			}
			unseen = nil
			continue
		}
		for ; last < now; last++ {
			if p, ok := readProc(last + 1); ok {
				see(p)
			} else {
				unseen = append(unseen, last+1)
			}
		}
	}
	return false
}

// search is find, again while it may have missed somebody, but not for ever.
func (t *tree) search() (members []proc) {
	for range 10 {
		if members = t.find(nil); len(members) > 0 || !t.missed {
			break
		}
	}
	return members
}

// end ends the tree: it asks, waits until deadline, and kills until nothing is
// left. It returns what it could not end; where it saw nothing, the leaders.
func (t *tree) end(deadline func() time.Time) []proc {
	if time.Now().Before(deadline()) && t.ask(deadline) {
		return nil
	}
	denied := make(map[ident]bool)
	kill := func(p proc) {
		if errors.Is(p.signal(unix.SIGKILL), unix.EPERM) {
			denied[p.ident] = true
		}
	}
	giveUp := time.Now().Add(terminal.KillTimeout)
	for {
		for leader := range t.leaders {
			signalGroup(leader, unix.SIGKILL) // reaches those that are forked at this moment
		}
		t.group.kill()
		left := t.find(kill)
		switch {
		case t.blind && time.Now().After(giveUp):
			for leader := range t.leaders {
				left = append(left, proc{ident: ident{pid: leader}})
			}
			return left
		case t.blind:
			time.Sleep(blindPause)
			continue
		case len(left) == 0 && !t.missed, len(left) == 0 && time.Now().After(giveUp):
			return nil
		case len(left) == 0:
			time.Sleep(time.Millisecond)
			continue
		}
		stubborn := !slices.ContainsFunc(left, func(p proc) bool { return !denied[p.ident] })
		if stubborn || time.Now().After(giveUp) {
			return left
		}
		awaitAll(left, time.Now().Add(50*time.Millisecond))
	}
}

// blindPause is between looks that see nothing.
const blindPause = 10 * time.Millisecond

// ask sends SIGTERM to everybody, and SIGCONT, without which a stopped process
// would never see it. It reports whether all ended before deadline.
func (t *tree) ask(deadline func() time.Time) bool {
	signals := []syscall.Signal{unix.SIGTERM, unix.SIGCONT}
	if t.hangup {
		// An interactive shell ignores SIGTERM. This is how its terminal ends.
		signals = []syscall.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGCONT}
	}
	members := t.find(nil)
	for leader := range t.leaders {
		for _, sig := range signals {
			signalGroup(leader, sig)
		}
	}
	asked := make(map[ident]bool)
	for _, p := range members {
		asked[p.ident] = t.leaders[p.pgid]
	}
	for ; ; members = t.find(nil) {
		switch {
		case !t.blind && !t.missed && len(members) == 0:
			return true
		case !time.Now().Before(deadline()):
			return false
		case t.blind:
			time.Sleep(blindPause)
			continue
		case t.missed:
			time.Sleep(time.Millisecond)
			continue
		}
		for _, p := range members {
			if !asked[p.ident] {
				asked[p.ident] = true
				for _, sig := range signals {
					p.signal(sig)
				}
			}
		}
		for !awaitAll(members, time.Now().Add(50*time.Millisecond)) {
			if !time.Now().Before(deadline()) {
				return false
			}
		}
	}
}

// awaitAll waits until none of procs lives, or until deadline.
func awaitAll(procs []proc, deadline time.Time) bool {
	for pause := time.Millisecond; ; pause = min(2*pause, 10*time.Millisecond) {
		i := slices.IndexFunc(procs, func(p proc) bool { return p.alive() })
		if i < 0 {
			return true
		}
		procs = procs[i:] // those before are dead
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		time.Sleep(min(pause, left))
	}
}

func describe(procs []proc) []terminal.Proc {
	list := make([]terminal.Proc, 0, len(procs))
	for _, p := range procs {
		d := p.describe()
		if d.Command == "" && p.start != 0 && !p.alive() {
			continue // it has just ended
		}
		list = append(list, d)
	}
	return list
}

var self = syscall.Getpid()
