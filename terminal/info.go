package terminal

import (
	"strconv"
	"time"
)

// An Outcome says how a command ended. There is one for every command.
type Outcome string

// The outcomes.
const (
	Running         Outcome = "running"           // not ended
	Exited          Outcome = "exited"            // by itself, with the code in Exit
	Signalled       Outcome = "signalled"         // by a signal, but not one of Stop or of a timeout
	TimedOut        Outcome = "timed_out"         // stopped by Command.Timeout
	Stopped         Outcome = "stopped"           // by Stop, or because its Manager closed
	Cancelled       Outcome = "cancelled"         // stopped because its turn was cancelled
	StoppedByClient Outcome = "stopped_by_client" // the client ended it, by evidence
	ConnectionLost  Outcome = "connection_lost"   // the client is gone; what became of the command is unknown
	Failed          Outcome = "failed"            // it could not be started, watched or ended: see Info.Err
	Unknown         Outcome = "unknown"           // it ended, and nobody could say how
)

// Ended reports whether the outcome is that of an ended command.
func (o Outcome) Ended() bool { return o != Running && o != "" }

// An Exit is how a process ended: with a code, by a signal, or unknown. The
// zero value is unknown.
type Exit struct {
	// Code is the exit code, or nil if there was none or it is not known.
	Code *int
	// Signal is the name of the signal that ended the process, such as
	// "SIGKILL", or "" if there was none or it is not known.
	Signal string
}

// Success reports whether the process exited with code 0. Unknown is no
// success, and neither is code 0 beside a signal.
func (e Exit) Success() bool { return e.Code != nil && *e.Code == 0 && e.Signal == "" }

// Known reports whether there is a code or a signal.
func (e Exit) Known() bool { return e.Code != nil || e.Signal != "" }

// String returns "exit code 3", "SIGKILL" or "exit unknown".
func (e Exit) String() string {
	switch {
	case e.Signal != "":
		return e.Signal
	case e.Code != nil:
		return "exit code " + strconv.Itoa(*e.Code)
	}
	return "exit unknown"
}

// A Proc names a process of a command.
type Proc struct {
	PID     int
	Command string // as it was started, cut to a sensible length
}

// String returns "PID (COMMAND)".
func (p Proc) String() string { return strconv.Itoa(p.PID) + " (" + p.Command + ")" }

// Info is what is known of a command at one instant.
type Info struct {
	// ID is the terminal's, unique in its Manager and never used again.
	ID string

	// Environment is where the command runs.
	Environment string

	// Command is what was started. Treat its maps and slices as read-only.
	Command Command

	// Dir is the directory in which the command was started: that of Command, or
	// the Manager's. It is "" if nobody here knows it.
	Dir string

	Outcome Outcome
	Exit    Exit

	// Started is when the command had started; FirstOutput and LastOutput are when
	// the Manager first and last saw some, zero while there was none; Ended is zero
	// while it runs.
	Started, FirstOutput, LastOutput, Ended time.Time

	// Survivors are processes of the command that still ran when it had ended.
	// Nil is unknown or not looked for, empty is none.
	Survivors []Proc

	// Err is why the outcome is Failed, Unknown or ConnectionLost, or what
	// went wrong while the command was stopped.
	Err error
}

// RunTime is how long the command has run, or ran.
func (i Info) RunTime() time.Duration {
	switch {
	case i.Started.IsZero():
		return 0
	case i.Ended.IsZero():
		return time.Since(i.Started)
	}
	return i.Ended.Sub(i.Started)
}

// Unconfirmed reports that the command was stopped and counts as ended, but that
// nobody has said that it has, or that something of it is known to run.
func (i Info) Unconfirmed() bool {
	switch i.Outcome {
	case Stopped, Cancelled, TimedOut:
		if i.Survivors != nil {
			return len(i.Survivors) > 0
		}
		return i.Err != nil && !i.Exit.Known()
	}
	return false
}

// String says how the command stands, for a person or a model who knows which
// command it is: "is running as t3, for 12s", "exited with code 3 after 1.2s".
func (i Info) String() string {
	s := i.sentence()
	if i.Err != nil {
		s += ": " + i.Err.Error()
	}
	return s
}

func (i Info) sentence() string {
	after := " after " + shortly(i.RunTime())
	stopped := " and was stopped" + after
	if i.Unconfirmed() {
		stopped = "; it is not known to have ended" + after
	}
	switch i.Outcome {
	case Running:
		s := "is running"
		if i.ID != "" {
			s += " as " + i.ID
		}
		return s + ", for " + shortly(i.RunTime())
	case Exited:
		if i.Exit.Code == nil {
			return "ended, with an unknown exit code" + after
		}
		return "exited with code " + strconv.Itoa(*i.Exit.Code) + after
	case Signalled:
		if i.Exit.Signal == "" {
			return "was ended by a signal" + after
		}
		return "was ended by " + i.Exit.Signal + after
	case TimedOut:
		return "reached its timeout" + stopped + "; what it had written is kept"
	case Stopped:
		if i.Unconfirmed() {
			return "was to be stopped" + stopped
		}
		return "was stopped" + after
	case Cancelled:
		if i.Started.IsZero() {
			return "was cancelled before it had started"
		}
		return "was cancelled" + stopped
	case StoppedByClient:
		return "was stopped in the client" + after
	case ConnectionLost:
		return "was lost with the connection" + after + "; what became of it is unknown"
	case Failed:
		return "failed"
	}
	return "ended" + after + "; nobody could say how"
}

// shortly writes a duration as people read it.
func shortly(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// Output is a piece of a command's output.
type Output struct {
	// Text is the output from the cursor on, or from the oldest that is kept.
	Text string

	// NextCursor is where the next read goes on: a byte offset in the output.
	NextCursor int64

	// More reports whether there is output after NextCursor already.
	More bool

	// Truncated reports that output after the cursor was evicted before this
	// read: Text starts at the oldest that is kept.
	Truncated bool

	// Info is that of the same instant.
	Info Info
}

// EOF reports that the command has ended and nothing lies behind NextCursor.
func (o Output) EOF() bool { return o.Info.Outcome.Ended() && !o.More }
