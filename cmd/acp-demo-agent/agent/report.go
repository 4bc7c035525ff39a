package agent

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// A Report is the rawOutput of a tool call about one command: run, bg, output,
// input, wait and kill.
type Report struct {
	Outcome  terminal.Outcome `json:"outcome"`
	ExitCode *int             `json:"exitCode"`
	Signal   *string          `json:"signal"`

	// Output is plain text, its tail if it is long; Truncated reports that
	// there was more.
	Output    string `json:"output"`
	Truncated bool   `json:"truncated"`

	// Presentation is how the user sees the command, and TerminalID the client's
	// id of its terminal, "" if it does not run in one.
	Presentation bridge.Presentation `json:"presentation"`
	TerminalID   string              `json:"terminalId"`

	// Environment is where the command runs, if it was sent to one of --env.
	Environment string `json:"environment,omitempty"`

	// ID is the command's, for output, input, wait and kill.
	ID         string `json:"id"`
	DurationMS int64  `json:"durationMs"`

	// Error says why the line could not be done, or why the outcome is not
	// known.
	Error string `json:"error,omitempty"`

	// Unknown reports that the command was stopped in the client, and that nobody
	// knows whether all that it had started has ended.
	Unknown bool `json:"survivorsUnknown,omitempty"`

	gone bool // nothing of it is left, whatever else is not known
}

// A ReadReport is the rawOutput of output: where the next output goes on.
type ReadReport struct {
	Report
	NextCursor int64 `json:"nextCursor"`
	// More reports that there is output behind NextCursor already.
	More bool `json:"more"`
}

// A JobReport is a Report without output.
type JobReport struct {
	Report
	Output *struct{} `json:"output,omitempty"` // hides Report.Output
	// Name and Group are those that its line gave it.
	Name  string `json:"name,omitempty"`
	Group string `json:"group,omitempty"`
}

// A WaitReport is the rawOutput of a wait for a state in which the command runs.
type WaitReport struct {
	Report
	State     control.State `json:"state"`
	Certainty string        `json:"certainty,omitempty"`
	Evidence  string        `json:"evidence,omitempty"` // why that is believed
}

// A JobsReport is the rawOutput of jobs.
type JobsReport struct {
	Jobs []JobReport `json:"jobs"`
	// Omitted is how many of the oldest jobs did not fit.
	Omitted int `json:"omitted,omitempty"`
}

// Limits in bytes of JSON. The line of an update is at most
// 32 KiB, and the text of a card takes its half of it.
const (
	outputBudget     = 28 << 10
	outputTextBudget = 13 << 10 // where the card has the output as text, too
	jobsBudget       = 16 << 10
	jobsTextBudget   = 8 << 10
	errorBudget      = 1 << 10
	askBudget        = 24 << 10 // of the rawInput that the user decides by
)

// setExit sets the exit code or signal, and the outcome.
func (r *Report) setExit(outcome terminal.Outcome, exit terminal.Exit) {
	r.Outcome = outcome
	r.ExitCode = exit.Code
	r.Signal = nil
	if exit.Signal != "" {
		r.Signal = &exit.Signal
	}
}

// setSurvivors sets what is known of the processes that the command has left; nil is
// nothing. Call it after setExit.
func (r *Report) setSurvivors(left []terminal.Proc) {
	switch r.Outcome {
	case terminal.Stopped, terminal.TimedOut, terminal.Cancelled:
		r.Unknown = r.TerminalID != "" && left == nil
		r.gone = left != nil && len(left) == 0
	}
}

// setOutput makes plain the output, cut to its tail so that its JSON takes at
// most budget bytes.
func (r *Report) setOutput(plain string, truncated bool, budget int) {
	r.Output = text.JSONTail(plain, budget)
	r.Truncated = truncated || len(r.Output) < len(plain)
}

// setError makes err the error, if it is one.
func (r *Report) setError(err error) {
	if err != nil {
		r.Error = text.JSONHead(strings.TrimPrefix(err.Error(), "bridge: "), errorBudget)
	}
}

// unconfirmed reports that the command was stopped, and that nobody has said that
// it has ended.
func (r *Report) unconfirmed() bool { return r.info().Unconfirmed() }

// info is what the report says of a command.
func (r *Report) info() terminal.Info {
	i := terminal.Info{ID: r.ID, Outcome: r.Outcome, Exit: terminal.Exit{Code: r.ExitCode}}
	if r.Signal != nil {
		i.Exit.Signal = *r.Signal
	}
	if r.ID != "" || r.Outcome != terminal.Cancelled {
		i.Started = time.Unix(0, 0)
		i.Ended = i.Started.Add(time.Duration(r.DurationMS) * time.Millisecond)
	}
	if r.gone {
		i.Survivors = []terminal.Proc{}
	}
	if r.Error != "" && r.Error != errTurnCancelled.Error() {
		i.Err = errors.New(r.Error)
	}
	return i
}

// helpReport is the Report of help, which runs nothing and succeeds.
func helpReport() Report {
	return Report{Outcome: terminal.Exited, ExitCode: new(0), Output: helpText, Presentation: bridge.PresentText}
}

// report is what Info says about a command.
func report(info terminal.Info, p bridge.Presentation, terminalID string) Report {
	r := Report{
		Presentation: p, TerminalID: terminalID, ID: info.ID,
		DurationMS: milliseconds(info.RunTime()), Environment: named(info.Environment),
	}
	r.setExit(info.Outcome, info.Exit)
	r.setSurvivors(info.Survivors)
	r.setError(info.Err)
	return r
}

// fit drops the oldest jobs until the rest fits into an update.
func (j *JobsReport) fit() {
	for len(j.Jobs) > 0 {
		b, err := json.Marshal(j)
		if err != nil || len(b) <= jobsBudget {
			return
		}
		j.Jobs = j.Jobs[1:]
		j.Omitted++
	}
}

func milliseconds(d time.Duration) int64 { return d.Round(time.Millisecond).Milliseconds() }
