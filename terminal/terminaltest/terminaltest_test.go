package terminaltest_test

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
				MaxTerminals: l.MaxTerminals, OutputLimit: l.OutputLimit, ManagerBytes: l.ManagerBytes, WaitForSlot: l.WaitForSlot,
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
	c.New = func(t terminaltest.T) terminal.Manager {
		return memterm.New(&memterm.Options{Programs: terminaltest.Programs(), Grace: 500 * time.Millisecond})
	}
	c.Bubble = nil
	terminaltest.Test(t, c)
}

// A program is the same as a real process: its words, its input, its exit.
func TestReexec(t *testing.T) {
	for _, c := range []struct {
		args   []string
		input  string
		output string
		code   int // -1 for a signal
	}{
		{[]string{"args", "a b", ""}, "", "\"a b\"\n\"\"\n", 0},
		{[]string{"exit", "3"}, "", "", 3},
		{[]string{"cat"}, "in\n", "in\n", 0},
		{[]string{"gulp", "0s", "END"}, "a\x00END", "ready\na\x00END", 0},
		{[]string{"both"}, "", "to stdout\nto stderr\n", 0},
		{[]string{"nothing"}, "", "terminaltest: no program \"nothing\"\n", 127},
		{[]string{"die", "SIGKILL"}, "", "", -1},
	} {
		if c.code < 0 && runtime.GOOS == "windows" {
			t.Logf("%q: no signals on this system", c.args)
			continue
		}
		words := terminaltest.ReexecProgram(c.args[0], c.args[1:]...).Args
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Stdin = strings.NewReader(c.input)
		output, err := cmd.CombinedOutput()
		if string(output) != c.output || cmd.ProcessState.ExitCode() != c.code {
			t.Errorf("%q: %q, %v; want %q, code %d", c.args, output, err, c.output, c.code)
		}
	}
}
