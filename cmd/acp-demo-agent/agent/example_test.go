package agent_test

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A client without files, whose commands are Go functions.
type exampleClient struct{ *acphost.Host }

func (exampleClient) ReadTextFile(context.Context, acp.ReadTextFileRequest) (r acp.ReadTextFileResponse, err error) {
	return r, acp.NewMethodNotFound(acp.ClientMethodFsReadTextFile)
}

func (exampleClient) WriteTextFile(context.Context, acp.WriteTextFileRequest) (r acp.WriteTextFileResponse, err error) {
	return r, acp.NewMethodNotFound(acp.ClientMethodFsWriteTextFile)
}

func (exampleClient) RequestPermission(context.Context, acp.RequestPermissionRequest) (r acp.RequestPermissionResponse, err error) {
	return r, acp.NewMethodNotFound(acp.ClientMethodSessionRequestPermission)
}

func Example() {
	toAgent, fromClient := io.Pipe()
	toClient, fromAgent := io.Pipe()
	served := make(chan error)
	ctx := context.Background()
	go func() { served <- agent.Serve(ctx, toAgent, fromAgent, nil) }()

	manager := memterm.New(nil)
	client := exampleClient{acphost.New(func(acp.SessionId) terminal.Manager { return manager }, nil)}
	conn := acp.NewClientSideConnection(client, fromClient, toClient)
	_, err := conn.Initialize(ctx, acp.InitializeRequest{
		ProtocolVersion:    acp.ProtocolVersionNumber,
		ClientCapabilities: acp.ClientCapabilities{Terminal: true},
	})
	if err != nil {
		fmt.Println(err)
	}
	session, err := conn.NewSession(ctx, acp.NewSessionRequest{Cwd: os.TempDir(), McpServers: []acp.McpServer{}})
	if err != nil {
		fmt.Println(err)
	}
	_, err = conn.Prompt(ctx, acp.PromptRequest{
		SessionId: session.SessionId,
		Prompt:    []acp.ContentBlock{acp.TextBlock("!echo hello\n!exit 3")},
	})
	for _, card := range client.Cards(session.SessionId) {
		fmt.Printf("%s: %s %q\n", card.Title, card.Status, card.Visible())
	}
	fmt.Println(err)

	fromClient.Close() // the end of the agent's input
	fmt.Println(<-served, client.Close(), manager.Close())
	// Output:
	// echo hello: completed "hello\n"
	// exit 3: failed ""
	// <nil>
	// <nil> <nil> <nil>
}
