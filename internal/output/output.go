// Package output reads what there is of a command's output.
package output

import (
	"context"
	"iter"

	"github.com/termbridge/termbridge/terminal"
)

// Rest yields the output of t from cursor on that is there, and waits for no more. The
// last pair has an error, or an Output without More. A command may write as fast as it
// is read, so a caller without a bound of its own may never get there.
func Rest(ctx context.Context, t terminal.Terminal, cursor int64) iter.Seq2[terminal.Output, error] {
	return func(yield func(terminal.Output, error) bool) {
		for {
			out, err := t.ReadOutput(ctx, cursor, 0)
			if !yield(out, err) || err != nil || !out.More {
				return
			}
			cursor = out.NextCursor
		}
	}
}
