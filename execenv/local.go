package execenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// Local runs processes on this machine. It is an [Executor], and its processes
// with Spec.Group or Spec.TTY are [Session] values.
//
// # What it owns
//
// Every process gets a tag in its environment (TERMBRIDGE_ID), and on Linux a
// number in a limit that has no other meaning (RLIMIT_LOCKS); all that it starts
// inherits both. By these, by the session and by descent [Session.StopTree] finds
// the whole tree of a process, daemons included; where a cgroup (version 2) can
// be had, by that too. What a command leaves behind at its natural end runs on, is
// named by [Session.Survivors], and ends when the Local is closed. Where it cannot
// be known whether something is left, they return nil, and Close an error that
// says why.
//
// If the agent dies without Close, a watchdog ends everything with the tag.
// It is one /bin/sh, started with the first process, that waits for the end of
// a pipe which only the agent holds open.
//
// # Caveats
//
// On macOS a process that cleared its environment and left its session is not
// found. The processes of other users (sudo) can be named but not ended.
// When a process exits whose controlling terminal is its own (TTY.Input), the
// kernel sends SIGHUP to what it left in the foreground. A start marks all
// descriptors of the agent above 2 as close-on-exec, whoever opened them, and
// signals that the agent ignores are from then on handled by [os/signal] and
// dropped, so that its processes do not ignore them. On Linux the first start lowers
// the agent's own RLIMIT_LOCKS to a number by which all that it forks is known.
type Local struct {
	opts   LocalOptions
	tag    string // unique; see tagName
	limits limitTags

	background sync.WaitGroup // the goroutines that Close joins
	ending     chan struct{}  // closed by Close

	mu sync.Mutex
	// guards following
	closed   bool
	count    int // processes started, for their tags
	starting starting
	live     map[*process]struct{} // not reaped
	open     map[*process]struct{} // something of them may be left
	drained  map[*stream]struct{}  // read to nowhere for processes that outlived theirs
	left     survivors             // outlived their process
	null     *os.File              // /dev/null, for processes
	poller   *poller
	watchdog *watchdog
	guarding *guarding // the start of watchdog that is under way; nil: none
	pgids    *pgidFile // for the watchdog
	groups   *cgroups  // nil: not looked for
	leaked   bool      // Close could not end a process
	subreaps bool      // the agent adopts orphans

	closing sync.Once
	result  error // of Close
}

// starting are the Starts under way. Close waits for them, but not for ever: it gives
// up those that the kernel holds. Its maps are guarded by Local.mu.
type starting struct {
	under sync.WaitGroup        // those that Close waits for
	held  map[*process]struct{} // so are these, which the kernel may hold
	late  map[*process]struct{} // those that Close has given up
}

func (s *starting) begin(p *process) {
	s.held[p] = struct{}{}
	s.under.Add(1)
}

// end returns false if Close had given the start up.
func (s *starting) end(p *process) bool {
	if _, late := s.late[p]; late {
		delete(s.late, p)
		return false
	}
	delete(s.held, p)
	s.under.Done()
	return true
}

// giveUp has Close no longer wait for those that are held. It calls note for each
// before Close goes on.
func (s *starting) giveUp(note func(*process)) {
	for p := range s.held {
		s.late[p] = struct{}{}
		note(p)
		s.under.Done()
	}
	clear(s.held)
}

// survivors are a set of processes that outlived their process.
type survivors struct {
	ids     map[ident]bool
	pruneAt int // the size at which the dead go
}

// LocalOptions are the options of [NewLocal].
type LocalOptions struct {
	// Grace is how long Close waits between asking and killing; 0 is
	// 2 s.
	Grace time.Duration

	// Cgroup is the directory of a cgroup (version 2) below which processes
	// get cgroups of their own. "" is the agent's own cgroup; [NoCgroup] is
	// none. A directory that cannot be used is as good as none.
	Cgroup string

	// Subreaper makes the agent adopt what loses its parent among all that it
	// started (PR_SET_CHILD_SUBREAPER, Linux), from the first start until Close.
	// A daemon is then a child of the agent, and not of a distant init: where
	// neither a cgroup nor a limit nor an environment shows whose a process is,
	// only the agent's own children can be undecided. It costs: this is an
	// attribute of the whole agent, so that it also adopts the orphans of what it
	// starts by other means; and what it adopted and what ended by itself stays a
	// zombie until the Local looks again, at a stop or at Close, or, if it is
	// none of the Local's, until the agent waits for it.
	Subreaper bool
}

// tagName is the environment variable with the tags of a process: one entry
// "EXECUTOR.NUMBER," per Local above it, the outermost first. Thus an agent
// that runs as a command of another can be found with all its own commands.
const tagName = "TERMBRIDGE_ID"

// starts bounds the starts at one time, in all of the agent: each may pin an
// operating system thread, which Go never gives back, and more at once than
// there are processors are not faster.
var starts = semaphore.NewWeighted(int64(max(4, 2*runtime.GOMAXPROCS(0))))

// NewLocal returns a Local. It starts nothing and holds nothing open before
// its first process is started. Nil options are the defaults.
func NewLocal(opts *LocalOptions) *Local {
	l := &Local{
		tag:      rand.Text(),
		limits:   newLimitTags(),
		ending:   make(chan struct{}),
		starting: starting{held: make(map[*process]struct{}), late: make(map[*process]struct{})},
		live:     make(map[*process]struct{}),
		open:     make(map[*process]struct{}),
		drained:  make(map[*stream]struct{}),
		left:     survivors{ids: make(map[ident]bool)},
	}
	if opts != nil {
		l.opts = *opts
	}
	if l.opts.Grace == 0 {
		l.opts.Grace = limits.StopGrace
	}
	return l
}

// Command returns a process that is not started. With Spec.Group or Spec.TTY
// it is a [Session].
func (l *Local) Command(ctx context.Context, spec Spec) Process {
	p := &process{
		local:  l,
		stdio:  stdio{local: l},
		ctx:    ctx,
		kill:   make(chan struct{}),
		exited: make(chan struct{}),
		reaped: make(chan struct{}),
	}
	p.Front = NewFront(p, spec)
	if spec.Group || spec.TTY != nil {
		s := &session{process: p, looked: make(chan struct{})}
		p.session = s
		return s
	}
	return p
}

// Close ends every process that still runs and all that others left behind:
// it asks, waits, and kills. Then it ends the watchdog and joins its
// goroutines. No process can be started any more: [terminal.ErrClosed]. What
// could not be ended is reported as a [*terminal.LeakError]; so is a Start that the
// kernel has held for 2 s, whose process ends as soon as it has
// begun. Later calls wait for the first and return its result.
func (l *Local) Close() error {
	l.closing.Do(func() { l.result = l.close() })
	return l.result
}

func (l *Local) close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	close(l.ending)
	leaks := l.awaitStarts()

	left, unknown := l.stopAll(l.opts.Grace)

	l.mu.Lock()
	for s := range l.drained {
		s.f.Close()
	}
	watchdog, groups := l.watchdog, l.groups
	l.mu.Unlock()
	watchdog.stop() // which needs the poller, that forget and leave may end from here on

	l.mu.Lock()
	l.leaked = len(l.live)+len(l.starting.late) > 0
	leaked := l.leaked
	l.mu.Unlock()
	groups.remove()
	if l.subreaps {
		adopt(false)
	}
	if !leaked { // else forget or leave finishes, when the last has exited
		l.finish()
	}
	if len(left) > 0 || unknown != nil {
		leak := terminal.Leak{What: "process", Procs: left, Err: unknown}
		if len(left) == 0 {
			leak.What = "possibly a process"
		}
		leaks = append(leaks, leak)
	}
	if len(leaks) == 0 {
		return nil
	}
	return &terminal.LeakError{Leaks: leaks}
}

// heldTimeout is how long Close waits for a Start that the kernel holds.
var heldTimeout = limits.KillTimeout

// awaitStarts waits for the Starts under way, and gives up those that the kernel
// still holds after heldTimeout: a program on a server that does not answer, for
// instance.
func (l *Local) awaitStarts() (leaks []terminal.Leak) {
	timer := time.AfterFunc(heldTimeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.starting.giveUp(func(p *process) {
			leaks = append(leaks, terminal.Leak{What: "start", Err: fmt.Errorf("the system has not started %q yet", p.spec.Path)})
		})
	})
	defer timer.Stop()
	l.starting.under.Wait()
	l.mu.Lock() // giveUp ends the wait before its leaks are in the list
	defer l.mu.Unlock()
	return leaks
}

// arrived notes that the kernel has started p. It returns false if Close has given
// it up, and nothing waits for it.
func (l *Local) arrived(p *process) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.starting.held, p)
	_, late := l.starting.late[p]
	return !late
}

// leave ends what enter began.
func (l *Local) leave(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.starting.end(p) {
		l.finishLate()
	}
}

// finishLate does after Close what that could not: it is called with mu held, when
// something that Close has left has ended.
func (l *Local) finishLate() {
	if l.leaked && len(l.live)+len(l.starting.late) == 0 {
		l.groups.remove()
		go l.finish()
	}
}

// finish ends and joins the goroutines, once nothing runs or starts any more.
func (l *Local) finish() {
	l.mu.Lock()
	poller, null, pgids := l.poller, l.null, l.pgids
	l.mu.Unlock()
	null.Close() // a Start that the kernel held may have given these to its process
	pgids.close()
	poller.close()
	l.background.Wait()
}

// join runs f in a goroutine that Close joins, unless that has begun.
func (l *Local) join(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.background.Go(f)
	}
}

// enter registers a start and returns the number of the new process, or
// terminal.ErrClosed. Leave ends it.
func (l *Local) enter(p *process) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, terminal.ErrClosed
	}
	g, err := l.guard()
	if err != nil {
		l.giveBack()
		return 0, err
	}
	l.starting.begin(p)
	if g != nil {
		l.mu.Unlock()
		if err = g.wait(p); err != nil {
			l.leave(p)
		}
		l.mu.Lock()
	}
	if err != nil {
		return 0, err
	}
	if l.opts.Subreaper && !l.subreaps {
		l.subreaps = true
		adopt(true)
	}
	agentLimit()
	l.count++
	return l.count, nil
}

// giveBack closes what guard has opened, unless something was started. Called with
// mu held.
func (l *Local) giveBack() {
	if l.count == 0 {
		l.poller.close()
		l.null.Close()
		l.pgids.close()
		l.groups.remove()
		l.poller, l.null, l.pgids, l.groups = nil, nil, nil, nil
	}
}

// environ returns the environment of a process of spec, whose working directory
// is dir.
func environ(spec *Spec, dir, tag string) []string {
	own := make(map[string]string)
	if spec.Env.from != nothing {
		if _, ok := spec.Env.with["TERM"]; !ok && !spec.Env.without["TERM"] {
			// Not the agent's: that is another terminal, or none.
			own["TERM"] = "dumb"
			if spec.TTY != nil {
				own["TERM"] = "xterm-256color"
			}
		}
		if _, ok := spec.Env.with["PWD"]; !ok && dir != "" {
			own["PWD"] = dir // as os/exec does, for shells that believe it
		}
	}
	list := slices.DeleteFunc(spec.Env.environ(own), func(kv string) bool { return strings.HasPrefix(kv, tagName+"=") })
	// First, where it is found however long the environment is.
	return append([]string{tagName + "=" + os.Getenv(tagName) + tag}, list...)
}

// getenv returns the value of name in a list of "NAME=value".
func getenv(environ []string, name string) string {
	for _, kv := range environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}
