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
	args, prog = m.line([]string{"/bin/sh", "-c", cmd.Line})
	return args, prog, nil
}

// words finds the Program of words.
func (m *Manager) words(args []string) ([]string, Program, error) {
	if prog, ok := m.opts.Programs[args[0]]; ok {
		return args, prog, nil
	}
	if IsShell(args) {
		args, prog := m.line(args)
		return args, prog, nil
	}
	return nil, nil, fmt.Errorf("no such program: %w", fs.ErrNotExist)
}

// IsShell reports whether argv is a shell with a line: "sh", "-c", LINE.
func IsShell(argv []string) bool {
	name := path.Base(argv[0])
	return (name == "sh" || name == "bash") && len(argv) >= 3 && argv[1] == "-c"
}

// find is Process.Find.
func (m *Manager) find(argv ...string) (Program, error) {
	args, prog, err := m.words(argv)
	if err != nil {
		return nil, fmt.Errorf("memterm: %q: %w", argv[0], err)
	}
	return func(p *Process) terminal.Exit {
		m.count(args[0])
		q := *p
		q.Args = args
		return prog(&q)
	}, nil
}

// operators are the characters of a line that is more than a simple command.
const operators = "|&;<>()$`*?[#~\n"

// line finds the Program of a shell with a line: for a simple command, of which quotes
// are the only syntax, what it names, since shells become the only command of theirs.
// The portable form of one is understood: ":;" in front, exec, and </dev/null.
func (m *Manager) line(shell []string) ([]string, Program) {
	line := strings.TrimPrefix(strings.TrimSpace(shell[2]), ":;")
	line, first := strings.CutPrefix(line, "exec </dev/null;")
	line, last := strings.CutSuffix(line, " </dev/null")
	args, err := shellwords.Split(line)
	if len(args) > 0 && args[0] == "exec" {
		args = args[1:]
	}
	if m.opts.Shell != nil && (err != nil || len(args) == 0 || m.opts.Programs[args[0]] == nil || strings.ContainsAny(line, operators)) {
		return shell, m.opts.Shell
	}
	switch {
	case err != nil:
		return []string{"sh"}, complain(2, "sh: syntax error: %v", err)
	case len(args) == 0:
		return []string{"sh"}, func(*Process) terminal.Exit { return Code(0) }
	}
	found, prog, err := m.words(args)
	if err != nil {
		return args, complain(127, "sh: %s: not found", args[0])
	}
	if first || last {
		return found, func(p *Process) terminal.Exit {
			q := *p
			q.Stdin = reader{stopped: p.Stopped}
			return prog(&q)
		}
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
