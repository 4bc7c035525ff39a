package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// A log is what people attach to a report: whatever is logged, secrets stay out of it.
func TestLogKeepsNoSecrets(t *testing.T) {
	t.Setenv("BUILD_API_KEY", "hunter2-hunter2")
	file := filepath.Join(t.TempDir(), "log")
	l, closeLog, err := openLog(file)
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{"hunter2-hunter2", "s3cr3t-pass", "ghp_0123456789abcdefghijABCDEFGHIJ012345"}
	l.Info("the command curl https://user:s3cr3t-pass@example.org/ fails", "env", "KEY=hunter2-hunter2")
	l.Warn("output", "line", []string{"token ghp_0123456789abcdefghijABCDEFGHIJ012345\n"}, "err", errors.New(`run "hunter2-hunter2"`))
	closeLog()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(string(text), secret) {
			t.Errorf("%s is in the log:\n%s", secret, text)
		}
	}
	if !strings.Contains(string(text), "fails") || strings.Count(string(text), "[redacted]") != 4 {
		t.Errorf("the log is:\n%s", text)
	}
}
