//go:build linux

package agent_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/fakeconn"
)

func TestNamesAndGroups(t *testing.T) {
	// A name is as good as an id, and a wait for a state takes a command or a group.
	editor := fakeconn.New(&fakeconn.Options{NoTerminal: true, Serve: func(in io.Reader, out io.Writer) {
		if err := agent.Serve(context.Background(), in, out, nil); err != nil {
			t.Error(err)
		}
	}})
	id, err := editor.NewSession(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	prompt := func(line string, report any) (said string) {
		t.Helper()
		before := len(editor.Messages(id))
		if _, err := editor.Prompt(t.Context(), id, line); err != nil {
			t.Fatal(err)
		}
		cards := editor.Cards()
		raw, err := json.Marshal(cards[len(cards)-1].RawOutput)
		if err == nil {
			err = json.Unmarshal(raw, report)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return editor.Messages(id)[before:]
	}
	var r agent.Report
	var w agent.WaitReport
	var jobs agent.JobsReport

	prompt("bg --name slow --group dev -- sleep 1000", &r)
	prompt("bg --name ask --group dev --input -- read -p 'your name: ' name", &r)
	asks := r.ID
	said := prompt("wait --group dev --state blocked --timeout 30s", &w)
	if w.ID != asks || w.State != control.Blocked || w.Evidence == "" || !strings.Contains(said, "`ask` of `dev` is blocked") {
		t.Errorf("%+v, %q", w, said)
	}
	prompt("wait slow --state working --timeout 30s", &w)
	prompt("jobs", &jobs)
	if len(jobs.Jobs) != 2 || jobs.Jobs[0].Name != "slow" || jobs.Jobs[1].Group != "dev" {
		t.Errorf("%+v", jobs)
	}
	prompt(`input ask me\n`, &r)
	if prompt("wait ask --timeout 30s", &r); r.ID != asks || r.ExitCode == nil {
		t.Errorf("%+v", r)
	}
	// The first of the group that is there.
	if prompt("wait --group dev --state done", &r); r.ID != asks {
		t.Errorf("%+v", r)
	}
	for line, want := range map[string]string{
		"wait ask --state blocked":              "has exited",
		"wait slow --state idle --timeout 10ms": "timed out",
		"wait --group none --state done":        `no such group`,
		"wait slow --group dev":                 "an ID or for a --group",
		"wait slow --state busy":                "idle, working, blocked",
		`bg --name "" -- true`:                  "is no name",
		"output nobody":                         `no command "nobody"`,
	} {
		if prompt(line, &r); !strings.Contains(r.Error, want) {
			t.Errorf("%s: %q, want %q in it", line, r.Error, want)
		}
	}
	if prompt("kill slow", &r); !r.Outcome.Ended() {
		t.Errorf("%+v", r)
	}
	if err := editor.Close(); err != nil {
		t.Error(err)
	}
}
