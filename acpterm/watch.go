package acpterm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/terminal"
)

const (
	// confirmAfter is how long after the exit the output is read once more: many
	// clients report the exit before they have read the last output.
	confirmAfter = 50 * time.Millisecond

	// patience is how long a command is watched of which the client says that
	// it has ended, and not how.
	patience = terminal.SettleTimeout

	// longPatience is how long it may be quiet if it has written since, or just
	// before: then what was said of its end came too early, or does not come.
	longPatience = terminal.PollIdle

	// maxWaits bounds the terminal/wait_for_exit of one terminal.
	maxWaits = 8

	// endTimeout bounds what is done to end a command, so that SettleTimeout
	// leaves time for its release.
	endTimeout = terminal.SettleTimeout - terminal.ReleaseTimeout

	// maxFailures is after how many reads that failed in a row the client is
	// asked whether it still knows the terminal.
	maxFailures = 3
)

// A watch is what run knows of its command. Only run's goroutine touches it.
type watch struct {
	*term
	peer peer

	// ctx is that of the requests below. It ends when the terminal is released,
	// so that one which is never answered does not stay with the connection.
	ctx     context.Context
	waits   chan reply[acp.WaitForTerminalExitResponse] // holds maxWaits
	asked   int                                         // waits sent
	waiting int                                         // waits not answered
	out     <-chan reply[acp.TerminalOutputResponse]    // one at a time: some clients empty their buffer by it
	kill    <-chan reply[acp.KillTerminalResponse]      // nil before the kill, and once it is answered

	poll      *time.Timer
	interval  time.Duration
	idle      bool           // poll is of an output that nobody waits for, and has no turn yet
	polled    time.Time      // when out was last sent
	again     bool           // read once more as soon as out is answered
	refreshed []chan<- error // wait for the read after that of out, if again is set

	stopping  <-chan struct{}  // term.stop, nil once seen
	timeout   <-chan time.Time // of the command
	doubt     <-chan time.Time // the end of patience
	stopped   bool             // Stop, or Close
	timedOut  bool
	exited    bool // how is in exit
	exit      terminal.Exit
	disputed  bool             // the other source says that it failed, or did not
	endedVoid bool             // a snapshot said that it ended, and not how
	unknown   bool             // patience has ended
	stranger  bool             // the client does not know the terminal, or cannot say anything of it
	lost      bool             // the connection has ended
	expired   bool             // Close waits no longer
	reason    terminal.Outcome // why we ended the command, or ""
	complete  bool             // a snapshot was taken after the exit

	waitErr, outErr, killErr error            // of the last such request, nil if it was answered well
	failures                 int              // reads that failed in a row
	settling                 bool             // no more polling
	whole                    bool             // the next answered read is the last one
	hurry                    <-chan time.Time // nil, or from a stop that comes while settling
	hurried                  bool             // whoever stops waits no longer
}

// run watches the command, ends it when it must end, and releases its terminal.
// It alone writes the output and the end of Info.
func (t *term) run() {
	defer close(t.over)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &watch{
		term: t, peer: t.manager.peer, ctx: ctx,
		waits:    make(chan reply[acp.WaitForTerminalExitResponse], maxWaits),
		interval: terminal.PollMin,
		idle:     true,
		stopping: t.stop,
	}
	w.poll = time.NewTimer(w.interval)
	defer w.poll.Stop()
	if d := t.info.Command.Timeout; d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		w.timeout = timer.C
	}

	w.askWait()
	w.until(time.Time{}, func() bool { return w.ended() || w.stopped || w.timedOut })
	switch {
	case w.lost, w.expired: // nobody is there, or nobody waits
	case w.exited:
		w.lastOutput(time.Now().Add(terminal.OutputTimeout))
	case w.stranger: // nothing is left to be killed, or to be read
	case w.unknown:
		w.reason = terminal.Unknown
		w.end()
	case w.timedOut:
		w.reason = terminal.TimedOut
		w.end()
	case w.stopped:
		w.reason = terminal.Stopped
		w.end()
	}
	w.finish()

	select {
	case <-t.shown:
	case <-w.peer.gone:
	case <-t.manager.expired:
	}
	switch {
	case w.peer.lost():
		t.manager.abandon(t.duty, w.exited)
	case closed(t.shown):
		t.manager.release(t.duty, t.manager.expired)
	}
	t.manager.over(t)
}

// ended reports whether the end of the command is known, as far as it will be.
func (w *watch) ended() bool { return w.exited || w.unknown || w.stranger }

// until handles what happens until ready reports true, or the deadline if it is
// not zero. It returns early if the connection ends or Close gives up.
func (w *watch) until(deadline time.Time, ready func() bool) {
	var enough <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		enough = timer.C
	}
	for {
		w.lost = w.lost || w.peer.lost()
		if w.lost || w.expired || w.hurried || ready() {
			return
		}
		select {
		case r := <-w.waits:
			w.waited(r)
		case r := <-w.out:
			w.snapshot(r)
		case r := <-w.kill:
			w.kill, w.killErr = nil, r.err
		case <-w.poll.C:
			var turn time.Duration
			if w.idle {
				turn = w.manager.options.Pace.turn()
				w.idle = false // it has its turn
			}
			switch {
			case w.settling:
			case turn > 0:
				w.poll.Reset(turn)
			default:
				w.read()
			}
		case <-w.wake:
			w.pollSoon()
		case answer := <-w.refreshes:
			w.refreshed = append(w.refreshed, answer)
			w.again = w.out != nil
			w.read()
		case <-w.stopping:
			w.stopping, w.stopped = nil, true
			if w.settling {
				w.hurry = time.After(endTimeout)
			}
		case <-w.hurry:
			w.hurried = true
		case <-w.timeout:
			w.timeout, w.timedOut = nil, true
		case <-w.doubt:
			w.doubt = nil
			// A new wait that is not answered means that it runs.
			w.unknown = w.endedVoid || w.waiting == 0
		case <-w.peer.gone:
		case <-w.manager.expired:
			w.expired = true
		case <-enough:
			return
		}
	}
}

// askWait sends a terminal/wait_for_exit, unless nothing is to be learned from it
// any more.
func (w *watch) askWait() {
	if w.asked == maxWaits || w.settling || w.reason != "" {
		return
	}
	w.asked++
	w.waiting++
	callTo(w.waits, w.ctx, w.peer.conn.WaitForTerminalExit, acp.WaitForTerminalExitRequest{SessionId: w.peer.session, TerminalId: w.duty.ID})
}

// waited takes an answer to terminal/wait_for_exit.
func (w *watch) waited(r reply[acp.WaitForTerminalExitResponse]) {
	w.waiting--
	w.waitErr = r.err
	if r.err == nil {
		if w.sawExit(w.manager.options.Profile.exit(r.value.ExitCode, r.value.Signal)) {
			return
		}
		w.startDoubt()
	}
	w.pollSoon() // what does the other source say?
}

// sawExit takes the evidence of an end, and reports whether there is any.
func (w *watch) sawExit(exit terminal.Exit) bool {
	switch {
	case exit.Known() && !w.exited:
		w.exited, w.exit = true, exit
	case exit.Known():
		w.disputed = w.disputed || exit.Success() != w.exit.Success()
	}
	return w.exited
}

// startDoubt is called when the client says that the command has ended, and not
// how. Stubs and failed starts look like this, and they never say more.
func (w *watch) startDoubt() {
	if w.doubt == nil && !w.settling && w.reason == "" {
		w.doubt = time.After(patience)
	}
}

// read sends a terminal/output unless one is under way, or the end has come.
func (w *watch) read() {
	if w.out != nil || w.lost || w.expired {
		return
	}
	w.polled = time.Now()
	w.out = call(w.ctx, w.peer.conn.TerminalOutput, acp.TerminalOutputRequest{SessionId: w.peer.session, TerminalId: w.duty.ID})
}

// snapshot takes an answer to terminal/output.
func (w *watch) snapshot(r reply[acp.TerminalOutputResponse]) {
	w.out, w.outErr = nil, r.err
	grew := false
	if r.err != nil {
		w.failed()
	} else {
		w.failures = 0
		w.stream.settled = w.complete
		if text := w.stream.next(r.value.Output, r.value.Truncated, w.whole); text != "" {
			grew = true
			w.update(func(i *terminal.Info) {
				if i.FirstOutput.IsZero() {
					i.FirstOutput = time.Now()
				}
			})
			w.output.Write([]byte(text))
		}
		if s := r.value.ExitStatus; s != nil {
			w.complete = true
			if !w.sawExit(w.manager.options.Profile.exit(s.ExitCode, s.Signal)) {
				w.endedVoid = true
				w.startDoubt()
			}
		}
	}
	if grew && w.doubt != nil && !w.endedVoid {
		w.doubt = time.After(longPatience) // it may well run, whatever was said
	}
	if w.doubt != nil && w.waiting == 0 && w.waitErr == nil {
		w.askWait() // how?
	}

	if w.again && !w.stranger {
		w.again = false
		w.read()
		return
	}
	for _, answer := range w.refreshed {
		answer <- w.peer.failure(w.ctx, acp.ClientMethodTerminalOutput, r.err)
	}
	w.refreshed = nil
	w.schedule(grew)
}

// failed counts a read that failed. If the client knows the terminal in no other
// way either, it has ended it.
func (w *watch) failed() {
	w.failures++
	switch {
	case w.waitErr != nil && w.failures > 1:
		w.stranger = true
	case w.failures%maxFailures == 0:
		w.askWait()
	}
}

// schedule sets when the output is read next. While nobody reads it is read more
// and more seldom: if the client never answers terminal/wait_for_exit, the end is
// seen within about the time that the command ran.
func (w *watch) schedule(grew bool) {
	w.idle = !w.isRead() && w.doubt == nil && w.waitErr == nil && w.failures == 0 && !w.stopped && !w.timedOut
	switch {
	case w.idle:
		w.interval = min(2*w.interval, terminal.PollIdle)
	case grew:
		w.interval = terminal.PollMin
	default:
		w.interval = min(2*w.interval, terminal.PollMax)
	}
	w.poll.Reset(w.interval)
}

// pollSoon makes the output be read at once, or as soon as it may be read again.
func (w *watch) pollSoon() {
	w.idle = false
	w.interval = terminal.PollMin / 2 // schedule doubles it
	w.poll.Reset(max(0, time.Until(w.polled.Add(terminal.PollMin))))
}

// readNow reads the output as it is now, if the client answers before deadline.
func (w *watch) readNow(deadline time.Time) {
	answered := func() bool { return w.out == nil }
	w.until(deadline, answered)
	if w.out == nil && time.Now().Before(deadline) {
		w.read()
		w.until(deadline, answered)
	}
	if w.out != nil || w.expired {
		w.outErr = errNoAnswer
	}
}

// lastOutput reads what is left after the end of the command.
func (w *watch) lastOutput(deadline time.Time) {
	confirm := !w.manager.options.Profile.CompleteAtExit
	w.whole, w.settling = !confirm, true
	// A read that is under way may not even be sent: it must not follow the release.
	w.until(deadline, func() bool { return w.out == nil })
	if !w.complete || w.outErr != nil || w.out != nil {
		w.readNow(deadline)
	}
	if confirm && w.out == nil {
		w.until(time.Now().Add(min(confirmAfter, time.Until(deadline))), func() bool { return false })
		w.whole = true
		w.readNow(deadline)
	}
}

// end ends the command: it kills it, waits a little for how it ended, and reads
// what there is. All of it takes at most endTimeout.
func (w *watch) end() {
	deadline := time.Now().Add(endTimeout)
	w.killErr = errNoAnswer
	w.kill = call(w.ctx, w.peer.conn.KillTerminal, acp.KillTerminalRequest{SessionId: w.peer.session, TerminalId: w.duty.ID})
	w.pollSoon() // the end may show in the output only
	w.until(time.Now().Add(terminal.KillTimeout), func() bool { return w.kill == nil && (w.ended() || w.endedVoid) })
	if !w.stranger {
		w.lastOutput(deadline)
	}
}

// finish makes what is known final.
func (w *watch) finish() {
	if w.manager.options.Profile.LosesTail && !w.lost {
		w.output.Write([]byte(w.stream.mark("", after)))
	}
	w.output.Close()
	outcome, exit, err := w.verdict()
	w.update(func(i *terminal.Info) {
		i.Outcome, i.Exit, i.Err, i.Ended = outcome, exit, err, time.Now()
	})
	w.stream = stream{} // its memory
	for _, answer := range w.refreshed {
		answer <- err
	}
	w.manager.ended(w.term)
}

// verdict says how the command ended, and what went wrong.
func (w *watch) verdict() (terminal.Outcome, terminal.Exit, error) {
	said := func(method string, err error) error { return w.peer.failure(w.ctx, method, err) }
	outErr := said(acp.ClientMethodTerminalOutput, w.outErr)
	waitErr := said(acp.ClientMethodTerminalWaitForExit, w.waitErr)
	switch {
	case w.lost:
		return terminal.ConnectionLost, w.exit, fmt.Errorf("acpterm: %w", terminal.ErrConnectionLost)
	case w.reason == terminal.Unknown && !w.endedVoid && outErr == nil && w.Info().FirstOutput.IsZero():
		return terminal.Unknown, terminal.Exit{}, fmt.Errorf("acpterm: %w", ErrStub)
	case w.reason == terminal.Unknown:
		how := fmt.Errorf("acpterm: %w: the command has ended, it says, and not how", ErrBadReply)
		return terminal.Unknown, terminal.Exit{}, errors.Join(how, outErr)
	case w.reason != "":
		if !w.exited {
			killErr := w.killErr
			if killErr == nil {
				killErr = errNotSaid
			}
			outErr = errors.Join(said(acp.ClientMethodTerminalKill, killErr), outErr)
		}
		return w.reason, w.exit, outErr
	case w.exited && w.exit.Success() && (w.disputed || w.unproven() && outErr == nil):
		how := fmt.Errorf("acpterm: %w: exit code 0, of which terminal/output knows nothing", ErrBadReply)
		return terminal.Unknown, terminal.Exit{}, how
	case w.exited && w.exit.Signal != "":
		return terminal.Signalled, w.exit, outErr
	case w.exited:
		return terminal.Exited, w.exit, outErr
	case w.expired:
		return terminal.Stopped, w.exit, errors.Join(said(acp.ClientMethodTerminalKill, errNoAnswer), outErr)
	case w.stranger && !errors.Is(waitErr, errors.ErrUnsupported) && !errors.Is(outErr, errors.ErrUnsupported):
		return terminal.StoppedByClient, w.exit, waitErr
	}
	return terminal.Failed, w.exit, errors.Join(waitErr, outErr)
}

// errNotSaid is why the end is not known of a command that the client has killed,
// or says it has: some kill the shell that runs it only.
var errNotSaid = errors.New("the client has not said that the command has ended")

// unproven reports that nothing but the answer to terminal/wait_for_exit shows
// that the command has ever run. Some clients answer it with 0 when they could
// not start it.
func (w *watch) unproven() bool { return !w.complete && w.Info().FirstOutput.IsZero() }
