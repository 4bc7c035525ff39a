package memterm

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/termbridge/termbridge/internal/shellwords"
	"github.com/termbridge/termbridge/terminal"
)

// resolve finds the Program of a command and its words. Words name a program
// that must be there; a line always starts, since the shell that would report
// a missing program has.
func (m *Manager) resolve(cmd terminal.Command) (args []string, prog Program, err error) {
	if cmd.Line == "" {
		return m.words(cmd.Args)
	}
	args, prog = m.line(cmd.Line)
	return args, prog, nil
}

// words finds the Program of words.
func (m *Manager) words(args []string) ([]string, Program, error) {
	if prog, ok := m.opts.Programs[args[0]]; ok {
		return args, prog, nil
	}
	if name := path.Base(args[0]); name == "sh" && len(args) >= 3 && args[1] == "-c" {
		args, prog := m.line(args[2])
		return args, prog, nil
	}
	return nil, nil, fmt.Errorf("no such program: %w", fs.ErrNotExist)
}

// line finds the Program of a shell line: one simple command, of which quotes
// are the only syntax. The portable form of a command has more, which is dropped:
// ":;" in front, exec, and </dev/null, which is what there is without Stdin.
func (m *Manager) line(line string) ([]string, Program) {
	line = strings.TrimPrefix(strings.TrimSpace(line), ":;")
	line = strings.TrimPrefix(line, "exec </dev/null;")
	line = strings.TrimSuffix(line, " </dev/null")
	args, err := shellwords.Split(line)
	if err != nil {
		return []string{"sh"}, complain(2, "sh: syntax error: %v", err)
	}
	if len(args) > 0 && args[0] == "exec" {
		args = args[1:]
	}
	if len(args) == 0 {
		return []string{"sh"}, func(*Process) terminal.Exit { return Code(0) }
	}
	found, prog, err := m.words(args)
	if err != nil {
		return args, complain(127, "sh: %s: not found", args[0])
	}
	return found, prog
}

// complain returns a Program that prints a message and exits with code.
func complain(code int, format string, args ...any) Program {
	return func(p *Process) terminal.Exit {
		io.WriteString(p.Stderr, fmt.Sprintf(format, args...)+"\n")
		return Code(code)
	}
}
