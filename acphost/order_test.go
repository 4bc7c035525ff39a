package acphost_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A release that comes right behind the update that embeds its terminal must
// not overtake it, however busy the client is.
func TestAReleaseDoesNotOvertakeUpdates(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			c := fakeconn.New(nil)
			x, err := c.Conn().CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "echo", Args: []string{"hello"}})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, call := range []acp.ToolCallId{"a", "b", "c", "d", "e"} {
				c.Conn().SessionUpdate(t.Context(), notification(acp.StartToolCall(call, "title", acp.WithStartContent(refs(x.TerminalId)))))
			}
			c.Conn().ReleaseTerminal(t.Context(), acp.ReleaseTerminalRequest{SessionId: "s", TerminalId: x.TerminalId})
			if n := len(c.Cards()); n != 5 {
				t.Errorf("%d cards of 5", n)
			}
			for _, card := range c.Cards() {
				if card.Visible() != "hello\n" {
					t.Errorf("card %s shows %q", card.ID, card.Visible())
				}
			}
			if err := c.Close(); err != nil {
				t.Errorf("%v\n%s", err, c.Transcript())
			}
		})
	}
}

func TestReader(t *testing.T) {
	const update = `{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"t"}}}` + "\n"
	const release = `{"method":"terminal/release"}` + "\n"
	const ask = `{"method":"session/request_permission"}` + "\n"
	tests := []struct {
		name, in string
		wait     time.Duration // nobody handles the updates
	}{
		{"nothing", "", 0},
		{"a line", update, 0},
		{"no line end", update + "half", 0},
		{"a release behind nothing", release + update, 0},
		{"a release behind updates that nobody handles", update + update + release, time.Second},
		{"a second release does not wait for the same updates", update + release + release, time.Second},
		{"a permission request behind an update", update + ask, time.Second},
		{"a permission request behind nothing", ask + update, 0},
		{"a request that waits, behind one that has waited", update + ask + release, time.Second},
		{"other requests wait for nothing", update + `{"method":"terminal/create"}` + "\n" + `{"method":"terminal/output"}` + "\n", 0},
		{"an update that the SDK drops", `{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":[7]}}}` + "\n" + release, 0},
		{"an update without params", `{"method":"session/update"}` + "\n" + release, 0},
		{"no JSON", "{\n\n[]\nnull\n" + release, 0},
		{"a line without an end", strings.Repeat("x", 11<<20), 0},
		{"a long update", update[:1] + strings.Repeat(" ", 1<<20) + update[1:] + release, time.Second},
		{"a long line", strings.Repeat("x", 1<<20) + "\n" + release, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := acphost.New(func(acp.SessionId) terminal.Manager { return nil }, nil)
				start := time.Now()
				got, err := io.ReadAll(h.Reader(strings.NewReader(test.in)))
				if err != nil || string(got) != test.in {
					t.Errorf("read %.40q, %v", got, err)
				}
				if took := time.Since(start); took != test.wait {
					t.Errorf("took %v, want %v", took, test.wait)
				}
				if err := h.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A slow is a client that takes its time for some updates.
type slow struct {
	acp.Client
	takes map[acp.ToolCallId]time.Duration
	log   func(what string)
}

func (s *slow) SessionUpdate(ctx context.Context, n acp.SessionNotification) error {
	id := n.Update.ToolCall.ToolCallId
	time.Sleep(s.takes[id])
	s.log("update " + string(id))
	return s.Client.SessionUpdate(ctx, n)
}

func (s *slow) ReleaseTerminal(ctx context.Context, req acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	s.log("release")
	return s.Client.ReleaseTerminal(ctx, req)
}

func (s *slow) RequestPermission(ctx context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	s.log("permission")
	return s.Client.RequestPermission(ctx, req)
}

// A request waits a second for an update that takes longer. When that update is
// done after all, the next request still waits for the updates before it.
func TestALateUpdateDoesNotEndTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var log []string
		c := fakeconn.New(&fakeconn.Options{Wrap: func(c acp.Client) acp.Client {
			return &slow{c, map[acp.ToolCallId]time.Duration{"a": 3 * time.Second, "c": 500 * time.Millisecond, "d": 500 * time.Millisecond}, func(what string) {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, fmt.Sprint(time.Since(start), " ", what))
			}}
		}})
		update := func(id acp.ToolCallId) {
			if err := c.Conn().SessionUpdate(t.Context(), notification(acp.StartToolCall(id, "title"))); err != nil {
				t.Error(err)
			}
		}
		var ids []string
		for range 2 {
			x, err := c.Conn().CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "true"})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, x.TerminalId)
		}
		release := func(id string) {
			if _, err := c.Conn().ReleaseTerminal(t.Context(), acp.ReleaseTerminalRequest{SessionId: "s", TerminalId: id}); err != nil {
				t.Error(err)
			}
		}
		update("a")
		update("b")
		release(ids[0])
		time.Sleep(4*time.Second - time.Since(start))
		update("c")
		release(ids[1])
		update("d")
		c.Conn().RequestPermission(t.Context(), acp.RequestPermissionRequest{
			SessionId: "s", ToolCall: acp.ToolCallUpdate{ToolCallId: "d"}, Options: []acp.PermissionOption{},
		})
		want := []string{"1s release", "3s update a", "3s update b", "4.5s update c", "4.5s release", "5s update d", "5s permission"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%v\n%s", err, c.Transcript())
		}
	})
}

// A permission request that comes right behind the card that it is about must not
// overtake it.
func TestAPermissionRequestDoesNotOvertakeItsCard(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var c *fakeconn.Client
			var seen acphost.Card
			c = fakeconn.New(&fakeconn.Options{Permission: func(_ context.Context, req acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
				seen = c.Card(req.ToolCall.ToolCallId)
				return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
			}})
			for _, call := range []acp.ToolCallId{"a", "b", "c"} {
				c.Conn().SessionUpdate(t.Context(), notification(acp.StartToolCall(call, "title of "+string(call))))
			}
			c.Conn().SessionUpdate(t.Context(), notification(acp.UpdateToolCall("c", acp.WithUpdateTitle("rm -rf"))))
			c.Conn().RequestPermission(t.Context(), acp.RequestPermissionRequest{
				SessionId: "s", ToolCall: acp.ToolCallUpdate{ToolCallId: "c"}, Options: []acp.PermissionOption{},
			})
			if seen.Title != "rm -rf" {
				t.Errorf("the user is asked about %q, want the card as it was last updated", seen.Title)
			}
			if err := c.Close(); err != nil {
				t.Errorf("%v\n%s", err, c.Transcript())
			}
		})
	}
}

func TestReaderPassesErrorsOn(t *testing.T) {
	h := acphost.New(func(acp.SessionId) terminal.Manager { return nil }, nil)
	if _, err := io.ReadAll(h.Reader(iotest.ErrReader(io.ErrNoProgress))); err != io.ErrNoProgress {
		t.Errorf("ReadAll returned %v", err)
	}
	h.Close()
}

// An optional member of the wrong type costs no message: not an update, not a
// create, not a question.
func TestMembersOfAWrongType(t *testing.T) {
	mem := memterm.New(&memterm.Options{Programs: fakeconn.Programs()})
	defer mem.Close()
	h := acphost.New(func(acp.SessionId) terminal.Manager { return mem }, nil)
	defer h.Close()
	fromAgent, toClient := io.Pipe()
	fromClient, toAgent := io.Pipe()
	acp.NewClientSideConnection(editor{h}, toAgent, h.Reader(fromAgent))
	answers := bufio.NewScanner(fromClient)
	ask := func(method, params string) string {
		fmt.Fprintf(toClient, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`+"\n", method, params)
		if !answers.Scan() {
			t.Fatal(answers.Err())
		}
		return answers.Text()
	}
	var created struct{ Result struct{ TerminalID string } }
	answer := ask("terminal/create", `{"sessionId":"s","command":"spam","args":["1000"],"env":"none","outputByteLimit":"64","_meta":[]}`)
	if json.Unmarshal([]byte(answer), &created); created.Result.TerminalID == "" {
		t.Fatalf("create is answered %s", answer)
	}
	id := created.Result.TerminalID
	ask("terminal/wait_for_exit", fmt.Sprintf(`{"sessionId":"s","terminalId":%q,"_meta":7}`, id))
	if answer := ask("terminal/output", fmt.Sprintf(`{"sessionId":"s","terminalId":%q}`, id)); !strings.Contains(answer, `"truncated":true`) {
		t.Errorf("the limit is lost: %s", answer)
	}
	fmt.Fprintf(toClient, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","_meta":[],"update":{"sessionUpdate":"tool_call",`+
		`"toolCallId":"c","title":"title","status":"pending","locations":"none","_meta":"x","content":[`+
		`{"type":"content","content":{"type":"text","text":"text","annotations":[]}},{"type":"terminal","terminalId":%q,"_meta":[]}]}}}`+"\n", id)
	if answer := ask("session/request_permission", `{"sessionId":"s","options":[],"toolCall":{"toolCallId":"c","title":7,"kind":[]}}`); !strings.Contains(answer, `"outcome"`) {
		t.Errorf("the question is answered %s", answer)
	}
	c, ok := h.Card("s", "c")
	if !ok || c.Title != "title" || c.Text != "text" || len(c.Terminals) != 1 {
		t.Errorf("the card is %+v", c)
	}
	toClient.Close()
	toAgent.Close()
}
