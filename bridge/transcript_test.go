package bridge_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

var update = flag.Bool("update", false, "update the transcripts in ../testdata")

// slowKill makes a kill arrive after the terminal/output that is sent with it:
// which of them the client would handle first is chance.
var slowKill = []fakeconn.Fault{{Method: acp.ClientMethodTerminalKill, Delay: 5 * time.Millisecond}}

// transcripts are the main paths as they are on the wire. What happens in them
// happens one after the other, so that they are the same each time.
var transcripts = []struct {
	name, comment string
	kind          kind
	faults        []fakeconn.Fault
	play          func(w *world)
}{
	{"foreground", "A command in the client's terminal, and the turn's answer.", client, nil, func(w *world) {
		runs(w, "1", line("after 103ms lines 3 400ms")) // 3 ms, so that no request comes as it ends
	}},
	{"timeout", "A command over its time: killed, its output kept, its terminal released.", client, slowKill, func(w *world) {
		runs(w, "1", terminal.Command{Line: "ignore-term here", Timeout: time.Second})
	}},
	{"background", "A command that outlives its turn, and is killed in another.", client, slowKill, func(w *world) {
		var id string
		asks(w, "start", acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			term, err := call.StartBackground(ctx, line("lines 100 1s"))
			if err == nil {
				id = term.Info().ID
			}
			call.End("it runs as "+id, err)
			return done, nil
		})
		time.Sleep(5 * time.Second)
		asks(w, "kill", acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("2"))
			info, err := w.s.Stop(id)
			call.End(string(info.Outcome), err)
			return done, nil
		})
	}},
	{"cancel", "A turn that is cancelled: everything of it has ended before the answer.", client, slowKill, func(w *world) {
		timer := time.AfterFunc(2300*time.Millisecond, w.cancel)
		defer timer.Stop()
		asks(w, "run", acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			_, err := call.Exec(ctx, line("lines 100 1s"))
			call.End("", err)
			return done, nil
		})
	}},
	{"display", "A client that shows the terminals of agents, and has none.", display, nil, func(w *world) {
		runs(w, "1", line("after 100ms lines 3 400ms"))
	}},
	{"text", "A client that knows nothing of terminals.", text, nil, func(w *world) {
		runs(w, "1", line("after 100ms lines 3 400ms"))
	}},
	{"denied", "The user refuses the command: it runs nowhere else.", client,
		[]fakeconn.Fault{{Method: acp.ClientMethodTerminalCreate, Error: &acp.RequestError{Code: -32603, Message: "the user said no"}}},
		func(w *world) { runs(w, "1", line("echo no")) }},
	{"method-not-found", "A client that has promised terminals, and has none: the command runs locally, and so do all later ones.", client,
		[]fakeconn.Fault{{Method: acp.ClientMethodTerminalCreate, Error: acp.NewMethodNotFound(acp.ClientMethodTerminalCreate)}},
		func(w *world) {
			runs(w, "1", line("after 100ms lines 1 50ms"))
			runs(w, "2", line("after 100ms lines 2 50ms"))
		}},
}

// asks sends a prompt that is f.
func asks(w *world, text string, want acp.StopReason, f turn) {
	w.mu.Lock()
	w.turns[text] = f
	w.mu.Unlock()
	resp, err := w.c.Prompt(context.Background(), w.id, text)
	if err != nil || resp.StopReason != want {
		w.Errorf("the prompt is answered %q, %v; want %q", resp.StopReason, err, want)
	}
}

// runs sends a prompt that runs a command.
func runs(w *world, id acp.ToolCallId, cmd terminal.Command) {
	asks(w, cmd.String(), acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		call := t.ToolCall(card(id))
		_, err := call.Exec(ctx, cmd)
		call.End("", err)
		return done, nil
	})
}

func TestTranscripts(t *testing.T) {
	t.Parallel()
	for _, test := range transcripts {
		t.Run(test.name, func(t *testing.T) {
			test.kind.client.Latency = 10 * time.Millisecond
			in(t, test.kind, nil, func(w *world) {
				for _, f := range test.faults {
					w.c.Inject(f)
				}
				test.play(w)
				if err := w.c.CloseSession(context.Background(), w.id); err != nil {
					t.Error(err)
				}
				got := w.c.Record(test.comment)
				file := filepath.Join("..", "testdata", test.name+".txtar")
				if *update {
					if err := os.WriteFile(file, got, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("the wire is not as in %s; -update makes it so (-want +got):\n%s", file, cmp.Diff(string(want), string(got)))
				}
			})
		})
	}
}
