package bridge_test

import (
	"context"
	"fmt"
	"log"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// runByHand is what many agents do: the five methods, one after the other.
func runByHand(ctx context.Context, conn *acp.AgentSideConnection, session acp.SessionId, call acp.ToolCallId, cwd, line string) (string, error) {
	created, err := conn.CreateTerminal(ctx, acp.CreateTerminalRequest{
		SessionId: session, Command: "sh", Args: []string{"-c", line}, Cwd: &cwd,
	})
	if err != nil {
		return "", err
	}
	id := created.TerminalId
	defer conn.ReleaseTerminal(ctx, acp.ReleaseTerminalRequest{SessionId: session, TerminalId: id})
	if err := conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: session, Update: acp.UpdateToolCall(call,
		acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolTerminalRef(id)}))}); err != nil {
		return "", err
	}
	if _, err := conn.WaitForTerminalExit(ctx, acp.WaitForTerminalExitRequest{SessionId: session, TerminalId: id}); err != nil {
		return "", err
	}
	out, err := conn.TerminalOutput(ctx, acp.TerminalOutputRequest{SessionId: session, TerminalId: id})
	return out.Output, err
}

// The same with a Manager of the client's terminals: created, waited for, read and
// released, whatever the client does and however ctx ends.
func runWithManager(ctx context.Context, m *acpterm.Manager, line string) (string, error) {
	out, err := view.Exec(ctx, m, terminal.Command{Line: line})
	return out.Text, err
}

// The same with a Bridge: it is also shown, also where the client has no terminals.
func runInCall(ctx context.Context, t *bridge.Turn, id acp.ToolCallId, line string) (*bridge.Result, error) {
	call := t.ToolCall(acp.SessionUpdateToolCall{ToolCallId: id, Title: line, Kind: acp.ToolKindExecute})
	result, err := call.Exec(ctx, terminal.Command{Line: line, Timeout: time.Minute})
	call.End("", err)
	return result, err
}

// From the methods of the protocol, called by hand, to a Manager, and to a Bridge.
func Example_byHand() {
	editor, ctx := fakeconn.New(nil), context.Background()
	session, err := editor.NewSession(ctx, "/work")
	if err != nil {
		log.Fatal(err)
	}
	conn := editor.Conn()
	if err := conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: session, Update: acp.StartToolCall("call-1", "echo hello")}); err != nil {
		log.Fatal(err)
	}
	text, err := runByHand(ctx, conn, session, "call-1", "/work", "echo hello")
	fmt.Printf("%q %v\n", text, err)

	m := acpterm.New(conn, session, &acpterm.Options{Dir: "/work"})
	text, err = runWithManager(ctx, m, "echo hello")
	fmt.Printf("%q %v %v\n", text, err, m.Close())

	inTurn(func(ctx context.Context, s *bridge.State, t *bridge.Turn) {
		result, err := runInCall(ctx, t, "call-1", "echo hello")
		fmt.Printf("%q %v %v\n", result.Output, result.Exit, err)
	})
	// Output:
	// "hello\n" <nil>
	// "hello\n" <nil> <nil>
	// "hello\n" exit code 0 <nil>
}
