package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// inTurn runs f as one prompt of an editor that can display terminals.
func inTurn(f func(ctx context.Context, s *bridge.State, t *bridge.Turn)) {
	editor := fakeconn.New(&fakeconn.Options{NoTerminal: true, Display: true})
	inTurnOf(editor, &bridge.Options{Local: inMemory}, f)
}

// inTurnOf runs f as one prompt of an editor, and returns how that is answered.
func inTurnOf(editor *fakeconn.Client, opts *bridge.Options, f func(context.Context, *bridge.State, *bridge.Turn)) acp.StopReason {
	ctx := context.Background()
	b := bridge.New(editor.Conn(), editor.Init(), opts)
	id, err := editor.NewSession(ctx, "/work")
	if err != nil {
		log.Fatal(err)
	}
	s, err := b.Session(id, "/work")
	if err != nil {
		log.Fatal(err)
	}
	answer, err := s.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		f(ctx, s, t)
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(b.Close(), editor.Close()); err != nil { // audits the wire
		log.Fatal(err)
	}
	return answer.StopReason
}

func execute(id, title string) acp.SessionUpdateToolCall {
	return acp.SessionUpdateToolCall{ToolCallId: acp.ToolCallId(id), Title: title, Kind: acp.ToolKindExecute}
}

// A command in the foreground, and one that its timeout stops.
func ExampleCall_Exec() {
	inTurn(func(ctx context.Context, s *bridge.State, t *bridge.Turn) {
		call := t.ToolCall(execute("call-1", "make"))
		result, err := call.Exec(ctx, terminal.Command{Line: "fail 'no rule'", Timeout: time.Minute})
		call.End("", err)
		if err != nil {
			fmt.Println("it could not be run, or nobody knows how it ended:", err)
			return
		}
		fmt.Println(result.Output, result.Outcome, result.Exit.Success())

		call = t.ToolCall(execute("call-2", "sleep"))
		result, err = call.Exec(ctx, terminal.Command{Line: "sleep 1h", Timeout: 50 * time.Millisecond})
		call.End("", err)
		fmt.Println(result.Outcome, err)
	})
	// Output:
	// no rule exited false
	// timed_out <nil>
}

// A command that takes long goes on in the background, and the model reads on where
// the result ended.
func ExampleCall_ExecFor() {
	inTurn(func(ctx context.Context, s *bridge.State, t *bridge.Turn) {
		call := t.ToolCall(execute("call-1", "npm run dev"))
		const foreground = 100 * time.Millisecond
		result, err := call.ExecFor(ctx, terminal.Command{Line: "lines 1000 1s"}, foreground)
		call.End("", err)
		if err == nil && result.Outcome == terminal.Running {
			term, err := s.Get(result.ID)
			if err != nil {
				log.Fatal(err)
			}
			next, err := view.WaitFor(ctx, term, view.Until{Cursor: result.Cursor, Literal: "line 2"})
			fmt.Printf("%q, and then %q %v\n", result.Output, next.Match, err)
		}
	})
	// Output:
	// "line 1\n", and then "line 2" <nil>
}

// A background server, input for a program, and a kill.
func ExampleCall_StartBackground() {
	inTurn(func(ctx context.Context, s *bridge.State, t *bridge.Turn) {
		call := t.ToolCall(execute("call-1", "python3 -i"))
		term, err := call.StartBackground(ctx, terminal.Command{Line: "cat", Stdin: true})
		if err != nil {
			call.End("", err)
			return
		}
		call.End("running as "+term.Info().ID, nil)

		if _, err := term.WriteInput(ctx, "print(6*7)\n"); err != nil {
			log.Fatal(err)
		}
		event, err := view.WaitFor(ctx, term, view.Until{Literal: "print(6*7)\nprint(6*7)\n", Timeout: time.Minute})
		fmt.Println(event.Reason, err)
		info, err := s.Stop(term.Info().ID)
		fmt.Println(info.Outcome, err)
	})
	// Output:
	// match <nil>
	// stopped <nil>
}

// The user decides by the card: what is not in it was not allowed.
func ExampleCall_Permit() {
	inTurn(func(ctx context.Context, s *bridge.State, t *bridge.Turn) {
		const line = "echo bye"
		card := execute("call-1", line)
		card.RawInput = map[string]any{"command": line}
		call := t.ToolCall(card)
		err := call.Permit(ctx, line)
		switch {
		case errors.Is(err, bridge.ErrDenied), errors.Is(err, errors.ErrUnsupported):
			fmt.Println("not allowed")
		case err == nil:
			_, err = call.Exec(ctx, terminal.Command{Line: line})
		}
		call.End("", err)
		fmt.Println(err)
	})
	// Output:
	// <nil>
}

// A command that runs without any client: in one call, with a Manager.
func Example_withoutAClient() {
	m := inMemory("") // localterm.New(nil)
	defer m.Close()
	out, err := view.Exec(context.Background(), m, terminal.Command{Line: "echo hello"})
	fmt.Fprint(os.Stdout, strings.ToUpper(out.Text), err, "\n")
	// Output:
	// HELLO
	// <nil>
}
