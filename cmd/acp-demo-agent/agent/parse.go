package agent

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/shellwords"
	"github.com/termbridge/termbridge/terminal"
)

// A verb is what a line asks for.
type verb string

const (
	verbRun    verb = "run"
	verbBg     verb = "bg"
	verbJobs   verb = "jobs"
	verbOutput verb = "output"
	verbInput  verb = "input"
	verbScreen verb = "screen"
	verbKeys   verb = "keys"
	verbWait   verb = "wait"
	verbKill   verb = "kill"
	verbEnv    verb = "env"
	verbProbe  verb = "probe"
	verbHelp   verb = "help"
)

// verbs are all verbs, in the order of the help text.
var verbs = []struct {
	verb verb
	form string // of its line
	does string
}{
	{verbRun, "run [--name NAME] [--group GROUP] [--on NAME] [--background-after 2s] [--timeout 5s] [--dir D] [--env K=V]… [--argv] [--limit BYTES] [--input] -- LINE", "Run a shell line and wait for it"},
	{verbBg, "bg [--name NAME] [--group GROUP] [--on NAME] [--timeout 5s] [--dir D] [--env K=V]… [--argv] [--limit BYTES] [--input] -- LINE", "Run a shell line in the background"},
	{verbJobs, "jobs", "List what runs, and ran, in the background"},
	{verbOutput, "output ID [--since CURSOR] [--wait 2s]", "Read output of a command"},
	{verbInput, "input ID TEXT", "Write to a command that takes input"},
	{verbScreen, "screen ID [--until TEXT] [--wait 5s]", "Show the screen of a full-screen program"},
	{verbKeys, "keys ID NAME…", "Press keys, such as Up, Enter and C-c"},
	{verbWait, "wait ID|--group GROUP [--state STATE] [--timeout 10s]", "Wait for the end of a command, or for another state"},
	{verbKill, "kill ID", "End a command and all that it has started"},
	{verbEnv, "env", "List where commands can run, for --on"},
	{verbProbe, "probe [--save FILE]", "Examine how this client treats terminals"},
	{verbHelp, "help", "Say what else can be asked"},
}

// form returns the form of a verb's line, "" if it is no verb.
func (v verb) form() string {
	for _, known := range verbs {
		if known.verb == v {
			return known.form
		}
	}
	return ""
}

// parallelLine, as the first line of a prompt, makes the others run at once.
const parallelLine = "parallel"

// errUnknownLine is parse's error for a line that starts with no verb.
var errUnknownLine = errors.New("unknown line")

// A request is one line of a prompt, understood.
type request struct {
	verb  verb
	title string           // for the card: the command, else the line
	cmd   terminal.Command // run, bg
	id    string           // output, input, screen, keys, wait, kill: an id or a name
	since int64            // output
	wait  time.Duration    // output, screen, wait
	text  string           // input, and what screen waits for
	names []string         // keys
	file  string           // probe
	group string           // wait
	state control.State    // wait, "" is the end of the command

	backgroundAfter time.Duration // run; 0 is never
}

// splitPrompt returns the lines of a prompt that are not blank, and whether
// they run at once.
func splitPrompt(prompt string) (lines []string, parallel bool) {
	for line := range strings.Lines(prompt) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 && strings.TrimSpace(lines[0]) == parallelLine {
		return lines[1:], true
	}
	return lines, false
}

// parse understands one line. Its errors say what is wrong and what would be
// right; the request has its verb and title even then, unless the error is
// errUnknownLine.
func parse(line string) (request, error) {
	line = strings.TrimLeft(line, " \t")
	req := request{title: strings.TrimSpace(line)}
	if shellLine, ok := strings.CutPrefix(line, "!"); ok {
		req.verb = verbRun
		return req, req.command(shellLine, false)
	}
	word, rest := cutWord(line)
	req.verb = verb(strings.TrimPrefix(word, "/")) // as editors write a command
	form := req.verb.form()
	if form == "" {
		return request{}, errUnknownLine
	}
	if err := req.arguments(rest); err != nil {
		return req, fmt.Errorf("%s: %w (usage: %s)", req.verb, err, form)
	}
	return req, nil
}

// cutWord cuts line behind its first word and one blank.
func cutWord(line string) (word, rest string) {
	i := strings.IndexAny(line, " \t")
	if i < 0 {
		return line, ""
	}
	return line[:i], line[i+1:]
}

// arguments reads what follows the verb.
func (r *request) arguments(rest string) error {
	switch r.verb {
	case verbRun, verbBg:
		return r.runArguments(rest)
	case verbInput:
		id, text := cutWord(strings.TrimLeft(rest, " \t"))
		if id == "" {
			return errNoID
		}
		if text == "" {
			return errors.New(`no text: end it with \n to press Enter`)
		}
		r.id = id
		var err error
		r.text, err = unescape(text)
		return err
	case verbOutput:
		return r.idArguments(rest, map[string]func(string) error{
			"--since": func(v string) (err error) { r.since, err = parseCursor(v); return },
			"--wait":  func(v string) (err error) { r.wait, err = parseDuration(v); return },
		})
	case verbScreen:
		return r.idArguments(rest, map[string]func(string) error{
			"--until": func(v string) error { r.text = v; return nil },
			"--wait":  func(v string) (err error) { r.wait, err = parseDuration(v); return },
		})
	case verbKeys:
		words := strings.Fields(rest)
		if len(words) == 0 {
			return errNoID
		}
		if r.id, r.names = words[0], words[1:]; len(r.names) == 0 {
			return errors.New("no key: write names such as Up, Enter, C-c, or a character")
		}
		return nil
	case verbWait:
		return r.waitArguments(rest)
	case verbKill:
		return r.idArguments(rest, nil)
	case verbProbe:
		return r.probeArguments(rest)
	}
	if extra := strings.TrimSpace(rest); extra != "" {
		return fmt.Errorf("%q is one thing too many", extra)
	}
	return nil
}

// runArguments reads [flags] -- LINE.
func (r *request) runArguments(rest string) error {
	argv := false
	values := map[string]func(string) error{
		"--name":    func(v string) error { return r.label(control.NameLabel, v) },
		"--group":   func(v string) error { return r.label(control.GroupLabel, v) },
		"--timeout": func(v string) (err error) { r.cmd.Timeout, err = parseDuration(v); return },
		"--dir":     func(v string) error { r.cmd.Dir = v; return nil },
		"--env":     r.env,
		"--on":      func(v string) error { r.cmd.Environment = v; return nil },
		"--limit":   func(v string) (err error) { r.cmd.OutputLimit, err = parseLimit(v); return },
	}
	if r.verb == verbRun {
		values["--background-after"] = func(v string) (err error) {
			if r.backgroundAfter, err = parseDuration(v); err == nil && r.backgroundAfter == 0 {
				err = errors.New("at once is what bg is for")
			}
			return err
		}
	}
	line, found, err := flags{
		on:    map[string]*bool{"--argv": &argv, "--input": &r.cmd.Stdin},
		value: values,
		word: func(w string) error {
			return fmt.Errorf("%q stands where only flags do: the command goes after --", w)
		},
	}.take(rest)
	if err != nil {
		return err
	}
	if !found {
		return errors.New("no command: it goes after --")
	}
	return r.command(line, argv)
}

// command sets the command that is to run.
func (r *request) command(line string, argv bool) error {
	if strings.TrimSpace(line) == "" {
		return errors.New("the command is empty: write it behind ! or --")
	}
	r.title = strings.TrimSpace(line)
	if r.cmd.OutputLimit == 0 {
		r.cmd.OutputLimit = limits.DefaultResultLimit
	}
	if !argv {
		r.cmd.Line = line
		return r.cmd.Check()
	}
	words, err := shellwords.Split(line)
	if err != nil {
		return fmt.Errorf("--argv: %w", err)
	}
	r.cmd.Args = words
	return r.cmd.Check()
}

// label sets a label of the command.
func (r *request) label(name, v string) error {
	if strings.TrimSpace(v) == "" || strings.ContainsFunc(v, unicode.IsControl) || len(v) > maxName {
		return fmt.Errorf("%q is no name: it is one line of at most %d bytes", v, maxName)
	}
	if r.cmd.Labels == nil {
		r.cmd.Labels = map[string]string{}
	}
	r.cmd.Labels[name] = strings.TrimSpace(v)
	return nil
}

// maxName is how many bytes the name of a command or group has at most.
const maxName = 256

// waitArguments reads ID or --group, --state and --timeout.
func (r *request) waitArguments(rest string) error {
	r.wait = await.Forever
	err := r.idArguments(rest, map[string]func(string) error{
		"--group":   func(v string) error { r.group = strings.TrimSpace(v); return nil },
		"--state":   func(v string) (err error) { r.state, err = control.ParseState(v); return },
		"--timeout": func(v string) (err error) { r.wait, err = parseDuration(v); return },
	})
	switch {
	case errors.Is(err, errNoID) && r.group != "":
		err = nil
	case err == nil && r.group != "":
		err = errors.New("it waits for an ID or for a --group")
	}
	if err == nil && r.group != "" && r.state == "" {
		r.state = control.Done
	}
	return err
}

// env adds one --env.
func (r *request) env(v string) error {
	name, value, ok := strings.Cut(v, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q is not NAME=VALUE", v)
	}
	if r.cmd.Env == nil {
		r.cmd.Env = map[string]string{}
	}
	r.cmd.Env[name] = value
	return nil
}

var errNoID = errors.New("no ID: it is what bg returned; jobs lists them")

// idArguments reads an ID and flags, in any order.
func (r *request) idArguments(rest string, values map[string]func(string) error) error {
	_, dashes, err := flags{value: values, word: func(w string) error {
		if r.id != "" {
			return fmt.Errorf("%q is one thing too many", w)
		}
		r.id = w
		return nil
	}}.take(rest)
	switch {
	case err != nil:
		return err
	case dashes:
		return errors.New("-- goes with run and bg only")
	case r.id == "":
		return errNoID
	}
	return nil
}

// flags are the flags of a line by their names, dashes included.
type flags struct {
	on    map[string]*bool
	value map[string]func(string) error
	word  func(string) error // takes the words that are no flags
}

// take reads the flags and words of line up to its end or to the word "--". It
// returns what stands behind the "--" and one blank, and whether there was one.
func (f flags) take(line string) (behind string, dashes bool, err error) {
	for {
		word, rest, ok, err := shellwords.Next(line)
		switch {
		case err != nil:
			return "", false, fmt.Errorf("%w in %q", err, strings.TrimSpace(line))
		case !ok:
			return "", false, nil
		case word == "--":
			if rest != "" {
				rest = rest[1:]
			}
			return rest, true, nil
		case strings.HasPrefix(word, "-"):
			rest, err = f.set(word, rest)
		default:
			err = f.word(word)
		}
		if err != nil {
			return "", false, err
		}
		line = rest
	}
}

// set sets the flag that word is, with a value from word or from rest, and
// returns what is left of rest.
func (f flags) set(word, rest string) (string, error) {
	name, value, hasValue := strings.Cut(word, "=")
	if on := f.on[name]; on != nil {
		if hasValue {
			return "", fmt.Errorf("%s takes no value", name)
		}
		*on = true
		return rest, nil
	}
	set := f.value[name]
	if set == nil {
		return "", fmt.Errorf("there is no flag %s", name)
	}
	if !hasValue {
		var ok bool
		var err error
		value, rest, ok, err = shellwords.Next(rest)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if !ok || value == "--" {
			return "", fmt.Errorf("%s needs a value", name)
		}
	}
	if err := set(value); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return rest, nil
}

// parseDuration reads a duration as Go writes it, or plain seconds.
func parseDuration(s string) (time.Duration, error) {
	plain := s
	if s != "" && strings.Trim(s, "0123456789.") == "" {
		plain += "s"
	}
	d, err := time.ParseDuration(plain)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration: write 5s, 1m30s, 500ms or plain seconds", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	return d, nil
}

func parseCursor(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no cursor: write the nextCursor of an earlier output, or 0", s)
	}
	return n, nil
}

func parseLimit(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is no number of bytes: write a plain number such as 51200", s)
	}
	return n, nil
}

// unescape replaces the escapes of Go string literals. Quotes stand for
// themselves, with a backslash or without.
func unescape(s string) (string, error) {
	var b strings.Builder
	for s != "" {
		if len(s) > 1 && s[0] == '\\' && (s[1] == '"' || s[1] == '\'') {
			b.WriteByte(s[1])
			s = s[2:]
			continue
		}
		r, multibyte, tail, err := strconv.UnquoteChar(s, 0)
		if err != nil {
			_, size := utf8.DecodeRuneInString(s[1:])
			return "", fmt.Errorf(`bad escape %q: write \n \r \t \\ \x03 \u00e9 as in Go, and \\ for a backslash`, s[:1+size])
		}
		if multibyte {
			b.WriteRune(r)
		} else {
			b.WriteByte(byte(r))
		}
		s = tail
	}
	return b.String(), nil
}
