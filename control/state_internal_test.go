package control

import (
	"context"
	"testing"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// A mute is a terminal whose system does not show what its processes wait for.
type mute struct {
	terminal.Terminal
	output string
}

func (m mute) Done() <-chan struct{} { return nil }
func (m mute) Info() terminal.Info {
	return terminal.Info{Environment: inAgent, LastOutput: time.Now().Add(-time.Minute)}
}

func (m mute) ReadActivity(context.Context, int64) (terminal.Activity, terminal.Evidence, error) {
	return terminal.Working, terminal.Evidence{Certainty: terminal.NoCertainty, Reason: "not shown"}, nil
}

func (m mute) WaitActivity(ctx context.Context, _ terminal.Activity, _ int64) (terminal.Activity, terminal.Evidence, error) {
	return m.ReadActivity(ctx, 0)
}

func (m mute) ReadOutput(_ context.Context, cursor int64, _ time.Duration) (terminal.Output, error) {
	end := int64(len(m.output))
	return terminal.Output{Text: m.output[min(cursor, end):], NextCursor: end}, nil
}

// Where the system shows nothing of processes, the last line of a command in the agent
// is looked at; where it does, that none waits is an answer.
func TestStateWhereTheSystemShowsNothing(t *testing.T) {
	tells := kernelTells
	defer func() { kernelTells = tells }()
	for output, want := range map[string]State{"hello\n$ ": Idle, "name? ": Blocked, "compiling\n": Working} {
		s := session{Terminal: mute{output: output}, info: mute{}.Info()}
		kernelTells = func() bool { return false }
		if got, e := s.state(t.Context()); got != want {
			t.Errorf("%q: %s, %+v, want %s", output, got, e, want)
		}
		kernelTells = func() bool { return true }
		if got, e := s.state(t.Context()); got != Working || e.Reason != "not shown" {
			t.Errorf("%q, and the system shows it: %s, %+v", output, got, e)
		}
	}
}
