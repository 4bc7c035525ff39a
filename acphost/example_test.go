package acphost_test

import (
	"context"
	"fmt"
	"io"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// editor is a client whose terminals are a Host's.
type editor struct {
	*acphost.Host
}

func (editor) ReadTextFile(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
	return acp.ReadTextFileResponse{}, acp.NewMethodNotFound(acp.ClientMethodFsReadTextFile)
}

func (editor) WriteTextFile(context.Context, acp.WriteTextFileRequest) (acp.WriteTextFileResponse, error) {
	return acp.WriteTextFileResponse{}, acp.NewMethodNotFound(acp.ClientMethodFsWriteTextFile)
}

func (editor) RequestPermission(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
}

// A client serves terminals over any Manager, and shows the user what happens
// in them. Here an agent at the other end of two pipes runs one command.
func Example() {
	manager := memterm.New(&memterm.Options{Programs: fakeconn.Programs()}) // an editor has a localterm
	defer manager.Close()
	host := acphost.New(
		func(acp.SessionId) terminal.Manager { return manager },
		&acphost.Options{Show: func(e acphost.Event) {
			switch e.Kind {
			case acphost.ShowCard:
				fmt.Printf("[%s] %s\n", e.Card.Title, e.Card.Status)
			case acphost.ShowOutput:
				fmt.Print(e.Text)
			case acphost.ShowEnd:
				fmt.Println(e.Exit)
			}
		}},
	)
	fromAgent, toClient := io.Pipe()
	fromClient, toAgent := io.Pipe()
	acp.NewClientSideConnection(editor{host}, toAgent, host.Reader(fromAgent))
	agent := acp.NewAgentSideConnection(nil, toClient, fromClient)

	ctx := context.Background()
	t, _ := agent.CreateTerminal(ctx, acp.CreateTerminalRequest{SessionId: "s", Command: "lines", Args: []string{"3", "10ms"}})
	agent.SessionUpdate(ctx, acp.SessionNotification{SessionId: "s", Update: acp.StartToolCall("c", "count to 3",
		acp.WithStartStatus(acp.ToolCallStatusInProgress),
		acp.WithStartContent([]acp.ToolCallContent{acp.ToolTerminalRef(t.TerminalId)}))})
	agent.WaitForTerminalExit(ctx, acp.WaitForTerminalExitRequest{SessionId: "s", TerminalId: t.TerminalId})
	agent.ReleaseTerminal(ctx, acp.ReleaseTerminalRequest{SessionId: "s", TerminalId: t.TerminalId})

	host.Close() // returns once everything was shown
	toClient.Close()
	toAgent.Close()
	// Output:
	// [count to 3] in_progress
	// line 1
	// line 2
	// line 3
	// exit code 0
}
