package acpterm

import (
	"errors"
	"fmt"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/terminal"
)

// A status is what an exit status of terminal/output tells.
type status int

const (
	noStatus    status = iota // there was none: the command runs, or the client has none
	voidStatus                // the command has ended, and not how
	knownStatus               // it has ended, and how
)

// A stage is how far the client is with killing the command.
type stage int

const (
	unharmed  stage = iota
	killed          // it was told to kill it
	confirmed       // and has said since that the command has ended
)

// An evidence is what the client has said of one command: replies go in, and
// verdict returns what they amount to. It has no clock and sends nothing.
type evidence struct {
	profile Profile

	exit     terminal.Exit // how it ended, by the first reply that tells
	disputed bool          // another reply tells of success where exit is a failure, or the reverse
	shown    status        // the most that an output told
	output   bool          // there was output

	seen  bool            // its processes were seen on this host, before the kill
	found []terminal.Proc // of them, those that the client had not ended
	left  []terminal.Proc // of them, those that could not be ended here

	stage stage
	early bool // it said that the command has ended, and not how, before the kill

	waitErr, outErr, killErr error // of the last such request, nil if it was answered well
	failures                 int   // reads that failed in a row
}

// waited takes an answer to terminal/wait_for_exit, and reports whether it tells
// how the command ended.
func (e *evidence) waited(code *int, signal *string, err error) bool {
	if e.waitErr = err; err != nil {
		return false
	}
	return e.ended(e.profile.exit(code, signal))
}

// read takes an answer to terminal/output, whose text is taken elsewhere.
func (e *evidence) read(s *acp.TerminalExitStatus, err error) {
	if e.outErr = err; err != nil {
		e.failures++
		return
	}
	e.failures = 0
	if s == nil {
		return
	}
	e.shown = max(e.shown, voidStatus)
	if exit := e.profile.exit(s.ExitCode, s.Signal); e.ended(exit) && exit.Known() {
		e.shown = knownStatus
	}
}

// ended takes the claim that the command has ended, and reports whether it is
// known how.
func (e *evidence) ended(exit terminal.Exit) bool {
	switch {
	case e.stage == killed && (exit.Known() || !e.early || e.proven()):
		e.stage = confirmed
	case e.stage == unharmed && !exit.Known():
		e.early = true
	}
	switch {
	case exit.Known() && !e.exit.Known():
		e.exit = exit
	case exit.Known():
		e.disputed = e.disputed || exit.Success() != e.exit.Success()
	}
	return e.exit.Known()
}

// kill notes that the client is told to kill the command. Until it answers, err is
// why that is not known to be done.
func (e *evidence) kill(err error) { e.stage, e.killErr = killed, err }

// forgotten reports that the client does not know the terminal, or cannot tell
// anything of it: nothing more is to be had.
func (e *evidence) forgotten() bool { return e.waitErr != nil && e.failures > 1 }

// An ending is why a command is watched no longer.
type ending int

const (
	watching   ending = iota // it still is
	byItself                 // it has ended, and it is known how
	byTimeout                // its time is up
	byStop                   // Stop, or Close
	inSilence                // it is said to have ended, and nobody says how
	unwatched                // nothing would tell its end
	byOblivion               // the client does not know the terminal any more
	byDeadline               // Close or Stop waits no longer
	byLoss                   // the connection has ended
)

// errNotSaid is why the end is not known of a command that the client has killed,
// or says it has: some kill the shell that runs it only.
var errNotSaid = errors.New("the client has not said that the command has ended")

// verdict returns how the command ended, and what went wrong, for a client that is
// silent or not, see [Client]. Errors are translated already.
func (e *evidence) verdict(why ending, silent bool) (terminal.Outcome, terminal.Exit, error) {
	switch why {
	case byLoss:
		return terminal.ConnectionLost, e.exit, fmt.Errorf("acpterm: %w", terminal.ErrConnectionLost)
	case inSilence:
		if e.shown == noStatus && e.outErr == nil && !e.output {
			return terminal.Unknown, terminal.Exit{}, fmt.Errorf("acpterm: %w", ErrStub)
		}
		how := fmt.Errorf("acpterm: %w: the command has ended, it says, and not how", ErrBadReply)
		return terminal.Unknown, terminal.Exit{}, errors.Join(how, e.outErr)
	case byTimeout:
		return terminal.TimedOut, e.exit, errors.Join(e.notEnded(), survivors(e.found, e.left), e.outErr)
	case byStop, byDeadline:
		return terminal.Stopped, e.exit, errors.Join(e.notEnded(), survivors(e.found, e.left), e.outErr)
	case unwatched:
		return terminal.Failed, e.exit, errors.Join(e.waitErr, e.outErr, e.killErr)
	case byOblivion:
		if errors.Is(e.waitErr, errors.ErrUnsupported) || errors.Is(e.outErr, errors.ErrUnsupported) {
			return terminal.Failed, e.exit, errors.Join(e.waitErr, e.outErr)
		}
		return terminal.StoppedByClient, e.exit, e.waitErr
	}
	switch {
	case e.exit.Success() && (e.disputed || e.outErr == nil && !e.proven() && !silent):
		how := fmt.Errorf("acpterm: %w: exit code 0, of which terminal/output knows nothing", ErrBadReply)
		return terminal.Unknown, terminal.Exit{}, how
	case e.exit.Signal != "":
		return terminal.Signalled, e.exit, e.outErr
	}
	return terminal.Exited, e.exit, e.outErr
}

// notEnded returns why it is not known that a command which was killed has ended,
// or nil if it is.
func (e *evidence) notEnded() error {
	switch {
	case e.exit.Known(), e.killErr == nil && e.stage == confirmed:
		return nil
	case e.seen && len(e.left) == 0:
		return nil // none of its processes is there any more
	case e.killErr != nil:
		return e.killErr
	}
	return fmt.Errorf("acpterm: %s: %w", acp.ClientMethodTerminalKill, errNotSaid)
}

// survivors returns the processes of the command that run on after its end: nil if
// that is not known, empty for none.
func (e *evidence) survivors() []terminal.Proc {
	switch {
	case e.stage == unharmed:
		return nil // nobody has looked
	case e.seen && len(e.left) > 0:
		return e.left
	case e.seen, e.profile.KillsTree && e.notEnded() == nil:
		return []terminal.Proc{}
	}
	return nil
}

// proven reports that something else than the answer to terminal/wait_for_exit
// shows that the command has ever run. Some clients answer it with 0 when they
// could not start it.
func (e *evidence) proven() bool { return e.output || e.shown != noStatus }
