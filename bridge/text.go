package bridge

import (
	"context"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// A textPresenter shows the end of a local command's output as plain text in the
// card, for clients that show nothing else. It goes on when the Call has ended.
type textPresenter struct {
	*card
	p *pane
	t terminal.Terminal
}

func (p textPresenter) follow(ctx context.Context) {
	plain := view.Plainer{Max: 2 * limits.TextLimit, Size: p.t.Info().Command.Size} // more than is shown, so that a cut shows
	var r liveReader
	for r.more(ctx, p.card, p.t) {
		if p.pause(ctx, r.next) != nil {
			return
		}
		if r.read(ctx, p.t, func(s string) { _, _ = plain.WriteString(s) }) != nil {
			return
		}
		if u := p.show(plain.String(), r.cursor); u != nil {
			if !p.wait(ctx, u) {
				return
			}
			r.next = time.Now().Add(limits.TextInterval)
		}
	}
}

// pause waits until the next update may be sent. The last one of a command whose
// Call has ended waits for nothing.
func (p textPresenter) pause(ctx context.Context, next time.Time) error {
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	var done <-chan struct{}
	if p.isOver() {
		done = p.t.Done()
	}
	select {
	case <-timer.C:
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (p textPresenter) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stage == over
}

// failed shows why there is no more to see.
func (p textPresenter) failed(words string) { p.show(p.shown()+words, terminal.End) }

func (p textPresenter) done() {}

func (p textPresenter) shown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.p.text
}

// show replaces the text in the card, by what is there up to cursor. It returns nil
// if nothing was sent.
func (p textPresenter) show(now string, cursor int64) *updates.Update {
	p.keepReleased()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.p.final || now == p.p.text || cursor < p.p.cursor {
		return nil
	}
	p.p.text, p.p.cursor = now, cursor
	switch {
	case p.stage == live:
		content, embeds := p.compose(false)
		return p.put(acp.SessionToolCallUpdate{Content: content}, embeds...)
	case p.stage == over && p.grows:
		return p.put(acp.SessionToolCallUpdate{Content: p.finalContent()})
	}
	return nil // the final update has it
}
