package execenv

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// cgroups are the cgroups (version 2) of a Local: one directory, with one
// below it for each live session. They limit nothing. They know every process
// that a session started, whatever it did to hide, and end it in one write.
// A nil *cgroups has none.
type cgroups struct {
	dir string

	mu sync.Mutex
	// guards following
	made int
	all  map[*cgroup]bool
	free []*cgroup
	off  bool // the kernel refused to start a process in one
}

// A cgroup is that of one session. A nil *cgroup is none.
type cgroup struct {
	of     *cgroups
	dir    string
	fd     *os.File // of dir
	events *os.File // cgroup.events

	killed atomic.Bool // then it is never used again; see put
}

// newCgroups makes a directory below parent, which is the agent's own cgroup
// if it is "". It returns nil where that cannot be done, which is usual: only
// root, and users to whom systemd has delegated a cgroup, may.
func newCgroups(parent, name string) *cgroups {
	switch parent {
	case NoCgroup:
		return nil
	case "":
		if parent = ownCgroup(); parent == "" {
			return nil
		}
	}
	dir := filepath.Join(parent, "termbridge-"+name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil { // before Linux 5.14
		os.Remove(dir)
		return nil
	}
	return &cgroups{dir: dir, all: make(map[*cgroup]bool)}
}

// ownCgroup returns the directory of the agent's cgroup, or "".
func ownCgroup() string {
	data, _ := os.ReadFile("/proc/self/cgroup")
	path, found := "", false
	for line := range strings.Lines(string(data)) {
		if path, found = strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found {
			break
		}
	}
	if !found {
		return ""
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		mount, rest, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || !strings.HasPrefix(rest, "cgroup2 ") {
			continue
		}
		root, point := fields[3], fields[4]
		if below, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")); ok {
			return filepath.Join(point, below)
		}
	}
	return ""
}

// get returns an empty cgroup. They are used again: making one costs more than
// all else that a start does beside the exec.
func (s *cgroups) get() *cgroup {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return nil
	}
	if n := len(s.free); n > 0 {
		g := s.free[n-1]
		s.free = s.free[:n-1]
		return g
	}
	s.made++
	g := s.make(filepath.Join(s.dir, strconv.Itoa(s.made)))
	if g != nil {
		s.all[g] = true
	}
	return g
}

func (s *cgroups) make(dir string) *cgroup {
	if os.Mkdir(dir, 0o755) != nil {
		return nil
	}
	fd, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		os.Remove(dir)
		return nil
	}
	events, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		fd.Close()
		os.Remove(dir)
		return nil
	}
	return &cgroup{of: s, dir: dir, fd: fd, events: events}
}

// maxFree is how many are kept to be used again: each holds two descriptors.
const maxFree = 8

// put gives a cgroup back in which nothing runs any more.
func (g *cgroup) put() {
	if g == nil {
		return
	}
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	switch {
	case g.of.off: // and perhaps removed
	case g.killed.Load(), len(g.of.free) == maxFree:
		// Linux 6.14 and later kill at once what starts in a cgroup that was
		// ever killed (they compare with the kills of the starter's own).
		delete(g.of.all, g)
		g.remove()
	default:
		g.of.free = append(g.of.free, g)
	}
}

// remove closes the files and removes the directory.
func (g *cgroup) remove() {
	g.fd.Close()
	g.events.Close()
	removeCgroup(g.dir)
}

// kill ends everything in all of them.
func (s *cgroups) kill() {
	if s != nil {
		killCgroup(s.dir)
	}
}

// populated reports whether a process runs in any of them.
func (s *cgroups) populated() bool {
	if s == nil {
		return false
	}
	var buf [128]byte
	data, _ := readFile(filepath.Join(s.dir, "cgroup.events"), buf[:])
	return bytes.Contains(data, populated)
}

// procs returns the processes in all of them.
func (s *cgroups) procs() []int {
	if s == nil {
		return nil
	}
	return cgroupProcs(s.dir)
}

// remove removes the directories: those in which something runs as soon as that
// has ended. The cgroups are not used after it.
func (s *cgroups) remove() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.all {
		g.remove()
	}
	s.off = true
	removeCgroup(s.dir)
	if events, err := os.Open(filepath.Join(s.dir, "cgroup.events")); err == nil {
		go func() { // which nobody joins: what runs there cannot be ended
			defer events.Close()
			awaitEmpty(events)
			removeCgroup(s.dir)
		}()
	}
}

// enter makes the process that attr starts a member.
func (g *cgroup) enter(attr *syscall.SysProcAttr) bool {
	if g == nil {
		return false
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(g.fd.Fd())
	return true
}

// mayHave reports whether err may be the cgroup's, not the program's: a system
// call filter, a cgroup that is not ours after all, has threads, or is gone.
func (g *cgroup) mayHave(err error) bool {
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EBUSY), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		return true
	case errors.Is(err, unix.ENOENT):
		_, err := os.Stat(g.dir)
		return err != nil
	}
	return false
}

// turnOff ends the use of cgroups.
func (s *cgroups) turnOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = true
}

// populated reports whether a process runs in it. Zombies do not count.
func (g *cgroup) populated() bool {
	if g == nil {
		return false
	}
	var buf [128]byte
	n, _ := g.events.ReadAt(buf[:], 0)
	return bytes.Contains(buf[:max(n, 0)], populated)
}

var populated = []byte("populated 1")

// awaitEmpty waits until nothing runs in it, or it is removed.
func (g *cgroup) awaitEmpty() { awaitEmpty(g.events) }

// awaitEmpty waits in the runtime's poller until a cgroup.events says that nothing
// runs, or is closed. The kernel reports each change since the last read.
func awaitEmpty(events *os.File) {
	raw, err := events.SyscallConn()
	if err != nil {
		return
	}
	raw.Read(func(fd uintptr) bool {
		var buf [128]byte
		n, err := unix.Pread(int(fd), buf[:], 0)
		return err != nil || !bytes.Contains(buf[:max(n, 0)], populated)
	})
}

func (g *cgroup) procs() []int {
	if !g.populated() {
		return nil
	}
	return cgroupProcs(g.dir)
}

func (g *cgroup) kill() {
	if g != nil {
		g.killed.Store(true)
		killCgroup(g.dir)
	}
}

func killCgroup(dir string) { os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) }

// cgroupProcs returns the processes in dir and below: a command may be an
// agent with cgroups of its own.
func cgroupProcs(dir string) (pids []int) {
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for line := range strings.Lines(string(data)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	for _, sub := range subdirs(dir) {
		pids = append(pids, cgroupProcs(sub)...)
	}
	return pids
}

func removeCgroup(dir string) {
	for _, sub := range subdirs(dir) {
		removeCgroup(sub)
	}
	os.Remove(dir)
}

func subdirs(dir string) (dirs []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(dir, e.Name()))
		}
	}
	return dirs
}
