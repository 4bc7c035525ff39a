package fakeconn_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/fakeconn/emulate"
)

// Shorthands for the agents below.

func (a *agent) create(id acp.SessionId, words ...string) string {
	t, _ := a.conn.CreateTerminal(context.Background(), acp.CreateTerminalRequest{SessionId: id, Command: words[0], Args: words[1:]})
	return t.TerminalId
}

func (a *agent) release(id acp.SessionId, terminal string) {
	a.conn.ReleaseTerminal(context.Background(), acp.ReleaseTerminalRequest{SessionId: id, TerminalId: terminal})
}

func (a *agent) output(id acp.SessionId, terminal string) {
	a.conn.TerminalOutput(context.Background(), acp.TerminalOutputRequest{SessionId: id, TerminalId: terminal})
}

func (a *agent) start(id acp.SessionId, call acp.ToolCallId) {
	a.update(id, acp.StartToolCall(call, "title"))
}

func (a *agent) end(id acp.SessionId, call acp.ToolCallId) {
	a.update(id, acp.UpdateToolCall(call, acp.WithUpdateStatus(acp.ToolCallStatusCompleted)))
}

func (a *agent) embed(id acp.SessionId, call acp.ToolCallId, terminal string) {
	a.update(id, acp.UpdateToolCall(call, acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolTerminalRef(terminal)})))
}

// startDisplay announces a tool call with a display-only terminal of its id.
func (a *agent) startDisplay(id acp.SessionId, call string) {
	a.update(id, acp.SessionUpdate{ToolCall: &acp.SessionUpdateToolCall{
		ToolCallId: acp.ToolCallId(call), Title: "title", Status: acp.ToolCallStatusInProgress,
		Content: []acp.ToolCallContent{acp.ToolTerminalRef(call)},
		Meta:    map[string]any{"terminal_info": map[string]any{"terminal_id": call, "cwd": "/work"}},
	}})
}

func (a *agent) meta(id acp.SessionId, call string, name string, value map[string]any) {
	value["terminal_id"] = call
	a.update(id, acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{
		ToolCallId: acp.ToolCallId(call), Meta: map[string]any{name: value},
	}})
}

func (a *agent) data(id acp.SessionId, call, data string) {
	a.meta(id, call, "terminal_output", map[string]any{"data": data})
}

func (a *agent) exit(id acp.SessionId, call string) {
	a.meta(id, call, "terminal_exit", map[string]any{"exit_code": 0, "signal": nil})
}

func TestTheAuditFindsEachViolation(t *testing.T) {
	tests := []struct {
		name string
		opts fakeconn.Options
		do   func(a *agent, id acp.SessionId)
		want []fakeconn.Rule
	}{
		{name: "nothing wrong", do: func(a *agent, id acp.SessionId) {
			a.start(id, "c")
			x := a.create(id, "echo")
			a.embed(id, "c", x)
			a.output(id, x)
			a.end(id, "c")
			a.release(id, x)
		}},
		{name: "nothing wrong, with display terminals", opts: fakeconn.Options{NoTerminal: true, Display: true}, do: func(a *agent, id acp.SessionId) {
			a.startDisplay(id, "c")
			a.data(id, "c", "hello\r\n")
			a.end(id, "c")
			time.AfterFunc(time.Second, func() {
				a.data(id, "c", "in the background\r\n")
				a.exit(id, "c")
			})
		}},
		{name: "terminal/create without the capability", opts: fakeconn.Options{NoTerminal: true}, do: func(a *agent, id acp.SessionId) {
			a.create(id, "echo")
		}, want: []fakeconn.Rule{fakeconn.RuleCapability}},
		{name: "terminal_info without the capability", do: func(a *agent, id acp.SessionId) {
			a.startDisplay(id, "c")
			a.end(id, "c")
		}, want: []fakeconn.Rule{fakeconn.RuleCapability, fakeconn.RuleUnknown}},
		{name: "output of an unknown id", do: func(a *agent, id acp.SessionId) {
			a.output(id, "nope")
		}, want: []fakeconn.Rule{fakeconn.RuleUnknown}},
		{name: "output of another session's id", do: func(a *agent, id acp.SessionId) {
			x := a.create(id, "echo")
			a.output("other", x)
			a.release(id, x)
		}, want: []fakeconn.Rule{fakeconn.RuleUnknown}},
		{name: "an embed of an unknown id", do: func(a *agent, id acp.SessionId) {
			a.start(id, "c")
			a.embed(id, "c", "nope")
			a.end(id, "c")
		}, want: []fakeconn.Rule{fakeconn.RuleUnknown}},
		{name: "output after the release", do: func(a *agent, id acp.SessionId) {
			x := a.create(id, "echo")
			a.release(id, x)
			a.output(id, x)
		}, want: []fakeconn.Rule{fakeconn.RuleReleased}},
		{name: "an embed after the release", do: func(a *agent, id acp.SessionId) {
			a.start(id, "c")
			x := a.create(id, "echo")
			a.release(id, x)
			a.embed(id, "c", x)
			a.end(id, "c")
		}, want: []fakeconn.Rule{fakeconn.RuleReleased}},
		{name: "two releases", do: func(a *agent, id acp.SessionId) {
			x := a.create(id, "echo")
			a.release(id, x)
			a.release(id, x)
		}, want: []fakeconn.Rule{fakeconn.RuleRelease}},
		{name: "no release", do: func(a *agent, id acp.SessionId) {
			a.create(id, "sleep", "1h")
		}, want: []fakeconn.Rule{fakeconn.RuleRelease}},
		{name: "a long line", do: func(a *agent, id acp.SessionId) {
			a.update(id, acp.UpdateAgentMessageText(strings.Repeat("x", 32<<10)))
		}, want: []fakeconn.Rule{fakeconn.RuleSize}},
		{name: "no final status", do: func(a *agent, id acp.SessionId) {
			a.start(id, "c")
		}, want: []fakeconn.Rule{fakeconn.RuleFinal}},
		{name: "two final statuses", do: func(a *agent, id acp.SessionId) {
			a.start(id, "c")
			a.end(id, "c")
			a.end(id, "c")
		}, want: []fakeconn.Rule{fakeconn.RuleFinal}},
		{name: "a final status on the tool_call and another one", do: func(a *agent, id acp.SessionId) {
			a.update(id, acp.StartToolCall("c", "title", acp.WithStartStatus(acp.ToolCallStatusFailed)))
			a.end(id, "c")
		}, want: []fakeconn.Rule{fakeconn.RuleFinal}},
		{name: "a message after the answer", do: func(a *agent, id acp.SessionId) {
			time.AfterFunc(time.Second, func() { a.update(id, acp.UpdateAgentMessageText("late")) })
		}, want: []fakeconn.Rule{fakeconn.RuleTurn}},
		{name: "a status after the answer", do: func(a *agent, id acp.SessionId) {
			a.start(id, "c")
			time.AfterFunc(time.Second, func() { a.end(id, "c") })
		}, want: []fakeconn.Rule{fakeconn.RuleTurn}},
		{name: "display output with a title after the answer", opts: fakeconn.Options{Display: true}, do: func(a *agent, id acp.SessionId) {
			a.startDisplay(id, "c")
			a.end(id, "c")
			time.AfterFunc(time.Second, func() {
				a.update(id, acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{
					ToolCallId: "c", Title: new("still running"),
					Meta: map[string]any{"terminal_output": map[string]any{"terminal_id": "c", "data": "x"}},
				}})
			})
		}, want: []fakeconn.Rule{fakeconn.RuleTurn}},
		{name: "an update of a call that was never announced", do: func(a *agent, id acp.SessionId) {
			a.update(id, acp.UpdateToolCall("nope", acp.WithUpdateTitle("x")))
		}, want: []fakeconn.Rule{fakeconn.RuleAnnounced}},
		{name: "output of a display terminal after its exit", opts: fakeconn.Options{Display: true}, do: func(a *agent, id acp.SessionId) {
			a.startDisplay(id, "c")
			a.exit(id, "c")
			a.data(id, "c", "more")
			a.end(id, "c")
		}, want: []fakeconn.Rule{fakeconn.RuleDisplay}},
		{name: "two exits of a display terminal", opts: fakeconn.Options{Display: true}, do: func(a *agent, id acp.SessionId) {
			a.startDisplay(id, "c")
			a.exit(id, "c")
			a.exit(id, "c")
			a.end(id, "c")
		}, want: []fakeconn.Rule{fakeconn.RuleDisplay}},
		{name: "terminal_info on an update", opts: fakeconn.Options{Display: true}, do: func(a *agent, id acp.SessionId) {
			a.start(id, "c")
			a.meta(id, "c", "terminal_info", map[string]any{})
			a.end(id, "c")
		}, want: []fakeconn.Rule{fakeconn.RuleDisplay}},
		{name: "terminal/output of a display terminal", opts: fakeconn.Options{Display: true}, do: func(a *agent, id acp.SessionId) {
			a.startDisplay(id, "c")
			a.output(id, "c")
			a.end(id, "c")
		}, want: []fakeconn.Rule{fakeconn.RuleUnknown}},
		{name: "too much for a client that does not read", opts: fakeconn.Options{MaxQueue: 100 << 10, Latency: time.Second}, do: func(a *agent, id acp.SessionId) {
			for range 10 {
				a.update(id, acp.UpdateAgentMessageText(strings.Repeat("x", 20<<10)))
			}
		}, want: []fakeconn.Rule{fakeconn.RuleQueue}},
		{name: "a rule that is not judged", opts: fakeconn.Options{Allow: []fakeconn.Rule{fakeconn.RuleAnnounced}}, do: func(a *agent, id acp.SessionId) {
			a.update(id, acp.UpdateToolCall("nope", acp.WithUpdateTitle("x")))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				test.opts.Agent = newAgent(func(_ context.Context, a *agent, id acp.SessionId, _ string) error {
					test.do(a, id)
					return nil
				})
				c := fakeconn.New(&test.opts)
				id, err := c.NewSession(t.Context(), "/work")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Prompt(t.Context(), id, "go"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second) // what comes after the answer
				if got := rules(c.Close()); !cmp.Equal(got, test.want) {
					t.Errorf("the audit found %q, want %q\n%s", got, test.want, c.Transcript())
				}
			})
		})
	}
}

// rules returns the rules of the findings in err, each once.
func rules(err error) []fakeconn.Rule {
	var rules []fakeconn.Rule
	seen := map[fakeconn.Rule]bool{}
	if e, ok := errors.AsType[*fakeconn.AuditError](err); ok {
		for _, f := range e.Findings {
			if !seen[f.Rule] {
				seen[f.Rule] = true
				rules = append(rules, f.Rule)
			}
		}
	}
	return rules
}

func TestNothingIsOwedAfterTheConnectionWasLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := fakeconn.New(&fakeconn.Options{Agent: newAgent(run)})
		id, err := c.NewSession(t.Context(), "/work")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, c.Disconnect)
		if _, err := c.Prompt(t.Context(), id, "sleep 1h"); err == nil {
			t.Error("the prompt was answered over a lost connection")
		}
		if err := c.Close(); err != nil {
			t.Errorf("%v\n%s", err, c.Transcript())
		}
	})
}

func TestAnIdThatNeverArrivedIsNotOwed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := fakeconn.New(nil)
		c.Inject(fakeconn.Fault{Method: "terminal/create", Reply: true, Drop: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Conn().CreateTerminal(ctx, acp.CreateTerminalRequest{SessionId: "s", Command: "sleep", Args: []string{"1h"}}); err == nil {
			t.Error("an answer that was dropped arrived")
		}
		if n := c.Memterm().Starts("sleep"); n != 1 {
			t.Errorf("sleep was started %d times", n)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%v\n%s", err, c.Transcript())
		}
	})
}

// An id may come again before the answer to the release that made it free. The
// answer is that of the old terminal.
func TestTheAuditKnowsAnIDThatComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeconn.New(emulate.Behaviour{ReuseIDs: true}.Client(nil))
		c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalRelease, Reply: true, N: 1, Delay: time.Second})
		create := func() string {
			x, err := c.Conn().CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "true"})
			if err != nil {
				t.Fatal(err)
			}
			return x.TerminalId
		}
		release := func(id string) {
			if _, err := c.Conn().ReleaseTerminal(t.Context(), acp.ReleaseTerminalRequest{SessionId: "s", TerminalId: id}); err != nil {
				t.Error(err)
			}
		}
		first := create()
		var old sync.WaitGroup
		old.Go(func() { release(first) })
		synctest.Wait()
		second := create()
		if second != first {
			t.Fatalf("the ids are %s and %s", first, second)
		}
		old.Wait()
		release(second)
		if err := c.Close(); err != nil {
			t.Errorf("%v\n%s", err, c.Transcript())
		}
	})
}
