package agent

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/shellwords"
)

// A RunInput is the rawInput of run and bg: all that decides what runs, and how.
// What is left out is as usual: a shell line of the session, in the foreground.
type RunInput struct {
	// Command is the shell line, or the words of Argv as one would quote them.
	Command string   `json:"command"`
	Cwd     string   `json:"cwd"` // "" is where the environment begins
	Shell   string   `json:"shell,omitempty"`
	Argv    []string `json:"argv,omitempty"` // the words, if no shell runs them

	// Env is laid over the environment that commands have.
	Env map[string]string `json:"env,omitempty"`

	// Environment is where it runs, Input that it takes input, and so runs locally.
	Environment string `json:"environment,omitempty"`
	Input       bool   `json:"input,omitempty"`

	Background bool `json:"background,omitempty"`
	// Durations are Go's.
	BackgroundAfter string `json:"backgroundAfter,omitempty"`
	Timeout         string `json:"timeout,omitempty"`

	OutputLimit int `json:"outputLimit,omitempty"` // bytes that are kept
}

// card is the tool call of a line, without an id, in a session with this
// directory. It is what a user who is asked decides by, so the title has what is
// unusual about a command, and has it before the command, whose end may be cut
// off.
func (r request) card(cwd string) acp.SessionUpdateToolCall {
	if r.verb != verbRun && r.verb != verbBg {
		return acp.SessionUpdateToolCall{
			Title: r.title, Kind: acp.ToolKindOther, RawInput: map[string]any{"line": r.title},
		}
	}
	in := RunInput{
		Command:         cmp.Or(r.cmd.String(), r.title),
		Cwd:             r.cmd.Dir,
		Shell:           r.cmd.Shell,
		Argv:            r.cmd.Args,
		Env:             r.cmd.Env,
		Environment:     r.cmd.Environment,
		Input:           r.cmd.Stdin,
		Background:      r.verb == verbBg,
		BackgroundAfter: unlessZero(r.backgroundAfter),
		Timeout:         unlessZero(r.cmd.Timeout),
	}
	if !r.elsewhere() {
		in.Cwd = cmp.Or(in.Cwd, cwd)
	}
	if r.cmd.OutputLimit != limits.DefaultResultLimit {
		in.OutputLimit = r.cmd.OutputLimit
	}
	title := r.title
	if unusual := in.unusual(cwd); len(unusual) > 0 {
		title = "[" + strings.Join(unusual, ", ") + "] " + title
	}
	return acp.SessionUpdateToolCall{Title: title, Kind: acp.ToolKindExecute, RawInput: in}
}

// unusual names what the command itself does not show, for a title.
func (in RunInput) unusual(cwd string) (parts []string) {
	add := func(is bool, words string) {
		if is {
			parts = append(parts, words)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Env)) {
		add(true, name+"="+shellwords.Quote(in.Env[name]))
	}
	add(in.Cwd != "" && filepath.Clean(in.Cwd) != filepath.Clean(cwd), "in "+shellwords.Quote(in.Cwd))
	add(in.Shell != "", "shell "+in.Shell)
	add(in.Argv != nil, "no shell")
	add(in.Environment != "", "on "+in.Environment)
	add(in.Input, "takes input")
	add(in.Background, "in the background")
	add(in.BackgroundAfter != "", "in the background after "+in.BackgroundAfter)
	add(in.Timeout != "", "timeout "+in.Timeout)
	return parts
}

func unlessZero(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
