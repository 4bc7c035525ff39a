// Package terminal is the contract of termbridge: what it means to start a
// command, read its output, write to it, stop it and learn how it ended,
// wherever the command runs.
//
//	t, err := m.Start(ctx, terminal.Command{Line: "go test ./...", Dir: dir, TTY: true})
//	if err != nil {
//		return err // nothing runs, and no slot is held
//	}
//	for out, err := range terminal.Follow(ctx, t, 0) {
//		if err != nil {
//			return err // ctx ended; the command goes on
//		}
//		fmt.Print(out.Text)
//	}
//	fmt.Println(t.Info().Outcome, t.Info().Exit)
//
// # Lifetime
//
// A command is bound to its [Manager], never to the context of a call: a
// context ends only the caller's wait. A command ends by itself, by its
// timeout, by [Terminal.Stop], or when its Manager closes. How it ended is a
// value, the [Outcome] and [Exit] of its [Info]; an error says that something
// could not be done or could not be found out.
//
// # Concurrency
//
// Every method of every Manager and Terminal may be called from any number of
// goroutines at once, before and after the end of the command.
//
// The rules that every Manager keeps are the cases of package
// [github.com/termbridge/termbridge/terminal/terminaltest]. This package
// imports only the standard library.
package terminal

import (
	"context"
	"os"
	"time"
)

// A Manager starts commands and owns them until it is closed.
type Manager interface {
	// Start starts a command and returns once it has started. The command is
	// not bound to ctx: an ended ctx ends only the wait for the start, and
	// what starts too late is stopped. A failed start returns an error, has no
	// id and holds no slot.
	//
	// Errors: [ErrBadCommand], [ErrTooMany], [ErrTooLarge], [ErrNoInput] where
	// the Manager cannot give a command the input that it asks for,
	// [ErrClosed], the Cause of ctx, or the reason of the failed start.
	Start(ctx context.Context, cmd Command) (Terminal, error)

	// Get returns the terminal with this id, live or ended, or [ErrNotFound]
	// if there never was one or it was evicted.
	Get(id string) (Terminal, error)

	// List returns the terminals that are kept, live and ended, in the order
	// of their starts.
	List() []Terminal

	// Busy reports whether a command is starting or running.
	Busy() bool

	// Close refuses new commands, stops every command with its whole tree,
	// waits (bounded) until all has settled and every goroutine of the Manager
	// has returned. Ended terminals stay readable through the values that
	// callers hold. What could not be ended is reported as a [*LeakError].
	// Later calls wait for the first and return its result.
	Close() error
}

// A Terminal is one command, from its start until it is evicted.
//
// A Terminal may also implement [ActivityReader], [InputCloser]
// and [StreamReader]; [As] finds them.
type Terminal interface {
	// Info returns what is known now. It never blocks.
	Info() Info

	// ReadOutput returns the output after cursor: what is there at once, else
	// it waits for output, for the end of the command, for wait, or for ctx,
	// and only the last is an error (the Cause of ctx). A wait of zero or less
	// does not wait. An ended ctx is an error of every read, also of one that
	// need not wait, so that a loop of reads ends with it; the Output is valid
	// then, too.
	//
	// A cursor is a byte offset in the whole output, evicted bytes counted. Cursor
	// 0 is the start of the command; other cursors come from [Output.NextCursor],
	// and not from the length of Text, in which a byte that is no UTF-8 has become
	// three. A cursor behind the end, such as [End], is the end as it is when the
	// read begins.
	//
	// Text is at most [MaxText] bytes of valid UTF-8, never cut inside a rune;
	// bytes that are no UTF-8 are U+FFFD. Reads are never destructive.
	ReadOutput(ctx context.Context, cursor int64, wait time.Duration) (Output, error)

	// WriteInput writes text verbatim and returns how many bytes were taken.
	// While nobody reads it waits; ctx ends the wait at once (the Cause of ctx
	// is returned), and the rest of the write is dropped, at a byte boundary
	// that the count tells: it is never written later.
	//
	// Errors: [ErrNoInput] without [Command.Stdin], [ErrEnded] after the end,
	// [ErrLineTooLong] before anything is written.
	WriteInput(ctx context.Context, text string) (int, error)

	// Resize sets the size of the terminal; the program is told by SIGWINCH.
	// Without [Command.TTY], and where the Manager cannot, it returns
	// [errors.ErrUnsupported]; after the end it does nothing.
	Resize(Size) error

	// Signal sends a signal to the foreground processes of the command, or
	// returns [errors.ErrUnsupported]. After the end: [ErrEnded].
	Signal(os.Signal) error

	// Stop ends the command and every process that it started, waits until the
	// end has settled, and returns the final Info. Of an ended command it ends what
	// that had left behind (Info.Survivors), if the Manager can: the Info that it returns
	// names what is left then. Where nothing is, it returns at once. An ended ctx
	// ends the wait, with its Cause as the error, and does not take back the stop.
	Stop(ctx context.Context) (Info, error)

	// Done returns a channel that the terminal closes once the command has
	// ended, all its output can be read and Info is final.
	Done() <-chan struct{}
}
