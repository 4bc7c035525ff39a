//go:build linux || darwin

package execenv

import (
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// A session is a process that leads a group and a session.
type session struct {
	*process
	tag    string        // of the process; set by Start
	place  int           // in Local.pgids, or -1; guarded by Local.mu
	looked chan struct{} // closed when look is through

	stopMu sync.Mutex
	// guards following; below process.mu
	stop    *stop
	left    []ident // what outlived the process, by the last look
	unknown error   // why there may be more than left, by the last look; nil: there is no more
	alone   bool    // at its exit, nothing hinted at anybody else
	group   *cgroup // nil: none, or given back

	walk sync.Mutex // held by who uses group outside of a stop, and to give it back
}

// A stop is one run of StopTree, which any number of callers wait for.
type stop struct {
	deadline time.Time // of the grace; guarded by session.stopMu
	over     bool      // guarded by session.stopMu
	done     chan struct{}
	left     []terminal.Proc // valid once over, and after done
}

func (s *session) Terminal() (Terminal, bool) {
	switch {
	case s.term == nil:
		return nil, false
	case !s.spec.TTY.Input:
		return outputTerminal{s.term, s}, true
	}
	return s.term, true
}

// An outputTerminal controls nobody, so that the kernel finds nobody to tell
// that its size has changed.
type outputTerminal struct {
	*ptmx
	session *session
}

func (t outputTerminal) Resize(size terminal.Size) error {
	if err := t.ptmx.Resize(size); err != nil {
		return err
	}
	if err := t.session.SignalGroup(unix.SIGWINCH); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (s *session) Exited() <-chan struct{} { return s.exited }

func (s *session) Exit() terminal.Exit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exit
}

func (s *session) StopTree(grace time.Duration) []terminal.Proc {
	deadline := time.Now().Add(grace)
	s.mu.Lock()
	if s.phase < running {
		s.mu.Unlock()
		return nil
	}
	s.stopMu.Lock()
	if old := s.stop; old != nil {
		if old.deadline.After(deadline) {
			old.deadline = deadline // the earlier deadline decides
		}
		if !old.over || old.left != nil && len(old.left) == 0 { // else try again
			s.stopMu.Unlock()
			s.mu.Unlock()
			<-old.done
			return slices.Clone(old.left)
		}
	}
	stop := &stop{deadline: deadline, done: make(chan struct{})}
	s.stop = stop
	t := s.tree()
	s.stopMu.Unlock()
	held := s.phase < gone
	if held {
		s.holds++
		t.leaders[s.child.pid] = true
	}
	s.mu.Unlock()

	left, unknown := t.end(func() time.Time {
		s.stopMu.Lock()
		defer s.stopMu.Unlock()
		return stop.deadline
	})
	if held {
		s.release()
	}
	s.keep(left, unknown)
	stop.left = s.describe(left, unknown)
	s.stopMu.Lock()
	stop.over = true
	s.stopMu.Unlock()
	s.giveBack()
	close(stop.done)
	return slices.Clone(stop.left)
}

// release ends a hold. If the process is dead, the wait for the news is short.
func (p *process) release() {
	if isZombie(p.child.pid) {
		<-p.exited
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds--
	p.reap()
}

// tree returns the tree of the session without its leader. Called with stopMu
// held.
func (s *session) tree() *tree {
	t := &tree{
		leaders: make(map[int]bool),
		hangup:  s.spec.TTY != nil && s.spec.TTY.Input,
		tag:     []byte(s.tag),
		limits:  s.limit,
		group:   s.group,
		exact:   s.group != nil,
		limited: s.limited,
		known:   make(map[ident]bool),
		forked:  []window{s.forked},
		away:    true,
		first:   s.child.pid,
		since:   s.since,
	}
	for _, id := range append(s.escaped, s.left...) {
		t.known[id] = true
	}
	return t
}

// keep remembers what outlived the process.
func (s *session) keep(left []proc, unknown error) {
	ids := make([]ident, len(left))
	for i, p := range left {
		ids[i] = p.ident
	}
	s.stopMu.Lock()
	s.left, s.unknown = ids, unknown
	s.stopMu.Unlock()
	s.local.keep(ids)
	if len(ids) == 0 && unknown == nil {
		s.local.nothingLeft(s.process)
	}
}

// giveBack gives the cgroup back: at once if nothing runs in it any more, else as
// soon as that is so.
func (s *session) giveBack() {
	s.stopMu.Lock()
	group := s.group
	s.stopMu.Unlock()
	if group.populated() {
		s.local.join(func() {
			group.awaitEmpty()
			s.putGroup()
		})
		return
	}
	s.putGroup()
}

// putGroup gives the cgroup back, when nothing runs in it any more and no stop
// is about to kill what runs in it.
func (s *session) putGroup() {
	s.walk.Lock()
	defer s.walk.Unlock()
	s.stopMu.Lock()
	defer s.stopMu.Unlock()
	if (s.stop == nil || s.stop.over) && !s.group.populated() {
		s.group.put()
		s.group = nil
	}
}

// look is the last duty at the exit. After a natural end it looks for survivors,
// and returns true if it is known that there are none. The ids of group and session
// are free since an instant, and not reused before the counter of process ids has
// gone round.
func (s *session) look(natural bool) (alone bool) {
	pid := s.child.pid
	s.stopMu.Lock()
	s.alone = errors.Is(unix.Kill(-pid, 0), unix.ESRCH) && !s.group.populated() && !s.held() &&
		(s.group != nil || s.process.alone())
	alone, natural = s.alone, natural && s.stop == nil
	s.stopMu.Unlock()
	if alone || !natural {
		if natural {
			s.putGroup()
			s.local.nothingLeft(s.process)
		}
		close(s.looked)
		return natural
	}
	s.local.background.Go(func() { // it takes a while
		defer close(s.looked)
		s.stopMu.Lock()
		t := s.tree()
		s.stopMu.Unlock()
		if _, reused := readProc(pid); !reused {
			t.leaders[pid] = true
		}
		left := t.search()
		s.keep(left, t.unknown())
		s.giveBack()
	})
	return false
}

// held reports whether somebody holds the other end of an output.
func (s *session) held() bool { return slices.ContainsFunc(s.streams, (*stream).held) }

func (s *session) Survivors() []terminal.Proc {
	select {
	case <-s.exited:
	default:
		return nil
	}
	<-s.looked
	s.walk.Lock()
	defer s.walk.Unlock()
	s.stopMu.Lock()
	if len(s.left) == 0 && (s.alone || !s.group.populated() && !s.held()) {
		unknown := s.unknown
		s.stopMu.Unlock()
		return s.describe(nil, unknown)
	}
	t := s.tree()
	s.stopMu.Unlock()
	left := t.search()
	unknown := t.unknown()
	s.keep(left, unknown)
	return s.describe(left, unknown)
}

// signalRest signals what is left of the group after the exit of its leader,
// whose process id may be another process's by now, unless it is held: so each
// member is told by itself. It returns os.ErrProcessDone if there is none.
func (s *session) signalRest(sig os.Signal, held bool) error {
	num, err := toSignal(sig)
	if err != nil {
		return err
	}
	pid := s.child.pid
	s.walk.Lock()
	defer s.walk.Unlock()
	s.stopMu.Lock()
	t := s.tree()
	s.stopMu.Unlock()
	if _, used := readProc(pid); held || !used {
		t.leaders[pid] = true
	}
	err = os.ErrProcessDone
	for _, p := range t.search() {
		if p.pgid != pid {
			continue
		}
		if e := p.signal(num); errors.Is(err, os.ErrProcessDone) {
			err = e // one that was reached, or the reason why none was
		}
	}
	return err
}

// describe names processes of the tree, and those who hold an output, which
// may be none of the tree's: somebody else's server that was handed a
// descriptor. They are named and left alone. It returns nil where there is nobody
// to name, and unknown.
func (s *session) describe(left []proc, unknown error) []terminal.Proc {
	list := describe(left)
	var held []*stream
	for _, stream := range s.streams {
		if stream.held() {
			held = append(held, stream)
		}
	}
	for _, id := range holders(held) {
		if !slices.ContainsFunc(left, func(p proc) bool { return p.pid == id.pid }) {
			list = append(list, id.describe())
		}
	}
	if len(list) == 0 && unknown != nil {
		return nil
	}
	return list
}

// run adopts a started process.
func (l *Local) run(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[p] = struct{}{}
	l.open[p] = struct{}{}
	if s := p.session; s != nil {
		s.place = -1 // the watchdog ends its cgroup
		if p.child.group == nil {
			s.place = l.pgids.add(p.child.pid)
		}
	}
	l.watch(p.child, p.over)
}

// forget is called with p.mu held, before p is reaped.
func (l *Local) forget(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, p)
	if s := p.session; s != nil && s.place >= 0 {
		l.pgids.drop(s.place)
	}
	l.finishLate()
}

// nothingLeft notes that nothing is left of a process.
func (l *Local) nothingLeft(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, p)
}

// keep remembers survivors, to end them with the Local.
func (l *Local) keep(ids []ident) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left.add(ids)
}

// add also drops the dead, whenever the set has doubled.
func (s *survivors) add(ids []ident) {
	for _, id := range ids {
		s.ids[id] = true
	}
	if len(s.ids) > s.pruneAt {
		maps.DeleteFunc(s.ids, func(id ident, _ bool) bool { return !id.alive() })
		s.pruneAt = 2*len(s.ids) + 64
	}
}

// stopAll ends everything that any process of l started. It returns what it could
// not end, and why there may be more.
func (l *Local) stopAll(grace time.Duration) ([]terminal.Proc, error) {
	l.mu.Lock()
	if len(l.open)+len(l.live) == 0 {
		l.mu.Unlock()
		return nil, nil
	}
	t := &tree{
		leaders: make(map[int]bool),
		own:     make(map[int]bool),
		tag:     []byte(l.tag + "."),
		limits:  l.limits,
		group:   l.groups,
		exact:   l.groups != nil,
		limited: true,
		known:   maps.Clone(l.left.ids),
		away:    true,
		first:   math.MaxInt,
		since:   math.MaxUint64,
	}
	live := slices.Collect(maps.Keys(l.live))
	for _, p := range slices.AppendSeq(slices.Clone(live), maps.Keys(l.open)) {
		t.exact = t.exact && p.child.group != nil
		t.limited = t.limited && p.limited
		t.away = t.away && p.session != nil
		t.forked = append(t.forked, p.forked)
		t.first, t.since = min(t.first, p.child.pid), min(t.since, p.since)
	}
	l.mu.Unlock()

	held := live[:0]
	for _, p := range live {
		p.mu.Lock()
		if p.phase == running || p.phase == zombie {
			p.holds++
			held = append(held, p)
			if p.session != nil {
				t.leaders[p.child.pid] = true
				t.hangup = t.hangup || p.spec.TTY != nil && p.spec.TTY.Input
			} else {
				t.own[p.child.pid] = true
				if q, ok := readProc(p.child.pid); ok {
					t.known[q.ident] = true
				}
			}
		}
		p.mu.Unlock()
	}
	deadline := time.Now().Add(grace)
	left, unknown := t.end(func() time.Time { return deadline })
	for _, p := range held {
		if p.session == nil {
			p.child.signal(os.Kill) // the tree may not have seen it
		}
		p.release()
	}
	if len(left) == 0 { // what has ended is still to be noted
		bound := time.After(limits.KillTimeout)
		for _, p := range held {
			select {
			case <-p.reaped:
			case <-bound:
				return nil, unknown
			}
		}
	}
	return describe(left), unknown
}
