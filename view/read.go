package view

import (
	"context"
	"strings"
	"time"

	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
)

// ReadText is ReadOutput for output that is read a page at a time, by cursors and
// as the command wrote it. It neither needs nor changes where a Read begins. No page
// begins or ends inside of an escape sequence, a CR LF or a character, wherever cursor
// lies, and one that is full ends behind a whole line if there is one. Fit returns how many bytes of a text, its start, fit a page; nil
// is for all that fits a read of the terminal. A sequence whose end is still missing
// is left for the next page.
//
// Text is longer than a page only where bytes that are no UTF-8 hide the cursor of its
// end; the next page follows all of it then.
func (p *Pager) ReadText(ctx context.Context, cursor int64, wait time.Duration, fit func(text string) int) (terminal.Output, error) {
	t := p.t
	if fit == nil {
		fit = func(text string) int { return len(text) }
	}
	begin := time.Now()
	out, err := t.ReadOutput(ctx, cursor, wait)
	if err != nil {
		return out, err
	}
	if err := outside(ctx, t, cursor, &out); err != nil {
		return out, err
	}
	for out.Text != "" {
		n := vt.Page(out.Text, fit(out.Text))
		left := max(wait-time.Since(begin), 0)
		switch {
		case n == len(out.Text), n == 0 && out.EOF():
			return out, nil
		case n > 0:
			rest := out.Text[n:]
			next, ok, err := cursorAt(ctx, t, out, n)
			if ok {
				out.Text, out.NextCursor = out.Text[:n], next
				out.More = out.More || vt.Page(rest, len(rest)) > 0
			}
			return out, err
		case !out.More && left == 0: // a sequence whose end is still to come
			out.Text, out.NextCursor = "", cursor
			return out, nil
		}
		next, err := t.ReadOutput(ctx, out.NextCursor, left)
		if !next.Truncated {
			next.Text, next.Truncated = out.Text+next.Text, out.Truncated
		}
		if out = next; err != nil {
			return out, err
		}
	}
	return out, nil
}

// partLine is more than is left of most lines whose beginning was evicted.
const partLine = 1 << 10

// outside cuts from out, which t has returned for cursor, what belongs to a
// sequence that began before.
func outside(ctx context.Context, t terminal.Terminal, cursor int64, out *terminal.Output) error {
	if out.Truncated {
		// What is left of a line may be the rest of a sequence.
		if i := strings.IndexByte(out.Text, '\n'); i < partLine {
			out.Text = out.Text[i+1:]
		}
		out.Text = out.Text[vt.Remnant(out.Text):]
		return nil
	}
	state, err := stateAt(ctx, t, cursor, out.Text)
	n, _ := state.Skip(out.Text)
	out.Text = out.Text[n:]
	return err
}

// lookBack is how much output tells in which state the output behind it begins:
// far more than any sequence but a picture has.
const lookBack = 32 << 10

// stateAt returns where the output of t stands at a cursor, from which it reads
// text. Where what is before is gone it is taken to be outside of a sequence.
func stateAt(ctx context.Context, t terminal.Terminal, cursor int64, text string) (vt.State, error) {
	if cursor <= 0 || text == "" {
		return vt.Ground, nil
	}
	from := max(cursor-lookBack, 0)
	out, err := t.ReadOutput(ctx, from, 0)
	if err != nil || out.Truncated {
		return vt.Ground, err
	}
	n := int(cursor - from)
	for before := out.Text; strings.HasPrefix(before, "\ufffd"); before = before[len("\ufffd"):] {
		n += len("\ufffd") - 1 // the end of a character, a byte of it each
	}
	if n > len(out.Text) || !sameStart(out.Text[n:], text) {
		return vt.Ground, nil
	}
	return vt.Ground.After(out.Text[:n]), nil
}

// sameStart reports whether one of two texts is the start of the other.
func sameStart(a, b string) bool {
	n := min(len(a), len(b))
	return n > 0 && a[:n] == b[:n]
}

// cursorAt returns the cursor of the byte at offset i of the text of out, which
// t has just returned, and true; or, if it cannot be found out, the cursor
// behind the text and false. Cursors count bytes, and a U+FFFD in a text stands for
// itself or for a single byte: which of them it is shows by reading again.
func cursorAt(ctx context.Context, t terminal.Terminal, out terminal.Output, i int) (int64, bool, error) {
	rest := out.Text[i:]
	whole := out.NextCursor - int64(len(rest))
	marks := strings.Count(rest, "\ufffd")
	if marks == 0 {
		return whole, true, nil
	}
	single := int64(len("\ufffd") - 1)
	for _, cursor := range []int64{whole, whole + single*int64(marks)} {
		again, err := t.ReadOutput(ctx, cursor, 0)
		if err != nil {
			return out.NextCursor, false, err
		}
		if !again.Truncated && sameStart(rest, again.Text) {
			return cursor, true, nil
		}
	}
	return out.NextCursor, false, nil
}
