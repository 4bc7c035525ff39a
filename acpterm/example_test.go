package acpterm_test

import (
	"context"
	"fmt"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

func Example() {
	ctx := context.Background()
	client := fakeconn.New(nil) // an editor, in memory
	session, err := client.NewSession(ctx, "/work")
	if err != nil {
		fmt.Println(err)
		return
	}
	conn := client.Conn() // what acp.NewAgentSideConnection returned

	m := acpterm.New(conn, session, &acpterm.Options{Dir: "/work"})
	t, err := m.Start(ctx, terminal.Command{Args: []string{"echo", "hello,  editor"}})
	if err != nil {
		fmt.Println(err) // nothing runs
		return
	}
	for out, err := range terminal.Follow(ctx, t, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(out.Text)
	}
	fmt.Println(t.Info().Outcome, t.Info().Exit)

	fmt.Println(m.Close(), client.Close())
	// Output:
	// hello,  editor
	// exited exit code 0
	// <nil> <nil>
}

// An agent's loop with its own tool calls: it announces them, runs their
// commands, and ends them.
func ExampleState() {
	ctx := context.Background()
	client := fakeconn.New(nil)
	session, err := client.NewSession(ctx, "/work")
	if err != nil {
		fmt.Println(err)
		return
	}
	conn := client.Conn()
	update := func(u acp.SessionUpdate) {
		if err := conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: session, Update: u}); err != nil {
			fmt.Println(err)
		}
	}
	terminals := acpterm.NewState()

	// The tool starts,
	update(acp.StartToolCall("call_1", "echo hello", acp.WithStartKind(acp.ToolKindExecute)))
	result, err := terminals.Exec(ctx, conn, string(session), "call_1", "echo hello", "/work", 60)
	if err != nil {
		fmt.Println(err) // acpterm.ErrAborted, *acpterm.TimeoutError, …
		return
	}
	// and it ends: the user has seen the output in the terminal.
	end := []acp.ToolCallUpdateOpt{acp.WithUpdateStatus(acp.ToolCallStatusCompleted)}
	if !terminals.TakePending("call_1") {
		end = append(end, acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolContent(acp.TextBlock(result.Output))}))
	}
	update(acp.UpdateToolCall("call_1", end...))

	fmt.Printf("%d %q\n", *result.ExitCode, result.Output)
	// When the session ends:
	terminals.CleanupPending(ctx, conn, string(session))
	terminals.CleanupBackground(ctx, conn, string(session))
	fmt.Println(client.Close())
	// Output:
	// 0 "hello\n"
	// <nil>
}
