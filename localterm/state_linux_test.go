package localterm_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// stated is what a terminal of localterm can tell.
type stated interface {
	terminal.Terminal
	terminal.ActivityReader
}

// waitState waits until term waits for input.
func waitState(t *testing.T, term stated, cursor int64) terminal.Evidence {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	state, evidence, err := term.WaitActivity(ctx, terminal.Waiting, cursor)
	if state != terminal.Waiting || err != nil {
		out, _ := term.ReadOutput(t.Context(), 0, 0)
		t.Fatalf("WaitActivity(%d) = %s, %+v, %v; the output is %q", cursor, state, evidence, err, out.Text)
	}
	return evidence
}

// Who waits for input is found by what the kernel knows, at the prompt and
// after each answer.
func TestWaitState(t *testing.T) {
	for name, test := range map[string]struct {
		need, line string
		pipes      bool
		certainty  string
		secret     bool
		answer     string // if it waits again after that
		byModes    string // where the terminal's modes are all that is to be seen
	}{
		"cat":              {"cat", "exec cat", false, terminal.Certain, false, "a\n", ""},
		"cat, pipes":       {"cat", "exec cat", true, terminal.Certain, false, "a\n", ""},
		"cat, silent":      {"cat", "exec cat >/dev/null", true, terminal.Certain, false, "a\n", ""},
		"questions":        {"sh", `printf 'name? '; read x; printf 'age? '; read y; printf 'size? '; read z`, false, terminal.Certain, false, "a\n", ""},
		"password":         {"sh", `stty -echo; printf 'Password: '; read x; printf '\nagain: '; read x`, false, terminal.Certain, true, "a\n", terminal.Likely},
		"computes first":   {"sh", `printf '> '; sleep 0.5; read x`, false, terminal.Certain, false, "", ""},
		"shell":            {"bash", "exec bash --norc --noprofile -i", false, terminal.Likely, false, "echo a\n", terminal.Likely},
		"shell, a command": {"bash", "exec bash --norc --noprofile -i", false, terminal.Likely, false, "sleep 0.5\n", terminal.Likely},
		"editor":           {"vim", "exec vim -u NONE -n", false, terminal.Likely, false, "ia\x1b", terminal.Likely},
		"pager":            {"less", "seq 1000 | less", false, terminal.Certain, false, " ", terminal.Likely},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			need(t, test.need)
			if _, err := os.ReadFile("/proc/self/syscall"); err != nil {
				if test.byModes == "" {
					need(t, "/proc/self/syscall") // shows who reads lines
				}
				test.certainty = test.byModes
			}
			m := newManager(t, nil)
			term := start(t, m, terminal.Command{Line: test.line, TTY: !test.pipes, Stdin: true}).(stated)
			check := func(cursor int64) {
				t.Helper()
				if e := waitState(t, term, cursor); e.Certainty != test.certainty || e.Secret != test.secret || e.Reason == "" {
					t.Errorf("evidence %+v, want it %s, secret: %v", e, test.certainty, test.secret)
				}
				if state, e, err := term.ReadActivity(t.Context(), cursor); state != terminal.Waiting || e.Certainty != test.certainty || err != nil {
					t.Errorf("ReadActivity = %s, %+v, %v", state, e, err)
				}
			}
			check(0)
			if test.answer == "" {
				return
			}
			before := time.Now()
			out, err := term.ReadOutput(t.Context(), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			state, e, err := term.ReadActivity(t.Context(), out.NextCursor)
			if out.NextCursor > 0 && (state != terminal.Working || err != nil) {
				t.Errorf("with no news: %s, %+v, %v; want that it does not wait for anything new", state, e, err)
			}
			write(t, term, test.answer)
			check(out.NextCursor)
			if took := time.Since(before); strings.HasPrefix(test.answer, "sleep") && took < 500*time.Millisecond {
				t.Errorf("%v after %q it waits already", took, test.answer)
			}
		})
	}
}

// What is on the screen does not count.
func TestNeverWaiting(t *testing.T) {
	for name, line := range map[string]string{
		"prompt":     `printf '> '; sleep 300`,
		"password":   `printf 'Password: '; while :; do :; done`,
		"no echo":    `stty -echo; printf 'Password:'; sleep 300`,
		"collecting": `printf 'collecting ... '; sleep 300`,
		"question":   `printf 'continue? [y/N] '; sleep 300`,
		"pipeline":   `printf '> '; sleep 300 | cat`,
		"flood":      `while :; do echo '> '; sleep 0.01; done`,
	} {
		for _, tty := range []bool{false, true} {
			mode := map[bool]string{false: "pipes", true: "tty"}[tty]
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				if name == "no echo" {
					need(t, "/proc/self/syscall") // else that is how a password is asked for
				}
				m := newManager(t, nil)
				cmd := terminal.Command{Line: line, TTY: tty, Stdin: true}
				if !tty {
					cmd.Line = strings.TrimPrefix(line, "stty -echo; ")
				}
				term := start(t, m, cmd).(stated)
				ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
				defer cancel()
				if state, e, err := term.WaitActivity(ctx, terminal.Waiting, 0); state != terminal.Working || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("WaitActivity = %s, %+v, %v", state, e, err)
				}
				if state, e, err := term.ReadActivity(t.Context(), 0); state != terminal.Working || e.Certainty != terminal.NoCertainty || err != nil {
					t.Errorf("ReadActivity = %s, %+v, %v", state, e, err)
				}
			})
		}
	}
}

// A waiter is woken soon after the command began to wait: 200 ms are promised,
// on a machine that is not too busy to count.
func TestWaitStateWakesSoon(t *testing.T) {
	need(t, "/proc/self/syscall")
	m := newManager(t, nil)
	best := bound
	for range 10 {
		term := start(t, m, terminal.Command{Line: "printf '> '; exec cat", TTY: true, Stdin: true}).(stated)
		read(t, term, "> ")
		began := time.Now()
		waitState(t, term, 0)
		best = min(best, time.Since(began))
		if _, err := term.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if best > 200*time.Millisecond {
		t.Errorf("the fastest of 10 took %v", best)
	}
}

// The end is the last state, and ends every wait.
func TestStateOfTheEnd(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		term := start(t, m, terminal.Command{Line: "sleep 0.2; exit 3", TTY: tty, Stdin: true}).(stated)
		var wg sync.WaitGroup
		for _, want := range []terminal.Activity{terminal.Waiting, terminal.Finished} {
			wg.Go(func() {
				state, e, err := term.WaitActivity(t.Context(), want, 0)
				if state != terminal.Finished || e.Certainty != terminal.Certain || e.Reason != "exit code 3" || err != nil {
					t.Errorf("WaitActivity(%s) = %s, %+v, %v", want, state, e, err)
				}
			})
		}
		if state, _, err := term.WaitActivity(t.Context(), terminal.Working, 0); state != terminal.Working || err != nil {
			t.Errorf("WaitActivity(working) = %s, %v", state, err)
		}
		wg.Wait()
		if state, _, err := term.ReadActivity(t.Context(), 1<<40); state != terminal.Finished || err != nil {
			t.Errorf("ReadActivity = %s, %v", state, err)
		}
	})
}

// Nobody samples while nobody waits, and a long wait costs little.
func TestWaitStateIsCheap(t *testing.T) {
	m := newManager(t, &localterm.Options{MaxTerminals: 20})
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range 20 {
		term := start(t, m, terminal.Command{Args: []string{"sleep", "300"}, TTY: true, Stdin: true}).(stated)
		wg.Go(func() { term.WaitActivity(ctx, terminal.Waiting, 0) })
	}
	time.Sleep(500 * time.Millisecond)
	cpu, began := cpuTime(t), time.Now()
	wg.Wait()
	used, took := cpuTime(t)-cpu, time.Since(began)
	t.Logf("20 waits took %.1f %% of a processor", 100*used.Seconds()/took.Seconds())
	if used > took/2 {
		t.Errorf("20 waits used %v of processor time in %v", used, took)
	}
}
