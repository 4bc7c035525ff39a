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
	exact   bool           // all are in group
	limited bool           // all have one of limits, unless they have set it themselves
	away    bool           // each was started in a session of its own, so none can be in the agent's
	known   map[ident]bool // and whoever once belonged, and the children of all these
	first   int            // the first process id; none that was given later is lower
	since   uint64         // nothing older belongs
	forked  []window       // when those of limited began that may have missed their limit

	last  coverage // of the last look
	empty int      // it and so many before it saw nobody
}

// A coverage is how much of a tree one look has shown.
type coverage struct {
	blind     bool   // nothing
	cause     error  // why it may not have shown everybody; nil: it has
	undecided []proc // may belong or not: they show nothing of themselves
	missed    bool   // nobody, and may have missed somebody who was forked meanwhile
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
	case shown && t.limited && !missed:
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
	t.last.cause, t.last.undecided = w.err, nil
	if t.last.blind = w.procs == nil && !t.exact; t.last.blind {
		return nil
	}
	s := t.newSifting(w, found)
	s.takeRelated()
	unsure := s.takeTagged()
	unsure = s.takeForked(w.last) || unsure
	if len(s.members) > 0 {
		t.last.missed, t.empty = false, 0
		return s.members
	}
	t.empty++
	if w.last == 0 && t.empty > 1 {
		unsure = false // all that can be had
	}
	t.last.missed = unsure || t.group.populated()
	return nil
}

// A sifting takes the members of a tree out of the processes that a walk has seen.
type sifting struct {
	*tree
	found   func(proc)
	ids     map[int]proc
	grouped map[int]bool // the process ids of the tree's cgroup
	rest    []proc       // not taken
	members []proc       // taken, and alive
}

func (t *tree) newSifting(w *walk, found func(proc)) *sifting {
	s := &sifting{tree: t, found: found, ids: make(map[int]proc, len(w.procs)), grouped: make(map[int]bool)}
	for _, p := range w.procs {
		s.ids[p.pid] = p
		if p.pid != self && p.start >= t.since {
			s.rest = append(s.rest, p)
		}
	}
	for _, pid := range t.group.procs() {
		s.grouped[pid] = true
	}
	return s
}

// take notes that a process belongs.
func (s *sifting) take(p proc) {
	s.known[p.ident] = true
	if p.dead {
		// The agent has adopted it: as process 1, or with LocalOptions.Subreaper.
		// Who else would know of it?
		if p.ppid == self && !s.leaders[p.pid] && !s.own[p.pid] {
			p.reap()
		}
		return
	}
	if s.found != nil {
		s.found(p)
	}
	s.members = append(s.members, p)
}

// related reports whether a process belongs by its session, its groups, or its parent.
func (s *sifting) related(p proc) bool {
	return s.known[p.ident] || s.leaders[p.sid] || s.leaders[p.pgid] || s.grouped[p.pid] ||
		p.ppid != 0 && s.known[s.ids[p.ppid].ident]
}

// takeRelated takes the related ones. Children may come before their parents, so it
// goes on until nothing changes.
func (s *sifting) takeRelated() {
	for n := -1; n != len(s.rest); {
		n = len(s.rest)
		s.rest = slices.DeleteFunc(s.rest, func(p proc) bool {
			related := s.related(p)
			if related {
				s.take(p)
			}
			return related
		})
	}
}

// takeTagged takes those that show that they belong, with what is related to them.
// It reports whether one lives that shows nothing yet.
func (s *sifting) takeTagged() (unsure bool) {
	later := s.judgeRest(false)
	s.takeRelated()
	if len(later) == 0 {
		return false
	}
	time.Sleep(time.Millisecond)
	s.rest = slices.DeleteFunc(later, func(p proc) bool { return s.known[p.ident] })
	later = s.judgeRest(true)
	s.takeRelated()
	return slices.ContainsFunc(later, proc.alive)
}

// judgeRest takes those that show that they belong, and returns those that show
// nothing yet.
func (s *sifting) judgeRest(again bool) (fleet []proc) {
	s.rest = slices.DeleteFunc(s.rest, func(p proc) bool {
		if p.dead && p.ppid != self {
			return true
		}
		switch is := s.judge(p, again); {
		case is == member:
			s.take(p)
			return true
		case p.dead:
		case is == fleeting:
			fleet = append(fleet, p)
		case is == undecided && s.mayBeAdopted(p, s.ids):
			s.last.undecided = append(s.last.undecided, p)
		}
		return false
	})
	return fleet
}

// takeForked takes those that were forked behind the walk, after the process id last.
// It reports whether there may be more.
func (s *sifting) takeForked(last int) (unsure bool) {
	all := rescan(last, func(p proc) {
		if s.ids[p.pid].ident == p.ident || p.start < s.since {
			return // the walk has seen it
		}
		s.ids[p.pid] = p
		is := s.judgeForked(p)
		if is == member && !isThread(p.pid) {
			s.take(p)
		}
		unsure = unsure || is == fleeting
	})
	return unsure || !all
}

// judgeForked judges a process that may be in the middle of its first exec.
func (s *sifting) judgeForked(p proc) verdict {
	switch {
	case s.related(p) || slices.Contains(s.group.procs(), p.pid):
		return member
	case p.dead:
		return unrelated
	}
	is := fleeting
	for try := 0; is == fleeting && try < 3; try++ {
		if is = s.judge(p, try > 0); is == fleeting {
			time.Sleep(200 * time.Microsecond)
		}
	}
	return is
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
		if members = t.find(nil); len(members) > 0 || !t.last.missed {
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
	case t.last.cause != nil:
		return fmt.Errorf("%w what is left: %w", errCannotTell, t.last.cause)
	case t.last.missed:
		return fmt.Errorf("%w what is left: processes are started faster than they can be looked at", errCannotTell)
	case len(t.last.undecided) > 0:
		var names []string
		for _, p := range describe(t.last.undecided) {
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
	return since > moreLooks && (t.last.blind || t.empty >= leastLooks || since > limits.KillTimeout)
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
		case t.last.blind && spent > limits.KillTimeout:
			return t.stubborn(), t.unknown()
		case t.last.blind && (!over && short(t.last.cause) || len(t.stubborn()) > 0):
			time.Sleep(blindPause)
			continue
		case len(left) == 0 && t.last.missed && !over:
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
		case !t.last.blind && !t.last.missed && len(members) == 0:
			return true
		case !time.Now().Before(deadline()):
			return false
		case t.last.blind:
			// What can be seen without a process table are the leaders.
			for len(t.stubborn()) > 0 && time.Now().Before(deadline()) {
				time.Sleep(blindPause)
			}
			return false
		case t.last.missed && t.enough(seen):
			return false
		case t.last.missed:
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
