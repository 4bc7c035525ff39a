package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// screenQuiet is how long a screen does not change when it counts as drawn, and
// screenWait how long screen and keys wait for that at most.
const (
	screenQuiet = 200 * time.Millisecond
	screenWait  = 5 * time.Second
)

// screen returns the screen of a command, which lasts as long as the command is
// kept: it must have seen all output.
func (s *session) screen(term terminal.Terminal) *view.Screen {
	id := term.Info().ID
	kept := make(map[string]*view.Screen)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, screen := range s.screens {
		if _, err := s.state.Get(id); err == nil {
			kept[id] = screen
		}
	}
	s.screens = kept
	if kept[id] == nil {
		kept[id] = view.NewScreen(term)
	}
	return kept[id]
}

// screen shows the screen of a command, once it shows a text or is drawn.
func (t *turn) screen(ctx context.Context, call *bridge.Call, req request, term terminal.Terminal) {
	screen := t.session.screen(term)
	until := view.Until{Literal: req.text, Timeout: cmp.Or(req.wait, screenWait)}
	if req.text == "" {
		until.Quiet = screenQuiet
	}
	event, err := screen.WaitFor(ctx, until)
	r := t.report(event.Info)
	if err == nil && req.text != "" && event.Reason != view.ByMatch {
		err = fmt.Errorf("%s does not show %q: screen %s shows what it does", req.id, req.text, req.id)
	}
	if err != nil {
		t.failWith(ctx, call, req, r, err)
		return
	}
	t.show(ctx, call, req, r, screen)
}

// show ends a tool call with a screen.
func (t *turn) show(ctx context.Context, call *bridge.Call, req request, r Report, screen *view.Screen) {
	r.setOutput(screen.String(), false, outputTextBudget)
	t.end(ctx, call, r, fenced(r.Output), nil, describe(req.id, r))
}

// keys presses keys, and shows the screen once it is drawn.
func (t *turn) keys(ctx context.Context, call *bridge.Call, req request, term terminal.Terminal) {
	screen := t.session.screen(term)
	err := screen.Read(ctx) // which sequences the program wants
	var keys string
	if err == nil {
		keys, err = screen.Keys(req.names...)
	}
	if err == nil {
		_, err = t.write(ctx, req.id, term, keys)
	}
	if err == nil {
		_, err = screen.WaitFor(ctx, view.Until{Quiet: screenQuiet, Timeout: screenWait})
	}
	if r := t.report(term.Info()); err != nil {
		t.failWith(ctx, call, req, r, err)
	} else {
		t.show(ctx, call, req, r, screen)
	}
}

// write writes to a command, and says what is wrong if it cannot.
func (t *turn) write(ctx context.Context, id string, term terminal.Terminal, text string) (n int, err error) {
	bound, cancel := context.WithTimeout(ctx, inputBound)
	defer cancel()
	n, err = term.WriteInput(bound, text)
	switch {
	case errors.Is(err, terminal.ErrNoInput):
		err = fmt.Errorf("%s takes no input: it was started without --input", id)
	case errors.Is(err, terminal.ErrEnded):
		err = fmt.Errorf("%s has ended and takes no input", id)
	case err != nil && bound.Err() != nil:
		err = fmt.Errorf("%s does not read: %d of %s were taken in %v", id, n, count(len(text), "byte"), inputBound)
	}
	return n, err
}
