package bridge

import (
	"context"
	"time"

	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/output"
	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// maxReads bounds how much is read for one update: a writer may be faster.
const maxReads = 64

// A sink shows the output of a running command, an update's worth at a time.
type sink interface {
	// pause waits until the next update may be sent: not before next.
	pause(ctx context.Context, next time.Time) error
	// add takes a piece of output.
	add(text string)
	// show queues an update with all that was added up to cursor, and returns nil if
	// that shows nothing new.
	show(cursor int64) *updates.Update
}

// stream feeds the output of t to s, until its end, ctx or that of the session, with
// interval between two updates. Sending waits for the client to read, and while it
// waits output adds up.
func (c *card) stream(ctx context.Context, t terminal.Terminal, s sink, interval time.Duration) {
	var r liveReader
	for r.more(ctx, c, t) {
		if s.pause(ctx, r.next) != nil || r.read(ctx, t, s.add) != nil {
			return
		}
		if u := s.show(r.cursor); u != nil {
			if !c.wait(ctx, u) {
				return
			}
			r.next = time.Now().Add(interval)
		}
	}
}

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

// read gives the output that is there to add.
func (r *liveReader) read(ctx context.Context, t terminal.Terminal, add func(string)) error {
	reads := 0
	for o, err := range output.Rest(ctx, t, r.cursor) {
		if err != nil {
			return err
		}
		if o.Truncated {
			o.Text = vt.Resume(terminal.GapMark, o.Text)
		}
		add(o.Text)
		r.cursor = o.NextCursor
		if reads++; reads == maxReads {
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
