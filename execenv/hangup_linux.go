package execenv

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	rests  atomic.Bool         // the timer is set to more than hangupQuiet

	looks sync.Mutex // held by a look: output may call for the next one while it lasts
	// guards following
	pause time.Duration // until the next look

	mu    sync.Mutex // guards timer while it rests
	timer *time.Timer
}

// hangupQuiet is how long a program may draw its screen.
const hangupQuiet = 250 * time.Millisecond

// watch begins to look, if there is anything to see.
func (t *ptmx) watch(s *session) {
	if s.spec.TTY.Input || !seesInput() {
		return
	}
	told := make(map[ident]bool)
	t.absence.Store(newAbsence(s.exited, s.local.join, func() bool { return s.hangUp(told) }))
}

func newAbsence(over <-chan struct{}, run func(func()), hangUp func() bool) *absence {
	a := &absence{over: over, run: run, hangUp: hangUp, pause: hangupQuiet}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(hangupQuiet, func() { a.run(a.look) })
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
		a.timer.Reset(hangupQuiet)
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
		a.pause = hangupQuiet
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

// seesInput reports whether the kernel tells what the agent's processes wait for.
// Where it does not, a terminal without input is one that cannot be read.
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
