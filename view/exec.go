package view

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// A Text is the output of a command as plain text.
type Text struct {
	// Text is the end of the output; Truncated reports that there was more, or
	// that some was lost.
	Text      string
	Truncated bool

	// Cursor lies behind Text: where the next read goes on.
	Cursor int64

	// Info is that of the same instant.
	Info terminal.Info
}

// ReadAll returns the output of t that is there as plain text, at most the last
// limit bytes of it. Once, it waits so long for more. The error is the Cause of
// ctx or one of the terminal, and the Text what was read until then.
func ReadAll(ctx context.Context, t terminal.Terminal, limit int, wait time.Duration) (Text, error) {
	plain := Plainer{Max: limit + 4, Size: t.Info().Command.Size} // a rune more, so that what is over the limit shows
	var all Text
	var now time.Duration
	for {
		out, err := t.ReadOutput(ctx, all.Cursor, now)
		if out.Truncated {
			plain.Gap("")
		}
		_, _ = plain.WriteString(out.Text)
		all.Truncated = all.Truncated || out.Truncated || strings.Contains(out.Text, terminal.GapMark)
		all.Cursor, all.Info = out.NextCursor, out.Info
		switch {
		case err == nil && out.More:
			continue
		case err == nil && !out.EOF() && now < wait:
			now = wait
			continue
		}
		if all.Text = plain.String(); len(all.Text) > limit {
			all.Text, all.Truncated = text.TrimRest(text.Tail(all.Text, limit), terminal.GapMark), true
		}
		return all, err
	}
}

// An ExitError is the error of [Exec] for a command that did not end with exit code
// 0: Info says how it did.
type ExitError struct {
	Info terminal.Info
}

// Error says what ended, and how.
func (e *ExitError) Error() string {
	return fmt.Sprintf("%s %v", text.Head(e.Info.Command.String(), 200), e.Info)
}

// Unwrap returns Info.Err.
func (e *ExitError) Unwrap() error { return e.Info.Err }

// Exec runs a command to its end and returns the end of what it wrote to its output
// and its error output, as plain text: at most cmd.OutputLimit bytes, or
// 50 KiB. It is what CombinedOutput is to os/exec, with any
// Manager.
//
// The error is nil for exit code 0, and an [*ExitError] for every other end, by a
// signal and by cmd.Timeout too. When ctx ends the command is stopped with all that
// it has started, and the error is the Cause of ctx as well. A command that did not
// start has the error of [terminal.Manager]'s Start, and no output.
func Exec(ctx context.Context, m terminal.Manager, cmd terminal.Command) (Text, error) {
	t, err := m.Start(ctx, cmd)
	if err != nil {
		return Text{}, err
	}
	info, cause := terminal.Wait(ctx, t)
	ctx = context.WithoutCancel(ctx)
	if cause != nil {
		bound, cancel := context.WithTimeout(ctx, limits.SettleTimeout)
		defer cancel()
		info, _ = t.Stop(bound)
	}
	bound, cancel := context.WithTimeout(ctx, limits.OutputTimeout)
	defer cancel()
	out, err := ReadAll(bound, t, cmp.Or(cmd.OutputLimit, limits.DefaultResultLimit), 0)
	out.Info = info
	switch {
	case cause != nil:
		return out, fmt.Errorf("%w: %w", &ExitError{info}, cause)
	case !info.Exit.Success() || info.Outcome != terminal.Exited:
		return out, &ExitError{info}
	}
	return out, err
}
