package launcher_test

import (
	"flag"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/execenvtest"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/terminaltest"
)

// everywhere runs the suite at every place, as .ci/run does.
var everywhere = flag.Bool("everywhere", false, "run both suites at every place, not one at two")

func TestExecutor(t *testing.T) {
	// An Executor keeps its contract at every place.
	t.Parallel()
	for i, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if i > 1 && !*everywhere {
				t.Skip("the suite runs at two places: -everywhere runs it at all")
			}
			execenvtest.Test(t, execenvtest.Config{
				Executor: newExecutor(t, p.get(t), nil), Dir: t.TempDir(), Alone: p.name == "bwrap",
			})
		})
	}
}

func TestManager(t *testing.T) {
	// localterm keeps its contract at every place.
	if !*everywhere {
		t.Skip("it takes a while: -everywhere runs it")
	}
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			e := newExecutor(t, p.get(t), nil) // of all Managers: a connection is not the subject
			limited := func(t terminaltest.T, l terminaltest.Limits) terminal.Manager {
				return localterm.New(&localterm.Options{
					Executors:    map[string]execenv.Executor{"place": e},
					MaxTerminals: l.MaxTerminals, OutputLimit: l.OutputLimit, ManagerBytes: l.ManagerBytes, WaitForSlot: l.WaitForSlot,
					Grace: 500 * time.Millisecond,
				})
			}
			config := terminaltest.Config{
				New:     func(t terminaltest.T) terminal.Manager { return limited(t, terminaltest.Limits{}) },
				Limited: limited,
				Program: terminaltest.ReexecProgram,
				Input:   true, TTY: true, Tree: true, Signal: true, Exact: true, Codes: true,
				Alone:   p.name == "bwrap",
				Lasting: []string{"/execenv"},
			}
			t.Run("pipes", func(t *testing.T) { terminaltest.Test(t, config) })
			t.Run("tty", func(t *testing.T) {
				switch p.name {
				case "ssh-bash", "ssh-zsh", "ssh-tcsh":
					t.Skip("what these shells make of a command line is shown on pipes")
				}
				config.Program = func(name string, args ...string) terminal.Command {
					cmd := terminaltest.ReexecProgram(name, args...)
					cmd.TTY = name != "gulp" && name != "hold"
					return cmd
				}
				terminaltest.Test(t, config)
			})
		})
	}
}
