package acpterm

import (
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

const (
	// confirmAfter is how long after the exit the output is read once more: many
	// clients report the exit before they have read the last output.
	confirmAfter = 50 * time.Millisecond

	// unconfirmedGrace is how long a command is watched if the client reports that
	// it has ended and does not report how.
	unconfirmedGrace = limits.SettleTimeout

	// unconfirmedLong is how long it may be quiet if it has written since, or just
	// before: then what was said of its end came too early, or does not come.
	unconfirmedLong = limits.PollIdle

	// maxWaits bounds the terminal/wait_for_exit of one terminal, and retryMin
	// and retryMax the time between one that failed and the next.
	maxWaits = 8
	retryMin = time.Second
	retryMax = 4 * time.Second

	// endTimeout bounds what is done to end a command, so that SettleTimeout
	// leaves time for its release.
	endTimeout = limits.SettleTimeout - limits.ReleaseTimeout

	// aftermath is how long the processes of a command have to end after the
	// client's answer to the kill, before those that live on are ended here.
	aftermath = 100 * time.Millisecond

	// atomicWrite is how many bytes one write to a pipe takes as a whole: a client
	// that has seen less, and more than nothing, has seen no part of a write.
	atomicWrite = 4 << 10

	// maxFailures is after how many reads that failed in a row the client is
	// asked whether it still knows the terminal.
	maxFailures = 3
)

// A phase is what is being done about a command.
type phase int

const (
	running phase = iota // it is watched
	killing              // it is being killed
	reading              // its last output is read: nothing is polled any more
)

// A watch follows its command from the start to the release. Only run's goroutine
// touches it.
type watch struct {
	*term
	ev    evidence
	phase phase
	told  ending // by its timeout, by Stop, or by the end of its grace period
	cut   ending // byLoss or byDeadline: nothing more can be learned

	// Requests, and what comes of them.
	waits   chan reply[acp.WaitForTerminalExitResponse] // holds all that are ever sent
	asked   int                                         // waits sent
	waiting int                                         // waits not answered
	out     <-chan reply[acp.TerminalOutputResponse]    // one at a time: some clients empty their buffer by it
	outLast bool                                        // out is the last read
	outOver bool                                        // the end was known when out was sent
	whole   bool                                        // the last read brought output that does not stop in the middle
	kill    <-chan reply[acp.KillTerminalResponse]      // nil before the kill, and once it is answered

	refreshed []chan<- seen // wait for a read that was sent after they came
	again     bool          // that is not out, but the next one

	poll  poll
	pause time.Duration   // before the next retry
	stop  <-chan struct{} // stopping, nil once seen
	alarm *time.Timer     // of what is due first
	// When something is due; zero is never.
	retry, timeout, unconfirmed, hurry time.Time
}

// run watches the command, ends it when it must end, and releases its terminal.
// It alone writes the output and the end of Info.
func (t *term) run() {
	defer close(t.over)
	w := &watch{
		term:  t,
		ev:    evidence{profile: t.current().client.profile(t.manager.options.Profile)},
		waits: make(chan reply[acp.WaitForTerminalExitResponse], maxWaits+1),
		poll:  newPoll(),
		stop:  t.stopping,
		alarm: time.NewTimer(0),
	}
	defer w.alarm.Stop()
	if d := t.info.Command.Timeout; d > 0 {
		w.timeout = time.Now().Add(d)
	}

	w.askWait()
	w.until(time.Time{}, func() bool { return w.why() != watching })
	why := w.why()
	switch why {
	case byLoss, byDeadline, byOblivion: // nobody is there, or waits, or knows it
	case byItself:
		w.lastOutput(time.Now().Add(limits.OutputTimeout), !w.ev.profile.CompleteAtExit)
	default:
		w.end(why)
	}
	if w.cut == byLoss {
		why = byLoss
	}
	w.finish(why)
	t.release.cancel()
	w.releaseTerminal()
}

// why returns why the command is to be watched no longer.
func (w *watch) why() ending {
	switch {
	case w.cut == byLoss:
		return byLoss
	case w.ev.exit.Known():
		return byItself
	case w.ev.forgotten():
		return byOblivion
	case w.cut != watching:
		return w.cut
	}
	return w.told
}

// until handles what happens until ready reports true, or the deadline if it is
// not zero. It returns early once the watch is cut. What has come counts before a
// bound that has passed: of an answer and the end of the time for it, the answer.
func (w *watch) until(deadline time.Time, ready func() bool) {
	for {
		p := w.current()
		w.receive()
		if p.lost() {
			w.cut = byLoss
		}
		now := time.Now()
		w.passBounds(now)
		if w.cut != watching || ready() || past(deadline, now) {
			return
		}
		w.ask(now)
		w.alarm.Reset(time.Until(first(deadline, w.poll.due, w.retry, w.timeout, w.unconfirmed, w.hurry)))
		select {
		case r := <-w.waits:
			w.waited(r)
		case r := <-w.out:
			w.snapshot(r)
		case r := <-w.kill:
			w.killed(r)
		case <-w.wake:
			w.poll.soon()
		case answer := <-w.refreshes:
			w.refreshed = append(w.refreshed, answer)
			w.again = w.out != nil
			w.read()
		case <-w.stop:
			w.stop = nil
			w.tell(byStop)
			w.hurry = time.Now().Add(endTimeout) // whatever is being done by then
		case <-w.alarm.C:
		case <-p.gone:
		case <-w.manager.expired:
			w.cut = byDeadline
		}
	}
}

// receive takes the replies that have come.
func (w *watch) receive() {
	for {
		select {
		case r := <-w.waits:
			w.waited(r)
		case r := <-w.out:
			w.snapshot(r)
		case r := <-w.kill:
			w.killed(r)
		default:
			return
		}
	}
}

// passBounds takes note of the bounds that have passed.
func (w *watch) passBounds(now time.Time) {
	if due(&w.timeout, now) {
		w.tell(byTimeout)
	}
	if due(&w.unconfirmed, now) {
		switch {
		case w.ev.shown == voidStatus:
			w.tell(inSilence)
		case w.waiting > 0: // a wait that is not answered: it runs
		case w.ev.waitErr == nil:
			w.tell(inSilence)
		case !w.current().client.carriesStatus():
			w.tell(unwatched)
		}
	}
	if due(&w.hurry, now) {
		w.cut = byDeadline
	}
}

// tell sets why the command is to be watched no longer, unless there is a reason.
func (w *watch) tell(why ending) {
	if w.told == watching {
		w.told = why
	}
}

// ask sends the requests that are due.
func (w *watch) ask(now time.Time) {
	if due(&w.retry, now) {
		w.askWait()
	}
	if w.phase == reading {
		w.poll.due = time.Time{}
	}
	if past(w.poll.due, now) && w.poll.turn(w.current().client, now) {
		w.read()
	}
}

// askWait sends a terminal/wait_for_exit, unless nothing is to be learned from it
// any more.
func (w *watch) askWait() {
	if w.asked < maxWaits && w.phase == running {
		w.sendWait()
	}
}

func (w *watch) sendWait() {
	p := w.current()
	w.asked++
	w.waiting++
	callTo(w.waits, p, w.release, p.conn.WaitForTerminalExit, acp.WaitForTerminalExitRequest{SessionId: p.session, TerminalId: w.term.release.id})
}

// waited takes an answer to terminal/wait_for_exit. One that says that the command
// has ended, and not how, is what stubs and failed starts say, and no more; an error
// may pass.
func (w *watch) waited(r reply[acp.WaitForTerminalExitResponse]) {
	w.waiting--
	w.current().client.learnSignal(r.value.Signal)
	err := w.failure(acp.ClientMethodTerminalWaitForExit, r.err)
	switch {
	case w.ev.waited(r.value.ExitCode, r.value.Signal, err):
		return
	case err == nil:
		w.startUnconfirmed(unconfirmedGrace)
	default:
		w.startUnconfirmed(unconfirmedLong)
		w.pause = min(max(2*w.pause, retryMin), retryMax)
		w.retry = time.Now().Add(w.pause)
	}
	w.poll.soon() // what does the other source say?
}

// startUnconfirmed gives the command so long to show that it runs, or how it ended.
func (w *watch) startUnconfirmed(d time.Duration) {
	if w.phase == running {
		w.unconfirmed = first(w.unconfirmed, time.Now().Add(d))
	}
}

// read sends a terminal/output unless one is under way, or the end has come.
func (w *watch) read() {
	w.poll.due = time.Time{} // the answer sets it
	if w.out != nil || w.cut != watching {
		return
	}
	p := w.current()
	w.poll.last = time.Now()
	w.outOver = w.ev.exit.Known()
	w.out = call(p, w.release, p.conn.TerminalOutput, acp.TerminalOutputRequest{SessionId: p.session, TerminalId: w.term.release.id})
}

// snapshot takes an answer to terminal/output.
func (w *watch) snapshot(r reply[acp.TerminalOutputResponse]) {
	w.out = nil
	err := w.failure(acp.ClientMethodTerminalOutput, r.err)
	w.ev.read(r.value.ExitStatus, err)
	grew := false
	w.whole = false
	if err != nil {
		if w.ev.failures%maxFailures == 0 {
			w.askWait() // does it still know the terminal?
		}
	} else if text := w.stream.next(r.value.Output, r.value.Truncated, w.outLast, w.outOver || r.value.ExitStatus != nil); text != "" {
		grew = true
		w.whole = len(text) < atomicWrite || strings.HasSuffix(r.value.Output, "\n")
		w.write(text)
	}
	if w.ev.shown == voidStatus && !w.ev.exit.Known() {
		w.startUnconfirmed(unconfirmedGrace)
	} else if grew && !w.unconfirmed.IsZero() {
		w.unconfirmed = time.Now().Add(unconfirmedLong) // it may well run, whatever was said
	}
	if !w.unconfirmed.IsZero() && w.waiting == 0 && w.ev.waitErr == nil {
		w.askWait() // how?
	}

	if w.again && !w.ev.forgotten() {
		w.again = false
		w.read()
		return
	}
	answer := seen{err: err}
	if s := r.value.ExitStatus; s != nil {
		answer.ended, answer.exit = true, w.ev.profile.exit(s.ExitCode, s.Signal)
	}
	w.answer(answer)
	idle := !w.isRead() && w.unconfirmed.IsZero() && w.ev.failures == 0 && w.told == watching
	w.poll.next(grew, idle)
}

// write appends to the output what a snapshot has shown.
func (w *watch) write(text string) {
	now, first := time.Now(), !w.ev.output
	w.ev.output = true
	w.update(func(i *terminal.Info) {
		i.LastOutput = now
		if first {
			i.FirstOutput = now
		}
	})
	w.output.Write([]byte(text))
}

// answer answers those who wait for a refresh.
func (w *watch) answer(s seen) {
	for _, answer := range w.refreshed {
		answer <- s
	}
	w.refreshed = nil
}

// readNow reads the output as it is now, if the client answers before deadline.
func (w *watch) readNow(deadline time.Time) {
	answered := func() bool { return w.out == nil }
	w.until(deadline, answered)
	if w.out == nil && time.Now().Before(deadline) {
		w.read()
		w.until(deadline, answered)
	}
	if w.out != nil || w.cut != watching {
		w.ev.outErr = w.failure(acp.ClientMethodTerminalOutput, errNoAnswer)
	}
}

// lastOutput reads what is left after the end of the command. With confirm it
// reads once more a little later, unless the client has shown that this brings
// nothing: what such a read brings is the evidence.
func (w *watch) lastOutput(deadline time.Time, confirm bool) {
	w.phase = reading
	w.outLast = !confirm
	// A read that is under way may not even be sent: it must not follow the release.
	w.until(deadline, func() bool { return w.out == nil })
	if w.ev.shown == noStatus || w.ev.outErr != nil || w.out != nil {
		w.readNow(deadline)
	}
	client, whole := w.current().client, w.whole
	if confirm && w.out == nil && !(whole && client.completeAtExit()) {
		w.until(first(deadline, time.Now().Add(confirmAfter)), func() bool { return false })
		w.outLast = true
		_, before := w.output.Bounds()
		w.readNow(deadline)
		_, after := w.output.Bounds()
		client.confirmed(whole && w.ev.outErr == nil, after > before)
	}
}

// end ends the command: it kills it, waits a little for how it ended, ends what the
// client has left of it on this host, and reads what there is. All of it takes at most
// endTimeout, but for processes that cannot be killed. If the client refuses to kill
// it, the release must do so, and soon.
func (w *watch) end(why ending) {
	deadline := time.Now().Add(endTimeout)
	w.phase = killing
	p := w.current()
	w.ev.seen = w.manager.sight(p, w.tag)
	w.ev.kill(w.failure(acp.ClientMethodTerminalKill, errNoAnswer))
	w.kill = call(p, w.release, p.conn.KillTerminal, acp.KillTerminalRequest{SessionId: p.session, TerminalId: w.term.release.id})
	if w.waiting == 0 {
		w.sendWait() // one that was answered before tells nothing of the kill
	}
	w.poll.soon() // the end may show in the output only
	mute := why == inSilence || why == unwatched
	over := func() bool {
		return w.kill == nil && (mute || w.ev.killErr != nil || w.ev.stage == confirmed || w.ev.forgotten())
	}
	limit := time.Now().Add(limits.KillTimeout)
	if w.ev.seen {
		w.until(limit, func() bool { return w.kill == nil })
		w.until(first(limit, time.Now().Add(aftermath)), over)
		w.ev.found, w.ev.left = w.manager.options.Host.End(w.tag, first(limit, time.Now().Add(limits.StopGrace)))
	}
	w.until(limit, over)
	refused := w.kill == nil && w.ev.killErr != nil
	if !w.ev.forgotten() {
		w.lastOutput(deadline, !refused && !w.ev.profile.CompleteAtExit)
	}
	if refused && w.ev.outErr != nil {
		// That looks like a connection which is about to end.
		w.until(first(deadline, time.Now().Add(confirmAfter)), func() bool { return false })
	}
}

// killed takes the answer to terminal/kill.
func (w *watch) killed(r reply[acp.KillTerminalResponse]) {
	w.kill, w.ev.killErr = nil, w.failure(acp.ClientMethodTerminalKill, r.err)
}

// finish makes what is known final.
func (w *watch) finish(why ending) {
	client := w.current().client
	if why != byLoss {
		if w.ev.profile.LosesTail {
			w.output.Write([]byte(w.stream.withGap("", after)))
		}
		client.learn(&w.ev)
	}
	w.output.Close()
	outcome, exit, err := w.ev.verdict(why, client.silent())
	w.update(func(i *terminal.Info) {
		i.Outcome, i.Exit, i.Err, i.Ended, i.Survivors = outcome, exit, err, time.Now(), w.ev.survivors()
	})
	w.stream = stream{} // its memory
	w.answer(seen{err: err})
	w.manager.registry.End(w.term, w.done)
}

// releaseTerminal releases the client's terminal.
func (w *watch) releaseTerminal() {
	p, m := w.current(), w.manager
	select {
	case <-w.shown:
	case <-p.gone:
	case <-m.expired:
	}
	if p.lost() || await.Closed(w.shown) {
		m.release(p, w.term.release, w.ev.exit.Known(), m.expired)
	}
	m.over(w.term)
}

// failure translates the error of a request.
func (w *watch) failure(method string, err error) error {
	return w.current().failure(w.release.ctx, method, err)
}

// due reports whether at is not zero and has come, and makes it zero then.
func due(at *time.Time, now time.Time) bool {
	if !past(*at, now) {
		return false
	}
	*at = time.Time{}
	return true
}

// past reports whether at is not zero and has come.
func past(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// first returns the earliest time that is not zero, or one that is far away.
func first(times ...time.Time) time.Time {
	var least time.Time
	for _, at := range times {
		if least.IsZero() || !at.IsZero() && at.Before(least) {
			least = at
		}
	}
	if least.IsZero() {
		least = time.Now().Add(24 * time.Hour)
	}
	return least
}

// A poll says when an output is read next.
type poll struct {
	due      time.Time // zero while a read is under way
	last     time.Time // when the last read was sent
	interval time.Duration
	idle     bool // nobody waits for it, and it has no turn yet
}

func newPoll() poll {
	return poll{due: time.Now().Add(limits.PollMin), interval: limits.PollMin, idle: true}
}

// next sets when the output is read next. While it grows it is read often; while it
// does not, more and more seldom. If the client never answers
// terminal/wait_for_exit, the end is seen within about the time that the command
// ran.
func (p *poll) next(grew, idle bool) {
	switch p.idle = idle; {
	case grew && !idle:
		p.interval = limits.PollMin
	case grew:
		p.interval = min(p.interval, limits.PollMax)
	case idle:
		p.interval = min(2*p.interval, limits.PollIdle)
	default:
		p.interval = min(2*p.interval, limits.PollMax)
	}
	p.due = time.Now().Add(p.interval)
}

// soon makes the output be read at once, or as soon as it may be read again.
func (p *poll) soon() {
	p.idle = false
	p.interval = limits.PollMin / 2 // next doubles it
	p.due = p.last.Add(limits.PollMin)
}

// turn reports whether it is the turn of a read that is due, and sets when it is
// otherwise.
func (p *poll) turn(c *Client, now time.Time) bool {
	if !p.idle {
		return true
	}
	p.idle = false
	wait := c.turn()
	if wait > 0 {
		p.due = now.Add(wait)
	}
	return wait <= 0
}
