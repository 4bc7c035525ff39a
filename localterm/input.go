package localterm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/lineedit"
	"github.com/termbridge/termbridge/terminal"
)

// An input is where a command reads from.
type input struct {
	w      deadlineWriter
	tty    execenv.Terminal // nil for a pipe
	exited <-chan struct{}

	// turn holds a value while somebody writes, so that two writes do not mix.
	// It guards line and closed.
	turn   chan struct{}
	line   lineedit.Line // what was typed, while lines are edited
	closed bool          // by the caller; a pipe only

	mu sync.Mutex // guards deadlines, and over
	// guards following
	over bool // see end
}

// A deadlineWriter is a file or a terminal: a blocked write can be ended, and
// then says how much was taken.
type deadlineWriter interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

func newInput(w deadlineWriter, tty execenv.Terminal, exited <-chan struct{}) *input {
	return &input{w: w, tty: tty, exited: exited, turn: make(chan struct{}, 1)}
}

// past is a deadline that ends a blocked write.
var past = time.Unix(1, 0)

// errLineMode is why a write that is for raw mode only wrote nothing.
var errLineMode = errors.New("the terminal is in line mode")

// errInputClosed is why nothing can be written behind CloseInput.
var errInputClosed = fmt.Errorf("%w: it was closed", terminal.ErrNoInput)

// begin waits until nobody else writes. What it returns ends the turn.
func (in *input) begin(ctx context.Context) (end func(), err error) {
	select {
	case in.turn <- struct{}{}:
	case <-in.exited:
		return nil, terminal.ErrEnded
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	switch {
	case await.Closed(in.exited):
		err = terminal.ErrEnded
	case in.closed:
		err = errInputClosed
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		return func() { <-in.turn }, nil
	}
	<-in.turn
	return nil, err
}

// close ends the input of the command.
func (in *input) close(ctx context.Context) error {
	if in.tty != nil {
		_, err := in.typeEnd(ctx)
		return err
	}
	end, err := in.begin(ctx)
	if err == errInputClosed {
		return nil
	} else if err != nil {
		return err
	}
	defer end()
	in.closed = true
	return in.w.Close()
}

// typeEnd types the key that ends the input of a program on a terminal. Behind a
// line that is not ended the first one ends that. A program that edits lines
// itself takes the usual key for it.
func (in *input) typeEnd(ctx context.Context) (int, error) {
	end, err := in.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	limit, keys := in.lineMode()
	if limit == 0 {
		in.line, keys = lineedit.Line{}, lineedit.Default
	}
	key := in.line.EOFKeys(&keys)
	if key == "" {
		return 0, fmt.Errorf("the terminal has no key that ends the input: %w", errors.ErrUnsupported)
	}
	return in.put(ctx, key, limit, &keys)
}

// write writes text, and waits while the command does not read. With rawOnly it
// writes nothing while the terminal edits lines.
func (in *input) write(ctx context.Context, text string, rawOnly bool) (n int, err error) {
	end, err := in.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	limit, keys := in.lineMode()
	if limit == 0 {
		in.line = lineedit.Line{}
	} else if rawOnly {
		return 0, errLineMode
	} else if _, longest := in.line.Check(text, &keys); longest > limit {
		return 0, fmt.Errorf("%w: %d bytes, and the terminal takes %d: send shorter lines, or put the text in a file",
			terminal.ErrLineTooLong, longest, limit)
	}
	return in.put(ctx, text, limit, &keys)
}

// put writes text, whose lines have limit bytes at most. The caller has the turn.
func (in *input) put(ctx context.Context, text string, limit int, keys *lineedit.Modes) (n int, err error) {
	if ctx.Done() == nil {
		n, err = io.WriteString(in.w, text)
	} else {
		interrupted := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			in.deadline(past)
			close(interrupted)
		})
		n, err = io.WriteString(in.w, text)
		if !stop() {
			<-interrupted
			in.deadline(time.Time{}) // or it would end the next write
		}
	}
	if limit > 0 {
		in.line, _ = in.line.Check(text[:n], keys)
	}
	switch {
	case err == nil:
	case await.Closed(in.exited):
		err = terminal.ErrEnded
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		// Nobody reads any more, most likely because the command is exiting.
		select {
		case <-in.exited:
			err = terminal.ErrEnded
		case <-time.After(limits.DrainQuiet):
		case <-ctx.Done():
		}
	}
	return n, err
}

func (in *input) deadline(t time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.over {
		in.w.SetWriteDeadline(t)
	}
}

// end ends a blocked write, after the exit of the command. A nil input has
// none.
func (in *input) end() {
	if in == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over = true
	in.w.SetWriteDeadline(past)
}

// lineMode returns how long a line may be, 0 while the program reads without line
// editing, and the keys that edit it.
func (in *input) lineMode() (limit int, keys lineedit.Modes) {
	if in.tty == nil {
		return 0, keys
	}
	if tty, ok := in.tty.(interface {
		LineMode() (limit int, keys lineedit.Modes)
	}); ok {
		return tty.LineMode()
	}
	return in.tty.CanonicalLimit(), lineedit.Default
}
