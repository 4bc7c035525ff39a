package agent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// helpText says what may be asked. It is Markdown, since editors show agent
// messages so.
const helpText = "Each line of a prompt is one of:\n" +
	"\n```\n" +
	"!LINE                      run a shell line and wait for it\n" +
	"run [flags] -- LINE        the same, with flags\n" +
	"bg [flags] -- LINE         run it in the background; says its ID\n" +
	"jobs                       list what bg started\n" +
	"output ID [--since CURSOR] [--wait 2s]\n" +
	"input ID TEXT              TEXT takes \\n, \\x03 and the other escapes of Go\n" +
	"screen ID [--until TEXT]   show the screen of a full-screen program\n" +
	"keys ID NAME…              press keys: Up, Enter, C-c, F10, q\n" +
	"wait ID [--timeout 10s]    wait for the end; never ends it\n" +
	"wait ID|--group G --state idle|working|blocked|done\n" +
	"kill ID\n" +
	"env                        list where commands can run\n" +
	"probe [--save FILE]        examine how this client treats terminals\n" +
	"help\n" +
	"\n" +
	"run, too:  --background-after 2s (then it goes on as bg does)\n" +
	"flags:  --timeout 5s  --dir /abs/dir  --env K=V (more than once)\n" +
	"        --limit BYTES (51200)  --input (takes input; runs locally)\n" +
	"        --on NAME (an environment of --env; env lists them)\n" +
	"        --name NAME (an ID for the lines above)  --group GROUP\n" +
	"        --argv (LINE is split into words, nothing is expanded)\n" +
	"```\n\n" +
	"Lines run in order, and one that fails does not stop the rest. " +
	"If the first line is `parallel`, the others run at once.\n"

// unknownLine answers a line that starts with no verb.
func unknownLine(line string) string {
	return fmt.Sprintf("I do not know what to do with %s. To run it, write `!` before it; `help` lists what else I take.\n",
		code(line))
}

// nothingAsked answers a prompt without a line.
const nothingAsked = "There is no line to run. Write a shell line behind `!`, such as `!go version`, or `help`.\n"

// code quotes a line as Markdown code, cut to a sensible length.
func code(line string) string {
	line = strings.TrimSpace(line)
	if short := text.Head(line, 60); len(short) < len(line) {
		line = short + "…"
	}
	return "`" + strings.ReplaceAll(line, "`", "'") + "`"
}

// fenced is an output as Markdown that shows it as it is.
func fenced(output string) string {
	if output == "" {
		return "no output"
	}
	fence := "```"
	for strings.Contains(output, fence) {
		fence += "`"
	}
	return fence + "\n" + strings.TrimSuffix(output, "\n") + "\n" + fence
}

// describe says in one line how a command stands.
func describe(title string, r Report) string {
	i := r.info()
	if title == i.ID {
		i.ID = "" // once is enough
	}
	s := code(title) + " " + i.String()
	if r.Unknown && !r.unconfirmed() {
		s += "; whether all that it had started has ended, the client does not say"
	}
	return s + ".\n"
}

// advice says what to do about an error whose text does not.
func advice(err error) string {
	var refused *acp.RequestError
	switch {
	case err == nil:
	case errors.Is(err, terminal.ErrTooMany):
		return "end one with kill ID, or wait for one with wait ID"
	case errors.Is(err, acpterm.ErrBadReply):
		return "update the client, or start the agent with --policy local"
	case errors.As(err, &refused):
		return "the command did not run: allow it in the client, or start the agent with --policy local"
	case errors.Is(err, terminal.ErrNoInput):
		return "commands with input run locally: start the agent with --policy prefer or local"
	case errors.Is(err, execenv.ErrNoCommand):
		return "check the name, or give the program's absolute path"
	}
	return ""
}

// count writes "1 byte", "2 bytes".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
