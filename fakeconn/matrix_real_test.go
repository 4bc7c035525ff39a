package fakeconn_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// TestFaultMatrixStopReading is the column of the matrix that needs real time: a
// client that stops reading when a request of a method comes, so that every write
// of the agent blocks from then on. Nothing can be known any more; but nothing
// runs twice, nothing is made up, everything returns, and what may be left is
// reported.
func TestFaultMatrixStopReading(t *testing.T) {
	t.Parallel()
	results := &tally{}
	var mu sync.Mutex      // guards results
	var all sync.WaitGroup // all at once: they only wait
	for _, m := range methods {
		for _, p := range phases {
			for _, u := range uses {
				c := cell{method: m, trouble: trouble{name: "stop reading"}, phase: p, use: u}
				results.of++
				if p != atClose && (m == toCreate && p != atCancel || u == exec) && *howMany != 0 {
					continue // takes limits.CreateTimeout, or two others
				}
				all.Go(func() {
					ran, hit := false, false
					ok := t.Run(c.String(), func(t *testing.T) { ran, hit = true, unread(t, c) })
					mu.Lock()
					defer mu.Unlock()
					if ran {
						results.add(c.name, m, ok, hit)
					}
				})
			}
		}
	}
	all.Wait()
	t.Logf("fault matrix: %s", results)
}

// unread plays a cell, and reports whether the client stopped reading.
func unread(t *testing.T, c cell) bool {
	const (
		half        = 400 * time.Millisecond // the command runs for two of them
		callTimeout = 2 * time.Second        // of the agent's own context
		slack       = 5 * time.Second        // of a machine that has other things to do
	)
	job := &job{time: 2 * half}
	programs := map[string]memterm.Program{"job": job.run}
	local := memterm.New(&memterm.Options{Programs: programs})
	agent := &bridged{}
	client := fakeconn.New(&fakeconn.Options{
		Programs: programs,
		Agent:    func(*acp.AgentSideConnection) acp.Agent { return agent },
		Allow:    []fakeconn.Rule{fakeconn.RuleRelease}, // judged below, by what Close reports
	})
	agent.b = bridge.New(client.Conn(), client.Init(), &bridge.Options{
		Host:  acpterm.NoHost,
		Local: func(acp.SessionId) terminal.Manager { return local },
	})
	var err error
	if agent.s, err = agent.b.Session("s", "/work"); err != nil {
		t.Fatal(err)
	}

	start := time.Now()
	within := func(bound time.Duration, what string) {
		if d := time.Since(start); d > bound+slack {
			t.Errorf("%s took %v, want at most %v", what, d, bound)
		}
	}
	var text string
	var outcome terminal.Outcome
	var exit terminal.Exit
	begun, turned := make(chan struct{}), make(chan struct{})
	agent.turn = func(ctx context.Context, turn *bridge.Turn) (acp.PromptResponse, error) {
		close(begun)
		defer close(turned)
		bound := callTimeout
		if c.method == toCreate {
			bound = limits.CreateTimeout // which ends it in other cells
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		call := turn.ToolCall(acp.SessionUpdateToolCall{ToolCallId: "call", Title: "job"})
		cmd := terminal.Command{Args: []string{"job"}}
		if c.use == exec {
			r, err := call.Exec(ctx, cmd)
			within(bound+limits.SettleTimeout, "Exec")
			if r != nil {
				text, outcome, exit = r.Output, r.Outcome, r.Exit
			} else if err == nil {
				t.Error("Exec returned nothing")
			}
			call.End("", err)
			return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
		}
		x, err := call.StartBackground(ctx, cmd)
		within(bound+limits.SettleTimeout, "StartBackground")
		call.End("", err)
		if err != nil {
			return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
		}
		if c.use == stopped {
			time.Sleep(half)
			agent.s.Stop(x.Info().ID) // the time is what counts
		} else {
			terminal.Wait(ctx, x)
		}
		out, err := x.ReadOutput(context.Background(), 0, 0)
		if err != nil {
			t.Errorf("the output: %v", err)
		}
		text, outcome, exit = out.Text, out.Info.Outcome, out.Info.Exit
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	}

	fault := fakeconn.Fault{Method: c.method, StopReading: true}
	var injected *fakeconn.Injected
	inject := func(after time.Duration) {
		time.Sleep(after)
		injected = client.Inject(fault)
	}
	if c.phase == before {
		inject(0)
	}
	var all sync.WaitGroup
	all.Go(func() { client.Prompt(context.Background(), "s", "go") }) // answered, or ended by Close
	<-begun                                                           // a turn that is cancelled before does not run
	switch c.phase {
	case running:
		inject(half / 2)
	case atExit:
		inject(2*half - 20*time.Millisecond)
	case atCancel:
		inject(half)
		client.Cancel(context.Background(), "s")
	case atClose:
		inject(half)
	}
	if c.phase != atClose {
		<-turned
		within(max(callTimeout, map[bool]time.Duration{true: limits.CreateTimeout}[c.method == toCreate])+2*limits.SettleTimeout, "the turn")
	}
	start = time.Now()
	closeErr := agent.s.Close()
	within(2*limits.SettleTimeout, "Close")
	<-turned

	if n := client.Memterm().Starts("job") + local.Starts("job"); n > 1 || n == 0 && text != "" {
		t.Errorf("the program was started %d times, and the text is %q", n, text)
	}
	if local.Starts("job") > 0 {
		t.Error("a client that says nothing does not say that it has no terminals")
	}
	if exit.Success() || exit.Code != nil && *exit.Code != jobCode {
		t.Errorf("the exit is %v, %v", outcome, exit)
	}
	if outcome == terminal.Exited && exit.Code == nil {
		t.Error("it exited, and nobody knows how")
	}
	if got := strings.ReplaceAll(text, terminal.GapMark, ""); !strings.HasPrefix(job.text(), got) {
		t.Errorf("the text is not what was written: %q of %q", text, job.text())
	}
	_, reported := errors.AsType[*terminal.LeakError](closeErr)
	if left := client.Host().Unreleased("s"); len(left) > 0 && !reported {
		t.Errorf("never released and not reported: %v; close: %v", left, closeErr)
	}
	if closeErr != nil && !reported {
		t.Errorf("close: %v", closeErr)
	}
	hit := injected.Hits() > 0
	if err := client.Close(); err != nil {
		t.Errorf("%v", err)
	}
	all.Wait()
	if err := local.Close(); err != nil {
		t.Errorf("the local side: %v", err)
	}
	if t.Failed() {
		t.Logf("%v %v; close: %v\n%s", outcome, exit, closeErr, client.Transcript())
	}
	return hit
}
