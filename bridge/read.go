package bridge

import (
	"context"
	"strings"
	"time"

	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// maxReads bounds how much is read for one update: a writer may be faster.
const maxReads = 64

// A liveReader reads the output of a running command, an update's worth at a time.
type liveReader struct {
	cursor int64
	next   time.Time // when the next update may be sent
}

// more waits for output, and keeps the card alive meanwhile. It reports whether
// there is some.
func (r *liveReader) more(ctx context.Context, c *card, t terminal.Terminal) bool {
	for {
		o, err := t.ReadOutput(ctx, r.cursor, c.quiet())
		switch {
		case err != nil, o.Text == "" && o.EOF():
			return false
		case o.Text != "" || o.Truncated:
			return true
		}
		c.keepAlive()
	}
}

// pause waits until the next update may be sent.
func (r *liveReader) pause(ctx context.Context) error { return updates.Sleep(ctx, time.Until(r.next)) }

// read gives the output that is there to add.
func (r *liveReader) read(ctx context.Context, t terminal.Terminal, add func(string)) error {
	for range maxReads {
		o, err := t.ReadOutput(ctx, r.cursor, 0)
		if err != nil {
			return err
		}
		if o.Truncated {
			o.Text = vt.Resume(terminal.GapMark, o.Text)
		}
		add(o.Text)
		r.cursor = o.NextCursor
		if !o.More {
			break
		}
	}
	return nil
}

// readPlain returns the output of t that can be read now as plain text, the
// last limit bytes of it, and the cursor behind it. A client is asked for the output of a running command
// while somebody waits for it, so fresh is how long to wait for what is new.
func readPlain(t terminal.Terminal, limit int, fresh time.Duration) (out string, cursor int64, truncated bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), terminal.OutputTimeout)
	defer cancel()
	p := view.Plainer{Max: limit + 4, Size: t.Info().Command.Size} // a rune more, so that what is over the limit shows
	var wait time.Duration
	for {
		o, err := t.ReadOutput(ctx, cursor, wait)
		if o.Truncated {
			p.Gap("")
		}
		_, _ = p.WriteString(o.Text)
		truncated = truncated || o.Truncated || strings.Contains(o.Text, terminal.GapMark)
		cursor = o.NextCursor
		switch {
		case err == nil && o.More:
			continue
		case err == nil && !o.EOF() && wait < fresh:
			wait = fresh
			continue
		}
		out = p.String()
		if len(out) > limit {
			out, truncated = text.TrimRest(text.Tail(out, limit), terminal.GapMark), true
		}
		return out, cursor, truncated, err
	}
}

// closed reports whether c is closed; a nil channel is not.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
