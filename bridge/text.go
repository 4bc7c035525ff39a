package bridge

import (
	"context"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// A textPresenter shows the end of a local command's output as plain text in the
// card, for clients that show nothing else. It stops when the Call ends: what the
// final update says then stays.
type textPresenter struct {
	*card
	p *pane
	t terminal.Terminal
}

func (p textPresenter) follow(ctx context.Context) {
	plain := view.Plainer{Max: 2 * terminal.TextLimit, Size: p.t.Info().Command.Size} // more than is shown, so that a cut shows
	var r liveReader
	for r.more(ctx, p.card, p.t) {
		if r.pause(ctx) != nil {
			return
		}
		if r.read(ctx, p.t, func(s string) { _, _ = plain.WriteString(s) }) != nil {
			return
		}
		if u := p.show(plain.String()); u != nil {
			if !p.wait(ctx, u) {
				return
			}
			r.next = time.Now().Add(terminal.TextInterval)
		}
	}
}

// failed shows why there is no more to see.
func (p textPresenter) failed(words string) { p.show(p.shown() + words) }

func (p textPresenter) done() {}

func (p textPresenter) shown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.p.text
}

// show replaces the text in the card. It returns nil if nothing was sent.
func (p textPresenter) show(now string) *updates.Update {
	p.settleReleased()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stage != live || p.p.settled || now == p.p.text {
		return nil
	}
	p.p.text = now
	content, embeds := p.compose(false)
	return p.put(acp.SessionToolCallUpdate{Content: content}, embeds...)
}
