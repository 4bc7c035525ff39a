package localterm

import (
	"context"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// What a command is doing is asked of the system only while somebody wants to
// know, and only while its output is quiet: who writes does not wait.
const (
	settleTime    = 25 * time.Millisecond  // after output or input: what follows from it is under way
	likelyQuiet   = 150 * time.Millisecond // before likely evidence counts
	stateInterval = 75 * time.Millisecond  // between two samples, and before the first
	stateRelaxed  = 2 * stateInterval      // the same, once it was quiet for stateLong
	stateLong     = time.Second
)

// ReadActivity implements [terminal.ActivityReader]. Where it was not quiet just now
// it waits a moment, so that input which was written has arrived.
func (t *term) ReadActivity(ctx context.Context, cursor int64) (terminal.Activity, terminal.Evidence, error) {
	if wait := settleTime - t.out.quiet(); wait > 0 && !t.ended() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-t.done:
		case <-ctx.Done():
			return terminal.Working, noEvidence(""), context.Cause(ctx)
		}
	}
	state, evidence := t.state(cursor)
	return state, evidence, nil
}

// WaitActivity implements [terminal.ActivityReader].
func (t *term) WaitActivity(ctx context.Context, want terminal.Activity, cursor int64) (terminal.Activity, terminal.Evidence, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		state, evidence := terminal.Working, noEvidence("")
		next := stateInterval
		quiet := t.out.quiet()
		if t.ended() || quiet >= stateInterval {
			state, evidence = t.state(cursor)
			if quiet > stateLong {
				next = stateRelaxed
			}
		} else {
			next -= quiet
		}
		if state == want || state == terminal.Finished {
			return state, evidence, nil
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-t.done:
		case <-ctx.Done():
			return state, evidence, context.Cause(ctx)
		}
	}
}

// state is what the command is doing now.
func (t *term) state(cursor int64) (terminal.Activity, terminal.Evidence) {
	if t.ended() {
		return terminal.Finished, terminal.Evidence{Certainty: terminal.Certain, Reason: t.final.Exit.String()}
	}
	if !t.out.news(cursor) {
		return terminal.Working, noEvidence("nothing was written or read since")
	}
	state, evidence := t.sess.InputState()
	switch {
	case state == terminal.Finished:
		return terminal.Working, noEvidence("it has exited, and its output is read to the end")
	case state == terminal.Waiting && evidence.Certainty != terminal.Certain && t.out.quiet() < likelyQuiet:
		return terminal.Working, noEvidence(evidence.Reason + ", but its output is not quiet yet")
	}
	return state, evidence
}

func noEvidence(reason string) terminal.Evidence {
	return terminal.Evidence{Certainty: terminal.NoCertainty, Reason: reason}
}
