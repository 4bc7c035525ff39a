package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// An event is what an agent's engine tells of its tools. A tool runs its command
// with what the start of it got; the events of one turn come in any order.
type event struct {
	kind, id, command string
	err               error
}

// follow keeps a turn's tool calls as the engine tells of them. What it never
// ends the turn does.
func follow(t *bridge.Turn, events <-chan event, run func(id string, call *bridge.Call, command string)) {
	calls := make(map[string]*bridge.Call)
	for e := range events {
		switch e.kind {
		case "tool-start":
			calls[e.id] = t.ToolCall(acp.SessionUpdateToolCall{ToolCallId: acp.ToolCallId(e.id), Title: e.command, Kind: acp.ToolKindExecute})
			go run(e.id, calls[e.id], e.command)
		case "tool-end":
			calls[e.id].End("", e.err) // a command that still runs goes on in the background
		}
	}
}

// An agent whose tools start and end as events: the Call is what both have in
// common, and the order in which things end does not matter.
func ExampleCall_End_events() {
	editor := fakeconn.New(&fakeconn.Options{NoTerminal: true})
	b := bridge.New(editor.Conn(), editor.Init(), &bridge.Options{Local: inMemory})
	id, _ := editor.NewSession(context.Background(), "/work")
	s, _ := b.Session(id, "/work")
	s.Turn(context.Background(), func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		// The engine: three tools, one of which is told to have ended too early.
		events, results := make(chan event), make(chan string)
		run := func(id string, call *bridge.Call, command string) {
			r, err := call.Exec(ctx, terminal.Command{Line: command})
			results <- fmt.Sprint(id, ": ", r.Outcome, " ", err)
		}
		go func() {
			defer close(events)
			events <- event{kind: "tool-start", id: "1", command: "echo hello"}
			fmt.Println(<-results)
			events <- event{kind: "tool-start", id: "2", command: "fail no"}
			fmt.Println(<-results)
			events <- event{kind: "tool-end", id: "2", err: errors.New("no")}
			events <- event{kind: "tool-end", id: "1"}
			events <- event{kind: "tool-start", id: "3", command: "sleep 1h"}
			for len(s.List()) < 3 {
				time.Sleep(time.Millisecond) // until it runs
			}
			events <- event{kind: "tool-end", id: "3"}
			fmt.Println(<-results)
		}()
		follow(t, events, run)
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	})
	if err := editor.Sync(context.Background()); err != nil {
		log.Fatal(err)
	}
	for _, card := range editor.Cards() {
		fmt.Println(card.Title, "is", card.Status)
	}
	fmt.Println("busy:", s.Manager().Busy())
	if err := errors.Join(b.Close(), editor.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1: exited <nil>
	// 2: exited <nil>
	// 3: running <nil>
	// echo hello is completed
	// fail no is failed
	// sleep 1h is completed
	// busy: true
}

// An agent that sends its own cards asks what they must carry.
func ExampleTurn_Attach() {
	editor := fakeconn.New(&fakeconn.Options{NoTerminal: true, Display: true})
	conn, ctx := editor.Conn(), context.Background()
	b := bridge.New(conn, editor.Init(), &bridge.Options{Local: inMemory})
	id, _ := editor.NewSession(ctx, "/work")
	s, _ := b.Session(id, "/work")
	s.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		cmd := terminal.Command{Line: "echo hello"}
		call, card := t.Attach("call-1", cmd)
		conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.SessionUpdate{ToolCall: &acp.SessionUpdateToolCall{
			ToolCallId: "call-1", Title: "say hello", Kind: acp.ToolKindExecute,
			Status: card.Status, Content: card.Content, Meta: card.Meta,
		}}})
		r, err := call.Exec(ctx, cmd)
		end := call.End("", err)
		conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{
			ToolCallId: "call-1", Status: &end.Status, Content: end.Content, RawOutput: r.Output, Meta: end.Meta,
		}}})
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, err
	})
	if err := editor.Sync(ctx); err != nil {
		log.Fatal(err)
	}
	card := editor.Card("call-1")
	fmt.Printf("%s: %s\n%q in %d terminal, %v\n", card.Title, card.Status, card.Visible(), len(card.Terminals), card.Terminals[0].Exit)
	if err := errors.Join(b.Close(), editor.Close()); err != nil { // audits the wire
		log.Fatal(err)
	}
	// Output:
	// say hello: completed
	// "hello\r\n" in 1 terminal, exit code 0
}
