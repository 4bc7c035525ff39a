package execenv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

const defaultLang = "en_US.UTF-8" // older systems have no C.UTF-8

const statZombie = 5 // SZOMB

// now returns 0: processes' start times are those of the wall clock, which may
// be set back.
func now() uint64 { return 0 }

// An ident is a process for all time: its id may be given to another, but not
// with the same start.
type ident struct {
	pid   int
	start uint64
}

// A proc is a line of the process table.
type proc struct {
	ident
	ppid, pgid, sid int
	dead            bool // a zombie
}

// allProcs returns the process table.
func allProcs() []proc {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	procs := make([]proc, 0, len(infos))
	for i := range infos {
		procs = append(procs, procOf(&infos[i]))
	}
	return procs
}

// young reports whether a process was forked just now.
func (p proc) young() bool { return p.start+uint64(200*time.Millisecond) > now() }

// lastPID is not known.
func lastPID() int { return 0 }

func isThread(int) bool { return false }

func isZombie(pid int) bool {
	p, ok := readProc(pid)
	return ok && p.dead
}

// adopt does nothing: orphans are launchd's.
func adopt(bool) {}

func mayAdopt(pid int) bool { return pid == 1 }

// Limits mark nobody here, and nothing better is known than a hint.
type limitTags struct{}

func (limitTags) digits() string              { return "" }
func newLimitTags() limitTags                 { return limitTags{} }
func (l limitTags) of(int) limitTags          { return l }
func (limitTags) has(unix.Rlimit) bool        { return false }
func (*process) alone() bool                  { return false }
func (*process) tagLimit(string) bool         { return false }
func isLimitTag(unix.Rlimit) bool             { return false }
func agentLimit() unix.Rlimit                 { return unix.Rlimit{} }
func isAgents(unix.Rlimit) bool               { return false }
func (window) misses(ident, unix.Rlimit) bool { return false }
func (ident) scanned() bool                   { return false }
func adopts() bool                            { return false }
func ownSession() int                         { return 0 }
func limitOf(int) (unix.Rlimit, error)        { return unix.Rlimit{}, errors.ErrUnsupported }

// A walk is one look at the process table.
type walk struct {
	last  int
	procs []proc
	err   error
}

func (*tree) look() *walk { return &walk{procs: allProcs()} }

func readProc(pid int) (proc, bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return proc{}, false
	}
	return procOf(info), true
}

func procOf(info *unix.KinfoProc) proc {
	p := proc{
		ident: ident{pid: int(info.Proc.P_pid), start: uint64(info.Proc.P_starttime.Nano())},
		ppid:  int(info.Eproc.Ppid),
		pgid:  int(info.Eproc.Pgid),
		dead:  info.Proc.P_stat == statZombie,
	}
	p.sid, _ = unix.Getsid(p.pid)
	return p
}

// A tagState says whether a process's tags are all to be seen.
type tagState int

const (
	tagsShown tagState = iota
	tagsHidden
	tagsFleeting
)

// tags returns the process's environment and arguments. Those of another user, or
// of a program that the system protects, are hidden.
func (p proc) tags(bool) ([]byte, tagState) {
	args, err := unix.SysctlRaw("kern.procargs2", p.pid)
	switch {
	case errors.Is(err, unix.EINVAL):
		return nil, tagsFleeting
	case err != nil:
		return nil, tagsHidden
	}
	return args, tagsShown
}

func (p proc) reap() { unix.Wait4(p.pid, nil, unix.WNOHANG, nil) }

// holders returns nobody: there is no way to see them without a C library.
func holders([]*stream) []ident { return nil }

// alive reports whether the very process still runs. Zombies do not.
func (id ident) alive() bool {
	p, ok := readProc(id.pid)
	return ok && p.ident == id && !p.dead
}

// signal signals the very process, or returns os.ErrProcessDone.
func (id ident) signal(sig syscall.Signal) error {
	if !id.alive() {
		return os.ErrProcessDone
	}
	return done(unix.Kill(id.pid, sig))
}

// describe returns the process for people.
func (id ident) describe() terminal.Proc {
	p := terminal.Proc{PID: id.pid}
	// The number of arguments, the path of the program, zeros, and the arguments.
	if args, err := unix.SysctlRaw("kern.procargs2", id.pid); err == nil && len(args) > 4 {
		n := int(binary.NativeEndian.Uint32(args))
		_, rest, _ := bytes.Cut(args[4:], []byte{0})
		words := bytes.SplitN(bytes.TrimLeft(rest, "\x00"), []byte{0}, n+1)
		p.Command = string(bytes.Join(words[:min(n, len(words))], []byte{' '}))
	} else if info, err := unix.SysctlKinfoProc("kern.proc.pid", id.pid); err == nil {
		comm, _, _ := bytes.Cut(info.Proc.P_comm[:], []byte{0})
		p.Command = string(comm)
	}
	p.Command = strings.ToValidUTF8(p.Command[:min(maxCommand, len(p.Command))], "\uFFFD")
	return p
}

const maxCommand = 200
