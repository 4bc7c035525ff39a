package control

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// How long New waits.
const (
	promptTimeout = 15 * time.Second // for the shell's prompt, before the line is typed anyway
	typeTimeout   = 10 * time.Second // for the shell to take it
	newTimeout    = 2 * time.Second  // for both; then it is typed behind New's back
	quietPrompt   = 300 * time.Millisecond
	safeLine      = 4000 // bytes that a terminal takes before the shell edits lines
)

// A typing is a line that New types into its shell.
type typing struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when err is valid
	err    error         // why it was not typed
}

// New implements [Handler]. The line is typed when the shell is at its prompt, as far
// as anybody can tell. New returns when it is, or after two seconds: a shell may take
// longer to begin, and then the line follows.
func (c *Control) New(ctx context.Context, spec NewSpec) (string, error) {
	spec.Group = strings.TrimSpace(spec.Group)
	for what, value := range map[string]string{"name": spec.Name, "group": spec.Group} {
		if err := checkName(what, value); err != nil {
			return "", err
		}
	}
	switch {
	case spec.Cwd != "" && !filepath.IsAbs(spec.Cwd):
		return "", fmt.Errorf("%w: the directory %q is relative: give an absolute path", ErrBad, spec.Cwd)
	case strings.ContainsRune(spec.Command, 0):
		return "", fmt.Errorf("%w: a NUL byte in the command", ErrBad)
	}
	labels := make(map[string]string)
	for label, value := range map[string]string{NameLabel: spec.Name, GroupLabel: spec.Group, TypedLabel: spec.Command} {
		if value != "" {
			labels[label] = value
		}
	}
	t, err := c.m.Start(ctx, terminal.Command{Args: []string{c.shell}, Dir: spec.Cwd, TTY: true, Stdin: true, Labels: labels})
	if err != nil {
		return "", err
	}
	id := t.Info().ID
	var typing *typing
	switch {
	case !t.Info().Command.TTY:
		err = fmt.Errorf("it has no terminal: %w", errors.ErrUnsupported)
	case spec.Command == "":
		return id, nil
	default:
		typing, err = c.startTyping(context.WithoutCancel(ctx), t, spec.Command)
	}
	if err == nil {
		timer := time.NewTimer(newTimeout)
		defer timer.Stop()
		select {
		case <-typing.done:
			err = typing.err
		case <-timer.C:
		}
	}
	if err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.SettleTimeout)
		defer cancel()
		_, _ = t.Stop(stop)
		return "", fmt.Errorf("type into %s: %w", c.shell, err)
	}
	return id, nil
}

// startTyping begins to type a line into a shell that has started.
func (c *Control) startTyping(ctx context.Context, t terminal.Terminal, line string) (*typing, error) {
	info := t.Info()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("control: %w", terminal.ErrClosed)
	}
	ctx, cancel := context.WithCancel(ctx)
	typing := &typing{cancel: cancel, done: make(chan struct{})}
	c.noteOf(info.ID, info.Command.Labels).typing = typing
	c.wg.Go(func() {
		defer cancel()
		defer close(typing.done)
		if typing.err = typeLine(ctx, t, line); typing.err != nil {
			c.log.Warn("control: a command was not typed", "id", info.ID, "err", typing.err)
		}
	})
	return typing, nil
}

// typeLine types a line, and Enter, when the shell is at its prompt. A shell that edits
// lines itself takes any length there, and the terminal no more than 4,095 bytes before.
func typeLine(ctx context.Context, t terminal.Terminal, line string) error {
	awaitPrompt(ctx, t, len(line) < safeLine)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, typeTimeout)
	defer cancel()
	_, err := t.WriteInput(ctx, line+"\r")
	if errors.Is(err, terminal.ErrEnded) {
		return fmt.Errorf("the shell %v", t.Info())
	}
	return err
}

// awaitPrompt waits until a shell is at its prompt, but not for long: if what is typed
// is short, silence will do, where the system shows nothing.
func awaitPrompt(ctx context.Context, t terminal.Terminal, short bool) {
	ctx, cancel := context.WithTimeout(ctx, promptTimeout)
	defer cancel()
	s := session{Terminal: t, info: t.Info()}
	if !s.isTold() {
		_, _ = view.WaitFor(ctx, t, view.Until{Quiet: quietPrompt})
		return
	}
	for ctx.Err() == nil && !await.Closed(t.Done()) {
		if state, _ := s.state(ctx); state == Idle {
			return
		}
		if last := t.Info().LastOutput; short && !last.IsZero() && time.Since(last) > quietGuess {
			return
		}
		_ = await.Sleep(ctx, pollInterval)
	}
}
