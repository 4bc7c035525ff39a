package fakeconn_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/fakeconn"
)

// agent is an agent whose prompts are one function; everything else is as in
// the agent of a Client without one.
type agent struct {
	acp.Agent
	conn   *acp.AgentSideConnection
	prompt func(ctx context.Context, a *agent, id acp.SessionId, text string) error
}

func newAgent(prompt func(ctx context.Context, a *agent, id acp.SessionId, text string) error) func(*acp.AgentSideConnection) acp.Agent {
	return func(conn *acp.AgentSideConnection) acp.Agent {
		return &agent{conn: conn, prompt: prompt}
	}
}

func (a *agent) Initialize(_ context.Context, req acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{ProtocolVersion: req.ProtocolVersion, AuthMethods: []acp.AuthMethod{}}, nil
}

func (a *agent) NewSession(context.Context, acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	return acp.NewSessionResponse{SessionId: "s"}, nil
}

func (a *agent) Cancel(context.Context, acp.CancelNotification) error { return nil }

func (a *agent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	err := a.prompt(ctx, a, req.SessionId, req.Prompt[0].Text.Text)
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, err
}

func (a *agent) update(id acp.SessionId, u acp.SessionUpdate) {
	a.conn.SessionUpdate(context.Background(), acp.SessionNotification{SessionId: id, Update: u})
}

// run is how an honest agent runs a program: create, embed, wait, read, final
// status, release.
func run(ctx context.Context, a *agent, id acp.SessionId, text string) error {
	words := strings.Fields(text)
	a.update(id, acp.StartToolCall("call", text, acp.WithStartKind(acp.ToolKindExecute)))
	t, err := a.conn.CreateTerminal(ctx, acp.CreateTerminalRequest{SessionId: id, Command: words[0], Args: words[1:]})
	if err != nil {
		a.update(id, acp.UpdateToolCall("call", acp.WithUpdateStatus(acp.ToolCallStatusFailed)))
		return err
	}
	a.update(id, acp.UpdateToolCall("call", acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolTerminalRef(t.TerminalId)})))
	_, err = a.conn.WaitForTerminalExit(ctx, acp.WaitForTerminalExitRequest{SessionId: id, TerminalId: t.TerminalId})
	a.update(id, acp.UpdateToolCall("call", acp.WithUpdateStatus(acp.ToolCallStatusCompleted)))
	a.conn.ReleaseTerminal(context.Background(), acp.ReleaseTerminalRequest{SessionId: id, TerminalId: t.TerminalId})
	return err
}

func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

func realTime(t *testing.T, f func(t *testing.T)) { f(t) }

func TestAnHonestAgent(t *testing.T) {
	for name, in := range map[string]func(*testing.T, func(*testing.T)){"fake time": bubble, "real time": realTime} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := fakeconn.New(&fakeconn.Options{Agent: newAgent(run)})
				start := time.Now()
				id, err := c.NewSession(t.Context(), "/work")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Prompt(t.Context(), id, "lines 3 20ms"); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < 60*time.Millisecond || name == "fake time" && took != 60*time.Millisecond {
					t.Errorf("took %v, want 60ms", took)
				}
				card := c.Card("call")
				if card.Status != acp.ToolCallStatusCompleted || card.Visible() != "line 1\nline 2\nline 3\n" {
					t.Errorf("the card is %q %q", card.Status, card.Visible())
				}
				if n := c.Memterm().Starts("lines"); n != 1 {
					t.Errorf("lines was started %d times", n)
				}
				if err := c.Close(); err != nil {
					t.Errorf("%v\n%s", err, c.Transcript())
				}
			})
		})
	}
}
