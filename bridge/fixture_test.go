package bridge_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// full is the length that .ci/run gives the tests that count or last.
var full = flag.Bool("full", false, "run the tests that count or last at full length")

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // tests that wait; the command line is parsed later
	os.Exit(m.Run())
}

// A world is a fake client, an agent whose prompts are functions, and the local
// side, all in fake time.
type world struct {
	*testing.T
	c     *fakeconn.Client
	b     *bridge.Bridge
	s     *bridge.State
	id    acp.SessionId
	local *memterm.Manager

	onCancel, onPrompt func() // called by the agent's methods before anything else

	mu sync.Mutex
	// guards following
	turns map[string]turn
}

type turn = func(context.Context, *bridge.Turn) (acp.PromptResponse, error)

var done = acp.PromptResponse{StopReason: acp.StopReasonEndTurn}

// A kind is a kind of client, by what it makes of commands.
type kind struct {
	presentation bridge.Presentation
	client       fakeconn.Options
}

var (
	client  = kind{bridge.PresentClient, fakeconn.Options{}}
	display = kind{bridge.PresentDisplay, fakeconn.Options{NoTerminal: true, Display: true}}
	text    = kind{bridge.PresentText, fakeconn.Options{NoTerminal: true}}
	kinds   = []kind{client, display, text}
)

// each runs f with every kind of client.
func each(t *testing.T, f func(w *world, k kind)) {
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			in(t, k, nil, func(w *world) { f(w, k) })
		})
	}
}

// in runs f in a world, in fake time, and audits it in the end.
func in(t *testing.T, k kind, o *bridge.Options, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, k, o)
		f(w)
		w.close()
	})
}

func open(t *testing.T, k kind, o *bridge.Options) *world {
	w := &world{T: t, turns: make(map[string]turn)}
	w.local = memterm.New(&memterm.Options{Programs: fakeconn.Programs()})
	var opts bridge.Options
	if o != nil {
		opts = *o
	}
	if opts.Host == nil {
		opts.Host = acpterm.NoHost // the client's processes are none
	}
	if opts.Local == nil {
		opts.Local = func(acp.SessionId) terminal.Manager { return w.local }
	}
	k.client.Agent = func(conn *acp.AgentSideConnection) acp.Agent {
		return &agent{w: w, conn: conn, opts: &opts}
	}
	w.c = fakeconn.New(&k.client)
	id, err := w.c.NewSession(t.Context(), "/work")
	if err != nil {
		t.Fatal(err)
	}
	w.id = id
	return w
}

// close ends the session and the connection, and expects that nothing was wrong.
func (w *world) close() {
	w.Helper()
	if err := w.s.Close(); err != nil {
		w.Errorf("the session: %v", err)
	}
	if err := w.local.Close(); err != nil {
		w.Errorf("the local side: %v", err)
	}
	if err := w.c.Close(); err != nil {
		w.Errorf("%v", err)
	}
	if w.Failed() {
		w.Logf("the wire:\n%s", w.c.Transcript())
	}
}

// starts is how often a program was started, wherever.
func (w *world) starts(name string) int { return w.c.Memterm().Starts(name) + w.local.Starts(name) }

var prompts atomic.Int64

// prompt sends a prompt that is f and returns its answer.
func (w *world) prompt(f turn) (acp.PromptResponse, error) {
	name := fmt.Sprintf("prompt %d", prompts.Add(1))
	w.mu.Lock()
	w.turns[name] = f
	w.mu.Unlock()
	return w.c.Prompt(context.Background(), w.id, name)
}

// must sends a prompt that is f and expects an answer.
func (w *world) must(want acp.StopReason, f turn) {
	w.Helper()
	resp, err := w.prompt(f)
	if err != nil || resp.StopReason != want {
		w.Errorf("the prompt is answered %q, %v; want %q", resp.StopReason, err, want)
	}
}

// run sends a prompt that runs one command in a tool call and ends it.
func (w *world) run(id acp.ToolCallId, cmd terminal.Command) (r *bridge.Result, end bridge.End, err error) {
	w.Helper()
	w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		call := t.ToolCall(card(id))
		r, err = call.Exec(ctx, cmd)
		end = call.End("", err)
		return done, nil
	})
	return r, end, err
}

// cancel sends session/cancel.
func (w *world) cancel() {
	w.Helper()
	if err := w.c.Cancel(context.Background(), w.id); err != nil {
		w.Errorf("cancel: %v", err)
	}
}

func card(id acp.ToolCallId) acp.SessionUpdateToolCall {
	return acp.SessionUpdateToolCall{ToolCallId: id, Title: "call " + string(id), Kind: acp.ToolKindExecute}
}

func line(s string) terminal.Command { return terminal.Command{Line: s} }

// updates returns the updates of a tool call that were sent, as generic JSON.
func (w *world) updates(id acp.ToolCallId) []map[string]any {
	w.Helper()
	var all []map[string]any
	for _, l := range w.c.Lines() {
		if l.Method != "session/update" {
			continue
		}
		var n struct {
			Params struct {
				Update map[string]any `json:"update"`
			} `json:"params"`
		}
		if err := json.Unmarshal([]byte(l.Raw), &n); err != nil {
			w.Fatal(err)
		}
		if n.Params.Update["toolCallId"] == string(id) {
			all = append(all, n.Params.Update)
		}
	}
	return all
}

func check[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func contains(t testing.TB, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s is %q, want one with %q", what, got, want)
	}
}

// atMost expects that something took no longer than want.
func atMost(t testing.TB, what string, got, want time.Duration) {
	t.Helper()
	if got > want {
		t.Errorf("%s took %v, want at most %v", what, got, want)
	}
}

// agent is an agent of a world.
type agent struct {
	acp.Agent
	w    *world
	conn *acp.AgentSideConnection
	opts *bridge.Options
}

func (a *agent) Initialize(_ context.Context, req acp.InitializeRequest) (acp.InitializeResponse, error) {
	a.w.b = bridge.New(a.conn, req, a.opts)
	return acp.InitializeResponse{ProtocolVersion: req.ProtocolVersion, AuthMethods: []acp.AuthMethod{}}, nil
}

func (a *agent) NewSession(_ context.Context, req acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	s, err := a.w.b.Session("s1", req.Cwd)
	a.w.s = s
	return acp.NewSessionResponse{SessionId: "s1"}, err
}

func (a *agent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	if a.w.onPrompt != nil {
		a.w.onPrompt()
	}
	a.w.mu.Lock()
	f := a.w.turns[req.Prompt[0].Text.Text]
	a.w.mu.Unlock()
	return a.w.s.Turn(ctx, f)
}

func (a *agent) Cancel(context.Context, acp.CancelNotification) error {
	if a.w.onCancel != nil {
		a.w.onCancel()
	}
	a.w.s.Cancel()
	return nil
}

func (a *agent) CloseSession(context.Context, acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	return acp.CloseSessionResponse{}, a.w.s.Close()
}

func (a *agent) Close() error { return a.w.b.Close() }

// synctestWorld is in for tests in which the client does what no client should:
// they look at what they expect to be left, and the audit does not.
func synctestWorld(t *testing.T, k kind, o *bridge.Options, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, k, o)
		f(w)
		w.local.Close()
		w.c.Close()
		if w.Failed() {
			w.Logf("the wire:\n%s", w.c.Transcript())
		}
	})
}

// inMemory is an Options.Local without processes, whose ids are t1, t2, ….
func inMemory(acp.SessionId) terminal.Manager {
	var n atomic.Int64
	return memterm.New(&memterm.Options{
		Programs: fakeconn.Programs(),
		NewID:    func() string { return fmt.Sprint("t", n.Add(1)) },
	})
}
