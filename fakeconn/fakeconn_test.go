package fakeconn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// agent is an agent whose prompts are one function; everything else is as in
// the agent of a Client without one.
type agent struct {
	acp.Agent
	conn   *acp.AgentSideConnection
	prompt func(ctx context.Context, a *agent, id acp.SessionId, text string) error
	calls  atomic.Int32
}

func newAgent(prompt func(ctx context.Context, a *agent, id acp.SessionId, text string) error) func(*acp.AgentSideConnection) acp.Agent {
	return func(conn *acp.AgentSideConnection) acp.Agent {
		return &agent{conn: conn, prompt: prompt}
	}
}

func (a *agent) Initialize(_ context.Context, req acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{ProtocolVersion: req.ProtocolVersion, AuthMethods: []acp.AuthMethod{}}, nil
}

func (a *agent) NewSession(context.Context, acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	return acp.NewSessionResponse{SessionId: "s"}, nil
}

func (a *agent) Cancel(context.Context, acp.CancelNotification) error { return nil }

func (a *agent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	err := a.prompt(ctx, a, req.SessionId, req.Prompt[0].Text.Text)
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, err
}

func (a *agent) update(id acp.SessionId, u acp.SessionUpdate) {
	a.conn.SessionUpdate(context.Background(), acp.SessionNotification{SessionId: id, Update: u})
}

// run is how an honest agent runs a program: create, embed, wait, read, final
// status, release.
func run(ctx context.Context, a *agent, id acp.SessionId, text string) error {
	words := strings.Fields(text)
	call := acp.ToolCallId(fmt.Sprint("call-", a.calls.Add(1)))
	a.update(id, acp.StartToolCall(call, text, acp.WithStartKind(acp.ToolKindExecute)))
	t, err := a.conn.CreateTerminal(ctx, acp.CreateTerminalRequest{SessionId: id, Command: words[0], Args: words[1:]})
	if err != nil {
		a.update(id, acp.UpdateToolCall(call, acp.WithUpdateStatus(acp.ToolCallStatusFailed)))
		return err
	}
	a.update(id, acp.UpdateToolCall(call, acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolTerminalRef(t.TerminalId)})))
	_, err = a.conn.WaitForTerminalExit(ctx, acp.WaitForTerminalExitRequest{SessionId: id, TerminalId: t.TerminalId})
	a.update(id, acp.UpdateToolCall(call, acp.WithUpdateStatus(acp.ToolCallStatusCompleted)))
	a.conn.ReleaseTerminal(context.Background(), acp.ReleaseTerminalRequest{SessionId: id, TerminalId: t.TerminalId})
	return err
}

func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

func realTime(t *testing.T, f func(t *testing.T)) { f(t) }

func TestAnHonestAgent(t *testing.T) {
	for name, in := range map[string]func(*testing.T, func(*testing.T)){"fake time": bubble, "real time": realTime} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := fakeconn.New(&fakeconn.Options{Agent: newAgent(run)})
				start := time.Now()
				id, err := c.NewSession(t.Context(), "/work")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Prompt(t.Context(), id, "lines 3 20ms"); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took < 60*time.Millisecond || name == "fake time" && took != 60*time.Millisecond {
					t.Errorf("took %v, want 60ms", took)
				}
				card := c.Card("call-1")
				if card.Status != acp.ToolCallStatusCompleted || card.Visible() != "line 1\nline 2\nline 3\n" {
					t.Errorf("the card is %q %q", card.Status, card.Visible())
				}
				if n := c.Memterm().Starts("lines"); n != 1 {
					t.Errorf("lines was started %d times", n)
				}
				if err := c.Close(); err != nil {
					t.Errorf("%v\n%s", err, c.Transcript())
				}
			})
		})
	}
}

func TestCapabilities(t *testing.T) {
	tests := []struct {
		name string
		opts fakeconn.Options
		want acp.InitializeRequest
	}{
		{"terminals", fakeconn.Options{}, acp.InitializeRequest{
			ProtocolVersion: 1, ClientInfo: &acp.Implementation{Name: "fakeconn", Version: "1"},
			ClientCapabilities: acp.ClientCapabilities{Terminal: true},
		}},
		{"none", fakeconn.Options{NoTerminal: true, ClientInfo: &acp.Implementation{Name: "zed", Version: "0.200.0"}}, acp.InitializeRequest{
			ProtocolVersion: 1, ClientInfo: &acp.Implementation{Name: "zed", Version: "0.200.0"},
		}},
		{"display", fakeconn.Options{NoTerminal: true, Display: true}, acp.InitializeRequest{
			ProtocolVersion: 1, ClientInfo: &acp.Implementation{Name: "fakeconn", Version: "1"},
			ClientCapabilities: acp.ClientCapabilities{Meta: map[string]any{"terminal_output": true}},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				test.opts.Allow = []fakeconn.Rule{fakeconn.RuleCapability, fakeconn.RuleUnknown}
				c := fakeconn.New(&test.opts)
				if diff := cmp.Diff(test.want, c.Init()); diff != "" {
					t.Errorf("initialize (-want +got)\n%s", diff)
				}
				want := -32601
				if !test.opts.NoTerminal {
					want = -32002
				}
				ctx, conn := t.Context(), c.Conn()
				_, err1 := conn.TerminalOutput(ctx, acp.TerminalOutputRequest{SessionId: "s", TerminalId: "x"})
				_, err2 := conn.WaitForTerminalExit(ctx, acp.WaitForTerminalExitRequest{SessionId: "s", TerminalId: "x"})
				_, err3 := conn.KillTerminal(ctx, acp.KillTerminalRequest{SessionId: "s", TerminalId: "x"})
				_, err4 := conn.ReleaseTerminal(ctx, acp.ReleaseTerminalRequest{SessionId: "s", TerminalId: "x"})
				errs := []error{err1, err2, err3, err4}
				if test.opts.NoTerminal {
					_, err := conn.CreateTerminal(ctx, acp.CreateTerminalRequest{SessionId: "s", Command: "true"})
					errs = append(errs, err)
				}
				for i, err := range errs {
					if re, ok := errors.AsType[*acp.RequestError](err); !ok || re.Code != want {
						t.Errorf("request %d returned %v, want code %d", i, err, want)
					}
				}
				if n := c.Memterm().Starts("true"); n != 0 {
					t.Errorf("a client without terminals ran %d commands", n)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestPermission(t *testing.T) {
	allow := acp.PermissionOption{OptionId: "yes", Name: "Allow", Kind: acp.PermissionOptionKindAllowOnce}
	reject := acp.PermissionOption{OptionId: "no", Name: "Reject", Kind: acp.PermissionOptionKindRejectOnce}
	ask := func(t *testing.T, opts *fakeconn.Options, options ...acp.PermissionOption) acp.RequestPermissionOutcome {
		c := fakeconn.New(opts)
		resp, err := c.Conn().RequestPermission(t.Context(), acp.RequestPermissionRequest{
			SessionId: "s", Options: options, ToolCall: acp.ToolCallUpdate{ToolCallId: "c"},
		})
		if err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		return resp.Outcome
	}
	bubble(t, func(t *testing.T) {
		if got := ask(t, nil, reject, allow); got.Selected == nil || got.Selected.OptionId != "yes" {
			t.Errorf("selected %+v", got)
		}
		if got := ask(t, nil, reject); got.Cancelled == nil {
			t.Errorf("selected %+v", got)
		}
		no := func(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
			return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected("no")}, nil
		}
		if got := ask(t, &fakeconn.Options{Permission: no}, reject, allow); got.Selected == nil || got.Selected.OptionId != "no" {
			t.Errorf("selected %+v", got)
		}
	})
}

// The wire takes everything at once, however slow the client is; the SDK's
// client does not survive that, and the audit says so.
func TestAFloodEndsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := fakeconn.New(&fakeconn.Options{
			Wrap: func(c acp.Client) acp.Client { return &slow{c} },
			Agent: newAgent(func(_ context.Context, a *agent, id acp.SessionId, _ string) error {
				for range 2000 {
					a.update(id, acp.UpdateAgentMessageText("x"))
				}
				return nil
			}),
		})
		id, err := c.NewSession(t.Context(), "/work")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Prompt(t.Context(), id, "go"); err == nil {
			t.Error("the prompt was answered")
		}
		if got := rules(c.Close()); !cmp.Equal(got, []fakeconn.Rule{fakeconn.RuleQueue}) {
			t.Errorf("the audit found %q", got)
		}
	})
}

// slow is a client that takes its time for updates.
type slow struct{ acp.Client }

func (s *slow) SessionUpdate(ctx context.Context, n acp.SessionNotification) error {
	time.Sleep(time.Millisecond)
	return s.Client.SessionUpdate(ctx, n)
}

func TestLines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := fakeconn.New(&fakeconn.Options{Agent: newAgent(run), Keep: 4})
		id, err := c.NewSession(t.Context(), "/work")
		if err != nil {
			t.Fatal(err)
		}
		c.Inject(fakeconn.Fault{Method: "session/prompt", Reply: true, Delay: time.Second})
		if _, err := c.Prompt(t.Context(), id, "echo "+strings.Repeat("x", 1000)); err != nil {
			t.Fatal(err)
		}
		type line struct {
			From   fakeconn.Side
			Kind   fakeconn.Kind
			Method string
			Note   string
		}
		var got []line
		for i, l := range c.Lines() {
			got = append(got, line{l.From, l.Kind, l.Method, l.Note})
			if i > 0 && (l.N != c.Lines()[i-1].N+1 || l.Time.Before(c.Lines()[i-1].Time)) {
				t.Errorf("line %d is out of order", l.N)
			}
		}
		want := []line{
			{fakeconn.Agent, fakeconn.Notification, "session/update", ""},
			{fakeconn.Agent, fakeconn.Request, "terminal/release", ""},
			{fakeconn.Editor, fakeconn.Reply, "terminal/release", ""},
			{fakeconn.Agent, fakeconn.Reply, "session/prompt", "delayed 1s"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if got := strings.Count(c.Transcript(), "\n"); got != 4 {
			t.Errorf("the transcript has %d lines:\n%s", got, c.Transcript())
		}
		if n := c.Count("terminal/release"); n != 1 {
			t.Errorf("%d releases", n)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSync(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			c := fakeconn.New(&fakeconn.Options{Wrap: func(c acp.Client) acp.Client { return &slow{c} }})
			for range 10 {
				c.Conn().SessionUpdate(t.Context(), acp.SessionNotification{SessionId: "s", Update: acp.UpdateAgentMessageText("x")})
			}
			if err := c.Sync(t.Context()); err != nil {
				t.Error(err)
			}
			if got := c.Messages("s"); got != "xxxxxxxxxx" {
				t.Errorf("the client has %q", got)
			}
			c.Disconnect()
			if err := c.Sync(t.Context()); err == nil {
				t.Error("Sync over a lost connection returned nil")
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestACancelledPromptSendsACancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := fakeconn.New(&fakeconn.Options{Agent: newAgent(func(ctx context.Context, a *agent, id acp.SessionId, text string) error {
			<-ctx.Done()
			return nil
		})})
		id, err := c.NewSession(t.Context(), "/work")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Prompt(ctx, id, "go"); err == nil {
			t.Error("the prompt was answered")
		}
		synctest.Wait()
		if n := c.Count("session/cancel"); n != 1 {
			t.Errorf("%d cancels", n)
		}
		time.AfterFunc(time.Second, func() { c.Cancel(context.Background(), id) })
		if resp, err := c.Prompt(t.Context(), id, "go"); err != nil || resp.StopReason != acp.StopReasonEndTurn {
			t.Errorf("Prompt returned %v, %v", resp, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%v\n%s", err, c.Transcript())
		}
	})
}

// A Manager of the caller's own runs the commands, and outlives the Client.
func TestManager(t *testing.T) {
	bubble(t, func(t *testing.T) {
		managers := map[acp.SessionId]*memterm.Manager{}
		c := fakeconn.New(&fakeconn.Options{
			Agent: newAgent(run),
			Manager: func(id acp.SessionId) terminal.Manager {
				m := memterm.New(&memterm.Options{Programs: fakeconn.Programs()})
				managers[id] = m
				return m
			},
		})
		id, err := c.NewSession(t.Context(), "/work")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Prompt(t.Context(), id, "echo hello"); err != nil {
			t.Fatal(err)
		}
		if got := c.Card("call-1").Visible(); got != "hello\n" {
			t.Errorf("visible is %q", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if len(managers) != 1 || c.Memterm() != nil || managers[id].Starts("echo") != 1 {
			t.Errorf("managers: %v", managers)
		}
		for _, m := range managers {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestPrograms(t *testing.T) {
	tests := []struct{ line, output, exit string }{
		{`print 'a\tb\n'`, "a\tb\n", "exit code 0"},
		{`print 'no \escape "here"'`, `no \escape "here"`, "exit code 0"},
		{`fail oops`, "oops", "exit code 1"},
		{`signal SIGSEGV`, "", "SIGSEGV"},
		{`signal`, "usage: signal NAME\n", "exit code 2"},
		{`lines 2 1s`, "line 1\nline 2\n", "exit code 0"},
		{`lines x`, "usage: lines N DURATION\n", "exit code 2"},
		{`spam 70`, strings.Repeat("x", 63) + "\nxxxxx\n", "exit code 0"},
		{`spam`, "usage: spam BYTES\n", "exit code 2"},
		{`after 1s exit 3`, "", "exit code 3"},
		{`after 1s nope`, "usage: after DURATION PROGRAM…\n", "exit code 2"},
		{`spawn nope`, "", "exit code 2"},
	}
	for _, test := range tests {
		t.Run(test.line, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := memterm.New(&memterm.Options{Programs: fakeconn.Programs()})
				x, err := m.Start(t.Context(), terminal.Command{Line: test.line})
				if err != nil {
					t.Fatal(err)
				}
				info, err := terminal.Wait(t.Context(), x)
				if err != nil {
					t.Fatal(err)
				}
				out, err := x.ReadOutput(t.Context(), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				if test.output != "" && out.Text != test.output || info.Exit.String() != test.exit {
					t.Errorf("printed %q, %v; want %q, %v", out.Text, info.Exit, test.output, test.exit)
				}
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Whatever an agent or a client puts on a line, the wire carries it and the
// audit survives it.
func FuzzLines(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","_meta":{"terminal_info":{"terminal_id":"x"}}}}}`)
	f.Add(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c","content":[{"type":"terminal","terminalId":"x"}],"_meta":{"terminal_output":3}}}}`)
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"terminal/release","params":{"sessionId":"s","terminalId":null}}`)
	f.Add(`{"id":{},"result":null}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, lines string) {
		fakeconn.Judge(lines, fakeconn.Fault{Method: "terminal/kill"})
		fakeconn.Judge(lines, fakeconn.Fault{Twice: true, Edit: fakeconn.Set("result.terminalId", "y")})
		fakeconn.Judge(lines, fakeconn.Fault{Error: &acp.RequestError{Code: -1}})
		fakeconn.Judge(lines, fakeconn.Fault{Reply: true, N: 1, Edit: fakeconn.Cut})
	})
}

// The agent of a Client without one, and the client, know what they have.
func TestTheIdleAgent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx := t.Context()
		c := fakeconn.New(nil)
		var ids []acp.SessionId
		for range 2 {
			id, err := c.NewSession(ctx, "/work")
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
			if resp, err := c.Prompt(ctx, id, "hello"); err != nil || resp.StopReason != acp.StopReasonEndTurn {
				t.Errorf("Prompt returned %v, %v", resp, err)
			}
			if err := c.Cancel(ctx, id); err != nil {
				t.Error(err)
			}
			if err := c.CloseSession(ctx, id); err != nil {
				t.Error(err)
			}
		}
		if ids[0] == ids[1] {
			t.Errorf("two sessions are %s", ids[0])
		}
		if n := c.Count("initialize"); n != 1 {
			t.Errorf("initialize was sent %d times", n)
		}
		var errs []error
		unknown := func(_ any, err error) { errs = append(errs, err) }
		unknown(c.Peer().Authenticate(ctx, acp.AuthenticateRequest{MethodId: "m"}))
		unknown(c.Peer().ListSessions(ctx, acp.ListSessionsRequest{}))
		unknown(c.Peer().LoadSession(ctx, acp.LoadSessionRequest{SessionId: "s", Cwd: "/", McpServers: []acp.McpServer{}}))
		unknown(c.Peer().ResumeSession(ctx, acp.ResumeSessionRequest{SessionId: "s", Cwd: "/"}))
		unknown(c.Peer().SetSessionMode(ctx, acp.SetSessionModeRequest{SessionId: "s", ModeId: "m"}))
		unknown(c.Peer().CallExtension(ctx, "_x", nil))
		unknown(c.Conn().ReadTextFile(ctx, acp.ReadTextFileRequest{SessionId: "s", Path: "/x"}))
		unknown(c.Conn().WriteTextFile(ctx, acp.WriteTextFileRequest{SessionId: "s", Path: "/x", Content: "x"}))
		for i, err := range errs {
			if re, ok := errors.AsType[*acp.RequestError](err); !ok || re.Code != -32601 {
				t.Errorf("request %d returned %v, want method not found", i, err)
			}
		}
		if got := c.Card("nope"); got.ID != "" {
			t.Errorf("a card that was never announced is %+v", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.NewSession(ctx, "/work"); err == nil {
			t.Error("a closed Client opened a session")
		}
	})
}

// A full agent may have more methods than the SDK asks for.
type loader struct{ agent }

func (*loader) LoadSession(context.Context, acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	return acp.LoadSessionResponse{}, nil
}

func (*loader) HandleExtensionMethod(_ context.Context, method string, _ json.RawMessage) (any, error) {
	return method, nil
}

func TestOptionalMethodsOfTheAgent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := fakeconn.New(&fakeconn.Options{Agent: func(*acp.AgentSideConnection) acp.Agent { return &loader{} }})
		if _, err := c.Peer().LoadSession(t.Context(), acp.LoadSessionRequest{SessionId: "s", Cwd: "/", McpServers: []acp.McpServer{}}); err != nil {
			t.Error(err)
		}
		if got, err := c.Peer().CallExtension(t.Context(), "_x", nil); err != nil || string(got) != `"_x"` {
			t.Errorf("the extension method returned %s, %v", got, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
