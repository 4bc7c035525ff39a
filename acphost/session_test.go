package acphost_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// refused checks that nothing is done for a session: no command runs, no update is
// kept.
func (h host) refused(id acp.SessionId) {
	h.t.Helper()
	starts := h.mem.Starts("true")
	_, err := h.CreateTerminal(h.t.Context(), acp.CreateTerminalRequest{SessionId: id, Command: "true"})
	if code(err) != -32602 || !strings.Contains(err.Error(), string(id)) {
		h.t.Errorf("create for the session %q returned %v", id, err)
	}
	if h.mem.Starts("true") > starts {
		h.t.Errorf("a command of the session %q has run", id)
	}
	n := notification(acp.StartToolCall("late", "title"))
	n.SessionId = id
	if err := h.SessionUpdate(h.t.Context(), n); err == nil {
		h.t.Errorf("an update of the session %q was taken", id)
	}
	if cards := h.Cards(id); len(cards) > 0 || strings.Contains(strings.Join(names(h), " "), string(id)) {
		h.t.Errorf("the session %q is known: %v, with %d cards", id, h.Sessions(), len(cards))
	}
}

func names(h host) (all []string) {
	for _, id := range h.Sessions() {
		all = append(all, string(id))
	}
	return all
}

func (h host) served(id acp.SessionId) {
	h.t.Helper()
	if _, err := h.CreateTerminal(h.t.Context(), acp.CreateTerminalRequest{SessionId: id, Command: "true"}); err != nil {
		h.t.Errorf("create for the session %q returned %v", id, err)
	}
}

// A closed session runs nothing and comes to life by no update, until it is
// opened again.
func TestAClosedSessionRunsNothing(t *testing.T) {
	run(t, nil, func(t *testing.T, h host) {
		h.served("s")
		if err := h.CloseSession("s"); err != nil {
			t.Error(err)
		}
		h.refused("s")
		h.served("other")
		if err := h.CloseSession("never seen"); err != nil {
			t.Error(err)
		}
		h.refused("never seen")
		h.OpenSession("s")
		h.served("s")
		if err := h.CloseSession("s"); err != nil {
			t.Error(err)
		}
		h.refused("s")
	})
}

// A Host that knows which sessions there are serves no other.
func TestASessionThatNobodyMadeRunsNothing(t *testing.T) {
	run(t, nil, func(t *testing.T, h host) {
		h.OpenSession("s")
		h.served("s")
		h.refused("nobody's")
		h.OpenSession("loaded")
		h.served("loaded")
		h.served("s")
	})
}

// A Manager that is nil is none.
func TestASessionWithoutAManager(t *testing.T) {
	mem := memterm.New(nil)
	defer mem.Close()
	calls := 0
	h := host{acphost.New(func(id acp.SessionId) terminal.Manager {
		if calls++; id == "s" {
			return mem
		}
		return nil
	}, nil), mem, t}
	defer h.Close()
	h.served("s")
	h.served("s")
	for range 2 {
		_, err := h.CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "other", Command: "true"})
		if code(err) != -32602 || !strings.Contains(err.Error(), "other") {
			t.Errorf("create returned %v", err)
		}
	}
	if calls != 2 {
		t.Errorf("the Manager was asked for %d times, want once for each session", calls)
	}
}

// Reader knows the sessions that the agent makes, before any of their requests.
func TestReaderOpensSessions(t *testing.T) {
	mem := memterm.New(nil)
	defer mem.Close()
	h := acphost.New(func(acp.SessionId) terminal.Manager { return mem }, nil)
	defer h.Close()
	fromAgent, toClient := io.Pipe()
	fromClient, toAgent := io.Pipe()
	client := acp.NewClientSideConnection(editor{h}, toAgent, h.Reader(fromAgent))
	maker := &sessions{}
	maker.conn = acp.NewAgentSideConnection(maker, toClient, fromClient)
	for range 20 {
		s, err := client.NewSession(t.Context(), acp.NewSessionRequest{Cwd: "/", McpServers: []acp.McpServer{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := maker.create(s.SessionId); err != nil {
			t.Errorf("a session of the agent's: %v", err)
		}
	}
	if err := maker.create("nobody's"); code(err) != -32602 {
		t.Errorf("a session that nobody made: %v", err)
	}
	h.OpenSession("loaded")
	if err := maker.create("loaded"); err != nil {
		t.Errorf("a loaded session: %v", err)
	}
	toClient.Close()
	toAgent.Close()
}

// A sessions is an agent whose sessions run a command as soon as they are there.
type sessions struct {
	acp.Agent
	conn *acp.AgentSideConnection
	n    int
}

func (a *sessions) NewSession(context.Context, acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	a.n++
	return acp.NewSessionResponse{SessionId: acp.SessionId(fmt.Sprint("session-", a.n))}, nil
}

func (a *sessions) create(id acp.SessionId) error {
	_, err := a.conn.CreateTerminal(context.Background(), acp.CreateTerminalRequest{SessionId: id, Command: "true"})
	return err
}
