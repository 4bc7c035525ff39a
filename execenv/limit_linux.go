package execenv

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A limit tag is a number that stands in RLIMIT_LOCKS of a process and of all that
// it starts, whatever that does: with another environment, session, user or
// parent. Linux has not limited anything by it since 2.4, passes it on as it does
// the others, and shows it to everybody. It tells whose a process is where neither
// /proc nor a cgroup does, by one system call. What it cannot do is to be there
// before the program begins: see process.tagLimit.
//
// A limit tag is the Local's number, of which the decimal digits come first, and
// the number of the process. The agent has one, too: see agentLimit.
const (
	firstLimitTag uint64 = 1e17
	lastLimitTag  uint64 = 1e18 - 1
	maxLimitTags         = 1e6 // of a Local
)

// limitTags are those from one to another. The zero value has none.
type limitTags struct{ from, to uint64 }

// newLimitTags returns those of a Local.
func newLimitTags() limitTags {
	n := (firstLimitTag/maxLimitTags + rand.Uint64N((lastLimitTag-firstLimitTag)/maxLimitTags)) * maxLimitTags
	return limitTags{n, n + maxLimitTags - 1}
}

// of returns the limit tag of process n of a Local.
func (l limitTags) of(n int) limitTags {
	if n >= maxLimitTags {
		return limitTags{}
	}
	return limitTags{l.from + uint64(n), l.from + uint64(n)}
}

func (l limitTags) has(limit unix.Rlimit) bool {
	return l.from != 0 && l.from <= limit.Cur && limit.Cur <= l.to
}

// digits are what the tags of a Local begin with.
func (l limitTags) digits() string { return strconv.FormatUint(l.from/maxLimitTags, 10) }

func isLimitTag(limit unix.Rlimit) bool {
	return firstLimitTag <= limit.Cur && limit.Cur <= lastLimitTag
}

// set puts the tag on a process, and reports whether it is there.
func (l limitTags) set(pid int) bool {
	var limit unix.Rlimit
	if l.from == 0 || unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit) != nil || limit.Max < l.from {
		return false
	}
	limit.Cur = l.from
	return unix.Prlimit(pid, unix.RLIMIT_LOCKS, &limit, nil) == nil
}

// agentLimit returns the limit of the agent itself, whose upper value is a number of
// its own, or the zero value if it cannot have one. A child has it from its fork on;
// its tag becomes its lower value. The kernel copies the limits before it gives the
// process id, so that a process may be forked at the very instant at which its parent
// is tagged, and be seen by no look of tagLimit. The limit of the agent shows that it
// comes from there: from the parent, or from what the agent starts by other means.
var agentLimit = sync.OnceValue(func() (limit unix.Rlimit) {
	if unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &limit) != nil {
		return unix.Rlimit{}
	}
	// Below that of the agent which this one is a command of, and above all tags.
	const from, to = lastLimitTag + 1, 10 * lastLimitTag
	most := min(limit.Max, to)
	if most <= from {
		return unix.Rlimit{}
	}
	limit.Max = from + rand.Uint64N(most-from)
	limit.Cur = min(limit.Cur, limit.Max)
	if unix.Prlimit(0, unix.RLIMIT_LOCKS, &limit, nil) != nil {
		return unix.Rlimit{}
	}
	return limit
})

// isAgents reports whether a limit is that of the agent.
func isAgents(limit unix.Rlimit) bool { return limit.Max != 0 && limit == agentLimit() }

// missedFor is how long after a process was tagged, in units of start times, one
// may begin that missed the tag.
const missedFor = 2 * ticks

// misses reports whether q may be one that was forked when p was tagged, or a child
// of that one, by its limit and its start.
func (w window) misses(q ident, limit unix.Rlimit) bool {
	return isAgents(limit) && (q.scanned() || w.from <= q.start && q.start <= w.to)
}

// limitOf returns a process's RLIMIT_LOCKS.
func limitOf(pid int) (limit unix.Rlimit, err error) {
	err = unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit)
	if err == nil || errors.Is(err, unix.ESRCH) {
		return limit, err
	}
	// It is another user's, or the system protects it.
	var buf [4 << 10]byte
	_, line, _ := bytes.Cut(readProcFile(pid, "limits", buf[:]), []byte("\nMax file locks"))
	fields := bytes.Fields(line[:min(len(line), 80)])
	if len(fields) < 2 {
		return limit, err
	}
	for i, value := range []*uint64{&limit.Cur, &limit.Max} {
		if *value, err = strconv.ParseUint(string(fields[i]), 10, 64); err != nil { // "unlimited"
			*value = unix.RLIM_INFINITY
		}
	}
	return limit, nil
}

// procfsShown returns what looks, once and not before it is asked, whether /proc is
// ours.
func procfsShown() func() bool {
	return sync.OnceValue(func() bool { return ownProcfs() == nil })
}

// tagLimit puts the limit tag on a process that has just started, and on what it
// may have forked before. It reports whether nothing can have escaped: what has
// then a new id, and either a parent in the tree, or one that adopts orphans.
func (p *process) tagLimit(tag string) (all bool) {
	pid := p.child.pid
	if agentLimit().Max == 0 || !p.limit.set(pid) {
		return false
	}
	defer func() { p.forked = window{p.since, now() + missedFor} }()
	if p.child.group != nil {
		return true // which knows all
	}
	const most = 1000
	all = true
	ours := map[int]bool{pid: true}
	shown := procfsShown()
	for last := pid; ; {
		now := lastPID()
		if now == 0 && !shown() {
			now = pid + 64 // there is no better way, and hardly any time
		}
		switch {
		case now < last, now-pid > most:
			return false
		case now == last:
			return all
		}
		for ; last < now; last++ {
			q, ok := proc{}, false
			if shown() {
				q, ok = readProc(last + 1)
			}
			if !ok {
				q.pid = last + 1
				q.sid, _ = unix.Getsid(q.pid)
			}
			escaped := ours[q.ppid] || q.sid == pid
			if limit, err := limitOf(q.pid); !escaped && ok && (err != nil || isAgents(limit)) && !isThread(q.pid) && mayAdopt(q.ppid) {
				tags, state := q.tags(false)
				escaped = bytes.Contains(tags, []byte(tag))
				all = all && (escaped || state == tagsShown)
			}
			if !escaped {
				continue
			}
			ours[q.pid] = true
			if p.limit.set(q.pid) {
				continue
			}
			if _, err := limitOf(q.pid); !errors.Is(err, unix.ESRCH) { // else its children are still to be looked at
				all = false
				p.escaped = append(p.escaped, q.ident)
			}
		}
	}
}

// alone reports whether no process lives that p has started, which has just exited.
func (p *process) alone() bool {
	const most = 500
	shown := procfsShown()
	for last := p.child.pid; ; {
		now := lastPID()
		if !p.limited || now < last || now-p.child.pid > most {
			return false
		}
		if now == last {
			return true
		}
		for ; last < now; last++ {
			id := last + 1
			limit, err := limitOf(id)
			ours := err != nil || p.limit.has(limit)
			if errors.Is(err, unix.ESRCH) || !ours && !isAgents(limit) {
				continue
			}
			if !shown() {
				return false
			}
			q, ok := readProc(id)
			switch {
			case !ours && (!ok || q.dead || !p.forked.misses(q.ident, limit) || p.session != nil && q.sid == ownSession()):
			case !ours && (q.ppid == self && !adopts() || errors.Is(unix.Tgkill(self, id, 0), nil)):
			case !ok || !q.dead:
				return false
			case q.ppid == self:
				q.reap()
			}
		}
	}
}

// ownSession returns the session of the agent.
func ownSession() int {
	sid, _ := unix.Getsid(0)
	return sid
}

// scan returns what can be seen without a process table: those with ids from first
// on, by their limits. It has seen all if all may be looked at; else why says why
// not.
func scan(first int, why error) *walk {
	w := &walk{err: why}
	last, ok := probePID()
	if !ok {
		return w
	}
	from, to := first, last
	if last < first { // the ids have begun anew
		if from, to = 2, oldMaxPID; first > to {
			return w
		}
	}
	w.procs = make([]proc, 0, 16)
	hidden := false
	for pid := from; pid <= to; pid++ {
		id, err := scanned(pid)
		switch {
		case errors.Is(err, unix.ESRCH):
			continue
		case err != nil:
			hidden = true
			continue
		case errors.Is(unix.Tgkill(pid, pid, 0), unix.ESRCH):
			continue // a thread, or it has ended
		}
		p := proc{ident: id, dead: isZombie(pid)}
		p.pgid, _ = unix.Getpgid(pid)
		p.sid, _ = unix.Getsid(pid)
		if p.dead || isChild(pid) {
			p.ppid = self
		}
		w.procs = append(w.procs, p)
	}
	if !hidden || ownUserOnly() {
		w.err = nil
	}
	return w
}

// oldMaxPID is the highest process id, where it has not been raised.
const oldMaxPID = 1 << 15

// scanned returns what names a process without a process table: its id, and in
// place of the start its limit tag.
func scanned(pid int) (ident, error) {
	limit, err := limitOf(pid)
	if !isLimitTag(limit) {
		limit.Cur = unix.RLIM_INFINITY
	}
	return ident{pid, limit.Cur}, err
}

func (id ident) scanned() bool { return id.start >= firstLimitTag }

// isZombie reports whether a process has exited and is not reaped. Without pidfds
// it knows of the agent's children only.
func isZombie(pid int) bool {
	if offered().pidfdOpen {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			defer unix.Close(fd)
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			return err == nil && n == 1
		}
	}
	var info siginfo
	err := (&child{pid: pid, pidfd: -1}).waitid(&info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG)
	return err == nil && info.pid != 0
}

// isChild reports whether a process is a child of the agent.
func isChild(pid int) bool {
	return (&child{pid: pid, pidfd: -1}).waitid(new(siginfo), unix.WEXITED|unix.WNOWAIT|unix.WNOHANG) == nil
}

// probePID returns the process id that was given last, by having one given.
func probePID() (int, bool) {
	probe := launch{path: "/bin/sh", argv: []string{"/bin/sh", "-c", ":"}, dir: "/"}
	c, err := probe.start(nil, nil)
	if err != nil {
		return 0, false
	}
	c.exit(0)
	c.reap()
	return c.pid, true
}
