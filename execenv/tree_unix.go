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
	}
	known map[ident]bool // and whoever once belonged, and the children of all these
	since uint64         // nothing older belongs

	escaped bool // one was found outside of the leaders' groups
	blind   bool // the last look saw nothing, for want of descriptors
}

// find returns the living members. It calls found, if that is not nil, for
// each at once: who ends a chain of forks must be faster than the forks.
func (t *tree) find(found func(proc)) []proc {
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
		t.escaped = t.escaped || !t.leaders[p.pgid]
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
			break
		}
		// A process has no environment in the middle of an exec.
		time.Sleep(time.Millisecond)
		rest = unknown
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
	for confirmed := false; ; {
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
		case len(left) == 0 && (confirmed || !t.escaped):
			return nil
		case len(left) == 0:
			confirmed = true // a walk may miss one that is forked behind it; hardly two walks
			continue
		}
		confirmed = false
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
	for confirmed := false; ; members = t.find(nil) {
		if t.blind {
			if !time.Now().Before(deadline()) {
				return false
			}
			time.Sleep(blindPause)
			continue
		}
		if len(members) == 0 {
			if confirmed || !t.escaped {
				return true
			}
			confirmed = true
			continue
		}
		confirmed = false
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
		list = append(list, p.describe())
	}
	return list
}

var self = syscall.Getpid()
