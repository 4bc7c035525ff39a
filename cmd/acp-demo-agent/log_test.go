package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"
)

// A log that cannot be written stops nothing: neither what a prompt does, nor
// Stop, nor the end of the agent, whatever that is for.
func TestFullStderr(t *testing.T) {
	t.Parallel()
	for _, broken := range []bool{false, true} {
		t.Run(fmt.Sprint("broken output ", broken), func(t *testing.T) {
			t.Parallel()
			unread, stderr, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer unread.Close()
			defer stderr.Close()
			if err := stderr.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Skipf("skipped: a pipe cannot be filled on this system: %v", err)
			}
			full := strings.Repeat("x", 64<<10)
			for err == nil {
				_, err = io.WriteString(stderr, full)
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}

			r := start(t, rigOptions{stderr: stderr})
			answer := make(chan acp.PromptResponse, 1)
			go func() {
				resp, _ := r.conn.Prompt(context.Background(), acp.PromptRequest{SessionId: r.id, Prompt: []acp.ContentBlock{acp.TextBlock("!sleep 300")}})
				answer <- resp
			}()
			r.becomes("the command does not run", 10*time.Second, func(n int) bool { return n >= 2 })
			noJSON := strings.Repeat("x", 100)
			go func() { // ends with the agent at the latest
				for i := range 3000 {
					fmt.Fprintf(r.stdin, "{\"jsonrpc\":\"2.0\",\"method\":\"unknown/%d\"}\n%s\n", i, noJSON)
				}
				_ = r.conn.Cancel(context.Background(), acp.CancelNotification{SessionId: r.id})
			}()
			select {
			case resp := <-answer:
				if resp.StopReason != acp.StopReasonCancelled {
					t.Errorf("the prompt is answered %q", resp.StopReason)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("Stop is ignored")
			}
			code := exitOK
			if broken {
				code = exitFailed
				r.stdout.Close()
			} else {
				r.stdin.Close()
			}
			wantCode(t, r.exits(), code, r.stderr)
		})
	}
}
