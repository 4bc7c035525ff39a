// Package view shows the output of a [terminal.Terminal] to whoever reads it a
// piece at a time, above all to a model: as text without escape sequences
// ([Plain]), in numbered lines ([Pager]), as the screen of a full-screen program
// ([Screen]), and not before something has happened ([WaitFor]).
//
//	ev, err := view.WaitFor(ctx, t, view.Until{Literal: "listening", Timeout: time.Minute})
//	if err != nil {
//		return err // ctx ended; the command goes on
//	}
//	if ev.Reason != view.ByMatch {
//		page, err := pager.Read(ctx, -20, 0) // what did it say last?
//		…
//	}
//
// Everything here works on every Manager, needs nothing to be closed, reads and
// never ends a command, [Exec] and [Stop] apart, and works on ended commands too. Functions may
// be called from any number of goroutines; of the types, each says so if it may.
package view

import "time"

const (
	// DefaultLines is how many lines a page of a [Pager] has at most where the
	// reader does not say.
	DefaultLines = 1000

	// DefaultCeiling is the Ceiling of a wait that has none. Clients of tools give
	// up on a call after four minutes or so.
	DefaultCeiling = 3 * time.Minute

	// ScreenNote stands in plain text, on a line of its own, for what a program
	// drew on the alternate screen before it left that.
	ScreenNote = "[full-screen program: its screen is not shown]"

	// Why a wait has ended: the Reason of an [Event].
	ByOutput  = "output"
	ByQuiet   = "quiet"
	ByMatch   = "match"   // of Literal or Regexp
	ByInput   = "input"   // it waits for input
	ByEnd     = "end"     // of the command, with all its output
	ByTimeout = "timeout" // Until.Timeout
	ByCeiling = "ceiling" // Until.Ceiling, which was shorter

	// What came of a [Stop].
	StopEnded    = "ended"     // it has ended, now or before, and all that it started
	StopFailed   = "failed"    // some of it could not be ended, or nobody knows
	StopNotFound = "not_found" // no command has this id, or no longer
)
