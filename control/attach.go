package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/termbridge/termbridge/terminal"
)

// An attachment is the [Attachment] of a [Control].
type attachment struct {
	c        *Control
	s        session
	mirror   *Mirror // its Next is for Next
	readOnly string

	mu sync.Mutex
	// guards following
	size terminal.Size           // that the viewer is to be told of; zero is none
	wake context.CancelCauseFunc // ends the wait of Next; nil while it does not wait
}

// Attach implements [Attacher]. A writer's size is that of the terminal from then on. A
// full-screen program of which too much was evicted is asked to draw its screen again.
func (c *Control) Attach(ctx context.Context, idOrName string, spec AttachSpec) (Attachment, error) {
	s, err := c.find(idOrName)
	if err != nil {
		return nil, err
	}
	a := &attachment{c: c, s: s, readOnly: s.readOnly()}
	if s.Info().Outcome.Ended() {
		a.readOnly = ErrExited.Error()
	} else if !spec.Write && a.readOnly == "" {
		a.readOnly = "it is only watched: ask for writing"
	}
	a.size = c.enter(a)
	a.mirror = NewMirror(s, a.size)
	if size := (terminal.Size{Rows: spec.Rows, Cols: spec.Cols}); a.readOnly == "" && !size.IsZero() && size != a.size {
		if _, err = a.mirror.Next(ctx); err == nil { // what was written so far has the old size
			a.mirror.Repaint()
			err = a.Resize(size)
		}
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			a.Close()
			return nil, fmt.Errorf("attach to %s: %w", s.id, err)
		}
	}
	return a, nil
}

// enter notes a view, and returns the size of the terminal.
func (c *Control) enter(a *attachment) terminal.Size {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.noteOf(a.s.id, a.s.info.Command.Labels)
	if n.views == nil {
		n.views = make(map[*attachment]struct{})
	}
	n.views[a] = struct{}{}
	return cmp.Or(n.size, a.s.info.Command.Size).OrDefault()
}

// Close implements [Attachment].
func (a *attachment) Close() error {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if n := a.c.notes[a.s.id]; n != nil {
		delete(n.views, a)
	}
	return nil
}

// Session implements [Attachment].
func (a *attachment) Session() SessionInfo {
	s := a.s
	if now, err := a.c.find(s.id); err == nil {
		s = now
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout/2)
	defer cancel()
	return a.c.look(ctx, s)
}

// ReadOnly implements [Attachment].
func (a *attachment) ReadOnly() string { return a.readOnly }

// errResized ends the wait of a Next whose viewer is to be told of another size.
var errResized = errors.New("control: the terminal has another size")

// Next implements [Attachment].
func (a *attachment) Next(ctx context.Context) (Frame, error) {
	var f Frame
	for {
		waiting, cancel := context.WithCancelCause(ctx)
		size := a.waits(cancel)
		if !size.IsZero() {
			a.mirror.Resize(size)
			a.mirror.Repaint()
			f.Size = &Size{size.Rows, size.Cols}
		}
		shown, err := a.mirror.Next(waiting)
		resized := context.Cause(waiting) == errResized
		cancel(nil)
		a.waits(nil)
		switch {
		case err != nil && resized && ctx.Err() == nil:
			continue
		case err != nil:
			return f, err
		}
		if shown.Painted && a.mirror.Partial() {
			redraw(a.s)
		}
		f.Data, f.Repaint = []byte(shown.Text), shown.Painted
		if shown.Info.Outcome.Ended() {
			f.End = new(a.Session())
		}
		return f, nil
	}
}

// waits notes that Next begins to wait, or with nil that it waits no more, and returns
// the size that the viewer is to be told of, the first time.
func (a *attachment) waits(wake context.CancelCauseFunc) (size terminal.Size) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wake = wake; wake != nil {
		size, a.size = a.size, size
	}
	return size
}

// resized has the viewer told of another size.
func (a *attachment) resized(size terminal.Size) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.size = size
	if a.wake != nil {
		a.wake(errResized)
	}
}

// Write implements [Attachment].
func (a *attachment) Write(ctx context.Context, text string) error {
	if a.readOnly != "" {
		return fmt.Errorf("%w: %s", ErrReadOnly, a.readOnly)
	}
	return a.s.send(ctx, text)
}

// Resize implements [Attachment].
func (a *attachment) Resize(size terminal.Size) error {
	if a.readOnly != "" {
		return fmt.Errorf("%w: %s", ErrReadOnly, a.readOnly)
	}
	if size.Rows <= 0 || size.Cols <= 0 {
		return fmt.Errorf("%w: a size of %d rows and %d columns", ErrBad, size.Rows, size.Cols)
	}
	if err := a.s.Resize(size); err != nil {
		return err
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	n := a.c.noteOf(a.s.id, a.s.info.Command.Labels)
	if n.size == size {
		return nil
	}
	n.size = size
	for view := range n.views {
		view.resized(size)
	}
	return nil
}
