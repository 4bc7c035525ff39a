//go:build linux || darwin

package execenv

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// A launch is a process to be started.
type launch struct {
	path      string // with a slash
	argv, env []string
	dir       string
	session   bool // in a session of its own
	control   bool // standard input becomes its controlling terminal
}

// start starts the process, in group if that is not nil and can be used. The
// error is the operating system's.
func (l *launch) start(files []*os.File, group *cgroup) (*child, error) {
	attr := &syscall.ProcAttr{
		Dir: l.dir,
		Env: l.env,
		Sys: &syscall.SysProcAttr{Setsid: l.session, Setctty: l.control}, // Ctty 0 is the child's descriptor
	}
	for _, f := range files {
		// Fd makes a file blocking, which is right for what a command gets; the
		// agent's own ends are never in here.
		attr.Files = append(attr.Files, f.Fd())
	}
	keepToOurselves()
	defer defaultSignals()()
	// Another start may just have forked while somebody wrote this program: its
	// child holds the file open for writing until it execs. That passes.
	wait := time.Millisecond
	for {
		c, err := startChild(l.path, l.argv, attr, group)
		if !errors.Is(err, syscall.ETXTBSY) || wait > 64*time.Millisecond {
			return c, err
		}
		time.Sleep(wait)
		wait *= 2
	}
}

// lookPath finds a program as the process itself would: a name without a slash
// in the directories of path. Relative directories are left out, since what
// they mean changes with the working directory.
func lookPath(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var denied error
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		switch {
		case err != nil || !info.Mode().IsRegular():
		case unix.Access(file, unix.X_OK) == nil:
			return file, nil
		case denied == nil:
			denied = because(ErrNotExecutable, &fs.PathError{Op: "exec", Path: file, Err: syscall.EACCES})
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", because(ErrNoCommand, fmt.Errorf("not in PATH %q: %w", path, fs.ErrNotExist))
}

// shortages are the errors of a start that may pass, and what helps.
var shortages = map[syscall.Errno]string{
	syscall.EMFILE: "the agent has too many files open: end some commands, or raise its limit (ulimit -n)",
	syscall.ENFILE: "this machine has too many files open: end some processes, or raise its limit (sysctl fs.file-max)",
	syscall.EAGAIN: "no more processes are allowed: end some, or raise the limit of the user (ulimit -u) or of the container (pids.max)",
	syscall.ENOMEM: "no memory: end some processes",
}

// short reports whether something has run out.
func short(err error) bool {
	_, ok := shortages[errnoOf(err)]
	return ok
}

// explain turns the error of a start into one of the reasons of this package.
// The kernel has one number for a missing directory, program and interpreter.
func explain(err error, path, dir string) error {
	errno := errnoOf(err)
	if errno == 0 {
		return err
	}
	if advice, short := shortages[errno]; short {
		return fmt.Errorf("%w: %s (%w)", ErrNoResources, advice, err)
	}
	if isReason(err) {
		return err
	}
	switch errno {
	case syscall.E2BIG:
		return because(terminal.ErrTooLarge, err)
	case syscall.ETXTBSY:
		return because(ErrTextBusy, err)
	case syscall.ENOEXEC:
		return because(ErrExecFormat, err)
	case syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.ELOOP, syscall.ENAMETOOLONG:
	default:
		return err
	}
	if path == "" {
		return err
	}
	if dir != "" {
		if e := unix.Access(dir, unix.X_OK); e != nil {
			return because(ErrNoDir, e)
		}
		if info, e := os.Stat(dir); e == nil && !info.IsDir() {
			return because(ErrNoDir, syscall.ENOTDIR)
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
	}
	info, e := os.Stat(path)
	switch {
	case errors.Is(e, fs.ErrPermission):
		return because(ErrNotExecutable, err)
	case e != nil:
		return because(ErrNoCommand, e)
	case info.IsDir():
		return because(ErrIsDirectory, err)
	case !info.Mode().IsRegular(): // to open it might wait, or do something
		return because(ErrNotExecutable, fmt.Errorf("not a regular file: %w", err))
	case unix.Access(path, unix.X_OK) != nil:
		return because(ErrNotExecutable, err)
	}
	if errno == syscall.ENAMETOOLONG { // gVisor's E2BIG
		return because(terminal.ErrTooLarge, err)
	}
	// The file itself is in order, so it is what it needs to run.
	if name, _ := interpreter(path); name != "" {
		return because(ErrBadInterpreter, fmt.Errorf("%s: %w", name, err))
	}
	if errno == syscall.EACCES { // a file system that is mounted noexec
		return because(ErrNotExecutable, err)
	}
	return because(ErrBadInterpreter, err)
}

// errnoOf returns the number of the operating system in err, or 0.
func errnoOf(err error) syscall.Errno {
	errno, _ := errors.AsType[syscall.Errno](err)
	return errno
}

func isReason(err error) bool {
	_, ok := errors.AsType[startReason](err)
	return ok
}

// busy reports whether the kernel makes those wait who open a program, or what
// interprets it: another process has a lease on it, and is asked to give it back.
func busy(path, dir string) bool {
	for range 5 {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		var info unix.Stat_t
		if unix.Stat(path, &info) != nil || info.Mode&unix.S_IFMT != unix.S_IFREG {
			return false // the exec returns why
		}
		name, err := interpreter(path)
		if err != nil || name == "" {
			return errors.Is(err, unix.EWOULDBLOCK)
		}
		path = name
	}
	return false
}

// interpreter returns what the #! line of a script names, or "". It does not wait
// for a file that is none, a FIFO, and opens no device.
func interpreter(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var buf [256]byte
	n, _ := unix.Read(fd, buf[:])
	line, ok := bytes.CutPrefix(buf[:max(n, 0)], []byte("#!"))
	if !ok {
		return "", nil
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	if words := strings.Fields(string(line)); len(words) > 0 {
		return words[0], nil
	}
	return "", nil
}

// abandon ends a process that nobody wants, with all that it has started in its
// group.
func (c *child) abandon() {
	c.group.kill()
	c.signalGroup(unix.SIGKILL)
	c.signal(unix.SIGKILL)
	c.reap()
	c.group.put()
}

// hungUp reports whether nobody holds the other end of a pipe or a terminal.
func hungUp(fd int) bool { return polls(fd, unix.POLLHUP) }

// polls reports whether a descriptor has an event.
func polls(fd int, event int16) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: event}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&event != 0
}

func isHangup(err error) bool { return errors.Is(err, syscall.EIO) }

// toSignal returns the signal that the system calls take.
func toSignal(sig os.Signal) (syscall.Signal, error) {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return 0, fmt.Errorf("execenv: signal %v: %w", sig, errors.ErrUnsupported)
	}
	return s, nil
}

// signalGroup signals the group that the process leads. The caller makes sure
// that it is not reaped.
func (c *child) signalGroup(sig os.Signal) error {
	s, err := toSignal(sig)
	if err != nil {
		return err
	}
	return signalGroup(c.pid, s)
}

// signalGroup never reaches the agent's own group, nor all processes.
func signalGroup(pgid int, sig syscall.Signal) error {
	if pgid <= 1 || pgid == unix.Getpgrp() {
		return syscall.EPERM
	}
	return done(unix.Kill(-pgid, sig))
}

// done returns the error of a signal.
func done(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(sig)) // a real-time signal
}
