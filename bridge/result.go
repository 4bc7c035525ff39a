package bridge

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// A Result is what became of a command that Exec ran.
type Result struct {
	// ID is the terminal's: [State.Get] finds it.
	ID string

	// Output is the output as plain text, the tail of it, at most
	// Options.ResultLimit bytes; Truncated reports that there was more.
	Output    string
	Truncated bool

	// Outcome says how the command ended, [terminal.Running] that it goes on
	// in the background. Exit is how its process did, as far as that is known.
	Outcome terminal.Outcome
	Exit    terminal.Exit

	// Presentation is how the user saw it; TerminalID is the client's id of
	// its terminal, "" for a local one.
	Presentation Presentation
	TerminalID   string

	// Duration is how long the command ran.
	Duration time.Duration

	// Left are processes of the command that still ran when it had ended; nil
	// if that is not known.
	Left []terminal.Proc
}

// result returns what is known of the command of k, whose terminal is t, now. The
// error says what of its output or its end could not be found out.
func (s *State) result(k *command, t terminal.Terminal) (*Result, error) {
	info := t.Info()
	v := s.view(k)
	var fresh time.Duration
	if v.route.client && !closed(t.Done()) {
		fresh = 2 * terminal.PollMin
	}
	out, truncated, err := readPlain(t, s.b.opts.ResultLimit, fresh)
	if info.Outcome.Ended() && err == nil && v.pane != nil {
		v.call.card.settle(v.pane, out)
	}
	r := &Result{
		ID:         info.ID,
		Output:     out,
		Truncated:  truncated,
		Outcome:    info.Outcome,
		Exit:       info.Exit,
		TerminalID: v.clientID,
		Duration:   info.RunTime(),
		Left:       info.Left,
	}
	if v.pane != nil {
		r.Presentation = v.pane.how
	}
	if err != nil {
		err = fmt.Errorf("bridge: the output of %s: %w", info.ID, err)
	} else if v.route.client && info.Outcome.Ended() && info.Outcome != terminal.StoppedByClient {
		// The client has not shown all of it, or has not said that a command
		// which was stopped has ended.
		err = info.Err
	}
	return r, err
}

// readPlain returns the output of t that can be read now as plain text, the
// last limit bytes of it. A client is asked for the output of a running command
// while somebody waits for it, so fresh is how long to wait for what is new.
func readPlain(t terminal.Terminal, limit int, fresh time.Duration) (out string, truncated bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), terminal.OutputTimeout)
	defer cancel()
	p := view.Plainer{Max: limit + 4, Size: t.Info().Command.Size} // a rune more, so that what is over the limit shows
	var wait time.Duration
	var cursor int64
	for {
		o, err := t.ReadOutput(ctx, cursor, wait)
		if o.Truncated {
			p.Gap("")
		}
		_, _ = p.WriteString(o.Text)
		truncated = truncated || o.Truncated || strings.Contains(o.Text, terminal.GapMark)
		cursor = o.NextCursor
		switch {
		case err == nil && o.More:
			continue
		case err == nil && !o.EOF() && wait < fresh:
			wait = fresh
			continue
		}
		out = p.String()
		if len(out) > limit {
			out, truncated = text.TrimRest(text.Tail(out, limit), terminal.GapMark), true
		}
		return out, truncated, err
	}
}
