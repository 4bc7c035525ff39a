package acpterm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// A term is one command in a client's terminal.
type term struct {
	manager *Manager
	release *release
	tag     string       // of its processes; "" if they cannot be found
	output  *tail.Buffer // what was seen, written by run
	stream  stream       // used by run only

	wake      chan struct{}    // somebody reads; capacity 1
	refreshes chan chan<- seen // each asks for a read made after it, and for what came of it
	stopping  chan struct{}    // closed by requestStop
	done      chan struct{}    // closed by run when the command has ended; then info is final
	shown     chan struct{}    // closed when Hooks.Created has returned
	over      chan struct{}    // closed by run when nothing is left to be done

	mu sync.Mutex
	// guards following; ID, Environment, Command and Started never change
	info    terminal.Info
	peer    peer // that requests go to from now on
	readers int  // calls of ReadOutput that wait
	read    time.Time
}

// seen is what came of a read of the client's output.
type seen struct {
	err   error
	ended bool          // it said that the command has ended,
	exit  terminal.Exit // and, if it is known, how
}

var _ terminal.Terminal = (*term)(nil)

func (t *term) clientTerminal() string { return t.release.id }

func (t *term) Info() terminal.Info {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.info
}

func (t *term) Done() <-chan struct{} { return t.done }

func (t *term) ended() bool { return await.Closed(t.done) }

func (t *term) ReadOutput(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
	if wait <= 0 && !t.isRead() {
		// Nobody has read for a while, so what the client shows was asked for
		// seldom, and there is where the output is.
		fresh, cancel := context.WithTimeout(ctx, limits.PollMax)
		_ = t.refresh(fresh) // what is known serves, too
		cancel()
	}
	t.reading(+1)
	chunk, err := t.output.Wait(ctx, cursor, limits.MaxText, wait)
	t.reading(-1)
	if chunk.Closed {
		<-t.done // at once: run closes both
	}
	if chunk.Truncated {
		chunk.Text = text.TrimRest(chunk.Text, terminal.GapMark)
	}
	info := t.Info()
	if !chunk.Closed && info.Outcome.Ended() {
		// It ended after the read, and there may be more to read.
		info.Outcome, info.Exit, info.Ended, info.Err = terminal.Running, terminal.Exit{}, time.Time{}, nil
	}
	return terminal.Output{
		Text:       chunk.Text,
		NextCursor: chunk.Next,
		More:       chunk.More,
		Truncated:  chunk.Truncated,
		Info:       info,
	}, err
}

// refresh makes the output what the client shows now, within a bound.
func (t *term) refresh(ctx context.Context) seen {
	answer := make(chan seen, 1)
	timer := time.NewTimer(limits.OutputTimeout)
	defer timer.Stop()
	select {
	case t.refreshes <- answer:
	case <-t.done:
		return seen{} // Info says whether the last read failed
	case <-ctx.Done():
		return seen{err: context.Cause(ctx)}
	}
	select {
	case s := <-answer:
		return s
	case <-t.done:
	case <-ctx.Done():
	case <-timer.C:
	}
	select {
	case s := <-answer: // it counts, also if the time was up just then
		return s
	default:
	}
	switch {
	case t.ended():
		return seen{}
	case ctx.Err() != nil:
		return seen{err: context.Cause(ctx)}
	}
	return seen{err: t.current().failure(ctx, acp.ClientMethodTerminalOutput, errNoAnswer)}
}

// current returns the peer that requests go to.
func (t *term) current() peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peer
}

// use makes requests go through another Conn to the same client from now on. One
// that cannot tell when the connection ends leaves that to the one before.
func (t *term) use(p peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.gone == nil {
		p.gone, p.client = t.peer.gone, t.peer.client
	}
	t.peer = p
	t.wakeUp() // or run would wait for the end of the former connection
}

// reading counts those who wait for output and wakes the poller for each.
func (t *term) reading(n int) {
	t.mu.Lock()
	t.readers += n
	t.read = time.Now()
	t.mu.Unlock()
	if n > 0 {
		t.wakeUp()
	}
}

// wakeUp has run look around, and read the output soon.
func (t *term) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// isRead reports whether somebody reads the output, or did a moment ago and may
// again.
func (t *term) isRead() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.readers > 0 || time.Since(t.read) < 2*limits.PollMax
}

func (t *term) WriteInput(ctx context.Context, _ string) (int, error) {
	return 0, fmt.Errorf("acpterm: %w: an ACP client's terminal has none", terminal.ErrNoInput)
}

func (t *term) Resize(terminal.Size) error {
	if t.ended() {
		return nil
	}
	return fmt.Errorf("acpterm: resize: %w", errors.ErrUnsupported)
}

func (t *term) Signal(os.Signal) error {
	if t.ended() {
		return fmt.Errorf("acpterm: signal: %w", terminal.ErrEnded)
	}
	return fmt.Errorf("acpterm: signal: %w", errors.ErrUnsupported)
}

func (t *term) Stop(ctx context.Context) (terminal.Info, error) {
	t.requestStop()
	return terminal.Wait(ctx, t)
}

// requestStop makes run stop the command.
func (t *term) requestStop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !await.Closed(t.stopping) {
		close(t.stopping)
	}
}

// awaitRelease waits until the terminal of an ended command is released, within bounds,
// and tells the client once more if it has not answered.
func (t *term) awaitRelease() {
	timer := time.NewTimer(limits.ReleaseTimeout)
	defer timer.Stop()
	select {
	case <-t.over:
	case <-timer.C:
	}
	if await.Closed(t.over) {
		t.manager.releaseAgain(t.current(), t.release)
	}
}

// update changes what is known of the command.
func (t *term) update(change func(*terminal.Info)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.info)
}

// EvictedLines implements [tail.LineCounter], for the output that was seen.
func (t *term) EvictedLines() (lines, cursor int64) { return t.output.EvictedLines() }
