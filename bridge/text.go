package bridge

import (
	"context"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// A textPresenter shows the end of a local command's output as plain text in the
// card, for clients that show nothing else. It stops when the Call ends: what the
// final update says then stays.
type textPresenter struct {
	k    *command
	text string // the State's mu guards it
}

func (p *textPresenter) presentation() Presentation { return PresentText }
func (p *textPresenter) embeds() string             { return "" }
func (p *textPresenter) stands() string             { return p.text }

func (p *textPresenter) follow(ctx context.Context) {
	c, s, t := p.k.call, p.k.call.s, p.k.term
	plain := view.Plainer{Max: 2 * terminal.TextLimit} // more than is shown, so that a cut shows
	var cursor int64
	var next time.Time
	for {
		o, err := t.ReadOutput(ctx, cursor, c.quiet())
		switch {
		case err != nil:
			return
		case o.Text == "" && o.EOF():
			return
		case o.Text == "" && !o.Truncated:
			c.keepAlive()
			continue
		}
		if sleep(ctx, time.Until(next)) != nil {
			return
		}
		for range maxReads {
			if o, err = t.ReadOutput(ctx, cursor, 0); err != nil {
				return
			}
			if o.Truncated {
				_, _ = plain.Write([]byte(text.Cancel + terminal.GapMark))
			}
			_, _ = plain.Write([]byte(o.Text))
			cursor = o.NextCursor
			if !o.More {
				break
			}
		}
		now := plain.String()
		c.readReleased()
		s.mu.Lock()
		if c.ending || now == p.text {
			s.mu.Unlock()
			continue
		}
		p.text = now
		content, embeds := c.compose(false)
		u := s.put(c, acp.SessionToolCallUpdate{Content: content}, embeds...)
		s.mu.Unlock()
		next = time.Now().Add(terminal.TextInterval)
		if u == nil || s.b.wire.wait(ctx, u) != nil {
			return
		}
	}
}
