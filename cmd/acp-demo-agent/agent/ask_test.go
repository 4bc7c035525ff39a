package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// An agent that asks runs what the user allows, asks once for what is allowed
// always, and asks for nothing but commands.
func TestAsk(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			answer := acp.PermissionOptionKindRejectOnce
			asked := 0
			k.options.Permission = func(_ context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
				asked++
				for _, o := range req.Options {
					if o.Kind == answer {
						return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(o.OptionId)}, nil
					}
				}
				return acp.RequestPermissionResponse{}, nil
			}
			with(t, k, &agent.Options{Ask: true}, func(f *fixture) {
				for _, line := range []string{"!echo x", "bg -- echo x"} {
					card, r := f.one(line)
					check(t, "status", card.Status, acp.ToolCallStatusFailed)
					check(t, "outcome", r.Outcome, terminal.Failed)
					check(t, "error", r.Error, "the user did not allow it")
					contains(t, "what the user sees", card.Text, "did not allow it")
				}
				check(t, "starts", f.starts("echo"), 0)
				answer = acp.PermissionOptionKindAllowOnce
				f.one("!echo x")
				answer = acp.PermissionOptionKindAllowAlways
				f.one("!echo x")
				f.one("!echo x")
				check(t, "starts", f.starts("echo"), 3)
				check(t, "questions", asked, 4)
				f.one("run --env A=b -- echo x") // another command
				f.one("jobs")
				f.one("help")
				check(t, "questions", asked, 5)
			})
		})
	}
}

// A cancel closes the question, and nothing runs.
// A client that cannot ask: nothing runs, and the error says what to do.
func TestAskNobody(t *testing.T) {
	for _, k := range kinds {
		with(t, k, &agent.Options{Ask: true}, func(f *fixture) {
			f.Inject(fakeconn.Fault{Method: acp.ClientMethodSessionRequestPermission, Error: acp.NewMethodNotFound("session/request_permission")})
			card, r := f.one("!echo x")
			check(f.T, "status", card.Status, acp.ToolCallStatusFailed)
			contains(f.T, "error", r.Error, "start the agent without --ask")
			check(f.T, "starts", f.starts("echo"), 0)
		})
	}
}

func TestAskAndCancel(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			k.options.Permission = func(ctx context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
				time.Sleep(time.Second)
				return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
			}
			with(t, k, &agent.Options{Ask: true}, func(f *fixture) {
				time.AfterFunc(500*time.Millisecond, func() { f.Cancel(context.Background(), f.id) })
				resp, err := f.Prompt(f.Context(), f.id, "!echo x\n!echo y")
				if err != nil || resp.StopReason != acp.StopReasonCancelled {
					t.Errorf("%v, %v", resp, err)
				}
				cards := f.Host().Cards(f.id)
				check(t, "cards", len(cards), 1)
				check(t, "status", cards[0].Status, acp.ToolCallStatusFailed)
				check(t, "outcome", report(t, cards[0]).Outcome, terminal.Cancelled)
				check(t, "starts", f.starts("echo"), 0)
			})
		})
	}
}
