package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"
)

// At the end of its input the agent exits with 0 within 5 s and leaves nothing,
// with a hundred commands in two sessions and a client that has stopped reading.
func TestHundredCommandsAndStalledOutput(t *testing.T) {
	t.Parallel()
	r := start(t, rigOptions{})
	other, err := r.conn.NewSession(t.Context(), acp.NewSessionRequest{Cwd: r.dir, McpServers: []acp.McpServer{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []acp.SessionId{r.id, other.SessionId} {
		lines := "parallel\n" + strings.Repeat("!echo begun; exec sleep 300\n", 50)
		go func() { // ends with the agent
			_, _ = r.conn.Prompt(context.Background(), acp.PromptRequest{SessionId: id, Prompt: []acp.ContentBlock{acp.TextBlock(lines)}})
		}()
	}
	r.becomes("a hundred commands do not run", 60*time.Second, func(n int) bool { return n >= 101 })
	r.stdout.stall()
	defer r.stdout.resume() // for the goroutine of the connection
	for range 2000 {        // answers fill the pipe
		if _, err := io.WriteString(r.stdin, `{"jsonrpc":"2.0","id":"x","method":"session/list","params":{}}`+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	r.stdin.Close()
	wantCode(t, r.exits(), exitOK, r.stderr)
	if left := r.processes(); len(left) > 0 {
		t.Errorf("left after the exit: %v", left)
	}
}
