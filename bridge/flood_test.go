package bridge_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// A floodClient is a client on the SDK that keeps nothing of what it is told.
type floodClient struct {
	acp.Client
	handling time.Duration // of each update
	updates  atomic.Int64
	marked   atomic.Bool // an update said that output is not shown
}

func (c *floodClient) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	time.Sleep(c.handling)
	c.updates.Add(1)
	b, err := json.Marshal(n)
	if s := string(b); strings.Contains(s, "bytes skipped ...]") || strings.Contains(s, "earlier output is not shown") {
		c.marked.Store(true)
	}
	return err
}

// A slowReader reads so many bytes a second.
type slowReader struct {
	io.Reader
	rate int // 0: as many as there are
}

func (r slowReader) Read(p []byte) (int, error) {
	if r.rate == 0 {
		return r.Reader.Read(p)
	}
	n, err := r.Reader.Read(p[:min(len(p), max(1, r.rate/20))])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(r.rate))
	return n, err
}

// A process that writes as fast as it can, for seconds, neither kills the
// connection to a client that handles updates slowly, or reads slowly, nor fills
// the memory; the command ends on time, and what was skipped is marked and can
// be read.
func TestFlood(t *testing.T) {
	switch {
	case runtime.GOOS == "windows":
		t.Skip("needs a POSIX shell")
	case testing.Short():
		t.Skip("takes seconds")
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var peak uint64
	stop := make(chan struct{})
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Millisecond):
			}
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
	})
	t.Run("clients", func(t *testing.T) {
		for _, c := range []struct {
			name     string
			handling time.Duration
			rate     int
		}{{"handles an update in 5 ms", 5 * time.Millisecond, 0}, {"reads 100 kB a second", 0, 100_000}} {
			for _, k := range []kind{display, text} {
				t.Run(c.name+"/"+string(k.presentation), func(t *testing.T) {
					t.Parallel()
					flood(t, k, &floodClient{handling: c.handling}, c.rate)
				})
			}
		}
	})
	close(stop)
	sampler.Wait()
	grown := int64(peak) - int64(before.HeapAlloc)
	t.Logf("four floods took at most %d MiB", grown>>20)
	if grown > 64<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
}

func flood(t *testing.T, k kind, c *floodClient, rate int) {
	toClient, fromAgent := io.Pipe()
	toAgent, fromClient := io.Pipe()
	agent := acp.NewAgentSideConnection(struct{ acp.Agent }{}, fromAgent, toAgent)
	peer := acp.NewClientSideConnection(c, fromClient, slowReader{toClient, rate})
	for _, conn := range []interface{ SetLogger(*slog.Logger) }{agent, peer} {
		conn.SetLogger(slog.New(slog.DiscardHandler))
	}
	init := acp.InitializeRequest{}
	if k.presentation == bridge.PresentDisplay {
		init.ClientCapabilities.Meta = map[string]any{"terminal_output": true}
	}
	b := bridge.New(agent, init, nil)
	s, err := b.Session("s", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const kept = 128 << 10 // little: on a busy machine not even a megabyte comes in a second
	timeout := time.Second
	if *full {
		timeout = 10 * time.Second
	}
	start := time.Now()
	resp, err := s.Turn(t.Context(), func(ctx context.Context, turn *bridge.Turn) (acp.PromptResponse, error) {
		call := turn.ToolCall(card("1"))
		r, err := call.Exec(ctx, terminal.Command{Line: "yes", Timeout: timeout, OutputLimit: kept})
		if err != nil {
			t.Error(err)
			return done, nil
		}
		check(t, "the outcome", r.Outcome, terminal.TimedOut)
		atMost(t, "the command", r.Duration, timeout+limits.SettleTimeout)
		check(t, "truncated", r.Truncated, true)
		call.End("", err)
		return done, nil
	})
	if err != nil || resp.StopReason != acp.StopReasonEndTurn {
		t.Errorf("the turn is answered %v, %v", resp.StopReason, err)
	}
	atMost(t, "the turn", time.Since(start), timeout+3*limits.SettleTimeout)

	// What the user was not shown is there to be read, from wherever it is kept.
	term := s.List()[0]
	all, err := term.ReadOutput(t.Context(), 0, 0)
	if err != nil || !all.Truncated {
		t.Errorf("the output from its start: truncated %v, %v", all.Truncated, err)
	}
	n := 0
	for o, err := range terminal.Follow(t.Context(), term, all.NextCursor) {
		if err != nil || o.Truncated {
			t.Fatalf("the output behind that: truncated %v, %v", o.Truncated, err)
		}
		n += len(o.Text)
	}
	if n < kept/2 {
		t.Errorf("%d bytes can be read", n)
	}
	select {
	case <-agent.Done():
		t.Error("the connection is gone")
	case <-peer.Done():
		t.Error("the client has given the connection up")
	default:
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(20 * time.Second); !c.marked.Load() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond) // it is on its way
	}
	check(t, "the user was told of skipped output", c.marked.Load(), true)
	t.Logf("%d updates", c.updates.Load())
	fromAgent.Close()
	fromClient.Close()
}
