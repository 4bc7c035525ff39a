package bridge

import (
	"context"
	"time"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
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
func (r *liveReader) pause(ctx context.Context) error { return await.Sleep(ctx, time.Until(r.next)) }

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

// readPlain reads the output of t that is there as plain text, the last limit bytes
// of it, within bounds. A client is asked for the output of a running command while
// somebody waits for it, so fresh is how long to wait for what is new.
func readPlain(t terminal.Terminal, limit int, fresh time.Duration) (view.Text, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limits.OutputTimeout)
	defer cancel()
	return view.ReadAll(ctx, t, limit, fresh)
}
