// Package launcher runs processes at other places (another host, a container, a
// pod, a sandbox) through the program that can already start one there: ssh,
// docker exec, podman exec, kubectl exec, bwrap. Such a program is a [Launcher];
// an [Executor] makes an [execenv.Executor] of it, so that localterm and bridge
// run commands there as they do here.
//
//	build := launcher.New(launcher.SSH("dev@build", nil), nil)
//	defer build.Close()
//	m := localterm.New(&localterm.Options{Executors: map[string]execenv.Executor{"build": build}})
//
// # What the place needs
//
// A POSIX sh, and on Linux a readable /proc. Nothing is installed. Each command
// runs under a small script that reports its start and its exit in the output,
// so that the exit code is the command's own and never the launcher's. One more
// script for each connection, the supervisor, stops whole trees, and ends
// everything of the agent's when its input ends or no heartbeat reaches it for
// [Options.LostAfter].
//
// # Lifetime
//
// An [Executor] connects at its first command and keeps the connection until it is
// closed; the next command after a loss connects again. [Executor.Close] ends everything
// at the place. Everything may be called from any number of goroutines.
//
// # What cannot be promised
//
// A process that clears its environment and leaves its session is not found. On
// pipes the signals INT and PIPE cannot be told from the exit codes 130 and 141,
// and without /proc no signal from 128 and its number. A process that kills its
// own group by SIGKILL kills the script too: then the exit is unknown. On a
// terminal the variables of [execenv.Env.With] are words of a process at the
// place, where others may see them.
package launcher

import (
	"context"
	"errors"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/limits"
)

// A Launcher says how a program of this machine runs a command at a place. Only
// Name and Argv are required.
type Launcher struct {
	// Name names the place to people, such as "ssh dev@build".
	Name string

	// Argv returns the command line, to run on this machine, that runs r.Argv at
	// the place.
	Argv func(r Run) []string

	// LoginShell says that the launcher joins its words to a line which a login
	// shell of any kind reads, as ssh does.
	LoginShell bool

	// Here says that the processes of the place can be seen and signalled from
	// this machine, as those of a sandbox can: the supervisor runs here.
	Here bool

	// SetsModes says that the launcher's own program sets the modes of a terminal
	// while a command starts on it, as podman's does. The command waits for that,
	// which takes a round trip.
	SetsModes bool

	// Sessions is how many commands share one connection; 0 is any number.
	Sessions int

	// Explain finds the reason of a failed start in what the launcher wrote to
	// its standard error: one of the sentinels of this package, or nil.
	Explain func(text string) error

	// Again reports, from the same text, that another start may succeed at once. It
	// is called only when nothing of the command has run. A start is tried 8 times
	// in about half a second at most; nil is never again.
	Again func(text string) bool
}

// A Run is what a Launcher is asked to run.
type Run struct {
	// Argv are the words to run, the program first. If the Launcher has a
	// LoginShell it is one word, quoted for any shell.
	Argv []string

	// TTY asks for a terminal at the place. The launcher's own standard input
	// and output are a terminal then.
	TTY bool

	// Supervisor says that this is the supervisor of a connection: the first
	// Run, which is ended last.
	Supervisor bool

	// Dir is a directory on this machine that belongs to the connection, for
	// a socket; nobody else may enter it. Its path is short.
	Dir string
}

// Reasons of an [execenv.StartError], beside those of package execenv; use
// errors.Is.
var (
	// ErrUnreachable: the place does not answer.
	ErrUnreachable = errors.New("the place cannot be reached")
	// ErrHostKey: the key of the host is unknown, or is not the known one.
	ErrHostKey = errors.New("the key of the host is not trusted")
	// ErrDenied: the place refuses us.
	ErrDenied = errors.New("access denied")
	// ErrNoPlace: there is no such container, pod or host.
	ErrNoPlace = errors.New("no such place")
	// ErrNoSandbox: the kernel does not allow the sandbox. Nothing was run.
	ErrNoSandbox = errors.New("the sandbox cannot be set up")
	// ErrNotInstalled: the launcher's own program is not installed.
	ErrNotInstalled = errors.New("the launcher is not installed")
	// ErrLost is the error of a command whose connection broke: whether it
	// still runs is not known. It ends by itself [Options.LostAfter] later.
	ErrLost = errors.New("the connection to the place is lost")
)

// Options configure an Executor. The zero value of each field is its default.
type Options struct {
	// Env is the environment of the launcher itself, which may need the agent's
	// SSH_AUTH_SOCK or KUBECONFIG. Nil is the agent's own. Commands at the place
	// get only what [execenv.Env.With] sets.
	Env *execenv.Env

	// Dir is the working directory of a Spec that has none; "" is where the
	// place begins.
	Dir string

	// StartTimeout bounds the start of a connection, and of a command; 0 is
	// 30 s.
	StartTimeout time.Duration

	// LostAfter is how long a place goes on without a word from the agent; 0 is
	// 30 seconds. A cut that is shorter ends nothing.
	LostAfter time.Duration
}

// New returns an Executor for the place. It starts nothing before its first
// process. It panics if l has no Name or no Argv. Nil options are the defaults.
func New(l Launcher, opts *Options) *Executor {
	if l.Name == "" || l.Argv == nil {
		panic("launcher: a Launcher needs a Name and an Argv")
	}
	e := &Executor{launcher: l, local: execenv.NewLocal(nil)}
	if opts != nil {
		e.opts = *opts
	}
	if e.opts.Env == nil {
		e.opts.Env = new(execenv.Env{}.Inherit())
	}
	if e.opts.StartTimeout <= 0 {
		e.opts.StartTimeout = limits.CreateTimeout
	}
	if e.opts.LostAfter <= 0 {
		e.opts.LostAfter = 30 * time.Second
	}
	return e
}

// Command implements [execenv.Executor]. The process is an [execenv.Session].
func (e *Executor) Command(ctx context.Context, spec execenv.Spec) execenv.Process {
	return newProcess(ctx, e, spec)
}
