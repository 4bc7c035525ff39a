package terminaltest

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// checkOutput is what every Output is, whatever the case.
func (h *harness) checkOutput(out terminal.Output) {
	h.Helper()
	if len(out.Text) > limits.MaxText {
		h.Errorf("a read returned %d bytes, more than MaxText", len(out.Text))
	}
	if !utf8.ValidString(out.Text) {
		h.Errorf("a read returned invalid UTF-8: …%q", tailOf(out.Text))
	}
}

// checkFinal is what every Info of an ended command is.
func (h *harness) checkFinal(info terminal.Info) {
	h.Helper()
	switch {
	case !info.Outcome.Ended():
		h.Errorf("an ended command is %s", info.Outcome)
	case info.Ended.IsZero() || info.Ended.Before(info.Started):
		h.Errorf("started %v, ended %v", info.Started, info.Ended)
	case info.Exit.Success() && info.Outcome != terminal.Exited && info.Outcome != terminal.Stopped && info.Outcome != terminal.TimedOut:
		h.Errorf("%s, but success", info.Outcome)
	case info.Outcome == terminal.Exited && info.Exit.Code == nil:
		h.Errorf("exited, but without a code: %v", info.Exit)
	case info.Outcome == terminal.Signalled && info.Exit.Signal == "":
		h.Errorf("signalled, but without a signal: %v", info.Exit)
	}
}

// checkExit fails the case if info is not that of a command that exited with
// code.
func (h *harness) checkExit(info terminal.Info, code int) {
	h.Helper()
	if info.Outcome != terminal.Exited || info.Exit.Code == nil || *info.Exit.Code != code || info.Exit.Signal != "" {
		h.Errorf("%s, %v; want exited with code %d (Err: %v)", info.Outcome, info.Exit, code, info.Err)
	}
}

// waitText reads from the start until the output contains want, and returns
// all that was read and the cursor behind it.
func (h *harness) waitText(t terminal.Terminal, want string) (text string, cursor int64) {
	h.Helper()
	deadline := time.Now().Add(bound)
	for {
		out := h.read(t, cursor, time.Second)
		text += plain(out.Text)
		cursor = out.NextCursor
		switch {
		case strings.Contains(text, want):
			return text, cursor
		case out.EOF():
			h.Fatalf("the command ended (%s, %v) without %q in its output %q", out.Info.Outcome, out.Info.Exit, want, text)
		case time.Now().After(deadline):
			h.Fatalf("no %q in the output after %v: %q", want, bound, text)
		}
	}
}

// all reads everything that is kept, up to the end of the command.
func (h *harness) all(t terminal.Terminal) (text string, truncated bool) {
	h.Helper()
	return h.allFrom(t, 0)
}

// allFrom is all from a cursor on. It checks that reads make progress.
func (h *harness) allFrom(t terminal.Terminal, cursor int64) (text string, truncated bool) {
	h.Helper()
	var b strings.Builder
	deadline := time.Now().Add(bound)
	for {
		out := h.read(t, cursor, bound)
		b.WriteString(out.Text)
		truncated = truncated || out.Truncated
		if out.EOF() {
			return b.String(), truncated
		}
		if out.NextCursor < cursor || out.NextCursor == cursor && out.Text != "" {
			h.Fatalf("a read at cursor %d returned %d bytes and the next cursor %d", cursor, len(out.Text), out.NextCursor)
		}
		cursor = out.NextCursor
		if time.Now().After(deadline) {
			h.Fatalf("no end of the output after %v", bound)
		}
	}
}

// checkText compares output with what was written. Without Config.Exact, a
// marked gap stands for anything.
func (h *harness) checkText(got, want string, truncated bool) {
	h.Helper()
	got, want = plain(got), plain(want)
	if got == want {
		if truncated {
			h.Errorf("all output is there, and yet Truncated")
		}
		return
	}
	if !h.c.Exact && (truncated || strings.Contains(got, terminal.GapMark)) {
		rest := want
		for part := range strings.SplitSeq(got, terminal.GapMark) {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				h.Errorf("after a marked gap, output that was not written there: %q", tailOf(part))
				return
			}
			rest = after
		}
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	h.Errorf("output differs at byte %d:\n got (%d bytes) …%q\nwant (%d bytes) …%q",
		at, len(got), headOf(got[at:]), len(want), headOf(want[at:]))
}

// plain is the text of an output without what a terminal adds to it.
func plain(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

func headOf(s string) string { return s[:min(len(s), 60)] }
func tailOf(s string) string { return s[max(0, len(s)-60):] }
