package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// The user presses Stop: what runs in the open calls of the turn is stopped, and the
// prompt is answered "cancelled" when all of it has ended.
func ExampleState_Cancel() {
	stop := inTurnOf(fakeconn.New(nil), nil, func(ctx context.Context, s *bridge.State, t *bridge.Turn) {
		time.AfterFunc(50*time.Millisecond, s.Cancel) // what the agent's Cancel calls
		_, err := runInCall(ctx, t, "call-1", "sleep 1h")
		fmt.Println(errors.Is(err, context.Canceled))
	})
	fmt.Println(stop)
	// Output:
	// true
	// cancelled
}

// A client without terminals: nothing in the agent changes, and the user sees the
// output as text in the card.
func Example_noTerminals() {
	editor := fakeconn.New(&fakeconn.Options{NoTerminal: true})
	inTurnOf(editor, &bridge.Options{Local: inMemory}, func(ctx context.Context, s *bridge.State, t *bridge.Turn) {
		result, err := runInCall(ctx, t, "call-1", "echo hello")
		if err != nil {
			fmt.Println(err)
			return
		}
		how, _ := s.Presentation(result.ID)
		fmt.Println(how, result.Exit)
	})
	fmt.Println(editor.Card("call-1").Visible())
	// Output:
	// text exit code 0
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
	var own *counting
	opts := &bridge.Options{Local: func(id acp.SessionId) terminal.Manager {
		own = &counting{Manager: inMemory(id)} // localterm.New(nil)
		return own
	}}
	inTurnOf(fakeconn.New(&fakeconn.Options{NoTerminal: true}), opts, func(ctx context.Context, s *bridge.State, t *bridge.Turn) {
		result, err := runInCall(ctx, t, "call-1", "echo hello")
		if err == nil {
			fmt.Println(result.Exit)
		}
	})
	fmt.Println(own.starts)
	// Output:
	// exit code 0
	// 1
}
