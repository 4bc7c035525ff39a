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

// The user presses Stop: what runs in the open calls of the turn is stopped, and the
// prompt is answered "cancelled" when all of it has ended.
func ExampleState_Cancel() {
	editor, ctx := fakeconn.New(nil), context.Background()
	b := bridge.New(editor.Conn(), editor.Init(), nil)
	id, err := editor.NewSession(ctx, "/work")
	if err != nil {
		log.Fatal(err)
	}
	s, err := b.Session(id, "/work")
	if err != nil {
		log.Fatal(err)
	}
	answer, err := s.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		time.AfterFunc(50*time.Millisecond, s.Cancel) // what the agent's Cancel calls
		_, err := runInCall(ctx, t, "call-1", "sleep 1h")
		fmt.Println(errors.Is(err, context.Canceled))
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, err
	})
	fmt.Println(answer.StopReason, err)
	fmt.Println(errors.Join(b.Close(), editor.Close()))
	// Output:
	// true
	// cancelled <nil>
	// <nil>
}

// A client without terminals: nothing in the agent changes, and the user sees the
// output as text in the card.
func Example_noTerminals() {
	editor, ctx := fakeconn.New(&fakeconn.Options{NoTerminal: true}), context.Background()
	b := bridge.New(editor.Conn(), editor.Init(), &bridge.Options{Local: inMemory})
	id, err := editor.NewSession(ctx, "/work")
	if err != nil {
		log.Fatal(err)
	}
	s, err := b.Session(id, "/work")
	if err != nil {
		log.Fatal(err)
	}
	_, err = s.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		result, err := runInCall(ctx, t, "call-1", "echo hello")
		how, _ := s.Presentation(result.ID)
		fmt.Println(how, result.Exit)
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, err
	})
	fmt.Println(err, errors.Join(b.Close(), editor.Close()))
	fmt.Println(editor.Card("call-1").Visible())
	// Output:
	// text exit code 0
	// <nil> <nil>
	// ```
	// hello
	// ```
}

// A counting is a Manager of one's own around another: it counts what is started.
type counting struct {
	terminal.Manager
	starts int
}

func (c *counting) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	c.starts++
	return c.Manager.Start(ctx, cmd)
}

// Local commands of a session by a Manager of one's own. One from the ground up is
// tested by package terminaltest.
func ExampleOptions_local() {
	editor, ctx := fakeconn.New(&fakeconn.Options{NoTerminal: true}), context.Background()
	var own *counting
	b := bridge.New(editor.Conn(), editor.Init(), &bridge.Options{Local: func(id acp.SessionId) terminal.Manager {
		own = &counting{Manager: inMemory(id)} // localterm.New(nil)
		return own
	}})
	id, err := editor.NewSession(ctx, "/work")
	if err != nil {
		log.Fatal(err)
	}
	s, err := b.Session(id, "/work")
	if err != nil {
		log.Fatal(err)
	}
	_, err = s.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		_, err := runInCall(ctx, t, "call-1", "echo hello")
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, err
	})
	fmt.Println(own.starts, err, errors.Join(b.Close(), editor.Close()))
	// Output:
	// 1 <nil> <nil>
}
