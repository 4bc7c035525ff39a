package bridge_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"strconv"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// An Agent runs each prompt as a shell command.
type Agent struct {
	bridge.UnimplementedAgent // the methods that do not concern terminals
	bridge                    *bridge.Bridge
}

func (a *Agent) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{ProtocolVersion: acp.ProtocolVersionNumber, AuthMethods: []acp.AuthMethod{}}, nil
}

func (a *Agent) NewSession(_ context.Context, req acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	_, err := a.bridge.Session("session-1", req.Cwd) // of a client that has only one
	return acp.NewSessionResponse{SessionId: "session-1"}, err
}

func (a *Agent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	session, err := a.bridge.State(req.SessionId)
	if err != nil {
		return acp.PromptResponse{}, err
	}
	return session.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		line := req.Prompt[0].Text.Text
		call := t.ToolCall(acp.SessionUpdateToolCall{ToolCallId: "call-1", Title: line, Kind: acp.ToolKindExecute})
		result, err := call.Exec(ctx, terminal.Command{Line: line, Timeout: time.Minute})
		call.End("", err)
		if err != nil {
			return acp.PromptResponse{}, err
		}
		text := fmt.Sprintf("It said %q and ended with %v.", result.Output, result.Exit)
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, session.Update(ctx, acp.UpdateAgentMessageText(text))
	})
}

func (a *Agent) CloseSession(_ context.Context, req acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	session, err := a.bridge.State(req.SessionId)
	if err != nil {
		return acp.CloseSessionResponse{}, err
	}
	return acp.CloseSessionResponse{}, session.Close()
}

// An agent whose commands run in the client's live terminals, or locally where
// the client has none.
func Example() {
	// fakeconn is the editor here. A real agent has os.Stdin and os.Stdout.
	editor := fakeconn.New(&fakeconn.Options{Serve: func(in io.Reader, out io.Writer) {
		newAgent := func(b *bridge.Bridge) acp.Agent { return &Agent{bridge: b} }
		if err := bridge.Serve(context.Background(), in, out, newAgent, nil); err != nil {
			log.Fatal(err)
		}
	}})
	ctx := context.Background()
	session, err := editor.NewSession(ctx, "/work")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := editor.Prompt(ctx, session, "echo hello, world"); err != nil {
		log.Fatal(err)
	}
	card := editor.Card("call-1")
	fmt.Printf("%s: %s\n%s%s\n", card.Title, card.Status, card.Visible(), editor.Messages())
	if err := editor.CloseSession(ctx, session); err != nil {
		log.Fatal(err)
	}
	if err := editor.Close(); err != nil { // audits the wire
		log.Fatal(err)
	}
	// Output:
	// echo hello, world: completed
	// hello, world
	// It said "hello, world\n" and ended with exit code 0.
}

// The tools of a language model: everything about terminals is here.
func tool(ctx context.Context, s *bridge.State, t *bridge.Turn, id, name string, args map[string]string) (answer string) {
	call := t.ToolCall(acp.SessionUpdateToolCall{
		ToolCallId: acp.ToolCallId(id), Title: name + " " + args["command"], RawInput: args,
		Kind: map[bool]acp.ToolKind{true: acp.ToolKindExecute, false: acp.ToolKindOther}[args["command"] != ""],
	})
	var err error
	defer func() {
		if err != nil {
			answer += "error: " + err.Error()
		}
		call.End(answer, err) // of a shown terminal it leaves what is there
	}()
	switch name {
	case "bash":
		var r *bridge.Result
		if r, err = call.Exec(ctx, terminal.Command{Line: args["command"], Timeout: 2 * time.Minute}); r != nil {
			answer = fmt.Sprintf("%s[%s, %s]", r.Output, r.Outcome, r.Exit)
		}
	case "background":
		var term terminal.Terminal
		if term, err = call.StartBackground(ctx, terminal.Command{Line: args["command"], Stdin: args["input"] != ""}); err == nil {
			answer = term.Info().ID
		}
	case "output":
		var term terminal.Terminal
		var out terminal.Output
		cursor, _ := strconv.ParseInt(args["since"], 10, 64)
		if term, err = s.Get(args["id"]); err == nil {
			if out, err = term.ReadOutput(ctx, cursor, time.Second); err == nil {
				answer = fmt.Sprintf("%s[%s, read on from %d]", out.Text, out.Info.Outcome, out.NextCursor)
			}
		}
	case "input":
		var term terminal.Terminal
		if term, err = s.Get(args["id"]); err == nil {
			_, err = term.WriteInput(ctx, args["text"])
			answer = "written"
		}
	case "kill":
		var info terminal.Info
		if info, err = s.Kill(args["id"]); err == nil {
			answer = string(info.Outcome)
		}
	}
	return answer
}

// A tool loop as a language model drives it: bash, background, output, input and
// kill.
func ExampleTurn_ToolCall() {
	editor := fakeconn.New(&fakeconn.Options{NoTerminal: true, Display: true})
	b := bridge.New(editor.Conn(), editor.Init(), &bridge.Options{Local: inMemory, Pipes: true})
	id, _ := editor.NewSession(context.Background(), "/work")
	s, _ := b.Session(id, "/work")
	s.Turn(context.Background(), func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		for i, step := range []struct {
			name string
			args map[string]string
		}{
			{"bash", map[string]string{"command": "fail 'no such file\n'"}},
			{"background", map[string]string{"command": "cat", "input": "yes"}},
			{"input", map[string]string{"id": "t2", "text": "ping\n"}},
			{"output", map[string]string{"id": "t2"}},
			{"kill", map[string]string{"id": "t2"}},
			{"kill", map[string]string{"id": "t9"}},
		} {
			answer := tool(ctx, s, t, fmt.Sprint("call-", i), step.name, step.args)
			fmt.Println(step.name+":", answer)
		}
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	})
	if err := b.Close(); err != nil {
		log.Fatal(err)
	}
	editor.Close()
	// Output:
	// bash: no such file
	// [exited, exit code 1]
	// background: t2
	// input: written
	// output: ping
	// [running, read on from 5]
	// kill: stopped
	// kill: error: bridge: no such terminal: "t9"
}
