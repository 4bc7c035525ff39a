package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/control/ctl"
	"github.com/termbridge/termbridge/localterm"
)

// bound is how long anything may take here.
const bound = 30 * time.Second

// builtDir has the built program, for shells and tmux, once build was called.
var builtDir string

var build = sync.OnceValue(func() (err error) {
	if builtDir, err = os.MkdirTemp("", "termbridge"); err != nil {
		return err
	}
	if out, err := exec.Command("go", "build", "-o", builtDir, "../../cmd/termbridge").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	status := m.Run()
	if builtDir != "" {
		os.RemoveAll(builtDir)
	}
	os.Exit(status)
}

// A rig is an agent's control with a socket, which is in the environment.
type rig struct {
	*testing.T
	dir string // whose path is short, for sockets
}

func newRig(t *testing.T) *rig {
	t.Helper()
	// The paths of sockets are short.
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m := localterm.New(nil)
	c := control.New(m, &control.Options{Shell: "/bin/sh"})
	r, socket := &rig{t, dir}, filepath.Join(dir, "s")
	server, err := control.Listen(socket, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{server.Close(), c.Close(), m.Close()} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	t.Setenv(control.EnvSocket, socket)
	t.Setenv("NO_COLOR", "")
	return r
}

// run runs a command line, and returns what it printed and its status.
func run(t *testing.T, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, err bytes.Buffer
	p := ctl.Program{Name: "termbridge ctl", Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &err}
	status = p.Main(t.Context(), args)
	return out.String(), err.String(), status
}

// must runs a command line that succeeds.
func (r *rig) must(args ...string) string {
	r.Helper()
	out, stderr, status := run(r.T, "", args...)
	if status != ctl.ExitOK || stderr != "" {
		r.Fatalf("%q: status %d, %s", args, status, stderr)
	}
	return out
}

// fails runs a command line that fails with a status and says why.
func (r *rig) fails(status int, says string, args ...string) {
	r.Helper()
	out, stderr, got := run(r.T, "", args...)
	if got != status || out != "" || !strings.Contains(stderr, says) {
		r.Errorf("%q: status %d, want %d; %q; stderr %q, want %q in it", args, got, status, out, stderr, says)
	}
}

// until waits until what f returns contains want.
func until(t *testing.T, want string, f func() string) {
	t.Helper()
	var got string
	for deadline := time.Now().Add(bound); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = f(); strings.Contains(got, want) {
			return
		}
	}
	t.Fatalf("want %q, there is:\n%s", want, got)
}

func TestVerbs(t *testing.T) {
	// Every verb does what its help says, for people and for scripts.
	r := newRig(t)
	dir := t.TempDir()
	web := strings.TrimSpace(r.must("new", "--name", "web", "--group", "dev", "--cwd", dir, "--", "echo", "it", "runs"))
	repl := strings.TrimSpace(r.must("new", "--name", "repl", "--group", "dev"))
	r.must("wait", "web", "--state", "idle", "--timeout", "30s")
	r.must("wait", "--group", "dev", "--state", "idle")
	until(t, "it runs\n", func() string { return r.must("read", "web") })
	if got := r.must("read", "web", "--tail", "1"); strings.Count(got, "\n") != 1 {
		t.Errorf("the last line is %q", got)
	}

	table := r.must("list")
	for _, pattern := range []string{
		`(?m)^ID +NAME +GROUP +STATUS +STATE +CWD +COMMAND$`,
		`(?m)^` + web + ` +web +dev +running +idle +` + dir + ` +echo it runs$`,
		`(?m)^` + repl + ` +repl +dev +running +idle +`,
	} {
		if !regexp.MustCompile(pattern).MatchString(table) {
			t.Errorf("no %s in\n%s", pattern, table)
		}
	}

	// Send adds nothing: Enter is the caller's.
	r.must("send", "repl", "cat")
	r.must("send", repl, "\r")
	var waited control.SessionInfo
	if err := json.Unmarshal([]byte(r.must("wait", "repl", "--state", "blocked", "--json")), &waited); err != nil {
		t.Fatal(err)
	}
	if waited.ID != repl || waited.Name != "repl" || waited.Status != control.Running || waited.AgentState != control.Blocked || waited.Group != "dev" || waited.ExitCode != nil {
		t.Errorf("%+v is blocked", waited)
	}
	r.must("send", "repl", "--enter", "one", "two")
	until(t, "one two\none two\n", func() string { return r.must("read", "repl") })
	if _, stderr, status := run(t, "from a pipe\r", "send", "repl", "-"); status != ctl.ExitOK {
		t.Errorf("send -: %d, %s", status, stderr)
	}
	until(t, "from a pipe\nfrom a pipe\n", func() string { return r.must("read", "repl") })
	if _, stderr, status := run(t, "\x04", "send", "repl", "-"); status != ctl.ExitOK {
		t.Errorf("send -: %d, %s", status, stderr)
	}
	r.must("wait", "repl", "--state", "idle")

	r.must("rename", "repl", "shell")
	r.must("group", "shell")
	r.fails(ctl.ExitUnknown, "repl", "read", "repl")
	if got := r.must("list", "--group", "dev", "--json"); !strings.Contains(got, `"name": "web"`) || strings.Contains(got, "shell") {
		t.Errorf("the group: %s", got)
	}
	r.must("group", "shell", "dev")
	if got := r.must("group-send", "dev", "--enter", "echo", "all"); got != "2\n" {
		t.Errorf("group-send reached %q", got)
	}
	for _, id := range []string{web, repl} {
		until(t, "\nall\n", func() string { return r.must("read", id) })
	}

	r.must("kill", web)
	var all []control.SessionInfo
	if err := json.Unmarshal([]byte(r.must("list", "--json")), &all); err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	if s := all[0]; s.ID != web || s.Status != control.Exited || s.ExitCode == nil {
		t.Errorf("killed: %+v", s)
	}
	r.fails(ctl.ExitEnded, "exited", "send", web, "x")
	r.fails(ctl.ExitEnded, "", "wait", web, "--state", "idle")
	r.must("wait", web, "--state", "done")
	if got := r.must("group-kill", "dev"); !strings.HasSuffix(got, "\n") {
		t.Errorf("group-kill: %q", got)
	}
}

func TestMistakes(t *testing.T) {
	// Each kind of failure has a status of its own, and says what to do.
	r := newRig(t)
	id := strings.TrimSpace(r.must("new", "--", "sleep 100"))
	for _, c := range []struct {
		status int
		says   string
		args   []string
	}{
		{ctl.ExitUsage, `there is no "lst"`, []string{"lst"}},
		{ctl.ExitUsage, "TERMINAL is missing", []string{"read"}},
		{ctl.ExitUsage, `"more" is one word too many`, []string{"read", id, "more"}},
		{ctl.ExitUsage, "--tale", []string{"read", id, "--tale", "3"}},
		{ctl.ExitUsage, "--state is missing", []string{"wait", id}},
		{ctl.ExitUsage, "idle, working, blocked", []string{"wait", id, "--state", "busy"}},
		{ctl.ExitUsage, "90s or 5m", []string{"wait", id, "--state", "idle", "--timeout", "-3"}},
		{ctl.ExitUsage, "--write needs a terminal", []string{"attach", "-w", id}},
		{ctl.ExitUsage, "ctrl-a", []string{"attach", "--detach-key", "q", id}},
		{ctl.ExitUsage, "bash, zsh and fish", []string{"completion", "ksh"}},
		{ctl.ExitUnknown, "nothing", []string{"kill", "nothing"}},
		{ctl.ExitUnknown, "nobody", []string{"group-kill", "nobody"}},
		{ctl.ExitTimeout, "timed out", []string{"wait", id, "--state", "done", "--timeout", "1"}},
		{ctl.ExitNoAgent, "none.sock", []string{"list", "--socket", filepath.Join(t.TempDir(), "none.sock")}},
		{ctl.ExitNoAgent, "", []string{"list", "--socket", "/" + strings.Repeat("x", 150)}},
		{ctl.ExitRefused, "", []string{"new", "--cwd", "/does/not/exist"}},
	} {
		r.fails(c.status, c.says, c.args...)
	}
	t.Setenv(control.EnvSocket, "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	r.fails(ctl.ExitNoAgent, "--control auto", "list")
}

func TestHelp(t *testing.T) {
	// Every verb of the list says more about itself, with an example.
	out, _, status := run(t, "", "--help")
	if status != ctl.ExitOK {
		t.Fatalf("status %d", status)
	}
	verbs := regexp.MustCompile(`(?m)^  ([a-z-]+) .*`).FindAllStringSubmatch(out[:strings.Index(out, "\nTERMINAL")], -1)
	if len(verbs) != 12 {
		t.Errorf("%d verbs in\n%s", len(verbs), out)
	}
	for _, v := range verbs {
		help, stderr, status := run(t, "", v[1], "--help")
		if status != ctl.ExitOK || stderr != "" || !strings.Contains(help, "usage: termbridge ctl "+v[1]) || !strings.Contains(help, "Example:\n  ") {
			t.Errorf("%s: status %d, %s%s", v[1], status, help, stderr)
		}
	}
	if _, stderr, status := run(t, ""); status != ctl.ExitUsage || !strings.Contains(stderr, "VERB") {
		t.Errorf("without a verb: %d, %s", status, stderr)
	}
}

func TestNamesHideNothing(t *testing.T) {
	// What others have named does not write to the user's terminal, in a table or in
	// what a shell completes.
	r := newRig(t)
	r.must("new", "--name", "web", "--", ": a\u202eb")
	for _, shown := range []string{r.must("list"), r.must("__complete", "read", "w")} {
		if strings.Contains(shown, "\u202e") || !strings.Contains(shown, `: a\u202eb`) {
			t.Errorf("%q", shown)
		}
	}
}

func TestColors(t *testing.T) {
	// Colours are for terminals, or for whoever asks for them.
	r := newRig(t)
	r.must("new")
	for _, c := range []struct {
		name, value string
		want        bool
	}{{"CLICOLOR_FORCE", "1", true}, {"NO_COLOR", "1", false}, {"CLICOLOR_FORCE", "0", false}} {
		t.Setenv(c.name, c.value)
		if got := strings.Contains(r.must("list"), "\x1b["); got != c.want {
			t.Errorf("%s=%s: colours %v", c.name, c.value, got)
		}
	}
}

// program puts the built program into the PATH.
func (r *rig) program() {
	r.Helper()
	if err := build(); err != nil {
		r.Fatal(err)
	}
	r.Setenv("PATH", builtDir+":"+os.Getenv("PATH"))
}

// has skips a test that needs a program which is not there.
func has(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("TERMBRIDGE_REAL") != "" {
		t.Fatalf("%s is missing", program)
	}
	t.Skipf("%s is missing", program)
}

func TestCompletion(t *testing.T) {
	// The shells themselves complete verbs, terminals, groups, states and flags.
	r := newRig(t)
	r.program()
	r.must("new", "--name", "web server", "--group", "dev")
	r.must("new", "--name", "worker", "--group", "dev")
	shells := map[string]string{
		"bash": `eval "$(termbridge ctl completion bash)"
			COMP_WORDS=(termbridge ctl "$@"); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _termbridge_ctl; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh": `autoload -Uz compinit; compinit -u -d "$HOME/dump"; eval "$(termbridge ctl completion zsh)"
			compadd() { shift; print -lr -- "$@" }
			words=(termbridge ctl "$@"); CURRENT=$#words; _termbridge_ctl`,
		"fish": `termbridge ctl completion fish | source
			complete -C "termbridge ctl $argv" | string replace -r '\t.*' ''; true`,
	}
	for shell, script := range shells {
		t.Run(shell, func(t *testing.T) {
			has(t, shell)
			complete := func(words ...string) string {
				t.Helper()
				args := []string{"-c", script, shell}
				if shell == "fish" {
					args = []string{"-c", script}
				}
				cmd := exec.Command(shell, append(args, words...)...)
				cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%q: %v", words, err)
				}
				return string(out)
			}
			for _, c := range []struct {
				words []string
				want  string
			}{
				{[]string{"ren"}, "rename\n"},
				{[]string{"group-"}, "group-kill\ngroup-send\n"},
				{[]string{"read", "wor"}, "worker\n"},
				{[]string{"group-send", "d"}, "dev\n"},
				{[]string{"wait", "worker", "--state", "b"}, "blocked\n"},
				{[]string{"wait", "--ti"}, "--timeout\n"},
			} {
				got := strings.Split(strings.TrimSpace(complete(c.words...)), "\n")
				if shell == "fish" || strings.Contains(c.want, "group-") {
					slices.Sort(got)
				}
				if strings.Join(got, "\n")+"\n" != c.want {
					t.Errorf("%q: %q, want %q", c.words, got, c.want)
				}
			}
			if got := complete("read", "web"); !strings.Contains(strings.ReplaceAll(got, `\`, ""), "web server") {
				t.Errorf("a name with a space: %q", got)
			}
		})
	}
}

func TestWorkedExample(t *testing.T) {
	// The script of docs/control.md works as it stands there.
	has(t, "python3")
	doc, err := os.ReadFile("../../docs/control.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(doc), "\n```sh\n")
	script, _, ok := strings.Cut(script, "\n```\n")
	if !ok {
		t.Fatal("there is no script")
	}
	newRig(t).program()
	ctx, cancel := context.WithTimeout(t.Context(), 2*bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, want := range []string{`"agent_state": "blocked"`, `"name": "repl"`, "dev    running  idle", "\n3\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
