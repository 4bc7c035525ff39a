package terminal

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of Managers and Terminals; use errors.Is.
var (
	// ErrBadCommand is returned by Start for a Command that makes no sense.
	ErrBadCommand = errors.New("bad command")
	// ErrNotFound is returned by Get for an id that is not, or no longer, known.
	ErrNotFound = errors.New("no such terminal")
	// ErrTooMany is returned by Start when every slot is held by a live command.
	ErrTooMany = errors.New("too many terminals")
	// ErrTooLarge is returned for a command, or an update, over the size that
	// its transport carries. Nothing was sent.
	ErrTooLarge = errors.New("too large")
	// ErrNoInput is returned by WriteInput, and by Start, where the command has
	// or would have no input.
	ErrNoInput = errors.New("no input")
	// ErrLineTooLong is returned by WriteInput for a line that the kernel's
	// line discipline would cut silently. Nothing was written.
	ErrLineTooLong = errors.New("input line too long")
	// ErrEnded is returned for what needs a live command, or an open turn.
	ErrEnded = errors.New("already ended")
	// ErrClosed is returned by a closed Manager.
	ErrClosed = errors.New("closed")
	// ErrConnectionLost is the Info.Err, or the error, of what could not be
	// done because the client went away.
	ErrConnectionLost = errors.New("connection lost")
)

// A LeakError lists what a close could not settle.
type LeakError struct{ Leaks []Leak }

// A Leak is one thing that may still hold resources somewhere.
type Leak struct {
	// ID is the terminal's, or "" for one that never had one.
	ID string
	// What says in a few words what is left: "process", "terminal/release".
	What string
	// Procs are the processes that still run, where they are known.
	Procs []Proc
	// Err is why it could not be settled; it may be nil.
	Err error
}

// String returns the leak in one line.
func (l Leak) String() string {
	var b strings.Builder
	b.WriteString(l.What)
	if l.ID != "" {
		fmt.Fprintf(&b, " of terminal %s", l.ID)
	}
	for i, p := range l.Procs {
		fmt.Fprintf(&b, "%s %s", map[bool]string{true: ":", false: ","}[i == 0], p)
	}
	if l.Err != nil {
		fmt.Fprintf(&b, ": %v", l.Err)
	}
	return b.String()
}

// Error lists the leaks.
func (e *LeakError) Error() string {
	parts := make([]string, len(e.Leaks))
	for i, l := range e.Leaks {
		parts[i] = l.String()
	}
	return fmt.Sprintf("%d left behind: %s", len(e.Leaks), strings.Join(parts, "; "))
}

// Unwrap returns the reasons.
func (e *LeakError) Unwrap() []error {
	var errs []error
	for _, l := range e.Leaks {
		if l.Err != nil {
			errs = append(errs, l.Err)
		}
	}
	return errs
}
