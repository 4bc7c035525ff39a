// Command quickstart is an ACP agent whose every prompt is a shell command.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/terminal"
)

type agent struct {
	bridge.UnimplementedAgent // answers what this agent does not have
	bridge                    *bridge.Bridge
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	newAgent := func(b *bridge.Bridge) acp.Agent { return &agent{bridge: b} }
	if err := bridge.Serve(ctx, os.Stdin, os.Stdout, newAgent, nil); err != nil {
		log.Fatal(err)
	}
}

func (a *agent) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{
		ProtocolVersion: acp.ProtocolVersionNumber,
		AuthMethods:     []acp.AuthMethod{},
		AgentCapabilities: acp.AgentCapabilities{
			SessionCapabilities: acp.SessionCapabilities{Close: new(acp.SessionCloseCapabilities)}},
	}, nil
}

func (a *agent) NewSession(_ context.Context, req acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	id := acp.SessionId(rand.Text())
	_, err := a.bridge.Session(id, req.Cwd)
	return acp.NewSessionResponse{SessionId: id}, err
}

func (a *agent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	session, err := a.bridge.State(req.SessionId)
	if err != nil {
		return acp.PromptResponse{}, err
	}
	return session.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		var line strings.Builder
		for _, block := range req.Prompt {
			if block.Text != nil {
				line.WriteString(block.Text.Text)
			}
		}
		call := t.ToolCall(acp.SessionUpdateToolCall{
			ToolCallId: acp.ToolCallId(rand.Text()), Title: line.String(), Kind: acp.ToolKindExecute,
		})
		result, err := call.Exec(ctx, terminal.Command{Line: line.String(), Timeout: time.Minute})
		call.End("", err)
		text := fmt.Sprintf("It did not run to its end: %v", err)
		if err == nil {
			text = fmt.Sprintf("It wrote %q and ended: %v.", result.Output, result.Exit)
		}
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, session.Update(ctx, acp.UpdateAgentMessageText(text))
	})
}

func (a *agent) CloseSession(_ context.Context, req acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	session, err := a.bridge.State(req.SessionId)
	if err != nil {
		return acp.CloseSessionResponse{}, err
	}
	return acp.CloseSessionResponse{}, session.Close()
}
