package agent_test

import (
	"context"
	"strings"
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

// The user is shown everything that changes what runs, as data, and in the title
// where it is unusual.
func TestAskShowsAll(t *testing.T) {
	var asked acp.ToolCallUpdate
	k := kinds[0]
	k.options.Permission = func(_ context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
		asked = req.ToolCall
		return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(req.Options[len(req.Options)-1].OptionId)}, nil
	}
	with(t, k, &agent.Options{Ask: true}, func(f *fixture) {
		for _, tt := range []struct {
			line, title string
			input       map[string]any
		}{
			{"!git --version", "git --version", map[string]any{"command": "git --version"}},
			{
				"run --env PATH=/x:/usr/bin -- git --version", "[PATH=/x:/usr/bin] git --version",
				map[string]any{"command": "git --version", "env": map[string]any{"PATH": "/x:/usr/bin"}},
			},
			{
				"bg --env B=2 --env 'A=1 , C=3' --dir / --input --timeout 90 --limit 100 -- x",
				"[A='1 , C=3', B=2, in /, takes input, in the background, timeout 1m30s] x",
				map[string]any{
					"command": "x", "env": map[string]any{"A": "1 , C=3", "B": "2"}, "cwd": "/", "input": true,
					"background": true, "timeout": "1m30s", "outputLimit": 100.0,
				},
			},
			{
				`run --argv --background-after 100ms -- ls "a b" *`, `[no shell, in the background after 100ms] ls "a b" *`,
				map[string]any{"command": "ls 'a b' '*'", "argv": []any{"ls", "a b", "*"}, "backgroundAfter": "100ms"},
			},
		} {
			if tt.input["cwd"] == nil {
				tt.input["cwd"] = f.dir
			}
			card, r := f.one(tt.line)
			check(t, tt.line+": title", *asked.Title, tt.title)
			check(t, tt.line+": rawInput", asked.RawInput, any(tt.input))
			check(t, tt.line+": title of the card", card.Title, tt.title)
			check(t, tt.line+": rawInput of the card", card.RawInput, any(tt.input))
			check(t, tt.line+": error", r.Error, "the user did not allow it")
		}
	})
}

// A command that is too long to be shown whole is not asked about, and does not
// run; one that fits is shown whole.
func TestAskShowsTheWholeCommand(t *testing.T) {
	var asked []acp.ToolCallUpdate
	k := kinds[0]
	k.options.Permission = func(_ context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
		asked = append(asked, req.ToolCall)
		return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(req.Options[0].OptionId)}, nil
	}
	with(t, k, &agent.Options{Ask: true}, func(f *fixture) {
		long := "echo " + strings.Repeat("x", 20_000) + "; echo end"
		f.one("!" + long)
		check(t, "questions", len(asked), 1)
		check(t, "command", asked[0].RawInput.(map[string]any)["command"], any(long))
		card, r := f.one("!echo " + strings.Repeat("x", 30_000) + "; echo end")
		check(t, "questions", len(asked), 1)
		check(t, "status", card.Status, acp.ToolCallStatusFailed)
		contains(t, "error", r.Error, "start the agent without --ask")
		f.one("run --env A=" + strings.Repeat("x", 30_000) + " -- echo x")
		check(t, "starts", f.starts("echo"), 2) // both of the first line
	})
}

// What is allowed always is what was shown: nothing else goes unasked.
func TestAskAgainForAnythingElse(t *testing.T) {
	asked := 0
	k := kinds[0]
	k.options.Permission = func(_ context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
		asked++
		for _, o := range req.Options {
			if o.Kind == acp.PermissionOptionKindAllowAlways {
				return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(o.OptionId)}, nil
			}
		}
		return acp.RequestPermissionResponse{}, nil
	}
	with(t, k, &agent.Options{Ask: true}, func(f *fixture) {
		lines := []string{
			"!echo x", "!echo y", "run --argv -- echo x", "bg -- echo x", "run --env A=b -- echo x", "run --dir / -- echo x",
			"run --input -- echo x", "run --timeout 1m -- echo x", "run --limit 7 -- echo x", "run --background-after 1m -- echo x",
		}
		for i, line := range lines {
			f.one(line)
			f.one(line)
			check(t, line+": questions", asked, i+1)
		}
	})
}

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

// A cancel closes the question, and nothing runs.
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
