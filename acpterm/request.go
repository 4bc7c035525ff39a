package acpterm

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// maxSnapshot is the most output that is asked of a client at once: SDK 0.13
// ends the connection at a line of 10 MiB, and a control byte grows sixfold in
// JSON.
const maxSnapshot = 3 << 19 // 1.5 MiB

// request returns the terminal/create for cmd, or an error that says what is
// wrong with it.
func (m *Manager) request(p peer, cmd terminal.Command, tag string) (acp.CreateTerminalRequest, error) {
	none := acp.CreateTerminalRequest{}
	if err := cmd.Check(); err != nil {
		return none, fmt.Errorf("acpterm: %w", err)
	}
	if cmd.Environment != "" && cmd.Environment != Environment {
		return none, fmt.Errorf("acpterm: %w: environment %q: here is only %q", terminal.ErrBadCommand, cmd.Environment, Environment)
	}
	if cmd.Stdin {
		return none, fmt.Errorf("acpterm: %w: an ACP client's terminal has none", terminal.ErrNoInput)
	}
	dir := cmd.Dir
	if dir == "" {
		dir = m.options.Dir
	}
	if dir == "" {
		return none, fmt.Errorf("acpterm: %w: no directory: give an absolute path", terminal.ErrBadCommand)
	}
	limit := min(m.limit(cmd)+m.options.more, maxSnapshot)
	req := acp.CreateTerminalRequest{
		SessionId:       p.session,
		Cwd:             &dir,
		OutputByteLimit: &limit,
	}
	req.Command, req.Args = m.options.Profile.words(cmd)
	for _, name := range slices.Sorted(maps.Keys(cmd.Env)) {
		req.Env = append(req.Env, acp.EnvVariable{Name: name, Value: cmd.Env[name]})
	}
	if tag != "" {
		name, value := m.options.Host.Env(tag)
		req.Env = append(req.Env, acp.EnvVariable{Name: name, Value: value})
	}
	switch line, err := json.Marshal(req); {
	case err != nil:
		return none, fmt.Errorf("acpterm: %w: %w", terminal.ErrBadCommand, err)
	case len(line) > limits.MaxCreate:
		return none, fmt.Errorf("acpterm: %w: the command takes %d bytes of at most %d", terminal.ErrTooLarge, len(line), limits.MaxCreate)
	}
	return req, nil
}

// limit returns how many bytes of a command's output are kept.
func (m *Manager) limit(cmd terminal.Command) int {
	if cmd.OutputLimit > 0 {
		return cmd.OutputLimit
	}
	return m.options.OutputLimit
}

const shell = "/bin/sh"

// words returns the command and args of terminal/create. A command of ours has no
// input: clients leave an open pipe or a terminal there, and cat would wait for
// ever.
func (p Profile) words(cmd terminal.Command) (command string, args []string) {
	words := cmd.Args
	switch cmd.Shell {
	case "", "sh", shell:
	default:
		words = []string{cmd.Shell, "-c", cmd.Line}
	}
	if p.Form == FormExec && words != nil {
		return words[0], words[1:]
	}
	var line string
	switch {
	case p.Group:
		if words == nil {
			words = []string{shell, "-c", cmd.Line}
		}
		line = noInput + ";" + fmt.Sprintf(inGroup, quote(words))
	case words != nil:
		line = "exec " + quote(words) + " </dev/null" // exec, so that a kill reaches the program
	default:
		line = noInput + ";" + cmd.Line
		if strings.ContainsAny(cmd.Line, "#\n") {
			// Some clients put the line into ( ), of which a comment, or the end of
			// a here-document, would swallow the ")".
			line += "\n"
		}
	}
	switch p.Form {
	case FormLine:
		return line, nil
	case FormExec:
		return shell, []string{"-c", line}
	}
	return shell, []string{"-c", ":;" + line}
}

// noInput empties the standard input of the shell that runs it.
const noInput = "exec </dev/null"

// inGroup runs words in a process group of their own, where there is a setsid. The
// shell hands on the signal that it gets, whenever that is, and exits as they do: a
// wait that the signal has interrupted is made again.
const inGroup = `command -v setsid >/dev/null||setsid() { "$@"; };` +
	`p=;t=;k() { { kill -s TERM -- -$p||kill -s TERM $p; } 2>/dev/null; };trap 't=1;[ $p ]&&k' TERM HUP;` +
	`setsid %s & p=$!;[ $t ]&&k;` +
	`wait $p;s=$?;while [ $t ];do t=;wait $p;r=$?;[ $r = 127 ]||s=$r;done;exit $s`

// quote quotes every word, plain ones too, so that none of them is an alias, a
// keyword or an assignment.
func quote(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteByte('\'')
		b.WriteString(strings.ReplaceAll(w, "'", `'\''`))
		b.WriteByte('\'')
	}
	return b.String()
}
