package execenv_test

import (
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

// Whether a program waits for input is known from the kernel, not guessed from
// what it prints.
func TestInputState(t *testing.T) {
	need(t, "/proc/self/syscall")
	const (
		certain = terminal.Certain
		likely  = terminal.Likely
		none    = terminal.NoCertainty
	)
	for _, c := range []struct {
		need, line string
		want       string
		secret     bool
		typed      string
	}{
		{"cat", "exec cat", certain, false, ""},
		{"cat", "cat; :", certain, false, ""},
		{"sh", "read x", certain, false, ""},
		{"bash", "bash -c 'read -p name: x'", certain, false, ""},
		{"bash", "bash -c 'read -sp secret: x'", certain, true, ""},
		{"bash", "(stty -echo; read x </dev/tty; stty echo)", certain, true, ""},
		{"python3", "python3 -c 'input()'", certain, false, ""},
		{"perl", "perl -e '<STDIN>'", certain, false, ""},
		{"less", "seq 1000 | less", certain, false, ""},
		{"less", "yes | less", certain, false, ""},
		{"ssh-keygen", "ssh-keygen -f key", certain, true, ""},
		{"rm", "touch f; rm -i f", certain, false, ""},
		{"bash", "exec bash --norc -i", likely, false, ""},
		{"python3", "exec python3", likely, false, ""},
		{"vim", "vim -u NONE", likely, false, ""},
		{"node", "node", likely, false, ""},
		{"node", `node -e 'require("readline").createInterface({input: process.stdin, output: process.stdout}).question("? ", () => {})'`, likely, false, ""},
		{"sqlite3", "sqlite3", likely, false, ""},
		{"bc", "bc -q", likely, false, ""},
		{"gdb", "gdb -q -nx", likely, false, ""},

		{"sleep", "exec sleep 50", none, false, ""},
		{"sleep", "sleep 50; :", none, false, ""},
		{"sleep", "printf 'Password: '; sleep 50", none, false, ""},
		{"sleep", "printf '> '; sleep 50", none, false, ""},
		{"sleep", "printf 'continue? [y/N] '; sleep 50", none, false, ""},
		{"sh", "printf 'collecting ...'; while :; do :; done", none, false, ""},
		{"tail", "touch f; tail -f f", none, false, ""},
		{"node", "node -e 'setTimeout(() => {}, 50000)'", none, false, ""},
		{"python3", "python3 -c 'import threading, sys\nthreading.Thread(target=sys.stdin.read).start()\nwhile 1: pass'", none, false, ""},
		{"bash", "PS1='$ ' exec bash --norc -i", none, false, "sleep 50\n"},
	} {
		t.Run(c.line, func(t *testing.T) {
			t.Parallel()
			need(t, c.need)
			spec := sh(c.line)
			spec.Dir = t.TempDir()
			spec.TTY = &execenv.TTY{Input: true}
			r := start(t, newLocal(t, nil), spec)
			if c.typed != "" {
				r.until(t, "$ ")
				if _, err := io.WriteString(r.term, c.typed); err != nil {
					t.Fatal(err)
				}
			}
			if c.want != none {
				eventually(t, func() error {
					state, e := r.InputState()
					return errorf(state == terminal.Waiting && e.Certainty == c.want && e.Secret == c.secret,
						"got %v, %+v; want waiting, %v, secret: %v; output %q", state, e, c.want, c.secret, r.seen())
				})
				return
			}
			time.Sleep(500 * time.Millisecond) // so that it does what it is here for
			for range 20 {
				if state, e := r.InputState(); state != terminal.Working || e.Certainty != none {
					t.Fatalf("got %v, %+v; want working", state, e)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
}

func TestInputStateOfPipes(t *testing.T) {
	need(t, "/proc/self/syscall")
	l := newLocal(t, nil)
	p := l.Command(t.Context(), execenv.Spec{Path: "cat", Group: true})
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	s := p.(execenv.Session)
	eventually(t, func() error {
		state, e := s.InputState()
		return errorf(state == terminal.Waiting && e.Certainty == terminal.Certain && strings.HasPrefix(e.Reason, "cat ("), "got %v, %+v", state, e)
	})
	in.Close()
	wait(t, s.Exited(), "exit")
	if state, _ := s.InputState(); state != terminal.Finished {
		t.Errorf("after the exit: %v", state)
	}
	p.Wait()

	// Who has no input does not wait for it.
	r := start(t, l, sh("exec sleep 50"))
	if state, e := r.InputState(); state != terminal.Working || e.Certainty != terminal.NoCertainty {
		t.Errorf("got %v, %+v", state, e)
	}
}

// On a pipe a program that polls its input waits for it, too.
func TestInputStateOfPolledPipes(t *testing.T) {
	need(t, "/proc/self/syscall")
	l := newLocal(t, nil)
	for _, c := range []struct {
		need, line string
		want       string
		prompt     bool
	}{
		{"bash", "exec bash --norc -i", terminal.Likely, true},
		{"node", "exec node -i", terminal.Likely, false},
		{"python3", "exec python3 -i", terminal.Certain, false},
		{"python3", "exec python3 -c 'import select, sys; select.select([sys.stdin], [], [])'", terminal.Likely, false},
		{"setsid", "setsid -w cat; :", terminal.Certain, false},
		{"sleep", "sleep 50 | cat", terminal.NoCertainty, false},
		{"python3", "exec python3 -c 'import select, socket; s = socket.socketpair(); select.select([s[0]], [], [], 50)'", terminal.NoCertainty, false},
		{"node", "exec node -e 'setTimeout(() => {}, 50000)'", terminal.NoCertainty, false},
	} {
		t.Run(c.line, func(t *testing.T) {
			t.Parallel()
			need(t, c.need)
			spec := sh(c.line)
			spec.Group = true
			p := l.Command(t.Context(), spec)
			in, err := p.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			defer p.Wait()
			s := p.(execenv.Session)
			defer s.StopTree(0)
			if c.want == terminal.NoCertainty {
				time.Sleep(500 * time.Millisecond)
			}
			eventually(t, func() error {
				state, e := s.InputState()
				return errorf((state == terminal.Waiting) == (c.want != terminal.NoCertainty) && e.Certainty == c.want && e.Prompt == c.prompt && !e.Secret,
					"got %v, %+v", state, e)
			})
		})
	}
}

// The evidence names the process, and tells the command's own shell at its prompt
// from a job in it.
func TestInputStateNamesTheProcess(t *testing.T) {
	need(t, "/proc/self/syscall")
	need(t, "bash", "cat")
	l := newLocal(t, nil)
	spec := execenv.Spec{Path: "bash", Args: []string{"--norc", "--noprofile", "-i"}, TTY: &execenv.TTY{Input: true}}
	r := start(t, l, spec)
	is := func(command string, prompt bool) {
		t.Helper()
		eventually(t, func() error {
			_, e := r.InputState()
			return errorf(strings.HasPrefix(e.Proc.Command, command) && e.Prompt == prompt && strings.Contains(e.Reason, strconv.Itoa(e.Proc.PID)) &&
				(r.ID() == strconv.Itoa(e.Proc.PID)) == prompt, "want %s at its prompt: %v, got %+v", command, prompt, e)
		})
	}
	is("bash", true)
	for _, line := range []string{"cat /dev/stdin", "bash --norc --noprofile -i"} {
		if _, err := io.WriteString(r.term, line+"\n"); err != nil {
			t.Fatal(err)
		}
		is(line, false)
		if _, err := io.WriteString(r.term, "\x04"); err != nil {
			t.Fatal(err)
		}
		is("bash --norc --noprofile -i", true)
	}
	r = start(t, l, execenv.Spec{Path: "bash", Args: []string{"-c", "read x"}, TTY: &execenv.TTY{Input: true}})
	is0 := func() error {
		_, e := r.InputState()
		return errorf(e.Certainty == terminal.Certain && !e.Prompt && e.Proc.Command == "bash -c read x", "got %+v", e)
	}
	eventually(t, is0)
}

// A program that may not be looked into, as sudo may not, asks for a password if it
// sleeps, and not while it computes.
func TestInputStateOfAnotherUser(t *testing.T) {
	need(t, "/proc/self/syscall")
	need(t, "stty")
	rooted, is := nobody(t)
	if !is {
		return
	}
	for _, c := range []struct {
		how  string
		want terminal.Activity
	}{{"", terminal.Waiting}, {"busy", terminal.Working}} {
		spec := sh("stty -echo; exec " + rooted + " 60s " + c.how)
		spec.TTY = &execenv.TTY{Input: true}
		spec.Env = execenv.Env{}.With(map[string]string{"EXECENV_TEST_PROGRAM": "rooted"})
		r := start(t, newLocal(t, nil), spec)
		r.until(t, "ready")
		right := func() error {
			state, e := r.InputState()
			return errorf(state == c.want && (state == terminal.Waiting) == (e.Certainty == terminal.Likely && e.Secret), "%q: %v, %+v; want %v", c.how, state, e, c.want)
		}
		eventually(t, right) // it begins
		for range 20 {
			if err := right(); err != nil && r.Exit() == (terminal.Exit{}) {
				t.Error(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		r.term.Close() // by which the kernel ends it: nobody may signal it
		wait(t, r.Exited(), "the end")
	}
}
