package terminaltest

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/termbridge/termbridge/internal/shellwords"
	"github.com/termbridge/termbridge/terminal"
)

var commandRule = rule{
	name: "0-command",
	text: "A Command is a shell line or words that arrive unchanged, exactly one of the two. Dir is absolute, Env is an overlay, " +
		"without Stdin standard input is empty, TTY is a request that is accepted everywhere, and Info carries the Command with its Labels.",
	cases: []testCase{
		{name: "words", run: func(h *harness) {
			// A shell on the way must not see any of these.
			words := []string{"a b", "", "  ", "$HOME", "`id`", "*", "it's", `"quoted"`, `back\slash`, "new\nline", "tab\t", "-n", "--", "~", "#no", "a;b|c&d>e", "é漢😀", "!x", "%s"}
			t := h.start("args", words...)
			var want strings.Builder
			for _, w := range words {
				want.WriteString(strconv.QuoteToASCII(w) + "\n")
			}
			text, truncated := h.all(t)
			h.checkText(text, want.String(), truncated)
		}},
		{name: "line", run: func(h *harness) {
			cmd := h.c.Program("args", "a  b", "it's", "")
			cmd.Line, cmd.Args = shellwords.Join(cmd.Args), nil
			t := h.startCommand(cmd)
			text, truncated := h.all(t)
			h.checkText(text, "\"a  b\"\n\"it's\"\n\"\"\n", truncated)
			h.checkExit(h.end(t), 0)
		}},
		{name: "dir", run: func(h *harness) {
			dir, err := filepath.EvalSymlinks(h.TempDir())
			if err != nil {
				h.Fatalf("the test's own directory: %v", err)
			}
			cmd := h.c.Program("pwd")
			cmd.Dir = dir
			t := h.startCommand(cmd)
			text, truncated := h.all(t)
			h.checkText(text, dir+"\n", truncated)
			if info := t.Info(); info.Dir != dir {
				h.Errorf("Info.Dir is %q, want %q", info.Dir, dir)
			}
		}},
		{name: "env", run: func(h *harness) {
			cmd := h.c.Program("env")
			cmd.Env = map[string]string{"TERMINALTEST_A": "1=2 $HOME 'q'", "TERMINALTEST_B": ""}
			text, _ := h.all(h.startCommand(cmd))
			for _, want := range []string{"TERMINALTEST_A=1=2 $HOME 'q'\n", "TERMINALTEST_B=\n"} {
				if !strings.Contains("\n"+plain(text), "\n"+want) {
					h.Errorf("no %q in the environment %q", want, text)
				}
			}
		}},
		{name: "empty input", run: func(h *harness) {
			t := h.start("cat")
			h.checkExit(h.end(t), 0)
			if text, _ := h.all(t); text != "" {
				h.Errorf("output %q of an empty input", text)
			}
		}},
		{name: "tty", run: func(h *harness) {
			cmd := h.c.Program("size")
			if !h.c.TTY {
				cmd = h.c.Program("echo", "hi")
				cmd.TTY = true
				t := h.startCommand(cmd)
				text, truncated := h.all(t)
				h.checkText(plain(text), "hi\n", truncated)
				h.checkExit(h.end(t), 0)
				return
			}
			cmd.TTY = true
			h.waitText(h.startCommand(cmd), "40 x 120\n") // the default
			cmd.Size = terminal.Size{Rows: 7, Cols: 33}
			h.waitText(h.startCommand(cmd), "7 x 33\n")
		}},
		{name: "carried", run: func(h *harness) {
			cmd := h.c.Program("hold")
			cmd.Labels = map[string]string{"tool": "a"}
			cmd.Env = map[string]string{"A": "1"}
			t := h.startCommand(cmd)
			cmd.Labels["tool"], cmd.Env["A"] = "changed", "changed" // the caller's map stays the caller's
			got := t.Info().Command
			if got.Labels["tool"] != "a" || got.Env["A"] != "1" || got.String() != cmd.String() {
				h.Errorf("Info carries %+v of %s", got, cmd)
			}
		}},
		{name: "bad", run: func(h *harness) {
			m := h.manager()
			words := h.c.Program("true").Args
			for what, cmd := range map[string]terminal.Command{
				"empty":         {},
				"both":          {Line: "true", Args: words},
				"blank":         {Line: " \n"},
				"no program":    {Args: []string{"", "a"}},
				"relative dir":  {Args: words, Dir: "a/b"},
				"timeout":       {Args: words, Timeout: -1},
				"output limit":  {Args: words, OutputLimit: -1},
				"size":          {Args: words, Size: terminal.Size{Rows: 3}},
				"NUL":           {Args: append(words[:len(words):len(words)], "a\x00b")},
				"env name":      {Args: words, Env: map[string]string{"A=B": "c"}},
				"env value":     {Args: words, Env: map[string]string{"A": "\x00"}},
				"shell of args": {Args: words, Shell: "/bin/sh"},
			} {
				if _, err := h.tryStart(h.ctx(bound), cmd); !errors.Is(err, terminal.ErrBadCommand) {
					h.Errorf("%s: Start(%+v): %v, want ErrBadCommand", what, cmd, err)
				}
			}
			if list := m.List(); len(list) > 0 || m.Busy() {
				h.Errorf("after failed starts: %d terminals, busy %v", len(list), m.Busy())
			}
		}},
	},
}
