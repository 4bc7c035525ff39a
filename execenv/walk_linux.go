package execenv

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// A walk is one look at the process table.
type walk struct {
	last  int    // the process id that was given last when it began; 0: not known
	procs []proc // nil: none could be seen
	err   error  // why it may not have seen everybody
	done  chan struct{}
}

// walks has those who ask at the same time share a walk, which begins after the
// last of them has asked: a hundred stops at once would walk for seconds.
var walks struct {
	walking sync.Mutex // held by the one who walks

	mu sync.Mutex
	// guards following
	next *walk // has not begun
}

// takeWalk returns a walk that has begun after the call. It is shared, and not
// changed.
func takeWalk() *walk {
	walks.mu.Lock()
	w := walks.next
	if w != nil {
		walks.mu.Unlock()
		<-w.done
		return w
	}
	w = &walk{done: make(chan struct{})}
	walks.next = w
	walks.mu.Unlock()

	walks.walking.Lock()
	defer walks.walking.Unlock()
	walks.mu.Lock()
	walks.next = nil
	walks.mu.Unlock()
	defer close(w.done)
	w.last = lastPID()
	w.procs, w.err = readProcs()
	return w
}

// look returns the process table; where there is none, what the ids tell.
func (t *tree) look() *walk {
	w := takeWalk()
	switch {
	case w.procs == nil && t.limited && !short(w.err):
		return scan(t.first, w.err)
	case errors.Is(w.err, errHidden) && t.limited && !w.hides(t.first):
		return &walk{last: w.last, procs: w.procs}
	}
	return w
}

// hides reports whether there is a process that the walk has not seen, with an id
// from first on.
func (w *walk) hides(first int) bool {
	switch {
	case ownUserOnly():
		return false
	case w.last < first:
		return true // or not
	}
	seen := make(map[int]bool, len(w.procs))
	for _, p := range w.procs {
		seen[p.pid] = true
	}
	for pid := first; pid <= w.last; pid++ {
		if !seen[pid] && errors.Is(unix.Kill(pid, 0), unix.EPERM) {
			return true
		}
	}
	return false
}
