package bridge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/terminal"
)

// unread runs f with a session of a client that gets nothing wrong, and that can
// be made not to read, in fake time.
func unread(t *testing.T, k kind, f func(r *round, s *bridge.State)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoundOf(t, 1, k, 0)
		x := newActor(r, "s1")
		f(r, x.s)
		r.c.read(true)
		x.close()
		if err := r.b.Close(); err != nil {
			t.Error(err)
		}
		r.c.end()
		r.dump()
	})
}

// When the embedding of a terminal is not read before its release, it is taken out
// of what is queued. The final update, which counted on it, changes with it: nothing
// follows the final status.
func TestNothingFollowsTheFinalStatus(t *testing.T) {
	t.Parallel()
	unread(t, client, func(r *round, s *bridge.State) {
		r.c.slow = 500 * time.Millisecond
		r.jobs["job-1"] = &job{name: "job-1", call: "1", lines: 2, interval: time.Hour}
		time.AfterFunc(250*time.Millisecond, func() { r.c.read(false) })
		answer, err := s.Turn(context.Background(), func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			if err := call.Update(acp.SessionToolCallUpdate{Content: []acp.ToolCallContent{acp.ToolContent(acp.TextBlock("the agent's own"))}}); err != nil {
				r.Error(err)
			}
			time.AfterFunc(300*time.Millisecond, func() { // what is being written meanwhile
				_ = call.Update(acp.SessionToolCallUpdate{Title: new("another")})
			})
			x, err := call.StartBackground(ctx, terminal.Command{Args: []string{"job", "job-1"}})
			if err != nil {
				r.Error(err)
				return done, nil
			}
			call.End("", nil)
			s.Stop(x.Info().ID) // which the client does not read
			return done, nil
		})
		if err != nil || answer.StopReason != acp.StopReasonEndTurn {
			r.Errorf("the turn is answered %q, %v", answer.StopReason, err)
		}
		time.Sleep(20 * time.Second)
		r.c.read(true)
		time.Sleep(time.Second)
		seen, _ := r.c.host.Card("s1", "1")
		check(r, "the status", seen.Status, acp.ToolCallStatusCompleted)
		check(r, "what the user sees", seen.Visible(), "the agent's own")
		check(r, "terminals in the card", len(seen.Terminals), 0)
	})
}
