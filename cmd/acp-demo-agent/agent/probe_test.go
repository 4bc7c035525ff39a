package agent_test

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/fakeconn/emulate"
	"github.com/termbridge/termbridge/probe"
)

// probed runs f with a client that is like a known one, and a session of the served
// agent with it.
func probed(t *testing.T, name string, f func(t *testing.T, c *fakeconn.Client, id acp.SessionId)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o := emulate.Client(name, &fakeconn.Options{
			Allow: []fakeconn.Rule{fakeconn.RuleUnknown, fakeconn.RuleReleased, fakeconn.RuleRelease},
			Serve: func(in io.Reader, out io.Writer) {
				if err := agent.Serve(context.Background(), in, out, nil); err != nil {
					t.Errorf("Serve: %v", err)
				}
			},
		})
		c := fakeconn.New(o)
		id, err := c.NewSession(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		f(t, c, id)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func probeReport(t *testing.T, c *fakeconn.Client) (r agent.ProbeReport) {
	t.Helper()
	card := c.Cards()[0]
	data, err := json.Marshal(card.RawOutput)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		t.Errorf("%v: %s", err, data)
	}
	return r
}

// The table is in the chat, the findings are in rawOutput, and the profile in the file.
func TestProbe(t *testing.T) {
	for name, says := range map[string][]string{
		"zed-old":     {"| Command form | deviates | joined |", "| Truncated end | deviates | head |"},
		"obsidian":    {"| Command form | pass | quoted |", "| Truncated end | pass | tail |"},
		"acpx":        {"| Command form | pass | argv |", "| Output when the exit is reported | deviates | late |"},
		"go-sdk-stub": {"| A command is started | deviates | nothing runs |", "| Command form | unknown |"},
	} {
		t.Run(name, func(t *testing.T) {
			probed(t, name, func(t *testing.T, c *fakeconn.Client, id acp.SessionId) {
				resp, err := c.Prompt(t.Context(), id, "probe --save p.json")
				if err != nil || resp.StopReason != acp.StopReasonEndTurn {
					t.Fatalf("%v, %v", resp, err)
				}
				chat := c.Messages()
				for _, line := range says {
					if !strings.Contains(chat, line) || !strings.Contains(c.Cards()[0].Visible(), line) {
						t.Errorf("no %q in the chat:\n%s", line, chat)
					}
				}
				r := probeReport(t, c)
				if len(r.Findings) != len(probe.Names()) {
					t.Errorf("%d findings in rawOutput", len(r.Findings))
				}
				stub := r.Stopped != ""
				if _, err := acpterm.LoadProfiles(r.Saved); (err != nil) != stub || (r.Error != "") != stub {
					t.Errorf("saved %q (%s): %v", r.Saved, r.Error, err)
				}
				if !stub && filepath.Base(r.Saved) != "p.json" {
					t.Errorf("saved %q", r.Saved)
				}
				if _, err := c.Prompt(t.Context(), id, "!echo on"); err != nil || !strings.Contains(c.Messages(), "echo on") {
					t.Errorf("the next prompt: %v", err)
				}
			})
		})
	}
}

// A cancel ends a probe, and the prompt is answered cancelled.
func TestProbeCancelled(t *testing.T) {
	probed(t, "jupyter", func(t *testing.T, c *fakeconn.Client, id acp.SessionId) {
		answers := make(chan acp.StopReason, 1)
		go func() {
			resp, err := c.Prompt(t.Context(), id, "probe")
			if err != nil {
				t.Error(err)
			}
			answers <- resp.StopReason
		}()
		time.Sleep(2 * time.Second)
		start := time.Now()
		if err := c.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got := <-answers; got != acp.StopReasonCancelled || time.Since(start) > 5*time.Second {
			t.Errorf("%s after %v", got, time.Since(start))
		}
		if r := probeReport(t, c); r.Stopped == "" || r.Error == "" {
			t.Errorf("%+v", r)
		}
		live := 0
		for _, term := range c.Memterm().List() {
			if !term.Info().Outcome.Ended() {
				live++
			}
		}
		if live > 0 {
			t.Errorf("%d commands live on", live)
		}
	})
}

// Without the connection there is no probe, and what follows it must be known.
func TestProbeRefusals(t *testing.T) {
	with(t, kinds[0], nil, func(f *fixture) {
		for line, want := range map[string]string{
			"probe":        "started by Serve",
			"probe --save": "needs a value",
			"probe x":      "one thing too many",
			"probe -- x":   "run and bg only",
			"probe --x":    "no flag --x",
		} {
			if _, err := f.Prompt(f.Context(), f.id, line); err != nil {
				f.Fatal(err)
			}
			if !strings.Contains(f.Messages(), want) {
				f.Errorf("%s: %q is not in %s", line, want, f.Messages())
			}
		}
	})
}
