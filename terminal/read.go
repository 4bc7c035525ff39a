package terminal

import (
	"context"
	"io"
	"iter"
	"math"
	"time"

	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/internal/vt"
)

// forever is a wait that only output, the end or the context ends.
const forever = time.Duration(math.MaxInt64)

// Wait blocks until the command has ended and returns its final Info, or until
// ctx ends and returns the Info of that instant with the Cause of ctx. It never
// ends the command.
func Wait(ctx context.Context, t Terminal) (Info, error) {
	select {
	case <-t.Done():
		return t.Info(), nil
	case <-ctx.Done():
	}
	select {
	case <-t.Done(): // both at once: the end is the better news
		return t.Info(), nil
	default:
		return t.Info(), context.Cause(ctx)
	}
}

// Follow yields the output of t from cursor on as it comes, and ends after the
// Output whose EOF is true, which is always yielded, if need be with no Text.
// If ctx ends first, the last pair has its Cause as the error.
func Follow(ctx context.Context, t Terminal, cursor int64) iter.Seq2[Output, error] {
	return func(yield func(Output, error) bool) {
		for {
			out, err := t.ReadOutput(ctx, cursor, forever)
			if err != nil {
				yield(out, err)
				return
			}
			cursor = out.NextCursor
			if !yield(out, nil) || out.EOF() {
				return
			}
		}
	}
}

// Copy writes the output of t from cursor on to w as it comes, until the
// command has ended and all is written. It returns the cursor behind what was
// written, so that a broken Copy can go on. Output that was evicted before it
// could be read is marked with [GapMark], and an escape sequence that lost its end
// or its start there is ended or left out.
func Copy(ctx context.Context, w io.Writer, t Terminal, cursor int64) (next int64, err error) {
	var state vt.State
	for out, err := range Follow(ctx, t, cursor) {
		if err != nil {
			return cursor, err
		}
		piece := out.Text
		if out.Truncated {
			piece = GapMark + piece[vt.Remnant(piece):]
			if state != vt.Ground {
				piece = text.Cancel + piece // the end of the sequence is lost
			}
		}
		state = state.After(piece)
		if _, err := io.WriteString(w, piece); err != nil {
			return cursor, err
		}
		cursor = out.NextCursor
	}
	return cursor, nil
}
