package view_test

import (
	"os"
	"testing"
	"time"

	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// With real processes the wait for input ends by what the kernel knows, with
// all that was written before, and never because of what is on the screen.
func TestWaitForInputOfProcesses(t *testing.T) {
	for name, test := range map[string]struct {
		line      string
		until     view.Until
		want      string
		certainty string
	}{
		"a question":       {"printf 'name? '; read x", view.Until{Input: true}, view.ByInput, terminal.Certain},
		"a late question":  {"printf 'collecting ... '; sleep 0.3; printf 'name? '; read x", view.Until{Input: true}, view.ByInput, terminal.Certain},
		"a line editor":    {"exec bash --norc --noprofile -i", view.Until{Input: true}, view.ByInput, terminal.Likely},
		"no question":      {"printf 'Password: '; exec sleep 300", view.Until{Input: true, Timeout: time.Second}, view.ByTimeout, ""},
		"a match":          {"printf 'name? '; read x", view.Until{Input: true, Literal: "name? "}, view.ByMatch, ""},
		"the end":          {"printf 'name? '", view.Until{Input: true}, view.ByEnd, ""},
		"quiet comes late": {"printf 'name? '; read x", view.Until{Input: true, Quiet: time.Minute}, view.ByInput, terminal.Certain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := os.ReadFile("/proc/self/syscall"); err != nil && test.certainty == terminal.Certain {
				lacks(t, "/proc/self/syscall, which shows who reads lines")
			}
			m := localterm.New(nil)
			defer m.Close()
			term := start(t, m, terminal.Command{Line: test.line, TTY: true, Stdin: true})
			ev, err := view.WaitFor(t.Context(), term, test.until)
			if err != nil || ev.Reason != test.want || ev.Evidence.Certainty != test.certainty {
				t.Errorf("%q, %+v, %v; want %q, %q", ev.Reason, ev.Evidence, err, test.want, test.certainty)
			}
			if out, err := term.ReadOutput(t.Context(), ev.Cursor, 0); err != nil || out.Text != "" {
				t.Errorf("behind the cursor: %q, %v, want nothing", out.Text, err)
			}
		})
	}
}

// The record of a real command tells the two streams apart, and what it waits for.
func TestRecordOfAProcess(t *testing.T) {
	t.Parallel()
	if _, err := os.ReadFile("/proc/self/syscall"); err != nil {
		lacks(t, "/proc/self/syscall, which shows who reads")
	}
	m := localterm.New(nil)
	defer m.Close()
	term := start(t, m, terminal.Command{Line: "echo out; sleep 1; printf 'name? ' >&2; read x", Stdin: true})
	ev, err := view.WaitFor(t.Context(), term, view.Until{Input: true, Record: true})
	if err != nil || ev.Reason != view.ByInput {
		t.Fatalf("%s, %v", ev.Reason, err)
	}
	r := ev.Record
	if r.Text != "out\nname? " || r.State != terminal.Waiting || r.Evidence.Certainty != terminal.Certain || r.Evidence.Proc.PID == 0 {
		t.Errorf("%+v", r)
	}
	if len(r.Reads) != 2 || r.Reads[0].Stream != terminal.Stdout || r.Reads[1].Stream != terminal.Stderr || r.Reads[1].Head != "name? " {
		t.Fatalf("reads %+v", r.Reads)
	}
	if apart := r.Reads[1].At.Sub(r.Reads[0].At); apart < 200*time.Millisecond {
		t.Errorf("they are %v apart", apart)
	}
	if info := ev.Info; info.LastOutput.Sub(info.FirstOutput) < 200*time.Millisecond || info.LastOutput.After(r.Ended) {
		t.Errorf("first output %v, last output %v, end of the wait %v", info.FirstOutput, info.LastOutput, r.Ended)
	}
	// A wait that the time ends says what the command does then.
	term = start(t, m, terminal.Command{Line: "printf '> '; exec cat", TTY: true, Stdin: true})
	if ev, err := view.WaitFor(t.Context(), term, view.Until{Input: true}); err != nil || ev.Reason != view.ByInput {
		t.Fatalf("%s, %v", ev.Reason, err)
	}
	ev, err = view.WaitFor(t.Context(), term, view.Until{Timeout: 200 * time.Millisecond, Record: true})
	if err != nil || ev.Reason != view.ByTimeout || ev.Record.State != terminal.Waiting || ev.Record.Reads[0].Stream != "" {
		t.Errorf("%s, %v: %+v", ev.Reason, err, ev.Record)
	}
}
