//go:build linux || darwin

package execenv

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// A tree finds and ends all that belongs to one process, or to all of a Local.
type tree struct {
	leaders map[int]bool // members of their sessions and groups belong; they are not reaped
	own     map[int]bool // further children of the agent, whose exits the Local takes itself
	hangup  bool         // the leaders' terminals are theirs, and ending them means SIGHUP
	tag     []byte       // so do processes with this in their environment,
	limits  limitTags    // and those with one of these limits,
	group   interface {  // and those in here,
		procs() []int
		kill()
		populated() bool
	}
	exact  bool           // all are in group
	marked bool           // all have one of limits, unless they have set it themselves
	away   bool           // each was started in a session of its own, so none can be in the agent's
	known  map[ident]bool // and whoever once belonged, and the children of all these
	first  int            // the first process id; none that was given later is lower
	since  uint64         // nothing older belongs
	forked []window       // when those of marked began that may have missed their limit

	// Of the last look:
	blind     bool   // it saw nothing
	cause     error  // why it may not have seen everybody; nil: it has
	undecided []proc // may belong or not: they show nothing of themselves
	missed    bool   // it has seen nobody, and may have missed somebody who was forked meanwhile
	empty     int    // it and so many before it saw nobody
}

// A window is from one start of a process to another.
type window struct{ from, to uint64 }

// A verdict says whether a process belongs to a tree, by what it shows.
type verdict int

const (
	unrelated verdict = iota
	member
	fleeting  // it shows nothing yet: it is in the middle of an exec
	undecided // it shows nothing
)

func (t *tree) judge(p proc, again bool) verdict {
	limit, err := limitOf(p.pid)
	shown := err == nil
	if shown && t.limits.has(limit) {
		return member
	}
	missed := shown && slices.ContainsFunc(t.forked, func(w window) bool { return w.misses(p.ident, limit) })
	tags, state := p.tags(again)
	switch {
	case bytes.Contains(tags, t.tag):
		return member
	case shown && t.marked && !missed:
		return unrelated
	case shown && isLimitTag(limit) && !isAgents(limit): // another Local's
		return unrelated
	case state == tagsShown && (!missed || adopts()):
		return unrelated
	case state == tagsFleeting && p.young():
		return fleeting
	}
	return undecided
}

// find returns the living members. It calls found, if that is not nil, for
// each at once: who ends a chain of forks must be faster than the forks.
func (t *tree) find(found func(proc)) []proc { return t.sift(t.look(), found) }

// sift returns the members that a walk has seen.
func (t *tree) sift(w *walk, found func(proc)) []proc {
	t.cause, t.undecided = w.err, nil
	if t.blind = w.procs == nil && !t.exact; t.blind {
		return nil
	}
	ids := make(map[int]proc, len(w.procs))
	for _, p := range w.procs {
		ids[p.pid] = p
	}
	grouped := make(map[int]bool)
	for _, pid := range t.group.procs() {
		grouped[pid] = true
	}
	var members []proc
	add := func(p proc) {
		t.known[p.ident] = true
		if p.dead {
			// The agent has adopted it: as process 1, or with LocalOptions.Subreaper.
			// Who else would know of it?
			if p.ppid == self && !t.leaders[p.pid] && !t.own[p.pid] {
				p.reap()
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
			p.ppid != 0 && t.known[ids[p.ppid].ident]
	}
	// Children may come before their parents, so look until nothing changes.
	rest := slices.DeleteFunc(slices.Clone(w.procs), func(p proc) bool { return p.pid == self || p.start < t.since })
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
	for again := false; ; again = true {
		var later []proc
		rest = slices.DeleteFunc(rest, func(p proc) bool {
			if p.dead && p.ppid != self {
				return true
			}
			switch is := t.judge(p, again); {
			case is == member:
				add(p)
				return true
			case p.dead:
			case is == fleeting:
				later = append(later, p)
			case is == undecided && t.mayBeAdopted(p, ids):
				t.undecided = append(t.undecided, p)
			}
			return false
		})
		descend()
		if len(later) == 0 || again {
			unsure = slices.ContainsFunc(later, func(p proc) bool { return p.alive() })
			break
		}
		time.Sleep(time.Millisecond)
		rest = later
	}
	t.missed = !rescan(w.last, func(p proc) {
		if ids[p.pid].ident == p.ident || p.start < t.since {
			return // the walk has seen it
		}
		ids[p.pid] = p
		is := fleeting
		switch {
		case belongs(p) || slices.Contains(t.group.procs(), p.pid):
			is = member
		case p.dead:
			is = unrelated
		}
		for try := 0; is == fleeting && try < 3; try++ {
			if is = t.judge(p, try > 0); is == fleeting {
				time.Sleep(200 * time.Microsecond)
			}
		}
		if is == member && !isThread(p.pid) {
			add(p)
		}
		unsure = unsure || is == fleeting
	}) || unsure
	if len(members) > 0 {
		t.missed, t.empty = false, 0
		return members
	}
	t.empty++
	if w.last == 0 && t.empty > 1 {
		t.missed = false // all that can be had
	}
	t.missed = t.missed || t.group.populated()
	return nil
}

// mayBeAdopted reports whether a process may once have been a descendant of a
// member: one that loses its parent is adopted by an ancestor of the agent, or by
// the agent.
func (t *tree) mayBeAdopted(p proc, ids map[int]proc) bool {
	switch {
	case t.since == 0:
		return false // everybody is as young as the members
	case t.away && p.sid == ownSession():
		return false
	case p.scanned():
		return p.ppid != self || adopts()
	}
	for {
		parent, ok := ids[p.ppid]
		if !ok || parent.start < t.since || parent.pid == self {
			break
		}
		p = parent
	}
	return !t.own[p.pid] && !t.leaders[p.pid] && mayAdopt(p.ppid)
}

// rescan calls see for those who were forked after last. A walk does not see who is
// forked behind it, and in a chain of forks that is everybody; but they have new
// process ids, and there are few of them. It returns false if it cannot tell that
// it has come to an end.
func rescan(last int, see func(proc)) bool {
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

// unknown returns, after a look that found nothing, why something may be left;
// nil: nothing is left.
func (t *tree) unknown() error {
	switch {
	case t.exact && !t.group.populated():
		return nil
	case t.cause != nil:
		return fmt.Errorf("%w what is left: %w", errCannotTell, t.cause)
	case t.missed:
		return fmt.Errorf("%w what is left: processes are started faster than they can be looked at", errCannotTell)
	case len(t.undecided) > 0:
		var names []string
		for _, p := range describe(t.undecided) {
			names = append(names, p.String())
		}
		if len(names) > 0 { // else they have just ended
			return fmt.Errorf("%w whether these are left, which show no tag: %s", errCannotTell, strings.Join(names, ", "))
		}
	}
	return nil
}

var errCannotTell = errors.New("cannot tell")

// Looks that find nobody are repeated, while each may have missed somebody: for so
// long, and on a slow machine so often.
const (
	moreLooks  = 250 * time.Millisecond
	leastLooks = 25
)

// enough reports whether nobody was seen for so long, and so often, that it ends the
// looks.
func (t *tree) enough(seen time.Time) bool {
	since := time.Since(seen)
	return since > moreLooks && (t.blind || t.empty >= leastLooks || since > limits.KillTimeout)
}

// end ends the tree: it asks, waits until deadline, and kills until nothing is
// left. It returns what it could not end, and why there may be more: see unknown.
func (t *tree) end(deadline func() time.Time) ([]proc, error) {
	if time.Now().Before(deadline()) && t.ask(deadline) {
		return nil, t.unknown()
	}
	denied := make(map[ident]bool)
	kill := func(p proc) {
		if errors.Is(p.signal(unix.SIGKILL), unix.EPERM) {
			denied[p.ident] = true
		}
	}
	began := time.Now()
	for seen := began; ; {
		for leader := range t.leaders {
			signalGroup(leader, unix.SIGKILL) // reaches those that are forked at this moment
		}
		t.group.kill()
		left := t.find(kill)
		spent := time.Since(began)
		if len(left) > 0 {
			seen = time.Now()
		}
		switch over := t.enough(seen); {
		case t.blind && spent > limits.KillTimeout:
			return t.stubborn(), t.unknown()
		case t.blind && (!over && short(t.cause) || len(t.stubborn()) > 0):
			time.Sleep(blindPause)
			continue
		case len(left) == 0 && t.missed && !over:
			time.Sleep(time.Millisecond)
			continue
		case len(left) == 0:
			return nil, t.unknown()
		}
		hopeless := !slices.ContainsFunc(left, func(p proc) bool { return !denied[p.ident] })
		if hopeless || spent > limits.KillTimeout {
			return left, t.unknown()
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
	for seen := time.Now(); ; members = t.find(nil) {
		switch {
		case !t.blind && !t.missed && len(members) == 0:
			return true
		case !time.Now().Before(deadline()):
			return false
		case t.blind:
			// What can be seen without a process table are the leaders.
			for len(t.stubborn()) > 0 && time.Now().Before(deadline()) {
				time.Sleep(blindPause)
			}
			return false
		case t.missed && t.enough(seen):
			return false
		case t.missed:
			time.Sleep(time.Millisecond)
			continue
		}
		seen = time.Now()
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

// stubborn returns the leaders that have not exited.
func (t *tree) stubborn() (list []proc) {
	for leader := range t.leaders {
		if !isZombie(leader) {
			list = append(list, proc{ident: ident{pid: leader}})
		}
	}
	return list
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
