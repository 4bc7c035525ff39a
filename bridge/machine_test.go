package bridge_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"
	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/noinput"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// onMachine runs f with clients of every kind and real processes on both routes.
// run runs a command in a tool call of its own and returns what the user saw.
func onMachine(t *testing.T, o *bridge.Options, f func(t *testing.T, k kind, run func(terminal.Command) (*bridge.Result, acphost.Card))) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a POSIX shell")
	}
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			manager := localterm.New(nil)
			k.client.Manager = func(acp.SessionId) terminal.Manager { return manager }
			k.client.Host = &acphost.Options{TTY: true}
			c := fakeconn.New(&k.client)
			b := bridge.New(c.Conn(), c.Init(), o)
			dir := t.TempDir()
			id, err := c.NewSession(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			s, err := b.Session(id, dir)
			if err != nil {
				t.Fatal(err)
			}
			run := func(cmd terminal.Command) (r *bridge.Result, seen acphost.Card) {
				t.Helper()
				if _, err := s.Turn(t.Context(), func(ctx context.Context, turn *bridge.Turn) (acp.PromptResponse, error) {
					call := turn.ToolCall(card("1"))
					var err error
					r, err = call.Exec(ctx, cmd)
					call.End("", err)
					return done, err
				}); err != nil {
					t.Fatal(err)
				}
				if err := c.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				return r, c.Card("1")
			}
			f(t, k, run)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err := manager.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What would wait for a key in a pager does not.
func TestPager(t *testing.T) {
	t.Parallel()
	onMachine(t, nil, func(t *testing.T, k kind, run func(terminal.Command) (*bridge.Result, acphost.Card)) {
		r, seen := run(terminal.Command{Line: `seq 300 | $PAGER`, Timeout: time.Minute})
		check(t, "the outcome", r.Outcome, terminal.Exited)
		contains(t, "the output", r.Output, "\n300\n")
		contains(t, "what the user sees", seen.Visible(), "300")
	})
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git here")
	}
	onMachine(t, nil, func(t *testing.T, k kind, run func(terminal.Command) (*bridge.Result, acphost.Card)) {
		log := `git init -q . && for i in $(seq 60); do git -c user.name=n -c user.email=e commit -q --allow-empty -m "number $i"; done; git --paginate log`
		r, _ := run(terminal.Command{Line: log, Timeout: time.Minute})
		check(t, "the outcome", r.Outcome, terminal.Exited)
		contains(t, "the output", r.Output, "number 1\n")
	})
}

// A program that takes the whole screen ends on time, and leaves no escape
// sequence in the result; what it did not get to say goodbye to is its own.
func TestAlternateScreen(t *testing.T) {
	t.Parallel()
	onMachine(t, nil, func(t *testing.T, k kind, run func(terminal.Command) (*bridge.Result, acphost.Card)) {
		r, _ := run(terminal.Command{Line: `printf '\033[?1049h\033[2J\033[H\033[7mfull screen\033[0m'; sleep 0.2; printf '\033[?1049l'; echo after`, Timeout: time.Minute})
		check(t, "the outcome", r.Outcome, terminal.Exited)
		contains(t, "the output", r.Output, "after\n")
		if strings.Contains(r.Output, "\x1b") {
			t.Errorf("escape sequences in the result: %q", r.Output)
		}
	})
	if _, err := exec.LookPath("vi"); err != nil {
		t.Skip("no vi here")
	}
	onMachine(t, nil, func(t *testing.T, k kind, run func(terminal.Command) (*bridge.Result, acphost.Card)) {
		// With nobody to type it ends by itself, or by its timeout.
		start := time.Now()
		r, _ := run(terminal.Command{Line: "vi file", Timeout: time.Second})
		atMost(t, "the command", time.Since(start), time.Second+2*limits.SettleTimeout)
		if r.Outcome != terminal.TimedOut && r.Outcome != terminal.Exited && r.Outcome != terminal.Signalled {
			t.Errorf("the outcome is %s", r.Outcome)
		}
		if strings.Contains(r.Output, "\x1b") {
			t.Errorf("escape sequences in the result: %q", r.Output)
		}
	})
}

// What reaches commands is what the command names, pagers that do not wait, and
// locally the agent's environment without secrets. To a client nothing goes but
// what was named: the rest is the client's own.
func TestWhatReachesCommands(t *testing.T) {
	secrets := []string{"AWS_SECRET_ACCESS_KEY", "ANTHROPIC_API_KEY", "GITHUB_TOKEN", "NPM_TOKEN", "DB_PASSWORD", "SENTRY_DSN", "x_api_key"}
	for _, name := range secrets {
		t.Setenv(name, "secret value")
	}
	t.Setenv("TERMBRIDGE_PLAIN", "plain")
	told := slices.Sorted(maps.Keys(noinput.Env()))
	onMachine(t, nil, func(t *testing.T, k kind, run func(terminal.Command) (*bridge.Result, acphost.Card)) {
		r, _ := run(terminal.Command{Line: "env", Env: map[string]string{"GIVEN_TOKEN": "given", "PAGER": "mine"}, Timeout: time.Minute})
		contains(t, "the environment", r.Output, "GIVEN_TOKEN=given\n")
		contains(t, "the environment", r.Output, "PAGER=mine\n")
		if strings.Contains(r.Output, "secret value") {
			t.Errorf("a secret has reached the command:\n%s", r.Output)
		}
		if k.presentation == bridge.PresentClient {
			return // below; and the client's own environment, which here is this one
		}
		// What the shell sets itself is not counted, nor what belongs to a process.
		want := append([]string{"GIVEN_TOKEN"}, told...)
		for _, v := range (execenv.Env{}).InheritSafe().Environ() {
			name, _, _ := strings.Cut(v, "=")
			want = append(want, name)
		}
		own := []string{"_", "OLDPWD", "PWD", "SHLVL", "TERM"}
		var got []string
		for l := range strings.Lines(r.Output) {
			name, _, ok := strings.Cut(l, "=")
			if ok && !slices.Contains(own, name) && !strings.HasPrefix(name, "TERMBRIDGE_") {
				got = append(got, name)
			}
		}
		want = slices.DeleteFunc(want, func(name string) bool {
			return slices.Contains(own, name) || strings.HasPrefix(name, "TERMBRIDGE_")
		})
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(slices.Compact(want), slices.Compact(got)); diff != "" {
			t.Errorf("the names that reach a local command (-want +got):\n%s", diff)
		}
		contains(t, "the environment", r.Output, "TERMBRIDGE_PLAIN=plain\n")
	})
	// Over the wire.
	in(t, client, nil, func(w *world) {
		w.run("1", terminal.Command{Line: "env", Env: map[string]string{"GIVEN_TOKEN": "given"}})
		for _, l := range w.c.Lines() {
			if l.Method == acp.ClientMethodTerminalCreate && l.From == fakeconn.Agent {
				for _, name := range append(slices.Clone(told), "GIVEN_TOKEN") {
					contains(w, "the request", l.Raw, `"name":"`+name+`"`)
				}
				check(w, "variables sent", strings.Count(l.Raw, `"name":`), len(told)+1)
			}
		}
	})
	for _, name := range secrets {
		if os.Getenv(name) == "" {
			t.Errorf("%s is not set, so this shows nothing", name)
		}
	}
}

// Options.Shell runs the lines, at the client and here; a command's own Shell wins.
func TestShellOfABridge(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		if os.Getenv("TERMBRIDGE_REAL") != "" {
			t.Fatal(err)
		}
		t.Skip("bash is missing")
	}
	for _, c := range []struct{ shell, line, want string }{
		{"", `a=(x y); echo "${a[1]}" &>/dev/stdout; echo "$0"`, "y\n" + bash + "\n"},
		{"/bin/sh", `echo "$0"`, "/bin/sh\n"},
	} {
		onMachine(t, &bridge.Options{Shell: bash}, func(t *testing.T, k kind, run func(terminal.Command) (*bridge.Result, acphost.Card)) {
			r, _ := run(terminal.Command{Line: c.line, Shell: c.shell})
			check(t, "the output", r.Output, c.want)
		})
	}
}
