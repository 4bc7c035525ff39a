package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/control/ctl"
)

// runtimeDir returns a directory for sockets, whose path is short.
func runtimeDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// ctlIn runs acp-demo-agent ctl as a user of this runtime directory does.
func ctlIn(t *testing.T, runtime string, args ...string) (out string, status int) {
	t.Helper()
	cmd := exec.Command("acp-demo-agent", append([]string{"ctl"}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtime, control.EnvSocket+"=")
	b, _ := cmd.CombinedOutput()
	return string(b), cmd.ProcessState.ExitCode()
}

func TestControl(t *testing.T) {
	// Another process of the user sees and drives what runs, wherever it runs; what it
	// starts is shown; and what runs finds itself.
	for name, delegated := range map[string]bool{"in the agent": false, "in the client": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runtime := runtimeDir(t)
			r := start(t, rigOptions{
				args: []string{"--control", "auto"}, env: map[string]string{"XDG_RUNTIME_DIR": runtime}, terminal: delegated,
			})
			must := func(args ...string) string {
				t.Helper()
				out, status := ctlIn(t, runtime, args...)
				if status != ctl.ExitOK {
					t.Fatalf("%q: status %d, %s", args, status, out)
				}
				return out
			}
			id := r.ask("bg --name web --group dev -- echo begun; exec sleep 1000").ID
			var all []control.SessionInfo
			if err := json.Unmarshal([]byte(must("list", "--group", "dev", "--json")), &all); err != nil || len(all) != 1 {
				t.Fatalf("%v, %v", all, err)
			}
			want := map[bool]string{false: control.TransportLocal, true: control.TransportClient}[delegated]
			if s := all[0]; s.ID != id || s.Name != "web" || s.Transport != want || s.Status != control.Running {
				t.Errorf("%+v", s)
			}
			for deadline := time.Now().Add(30 * time.Second); !strings.Contains(must("read", "web"), "begun"); time.Sleep(50 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("its output does not come")
				}
			}
			if _, status := ctlIn(t, runtime, "send", "web", "x"); status != ctl.ExitReadOnly {
				t.Errorf("typing into a command without input: status %d", status)
			}

			// What runs finds itself by its environment.
			said := r.ask(`!echo "$TERMBRIDGE_SOCKET"; acp-demo-agent ctl rename "$TERMBRIDGE_TERMINAL" myself && acp-demo-agent ctl list --json`)
			if !strings.Contains(said.Output, runtime) || !strings.Contains(said.Output, `"name": "myself"`) {
				t.Errorf("a command does not find itself: %+v", said)
			}

			// What others start is shown in the session's chat, and drawn where it runs.
			cards := len(r.host.Cards(r.id))
			must("new", "--name", "side", "--cwd", r.dir, "--", "echo from the outside")
			must("wait", "side", "--state", "idle")
			if shown := r.host.Cards(r.id); len(shown) <= cards || !strings.Contains(shown[len(shown)-1].Title, "from the outside") {
				t.Errorf("%d cards before, now %+v", cards, shown)
			}
			must("kill", "web", "side")
			if report := r.ask("wait web --timeout 30s"); !report.Outcome.Ended() {
				t.Errorf("%+v", report)
			}

			r.stdin.Close()
			wantCode(t, r.exits(), exitOK, r.stderr)
			if left, err := filepath.Glob(runtime + "/termbridge/*"); err != nil || len(left) > 0 {
				t.Errorf("left: %q, %v", left, err)
			}
			if out, status := ctlIn(t, runtime, "list"); status != ctl.ExitNoAgent || !strings.Contains(out, "--control auto") {
				t.Errorf("without an agent: status %d, %s", status, out)
			}
		})
	}
}

func TestNoControl(t *testing.T) {
	// Nobody looks in unless the user has said so, and a path that cannot be served
	// stops no agent.
	t.Parallel()
	runtime := runtimeDir(t)
	for _, args := range [][]string{nil, {"--control", filepath.Join(runtime, strings.Repeat("x", 150))}} {
		r := start(t, rigOptions{args: args, env: map[string]string{"XDG_RUNTIME_DIR": runtime}})
		if got := r.ask(`!echo "[$TERMBRIDGE_SOCKET$TERMBRIDGE_TERMINAL]"`).Output; got != "[]\n" {
			t.Errorf("%q: %q", args, got)
		}
		if left, err := filepath.Glob(runtime + "/*"); err != nil || len(left) > 0 {
			t.Errorf("there is %q, %v", left, err)
		}
		if args != nil && !strings.Contains(r.stderr.String(), "control is not served") {
			t.Errorf("stderr: %s", r.stderr)
		}
		r.stdin.Close()
		wantCode(t, r.exits(), exitOK, r.stderr)
	}
}
