package execenv

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"

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
// the number of the process.
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

func (l limitTags) has(limit uint64) bool { return l.from != 0 && l.from <= limit && limit <= l.to }

// digits are what the tags of a Local begin with.
func (l limitTags) digits() string { return strconv.FormatUint(l.from/maxLimitTags, 10) }

func isLimitTag(limit uint64) bool { return firstLimitTag <= limit && limit <= lastLimitTag }

// set puts the tag on a process, and reports whether it is there.
func (l limitTags) set(pid int) bool {
	var limit unix.Rlimit
	if l.from == 0 || unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit) != nil || limit.Max < l.from {
		return false
	}
	limit.Cur = l.from
	return unix.Prlimit(pid, unix.RLIMIT_LOCKS, &limit, nil) == nil
}

// limitOf returns what stands in a process's RLIMIT_LOCKS.
func limitOf(pid int) (uint64, error) {
	var limit unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit)
	if err == nil || errors.Is(err, unix.ESRCH) {
		return limit.Cur, err
	}
	// It is another user's, or the system protects it.
	var buf [4 << 10]byte
	_, line, _ := bytes.Cut(readProcFile(pid, "limits", buf[:]), []byte("\nMax file locks"))
	fields := bytes.Fields(line[:min(len(line), 64)])
	switch {
	case len(fields) == 0:
		return 0, err
	case string(fields[0]) == "unlimited":
		return unix.RLIM_INFINITY, nil
	}
	return strconv.ParseUint(string(fields[0]), 10, 64)
}

// tagLimit puts the limit tag on a process that has just started, and on what it
// may have forked before. It reports whether nothing can have escaped: what has
// then a new id, and either a parent in the tree, or one that adopts orphans.
func (p *process) tagLimit(mark string) (all bool) {
	pid := p.child.pid
	if !p.limit.set(pid) {
		return false
	}
	if p.child.group != nil {
		return true // which knows all
	}
	const most = 1000
	all = true
	ours := map[int]bool{pid: true}
	for last := pid; ; {
		now := lastPID()
		if now == 0 && ownProcfs() != nil {
			now = pid + 64 // there is no better way, and hardly any time
		}
		switch {
		case now < last, now-pid > most:
			return false
		case now == last:
			return all
		}
		for ; last < now; last++ {
			q, ok := readProc(last + 1)
			if !ok {
				q.pid = last + 1
				q.sid, _ = unix.Getsid(q.pid)
			}
			escaped := ours[q.ppid] || q.sid == pid
			if limit, err := limitOf(q.pid); !escaped && ok && (err != nil || !isLimitTag(limit)) && !isThread(q.pid) && mayAdopt(q.ppid) {
				tags, state := q.tags(false)
				escaped = bytes.Contains(tags, []byte(mark))
				all = all && (escaped || state == tagsShown)
			}
			if escaped {
				if ours[q.pid] = true; !p.limit.set(q.pid) {
					all = false
					p.escaped = append(p.escaped, q.ident)
				}
			}
		}
	}
}

// noneSince reports whether no process has one of these tags, which all have that
// were started by one that has just exited, and that had the process id first.
func (l limitTags) noneSince(first int) bool {
	const most = 500
	for last := first; ; {
		now := lastPID()
		if now < last || now-first > most {
			return false
		}
		if now == last {
			return true
		}
		for ; last < now; last++ {
			limit, err := limitOf(last + 1)
			if err == nil && !l.has(limit) || errors.Is(err, unix.ESRCH) {
				continue
			}
			p, ok := readProc(last + 1)
			if !ok || !p.dead {
				return false
			}
			if p.ppid == self {
				p.reap()
			}
		}
	}
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
		if p.dead {
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
		limit = unix.RLIM_INFINITY
	}
	return ident{pid, limit}, err
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
