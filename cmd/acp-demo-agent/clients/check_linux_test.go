package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/probe"
)

// check-client examines clients from npm, for their CI: acpx, which has the agent's
// program in an option and sends a prompt, and the official SDK's, which has it in a
// JSON text, and sends none. The exit status says what came of it, and nothing is left.
func TestCheckClient(t *testing.T) {
	t.Parallel()
	sdk := func(habits string) []string {
		script, err := filepath.Abs("client.mjs")
		if err != nil {
			t.Fatal(err)
		}
		return []string{script, `{"agent":["{agent}"],"cwd":"/tmp","terminal":true` + habits + `}`}
	}
	expected := filepath.Join(t.TempDir(), "expected.json")
	data, err := json.Marshal(probe.Report{Findings: []probe.Finding{{Name: "exit-status", Verdict: probe.Deviates, Value: "never"}}})
	if err == nil {
		err = os.WriteFile(expected, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	const cuts, noExit = `,"cuts":true`, `,"noExit":true`
	// Node may hear of an exit before it has read the output.
	late := []string{"--allow", "output-at-exit"}
	for name, test := range map[string]struct {
		program string
		flags   []string
		client  []string // arguments of node; nil is the program /bin/true
		status  int
		says    []string
	}{
		"acpx":             {"termbridge", nil, append([]string{installed(t, "acpx/dist/cli.js")}, "--agent", "{agent}", "--cwd", "/tmp", "--format", "json", "--approve-all", "exec", "hello"), 0, []string{"| Command form | pass | argv |", "acpx 0."}},
		"sdk":              {"acp-demo-agent", nil, sdk(""), 0, []string{"termbridge-test 1.0.0", "| Truncated end | pass | tail |"}},
		"a deviation":      {"termbridge", nil, sdk(cuts), 1, []string{"characters deviates: cut; The Client MUST ensure", "limit deviates: exceeded"}},
		"allowed":          {"termbridge", []string{"--allow", "characters", "--allow", "limit"}, sdk(cuts), 0, []string{"| deviates | cut |"}},
		"expected":         {"acp-demo-agent", []string{"--expect", expected, "--json"}, sdk(noExit), 0, []string{`"name": "exit-status"`, `"value": "never"`}},
		"not expected":     {"termbridge", []string{"--expect", expected}, sdk(noExit + cuts), 1, []string{"characters deviates"}},
		"no agent":         {"termbridge", nil, nil, 3, []string{"the client did not start the agent", "exited with 0"}},
		"no session":       {"termbridge", []string{"--timeout", "3s"}, []string{"-e", "require('child_process').spawn(process.env.TERMBRIDGE_AGENT); console.log('my words'); setInterval(() => {}, 1e6)"}, 3, []string{"within 3s", "my words"}},
		"no such client":   {"termbridge", nil, []string{"/missing.js"}, 3, []string{"MODULE_NOT_FOUND"}},
		"a wrong flag":     {"termbridge", []string{"--allow", "nonsense"}, nil, 2, []string{"is none of terminal, display"}},
		"a file of nobody": {"termbridge", []string{"--expect", "/missing"}, nil, 2, []string{"no such file"}},
	} {
		if !*full && (test.status == 1 || test.flags != nil) && test.status < 2 && name != "a deviation" {
			continue // an examination takes ten seconds
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := kinds[0].rig(t)
			args := append([]string{"check-client"}, test.flags...)
			args = append(args, "--")
			if test.client == nil {
				args = append(args, "/bin/true")
			} else {
				args = append(append(args, installed(t, nodePath)), test.client...)
			}
			if test.status < 2 {
				args = slices.Insert(args, 1, late...)
			}
			var out bytes.Buffer
			p := r.local.Command(context.Background(), execenv.Spec{
				Path: filepath.Join(filepath.Dir(r.agent), test.program), Args: args, Dir: r.dir, Env: r.env,
				Stdout: &out, Stderr: &out, Group: true,
			})
			status := 0
			err := p.Run()
			if exit, ok := errors.AsType[*execenv.ExitError](err); ok && exit.Exit.Code != nil {
				status = *exit.Exit.Code
			} else if err != nil {
				t.Fatal(err)
			}
			check(t, "status", status, test.status)
			for _, words := range test.says {
				if !strings.Contains(out.String(), words) {
					t.Errorf("it does not say %q", words)
				}
			}
			if t.Failed() {
				t.Log(out.String())
			}
			r.nothingWith(r.mark)
			if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "termbridge-check-*")); t.Failed() && left != nil {
				t.Logf("there are %q", left)
			}
		})
	}
}
