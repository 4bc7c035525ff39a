package terminal

import (
	"context"
	"time"
)

// An Activity is what a command is doing.
type Activity string

// The activities.
const (
	Working  Activity = "working"  // it runs, and does not wait for input as far as is known
	Waiting  Activity = "waiting"  // it waits for input
	Finished Activity = "finished" // it has ended
)

// Evidence says why a command is believed to have an Activity.
type Evidence struct {
	// Certainty is how good it is: [Certain], [Likely] or [NoCertainty].
	Certainty string
	// Reason is a short text for people, such as "cat (4711) reads the terminal".
	Reason string
	// Secret reports that the terminal does not echo lines: a password prompt.
	Secret bool
	// Proc is the process that waits, if that is known.
	Proc Proc
	// Prompt reports that Proc is the command's own shell, idle at its prompt;
	// else it is another program, or a job of that shell, which is blocked.
	Prompt bool
}

// An ActivityReader can tell what its command is doing, and wait for it.
type ActivityReader interface {
	// ReadActivity returns the activity now. A command that has written nothing
	// since cursor, and was given no input, waits for the same thing as
	// before: that is not Waiting since cursor. Cursor 0 asks for the state
	// whatever was before.
	ReadActivity(ctx context.Context, cursor int64) (Activity, Evidence, error)

	// WaitActivity returns once the command does want or has finished, with the
	// activity that it has, or with the Cause of ctx. It is ReadActivity that
	// waits: cursor means the same.
	WaitActivity(ctx context.Context, want Activity, cursor int64) (Activity, Evidence, error)
}

// An InputCloser can end the input of its command.
type InputCloser interface {
	// CloseInput ends the command's standard input behind all that was written:
	// a program that reads on sees the end of the file. Then WriteInput returns
	// [ErrNoInput], and CloseInput nothing. A terminal stays open: it is typed the
	// key that ends the input of the program in the foreground.
	//
	// While a write waits it waits, too; errors are those of WriteInput.
	CloseInput(ctx context.Context) error
}

// A Stream is one of the two output streams of a command without a terminal: [Stdout]
// or [Stderr].
type Stream string

// A StreamReader can read one stream of a command's output. Cursors are those
// of ReadOutput, so that a position means the same in both.
type StreamReader interface {
	// ReadStream is ReadOutput for one stream; [errors.ErrUnsupported] where
	// the output is one terminal.
	ReadStream(ctx context.Context, stream Stream, cursor int64, wait time.Duration) (Output, error)
}
