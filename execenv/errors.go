package execenv

import (
	"fmt"
	"strconv"

	"github.com/termbridge/termbridge/terminal"
)

// A StartError is why a process could not be started. Nothing of it runs, and
// nothing is left open.
type StartError struct {
	Path string // Spec.Path
	Dir  string // Spec.Dir
	// Err wraps one of the sentinels of this package where the reason is
	// known, the error of the operating system (so that errors.Is with
	// fs.ErrNotExist and fs.ErrPermission works), or the Cause of the context.
	Err error
}

// Error says what was to be started, and what was wrong.
func (e *StartError) Error() string {
	if e.Dir != "" {
		return fmt.Sprintf("start %q in %q: %v", e.Path, e.Dir, e.Err)
	}
	return fmt.Sprintf("start %q: %v", e.Path, e.Err)
}

// Unwrap returns Err.
func (e *StartError) Unwrap() error { return e.Err }

// Reasons of a [StartError], for errors.Is, and a value of [LocalOptions].
const (
	// ErrNoDir: the working directory is missing, no directory, or closed to us.
	ErrNoDir = startReason("no such working directory")
	// ErrNoCommand: the program is missing, or is not in the process's PATH.
	ErrNoCommand = startReason("no such command")
	// ErrNotExecutable: the file may not be executed.
	ErrNotExecutable = startReason("not executable")
	// ErrIsDirectory: the program is a directory.
	ErrIsDirectory = startReason("is a directory")
	// ErrBadInterpreter: what the script's first line names, or the loader of
	// the binary, is missing or may not be executed.
	ErrBadInterpreter = startReason("bad interpreter")
	// ErrExecFormat: no program of this machine, and no #! line.
	ErrExecFormat = startReason("exec format error: neither a program for this machine nor a script with a #! line")
	// ErrTextBusy: the program's file was open for writing all the time.
	ErrTextBusy = startReason("text file busy")
	// ErrNoResources: no more processes, descriptors or memory. It may pass.
	ErrNoResources = startReason("out of resources")
	// ErrNoTerminal: no more pseudo-terminals, or none on this machine.
	ErrNoTerminal = startReason("no pseudo-terminal")

	// NoCgroup is the LocalOptions.Cgroup that uses no cgroups.
	NoCgroup = "none"
)

type startReason string

func (r startReason) Error() string { return string(r) }

// because returns an error that is reason and wraps detail.
func because(reason, detail error) error { return fmt.Errorf("%w (%w)", reason, detail) }

// An ExitError is the error of a process that exited with a code other than 0,
// by a signal, or nobody knows how.
type ExitError struct {
	Exit terminal.Exit
	// Stderr is the end of the standard error, if Output collected it because
	// Spec.Stderr was nil.
	Stderr []byte
	// Err is the Cause of the context that ended the process, else nil.
	Err error
}

// ExitCode returns the exit code, and -1 if a signal ended the process or nobody
// knows how it exited, as that of exec.ExitError does.
func (e *ExitError) ExitCode() int {
	if e.Exit.Code == nil || e.Exit.Signal != "" {
		return -1
	}
	return *e.Exit.Code
}

// Error says how the process exited.
func (e *ExitError) Error() string {
	text := "exit unknown"
	switch {
	case e.Exit.Signal != "":
		text = "signal: " + e.Exit.Signal
	case e.Exit.Code != nil:
		text = "exit status " + strconv.Itoa(*e.Exit.Code)
	}
	if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	return text
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }
