package bridge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// An Agent gives a language model a shell. The prompt is the model here: each of its
// lines is a tool call, such as "bash command=make".
type Agent struct {
	bridge.UnimplementedAgent // answers what this agent does not have
	bridge                    *bridge.Bridge
	foreground                time.Duration // of the model, with a command in the foreground
	calls                     atomic.Int64
	kept                      *records // of tool calls; a real agent writes files
}

func (a *Agent) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{
		ProtocolVersion: acp.ProtocolVersionNumber, AuthMethods: []acp.AuthMethod{},
		AgentCapabilities: acp.AgentCapabilities{LoadSession: true, SessionCapabilities: acp.SessionCapabilities{Close: new(acp.SessionCloseCapabilities)}},
	}, nil
}

func (a *Agent) NewSession(_ context.Context, req acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	id := acp.SessionId(fmt.Sprint("session-", a.calls.Add(1)))
	_, err := a.bridge.Session(id, req.Cwd)
	return acp.NewSessionResponse{SessionId: id}, err
}

// LoadSession shows the tool calls of a session again.
func (a *Agent) LoadSession(ctx context.Context, req acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	session, err := a.bridge.Session(req.SessionId, req.Cwd)
	for _, record := range a.kept.of(req.SessionId) {
		if err == nil {
			err = session.Replay(ctx, record)
		}
	}
	return acp.LoadSessionResponse{}, err
}

func (a *Agent) CloseSession(_ context.Context, req acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	session, err := a.bridge.State(req.SessionId)
	if err != nil {
		return acp.CloseSessionResponse{}, err
	}
	return acp.CloseSessionResponse{}, session.Close()
}

func (a *Agent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	session, err := a.bridge.State(req.SessionId)
	if err != nil {
		return acp.PromptResponse{}, err
	}
	return session.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		for line := range strings.Lines(req.Prompt[0].Text.Text) {
			tool, args := parse(strings.TrimSpace(line))
			answer := a.tool(ctx, session, t, tool, args)
			if err := session.Update(ctx, acp.UpdateAgentMessageText(tool+": "+answer+"\n")); err != nil {
				return acp.PromptResponse{}, err
			}
		}
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	})
}

// tool is a tool call of the model, and returns what the model is told.
func (a *Agent) tool(ctx context.Context, s *bridge.State, t *bridge.Turn, name string, args map[string]string) string {
	call := t.ToolCall(acp.SessionUpdateToolCall{
		ToolCallId: acp.ToolCallId(fmt.Sprint("call-", a.calls.Add(1))), Kind: acp.ToolKindExecute,
		Title: cmp.Or(args["command"], name+" "+args["id"]), RawInput: args,
	})
	answer, note, err := a.run(ctx, s, call, name, args)
	if err != nil {
		note += "[error: " + err.Error() + "]"
	}
	call.End(note, err) // below what the command writes
	if record, err := call.Record(ctx); err == nil {
		a.kept.add(s.ID(), record)
	}
	return answer + note
}

// run is all that the agent must know of terminals. It returns an output that the user
// sees already, and what the card says besides.
func (a *Agent) run(ctx context.Context, s *bridge.State, call *bridge.Call, name string, args map[string]string) (shown, note string, err error) {
	if name == "bash" {
		if err := call.Permit(ctx, args["command"]); err != nil {
			return "", "", err
		}
		cmd := terminal.Command{Line: args["command"], Stdin: args["input"] != "", Timeout: time.Hour}
		r, err := call.ExecFor(ctx, cmd, a.foreground)
		if r == nil {
			return "", "", err
		}
		return r.Output, fmt.Sprintf("[it %v; read on from %d]", r, r.Cursor), err
	}
	term, err := s.Get(args["id"])
	if err != nil {
		return "", "", err
	}
	switch name {
	case "bash_output":
		cursor, _ := strconv.ParseInt(args["cursor"], 10, 64)
		out, err := view.NewPager(term, nil).ReadText(ctx, cursor, time.Second, nil)
		return "", fmt.Sprintf("%s[it %v; read on from %d]", view.Plain(out.Text), out.Info, out.NextCursor), err
	case "bash_input":
		n, err := term.WriteInput(ctx, args["text"]+"\n")
		return "", fmt.Sprintf("[%d bytes written]", n), err
	case "bash_kill":
		info, err := s.Stop(args["id"])
		return "", fmt.Sprintf("[it %v]", info), err
	}
	return "", "", errors.New("no such tool")
}

// records are the tool calls of sessions.
type records struct {
	mu sync.Mutex
	m  map[acp.SessionId][]bridge.Record
}

func (r *records) add(id acp.SessionId, record bridge.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.m[id] = append(r.m[id], record)
}

func (r *records) of(id acp.SessionId) []bridge.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.m[id]
}

// parse reads "TOOL NAME=VALUE, NAME=VALUE".
func parse(line string) (tool string, args map[string]string) {
	tool, rest, _ := strings.Cut(line, " ")
	args = make(map[string]string)
	for arg := range strings.SplitSeq(rest, ", ") {
		name, value, _ := strings.Cut(arg, "=")
		args[name] = value
	}
	return tool, args
}

// An agent with the tools of a language model: bash, which goes on in the background
// when it takes long, bash_output, bash_input and bash_kill; it asks its user, and
// shows a session again.
func Example() {
	kept := &records{m: make(map[acp.SessionId][]bridge.Record)}
	// fakeconn is the editor here. A real agent has os.Stdin and os.Stdout, and no
	// Local: its commands run in the editor's terminals, or are processes.
	open := func() *fakeconn.Client {
		return fakeconn.New(&fakeconn.Options{NoTerminal: true, Display: true, Serve: func(in io.Reader, out io.Writer) {
			newAgent := func(b *bridge.Bridge) acp.Agent {
				return &Agent{bridge: b, foreground: 50 * time.Millisecond, kept: kept}
			}
			if err := bridge.Serve(context.Background(), in, out, newAgent, &bridge.Options{Local: inMemory}); err != nil {
				log.Fatal(err)
			}
		}})
	}
	editor, ctx := open(), context.Background()
	session, err := editor.NewSession(ctx, "/work")
	if err != nil {
		log.Fatal(err)
	}
	for _, line := range []string{
		"bash command=fail oops",
		"bash command=cat, input=yes",
		"bash_input id=t2, text=ping",
		"bash_output id=t2",
		"bash_kill id=t2",
		"bash_kill id=t9",
	} {
		if _, err := editor.Prompt(ctx, session, line); err != nil {
			log.Fatal(err)
		}
	}
	times := regexp.MustCompile(`\d+(\.\d+)?m?s\b`)
	fmt.Print(times.ReplaceAllString(editor.Messages(), "…"))
	if err := errors.Join(editor.CloseSession(ctx, session), editor.Close()); err != nil { // audits the wire
		log.Fatal(err)
	}

	// Another day.
	editor = open()
	if err := editor.Initialize(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := editor.Peer().LoadSession(ctx, acp.LoadSessionRequest{SessionId: session, Cwd: "/work", McpServers: []acp.McpServer{}}); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d tool calls, the first: %s, %q\n", len(editor.Cards()), editor.Cards()[0].Title, editor.Cards()[0].Visible())
	if err := editor.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// bash: oops[it exited with code 1 after …; read on from 4]
	// bash: [it is running as t2, for …; read on from 0]
	// bash_input: [5 bytes written]
	// bash_output: ping
	// ping
	// [it is running as t2, for …; read on from 10]
	// bash_kill: [it was stopped after …]
	// bash_kill: [error: bridge: no such terminal: "t9"]
	// 6 tool calls, the first: fail oops, "oops"
}

// The Example has at most 45 lines about terminals: those of run, the card of a tool
// call, and what is kept of it.
func TestExampleIsShort(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nfunc (a *Agent) run(")
	run, _, found := strings.Cut(rest, "\n}\n")
	const others = 10 // ToolCall, End, Record and Replay
	if n := strings.Count(run, "\n") + 2 + others; n > 45 || !found {
		t.Errorf("%d lines are about terminals, at most 45 may be", n)
	}
}
