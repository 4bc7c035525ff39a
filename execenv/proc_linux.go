package execenv

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

const defaultLang = "C.UTF-8"

// young reports whether a process was forked just now.
func (p proc) young() bool { return p.start+ticks/5 > now() }

// ticks is how many units of a process's start time a second has: USER_HZ.
const ticks = 100

// now returns the present as processes' start times are counted, or a little
// earlier.
func now() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return uint64(max(0, t.Nano()/(1e9/ticks)-1))
}

// An ident is a process for all time: its id may be given to another, but not
// with the same start. See also scanned.
type ident struct {
	pid   int
	start uint64
}

// A proc is a line of the process table.
type proc struct {
	ident
	ppid, pgid, sid int
	dead            bool // a zombie, or worse
	bare            bool // its environment is known to be empty
	seen            *sight
}

// A sight is what was seen of a process's environment, for all who have the same
// line of the table.
type sight struct {
	mu sync.Mutex
	// guards following
	read  bool
	tags  []byte
	state tagState
}

// A tagState says whether a process's tags are all to be seen.
type tagState int

const (
	tagsShown    tagState = iota
	tagsHidden            // it is another user's, or the system protects it, or it has cleared its environment
	tagsFleeting          // there is no environment, as in the middle of an exec
)

// allProcs returns the process table, in the order of the ids, or nil if it cannot
// be read.
func allProcs() []proc {
	procs, _ := readProcs()
	return procs
}

// readProcs returns an error if it does not see everybody, and without a table why.
func readProcs() ([]proc, error) {
	if err := ownProcfs(); err != nil {
		return nil, err
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	procs := make([]proc, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			p, err := statProc(pid)
			if err == nil {
				procs = append(procs, p)
			} else if _, short := shortages[errnoOf(err)]; short {
				return nil, err
			}
		}
	}
	if _, err := statProc(1); err != nil && os.Getpid() != 1 {
		return procs, errHidden
	}
	return procs, nil
}

// ownProcfs returns why /proc cannot be trusted: it is missing, empty, or shows
// the processes of another namespace, whose ids mean others here.
func ownProcfs() error {
	var buf [4 << 10]byte
	link, err := os.Readlink("/proc/self")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("/proc is not mounted")
	case err != nil:
		return err
	case link != strconv.Itoa(self):
		return errOtherProcfs
	}
	// One id for each namespace from that of /proc to ours.
	status, err := readFile("/proc/self/status", buf[:])
	if err != nil {
		return err
	}
	_, ids, found := strings.Cut(string(status), "\nNSpid:")
	ids, _, _ = strings.Cut(ids, "\n")
	if found && len(strings.Fields(ids)) > 1 {
		return errOtherProcfs
	}
	return nil
}

var errHidden = errors.New("/proc hides the processes of other users (hidepid)")

var errOtherProcfs = errors.New("/proc is that of another pid namespace")

// lastPID returns the process id that was given last, or 0 if that is not known.
func lastPID() int {
	var buf [128]byte
	data, err := readFile("/proc/sys/kernel/ns_last_pid", buf[:])
	if err != nil { // a kernel without checkpoints
		data, _ = readFile("/proc/loadavg", buf[:])
	}
	fields := strings.Fields(string(data))
	if len(fields) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[len(fields)-1])
	return pid
}

// isThread reports whether an id is that of a thread which is not its process.
func isThread(id int) bool {
	var buf [1 << 10]byte
	_, rest, _ := strings.Cut(string(readProcFile(id, "status", buf[:])), "\nTgid:\t")
	tgid, _, _ := strings.Cut(rest, "\n")
	return tgid != "" && tgid != strconv.Itoa(id)
}

func readProc(pid int) (p proc, ok bool) {
	p, err := statProc(pid)
	return p, err == nil
}

func statProc(pid int) (p proc, err error) {
	var buf [1 << 10]byte
	stat, err := openProcFile(pid, "stat", buf[:])
	if err != nil {
		return p, err
	}
	return parseStat(pid, stat)
}

// parseStat takes a line of the process table from /proc/PID/stat.
func parseStat(pid int, stat []byte) (p proc, err error) {
	// The name in parentheses may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return p, unix.ESRCH
	}
	p.pid = pid
	// Its first thread may have ended before the others.
	p.dead = (fields[0] == "Z" || fields[0] == "X") && fields[17] <= "1"
	p.ppid, _ = strconv.Atoi(fields[1])
	p.pgid, _ = strconv.Atoi(fields[2])
	p.sid, _ = strconv.Atoi(fields[3])
	p.start, _ = strconv.ParseUint(fields[19], 10, 64)
	// Zeros stand for what we may not look into. An exec sets the end of the
	// environment after its begin, and the end of the code after both.
	if len(fields) > 48 {
		p.bare = fields[47] == fields[48] && fields[48] != "0" && fields[24] != "0"
	}
	p.seen = new(sight)
	return p, nil
}

// readProcFile reads as much of a file as buf holds.
func readProcFile(pid int, name string, buf []byte) []byte {
	data, _ := openProcFile(pid, name, buf)
	return data
}

// openProcFile is readProcFile, but says why the file cannot be opened.
func openProcFile(pid int, name string, buf []byte) ([]byte, error) {
	return readFile("/proc/"+strconv.Itoa(pid)+"/"+name, buf)
}

// readFile reads as much of a file as buf holds.
func readFile(name string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || m <= 0 {
			break
		}
		n += m
	}
	return buf[:n], nil
}

// tags returns what the process's environment says of the Locals that it comes
// from. With again, it looks once more if there was nothing to be seen.
func (p proc) tags(again bool) ([]byte, tagState) {
	if p.seen == nil { // no process table
		return nil, tagsHidden
	}
	e := p.seen
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.read || again && e.state == tagsFleeting {
		e.tags, e.state = p.readTags()
		e.read = true
	}
	return e.tags, e.state
}

func (p proc) readTags() ([]byte, tagState) {
	if p.ppid == 2 || p.pid == 2 { // threads of the kernel
		return nil, tagsShown
	}
	buf := environs.Get().(*[]byte)
	defer environs.Put(buf)
	env, err := openProcFile(p.pid, "environ", *buf)
	if len(env) == len(*buf) { // of a shell that has sorted it
		env, err = openProcFile(p.pid, "environ", make([]byte, maxEnviron))
	}
	switch {
	case err != nil:
		return nil, tagsHidden
	case len(env) == 0:
		if now, ok := readProc(p.pid); ok && now.bare {
			return nil, tagsHidden
		}
		return nil, tagsFleeting
	}
	for len(env) > 0 {
		var entry []byte
		entry, env, _ = bytes.Cut(env, []byte{0})
		if value, ok := bytes.CutPrefix(entry, []byte(tagName+"=")); ok {
			return bytes.Clone(value), tagsShown
		}
	}
	return nil, tagsShown
}

// environs are for environments in one read: between two the process may exit or
// exec, and the rest is gone. What a Local starts has its tags in the first bytes.
var environs = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// maxEnviron is more than an exec takes.
const maxEnviron = 8 << 20

// reap takes the exit of a process that the agent has adopted.
func (p proc) reap() {
	if fd, err := unix.PidfdOpen(p.pid, 0); err == nil {
		defer unix.Close(fd)
		if q, ok := readProc(p.pid); ok && q.ident == p.ident && offered().pidfdWait {
			unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG, nil)
			return
		}
	}
	unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
}

// holders returns the processes that hold the other end of one of streams.
func holders(streams []*stream) (ids []ident) {
	if len(streams) == 0 {
		return nil
	}
	links := make(map[string]bool)
	for _, s := range streams {
		links[s.otherEnd()] = true
	}
	for _, p := range allProcs() {
		if p.pid == self || p.dead {
			continue
		}
		dir := "/proc/" + strconv.Itoa(p.pid) + "/fd"
		f, err := os.Open(dir)
		if err != nil {
			continue
		}
		names, _ := f.Readdirnames(-1)
		f.Close()
		for _, name := range names {
			if link, err := os.Readlink(dir + "/" + name); err == nil && links[link] {
				ids = append(ids, p.ident)
				break
			}
		}
	}
	return ids
}

// otherEnd returns what /proc/PID/fd shows of a descriptor of the other end.
func (s *stream) otherEnd() (link string) {
	raw, err := s.f.SyscallConn()
	if err != nil {
		return ""
	}
	raw.Control(func(fd uintptr) {
		if s.terminal {
			if n, err := unix.IoctlGetUint32(int(fd), unix.TIOCGPTN); err == nil {
				link = "/dev/pts/" + strconv.Itoa(int(n))
			}
			return
		}
		link, _ = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(fd)))
	})
	return link
}

// alive reports whether the very process still runs. Zombies do not.
func (id ident) alive() bool {
	if id.scanned() {
		now, err := scanned(id.pid)
		return err == nil && now == id && !isZombie(id.pid)
	}
	p, ok := readProc(id.pid)
	return ok && p.ident == id && !p.dead
}

// signal signals the very process, or returns os.ErrProcessDone.
func (id ident) signal(sig syscall.Signal) error {
	if k := offered(); k.pidfdOpen && k.pidfdSignal {
		fd, err := unix.PidfdOpen(id.pid, 0)
		switch {
		case err == nil: // what fd names is checked, and cannot change any more
			defer unix.Close(fd)
			if !id.alive() {
				return os.ErrProcessDone
			}
			return done(unix.PidfdSendSignal(fd, sig, nil, 0))
		case errors.Is(err, unix.ESRCH):
			return os.ErrProcessDone
		}
	}
	if !id.alive() {
		return os.ErrProcessDone
	}
	return done(unix.Kill(id.pid, sig))
}

// describe returns the process for people.
func (id ident) describe() terminal.Proc {
	var buf [maxCommand]byte
	line := bytes.TrimRight(readProcFile(id.pid, "cmdline", buf[:]), "\x00")
	command := strings.Map(func(r rune) rune { // one line
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(line), "\uFFFD"))
	if command == "" {
		command = strings.TrimSpace(string(readProcFile(id.pid, "comm", buf[:])))
	}
	return terminal.Proc{PID: id.pid, Command: command}
}

const maxCommand = 200
