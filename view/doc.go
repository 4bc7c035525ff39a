// Package view shows the output of a [terminal.Terminal] to whoever reads it a
// piece at a time, above all to a model: as text without escape sequences
// ([Plain]), in numbered lines ([Pager]), and not before something has happened
// ([WaitFor]).
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
// never ends a command, [Stop] apart, and works on ended commands too.
//
// Plain text is no screen: lines are not wrapped, since nobody reads them at
// the width of a terminal, and what a program draws by placing the cursor comes
// out in the order in which it was drawn.
package view
