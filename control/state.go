package control

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// state returns what the session does, and why that is believed: the system says what
// its processes wait for, or else its last line is looked at.
func (s session) state(ctx context.Context) (State, terminal.Evidence) {
	switch {
	case await.Closed(s.Done()):
		return Done, terminal.Evidence{Certainty: terminal.Certain, Reason: s.Info().String()}
	case s.note.typing != nil && !await.Closed(s.note.typing.done):
		return Working, terminal.Evidence{Certainty: terminal.Certain, Reason: "its command is being typed"}
	}
	r, ok := terminal.As[terminal.ActivityReader](s.Terminal)
	if !ok {
		return s.guess(ctx)
	}
	state, e, err := r.ReadActivity(ctx, 0)
	switch {
	case err != nil:
		return "", terminal.Evidence{Certainty: terminal.NoCertainty, Reason: err.Error()}
	case state == terminal.Finished:
		return Done, e
	case state == terminal.Waiting && e.Prompt:
		return Idle, e
	case state == terminal.Waiting:
		return Blocked, e
	case e.Certainty == terminal.NoCertainty && !s.isTold():
		return s.guess(ctx)
	}
	if e.Reason == "" {
		e.Reason = "none of its processes waits for input"
	}
	return Working, e
}

// isTold reports whether the system says what the processes of the session wait for:
// that it says of none that it waits is evidence, too.
func (s session) isTold() bool {
	_, ok := terminal.As[terminal.ActivityReader](s.Terminal)
	return ok && kernelTells() && s.info.Environment == inAgent
}

// Of the last line of a session that writes nothing: the prompts of shells, and what
// asks for something.
var (
	promptLine   = regexp.MustCompile(`(^|[^>])[$#%❯»] ?$`)
	questionLine = regexp.MustCompile(`([:?>)\]] ?|\.\.\. )$`)
)

// guess returns what the session does by what it shows: for a terminal in the client,
// for one.
func (s session) guess(ctx context.Context) (State, terminal.Evidence) {
	info := s.Info()
	last := info.LastOutput
	if last.IsZero() {
		last = info.Started
	}
	likely := func(state State, format string, args ...any) (State, terminal.Evidence) {
		return state, terminal.Evidence{Certainty: terminal.Likely, Reason: "by its output: " + fmt.Sprintf(format, args...)}
	}
	quiet := time.Since(last)
	if quiet < quietGuess {
		return likely(Working, "there was some just now")
	}
	line, err := s.lastLine(ctx)
	switch {
	case err != nil:
		return "", terminal.Evidence{Certainty: terminal.NoCertainty, Reason: err.Error()}
	case promptLine.MatchString(line):
		return likely(Idle, "its last line, %q, looks like a shell's prompt", line)
	case questionLine.MatchString(line):
		return likely(Blocked, "its last line, %q, looks like a question", line)
	}
	return Working, terminal.Evidence{Certainty: terminal.NoCertainty, Reason: "its output shows no sign that it waits"}
}

const (
	quietGuess = time.Second
	lastBytes  = 2 << 10 // in which the last line is looked for
	lineShown  = 80      // bytes of it in the evidence
)

// lastLine returns the end of the last line that the session shows, if that is not
// ended.
func (s session) lastLine(ctx context.Context) (string, error) {
	out, err := s.ReadOutput(ctx, terminal.End, 0)
	if err != nil {
		return "", err
	}
	out, err = s.ReadOutput(ctx, max(out.NextCursor-lastBytes, 0), 0)
	if err != nil {
		return "", err
	}
	plain := view.Plain(out.Text)
	return text.Tail(plain[strings.LastIndexByte(plain, '\n')+1:], lineShown), nil
}
