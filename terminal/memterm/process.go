package memterm

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// A Program is what a command runs: a function that reads, writes and returns
// how it exited. It runs in a goroutine of its own and must return soon after
// [Process.Killed] is closed; one that never does is a leak that
// [Manager.Close] reports.
type Program func(p *Process) terminal.Exit

// A Process is a running Program's view of the world. It is plain data, so that
// a Program can also be run by something else than a [Manager]: package
// terminaltest runs the same functions as real processes.
type Process struct {
	// Args are the words of the command, the program's name first.
	Args []string

	// Dir is the working directory, as it was asked for. Nothing checks that
	// it exists.
	Dir string

	// Env is Options.Env with Command.Env over it.
	Env map[string]string

	// Stdin is the input. Read returns io.EOF at once without Command.Stdin,
	// and [ErrStopped] once Stopped is closed.
	Stdin io.Reader

	// Stdout and Stderr are one and the same output. Writes never block; they
	// fail once Killed is closed.
	Stdout, Stderr io.Writer

	// TTY says that the output is a terminal, and Size is its size now.
	TTY  bool
	Size func() terminal.Size

	// Signals receives the signals that the process gets, all but SIGKILL. It
	// is buffered, and what does not fit is dropped.
	Signals <-chan os.Signal

	// Stopped is closed by the first signal that would end a process which
	// does not handle it, such as SIGTERM. A well-behaved Program then returns
	// Death().
	Stopped <-chan struct{}

	// Killed is closed by SIGKILL: what is written from then on is dropped, and
	// nobody waits for the Program any more.
	Killed <-chan struct{}

	// Death returns the Exit of a process that the signal that closed Stopped
	// has ended; SIGTERM before that.
	Death func() terminal.Exit

	// Spawn starts another program, found as that of Command.Args is, as a
	// child: it shares the output and the signals of the command and may
	// outlive this process, as "PROGRAM &" in a shell. Its input is empty.
	Spawn func(args ...string) (terminal.Proc, error)
}

// Sleep waits and reports true, or false as soon as Stopped is closed.
func (p *Process) Sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.Stopped:
		return false
	default:
	}
	select {
	case <-timer.C:
		return true
	case <-p.Stopped:
		return false
	}
}

// Code is the Exit of a process that exited with code n.
func Code(n int) terminal.Exit { return terminal.Exit{Code: &n} }

// Signal is the Exit of a process that the signal with this name ended, such as
// "SIGKILL".
func Signal(name string) terminal.Exit { return terminal.Exit{Signal: name} }

// ErrStopped is what reads of standard input return once the process has been
// asked to end.
var ErrStopped = errors.New("memterm: the process was asked to end")

// errKilled is what writes of a killed process return.
var errKilled = errors.New("memterm: the process was killed")

// SignalName returns the name of sig as [terminal.Exit] has it, such as
// "SIGTERM". Programs compare signals by name, since package syscall does not
// have all of them on every system.
func SignalName(sig os.Signal) string {
	if name, ok := signalNames[sig.String()]; ok {
		return name
	}
	return sig.String()
}

// signalNames are the names by what os.Signal's String returns, on Linux and,
// where they differ, on macOS.
var signalNames = map[string]string{
	"hangup":                "SIGHUP",
	"interrupt":             "SIGINT",
	"quit":                  "SIGQUIT",
	"killed":                "SIGKILL",
	"terminated":            "SIGTERM",
	"user defined signal 1": "SIGUSR1",
	"user defined signal 2": "SIGUSR2",
	"broken pipe":           "SIGPIPE",
	"alarm clock":           "SIGALRM",
	"window changed":        "SIGWINCH",
	"window size changes":   "SIGWINCH",
	"continued":             "SIGCONT",
	"stopped":               "SIGTSTP",
	"suspended":             "SIGTSTP",
}

// ends reports whether a process that does not handle sig ends by it.
func ends(sig os.Signal) bool {
	switch SignalName(sig) {
	case "SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM":
		return true
	}
	return false
}

// A signal is one that package syscall does not have on every system.
type signal string

func (s signal) String() string { return string(s) }
func (signal) Signal()          {}

const (
	sigINT   = syscall.SIGINT
	sigTERM  = syscall.SIGTERM
	sigQUIT  = syscall.SIGQUIT
	sigTSTP  = signal("stopped")
	sigWINCH = signal("window changed")
)
