package bridge

import (
	"context"
	"strings"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/internal/text"
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

// A presenter shows one command in the card of its Call.
type presenter interface {
	presentation() Presentation

	// follow shows the command while it runs, and returns when it has ended
	// and all is shown, or when ctx ends.
	follow(ctx context.Context)

	// embeds returns the id of the client's terminal that the card's content
	// may embed now, or "". Called with the State's mu held, as is stands.
	embeds() string
	// stands returns the plain text that stands for the command in the card's
	// content where no terminal does, or "".
	stands() string
}

// present begins to show the command of k, which has started. Called with mu
// held.
func (s *State) present(k *command) {
	c := k.call
	if k.show == nil {
		switch {
		case k.route.client:
			k.show = &clientPresenter{k}
		case c.terminal != nil:
			c.terminal.used = true
			c.terminal.live++
			k.show = &displayPresenter{k}
		default:
			k.show = &textPresenter{k: k}
		}
	}
	if c.card.Status == acp.ToolCallStatusPending {
		c.card.Status = acp.ToolCallStatusInProgress
		s.put(c, acp.SessionToolCallUpdate{Status: &c.card.Status})
	}
	show := k.show
	ctx, cancel := context.WithCancel(context.Background())
	k.hush = cancel
	k.shown = make(chan struct{})
	s.showing[k] = true
	s.shows.Go(func() {
		defer close(k.shown)
		defer cancel()
		show.follow(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.showing, k)
	})
}

// reroute sends the command of k, which the client cannot run, to the local
// route. Its card was shown without a display terminal, and those cannot be
// added later.
func (s *State) reroute(k *command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.route = route{}
	k.show = nil
	if k.call != nil {
		return k.call.usable()
	}
	return nil
}

// textContent returns a text block that shows the end of an output exactly as it
// is, in at most max bytes of JSON and TextLimit bytes: clients render text as
// Markdown, so it stands in a fence.
func textContent(s string, max int) acp.ToolCallContent {
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	s = tailText(s, max-2*len(fence)-16)
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return acp.ToolContent(acp.TextBlock(fence + "\n" + s + fence))
}

// cutFront stands for the start of an output of which only the end is shown.
const cutFront = "[... earlier output is not shown ...]\n"

// tailText returns s, or a mark and its end, from the start of a line on where
// one is near.
func tailText(s string, max int) string {
	if len(s) <= terminal.TextLimit && jsonLen(s) <= max {
		return s
	}
	s = jsonTail(text.Tail(s, terminal.TextLimit-len(cutFront)), max-len(cutFront))
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)/2 {
		s = s[i+1:]
	}
	return cutFront + s
}
