package control

import (
	"context"
	"errors"
	"slices"

	"github.com/termbridge/termbridge/terminal"
)

// Errors of a [Control]; use errors.Is. An [*Error] that a server has sent is the
// one of its Code.
var (
	ErrUnknown  = errors.New("no such session")            // also terminal.ErrNotFound
	ErrNoGroup  = errors.New("no such group")              // also an empty one
	ErrBadState = errors.New("unknown state")              // that a wait is to wait for
	ErrTimeout  = errors.New("timed out")                  // of a wait
	ErrExited   = errors.New("the session has exited")     // also terminal.ErrEnded
	ErrReadOnly = errors.New("the session is read-only")   // also terminal.ErrNoInput
	ErrBad      = errors.New("bad request")                // something is missing or makes no sense
	ErrDenied   = errors.New("not allowed for this user")  // by the peer's credentials
	ErrAlive    = errors.New("another server is running")  // of Listen
	ErrPath     = errors.New("unsuitable path")            // of Listen, which says why
	ErrTooLarge = errors.New("too large for the protocol") // a request or an answer
)

// A Code is the kind of an error, for programs.
type Code string

// The codes.
const (
	CodeUnknown  Code = "unknown"   // ErrUnknown
	CodeNoGroup  Code = "no-group"  // ErrNoGroup
	CodeBadState Code = "bad-state" // ErrBadState
	CodeTimeout  Code = "timeout"   // ErrTimeout
	CodeExited   Code = "exited"    // ErrExited
	CodeReadOnly Code = "read-only" // ErrReadOnly
	CodeBad      Code = "bad"       // ErrBad
	CodeDenied   Code = "denied"    // ErrDenied
	CodeTooLarge Code = "too-large" // ErrTooLarge
)

// codes are in the order in which they are looked for.
var codes = []struct {
	code Code
	errs []error
}{
	{CodeUnknown, []error{ErrUnknown, terminal.ErrNotFound}},
	{CodeNoGroup, []error{ErrNoGroup}},
	{CodeBadState, []error{ErrBadState}},
	{CodeTimeout, []error{ErrTimeout, context.DeadlineExceeded}},
	{CodeExited, []error{ErrExited, terminal.ErrEnded}},
	{CodeReadOnly, []error{ErrReadOnly, terminal.ErrNoInput}},
	{CodeDenied, []error{ErrDenied}},
	{CodeTooLarge, []error{ErrTooLarge, terminal.ErrTooLarge, terminal.ErrLineTooLong}},
	{CodeBad, []error{ErrBad, terminal.ErrBadCommand}},
}

func codeOf(err error) Code {
	for _, c := range codes {
		for _, e := range c.errs {
			if errors.Is(err, e) {
				return c.code
			}
		}
	}
	return ""
}

// An Error is what a server has answered instead of OK.
type Error struct {
	Code    Code
	Message string
}

// Error returns the server's words.
func (e *Error) Error() string { return e.Message }

// Is reports whether target is the error of the code.
func (e *Error) Is(target error) bool {
	for _, c := range codes {
		if c.code == e.Code {
			return slices.Contains(c.errs, target)
		}
	}
	return false
}
