package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
)

// matchWindow is how much text a regexp sees before what is new.
const matchWindow = 16 << 10

// Until says what [WaitFor] waits for: whichever comes first, and always the end
// of the command.
type Until struct {
	// Cursor is where the output begins that counts: 0 for all of it, else from
	// [Event.Cursor], [Page.Cursor] or [terminal.Output].
	Cursor int64

	// Output waits for any output.
	Output bool

	// Quiet waits until there was no output for that long, counted from the
	// start of the wait if there is none at all; 0 does not.
	Quiet time.Duration

	// Literal and Regexp wait for a text in the output, as a person sees it:
	// escape sequences do not count, and CRLF is LF. A Regexp sees the text
	// since Cursor, of which that is the start, but at most the last 16 KiB
	// before what is new; use (?m) for the start and end of lines.
	Literal string
	Regexp  *regexp.Regexp

	// Input waits until the command waits for input, having written something
	// since Cursor. It needs a terminal that is a [terminal.ActivityReader].
	Input bool

	// Record asks for the output itself, when it came, and what the command is
	// doing at the end of the wait.
	Record bool

	// Timeout is how long the caller wants to wait; 0 does not end the wait,
	// and a negative one means not to wait at all.
	Timeout time.Duration

	// Ceiling is how long a wait may take whatever the caller wants; 0 is
	// [DefaultCeiling], a negative one is none.
	Ceiling time.Duration
}

// An Event is how a wait ended.
type Event struct {
	// Reason says what happened; "" if the wait ended with an error.
	Reason string

	// Cursor is where the next wait goes on, or reading: behind the match, else
	// behind the output that was seen. Where the output near a match is not
	// UTF-8 it may lie some text behind the match.
	Cursor int64

	// Match is the text that matched, and Groups what the groups of Regexp
	// matched in it.
	Match  string
	Groups []string

	// Evidence is that for ByInput.
	Evidence terminal.Evidence

	// Truncated reports that some of the output was evicted unseen.
	Truncated bool

	// Record is that of Until.Record, else nil.
	Record *Record

	// Info is that of the same instant.
	Info terminal.Info
}

// WaitFor waits until something happens to the command, in one call: for what
// until says, for its end, or for the time that the wait may take. It never ends
// the command. If ctx ends first, the error is its Cause and the Event says how
// far the wait had got. If Input is all that is waited for and the terminal
// cannot tell, the error is [errors.ErrUnsupported].
func WaitFor(ctx context.Context, t terminal.Terminal, until Until) (Event, error) {
	w := waiter{t: t, until: until, event: Event{Cursor: until.Cursor}}
	if until.Record {
		w.record = newRecorder(t, until)
	}
	m := matcher{waiter: &w}
	w.look = m.look
	var err error
	w.event.Reason, err = w.wait(ctx)
	if w.record != nil {
		w.record.finish(ctx, &w.event)
	}
	return w.event, err
}

// A waiter is one call of WaitFor.
type waiter struct {
	t      terminal.Terminal
	until  Until
	event  Event
	record *recorder // nil without Until.Record

	// look is called with each output, and reports whether what Literal or Regexp
	// wait for is there.
	look func(ctx context.Context, out terminal.Output) (bool, error)
}

// wait fills event.
func (w *waiter) wait(ctx context.Context) (string, error) {
	reading, stop, err := w.watchInput(ctx)
	if err != nil {
		w.event.Info = w.t.Info()
		return "", err
	}
	defer stop()
	limit, over := w.until.limit()
	start := time.Now()
	var input *inputCause // it waits for input: what is left is to read what it wrote
	for last := start; ; {
		wait := limit - time.Since(start)
		if w.until.Quiet > 0 {
			wait = min(wait, w.until.Quiet-time.Since(last))
		}
		if input != nil {
			wait = 0
		}
		out, err := w.t.ReadOutput(reading, w.event.Cursor, wait)
		if err != nil {
			if cause, ok := errors.AsType[*inputCause](context.Cause(reading)); ok && input == nil {
				input, reading = cause, ctx
				continue
			}
			w.event.Info = w.t.Info()
			return "", err
		}
		w.event.Info = out.Info
		if w.record != nil {
			w.record.add(ctx, out)
		}
		if out.Text != "" || out.Truncated {
			last = time.Now()
			w.event.Truncated = w.event.Truncated || out.Truncated
			if found, err := w.look(ctx, out); found || err != nil {
				return ByMatch, err
			}
			if w.event.Cursor = out.NextCursor; w.until.Output && out.Text != "" {
				return ByOutput, nil
			}
		}
		elapsed := time.Since(start)
		switch {
		case out.EOF():
			return ByEnd, nil
		case out.More && elapsed < max(limit, readLimit):
			// What is there already is always looked at.
		case input != nil:
			w.event.Evidence = input.Evidence
			return ByInput, nil
		case w.until.Quiet > 0 && !out.More && time.Since(last) >= w.until.Quiet:
			return ByQuiet, nil
		case elapsed >= limit:
			return over, nil
		}
	}
}

// forever is a limit that is none.
const forever = time.Duration(math.MaxInt64)

// readLimit is how long output that is there already is read when there is no
// time to wait: it could come as fast as it is read.
const readLimit = time.Second

// limit returns how long the wait may take, and the reason when it has.
func (u *Until) limit() (time.Duration, string) {
	limit, over := forever, ByTimeout
	switch {
	case u.Timeout > 0:
		limit = u.Timeout
	case u.Timeout < 0:
		limit = 0
	}
	ceiling := u.Ceiling
	if ceiling == 0 {
		ceiling = DefaultCeiling
	}
	if ceiling > 0 && ceiling < limit {
		limit, over = ceiling, ByCeiling
	}
	return limit, over
}

// A matcher looks for the patterns of a waiter in a stream.
type matcher struct {
	*waiter
	strip  stripper
	window []byte // the text in which the rest of a match may follow
}

// look looks for the patterns in the text that was added, and fills the event if
// one is there.
func (w *matcher) look(ctx context.Context, out terminal.Output) (bool, error) {
	literal, pattern := w.until.Literal, w.until.Regexp
	if literal == "" && pattern == nil {
		return false, nil
	}
	switch {
	case out.Truncated:
		w.slide(0)
		w.strip = stripper{}
		out.Text = out.Text[vt.Remnant(out.Text):]
	case w.event.Cursor == w.until.Cursor: // which may lie in a sequence
		state, err := stateAt(ctx, w.t, w.event.Cursor, out.Text)
		if err != nil {
			return false, err
		}
		w.strip.state = state
	}
	before, old := w.strip, len(w.window)
	w.window, _ = w.strip.strip(w.window, out.Text, -1)

	var loc []int
	if literal != "" {
		from := max(old-len(literal)+1, 0)
		if i := bytes.Index(w.window[from:], []byte(literal)); i >= 0 {
			loc = []int{from + i, from + i + len(literal)}
		}
	}
	if loc == nil && pattern != nil {
		loc = pattern.FindSubmatchIndex(w.window)
	}
	if loc == nil {
		keep := len(literal)
		if pattern != nil {
			keep = max(keep, matchWindow)
		}
		if len(w.window) > keep {
			w.slide(keep)
		}
		return false, nil
	}

	w.event.matched(string(w.window), loc)
	if loc[1] <= old && !out.Truncated {
		return true, nil // its end was there, what followed made it a match
	}
	_, n := before.strip(make([]byte, old, len(w.window)), out.Text, max(loc[1], old))
	var err error
	w.event.Cursor, _, err = cursorAt(ctx, w.t, out, n)
	return true, err
}

// matched notes what was found in text: the start and end of the match, and of
// each group.
func (e *Event) matched(text string, loc []int) {
	e.Match = text[loc[0]:loc[1]]
	for i := 2; i < len(loc); i += 2 {
		group := ""
		if loc[i] >= 0 {
			group = text[loc[i]:loc[i+1]]
		}
		e.Groups = append(e.Groups, group)
	}
}

// slide drops all but the last n bytes of the window. A NUL, which is in no
// output, stands for the rest, so that what follows is no start of a line.
func (w *matcher) slide(n int) {
	tail := text.Tail(w.window, n)
	w.window = append(w.window, 0)
	w.window = w.window[:1+copy(w.window[1:], tail)]
	w.window[0] = 0
}

// An inputCause ends the reading of a command that waits for input.
type inputCause struct{ terminal.Evidence }

func (*inputCause) Error() string { return "the command waits for input" }

// watchInput returns a context that ends with an inputCause when the command
// waits for input, if that is waited for, and what ends the watching.
func (w *waiter) watchInput(ctx context.Context) (_ context.Context, stop func(), err error) {
	u := &w.until
	waiter, ok := terminal.As[terminal.ActivityReader](w.t)
	only := !u.Output && u.Quiet == 0 && u.Literal == "" && u.Regexp == nil
	switch {
	case !u.Input:
		return ctx, func() {}, nil
	case !ok && only:
		return ctx, nil, fmt.Errorf("view: wait for input: the terminal cannot tell: %w", errors.ErrUnsupported)
	case !ok:
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		state, evidence, err := waiter.WaitActivity(ctx, terminal.Waiting, u.Cursor)
		switch {
		case err != nil && only:
			cancel(fmt.Errorf("view: wait for input: %w", err))
		case err == nil && state == terminal.Waiting:
			cancel(&inputCause{evidence})
		}
	})
	return ctx, func() { cancel(nil); watch.Wait() }, nil
}
