package view_test

import (
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
		want      view.Reason
		certainty terminal.Certainty
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
