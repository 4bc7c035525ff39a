package localterm_test

import (
	"testing"
	"time"

	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/terminaltest"
)

func TestMain(m *testing.M) { terminaltest.Main(m) }

// The suite runs in both ways a command can get its output out.
func TestManager(t *testing.T) {
	limited := func(t terminaltest.T, l terminaltest.Limits) terminal.Manager {
		return localterm.New(&localterm.Options{
			MaxTerminals: l.MaxTerminals, OutputLimit: l.OutputLimit, ManagerBytes: l.ManagerBytes, WaitForSlot: l.WaitForSlot,
			Grace: 500 * time.Millisecond,
		})
	}
	config := terminaltest.Config{
		New:     func(t terminaltest.T) terminal.Manager { return limited(t, terminaltest.Limits{}) },
		Limited: limited,
		Program: terminaltest.ReexecProgram,
		Input:   true, TTY: true, Tree: true, Signal: true, Exact: true,
	}
	t.Run("pipes", func(t *testing.T) { terminaltest.Test(t, config) })
	t.Run("tty", func(t *testing.T) {
		config.Program = func(name string, args ...string) terminal.Command {
			cmd := terminaltest.ReexecProgram(name, args...)
			// These read what a line discipline would edit, or want no terminal.
			cmd.TTY = name != "gulp" && name != "hold"
			return cmd
		}
		terminaltest.Test(t, config)
	})
}
