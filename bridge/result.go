package bridge

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// A Result is what became of a command that Exec ran.
type Result struct {
	// ID is the terminal's: [State.Get] finds it.
	ID string

	// Environment is where the command ran: [EnvironmentClient], [EnvironmentLocal],
	// or a name of Options.Executors.
	Environment string

	// Output is the output as plain text, the tail of it, at most
	// Options.ResultLimit bytes; Truncated reports that there was more.
	Output    string
	Truncated bool

	// Cursor lies behind Output: where the next read of the terminal goes on.
	Cursor int64

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

	// Survivors are processes of the command that still ran when it had ended; nil
	// if that is not known.
	Survivors []terminal.Proc

	// Waiting is why a command that goes on is believed to wait for input; nil if
	// it does not, as far as anybody can tell.
	Waiting *terminal.Evidence
}

// String says how the command stands, for a model: "exited with code 3 after 1.2s",
// "is running as t3, for 12s, waiting for input: Password:".
func (r *Result) String() string {
	var start time.Time
	if r.ID != "" {
		start = time.Unix(0, 0)
	}
	s := terminal.Info{
		ID: r.ID, Outcome: r.Outcome, Exit: r.Exit, Survivors: r.Survivors, Started: start, Ended: start.Add(r.Duration),
	}.String()
	if r.Waiting == nil {
		return s
	}
	s += ", waiting for input"
	if prompt := strings.TrimSpace(r.Output[strings.LastIndexByte(r.Output, '\n')+1:]); prompt != "" {
		s += ": " + prompt
	}
	return s
}

// running returns the result of a command that goes on in the background. It may
// have ended since that was decided.
func (s *State) running(k *command, t terminal.Terminal) (*Result, error) {
	info := t.Info()
	info.Outcome, info.Exit, info.Survivors, info.Err = terminal.Running, terminal.Exit{}, nil, nil
	r, err := s.result(k, t, info)
	if reader, ok := terminal.As[terminal.ActivityReader](t); ok {
		ctx, cancel := context.WithTimeout(context.Background(), limits.OutputTimeout)
		defer cancel()
		if state, evidence, err := reader.ReadActivity(ctx, 0); err == nil && state == terminal.Waiting {
			r.Waiting = &evidence
		}
	}
	return r, err
}

// result returns what is known of the command of k, whose terminal is t, by info. The
// error says what of its output or its end could not be found out.
func (s *State) result(k *command, t terminal.Terminal, info terminal.Info) (*Result, error) {
	v := s.view(k)
	var fresh time.Duration
	if v.route.client && !await.Closed(t.Done()) {
		fresh = 2 * limits.PollMin
	}
	out, err := readPlain(t, s.b.opts.ResultLimit, fresh)
	r := &Result{
		ID:          info.ID,
		Environment: info.Environment,
		Output:      out.Text,
		Truncated:   out.Truncated,
		Cursor:      out.Cursor,
		Outcome:     info.Outcome,
		Exit:        info.Exit,
		TerminalID:  v.clientID,
		Duration:    info.RunTime(),
		Survivors:   info.Survivors,
	}
	if v.pane != nil {
		r.Presentation = v.pane.how
	}
	if err != nil {
		err = fmt.Errorf("bridge: the output of %s: %w", info.ID, err)
	} else if info.Outcome == terminal.Unknown || v.route.client && info.Outcome.Ended() && info.Outcome != terminal.StoppedByClient {
		// Nobody knows how it ended; or the client has not shown all of it, or has
		// not said that a command which was stopped has ended.
		err = info.Err
	}
	return r, err
}
