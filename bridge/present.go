package bridge

import (
	"context"
	"fmt"
	"time"

	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/terminal"
)

// A Presentation is how the user sees a command.
type Presentation string

// The presentations.
const (
	// PresentClient is the client's own live terminal, embedded in the card.
	PresentClient Presentation = "client"
	// PresentDisplay is a terminal of the client that only shows what the
	// agent sends: the _meta extension that Zed and others know.
	PresentDisplay Presentation = "display"
	// PresentText is plain text in the card, replaced as it grows.
	PresentText Presentation = "text"
)

// A presenter shows one command in a card.
type presenter interface {
	// follow shows the command while it runs, and returns when it has ended
	// and all is shown, or when ctx ends.
	follow(ctx context.Context)

	// failed shows why follow could not go on.
	failed(words string)

	// done notes that nothing more is shown.
	done()
}

// presenter returns what shows the command of p, whose terminal is t.
func (c *card) presenter(p *pane, t terminal.Terminal) presenter {
	switch p.how {
	case PresentClient:
		return clientPresenter{c, t}
	case PresentDisplay:
		return displayPresenter{c, t}
	}
	return textPresenter{c, p, t}
}

// show shows a command until it has ended and all is shown, or ctx ends. A panic
// on the way is told in the card.
func (c *card) show(ctx context.Context, p *pane, t terminal.Terminal) {
	show := c.presenter(p, t)
	failure := caught.Call(func() { show.follow(ctx) })
	if failure != nil {
		c.log.Error("bridge: a command cannot be shown", "toolCall", c.id, "panic", failure.Value, "stack", failure.Stack)
		_ = caught.Call(func() { show.failed(fmt.Sprintf("[... the output cannot be shown: %v ...]", failure)) })
	}
	if failure := caught.Call(show.done); failure != nil {
		c.log.Error("bridge: the end of a command cannot be shown", "toolCall", c.id, "panic", failure.Value, "stack", failure.Stack)
	}
}

// A clientPresenter has the client show its own terminal. The card embeds it
// once, before it is released (see State.showCreated), and the client does the
// rest; so what is left to do is to keep the card alive.
type clientPresenter struct {
	*card
	t terminal.Terminal
}

func (p clientPresenter) failed(string) {} // the client shows it all the same
func (p clientPresenter) done()         {}

func (p clientPresenter) follow(ctx context.Context) {
	for {
		timer := time.NewTimer(p.quiet())
		select {
		case <-timer.C:
			p.keepAlive()
			continue
		case <-p.t.Done():
		case <-ctx.Done():
		}
		timer.Stop()
		return
	}
}
