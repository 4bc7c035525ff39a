package memterm

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/signals"
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

	// Stdout and Stderr are one and the same output, unless [Process.Fork] was told
	// otherwise. Writes to it never block; they fail once Killed is closed.
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

	// Find returns the Program of argv, found as that of Command.Args is, be it a
	// shell's; an unknown one is an error. Each run of it counts as a start. It is
	// nil where no [Manager] runs the Process.
	Find func(argv ...string) (Program, error)

	// Spawn starts another program, found as that of Command.Args is, as a
	// child: it shares the output and the signals of the command and may
	// outlive this process, as "PROGRAM &" in a shell. Its input is empty.
	Spawn func(args ...string) (terminal.Proc, error)

	self *Child // nil where no Manager runs it
}

// Fork starts prog as a child of this process, with the Args, Dir, Env, Stdin, Stdout
// and Stderr of child, which is a copy of this Process or of some fields of it.
// It has signals of its own, and may outlive this process. Where Stdout or Stderr has
// the method
//
//	WriteUntil(stopped <-chan struct{}, b []byte) (int, error)
//
// a write may wait until the process is stopped.
func (p *Process) Fork(child Process, prog Program) (*Child, error) {
	if p.self == nil {
		return nil, fmt.Errorf("memterm: fork: no Manager runs this process: %w", errors.ErrUnsupported)
	}
	c, ok := p.self.t.run(p.self, child, prog, func(terminal.Exit) {})
	if !ok {
		return nil, fmt.Errorf("memterm: fork: %w", errKilled)
	}
	return c, nil
}

// Ignore makes the process, and what it forks from now on, ignore signals, by their
// names, such as "SIGTERM".
func (p *Process) Ignore(names ...string) {
	if p.self != nil {
		p.self.t.mu.Lock()
		defer p.self.t.mu.Unlock()
		p.self.ignored = append(slices.Clone(p.self.ignored), names...)
	}
}

// Others returns the other processes of the command that have not ended.
func (p *Process) Others() []*Child {
	if p.self == nil {
		return nil
	}
	t := p.self.t
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(t.procs)), func(c *Child) bool { return c == p.self })
}

// A Child is a process of a command, as another one sees it. Its methods may be called
// from any number of goroutines.
type Child struct {
	terminal.Proc
	t       *term
	signals chan os.Signal
	stopped chan struct{} // closed by the first signal that ends: Process.Stopped
	killed  chan struct{} // closed by SIGKILL: Process.Killed
	done    chan struct{} // closed when it has ended: exit is valid
	exit    terminal.Exit

	// t.mu guards following
	death   string // the signal that closed stopped
	ignored []string
}

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exit is how it has ended; it waits for that.
func (c *Child) Exit() terminal.Exit {
	<-c.done
	return c.exit
}

// Signal sends a signal to this process only.
func (c *Child) Signal(sig os.Signal) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.signal(sig)
}

// signal sends a signal. Called with t.mu held.
func (c *Child) signal(sig os.Signal) {
	name := SignalName(sig)
	switch {
	case name == "SIGKILL":
		if !await.Closed(c.killed) {
			close(c.killed)
			c.stop(name)
		}
		return
	case slices.Contains(c.ignored, name):
		return
	}
	select {
	case c.signals <- sig:
	default:
	}
	if ends(sig) {
		c.stop(name)
	}
}

// stop closes stopped. Called with t.mu held.
func (c *Child) stop(name string) {
	if c.death == "" {
		c.death = name
		close(c.stopped)
	}
}

func (c *Child) deathNow() terminal.Exit {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if c.death == "" {
		return Signal("SIGTERM")
	}
	return Signal(c.death)
}

// A writer is a process's end of an output.
type writer struct {
	c   *Child
	out io.Writer
}

func (w writer) Write(b []byte) (int, error) {
	if await.Closed(w.c.killed) {
		return 0, errKilled
	}
	if out, ok := w.out.(interface {
		WriteUntil(stopped <-chan struct{}, b []byte) (int, error)
	}); ok {
		return out.WriteUntil(w.c.stopped, b)
	}
	return w.out.Write(b)
}

// connect makes the ends of inputs and outputs that another process of the command has
// c's own.
func (c *Child) connect(p *Process) {
	if r, ok := p.Stdin.(reader); ok {
		p.Stdin = reader{r.in, c.stopped}
	}
	for _, out := range []*io.Writer{&p.Stdout, &p.Stderr} {
		if w, ok := (*out).(writer); ok {
			*out = w.out
		}
		*out = writer{c, *out}
	}
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
	if name := signals.Described(sig.String()); name != "" {
		return name
	}
	return sig.String()
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
