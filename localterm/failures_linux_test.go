package localterm_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// The tests here pin failures that others had; docs/failure-modes.md has the
// whole list.

// Every way to exit has its own representation: a code, or a signal of the
// process itself, which 128+n of a shell is not.
func TestExits(t *testing.T) {
	m := newManager(t, nil)
	for line, want := range map[string]string{
		"true":                              "exited: exit code 0",
		"false":                             "exited: exit code 1",
		"exit 300":                          "exited: exit code 44",
		"exit 255":                          "exited: exit code 255",
		"/no/such/program":                  "exited: exit code 127",
		"/etc/passwd":                       "exited: exit code 126",
		"kill -9 $$":                        "signalled: SIGKILL",
		"kill -TERM $$":                     "signalled: SIGTERM",
		"kill -PIPE $$":                     "signalled: SIGPIPE",
		"sh -c 'kill -9 $$'; exit $?":       "exited: exit code 137",
		"trap 'exit 7' TERM; kill $$; :":    "exited: exit code 7",
		"ulimit -c 0; kill -SEGV $$":        "signalled: SIGSEGV",
		"exec sh -c 'exec kill -KILL $$'":   "signalled: SIGKILL",
		"sleep 300 >/dev/null & kill -9 $$": "signalled: SIGKILL",
	} {
		modes(t, func(t *testing.T, tty bool) {
			info := wait(t, start(t, m, terminal.Command{Line: line, TTY: tty}))
			if got := fmt.Sprintf("%s: %s", info.Outcome, info.Exit); got != want {
				t.Errorf("%s: %s, want %s", line, got, want)
			}
		})
	}
}

// Every Outcome that a local command can have; the rest are those of a client.
func TestOutcomes(t *testing.T) {
	m := newManager(t, nil)
	hold := terminal.Command{Args: []string{"sleep", "300"}}
	got := map[terminal.Outcome]bool{}
	note := func(term terminal.Terminal) { got[term.Info().Outcome] = true }
	running := start(t, m, hold)
	note(running)
	running.Stop(t.Context())
	note(running)
	timed := hold
	timed.Timeout = time.Millisecond
	for _, cmd := range []terminal.Command{timed, {Line: "exit 1"}, {Line: "kill -9 $$"}} {
		term := start(t, m, cmd)
		wait(t, term)
		note(term)
	}
	for _, want := range []terminal.Outcome{terminal.Running, terminal.Stopped, terminal.TimedOut, terminal.Exited, terminal.Signalled} {
		if !got[want] {
			t.Errorf("no command was %s: %v", want, got)
		}
	}
	// Failed and Unknown need an executor that fails: TestUnstoppableProcess,
	// TestUnknownExit.
}

// Ctrl-Z stops the job in the foreground, not the shell; and what is stopped
// can be stopped for good.
func TestCtrlZ(t *testing.T) {
	need(t, "bash")
	need(t, "/proc/self/syscall") // shows who waits
	m := newManager(t, &localterm.Options{Grace: 10 * time.Second})
	term := start(t, m, terminal.Command{Args: []string{"bash", "--norc", "--noprofile", "-i"}, TTY: true, Stdin: true}).(stated)
	waitState(t, term, 0)
	write(t, term, "cat\n")
	for cursor := int64(0); ; { // not the shell's
		if e := waitState(t, term, cursor); strings.HasPrefix(e.Reason, "cat ") {
			break
		}
	}
	write(t, term, "\x1a")
	read(t, term, "Stopped")
	write(t, term, "echo still; kill -STOP $$\n")
	read(t, term, "still\n")
	began := time.Now()
	if info, err := term.Stop(t.Context()); err != nil || len(info.Survivors) > 0 {
		t.Errorf("Stop: %+v, %v", info, err)
	}
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("a stopped command took all of the grace: %v", took)
	}
}

// An interactive shell has job control on a terminal, makes no noise about it,
// and does not wait for its background.
func TestJobControl(t *testing.T) {
	need(t, "bash")
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{Args: []string{"bash", "--norc", "-ic", "echo ok"}, TTY: true, Stdin: true})
	if got := output(t, term); got != "ok\n" {
		t.Errorf("output %q, want nothing but ok", got)
	}
	began := time.Now()
	term = start(t, m, terminal.Command{Args: []string{"bash", "--norc", "-ic", "trap '' HUP; sleep 300 & echo hi"}, TTY: true, Stdin: true})
	if info := wait(t, term); len(info.Survivors) != 1 || time.Since(began) > 10*time.Second {
		t.Errorf("ended after %v and left %v", time.Since(began), info.Survivors)
	}
}

// On a controlling terminal the kernel hangs up on the foreground when the
// command exits. Who left it, or does not care, survives and is named.
func TestHangup(t *testing.T) {
	need(t, "/proc/self/stat")
	needLinux(t, "hang-up")
	need(t, "setsid")
	for name, test := range map[string]struct {
		line     string
		survives bool
	}{
		"background": {"sleep 300 & echo pid=$!", false},
		"stubborn":   {"trap '' HUP; sleep 300 & echo pid=$!", true},
		"setsid":     {"setsid sleep 300 & echo pid=$!; sleep 0.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, nil)
			term := start(t, m, terminal.Command{Line: test.line, TTY: true, Stdin: true})
			info := wait(t, term)
			p := pid(t, term, "pid")
			if !test.survives {
				gone(t, p)
				return
			}
			if !alive(p) || len(info.Survivors) != 1 || info.Survivors[0].PID != p {
				t.Errorf("process %d lives: %v; left: %v", p, alive(p), info.Survivors)
			}
		})
	}
}

// Without Stdin nobody presses a key, so programs start no pager.
func TestPagers(t *testing.T) {
	t.Setenv("PAGER", "less")
	dir := t.TempDir()
	for program, line := range map[string]string{
		"sh":  "seq 1000 | $PAGER",
		"git": "git init -q . && git -c user.name=x -c user.email=x commit -q --allow-empty -m \"$(seq 1000)\" && git log",
		"man": "man man",
	} {
		t.Run(program, func(t *testing.T) {
			need(t, program)
			m := newManager(t, nil)
			term := start(t, m, terminal.Command{Line: line + "; echo over", Dir: dir, TTY: true, Timeout: bound})
			if info := wait(t, term); info.Outcome != terminal.Exited {
				t.Errorf("ended as %s", info.Outcome)
			}
			if got := output(t, term); !strings.HasSuffix(got, "over\n") {
				t.Errorf("output ends in %q", tail(got, 100))
			}
		})
	}
	m := newManager(t, nil)
	for want, cmd := range map[string]terminal.Command{
		"cat\n":  {Line: "echo $PAGER", TTY: true},
		"less\n": {Line: "echo $PAGER", TTY: true, Stdin: true},
		"more\n": {Line: "echo $PAGER", TTY: true, Env: map[string]string{"PAGER": "more"}},
	} {
		if got := output(t, start(t, m, cmd)); got != want {
			t.Errorf("%+v: %q, want %q", cmd, got, want)
		}
	}
}

// Editors that a command without Stdin opens fail at once with a reason, whatever
// the agent's are, and so does what asks for a password; with Stdin they are the
// user's own.
func TestNobodyIsAsked(t *testing.T) {
	need(t, "git")
	need(t, "ssh-keygen")
	dir := t.TempDir()
	hang := filepath.Join(dir, "hang")
	if err := os.WriteFile(hang, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_ASKPASS", "SSH_ASKPASS"} {
		t.Setenv(name, hang)
	}
	t.Setenv("SSH_ASKPASS_REQUIRE", "force")
	t.Setenv("DISPLAY", ":0")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	const repo = "git init -q r && cd r && git config user.email a@b && git config user.name a && echo x >f && git add f && "
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		for line, reason := range map[string]string{
			repo + "git commit -a": "no-editor:the-command-has-no-input",
			repo + "git config core.editor " + hang + " && git commit -a": "no-editor:the-command-has-no-input",
			repo + "git commit -qm x && git rebase -i --root":             "no-editor:the-command-has-no-input",
			repo + "git commit -qm x && git tag -a v1":                    "no-editor:the-command-has-no-input",
			"$EDITOR file":                           "",
			"git ls-remote " + server.URL + "/r.git": "terminal prompts disabled",
			"ssh-keygen -q -N secret -f key && ssh-keygen -y -P '' -f key; ssh-keygen -y -f key": "incorrect passphrase",
		} {
			term := start(t, m, terminal.Command{Line: line, Dir: t.TempDir(), TTY: tty, Timeout: bound})
			if info := wait(t, term); info.Outcome != terminal.Exited || info.Exit.Success() {
				t.Errorf("%s: ended as %s, %s", line, info.Outcome, info.Exit)
			}
			if got := output(t, term); !strings.Contains(got, reason) {
				t.Errorf("%s: no %q in %q", line, reason, tail(got, 500))
			}
		}
		for want, cmd := range map[string]terminal.Command{
			hang + "\n": {Line: "echo $EDITOR", Stdin: true},
			"ed\n":      {Line: "echo $EDITOR", Env: map[string]string{"EDITOR": "ed"}},
		} {
			cmd.TTY = tty
			if got := output(t, start(t, m, cmd)); got != want {
				t.Errorf("%+v: %q, want %q", cmd, got, want)
			}
		}
		own := execenv.ClassShell.Env().With(map[string]string{"EDITOR": "mine"})
		m = newManager(t, &localterm.Options{Env: &own})
		if got := output(t, start(t, m, terminal.Command{Line: "echo $EDITOR", TTY: tty})); got != "mine\n" {
			t.Errorf("Options.Env: %q", got)
		}
	})
}

// A program that waits for a key where nobody is ends, whoever runs it, and the
// shell that started it goes on.
func TestNobodyPressesAKey(t *testing.T) {
	t.Parallel()
	need(t, "/proc/self/syscall") // shows who waits for a key
	for program, line := range map[string]string{
		"vim":     "EDITOR=vim GIT_EDITOR=vim; export EDITOR GIT_EDITOR; git init -q .; git -c user.name=x -c user.email=x commit --allow-empty; vim f",
		"more":    "seq 1000 | more",
		"less":    "seq 1000 | less",
		"busybox": "seq 1000 | busybox less",
	} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			need(t, program)
			m := newManager(t, nil)
			term := start(t, m, terminal.Command{Line: line + "; echo over", Dir: t.TempDir(), TTY: true, Timeout: bound})
			if info := wait(t, term); info.Outcome != terminal.Exited {
				t.Errorf("ended as %s: %q", info.Outcome, tail(output(t, term), 200))
			}
			if got := strings.ReplaceAll(output(t, term), "\r", ""); !strings.HasSuffix(got, "over\n") {
				t.Errorf("output ends in %q", tail(got, 100))
			}
		})
	}
}

// A large paste into a shell's program arrives whole.
func TestPaste(t *testing.T) {
	need(t, "/proc/self/syscall")
	need(t, "bash")
	m := newManager(t, nil)
	file := filepath.Join(t.TempDir(), "pasted")
	term := start(t, m, terminal.Command{Args: []string{"bash", "--norc", "--noprofile", "-i"}, TTY: true, Stdin: true}).(stated)
	waitState(t, term, 0)
	write(t, term, "cat > "+file+"\n")
	for {
		if e := waitState(t, term, 0); strings.HasPrefix(e.Reason, "cat ") {
			break
		}
	}
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "line %4d of what somebody pasted, with ünïcödé\n", i)
	}
	write(t, term, text.String()+"\x04")
	write(t, term, "exit\n")
	wait(t, term)
	if got, err := os.ReadFile(file); err != nil || string(got) != text.String() {
		t.Errorf("%d bytes arrived of %d, %v", len(got), text.Len(), err)
	}
}

// A write that nobody reads costs no processor time, and holds up nobody else's
// output.
func TestInputBlockedIsIdle(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		term := startUnread(t, m, tty)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { term.WriteInput(ctx, strings.Repeat("x", 1<<20)) })
		if got := output(t, start(t, m, terminal.Command{Line: "echo other", TTY: tty})); got != "other\n" {
			t.Errorf("beside it: %q", got)
		}
		cpu := cpuTime(t)
		wg.Wait()
		if used := cpuTime(t) - cpu; used > 300*time.Millisecond {
			t.Errorf("a blocked write took %v of processor time in a second", used)
		}
	})
}

// A command that is stopped as soon as it has started leaves none of its forks.
func TestStartAndStop(t *testing.T) {
	n := 40
	if *full {
		n = 300
	}
	m := newManager(t, nil)
	for i := range n {
		term := start(t, m, terminal.Command{
			Line: `for i in 1 2 3 4 5; do sleep 300 & done; wait`,
			TTY:  i%2 == 0,
			Env:  map[string]string{"TERMBRIDGE_TEST": fmt.Sprint(os.Getpid())},
		})
		if info, err := term.Stop(t.Context()); err != nil || info.Survivors == nil || len(info.Survivors) > 0 {
			t.Fatalf("run %d: %+v, %v", i, info, err)
		}
	}
	if n := marked(t); n > 0 {
		t.Errorf("%d processes of the Manager are left", n)
	}
}

// marked returns how many processes with the mark of TestStartAndStop live.
func marked(t *testing.T) (n int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if string(command) != "sleep\x00300\x00" {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if strings.Contains(string(environ), fmt.Sprintf("TERMBRIDGE_TEST=%d\x00", os.Getpid())) {
			n++
		}
	}
	return n
}
