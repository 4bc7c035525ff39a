package acphost_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// host is a Host over a memterm, with a session "s".
type host struct {
	*acphost.Host
	mem *memterm.Manager
	t   *testing.T
}

// run runs f in a bubble with a Host, and closes both after it.
func run(t *testing.T, opts *acphost.Options, f func(t *testing.T, h host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mem := memterm.New(&memterm.Options{Programs: fakeconn.Programs()})
		h := host{acphost.New(func(acp.SessionId) terminal.Manager { return mem }, opts), mem, t}
		f(t, h)
		if err := h.Close(); err != nil {
			t.Errorf("close the host: %v", err)
		}
		if mem.Busy() {
			t.Error("a command still runs after Close")
		}
		if err := mem.Close(); err != nil {
			t.Errorf("close the manager: %v", err)
		}
	})
}

func (h host) create(words ...string) string {
	h.t.Helper()
	return h.createLimit(nil, words...)
}

func (h host) createLimit(limit *int, words ...string) string {
	h.t.Helper()
	resp, err := h.CreateTerminal(h.t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: words[0], Args: words[1:], OutputByteLimit: limit})
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.TerminalId
}

func (h host) output(id string) acp.TerminalOutputResponse {
	h.t.Helper()
	resp, err := h.TerminalOutput(h.t.Context(), acp.TerminalOutputRequest{SessionId: "s", TerminalId: id})
	if err != nil {
		h.t.Fatal(err)
	}
	return resp
}

func (h host) wait(id string) acp.WaitForTerminalExitResponse {
	h.t.Helper()
	resp, err := h.WaitForTerminalExit(h.t.Context(), acp.WaitForTerminalExitRequest{SessionId: "s", TerminalId: id})
	if err != nil {
		h.t.Fatal(err)
	}
	return resp
}

func (h host) release(id string) {
	h.t.Helper()
	if _, err := h.ReleaseTerminal(h.t.Context(), acp.ReleaseTerminalRequest{SessionId: "s", TerminalId: id}); err != nil {
		h.t.Fatal(err)
	}
}

// calls are the four requests that name a terminal.
var calls = map[string]func(h host, session acp.SessionId, id string) error{
	"output": func(h host, session acp.SessionId, id string) error {
		_, err := h.TerminalOutput(h.t.Context(), acp.TerminalOutputRequest{SessionId: session, TerminalId: id})
		return err
	},
	"wait_for_exit": func(h host, session acp.SessionId, id string) error {
		_, err := h.WaitForTerminalExit(h.t.Context(), acp.WaitForTerminalExitRequest{SessionId: session, TerminalId: id})
		return err
	},
	"kill": func(h host, session acp.SessionId, id string) error {
		_, err := h.KillTerminal(h.t.Context(), acp.KillTerminalRequest{SessionId: session, TerminalId: id})
		return err
	},
	"release": func(h host, session acp.SessionId, id string) error {
		_, err := h.ReleaseTerminal(h.t.Context(), acp.ReleaseTerminalRequest{SessionId: session, TerminalId: id})
		return err
	},
}

// code is the JSON-RPC code of an error, 0 without.
func code(err error) int {
	if re, ok := errors.AsType[*acp.RequestError](err); ok {
		return re.Code
	}
	return 0
}

func TestAnUnknownIdIsNotFound(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, h host) {
				id := h.create("sleep", "1h")
				if err := call(h, "s", "nope"); code(err) != -32002 || !strings.Contains(err.Error(), "nope") {
					t.Errorf("an unknown id: %v", err)
				}
				if err := call(h, "other", id); code(err) != -32002 {
					t.Errorf("the id of another session: %v", err)
				}
				h.release(id)
				if err := call(h, "s", id); code(err) != -32002 {
					t.Errorf("a released id: %v", err)
				}
			})
		})
	}
}

func TestOutputKeepsTheTailBetweenRunes(t *testing.T) {
	tests := []struct {
		name   string
		limit  *int
		words  []string
		want   string
		marked bool
	}{
		{"under the limit", new(10), []string{"print", "grün"}, "grün", false},
		{"exactly the limit", new(5), []string{"print", "grün"}, "grün", false},
		{"over the limit", new(4), []string{"print", "grün"}, "rün", true},
		{"a rune does not fit", new(2), []string{"print", "grün"}, "n", true},
		{"nothing is kept", new(0), []string{"print", "grün"}, "", true},
		{"nothing is kept of nothing", new(0), []string{"true"}, "", false},
		{"no limit", nil, []string{"print", "grün"}, "grün", false},
		{"bytes that are no UTF-8 grow", new(4), []string{"print", `a\xff\xfe`}, "\uFFFD", true},
		{"more than one read", new(100 << 10), []string{"spam", "90000"}, strings.Repeat("x", 90000), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, h host) {
				id := h.createLimit(test.limit, test.words...)
				h.wait(id)
				got := h.output(id)
				if test.words[0] == "spam" {
					got.Output = strings.ReplaceAll(got.Output, "\n", "x")
				}
				if got.Output != test.want || got.Truncated != test.marked {
					t.Errorf("output is %.20q (%d bytes), truncated %v, want %.20q (%d bytes), %v", got.Output, len(got.Output), got.Truncated, test.want, len(test.want), test.marked)
				}
			})
		})
	}
}

func TestTheHostsLimitIsTheMost(t *testing.T) {
	run(t, &acphost.Options{OutputLimit: 8}, func(t *testing.T, h host) {
		for _, limit := range []*int{nil, new(1 << 30)} {
			id := h.createLimit(limit, "echo", "0123456789")
			h.wait(id)
			if got := h.output(id); got.Output != "3456789\n" || !got.Truncated {
				t.Errorf("output is %q, truncated %v", got.Output, got.Truncated)
			}
		}
	})
}

func TestExitStatusIsThereOnceTheCommandHasExited(t *testing.T) {
	tests := []struct {
		words  []string
		code   *int
		signal *string
	}{
		{[]string{"after", "1s", "true"}, new(0), nil},
		{[]string{"after", "1s", "exit", "3"}, new(3), nil},
		{[]string{"after", "1s", "signal", "SIGSEGV"}, nil, new("SIGSEGV")},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.words, " "), func(t *testing.T) {
			run(t, nil, func(t *testing.T, h host) {
				id := h.create(test.words...)
				synctest.Wait()
				if got := h.output(id); got.ExitStatus != nil {
					t.Errorf("the command runs, and its exitStatus is %v", got.ExitStatus)
				}
				if diff := cmp.Diff(acp.WaitForTerminalExitResponse{ExitCode: test.code, Signal: test.signal}, h.wait(id)); diff != "" {
					t.Errorf("wait_for_exit (-want +got)\n%s", diff)
				}
				if diff := cmp.Diff(&acp.TerminalExitStatus{ExitCode: test.code, Signal: test.signal}, h.output(id).ExitStatus); diff != "" {
					t.Errorf("exitStatus (-want +got)\n%s", diff)
				}
			})
		})
	}
}

func TestKillKeepsTheTerminal(t *testing.T) {
	run(t, nil, func(t *testing.T, h host) {
		id := h.create("ignore-term", "before")
		start := time.Now()
		if err := calls["kill"](h, "s", id); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("a kill that is ignored was answered after %v, want 1s", took)
		}
		if got := h.output(id); got.Output != "before" || got.ExitStatus != nil {
			t.Errorf("output is %+v", got)
		}
		if got := h.wait(id); got.Signal == nil || *got.Signal != "SIGKILL" {
			t.Errorf("wait_for_exit is %+v", got)
		}
		if err := calls["kill"](h, "s", id); err != nil {
			t.Errorf("a second kill: %v", err)
		}
	})
}

func TestReleaseEndsTheCommandAndItsWaits(t *testing.T) {
	for _, words := range [][]string{{"sleep", "1h"}, {"ignore-term"}} {
		run(t, nil, func(t *testing.T, h host) {
			id := h.create(words...)
			waited := make(chan acp.WaitForTerminalExitResponse)
			go func() { waited <- h.wait(id) }()
			synctest.Wait()
			h.release(id)
			if got := <-waited; got.Signal == nil {
				t.Errorf("%v: the wait returned %+v, want a signal", words, got)
			}
			if h.mem.Busy() {
				t.Errorf("%v still runs", words)
			}
		})
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	run(t, nil, func(t *testing.T, h host) {
		id := h.create("sleep", "1h")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.WaitForTerminalExit(ctx, acp.WaitForTerminalExitRequest{SessionId: "s", TerminalId: id}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the wait returned %v", err)
		}
		if got := h.output(id); got.ExitStatus != nil {
			t.Error("the end of a wait ended the command")
		}
	})
}

func TestCreate(t *testing.T) {
	tests := []struct {
		name string
		req  acp.CreateTerminalRequest
		want string
	}{
		{"words arrive unchanged", acp.CreateTerminalRequest{Command: "echo", Args: []string{"a  b", "$HOME", "*", ""}}, "a  b $HOME * \n"},
		{"a shell runs the line", acp.CreateTerminalRequest{Command: "/bin/sh", Args: []string{"-c", ":;exec echo 'a  b'"}}, "a  b\n"},
		{"cwd", acp.CreateTerminalRequest{Command: "pwd", Cwd: new("/some/where")}, "/some/where\n"},
		{"env", acp.CreateTerminalRequest{Command: "env", Env: []acp.EnvVariable{{Name: "A", Value: "1"}, {Name: "B", Value: ""}}}, "A=1\nB=\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, h host) {
				test.req.SessionId = "s"
				resp, err := h.CreateTerminal(t.Context(), test.req)
				if err != nil {
					t.Fatal(err)
				}
				h.wait(resp.TerminalId)
				if got := h.output(resp.TerminalId).Output; got != test.want {
					t.Errorf("output is %q, want %q", got, test.want)
				}
			})
		})
	}
}

func TestCreateRefuses(t *testing.T) {
	tests := []struct {
		name string
		req  acp.CreateTerminalRequest
		code int
		text string
	}{
		{"a command that is not there", acp.CreateTerminalRequest{Command: "nope"}, -32603, "nope"},
		{"a line as a command", acp.CreateTerminalRequest{Command: "echo hello"}, -32603, "echo hello"},
		{"no command", acp.CreateTerminalRequest{}, -32602, "empty"},
		{"a relative directory", acp.CreateTerminalRequest{Command: "pwd", Cwd: new("src")}, -32602, "relative"},
		{"an empty directory", acp.CreateTerminalRequest{Command: "pwd", Cwd: new("")}, -32602, "absolute"},
		{"a negative limit", acp.CreateTerminalRequest{Command: "pwd", OutputByteLimit: new(-1)}, -32602, "negative"},
		{"a bad name in the environment", acp.CreateTerminalRequest{Command: "pwd", Env: []acp.EnvVariable{{Name: "A=B"}}}, -32602, "A=B"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, h host) {
				test.req.SessionId = "s"
				_, err := h.CreateTerminal(t.Context(), test.req)
				if code(err) != test.code || !strings.Contains(err.Error(), test.text) {
					t.Errorf("create returned %v, want %d and %q", err, test.code, test.text)
				}
				if ids := h.Unreleased("s"); len(ids) != 0 || h.mem.Busy() {
					t.Errorf("a refused create left %v", ids)
				}
			})
		})
	}
}

func TestCommandHook(t *testing.T) {
	denied := &acp.RequestError{Code: -32001, Message: "the user said no"}
	run(t, &acphost.Options{Command: func(req acp.CreateTerminalRequest) (terminal.Command, error) {
		if req.Command == "rm" {
			return terminal.Command{}, denied
		}
		return terminal.Command{Line: req.Command}, nil
	}}, func(t *testing.T, h host) {
		id := h.create("echo 'a  line'")
		h.wait(id)
		if got := h.output(id).Output; got != "a  line\n" {
			t.Errorf("output is %q", got)
		}
		if _, err := h.CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "rm"}); err != denied {
			t.Errorf("create returned %v", err)
		}
	})
}

func TestCallbacksThatPanic(t *testing.T) {
	// A panic of what the client's author gave costs one answer or one event, and Close
	// says so.
	mem := memterm.New(&memterm.Options{Programs: fakeconn.Programs()})
	defer mem.Close()
	broken := true
	var shown atomic.Int32
	h := acphost.New(func(id acp.SessionId) terminal.Manager {
		if id == "bad" {
			panic("no manager")
		}
		return mem
	}, &acphost.Options{
		Command: func(req acp.CreateTerminalRequest) (terminal.Command, error) {
			if broken {
				panic("no command")
			}
			return acphost.Command(req)
		},
		Show: func(acphost.Event) {
			if shown.Add(1) == 1 {
				panic("no screen")
			}
		},
	})
	create := func(session acp.SessionId) error {
		_, err := h.CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: session, Command: "echo", Args: []string{"x"}})
		return err
	}
	if err := create("s"); err == nil || !strings.Contains(err.Error(), "no command") {
		t.Errorf("Command panics: %v", err)
	}
	broken = false
	for range 2 {
		if err := create("bad"); err == nil || !strings.Contains(err.Error(), "no manager") {
			t.Errorf("the Manager panics: %v", err)
		}
	}
	if err := create("s"); err != nil {
		t.Errorf("behind the panics: %v", err)
	}
	for range 2 {
		if err := h.SessionUpdate(t.Context(), acp.SessionNotification{SessionId: "s", Update: acp.UpdateAgentMessageText("x")}); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(); err == nil || !strings.Contains(err.Error(), "no screen") || shown.Load() != 2 {
		t.Errorf("Close: %v; %d events", err, shown.Load())
	}
}

func TestCloseSession(t *testing.T) {
	run(t, nil, func(t *testing.T, h host) {
		h.create("sleep", "1h")
		stubborn := h.create("ignore-term")
		if got := h.Unreleased("s"); len(got) != 2 {
			t.Errorf("unreleased are %v", got)
		}
		if err := h.CloseSession("s"); err != nil {
			t.Error(err)
		}
		if h.mem.Busy() || len(h.Unreleased("s")) != 0 {
			t.Error("a command survived its session")
		}
		if err := calls["output"](h, "s", stubborn); code(err) != -32002 {
			t.Errorf("a terminal of a closed session: %v", err)
		}
	})
}

func TestACreateThatOverlapsACloseLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan struct{})
		mem := memterm.New(&memterm.Options{Starting: func(context.Context, terminal.Command) error {
			<-started
			return nil
		}})
		h := host{acphost.New(func(acp.SessionId) terminal.Manager { return mem }, nil), mem, t}
		failed := make(chan error)
		go func() {
			_, err := h.CreateTerminal(context.Background(), acp.CreateTerminalRequest{SessionId: "s", Command: "sleep", Args: []string{"1h"}})
			failed <- err
		}()
		synctest.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		close(started)
		if err := <-failed; err == nil {
			t.Error("a closed Host created a terminal")
		}
		if mem.Busy() {
			t.Error("the command runs")
		}
		if _, err := h.CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "true"}); err == nil {
			t.Error("a closed Host created another terminal")
		}
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseReportsWhatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		mem := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{
			"stuck": func(*memterm.Process) terminal.Exit { <-end; return memterm.Code(0) },
		}, Grace: time.Hour})
		var shown atomic.Int32
		h := host{acphost.New(func(acp.SessionId) terminal.Manager { return mem }, &acphost.Options{Show: func(acphost.Event) { shown.Add(1) }}), mem, t}
		id := h.create("stuck")
		h.SessionUpdate(t.Context(), notification(acp.StartToolCall("c", "stuck", acp.WithStartContent([]acp.ToolCallContent{acp.ToolTerminalRef(id)}))))
		start := time.Now()
		leak, ok := errors.AsType[*terminal.LeakError](h.Close())
		if !ok || len(leak.Leaks) != 1 || leak.Leaks[0].ID != id {
			t.Errorf("Close returned %v", leak)
		}
		if took := time.Since(start); took != limits.SettleTimeout {
			t.Errorf("Close took %v", took)
		}
		if shown.Load() != 1 {
			t.Errorf("%d events were shown, want the card", shown.Load())
		}
		close(end)
		mem.Close()
	})
}
