package execenv

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// InputState asks the kernel what the processes in the foreground do, that is
// those who would get what is typed.
//
//   - One that is blocked in a read of the terminal (or of the pipe that is
//     its standard input) waits: certain.
//   - One that sleeps in poll, select or epoll with the terminal among what
//     it waits for, while the terminal gives single keys and not lines, waits
//     for a key: likely, as it does for an editor or a shell's prompt, and
//     not for a program that repaints every second. So does one that sleeps so
//     with the pipe.
//   - One that may not be looked into (sudo) and sleeps, while the terminal
//     does not echo lines, asks for a password: likely.
//   - Where nothing shows what processes do (no /proc, gVisor), a terminal that
//     gives single keys, or does not echo lines, is all that can be seen of such a
//     wait: likely. Who reads lines, or a pipe, cannot be seen there.
//
// What is on the screen does not count: a program that prints "Password: "
// and computes does not wait. The caller knows whether output is quiet.
func (s *session) InputState() (terminal.Activity, terminal.Evidence) {
	select {
	case <-s.exited:
		return terminal.Finished, terminal.Evidence{Certainty: terminal.Certain, Reason: s.Exit().String()}
	default:
	}
	state, evidence := s.inputState()
	if state == terminal.Waiting && slices.ContainsFunc(s.streams, (*stream).pending) {
		return terminal.Working, terminal.Evidence{Certainty: terminal.NoCertainty, Reason: "its output is not read to the end"}
	}
	return state, evidence
}

// inputState is InputState of a process that runs.
func (s *session) inputState() (terminal.Activity, terminal.Evidence) {
	if !seesInput() {
		in := s.input()
		e := in.byModes()
		if e.Certainty == terminal.NoCertainty {
			return terminal.Working, e
		}
		if e.Proc.PID = s.foregroundGroup(); ownProcfs() == nil {
			e.Proc = ident{pid: e.Proc.PID}.describe()
		}
		e.Prompt = e.Proc.PID == s.child.pid && isShell(append([]string{s.spec.Path}, s.spec.Args...))
		return terminal.Waiting, e
	}
	for _, w := range s.waiting() {
		return terminal.Waiting, w.Evidence
	}
	return terminal.Working, terminal.Evidence{Certainty: terminal.NoCertainty}
}

// byModes returns what the terminal's modes show of somebody who waits for input.
func (in input) byModes() terminal.Evidence {
	switch {
	case in.pipe || len(in.links) == 0:
	case !in.lines:
		return terminal.Evidence{Certainty: terminal.Likely, Reason: "the terminal gives single keys"}
	case !in.echo:
		return terminal.Evidence{Certainty: terminal.Likely, Reason: "the terminal does not echo", Secret: true}
	}
	return terminal.Evidence{Certainty: terminal.NoCertainty, Reason: "the system does not show what processes wait for"}
}

// A waiter is a process that waits for input.
type waiter struct {
	proc
	terminal.Evidence
}

// waiting returns the processes in the foreground that wait for input.
func (s *session) waiting() (waiters []waiter) {
	in := s.input()
	if len(in.links) == 0 {
		return nil
	}
	for _, p := range s.foreground() {
		if e := in.evidence(p); e.Certainty != terminal.NoCertainty {
			words := p.words()
			e.Prompt = p.pid == s.child.pid && isShell(words) && !(in.lines && editsLines(words))
			waiters = append(waiters, waiter{p, e})
		}
	}
	return waiters
}

// An input is what a process may wait for.
type input struct {
	links []string // as its descriptor looks in /proc/PID/fd
	pipe  bool
	lines bool // the terminal gives lines
	echo  bool
}

func (s *session) input() (in input) {
	switch {
	case s.term != nil:
		in.lines, in.echo = true, true
		in.links = []string{s.term.otherEnd()}
		if s.spec.TTY.Input {
			in.links = append(in.links, "/dev/tty")
		}
		s.term.control(func(fd int) error {
			modes, err := unix.IoctlGetTermios(fd, getTermios)
			if err == nil {
				in.lines, in.echo = modes.Lflag&unix.ICANON != 0, modes.Lflag&unix.ECHO != 0
			}
			return err
		})
	case s.ends[0] != nil:
		if link := (&stream{f: s.ours[0]}).otherEnd(); link != "" { // else it is closed
			in.links, in.pipe = []string{link}, true
		}
	}
	return in
}

// foreground returns the processes in the foreground: those of the terminal's
// foreground group; without such a terminal all that the process started.
func (s *session) foreground() []proc {
	pgid, pid := s.foregroundGroup(), s.child.pid
	belongs := func(p proc) bool {
		return !p.dead && (pgid > 0 && p.pgid == pgid || pgid <= 0 && p.sid == pid)
	}
	var found []proc
	for list := []int{pid}; len(list) > 0; list = list[1:] {
		if p, ok := readProc(list[0]); ok && (belongs(p) || pgid <= 0 && !p.dead) {
			found = append(found, p)
		}
		list = append(list, children(list[0])...)
	}
	if len(found) == 0 { // they are nobody's children any more
		found = slices.DeleteFunc(allProcs(), func(p proc) bool { return !belongs(p) })
	}
	return found
}

// foregroundGroup returns the group in the foreground of a terminal that is the
// session's, else 0.
func (s *session) foregroundGroup() (pgid int) {
	if s.term != nil && s.spec.TTY.Input {
		s.term.control(func(fd int) (err error) {
			pgid, err = foreground(fd)
			return err
		})
	}
	return pgid
}

// children returns the children of a process, or nothing.
func children(pid int) (pids []int) {
	for _, task := range tasks(pid) {
		data, _ := os.ReadFile(task + "/children")
		for field := range strings.FieldsSeq(string(data)) {
			if n, err := strconv.Atoi(field); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// tasks returns the directories of the threads of a process, or nothing.
func tasks(pid int) (dirs []string) {
	dir := fmt.Sprintf("/proc/%d/task/", pid)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		dirs = append(dirs, dir+e.Name())
	}
	return dirs
}

// evidence looks at each thread of a process.
func (in *input) evidence(p proc) terminal.Evidence {
	none := terminal.Evidence{Certainty: terminal.NoCertainty}
	say := func(c string, what string) terminal.Evidence {
		var buf [64]byte
		name := strings.TrimSpace(string(readProcFile(p.pid, "comm", buf[:])))
		return terminal.Evidence{
			Certainty: c, Reason: fmt.Sprintf("%s (%d) %s", name, p.pid, what),
			Secret: in.lines && !in.echo, Proc: p.describe(),
		}
	}
	reads, waits := false, false
	for _, task := range tasks(p.pid) {
		data, err := os.ReadFile(task + "/syscall")
		switch {
		case errors.Is(err, fs.ErrPermission):
			if in.lines && !in.echo && p.asleep() {
				return say(terminal.Likely, "sleeps, and the terminal does not echo")
			}
			return none
		case err != nil:
			continue // the thread has ended
		}
		call, args, ok := parseSyscall(string(data))
		switch {
		case !ok:
			return none // it computes; who reads beside that waits for nobody
		case call == unix.SYS_READ || call == unix.SYS_READV:
			reads = reads || in.isFD(p.pid, int(int32(args[0])))
		case slices.ContainsFunc(polled(p.pid, call, args), func(fd int) bool { return in.isFD(p.pid, fd) }):
			waits = true
		}
	}
	switch {
	case reads:
		return say(terminal.Certain, "reads its input")
	case waits && in.pipe:
		return say(terminal.Likely, "waits for its input")
	case waits && !in.lines:
		return say(terminal.Likely, "waits for a key")
	}
	return none
}

// words returns the words of a process.
func (p proc) words() []string {
	var buf [4 << 10]byte
	line := strings.TrimRight(string(readProcFile(p.pid, "cmdline", buf[:])), "\x00")
	return strings.Split(line, "\x00")
}

var shells = []string{"sh", "ash", "bash", "dash", "fish", "ksh", "mksh", "rbash", "tcsh", "csh", "zsh", "nu", "xonsh", "elvish", "pwsh"}

// isShell reports whether these words are those of a shell that reads commands
// from its input, and runs neither a line (-c) nor a script.
func isShell(words []string) bool {
	if path.Base(words[0]) == "busybox" {
		words = words[1:]
	}
	if len(words) == 0 || !slices.Contains(shells, strings.TrimPrefix(path.Base(words[0]), "-")) {
		return false
	}
	for i := 1; i < len(words); i++ {
		switch w := words[i]; {
		case w == "--rcfile", w == "--init-file", w == "-o", w == "+o", w == "-O", w == "+O":
			i++ // its value
		case w == "--", strings.HasPrefix(w, "--c"): // --command of some
			return i == len(words)-1 && w == "--"
		case strings.HasPrefix(w, "--"), strings.HasPrefix(w, "+"):
		case !strings.HasPrefix(w, "-") || strings.Contains(w, "c"):
			return false
		}
	}
	return true
}

// editsLines reports whether the shell of these words edits lines at its prompt by
// itself: where the terminal does, the shell reads for a command of its own, such as
// read.
func editsLines(words []string) bool {
	editors := []string{"bash", "rbash", "zsh", "fish", "tcsh", "nu", "xonsh", "elvish", "pwsh"}
	return slices.Contains(editors, strings.TrimPrefix(path.Base(words[0]), "-")) && !slices.Contains(words, "--noediting")
}

// isFD reports whether a process's descriptor is the input.
func (in *input) isFD(pid, fd int) bool {
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	return err == nil && slices.Contains(in.links, link)
}

// asleep reports whether all threads of a process sleep until something happens.
func (p proc) asleep() bool {
	threads := tasks(p.pid)
	for _, task := range threads {
		var buf [512]byte
		stat, _ := readFile(task+"/stat", buf[:])
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && !bytes.HasPrefix(stat[i:], []byte(") S")) {
			return false
		}
	}
	return len(threads) > 0
}

// parseSyscall parses /proc/PID/task/TID/syscall: the number and six arguments
// of the system call in which the thread sleeps. It fails for one that runs.
func parseSyscall(line string) (call uint64, args [6]uint64, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 7 || strings.HasPrefix(fields[0], "-") {
		return 0, args, false
	}
	call, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return 0, args, false
	}
	for i := range args {
		if args[i], err = strconv.ParseUint(fields[i+1], 0, 64); err != nil {
			return 0, args, false
		}
	}
	return call, args, true
}

// polled returns the descriptors for which a thread waits in a system call.
func polled(pid int, call uint64, args [6]uint64) (fds []int) {
	switch {
	case slices.Contains(pollCalls, call): // struct pollfd *, count
		data := readMemory(pid, args[0], 8*min(args[1], 1024))
		for ; len(data) >= 8; data = data[8:] {
			if binary.NativeEndian.Uint16(data[4:])&unix.POLLIN != 0 {
				fds = append(fds, int(int32(binary.NativeEndian.Uint32(data))))
			}
		}
	case slices.Contains(selectCalls, call): // highest + 1, fd_set *
		n := min(args[0], 1024)
		data := readMemory(pid, args[1], 128)
		for fd := range int(n) {
			// A set is of longs; this holds for both byte orders.
			word, bit := fd/64*8, fd%64
			if word+8 <= len(data) && binary.NativeEndian.Uint64(data[word:])>>bit&1 != 0 {
				fds = append(fds, fd)
			}
		}
	case slices.Contains(epollCalls, call): // descriptor
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, int32(args[0])))
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) > 1 && fields[0] == "tfd:" {
				if fd, err := strconv.Atoi(fields[1]); err == nil {
					fds = append(fds, fd)
				}
			}
		}
	}
	return fds
}

// readMemory reads a process's memory, as far as that may be.
func readMemory(pid int, addr, n uint64) []byte {
	if addr == 0 || n == 0 {
		return nil
	}
	buf := make([]byte, n)
	local := []unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(int(n))
	m, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: int(n)}}, 0)
	if err != nil {
		return nil
	}
	return buf[:max(m, 0)]
}
