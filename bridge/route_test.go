package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/fakeconn/emulate"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// terminalRequests counts the terminal/* requests that the client got.
func (w *world) terminalRequests() int {
	n := 0
	for _, l := range w.c.Lines() {
		if l.From == fakeconn.Agent && strings.HasPrefix(l.Method, "terminal/") {
			n++
		}
	}
	return n
}

// A client that did not advertise terminals is not asked for any, whatever the
// policy and the command say.
func TestNoCapabilityNoRequest(t *testing.T) {
	t.Parallel()
	for _, policy := range []bridge.Policy{bridge.Prefer, bridge.Require, bridge.Local} {
		for _, k := range []kind{display, text} {
			in(t, k, &bridge.Options{Policy: policy}, func(w *world) {
				_, _, err := w.run("1", line("echo x"))
				check(w, "it was run", err == nil, policy != bridge.Require)
				_, end, err := w.run("2", terminal.Command{Line: "echo x", Environment: bridge.EnvironmentClient})
				if err == nil {
					w.Error("a command for the client was run without one")
				} else {
					contains(w, "the error", err.Error(), "offers no terminals")
				}
				check(w, "the status", end.Status, acp.ToolCallStatusFailed)
				check(w, "requests", w.terminalRequests(), 0)
			})
		}
	}
}

// The policy and the command say where it runs.
func TestRouting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy bridge.Policy
		cmd    terminal.Command
		client bool
		err    error
	}{
		{bridge.Prefer, line("echo x"), true, nil},
		{bridge.Prefer, terminal.Command{Line: "echo x", Stdin: true}, false, nil},
		{bridge.Prefer, terminal.Command{Line: "echo x", Environment: "local"}, false, nil},
		{bridge.Require, line("echo x"), true, nil},
		{bridge.Require, terminal.Command{Line: "echo x", Stdin: true}, false, terminal.ErrNoInput},
		{bridge.Require, terminal.Command{Line: "echo x", Environment: "local"}, false, nil},
		{bridge.Local, line("echo x"), false, nil},
		{bridge.Local, terminal.Command{Line: "echo x", Environment: "client"}, true, nil},
		{bridge.Local, terminal.Command{Line: "echo x", Environment: "client", Stdin: true}, false, terminal.ErrNoInput},
		{bridge.Local, terminal.Command{Line: "echo x", Environment: "memory"}, false, nil},
	} {
		in(t, client, &bridge.Options{Policy: c.policy}, func(w *world) {
			_, _, err := w.run("1", c.cmd)
			if !errors.Is(err, c.err) {
				w.Errorf("%s, %+v: %v, want %v", c.policy, c.cmd, err, c.err)
			}
			want := 1
			if c.err != nil {
				want = 0
			}
			check(w, "starts", w.starts("echo"), want)
			check(w, "in the client", w.c.Memterm().Starts("echo"), map[bool]int{true: 1}[c.client])
		})
	}
}

// A client that refuses a create has refused the command: it runs nowhere, and
// its words are in the error.
func TestCreateDenied(t *testing.T) {
	t.Parallel()
	in(t, kind{client: fakeconn.Options{Display: true}}, nil, func(w *world) {
		denied := &acp.RequestError{Code: -32603, Message: "Permission denied for terminal/create"}
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, N: 1, Error: denied})
		_, end, err := w.run("1", line("echo x"))
		refusal, ok := errors.AsType[*acp.RequestError](err)
		if !ok || refusal.Message != denied.Message {
			w.Errorf("Exec: %v", err)
		}
		check(w, "the status", end.Status, acp.ToolCallStatusFailed)
		check(w, "starts", w.starts("echo"), 0)
		contains(w, "what the user sees", w.c.Card("1").Text, denied.Message)
		r, _, err := w.run("2", line("echo x"))
		if err != nil || r.Presentation != bridge.PresentClient {
			w.Errorf("the next command: %+v, %v", r, err)
		}
	})
}

// A client that does not know the method has not run the command, so it runs
// here, once, and is shown as text; the client is not asked again.
func TestCreateMethodNotFound(t *testing.T) {
	t.Parallel()
	in(t, kind{client: fakeconn.Options{Display: true}}, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Error: acp.NewMethodNotFound(acp.ClientMethodTerminalCreate)})
		for i, want := range []bridge.Presentation{bridge.PresentText, bridge.PresentDisplay} {
			id := acp.ToolCallId([]string{"1", "2"}[i])
			r, end, err := w.run(id, line("echo hello"))
			if err != nil {
				w.Fatal(err)
			}
			check(w, "the presentation", r.Presentation, want)
			check(w, "the status", end.Status, acp.ToolCallStatusCompleted)
			contains(w, "what the user sees", w.c.Card(id).Visible(), "hello")
			check(w, "starts", w.starts("echo"), i+1)
		}
		check(w, "requests", w.terminalRequests(), 1)
	})
	in(t, client, &bridge.Options{Policy: bridge.Require}, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Error: acp.NewMethodNotFound(acp.ClientMethodTerminalCreate)})
		if _, _, err := w.run("1", line("echo hello")); !errors.Is(err, errors.ErrUnsupported) {
			w.Errorf("required: %v", err)
		}
		check(w, "starts", w.starts("echo"), 0)
	})
}

// A reply that no honest client gives fails its command, and the next one runs
// here.
func TestBadReply(t *testing.T) {
	t.Parallel()
	for _, result := range []any{map[string]any{}, map[string]any{"terminalId": ""}, map[string]any{"terminalId": nil}} {
		in(t, client, nil, func(w *world) {
			w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Result: result})
			if _, _, err := w.run("1", line("echo x")); !errors.Is(err, acpterm.ErrBadReply) {
				w.Errorf("Exec: %v", err)
			}
			check(w, "starts", w.starts("echo"), 0)
			r, _, err := w.run("2", line("echo x"))
			if err != nil || r.Presentation != bridge.PresentText {
				w.Errorf("the next command: %+v, %v", r, err)
			}
		})
	}
}

// A stub, whose terminals run nothing, fails its command, and the next one runs
// here. How the command was run makes no difference.
func TestStub(t *testing.T) {
	t.Parallel()
	ways := map[string]func(w *world) error{
		"Exec": func(w *world) error {
			r, _, err := w.run("1", line("echo x"))
			check(w, "the outcome", r.Outcome, terminal.Unknown)
			return err
		},
		"StartBackground": func(w *world) (err error) {
			w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				call := t.ToolCall(card("1"))
				x, startErr := call.StartBackground(ctx, line("echo x"))
				call.End("", startErr)
				<-x.Done()
				err = x.Info().Err
				return done, nil
			})
			return err
		},
		"a Manager": func(w *world) error {
			x, err := w.s.Manager().Start(w.Context(), line("echo x"))
			if err != nil {
				return err
			}
			<-x.Done()
			return x.Info().Err
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			in(t, kind{client: *emulate.Client("go-sdk-stub", nil)}, nil, func(w *world) {
				if err := way(w); !errors.Is(err, acpterm.ErrStub) {
					w.Errorf("the first command: %v", err)
				}
				check(w, "starts", w.starts("echo"), 0)
				synctest.Wait()
				r, _, err := w.run("2", line("echo x"))
				if err != nil || r.Presentation != bridge.PresentText || r.Output != "x\n" {
					w.Errorf("the next command: %+v, %v", r, err)
				}
			})
		})
	}
}

// A client that fails in the middle of a command leaves what is known.
func TestOutputFails(t *testing.T) {
	t.Parallel()
	in(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalOutput, Error: &acp.RequestError{Code: -32603, Message: "no output"}})
		r, _, err := w.run("1", line("echo x"))
		if r == nil || err == nil {
			w.Errorf("Exec: %+v, %v: a failed read is no empty output", r, err)
		}
	})
}

// The agent's secrets do not reach local commands, and what a command is given
// does.
func TestSecretsStayHere(t *testing.T) {
	t.Setenv("TERMBRIDGE_TEST_API_KEY", "secret")
	t.Setenv("TERMBRIDGE_TEST_PLAIN", "plain")
	run := func(o *bridge.Options) string {
		c := fakeconn.New(&fakeconn.Options{NoTerminal: true})
		b := bridge.New(c.Conn(), c.Init(), o)
		id, err := c.NewSession(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.Session(id, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		var out string
		if _, err := s.Turn(t.Context(), func(ctx context.Context, t1 *bridge.Turn) (acp.PromptResponse, error) {
			call := t1.ToolCall(card("1"))
			r, err := call.Exec(ctx, terminal.Command{Line: "env; touch marker; pwd", Env: map[string]string{"GIVEN_TOKEN": "given"}, Timeout: time.Minute})
			if err != nil {
				t.Error(err)
			} else {
				out = r.Output
			}
			call.End("", err)
			return done, nil
		}); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%v\n%s", err, c.Transcript())
		}
		return out
	}
	out := run(nil)
	contains(t, "the environment", out, "TERMBRIDGE_TEST_PLAIN=plain\n")
	contains(t, "the environment", out, "GIVEN_TOKEN=given\n")
	if strings.Contains(out, "TERMBRIDGE_TEST_API_KEY") {
		t.Error("a secret reached the command")
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if _, err := os.Stat(filepath.Join(lines[len(lines)-1], "marker")); err != nil {
		t.Errorf("the command did not run in the session's directory: %v", err)
	}
	env := execenv.Env{}.Inherit()
	contains(t, "the environment that was asked for", run(&bridge.Options{Env: &env}), "TERMBRIDGE_TEST_API_KEY=secret\n")
}

// Ending the Call while the client has not answered create gives the command up:
// what comes late is killed and released.
func TestEndWhileCreateIsInFlight(t *testing.T) {
	t.Parallel()
	in(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Reply: true, Delay: 2 * time.Second})
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			time.AfterFunc(time.Second, func() {
				check(w, "the status", call.End("never mind", nil).Status, acp.ToolCallStatusFailed)
			})
			if r, err := call.Exec(ctx, line("sleep 1h")); r != nil || !errors.Is(err, terminal.ErrEnded) {
				w.Errorf("Exec: %v, %v", r, err)
			}
			return done, nil
		})
		time.Sleep(5 * time.Second)
		check(w, "live in the client", len(live(w.c.Memterm().List())), 0)
		check(w, "the text", w.c.Card("1").Text, "never mind")
	})
}

// A client that gives out one id again and again is served like any other, as
// long as only one terminal has it at a time.
func TestClientUsesAnIDAgain(t *testing.T) {
	t.Parallel()
	var ids atomic.Int64
	o := fakeconn.Options{Memterm: &memterm.Options{NewID: func() string { return fmt.Sprint("m", ids.Add(1)) }}}
	in(t, kind{client: o}, nil, func(w *world) {
		// Both sides of the wire agree on "term-1" for whatever is live.
		rename := func(raw string) string { return reID.ReplaceAllString(raw, `"terminalId":"term-1"`) }
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Reply: true, Edit: rename})
		back := func(raw string) string { return strings.ReplaceAll(raw, `"term-1"`, fmt.Sprintf(`"m%d"`, ids.Load())) }
		for _, m := range []string{acp.ClientMethodSessionUpdate, acp.ClientMethodTerminalOutput, acp.ClientMethodTerminalWaitForExit, acp.ClientMethodTerminalKill, acp.ClientMethodTerminalRelease} {
			w.c.Inject(fakeconn.Fault{Method: m, Edit: back})
		}
		// The answer to the release is overtaken by the next create.
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalRelease, Reply: true, Delay: time.Second})
		for i := range 20 {
			time.Sleep(100 * time.Millisecond)
			id := acp.ToolCallId(fmt.Sprint(i))
			r, end, err := w.run(id, line("echo hello"))
			if err != nil {
				w.Fatal(err)
			}
			check(w, "the terminal", r.TerminalID, "term-1")
			check(w, "the content was omitted", end.Content == nil, true)
			contains(w, "what the user sees", w.c.Card(id).Visible(), "hello")
		}
		check(w, "starts", w.starts("echo"), 20)
	})
}

var reID = regexp.MustCompile(`"terminalId":"m\d+"`)
