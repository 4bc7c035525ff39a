package execenv

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// An absence is that of a user at the keyboard of a terminal without input. A
// program that waits for a key there would wait for ever. So, once its output
// has been quiet for a moment, whoever waits is told what a user who has gone
// away means: SIGHUP. While nobody waits it is looked again each time the silence
// has doubled, so that a silent command costs next to nothing.
type absence struct {
	over   <-chan struct{}     // closed when there is nobody left to look after
	run    func(func())        // runs a look
	hangUp func() (again bool) // hangs up on whoever waits, and says whether to see what comes of it
	heard  atomic.Bool         // output, since the last look
	rests  atomic.Bool         // the timer is set to more than quiet

	quiet time.Duration // how long a program may draw its screen

	looks sync.Mutex // held by a look: output may call for the next one while it lasts
	// guards following
	pause time.Duration // until the next look

	mu    sync.Mutex // guards timer while it rests
	timer *time.Timer
}

// How long a program may draw its screen, where it is seen who waits for a key and
// where the terminal's modes are all that shows it.
var (
	hangupQuiet = 250 * time.Millisecond
	modesQuiet  = 3 * time.Second
)

// watch begins to look.
func (t *ptmx) watch(s *session) {
	if s.spec.TTY.Input {
		return
	}
	told := make(map[ident]bool)
	hangUp, quiet := s.hangUp, hangupQuiet
	if !seesInput() {
		hangUp, quiet = s.hangUpByModes, modesQuiet
	}
	t.absence.Store(newAbsence(quiet, s.exited, s.local.join, func() bool { return hangUp(told) }))
}

func newAbsence(quiet time.Duration, over <-chan struct{}, run func(func()), hangUp func() bool) *absence {
	a := &absence{over: over, run: run, hangUp: hangUp, quiet: quiet, pause: quiet}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(quiet, func() { a.run(a.look) })
	return a
}

// wake notes output.
func (a *absence) wake() {
	a.heard.Store(true)
	if !a.rests.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rests.Swap(false) {
		a.timer.Reset(a.quiet)
	}
}

// look hangs up on whoever waits, and sets the timer for the next look.
func (a *absence) look() {
	select {
	case <-a.over:
		return
	default:
	}
	a.looks.Lock()
	defer a.looks.Unlock()
	a.rests.Store(true)
	if a.heard.Swap(false) || a.hangUp() {
		a.pause = a.quiet
	} else {
		a.pause *= 2
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rests.Load() { // else wake has set it
		a.timer.Reset(a.pause)
	}
}

// stop ends the looks.
func (a *absence) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer.Stop()
}

// hangUp sends SIGHUP to whoever waits, and SIGKILL to those who were told and
// wait on. It reports whether there is somebody to look after again.
func (s *session) hangUp(told map[ident]bool) (again bool) {
	for _, w := range s.waiting() {
		if told[w.ident] {
			w.signal(unix.SIGKILL)
			continue
		}
		told[w.ident] = true
		if w.signal(unix.SIGHUP) == nil {
			w.signal(unix.SIGCONT)
			again = true
		}
	}
	return again
}

// hangUpByModes is hangUp where nothing shows who waits. A program that takes its
// terminal out of its first modes is about to read keys from it. When it has been
// quiet since, the youngest process is told first: a pager or an editor is younger
// than what started it. The modes of one that has ended are taken back: who follows
// has not set them.
func (s *session) hangUpByModes(told map[ident]bool) (again bool) {
	if in := s.input(); in.byModes().Certainty == terminal.NoCertainty {
		return false
	}
	s.walk.Lock()
	defer s.walk.Unlock()
	s.stopMu.Lock()
	t := s.tree()
	s.stopMu.Unlock()
	t.leaders[s.child.pid] = true
	members := t.search()
	if len(members) == 0 { // it is not seen who is there: all are told, as the kernel does
		s.term.resetModes()
		return s.SignalGroup(unix.SIGHUP) == nil
	}
	if i := slices.IndexFunc(members, func(p proc) bool { return told[p.ident] }); i >= 0 {
		members[i].signal(unix.SIGKILL)
		return true
	}
	if len(told) > 0 {
		clear(told)
		s.term.resetModes()
		return true
	}
	youngest := slices.MaxFunc(members, func(p, q proc) int {
		return cmp.Or(cmp.Compare(p.start, q.start), cmp.Compare(p.pid, q.pid))
	})
	told[youngest.ident] = true
	youngest.signal(unix.SIGHUP)
	youngest.signal(unix.SIGCONT)
	return true
}

// resetModes gives the terminal the modes that it had in the beginning.
func (t *ptmx) resetModes() {
	t.control(func(fd int) error { return unix.IoctlSetTermios(fd, setTermios, t.first) })
}

// seesInput reports whether the kernel tells what the agent's processes wait for.
// Where it does not, a terminal without input is one that cannot be read, and its
// modes are what shows that a program waits for a key.
var seesInput = sync.OnceValue(func() bool {
	if ownProcfs() != nil {
		return false
	}
	if _, err := os.ReadFile("/proc/self/syscall"); err != nil {
		return false
	}
	scope, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	n, _ := strconv.Atoi(strings.TrimSpace(string(scope)))
	return n < 2 // from there on not even a parent sees it
})
