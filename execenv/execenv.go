// Package execenv is how termbridge starts, watches and ends processes. An
// [Executor] makes a [Process] from a [Spec]; [Local] runs it on this machine,
// and executors for other places implement the same two interfaces.
//
//	local := execenv.NewLocal(nil)
//	defer local.Close()
//	out, err := local.Command(ctx, execenv.Spec{
//		Class: execenv.ClassWorkspaceTool,
//		Path:  "git", Args: []string{"status", "--short"},
//		Dir:   dir,
//	}).Output()
//
// A Process follows os/exec.Cmd in every method that has the same name. What a
// terminal needs beyond that is a [Session], found by type assertion.
//
// No type of an operating system, and no *exec.Cmd, is part of the API.
//
// # Lifetime
//
// A process with a context is killed when that ends, as in exec.CommandContext. What
// its command leaves behind lives until [Session.StopTree], or until the Executor is
// closed: [Local.Close] ends all that it has started and names what it could not end.
// If the agent dies, a watchdog does it.
//
// # Concurrency
//
// An Executor may be used from any number of goroutines. A Process is started once; what
// may be called beside what is as with exec.Cmd.
package execenv

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// An Executor makes processes. It may be used from any number of goroutines.
type Executor interface {
	// Command returns a Process that is not started yet. It makes no system
	// call and cannot fail: what is wrong with spec is reported by Start. When
	// ctx ends the process is killed, as in exec.CommandContext.
	Command(ctx context.Context, spec Spec) Process
}

// A Spec describes a process. Only what means the same for every Class and
// every Executor is here.
type Spec struct {
	// Class says on whose behalf the process runs, and so how an isolating
	// Executor isolates it. [Class.Env] is the environment that fits it.
	Class Class

	// Path is the program: a path, or a name that is looked up in the PATH of
	// the process's own environment. Args follow it; Path is not among them.
	Path string
	Args []string

	// Dir is the working directory; "" is the agent's own.
	Dir string

	// Env says which environment the process gets; the zero value is minimal.
	Env Env

	// Stdin, Stdout and Stderr are as in exec.Cmd; nil is /dev/null. They
	// exclude the pipe method of the same name, and TTY.
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Group puts the process in a session of its own, without a controlling
	// terminal, so that SignalGroup and StopTree reach all that it starts.
	Group bool

	// TTY, if not nil, gives the process a terminal as its output. It implies
	// Group.
	TTY *TTY
}

// TTY describes the terminal of a process.
type TTY struct {
	Size terminal.Size
	// Input makes the terminal the process's controlling terminal and its
	// standard input. Without it there is no controlling terminal, standard input
	// is /dev/null, and reading the terminal meets an end of the file: a program
	// that opens /dev/tty to ask for a password, or wants an answer, fails at once.
	// One that waits for a key all the same, such as an editor, is hung up on: it
	// gets SIGHUP once its output has been quiet for a quarter of a second, and
	// SIGKILL if it waits on. Where the system does not tell who waits (a /proc that
	// is hidden, another user's process, macOS), the terminal cannot be read at all,
	// which ends most of them.
	Input bool
}

// A Process is one child process. Methods follow os/exec.Cmd.
type Process interface {
	// Start starts the process, or returns a *StartError.
	Start() error
	// Wait waits for the process to exit and for copying to Stdout and Stderr
	// to end, and releases its resources. It may be called once. A non-zero
	// exit is an *ExitError. Pipes and terminal are closed for the caller; a
	// process that still holds the other end of an output must not be killed
	// by that, so that the Executor reads on, to nowhere.
	Wait() error
	// Run is Start and Wait.
	Run() error

	// StdinPipe, StdoutPipe and StderrPipe return the agent's end of a pipe.
	// They are called before Start; Wait closes the pipes. What is read from
	// may have a WriteTo (io.WriterTo), which is the cheaper way to read to the
	// end; what is written to may have a SetWriteDeadline.
	StdinPipe() (io.WriteCloser, error)
	StdoutPipe() (io.ReadCloser, error)
	StderrPipe() (io.ReadCloser, error)

	// Signal sends a signal to the process.
	Signal(os.Signal) error
	// SignalGroup sends a signal to the process group of the process if it
	// has one of its own, else to the process only: never to the agent's group.
	// If the process has a controlling terminal (TTY.Input) it is sent to the
	// group in the foreground of that, as by Ctrl-C. After the exit of the
	// process it reaches what is left of its group, and returns
	// os.ErrProcessDone, as Signal does, if there is nothing.
	SignalGroup(os.Signal) error
	// Kill ends the process by force, and after its exit what is left of its
	// group if it has one of its own. A Wait that copies ends soon after, even
	// if another process holds an output open. Before Start and after Wait, Kill
	// does nothing and returns nil.
	Kill() error

	// Output runs the process and returns its standard output. It excludes
	// Spec.Stdout and StdoutPipe.
	Output() ([]byte, error)
	// CombinedOutput runs the process and returns both of its outputs. It
	// excludes Spec.Stdout, Spec.Stderr and their pipes.
	CombinedOutput() ([]byte, error)

	// ID names the process, for logs and people only; "" before Start.
	ID() string
}

// A Session is a started Process that can back a terminal. Its Spec had Group
// or TTY set.
type Session interface {
	Process

	// Terminal returns the agent's side of the process's terminal, and false
	// without Spec.TTY.
	Terminal() (Terminal, bool)

	// Exited returns a channel that is closed when the process has exited.
	// What it started may still run, and output may still be on its way.
	Exited() <-chan struct{}

	// Exit returns how the process exited. It is unknown before Exited.
	Exit() terminal.Exit

	// StopTree ends the process and everything that it started: it asks, waits
	// for grace, then kills until nothing is left. It returns what could not
	// be ended: empty if nothing, nil if that is not known. It may be called
	// at any time after Start, also after the natural end, and more than once;
	// calls at the same time wait for one and the same end.
	StopTree(grace time.Duration) (left []terminal.Proc)

	// Survivors returns what the process started and what still runs after
	// its exit. It costs little if nothing hints at any.
	Survivors() []terminal.Proc

	// InputState says whether the foreground processes wait for input now, by
	// what the system knows of them, and not before all that they have written is
	// read. What that is does not count: whoever asks should see to it that it is
	// quiet.
	InputState() (terminal.Activity, terminal.Evidence)
}

// A Terminal is the agent's side of a pseudo-terminal.
type Terminal interface {
	// Read returns output; io.EOF once the last holder of the other side is
	// gone and all was read. Close ends a blocked Read.
	io.ReadCloser
	// Write writes input. It may block while nobody reads; SetWriteDeadline
	// and Close end it, with the number of bytes that were taken.
	io.Writer
	SetWriteDeadline(time.Time) error
	// CanonicalLimit returns how many bytes a line of input may have, its end
	// not counted, and 0 while the program reads without line editing.
	CanonicalLimit() int
	Resize(terminal.Size) error
}

// A Class is the trust in what a process runs, and on whose behalf.
type Class int

// The classes. The zero value has the least trust.
const (
	ClassPluginMCP     Class = iota // a plugin's long-lived server
	ClassPluginTool                 // a plugin's tool
	ClassPluginHook                 // a plugin's hook
	ClassUserHook                   // a hook that the user wrote
	ClassEvolve                     // a script that a model wrote and a person approved
	ClassShell                      // the agent's main way to run commands
	ClassMemoryGit                  // git on the agent's own memory
	ClassWorkspaceTool              // a tool of the agent on the user's workspace, such as git ls-files
)
