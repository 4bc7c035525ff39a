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
	s := &textSink{textPresenter: p}
	s.plain = view.Plainer{Max: 2 * limits.TextLimit, Size: p.t.Info().Command.Size} // more than is shown, so that a cut shows
	p.stream(ctx, p.t, s, limits.TextInterval)
}

// A textSink sends the whole text again.
type textSink struct {
	textPresenter
	plain view.Plainer
}

func (s *textSink) add(text string) { _, _ = s.plain.WriteString(text) }

func (s *textSink) show(cursor int64) *updates.Update { return s.replace(s.plain.String(), cursor) }

// pause waits for nothing before the last update of a command whose Call has ended.
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
func (p textPresenter) failed(words string) { p.replace(p.shown()+words, terminal.End) }

func (p textPresenter) done() {}

func (p textPresenter) shown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.p.text
}

// replace replaces the text in the card, by what is there up to cursor. It returns nil
// if nothing was sent.
func (p textPresenter) replace(now string, cursor int64) *updates.Update {
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
