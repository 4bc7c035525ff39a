// Package ctl is the command line of package control: a person or a script
// lists, reads, drives and waits for the terminals of a running agent.
//
//	termbridge ctl VERB [FLAGS] [ARGUMENTS]
//
// Any program can offer it:
//
//	p := ctl.Program{Name: "agent ctl", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
//	os.Exit(p.Main(ctx, os.Args[2:]))
//
// Nothing of it outlives the call, but the read of a terminal that was attached to,
// which ends with the process. A Program may run several command lines at once. See
// docs/control.md.
package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/termbridge/termbridge/control"
)

// Exit statuses.
const (
	ExitOK       = 0 // it was done
	ExitRefused  = 1 // the agent refused it, or it failed
	ExitUsage    = 2 // the command line makes no sense
	ExitNoAgent  = 3 // no agent answers
	ExitTimeout  = 4 // a wait took too long
	ExitEnded    = 5 // the session ended first
	ExitUnknown  = 6 // there is no such session or group
	ExitReadOnly = 7 // nothing can be typed there
)

// A Program is what Main is a part of: its name and its standard streams.
type Program struct {
	Name           string // as the user types it, such as "termbridge ctl"
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Main runs one command line, without the name of the program, and returns the
// exit status. The end of ctx ends it.
func (p Program) Main(ctx context.Context, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(p.Stderr, p.usage())
		return ExitUsage
	}
	switch args[0] {
	case "help", "--help", "-help", "-h":
		if len(args) > 1 {
			args = []string{args[1], "--help"}
			break
		}
		fmt.Fprint(p.Stdout, p.usage())
		return ExitOK
	case completeVerb:
		return p.complete(ctx, args[1:])
	}
	i := slices.IndexFunc(verbs, func(v verb) bool { return v.name == args[0] })
	if i < 0 {
		fmt.Fprintf(p.Stderr, "%s: there is no %q; %s --help lists what there is\n", p.Name, args[0], p.Name)
		return ExitUsage
	}
	c := &call{Program: p, verb: verbs[i], Context: ctx}
	help, err := c.parse(args[1:])
	switch {
	case help:
		fmt.Fprint(p.Stdout, c.help())
		return ExitOK
	case err == nil:
		err = c.verb.run(c)
	}
	return p.report(c, err)
}

// report prints an error and returns its exit status.
func (p Program) report(c *call, err error) int {
	if err == nil {
		return ExitOK
	}
	status := ExitRefused
	var refused *control.Error
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintf(p.Stderr, "%s %s: %v\n\n%s", p.Name, c.verb.name, err, c.help())
		return ExitUsage
	case errors.Is(err, control.ErrTimeout):
		status = ExitTimeout
	case errors.Is(err, control.ErrExited):
		status = ExitEnded
	case errors.Is(err, control.ErrUnknown), errors.Is(err, control.ErrNoGroup):
		status = ExitUnknown
	case errors.Is(err, control.ErrReadOnly):
		status = ExitReadOnly
	case errors.Is(err, control.ErrBadState):
		status = ExitUsage
	case !errors.As(err, &refused) && !errors.Is(err, errLocal):
		status = ExitNoAgent
	}
	fmt.Fprintf(p.Stderr, "%s %s: %v\n", p.Name, c.verb.name, err)
	return status
}

var (
	errUsage = errors.New("usage")            // of the command line
	errLocal = errors.New("on this terminal") // what the agent has nothing to do with
)

// An explained error is of a kind that its text does not name.
type explained struct {
	kind error
	text string
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.kind }

func misuse(format string, args ...any) error {
	return &explained{errUsage, fmt.Sprintf(format, args...)}
}

// A verb is one thing that can be asked for.
type verb struct {
	name, args string // args as the usage shows them
	text       string // what it does, in one line
	more       string // what else there is to know
	flags      func(c *call, fs *flag.FlagSet)
	flagHelp   string
	run        func(c *call) error
}

// A call is a verb with what the user gave it.
type call struct {
	Program
	context.Context
	verb     verb
	operands []string
	socket   string
	json     bool

	name, group, dir, state string
	tail                    int
	timeout                 time.Duration
	enter, write            bool
	detach                  byte
}

// parse reads flags, which may stand anywhere before "--", and operands.
func (c *call) parse(args []string) (help bool, err error) {
	fs := flag.NewFlagSet(c.verb.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&c.socket, "socket", os.Getenv(control.EnvSocket), "")
	fs.BoolVar(&c.json, "json", false, "")
	if c.verb.flags != nil {
		c.verb.flags(c, fs)
	}
	for {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			return true, nil
		} else if err != nil {
			return false, misuse("%s", flagName.ReplaceAllString(err.Error(), "${1}--$2"))
		}
		rest := fs.Args()
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" || len(rest) == 0 {
			c.operands = append(c.operands, rest...)
			return false, nil
		}
		c.operands, args = append(c.operands, rest[0]), rest[1:]
	}
}

// flagName is a flag in an error of package flag, which writes one dash where the
// help has two.
var flagName = regexp.MustCompile(`^(flag .*: |invalid .* for (?:flag )?)-([^-\s:]+)`)

// want returns an error unless there are so many operands; most -1 is any number.
func (c *call) want(least, most int) error {
	switch n := len(c.operands); {
	case n < least:
		return misuse("%s is missing", strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(c.verb.args))[n])
	case most >= 0 && n > most:
		return misuse("%q is one word too many", c.operands[most])
	}
	return nil
}

// path returns the socket to ask.
func (c *call) path() (string, error) {
	if c.socket != "" {
		return c.socket, nil
	}
	switch live := control.AutoPaths(); len(live) {
	case 1:
		return live[0], nil
	case 0:
		return "", errors.New("no agent was found: start one with --control auto, or name its socket by --socket or " + control.EnvSocket)
	default:
		return "", misuse("several agents were found; name one by --socket:\n  %s", strings.Join(live, "\n  "))
	}
}

// ask sends a request. A refusal is an error.
func (c *call) ask(req control.Request) (control.Response, error) {
	path, err := c.path()
	if err != nil {
		return control.Response{}, err
	}
	r, err := control.Call(c, path, req)
	if err == nil {
		err = r.Err()
	}
	return r, err
}

// do asks, and prints the answer if JSON is wanted, else what text returns.
func (c *call) do(req control.Request, text func(control.Response) string) error {
	r, err := c.ask(req)
	if err != nil {
		return err
	}
	if c.json {
		return c.print(r)
	}
	_, err = io.WriteString(c.Stdout, text(r))
	return local(err)
}

// print prints JSON.
func (c *call) print(v any) error {
	e := json.NewEncoder(c.Stdout)
	e.SetIndent("", "  ")
	return local(e.Encode(v))
}

// local marks an error that is not the agent's.
func local(err error) error {
	if err == nil {
		return nil
	}
	return &explained{errLocal, err.Error()}
}

// silent prints nothing.
func silent(control.Response) string { return "" }

var verbs = []verb{
	{
		name: "list", text: "show the terminals, in the order of their starts",
		flags:    func(c *call, fs *flag.FlagSet) { fs.StringVar(&c.group, "group", "", "") },
		flagHelp: "  --group GROUP   only those of a group\n",
		more:     "With --json: an array of SessionInfo.\n",
		run: func(c *call) error {
			if err := c.want(0, 0); err != nil {
				return err
			}
			r, err := c.ask(control.Request{Verb: control.VerbList, Group: c.group})
			switch {
			case err != nil:
				return err
			case c.json:
				return c.print(append([]control.SessionInfo{}, r.Sessions...))
			}
			return local(c.table(r.Sessions))
		},
	},
	{
		name: "read", args: "TERMINAL", text: "print the output of a terminal as plain text",
		flags:    func(c *call, fs *flag.FlagSet) { fs.IntVar(&c.tail, "tail", 0, "") },
		flagHelp: "  --tail N        only the last N lines\n",
		run: func(c *call) error {
			if err := c.want(1, 1); err != nil {
				return err
			}
			if c.tail < 0 {
				return misuse("--tail is a number of lines")
			}
			return c.do(control.Request{Verb: control.VerbRead, ID: c.operands[0], Tail: c.tail}, func(r control.Response) string {
				if r.Output != "" && !strings.HasSuffix(r.Output, "\n") {
					r.Output += "\n"
				}
				return r.Output
			})
		},
	},
	{
		name: "new", args: "[COMMAND…]", text: "start a shell, type a command into it, and print its id",
		more: "The shell goes on when the command has ended. Its first prompt is waited for.\n",
		flags: func(c *call, fs *flag.FlagSet) {
			fs.StringVar(&c.name, "name", "", "")
			fs.StringVar(&c.group, "group", "", "")
			fs.StringVar(&c.dir, "cwd", "", "")
		},
		flagHelp: "  --name NAME     call it NAME\n  --group GROUP   put it into a group\n  --cwd DIR       start it in DIR; by default where the agent works\n",
		run: func(c *call) error {
			dir := c.dir
			if dir != "" {
				var err error
				if dir, err = filepath.Abs(dir); err != nil {
					return local(err)
				}
			}
			req := control.Request{Verb: control.VerbNew, Name: c.name, Group: c.group, Cwd: dir, Command: strings.Join(c.operands, " ")}
			return c.do(req, func(r control.Response) string { return r.ID + "\n" })
		},
	},
	{
		name: "send", args: "TERMINAL TEXT…", text: "type text into a terminal, as it is",
		more: "The words of TEXT are joined by spaces; \"-\" reads the text from standard input.\n" +
			"Nothing is added to it, so Enter is yours: --enter, or a carriage return.\n",
		flags: enter, flagHelp: enterHelp,
		run: func(c *call) error {
			text, err := c.text()
			if err != nil {
				return err
			}
			return c.do(control.Request{Verb: control.VerbSend, ID: c.operands[0], Text: text}, silent)
		},
	},
	{
		name: "kill", args: "TERMINAL…", text: "end terminals, with all that they have started",
		run: func(c *call) error {
			if err := c.want(1, -1); err != nil {
				return err
			}
			var all []error
			for _, id := range c.operands {
				all = append(all, c.do(control.Request{Verb: control.VerbKill, ID: id}, silent))
			}
			return errors.Join(all...)
		},
	},
	{
		name: "rename", args: "TERMINAL NAME", text: "give a terminal another name",
		run: func(c *call) error {
			if err := c.want(2, 2); err != nil {
				return err
			}
			return c.do(control.Request{Verb: control.VerbRename, ID: c.operands[0], Name: c.operands[1]}, silent)
		},
	},
	{
		name: "group", args: "TERMINAL [GROUP]", text: "move a terminal into a group, or without GROUP out of its group",
		run: func(c *call) error {
			if err := c.want(1, 2); err != nil {
				return err
			}
			group := strings.Join(c.operands[1:], "")
			return c.do(control.Request{Verb: control.VerbGroup, ID: c.operands[0], Group: group}, silent)
		},
	},
	{
		name: "group-send", args: "GROUP TEXT…", text: "type text into every terminal of a group that runs",
		more:  "See send for TEXT. Prints how many terminals there were.\n",
		flags: enter, flagHelp: enterHelp,
		run: func(c *call) error {
			text, err := c.text()
			if err != nil {
				return err
			}
			return c.do(control.Request{Verb: control.VerbGroupSend, Group: c.operands[0], Text: text}, count)
		},
	},
	{
		name: "group-kill", args: "GROUP", text: "end every terminal of a group",
		more: "Prints how many terminals there were.\n",
		run: func(c *call) error {
			if err := c.want(1, 1); err != nil {
				return err
			}
			return c.do(control.Request{Verb: control.VerbGroupKill, Group: c.operands[0]}, count)
		},
	},
	{
		name: "wait", args: "[TERMINAL]", text: "wait until a terminal, or the first of a group, is in a state",
		more: "States:\n" +
			"  idle      a shell at its prompt, and nothing else runs in it\n" +
			"  working   a program runs and waits for nobody\n" +
			"  blocked   a program waits for input\n" +
			"  done      it has ended\n" +
			"Prints the terminal that is there; with --json, one SessionInfo.\n",
		flags: func(c *call, fs *flag.FlagSet) {
			fs.StringVar(&c.group, "group", "", "")
			fs.StringVar(&c.state, "state", "", "")
			fs.Func("timeout", "", func(s string) (err error) {
				c.timeout, err = duration(s)
				return err
			})
		},
		flagHelp: "  --group GROUP   instead of TERMINAL: the first of the group that is there\n" +
			"  --state STATE   idle, working, blocked or done\n" +
			fmt.Sprintf("  --timeout TIME  seconds, or such as 90s or 5m; %v by default\n", control.DefaultWaitTimeout),
		run: wait,
	},
	{
		name: "attach", args: "TERMINAL", text: "show a terminal on this one, live",
		more: "It is only watched, unless --write is given. Several may attach at the same time.\n" +
			"Without a terminal on both standard input and output, its output is copied.\n",
		flags: func(c *call, fs *flag.FlagSet) {
			fs.BoolVar(&c.write, "write", false, "")
			fs.BoolVar(&c.write, "w", false, "")
			c.detach = defaultDetach
			fs.Func("detach-key", "", func(s string) (err error) {
				c.detach, err = key(s)
				return err
			})
		},
		flagHelp: "  --write, -w     type into it, and set its size to that of this terminal\n" +
			"  --detach-key K  leave by this key, such as ctrl-a; " + keyName(defaultDetach) + " by default\n",
		run: attach,
	},
	{
		name: "completion", args: "SHELL", text: "print a script that completes verbs, terminals, groups and states",
		more: "SHELL is bash, zsh or fish. Put one of these into the shell's start file:\n" +
			"  eval \"$(PROGRAM completion bash)\"\n  eval \"$(PROGRAM completion zsh)\"\n  PROGRAM completion fish | source\n",
		run: completion,
	},
}

func enter(c *call, fs *flag.FlagSet) { fs.BoolVar(&c.enter, "enter", false, "") }

const enterHelp = "  --enter         press Enter behind the text\n"

// text returns the text of send and group-send, whose first operand says where
// it goes.
func (c *call) text() (string, error) {
	least := 2
	if c.enter {
		least = 1 // Enter alone
	}
	if err := c.want(least, -1); err != nil {
		return "", err
	}
	text := strings.Join(c.operands[1:], " ")
	if len(c.operands) == 2 && text == "-" {
		all, err := io.ReadAll(io.LimitReader(c.Stdin, control.MaxRequest+1))
		if err != nil {
			return "", local(err)
		}
		text = string(all)
	}
	if c.enter {
		text += "\r"
	}
	return text, nil
}

func count(r control.Response) string { return strconv.Itoa(r.Count) + "\n" }

// duration reads a time to wait: of whole seconds, as the protocol has it.
func duration(s string) (time.Duration, error) {
	if n, err := strconv.Atoi(s); err == nil {
		s = strconv.Itoa(n) + "s"
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d.Seconds() > 1<<31 {
		return 0, errors.New("it is seconds, or such as 90s or 5m")
	}
	return d, nil
}

func wait(c *call) error {
	least := 1
	if c.group != "" {
		least = 0
	}
	if err := c.want(least, least); err != nil {
		return err
	}
	if c.state == "" {
		return misuse("--state is missing")
	}
	req := control.Request{
		Verb: control.VerbWait, ID: strings.Join(c.operands, ""), Group: c.group, State: c.state,
		Timeout: int((c.timeout + time.Second - 1) / time.Second),
	}
	r, err := c.ask(req)
	switch {
	case err != nil:
		return err
	case len(r.Sessions) != 1:
		return local(fmt.Errorf("the agent names %d terminals", len(r.Sessions)))
	case c.json:
		return c.print(r.Sessions[0])
	}
	return local(c.table(r.Sessions))
}

// usage lists the verbs.
func (p Program) usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s VERB [FLAGS] [ARGUMENTS]\n\nLooks into a running agent, and drives its terminals.\n\n", p.Name)
	for _, v := range verbs {
		fmt.Fprintf(&b, "  %-28s %s\n", strings.TrimSpace(v.name+" "+v.args), v.text)
	}
	fmt.Fprintf(&b, `
TERMINAL is an id or a name, as list shows them. In a command of the agent,
$%s is its own.

Flags of every verb:
%s  --help          say more about a verb

Exit status: 0 done; 1 refused, or it failed; 2 the command line makes no sense;
3 no agent answers; 4 a wait timed out; 5 the terminal ended first; 6 no such
terminal or group; 7 nothing can be typed there.
`, control.EnvTerminal, commonHelp)
	return b.String()
}

const commonHelp = "  --socket PATH   the agent's socket; $" + control.EnvSocket + " by default, or else that of\n" +
	"                  the only agent which was started with --control auto\n" +
	"  --json          print JSON, for scripts\n"

// help says all about the verb.
func (c *call) help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s\n\n%s.\n", strings.TrimSpace(c.Name+" "+c.verb.name+" [FLAGS] "+c.verb.args), strings.ToUpper(c.verb.text[:1])+c.verb.text[1:])
	if c.verb.more != "" {
		fmt.Fprintf(&b, "\n%s", strings.ReplaceAll(c.verb.more, "PROGRAM", c.Name))
	}
	fmt.Fprintf(&b, "\nFlags:\n%s%s", c.verb.flagHelp, commonHelp)
	if e := examples[c.verb.name]; e != "" {
		fmt.Fprintf(&b, "\nExample:\n  %s\n", strings.ReplaceAll(e, "PROGRAM", c.Name))
	}
	return b.String()
}

var examples = map[string]string{
	"list":       "PROGRAM list --json | jq -r '.[] | select(.agent_state == \"blocked\") | .name'",
	"read":       "PROGRAM read web --tail 20",
	"new":        "PROGRAM new --name web --group dev -- npm start",
	"send":       "PROGRAM send repl --enter 'print(6 * 7)'",
	"kill":       "PROGRAM kill web",
	"rename":     "PROGRAM rename t3 web",
	"group":      "PROGRAM group web dev",
	"group-send": "printf '\\003' | PROGRAM group-send dev -",
	"group-kill": "PROGRAM group-kill dev",
	"wait":       "PROGRAM wait --group dev --state blocked --timeout 5m",
	"attach":     "PROGRAM attach --write web",
	"completion": "eval \"$(PROGRAM completion bash)\"",
}
