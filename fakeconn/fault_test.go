package fakeconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/fakeconn"
)

// call is one terminal/output of a command that has printed "text", with what
// came back and when.
type result struct {
	Output string
	Code   int // of the error
	Took   time.Duration
}

func output(t *testing.T, c *fakeconn.Client, id string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	resp, err := c.Conn().TerminalOutput(ctx, acp.TerminalOutputRequest{SessionId: "s", TerminalId: id})
	r := result{Output: resp.Output, Took: time.Since(start)}
	if re, ok := errors.AsType[*acp.RequestError](err); ok {
		r.Code = re.Code
	} else if err != nil {
		t.Errorf("no RequestError: %v", err)
	}
	return r
}

func TestFaults(t *testing.T) {
	refused := &acp.RequestError{Code: -32001, Message: "refused"}
	lost := result{Code: -32603, Took: time.Minute} // the SDK's error for an ended context
	tests := []struct {
		name  string
		fault fakeconn.Fault
		want  []result // of three calls, one after the other
		hits  int
	}{
		{"none", fakeconn.Fault{Method: "terminal/kill"}, []result{{Output: "text"}, {Output: "text"}, {Output: "text"}}, 0},
		{"a request is delayed", fakeconn.Fault{Delay: time.Second, N: 1}, []result{{Output: "text", Took: time.Second}, {Output: "text"}, {Output: "text"}}, 1},
		{"a reply is delayed", fakeconn.Fault{Reply: true, Delay: time.Second, N: 2}, []result{{Output: "text"}, {Output: "text", Took: time.Second}, {Output: "text"}}, 1},
		{"every reply is delayed, in order", fakeconn.Fault{Reply: true, Delay: time.Second, InOrder: true}, []result{{Output: "text", Took: time.Second}, {Output: "text", Took: time.Second}, {Output: "text", Took: time.Second}}, 3},
		{"a request is refused", fakeconn.Fault{Error: refused, N: 3}, []result{{Output: "text"}, {Output: "text"}, {Code: -32001}}, 1},
		{"a refusal is late", fakeconn.Fault{Error: refused, Delay: time.Second, N: 1}, []result{{Code: -32001, Took: time.Second}, {Output: "text"}, {Output: "text"}}, 1},
		{"an unknown method", fakeconn.Fault{Error: acp.NewMethodNotFound("terminal/output")}, []result{{Code: -32601}, {Code: -32601}, {Code: -32601}}, 3},
		{"a reply becomes an error", fakeconn.Fault{Reply: true, Error: refused, N: 1}, []result{{Code: -32001}, {Output: "text"}, {Output: "text"}}, 1},
		{"a stub answers", fakeconn.Fault{Result: map[string]any{"output": "stub", "truncated": false}}, []result{{Output: "stub"}, {Output: "stub"}, {Output: "stub"}}, 3},
		{"a stub answers null", fakeconn.Fault{Result: json.RawMessage("null"), N: 1}, []result{{}, {Output: "text"}, {Output: "text"}}, 1},
		{"a request is lost", fakeconn.Fault{Drop: true, N: 1}, []result{lost, {Output: "text"}, {Output: "text"}}, 1},
		{"a reply is lost", fakeconn.Fault{Reply: true, Drop: true, N: 2}, []result{{Output: "text"}, lost, {Output: "text"}}, 1},
		{"a request comes twice", fakeconn.Fault{Twice: true, N: 1}, []result{{Output: "text"}, {Output: "text"}, {Output: "text"}}, 1},
		{"a reply comes twice", fakeconn.Fault{Reply: true, Twice: true, N: 1}, []result{{Output: "text"}, {Output: "text"}, {Output: "text"}}, 1},
		{"a member is changed", fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result.output", "other"), N: 1}, []result{{Output: "other"}, {Output: "text"}, {Output: "text"}}, 1},
		{"a member is null", fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result.output", nil), N: 1}, []result{{}, {Output: "text"}, {Output: "text"}}, 1},
		{"a member is missing", fakeconn.Fault{Reply: true, Edit: fakeconn.Remove("result.output"), N: 1}, []result{{}, {Output: "text"}, {Output: "text"}}, 1},
		{"a member has the wrong type", fakeconn.Fault{Reply: true, Edit: fakeconn.Set("result.output", 7), N: 1}, []result{{Code: -32603}, {Output: "text"}, {Output: "text"}}, 1},
		{"a reply has the wrong id", fakeconn.Fault{Reply: true, Edit: fakeconn.Set("id", 4711), N: 1}, []result{lost, {Output: "text"}, {Output: "text"}}, 1},
		{"a reply is no JSON", fakeconn.Fault{Reply: true, Edit: fakeconn.Cut, N: 1}, []result{lost, {Output: "text"}, {Output: "text"}}, 1},
		{"a reply is too long for the SDK", fakeconn.Fault{Reply: true, Edit: fakeconn.Pad(10 << 20), N: 2}, []result{{Output: "text"}, {Code: -32603}, {Code: -32603}}, 1},
		{"a reply is long", fakeconn.Fault{Reply: true, Edit: fakeconn.Pad(9 << 20), N: 1}, []result{{Output: "text"}, {Output: "text"}, {Output: "text"}}, 1},
		{"the connection ends at a request", fakeconn.Fault{Disconnect: true, N: 2}, []result{{Output: "text"}, {Code: -32603}, {Code: -32603}}, 1},
		{"the connection ends at a reply, late", fakeconn.Fault{Reply: true, Disconnect: true, Delay: time.Second, N: 1}, []result{{Code: -32603, Took: time.Second}, {Code: -32603}, {Code: -32603}}, 1},
		{"another session", fakeconn.Fault{Session: "other", Drop: true}, []result{{Output: "text"}, {Output: "text"}, {Output: "text"}}, 0},
		{"a line that matches", fakeconn.Fault{Error: refused, Match: func(l fakeconn.Line) bool { return strings.Contains(l.Raw, "mem-1") }, N: 2}, []result{{Output: "text"}, {Code: -32001}, {Output: "text"}}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				// With nothing between the wire and the SDK.
				c := fakeconn.New(&fakeconn.Options{Bare: true, Allow: []fakeconn.Rule{fakeconn.RuleRelease}})
				x, err := c.Conn().CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "print", Args: []string{"text"}})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if test.fault.Method == "" {
					test.fault.Method = "terminal/output"
				}
				injected := c.Inject(test.fault)
				var got []result
				for range 3 {
					got = append(got, output(t, c, x.TerminalId))
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("(-want +got)\n%s\n%s", diff, c.Transcript())
				}
				if injected.Hits() != test.hits {
					t.Errorf("the fault acted on %d lines, want %d", injected.Hits(), test.hits)
				}
				if err := c.Close(); err != nil {
					t.Errorf("%v\n%s", err, c.Transcript())
				}
			})
		})
	}
}

func TestAHeldLineIsOvertaken(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			c := fakeconn.New(&fakeconn.Options{Allow: []fakeconn.Rule{fakeconn.RuleRelease}})
			x, err := c.Conn().CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "print", Args: []string{"text"}})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // until it is printed
			held := make(chan struct{})
			c.Inject(fakeconn.Fault{Method: "terminal/output", Reply: true, N: 1, Until: held, InOrder: inOrder})
			c.Inject(fakeconn.Fault{Method: "terminal/output", Reply: true, N: 1, Until: held, InOrder: inOrder}) // both hold
			done := make(chan result)
			start := time.Now()
			go func() { done <- output(t, c, x.TerminalId) }()
			time.Sleep(time.Second)
			time.AfterFunc(time.Second, func() { close(held) })
			second := output(t, c, x.TerminalId)
			if behind := second.Took >= time.Second; behind != inOrder {
				t.Errorf("in order %v: the second call took %v", inOrder, second.Took)
			}
			if first := <-done; first.Output != "text" || time.Since(start) < 2*time.Second {
				t.Errorf("in order %v: the held reply was %v", inOrder, first)
			}
			if err := c.Close(); err != nil {
				t.Errorf("%v\n%s", err, c.Transcript())
			}
		})
	}
}

func TestARemovedFaultActsNoMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := fakeconn.New(&fakeconn.Options{Allow: []fakeconn.Rule{fakeconn.RuleUnknown}})
		f := c.Inject(fakeconn.Fault{Error: &acp.RequestError{Code: -1, Message: "no"}})
		if got := output(t, c, "x").Code; got != -1 {
			t.Errorf("code %d, want -1", got)
		}
		f.Remove()
		if got := output(t, c, "x").Code; got != -32002 {
			t.Errorf("code %d, want -32002", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A peer that stops reading blocks the sender in the SDK's mutex, which stops
// the clock of a bubble: real time.
func TestStopReading(t *testing.T) {
	const room = 64 << 10
	wrote := make(chan int, 1000)
	c := fakeconn.New(&fakeconn.Options{Agent: newAgent(func(_ context.Context, a *agent, id acp.SessionId, _ string) error {
		defer close(wrote)
		for i := range 100 {
			if err := a.conn.SessionUpdate(context.Background(), acp.SessionNotification{
				SessionId: id, Update: acp.UpdateAgentMessageText(strings.Repeat("x", 8<<10)),
			}); err != nil {
				return err
			}
			wrote <- i
		}
		return nil
	})})
	c.Inject(fakeconn.Fault{Method: "session/update", N: 2, StopReading: true, Room: room})
	id, err := c.NewSession(t.Context(), "/work")
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := c.Prompt(t.Context(), id, "go")
		failed <- err
	}()
	// The first update was read, then about eight fill the pipe.
	for range 8 {
		<-wrote
	}
	time.Sleep(100 * time.Millisecond)
	if n := 8 + len(wrote); n > 10 {
		t.Errorf("%d updates of 8 KiB went into a pipe of 64 KiB", n)
	}
	if got := len(c.Messages()); got != 8<<10 {
		t.Errorf("the client read %d bytes, want one update", got)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("the prompt was answered")
	}
	for range wrote { // until the agent has returned
	}
}

func TestLatency(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := fakeconn.New(&fakeconn.Options{Latency: 50 * time.Millisecond, Allow: []fakeconn.Rule{fakeconn.RuleUnknown}})
		for range 3 {
			if got := output(t, c, "x").Took; got != 100*time.Millisecond {
				t.Errorf("a round trip took %v, want 100ms", got)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseReportsGoroutinesOfTheAgent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		leak := make(chan struct{})
		c := fakeconn.New(&fakeconn.Options{Agent: newAgent(func(context.Context, *agent, acp.SessionId, string) error {
			go func() { <-leak }()
			return nil
		})})
		id, err := c.NewSession(t.Context(), "/work")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Prompt(t.Context(), id, "go"); err != nil {
			t.Fatal(err)
		}
		err = c.Close()
		e, ok := errors.AsType[*fakeconn.GoroutineError](err)
		if !ok || len(e.Stacks) != 1 || !strings.Contains(e.Stacks[0], "TestCloseReportsGoroutinesOfTheAgent") {
			t.Errorf("Close returned %v", err)
		}
		if again := c.Close(); again != err {
			t.Errorf("the second Close returned %v", again)
		}
		close(leak)
	})
}

func TestCloseReportsNoGoroutineOfTheProcess(t *testing.T) {
	// The first Notify of a process starts a goroutine that nothing ends.
	c := fakeconn.New(&fakeconn.Options{Agent: newAgent(func(context.Context, *agent, acp.SessionId, string) error {
		seen := make(chan os.Signal, 1)
		signal.Notify(seen, syscall.SIGHUP)
		signal.Stop(seen)
		return nil
	})})
	id, err := c.NewSession(t.Context(), "/work")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Prompt(t.Context(), id, "go"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// closer is an agent that has something to close.
type closer struct {
	agent
	err error
}

func (c *closer) Close() error { return c.err }

var _ io.Closer = (*closer)(nil)

func TestCloseClosesTheAgent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := fakeconn.New(&fakeconn.Options{Agent: func(*acp.AgentSideConnection) acp.Agent { return &closer{err: io.ErrNoProgress} }})
		if err := c.Close(); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("Close returned %v, want the agent's error", err)
		}
	})
}

// Edits must take whatever is on a line, and leave what is no object alone.
func FuzzEdit(f *testing.F) {
	for _, line := range []string{`{"id":1,"result":{"output":"x"}}`, `null`, `[]`, `{"result":3}`, `{`, ``} {
		f.Add(line, "result.output")
	}
	f.Fuzz(func(t *testing.T, line, path string) {
		got := fakeconn.Set(path, "v")(line)
		fakeconn.Remove(path)(got)
		if len(fakeconn.Cut(line)) > len(line) {
			t.Errorf("Cut made %q longer", line)
		}
		if n := len(line) + 100; len(fakeconn.Pad(n)(line)) != n && strings.HasSuffix(line, "}") {
			t.Errorf("Pad did not make %q %d bytes long", line, n)
		}
		var m map[string]any
		if json.Unmarshal([]byte(line), &m) == nil && m != nil && !json.Valid([]byte(got)) {
			t.Errorf("Set(%q) made %q of %q", path, got, line)
		}
	})
}
