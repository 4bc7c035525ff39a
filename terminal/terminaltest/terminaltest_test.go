package terminaltest_test

import (
	"testing"
	"testing/synctest"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/terminaltest"
)

func TestMain(m *testing.M) { terminaltest.Main(m) }

// config is that of a memterm.Manager, which has everything.
func config() terminaltest.Config {
	return terminaltest.Config{
		New: func(t terminaltest.T) terminal.Manager {
			return memterm.New(&memterm.Options{Programs: terminaltest.Programs()})
		},
		Limited: func(t terminaltest.T, l terminaltest.Limits) terminal.Manager {
			return memterm.New(&memterm.Options{
				Programs:     terminaltest.Programs(),
				MaxTerminals: l.MaxTerminals, OutputLimit: l.OutputLimit, ManagerBytes: l.ManagerBytes,
			})
		},
		Input: true, TTY: true, Tree: true, Signal: true, Exact: true,
		Bubble: synctest.Test,
	}
}

// The reference keeps every rule, in fake time.
func TestMemterm(t *testing.T) { terminaltest.Test(t, config()) }

// The same cases hold in real time.
func TestMemtermRealTime(t *testing.T) {
	c := config()
	c.Bubble = nil
	terminaltest.Test(t, c)
}
