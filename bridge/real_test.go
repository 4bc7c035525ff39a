package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// A process that writes as fast as it can, to a client that takes 5 ms for each
// update, neither kills the connection nor fills the memory, and ends on time.
func TestFirehose(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a POSIX shell")
	}
	timeout := time.Second
	if *full {
		timeout = 3 * time.Second
	}
	for _, k := range []kind{display, text} {
		t.Run(string(k.presentation), func(t *testing.T) {
			o := k.client
			o.Keep = 200
			o.Wrap = func(c acp.Client) acp.Client { return slow{c} }
			c := fakeconn.New(&o)
			b := bridge.New(c.Conn(), c.Init(), nil)
			dir := t.TempDir()
			id, err := c.NewSession(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			s, err := b.Session(id, dir)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			start := time.Now()
			s.Turn(t.Context(), func(ctx context.Context, turn *bridge.Turn) (acp.PromptResponse, error) {
				call := turn.ToolCall(card("1"))
				r, err := call.Exec(ctx, terminal.Command{Line: "yes", Timeout: timeout})
				runtime.GC()
				runtime.ReadMemStats(&after)
				if err != nil {
					t.Error(err)
				} else {
					check(t, "the outcome", r.Outcome, terminal.TimedOut)
					check(t, "truncated", r.Truncated, true)
				}
				call.End("", err)
				return done, nil
			})
			atMost(t, "the turn", time.Since(start), 30*time.Second)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
				t.Errorf("the heap has grown by %d MiB", grown>>20)
			}
			contains(t, "what the user sees", c.Card("1").Visible(), "y")
			t.Logf("on the way to the client at most %d bytes", c.HighWater(fakeconn.Editor))
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Sixty real commands that end about when their time in the foreground does: what the
// model is told of each, and what its card says, agree.
func TestPromotionOfProcesses(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("needs a POSIX shell")
	}
	c := fakeconn.New(&fakeconn.Options{NoTerminal: true})
	b := bridge.New(c.Conn(), c.Init(), nil)
	id, err := c.NewSession(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Session(id, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	went := 0
	for i := range 60 {
		s.Turn(t.Context(), func(ctx context.Context, turn *bridge.Turn) (acp.PromptResponse, error) {
			call := turn.ToolCall(card(acp.ToolCallId(fmt.Sprint(i))))
			r, err := call.ExecFor(ctx, line("echo one; sleep 0.02; exit 3"), time.Duration(15+i/4)*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			status := call.End("", nil).Status
			switch {
			case r.Outcome == terminal.Running && !r.Exit.Known():
				went++
				check(t, "the status of one that goes on", status, acp.ToolCallStatusCompleted)
			case r.Outcome == terminal.Exited && r.Exit.Known():
				check(t, "the status of one that has failed", status, acp.ToolCallStatusFailed)
			default:
				t.Errorf("%v, %v", r.Outcome, r.Exit)
			}
			return done, nil
		})
	}
	t.Logf("%d of 60 went on in the background", went)
	if err := errors.Join(b.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

// slow is a client whose user interface takes its time.
type slow struct{ acp.Client }

func (c slow) SessionUpdate(ctx context.Context, n acp.SessionNotification) error {
	time.Sleep(5 * time.Millisecond)
	return c.Client.SessionUpdate(ctx, n)
}
