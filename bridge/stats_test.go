package bridge_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// The counts are right while commands run, when they are forgotten, and after
// the session has closed.
func TestStats(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			in(t, k, &bridge.Options{MaxTerminals: 3}, func(w *world) {
				for i := range 4 {
					w.run(acp.ToolCallId(fmt.Sprint(i)), terminal.Command{Line: "sleep 1h", Timeout: time.Second})
				}
				w.run("local", terminal.Command{Line: "echo x", Environment: bridge.EnvironmentLocal})
				w.run("bad", terminal.Command{Line: "echo x", Environment: "nowhere"})
				w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					call := t.ToolCall(card("server"))
					call.StartBackground(ctx, line("sleep 1h"))
					call.End("", nil)
					return done, nil
				})
				want := bridge.Stats{Started: 6, Running: 1, Delegated: 5, Local: 1, Timeouts: 4}
				if k.presentation != bridge.PresentClient {
					want.Delegated, want.Local = 0, 6
				}
				check(w, "the session's stats", w.s.Stats(), want)
				check(w, "all stats", w.b.Stats(), want)
				if err := w.s.Close(); err != nil {
					w.Error(err)
				}
				want.Running = 0
				check(w, "the session's stats", w.s.Stats(), want)
				check(w, "all stats", w.b.Stats(), want)
			})
		})
	}
}

// What a close cannot settle is counted as its LeakError lists it.
func TestStatsOfLeaks(t *testing.T) {
	t.Parallel()
	synctestWorld(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalRelease, Drop: true})
		for i := range 3 {
			w.run(acp.ToolCallId(fmt.Sprint(i)), line("echo x"))
		}
		err := w.s.Close()
		leak, ok := err.(*terminal.LeakError)
		if !ok {
			w.Fatalf("Close: %v", err)
		}
		check(w, "leaks", len(leak.Leaks), 3)
		check(w, "leaks counted", w.b.Stats().Leaked, 3)
	})
}

// No output and no value of the environment is logged, whatever goes wrong.
func TestLogsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			var log lockedBuffer
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			in(t, k, &bridge.Options{Logger: logger}, func(w *world) {
				secret := func(line string) terminal.Command {
					return terminal.Command{Line: line, Env: map[string]string{"TOKEN": "hunter2"}, Timeout: time.Second}
				}
				w.run("1", secret("print s3cr3t"))
				w.run("2", secret("fail s3cr3t"))
				w.run("3", secret("lines 10 1s"))
				w.run("4", secret("env"))
				w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalOutput, N: 1, Error: &acp.RequestError{Code: -32603, Message: "no output"}})
				w.run("5", secret("print s3cr3t"))
				w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, N: 1, Result: map[string]any{}})
				w.run("6", secret("print s3cr3t"))
				w.run("7", secret("print s3cr3t")) // locally now
				w.prompt(func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					t.ToolCall(card("8")).Exec(ctx, secret("print s3cr3t"))
					panic("a bug")
				})
			})
			if log.String() == "" {
				t.Fatal("nothing was logged, so this shows nothing")
			}
			contains(t, "the log", log.String(), "a bug")
			for _, s := range []string{"s3cr3t", "hunter2", "line 1"} {
				if strings.Contains(log.String(), s) {
					t.Errorf("%q is in the log:\n%s", s, log.String())
				}
			}
		})
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
