package acpwire_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpwire"
)

// An agent whose prompts are instructions: "wait 2s" ends after two seconds, or
// when it is cancelled; "ignore 2s" ignores a cancel.
type agent struct {
	acp.Agent
	conn     *acp.AgentSideConnection
	onCancel func(acp.SessionId) // called before Cancel marks the open prompts

	mu sync.Mutex
	// guards following
	open    map[*bool]acp.SessionId // of each prompt whether Cancel has marked it
	began   []string                // the prompts that the agent has seen
	cancels int
	init    []acp.InitializeRequest
	prompts []acp.PromptRequest
}

func (a *agent) SetAgentConnection(conn *acp.AgentSideConnection) { a.conn = conn }

func (a *agent) Initialize(_ context.Context, req acp.InitializeRequest) (acp.InitializeResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.init = append(a.init, req)
	return acp.InitializeResponse{ProtocolVersion: 1, AuthMethods: []acp.AuthMethod{}}, nil
}

func (a *agent) Prompt(ctx context.Context, req acp.PromptRequest) (acp.PromptResponse, error) {
	text := req.Prompt[0].Text.Text
	marked := new(bool)
	a.mu.Lock()
	a.open[marked] = req.SessionId
	a.began = append(a.began, text)
	a.prompts = append(a.prompts, req)
	a.mu.Unlock()
	verb, rest, _ := strings.Cut(text, " ")
	if verb == "panic" {
		panic("in a prompt")
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return acp.PromptResponse{}, err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	done := ctx.Done()
	if verb == "ignore" {
		done = nil
	}
	select {
	case <-timer.C:
	case <-done:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, marked)
	if ctx.Err() != nil || *marked {
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
	}
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
}

// Cancel does what bridge.State.Cancel does: it cancels what is open now.
func (a *agent) Cancel(_ context.Context, n acp.CancelNotification) error {
	if a.onCancel != nil {
		a.onCancel(n.SessionId)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancels++
	for marked, session := range a.open {
		if session == n.SessionId {
			*marked = true
		}
	}
	return nil
}

func (a *agent) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.began)
}

func (a *agent) cancelled() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cancels
}

// forget lets go what is kept of the prompts so far, whose contexts have ended.
func (a *agent) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began, a.prompts = nil, nil
}

// A wire is a raw client of an agent.
type wire struct {
	*testing.T
	agent *agent
	conn  *acp.AgentSideConnection
	in    *io.PipeWriter
	lines chan string // what the agent sends; closed at its end
}

func connect(t *testing.T, o *acpwire.Options) *wire {
	w := &wire{T: t, agent: &agent{open: map[*bool]acp.SessionId{}}, lines: make(chan string, 1<<16)}
	in, to := io.Pipe()
	from, out := io.Pipe()
	w.in = to
	go func() {
		defer close(w.lines)
		r := bufio.NewReader(from)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			w.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	w.conn = acpwire.Connect(w.agent, in, out, o)
	t.Cleanup(func() {
		to.Close()
		<-w.conn.Done()
		out.Close()
	})
	return w
}

// send sends lines in one write.
func (w *wire) send(lines ...string) {
	w.Helper()
	if _, err := io.WriteString(w.in, strings.Join(lines, "\n")+"\n"); err != nil {
		w.Fatal(err)
	}
}

// line returns the next line of the agent.
func (w *wire) line() string {
	w.Helper()
	select {
	case line, ok := <-w.lines:
		if !ok {
			w.Fatal("the agent has closed the connection")
		}
		return line
	case <-time.After(time.Minute):
		w.Fatal("the agent sends nothing")
	}
	return ""
}

// answers returns the stop reasons of the next n answers, or their error codes,
// by id.
func (w *wire) answers(n int) map[string]string {
	w.Helper()
	got := map[string]string{}
	for range n {
		var m struct {
			ID     json.RawMessage
			Result struct{ StopReason string }
			Error  *acp.RequestError
		}
		line := w.line()
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			w.Fatalf("%v: %s", err, line)
		}
		switch {
		case got[string(m.ID)] != "":
			w.Errorf("two answers to %s", m.ID)
		case m.Error != nil:
			got[string(m.ID)] = fmt.Sprint(m.Error.Code)
		default:
			got[string(m.ID)] = m.Result.StopReason
		}
	}
	return got
}

// quiet expects that the agent sends nothing more.
func (w *wire) quiet() {
	w.Helper()
	select {
	case line := <-w.lines:
		w.Errorf("the agent sends %s", line)
	case <-time.After(time.Second):
	}
}

func prompt(id, session, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session/prompt","params":{"sessionId":"%s","prompt":[{"type":"text","text":"%s"}]}}`, id, session, text)
}

func cancel(session string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"%s"}}`, session)
}

func logger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// locked is a buffer for a log.
type locked struct {
	mu sync.Mutex
	// guards following
	buf strings.Builder
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func options(log io.Writer) *acpwire.Options { return &acpwire.Options{Logger: logger(log)} }
