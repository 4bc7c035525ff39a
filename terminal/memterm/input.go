package memterm

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/lineedit"
	"github.com/termbridge/termbridge/terminal"
)

// inputSize is how many bytes of input wait for the program, as in a pipe.
const inputSize = 64 << 10

// An input is the standard input of a command: a bounded queue. With a tty it
// edits lines first, as the kernel's line discipline does.
type input struct {
	tty   *tty          // nil: a pipe
	write chan struct{} // holds a token while a WriteInput runs, so that writes do not mix

	// mu is taken before the terminal's own: an echo is written under it.
	mu sync.Mutex
	// guards following
	queue   [][]byte      // pieces as a Read returns them; an empty one is an end of file
	size    int           // bytes in queue and line
	line    lineedit.Line // of a tty
	echoed  []byte        // of a tty: what is to be echoed
	shut    bool          // by CloseInput; a pipe only
	closed  bool          // the command has ended
	changed chan struct{}
}

func newInput(tty *tty) *input {
	return &input{tty: tty, write: make(chan struct{}, 1), changed: make(chan struct{})}
}

// notify wakes all who wait for a change. Called with mu held.
func (in *input) notify() {
	close(in.changed)
	in.changed = make(chan struct{})
}

// close ends the input: writes fail, reads get io.EOF once it is drained.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.closed = true
		in.notify()
	}
}

// Close ends the input behind what was written: on a terminal by typing the key.
func (in *input) Close(ctx context.Context) error {
	select {
	case in.write <- struct{}{}:
		defer func() { <-in.write }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if in.tty != nil {
		in.mu.Lock()
		keys := in.line.EOFKeys(&lineedit.Default)
		in.mu.Unlock()
		_, err := in.put(ctx, keys)
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return terminal.ErrEnded
	}
	in.shut = true
	in.notify()
	return nil
}

// errShut is why nothing can be written behind Close.
var errShut = fmt.Errorf("%w: it was closed", terminal.ErrNoInput)

// Write appends text, waiting while the queue is full.
func (in *input) Write(ctx context.Context, text string) (n int, err error) {
	select {
	case in.write <- struct{}{}:
		defer func() { <-in.write }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err := in.check(text); err != nil {
		return 0, err
	}
	return in.put(ctx, text)
}

// put appends text. The caller holds write.
func (in *input) put(ctx context.Context, text string) (n int, err error) {
	for {
		in.mu.Lock()
		took := 0
		if !in.closed && !in.shut {
			took = in.take(text[n:])
		}
		n += took
		closed, shut, changed := in.closed, in.shut, in.changed
		in.mu.Unlock()
		switch {
		case closed:
			return n, terminal.ErrEnded
		case shut:
			return n, errShut
		case n == len(text):
			return n, nil
		case took > 0:
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return n, context.Cause(ctx)
		}
	}
}

// check returns ErrLineTooLong if text would make a line that a terminal cuts.
func (in *input) check(text string) error {
	if in.tty == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, longest := in.line.Check(text, &lineedit.Default); longest > lineedit.Max {
		return fmt.Errorf("%w: more than %d bytes without a line end", terminal.ErrLineTooLong, lineedit.Max)
	}
	return nil
}

// take queues what fits of text and returns how much that is. Called with mu
// held.
func (in *input) take(text string) int {
	room := inputSize - in.size
	if in.tty == nil {
		n := min(room, len(text))
		if n > 0 {
			in.queue = append(in.queue, []byte(text[:n]))
			in.size += n
			in.notify()
		}
		return n
	}
	n := 0
	// A program that does not read must still get its ^C.
	for n < len(text) && (in.size < inputSize || text[n] == lineedit.Default.Interrupt) {
		in.typed(text[n])
		n++
	}
	in.echo()
	in.notify()
	return n
}

// A reader is a process's end of an input; a nil input is /dev/null.
type reader struct {
	in      *input
	stopped <-chan struct{}
}

// Close ends the input: who writes to it gets an error.
func (r reader) Close() error {
	r.in.close()
	return nil
}

// Pipe returns the ends of a pipe between two processes, which holds 64 KiB. A process
// that is stopped waits for neither of them. Close both.
func Pipe() (io.ReadCloser, io.WriteCloser) {
	in := newInput(nil)
	return reader{in: in}, pipe{in}
}

// A pipe is the end of an input at which processes write.
type pipe struct{ in *input }

func (p pipe) Write(b []byte) (int, error) { return p.WriteUntil(nil, b) }

// WriteUntil waits while the input is full, unless stopped is closed.
func (p pipe) WriteUntil(stopped <-chan struct{}, b []byte) (int, error) {
	return p.in.Write(until{context.Background(), stopped}, string(b))
}

func (p pipe) Close() error { return p.in.Close(context.Background()) }

// until is a context that ends when stopped is closed.
type until struct {
	context.Context
	stopped <-chan struct{}
}

func (u until) Done() <-chan struct{} { return u.stopped }

func (u until) Err() error {
	if await.Closed(u.stopped) {
		return ErrStopped
	}
	return nil
}

// Read returns bytes of one piece of the queue: of one line on a terminal.
func (r reader) Read(b []byte) (int, error) {
	in := r.in
	switch {
	case len(b) == 0:
		return 0, nil
	case in == nil:
		return 0, io.EOF
	}
	for {
		in.mu.Lock()
		if len(in.queue) > 0 {
			defer in.mu.Unlock()
			n := copy(b, in.queue[0])
			if n == len(in.queue[0]) {
				in.queue = slices.Delete(in.queue, 0, 1)
			} else {
				in.queue[0] = in.queue[0][n:]
			}
			in.size -= n
			in.notify()
			if n == 0 {
				return 0, io.EOF
			}
			return n, nil
		}
		closed, changed := in.closed || in.shut, in.changed
		in.mu.Unlock()
		if closed {
			return 0, io.EOF
		}
		select {
		case <-changed:
		case <-r.stopped:
			return 0, ErrStopped
		}
	}
}
