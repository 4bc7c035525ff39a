package bridge

import (
	"context"
	"time"
)

// A clientPresenter has the client show its own terminal. The card embeds it
// once, before it is released (see State.showCreated), and the client does the
// rest; so what is left to do is to keep the card alive.
type clientPresenter struct{ k *command }

func (p *clientPresenter) presentation() Presentation { return PresentClient }

func (p *clientPresenter) embeds() string {
	if p.k.released {
		return ""
	}
	return p.k.clientID
}

func (p *clientPresenter) stands() string {
	if p.k.final == nil {
		return ""
	}
	return *p.k.final
}

func (p *clientPresenter) follow(ctx context.Context) {
	c := p.k.call
	for {
		timer := time.NewTimer(c.quiet())
		select {
		case <-timer.C:
			c.keepAlive()
			continue
		case <-p.k.term.Done():
		case <-ctx.Done():
		}
		timer.Stop()
		return
	}
}
