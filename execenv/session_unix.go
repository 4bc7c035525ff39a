//go:build linux || darwin

package execenv

import (
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// A session is a process that leads a group and a session.
type session struct {
	*process
	mark   string        // of the process; set by Start
	place  int           // in Local.roll, or -1; guarded by Local.mu
	looked chan struct{} // closed when look is through

	stopMu sync.Mutex
	// guards following; below process.mu
	stop  *stop
	left  []ident // what outlived the process, by the last look
	alone bool    // at its exit, nothing hinted at anybody else
	group *cgroup // nil: none, or given back

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
			old.deadline = deadline // who has less patience decides
		}
		if !old.over || len(old.left) == 0 { // else try again
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

	left := t.end(func() time.Time {
		s.stopMu.Lock()
		defer s.stopMu.Unlock()
		return stop.deadline
	})
	if held {
		s.release(len(left) == 0)
	}
	s.keep(left)
	stop.left = s.describe(left)
	s.stopMu.Lock()
	stop.over = true
	s.stopMu.Unlock()
	if len(left) == 0 {
		s.putGroup()
	}
	close(stop.done)
	return slices.Clone(stop.left)
}

// release ends a hold. With ended, the process is known to be dead, so that
// the wait for the news is short.
func (p *process) release(ended bool) {
	if ended {
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
		mark:    []byte(s.mark),
		group:   s.group,
		known:   make(map[ident]bool),
		since:   s.since,
	}
	for _, id := range s.left {
		t.known[id] = true
	}
	return t
}

// keep remembers what outlived the process.
func (s *session) keep(left []proc) {
	ids := make([]ident, len(left))
	for i, p := range left {
		ids[i] = p.ident
	}
	s.stopMu.Lock()
	s.left = ids
	s.stopMu.Unlock()
	s.local.keep(ids)
}

// putGroup gives the cgroup back, when nothing runs in it any more and no stop
// is about to kill what runs in it.
func (s *session) putGroup() {
	s.walk.Lock()
	defer s.walk.Unlock()
	s.stopMu.Lock()
	defer s.stopMu.Unlock()
	if s.stop == nil || s.stop.over {
		s.group.put()
		s.group = nil
	}
}

// look is the last duty at the exit. After a natural end it looks for survivors,
// and returns true if there is no hint of any. The ids of group and session are
// free since an instant, and not reused before the counter of process ids has
// gone round.
func (s *session) look(natural bool) (alone bool) {
	pid := s.child.pid
	s.stopMu.Lock()
	s.alone = errors.Is(unix.Kill(-pid, 0), unix.ESRCH) && !s.group.populated() && !s.held()
	alone, natural = s.alone, natural && s.stop == nil
	s.stopMu.Unlock()
	if alone || !natural {
		if natural {
			s.putGroup()
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
		s.keep(t.search())
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
		s.stopMu.Unlock()
		return []terminal.Proc{}
	}
	t := s.tree()
	s.stopMu.Unlock()
	left := t.search()
	s.keep(left)
	return s.describe(left)
}

// describe names processes of the tree, and those who hold an output, which
// may be none of the tree's: somebody else's server that was handed a
// descriptor. They are named and left alone.
func (s *session) describe(left []proc) []terminal.Proc {
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
	return list
}

// run adopts a started process.
func (l *Local) run(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[p] = struct{}{}
	if l.since == 0 {
		l.since = p.since
	}
	if s := p.session; s != nil {
		s.place = -1 // the watchdog ends its cgroup
		if p.child.group == nil {
			s.place = l.roll.add(p.child.pid)
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
		l.roll.drop(s.place)
	}
}

// keep remembers survivors, to end them with the Local.
func (l *Local) keep(ids []ident) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.left[id] = true
	}
}

// stopAll ends everything that any process of l started.
func (l *Local) stopAll(grace time.Duration) []terminal.Proc {
	l.mu.Lock()
	if l.count == 0 {
		l.mu.Unlock()
		return nil
	}
	t := &tree{
		leaders: make(map[int]bool),
		mark:    []byte(l.mark + "."),
		group:   l.groups,
		known:   maps.Clone(l.left),
		since:   l.since,
	}
	live := make([]*process, 0, len(l.live))
	for p := range l.live {
		live = append(live, p)
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
			} else if q, ok := readProc(p.child.pid); ok {
				t.known[q.ident] = true
			}
		}
		p.mu.Unlock()
	}
	deadline := time.Now().Add(grace)
	left := t.end(func() time.Time { return deadline })
	for _, p := range held {
		p.release(len(left) == 0)
	}
	return describe(left)
}
