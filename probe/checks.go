package probe

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"
)

// Sentences of the specification, ACP v1, "Terminals".
const (
	specCreate   = "The terminal/create method starts a command in a new terminal."
	specArgs     = "args: Array of command arguments."
	specCwd      = "cwd: Working directory for the command (absolute path)."
	specEnv      = "env: Environment variables for the command."
	specLimit    = "When the limit is exceeded, the Client truncates from the beginning of the output to stay within the limit."
	specRunes    = "The Client MUST ensure truncation happens at a character boundary to maintain valid string output."
	specOutput   = "output: The terminal output captured so far."
	specNoWait   = "The terminal/output method retrieves the current terminal output without waiting for the command to complete."
	specFlag     = "truncated: Whether the output was truncated due to byte limits."
	specStatus   = "exitStatus: Present only if the command has exited."
	specExit     = "The terminal/wait_for_exit method returns once the command completes."
	specCode     = "exitCode: The process exit code (may be null if terminated by signal)."
	specSignal   = "signal: The signal that terminated the process (may be null if exited normally)."
	specKill     = "The terminal/kill method terminates a command without releasing the terminal."
	specValid    = "After killing a command, the terminal remains valid and can be used with: terminal/output to get the final output, terminal/wait_for_exit to get the exit status."
	specRelease  = "The terminal/release kills the command if still running and releases all resources."
	specReleased = "After release the terminal ID becomes invalid for all other terminal/* methods."
	specID       = "terminalId: The ID of the terminal."
	specReply    = "The Server MUST reply (JSON-RPC 2.0); a request that is cancelled has an answer, too (ACP, Cancellation)."
	specInput    = "ACP has no method that writes to a command or ends its input: one that reads it never completes."
)

// Forms of a command.
const (
	formArgv   = "argv"
	formQuoted = "quoted"
	formJoined = "joined"
	formLine   = "shell line"
)

// checks are all that is examined, in the order of a report.
var checks = []struct{ name, title string }{
	{"terminal", "Terminals are offered"},
	{"display", "Display-only terminals are offered"},
	{"start", "A command is started"},
	{"command", "Command form"},
	{"line", "A line in command, without args"},
	{"missing-program", "A program that does not exist"},
	{"missing-directory", "A directory that does not exist"},
	{"directory", "Directory of a command"},
	{"default-directory", "Directory of a command that names none"},
	{"env", "Environment"},
	{"env-names", "Variables that are often refused"},
	{"input", "Standard input"},
	{"line-ends", "Ends of lines"},
	{"output-at-exit", "Output when the exit is reported"},
	{"buffer", "An output that is read again"},
	{"running-output", "Output of a command that runs"},
	{"exit-status", "Exit status in terminal/output"},
	{"exit-code", "Exit code"},
	{"signal", "Exit by a signal"},
	{"held-output", "A child in the background holds the output"},
	{"split-character", "A character in two writes"},
	{"default-limit", "Limit of an output that names none"},
	{"limit", "outputByteLimit"},
	{"truncation", "Truncated end"},
	{"characters", "Truncation between characters"},
	{"truncated", "The flag truncated"},
	{"reply-size", "Largest reply"},
	{"kill", "terminal/kill"},
	{"kill-children", "Kill: children of the command"},
	{"kill-stubborn", "Kill: a command that ignores SIGTERM"},
	{"after-kill", "The terminal after a kill"},
	{"release", "terminal/release of a command that runs"},
	{"released-id", "The id after the release"},
	{"second-release", "A second release"},
	{"unknown-id", "An unknown id"},
	{"wrong-session", "An id in another session"},
	{"ids", "Ids"},
	{"parallel", "Terminals at once"},
	{"cancelled-create", "A create that is cancelled"},
	{"request-ids", "A request with an id that the client has used"},
	{"time", "Time that create and kill take"},
}

var titles = func() map[string]string {
	all := map[string]string{}
	for _, c := range checks {
		all[c.name] = c.title
	}
	return all
}()

// Names returns the names of all findings, in the order of a report.
func Names() []string {
	names := make([]string, len(checks))
	for i, c := range checks {
		names[i] = c.name
	}
	return names
}

// offered looks at what the client offers, and reports whether it has terminals:
// "If terminal is false or not present, the Agent MUST NOT attempt to call any
// terminal methods".
func (x *exam) offered() bool {
	can := x.o.Init.ClientCapabilities
	if display, _ := can.Meta["terminal_output"].(bool); display {
		x.pass("display", "offered", "_meta.terminal_output is true")
	} else {
		x.pass("display", "not offered", "")
	}
	if !can.Terminal {
		x.pass("terminal", "not offered", "")
		x.stop("the client offers no terminals")
		return false
	}
	x.pass("terminal", "offered", "")
	return true
}

// examine does everything else. What is used by others comes first, and alone.
func (x *exam) examine() {
	for _, check := range []func(){x.start, x.outputAtExit} {
		if x.over() {
			return
		}
		check()
	}
	x.all(x.lines, x.missingProgram, x.missingDirectory, x.directories, x.env, x.envNames, x.exitCode, x.input,
		x.heldOutput, x.splitCharacter, x.truncation, x.exactLimit, x.overLimit, x.defaultLimit, x.replySize)
	x.mu.Lock()
	if x.found["truncation"].Verdict == Pass || x.found["truncation"].Verdict == Deviates {
		x.find(Finding{Name: "truncated", Verdict: Pass, Value: "right"})
	}
	x.mu.Unlock()
	x.all(x.kill, x.killChildren, x.killStubborn, x.unknownID)
	// A released id may be given again, so nothing else creates terminals meanwhile.
	for _, check := range []func(){x.release, x.cancelledCreate, x.requestIDs, x.parallel} {
		if x.over() {
			return
		}
		check()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.find(Finding{Name: "ids", Verdict: Pass, Value: "new each time"})
	create, kill := middle(x.took[acp.ClientMethodTerminalCreate]), middle(x.took[acp.ClientMethodTerminalKill])
	x.find(Finding{Name: "time", Verdict: Pass, Value: fmt.Sprintf("create %v, kill %v", create, kill)})
}

// middle is the median, in milliseconds.
func middle(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2].Round(time.Millisecond)
}

// start finds out how a command and its args are run.
func (x *exam) start() {
	const word = "a  b" // two blanks: words that are joined lose one
	r := x.run(command{command: "/bin/sh", args: []string{"-c", "echo '" + word + "';sleep 0.2"}}, false, false)
	if r.err == nil && r.exit.void() && r.waited && r.exitErr == nil && r.text() == "" && r.second.status == nil {
		x.deviates("start", "nothing runs", specCreate, "a command has ended at once, without an output, an exit code or a signal")
		x.stop("its terminals run nothing")
		return
	}
	switch got := r.lines(); {
	case strings.Contains(got, word):
		x.form = formArgv
	default:
		// Is it that the args come in pieces, or not at all?
		line := ":;echo '" + word + "';sleep 0.2"
		if s := x.run(command{command: "/bin/sh", args: []string{"-c", line}}, false, false); strings.Contains(s.lines(), word) {
			x.form = formJoined
		} else if s := x.run(command{command: line}, false, false); strings.Contains(s.lines(), word) {
			x.form = formLine
		} else {
			why := "no output of echo"
			if r.err != nil {
				why = r.err.Error()
			} else if !r.waited {
				why += ", and no exit"
			}
			x.unknown("start", "%s", why)
			x.stop("no command could be run: " + why)
			return
		}
	}
	x.pass("start", "", "")
	if strings.Contains(r.text(), "\r\n") {
		x.pass("line-ends", "CR LF", "the output is that of a terminal")
	} else if r.text() != "" {
		x.pass("line-ends", "LF", "")
	}
	switch x.form {
	case formJoined:
		x.deviates("command", formJoined, specArgs, "command and args are pasted into a shell line without quotes: sh -c %q prints nothing", "echo 'a  b'")
		return
	case formLine:
		x.deviates("command", formLine, specArgs, "command is a shell line, and args are not used")
		return
	}
	// A shell takes a command of two words for one that it does not know, and exits
	// with 127.
	r = x.run(command{command: "echo one", args: []string{"two"}}, false, false)
	switch got := r.lines(); {
	case strings.Contains(got, "one two"):
		x.deviates("command", formJoined, specArgs, "command is pasted into a shell line without quotes")
	case r.err == nil && strings.HasPrefix(got, "one"):
		x.form = formQuoted
		x.deviates("command", formQuoted, specArgs, "args are dropped if command has a blank")
	case r.err == nil && r.ended().code("127") && got != "":
		x.form = formQuoted
		x.pass("command", formQuoted, "command and args are quoted for a shell")
	default:
		x.pass("command", formArgv, "")
	}
}

// lines finds out what becomes of a line in command.
func (x *exam) lines() {
	if x.form == formLine {
		x.pass("line", "run by a shell", "")
		return
	}
	r := x.run(command{command: "echo one && echo two" + x.linger}, false, false)
	switch got := r.lines(); {
	case strings.Contains(got, "&&"):
		x.pass("line", "split into words", "no shell runs it")
	case strings.Contains(got, "one\ntwo"):
		x.pass("line", "run by a shell", "")
	case r.err != nil:
		x.pass("line", "not run", "%v", r.err)
	default:
		x.pass("line", "not run", "%v", r.ended())
	}
}

// outputAtExit compares the output right after the exit with that a little later. What
// a slow client has not shown by then it may show after a second.
func (x *exam) outputAtExit() {
	r := x.run(x.sh("echo probe"), false, true)
	if r.err == nil {
		defer r.term.release()
	}
	if r.err != nil || !r.waited || r.exitErr != nil {
		x.noResult(r, "output-at-exit", "buffer", "exit-status")
		if !r.waited && r.err == nil {
			x.deviates("exit-code", "not reported", specExit, "terminal/wait_for_exit was not answered within %v", r.limit)
		}
		x.linger = ";sleep 0.3"
		return
	}
	const word = "probe"
	complete, later := strings.Contains(r.first.text, word), confirm
	if !complete {
		x.linger = ";sleep 0.3"
	}
	if !complete && !strings.Contains(r.second.text, word) {
		later += x.bound(time.Second)
		if !x.pause(later - confirm) {
			return
		}
		r.second = r.term.output()
	}
	switch {
	case complete:
		x.pass("output-at-exit", "complete", "")
	case strings.Contains(r.second.text, word):
		x.deviates("output-at-exit", "late", specOutput, "terminal/output did not have it right after the exit, and had it %v later", later)
	default:
		x.deviates("output-at-exit", "lost", specOutput, "what a command wrote right before its exit is never shown")
	}
	again := r
	if x.linger != "" {
		again = x.run(x.sh("echo probe"), false, false)
	}
	switch {
	case again.first.text == "":
		x.unknown("buffer", "no output could be read")
	case again.second.ok && again.second.text == "":
		x.deviates("buffer", "drained", specOutput, "a second terminal/output no longer has what the first had")
	default:
		x.pass("buffer", "kept", "")
	}
	if again.second.status == nil && again.second.ok {
		x.deviates("exit-status", "never", specStatus, "terminal/output has no exitStatus after the exit")
	} else if again.second.ok {
		x.pass("exit-status", "present", "%v", again.second.status)
	}
}

// noResult reports that a command has shown nothing.
func (x *exam) noResult(r result, names ...string) {
	why := "the command has not ended"
	switch {
	case r.err != nil:
		why = r.err.Error()
	case r.exitErr != nil:
		why = r.exitErr.Error()
	}
	for _, name := range names {
		x.unknown(name, "%s", why)
	}
}

// badStart judges what becomes of a command that cannot start.
func (x *exam) badStart(name string, r result) {
	switch s := r.ended(); {
	case r.err == errNoAnswer:
		x.unknown(name, "%v", r.err)
	case r.err != nil:
		x.pass(name, "an error of create", "%v", r.err)
	case !r.waited && r.exitErr == nil && s == nil:
		x.deviates(name, "no end", specExit, "terminal/wait_for_exit is not answered")
	case s.void():
		x.deviates(name, "no exit code", specCode, "%v", s)
	case s.success():
		x.deviates(name, "success", specCode, "%v", s)
	default:
		x.pass(name, s.String(), "")
	}
}

func (x *exam) missingProgram() {
	x.badStart("missing-program", x.run(command{command: "/missing/termbridge-probe", args: []string{"x"}}, false, false))
}

func (x *exam) missingDirectory() {
	c := x.sh("echo started")
	c.dir = "/missing/termbridge-probe"
	r := x.run(c, false, false)
	if strings.Contains(r.text(), "started") {
		x.deviates("missing-directory", "replaced", specCwd, "the command ran in another directory")
		return
	}
	x.badStart("missing-directory", r)
}

// directories looks at cwd, and at its absence.
func (x *exam) directories() {
	const root = "/"
	c := x.sh("pwd")
	c.dir = root
	r := x.run(c, false, false)
	switch got := strings.TrimSpace(r.lines()); {
	case r.err != nil:
		x.unknown("directory", "cwd %q: %v", root, r.err)
	case got == root:
		x.pass("directory", "as asked", "")
	case got == "":
		x.noResult(r, "directory")
	default:
		x.deviates("directory", "replaced", specCwd, "cwd was %q, and the command ran in %q", root, got)
	}
	r = x.run(x.sh("pwd"), false, false)
	switch got := strings.TrimSpace(r.lines()); {
	case got == "":
		x.noResult(r, "default-directory")
	case got == x.o.Dir || strings.HasSuffix(got, x.o.Dir) && x.o.Dir != root:
		x.pass("default-directory", "the session's", "")
	default:
		x.pass("default-directory", "another", "%s", got)
	}
}

func (x *exam) env() {
	c := x.sh("env")
	c.env = map[string]string{"TERMBRIDGE_PROBE": "a  b"}
	r := x.run(c, false, false)
	lines := strings.Split(r.lines(), "\n")
	has := func(name string) bool {
		return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), name+"=") })
	}
	switch {
	case r.lines() == "":
		x.noResult(r, "env")
	case !strings.Contains(r.lines(), "TERMBRIDGE_PROBE=a  b"):
		x.deviates("env", "not set", specEnv, "env does not show the variable that was asked for")
	case has("PATH") || has("HOME") || has("USER"):
		x.pass("env", "overlay", "it is laid over the client's own")
	default:
		x.pass("env", "replaced", "there are no variables of the client")
	}
}

// deniedNames are variables that clients refuse. Without a value they do nothing.
var deniedNames = []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV", "ENV"}

func (x *exam) envNames() {
	c := x.sh("echo started")
	c.env = map[string]string{}
	for _, name := range deniedNames {
		c.env[name] = ""
	}
	r := x.run(c, false, false)
	switch {
	case r.err != nil && r.err != errNoAnswer:
		x.deviates("env-names", "refused", specEnv, "%v", r.err)
	case strings.Contains(r.text(), "started"):
		x.pass("env-names", "allowed", "%s", strings.Join(deniedNames, ", "))
	default:
		x.noResult(r, "env-names")
	}
}

func (x *exam) exitCode() {
	r := x.run(x.sh("echo x;sleep 0.05;exit 3"), false, false)
	switch {
	case r.err != nil || !r.waited || r.exitErr != nil:
		x.noResult(r, "exit-code", "wrong-session")
		return
	case !r.exit.code("3"):
		x.deviates("exit-code", "wrong", specCode, "exit 3 is reported as %v", r.exit)
	case r.exit.Signal != nil:
		x.deviates("exit-code", "beside a signal", specSignal, "exit 3 is reported as %v", r.exit)
	default:
		x.pass("exit-code", "as it was", "")
	}
}

// input runs cat, which ends when its input does.
func (x *exam) input() {
	t, err := x.create(command{command: "cat"})
	if err != nil {
		x.unknown("input", "%v", err)
		return
	}
	defer t.release()
	if _, _, ok := t.wait().within(x.bound(2 * time.Second)); ok {
		x.pass("input", "empty", "")
		return
	}
	r, ok := t.kill()
	kind := "open"
	x.mu.Lock()
	if x.found["line-ends"].Value == "CR LF" {
		kind = "a terminal"
	}
	x.mu.Unlock()
	if ok && r.err != nil {
		x.unknown("input", "cat did not end, and could not be killed: %v", r.err)
		return
	}
	x.deviates("input", kind, specInput, "cat waits for ever")
}

// heldOutput has a child in the background hold the output for a while.
func (x *exam) heldOutput() {
	limit := x.bound(1500 * time.Millisecond)
	held := max(3*time.Second, limit*4/3).Truncate(time.Second) + time.Second // beyond the limit by far
	line := fmt.Sprintf("(sleep 1;echo later;sleep %d) & echo now", held/time.Second-1)
	t, err := x.create(x.sh(line))
	if err != nil {
		x.unknown("held-output", "%v", err)
		return
	}
	defer t.release()
	start := time.Now()
	w := t.wait()
	_, _, ok := w.within(limit)
	switch {
	case ok:
		x.pass("held-output", "reported at the exit", "")
	default:
		if _, _, ok := w.within(held + x.bound(callBound)); ok {
			x.deviates("held-output", "reported when nobody holds the output", specExit, "the exit was reported after %v", time.Since(start).Round(100*time.Millisecond))
		} else {
			x.unknown("held-output", "the exit was not reported")
		}
	}
	if left := held - time.Since(start); left > 0 && !x.pause(left) {
		return
	}
	if o := t.output(); strings.Contains(o.text, "later") {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.seesLater = true
	}
}

func (x *exam) splitCharacter() {
	r := x.run(x.sh(`printf '\303';sleep 0.1;printf '\251\n'`), false, false)
	switch got := r.lines(); {
	case strings.Contains(got, "é"):
		x.pass("split-character", "whole", "")
	case strings.Contains(got, "\uFFFD"):
		x.deviates("split-character", "broken", specRunes, "é came as %q", got)
	default:
		x.noResult(r, "split-character")
	}
}

// The output of truncation: its last line has characters of four bytes, of which
// truncationLimit cuts one, whether lines end with LF or CR LF.
const truncationLimit = 103

var truncationLines = []string{"first", "second-é漢", strings.Repeat("🙂", 30)}

func (x *exam) truncation() {
	c := x.sh("echo " + strings.Join(truncationLines, ";echo "))
	c.limit = truncationLimit
	r := x.run(c, false, false)
	got, o := r.text(), r.second
	if !o.ok {
		o = r.first
	}
	first, last := strings.Contains(got, truncationLines[0]), strings.Contains(got, "🙂")
	switch {
	case got == "" && !o.truncated:
		x.noResult(r, "truncation", "characters", "limit", "truncated")
		return
	case first && last:
		x.deviates("limit", "ignored", specLimit, "%d bytes of at most %d", len(got), c.limit)
		for _, name := range []string{"truncation", "characters", "truncated"} {
			x.unknown(name, "nothing is truncated")
		}
		return
	case first:
		x.deviates("truncation", "head", specLimit, "the start is kept, and the end is dropped")
	default:
		x.pass("truncation", "tail", "")
	}
	if strings.Contains(got, "\uFFFD") || !utf8.ValidString(got) {
		x.deviates("characters", "cut", specRunes, "%q", clip(got))
	} else {
		x.pass("characters", "whole", "")
	}
	if len(got) > c.limit {
		x.deviates("limit", "exceeded", specLimit, "%d bytes of at most %d", len(got), c.limit)
	} else {
		x.pass("limit", "kept", "")
	}
	if !o.truncated {
		x.deviates("truncated", "missing", specFlag, "an output that was cut is not said to be")
	}
}

func clip(s string) string {
	if len(s) > 24 {
		s = s[:24] + "…"
	}
	return s
}

// eol is how many bytes the end of a line takes.
func (x *exam) eol() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.found["line-ends"].Value == "CR LF" {
		return 2
	}
	return 1
}

// exactLimit and overLimit look at truncated where an output is just as long as the
// limit, and where what is kept of it is.
func (x *exam) exactLimit() {
	text := strings.Repeat("x", 40)
	c := x.sh("echo " + text)
	c.limit = len(text) + x.eol()
	r := x.run(c, false, false)
	if !strings.Contains(r.text(), text) {
		return // what cannot be seen is no evidence
	}
	if r.second.ok && r.second.truncated {
		x.deviates("truncated", "wrong at the limit", specFlag, "an output of %d bytes is whole at a limit of %d, and is said to be cut", c.limit, c.limit)
	}
}

func (x *exam) overLimit() {
	c := x.sh("echo " + strings.Repeat("y", 80))
	c.limit = 40
	r := x.run(c, false, false)
	o := r.second
	if !o.ok || len(o.text) > c.limit || r.err != nil {
		return
	}
	if x.drained() {
		o = r.first
	}
	if !o.truncated {
		x.deviates("truncated", "missing", specFlag, "%d bytes are left of %d, and it is not said that it was cut", len(o.text), 80+x.eol())
	}
}

func (x *exam) drained() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.found["buffer"].Value == "drained"
}

// large is the output of the checks of sizes: more than most clients keep, and less
// than the SDKs take in one line.
const large = 1_100_000

func (x *exam) defaultLimit() {
	r := x.run(x.sh(fmt.Sprintf("printf '%%%ds\\n' x", large)), true, false)
	switch n := len(r.text()); {
	case n == 0:
		x.noResult(r, "default-limit")
	case n >= large:
		x.pass("default-limit", "more than 1 MiB", "")
	case n > 1<<20-8 && n <= 1<<20:
		x.pass("default-limit", "1 MiB", "")
	default:
		x.pass("default-limit", fmt.Sprintf("%d KiB", (n+1023)>>10), "%d bytes", n)
	}
}

func (x *exam) replySize() {
	c := x.sh(fmt.Sprintf("printf '%%%ds\\n' x", large))
	c.limit = large + 1000
	r := x.run(c, true, false)
	if n := len(r.text()); n == 0 {
		x.noResult(r, "reply-size")
	} else {
		x.pass("reply-size", fmt.Sprintf("%.1f MB", float64(n)/1e6), "")
	}
}

// kill kills a program.
func (x *exam) kill() {
	limit := x.bound(callBound)
	t, err := x.create(x.sleep(3 * limit)) // longer than all that is waited for below
	if err != nil {
		x.unknown("kill", "%v", err)
		return
	}
	defer t.release()
	w := t.wait()
	if !x.pause(100 * time.Millisecond) {
		return
	}
	soon := x.bound(time.Second)
	if o := t.outputWithin(soon); !o.ok && o.err == nil {
		x.deviates("running-output", "waits for the end", specNoWait, "terminal/output of a command that runs is not answered within %v", soon)
	} else if o.ok {
		x.pass("running-output", "answered at once", "")
	}
	r, answered := t.killWithin(limit)
	s, waitErr, ok := w.within(limit)
	switch {
	case answered && r.err != nil:
		x.deviates("kill", "refused", specKill, "%v", r.err)
	case !ok:
		x.deviates("kill", "does not end it", specKill, "the command was not reported to have ended within %v", limit)
	case !answered:
		x.deviates("kill", "not answered", specKill, "the command has ended: %v", s)
	case waitErr != nil:
		x.unknown("kill", "%v", waitErr)
	default:
		x.pass("kill", fmt.Sprintf("answered after %v", r.took.Round(100*time.Millisecond)), "%v", s)
	}
	if ok && waitErr == nil {
		x.signal(s)
	}
	if !ok {
		return
	}
	_, valid, waited := t.wait().within(x.bound(callBound))
	o := t.output()
	switch {
	case o.err != nil:
		x.deviates("after-kill", "invalid", specValid, "terminal/output: %v", o.err)
	case valid != nil:
		x.deviates("after-kill", "invalid", specValid, "terminal/wait_for_exit: %v", valid)
	case !waited || !o.ok:
		x.unknown("after-kill", "no answer")
	default:
		x.pass("after-kill", "valid", "")
	}
}

// signal judges how the end by a signal is reported.
func (x *exam) signal(s *status) {
	text := ""
	if s.Signal != nil {
		text = *s.Signal
	}
	switch {
	case s.void():
		x.deviates("signal", "none", specSignal, "%v", s)
	case strings.HasPrefix(text, "SIG") && s.Code == nil:
		x.pass("signal", "name", "%s", text)
	case strings.HasPrefix(text, "SIG"):
		x.deviates("signal", "name", specCode, "%v", s)
	case text != "" && strings.Trim(text, "0123456789") == "" && text != "0":
		x.deviates("signal", "number", specCode, "%v", s)
	case text != "" && text != "0":
		x.deviates("signal", "text", specCode, "%v", s)
	default:
		x.deviates("signal", "code", specSignal, "%v", s)
	}
}

// killChildren kills a command that has a child. That one lives on if it writes
// after the kill: on a client that is slow it writes later.
func (x *exam) killChildren() {
	for _, writes := range []time.Duration{2 * time.Second, 5 * time.Second, 12 * time.Second} {
		if writes < x.bound(time.Second) {
			continue
		}
		if x.killChild(writes) {
			return
		}
	}
	x.unknown("kill-children", "the kill takes too long")
}

// killChild kills a command whose child writes after a time. It returns false if the
// kill was not answered before that.
func (x *exam) killChild(writes time.Duration) bool {
	start := time.Now()
	seconds := int(writes / time.Second)
	t, err := x.create(x.sh(fmt.Sprintf("(sleep %d;echo alive) & exec sleep %d", seconds, seconds+7)))
	if err != nil {
		x.unknown("kill-children", "%v", err)
		return true
	}
	defer t.release()
	w := t.wait()
	if !x.pause(300 * time.Millisecond) {
		return true
	}
	limit := min(x.bound(callBound), max(callBound, writes*2/3)) // so that there is a judgement at all
	t.killWithin(limit)
	w.within(limit)
	if time.Since(start) >= writes {
		return false
	}
	if !x.pause(writes + time.Second - time.Since(start)) {
		return true
	}
	o := t.output()
	x.mu.Lock()
	later := x.seesLater
	x.mu.Unlock()
	switch {
	case strings.Contains(o.text, "alive"):
		x.deviates("kill-children", "live on", specKill, "a child of the command still wrote after the kill")
	case !later || !o.ok:
		x.unknown("kill-children", "what a child writes after the end of its command is not shown")
	default:
		x.pass("kill-children", "end, too", "")
	}
	return true
}

// killStubborn kills a command that ignores what can be ignored.
func (x *exam) killStubborn() {
	limit := x.bound(4 * time.Second).Truncate(time.Second)
	t, err := x.create(x.sh(fmt.Sprintf("trap '' TERM HUP INT;sleep %d", limit/time.Second+2)))
	if err != nil {
		x.unknown("kill-stubborn", "%v", err)
		return
	}
	defer t.release()
	w := t.wait()
	if !x.pause(300 * time.Millisecond) {
		return
	}
	if s, _, ok := w.within(0); ok {
		x.unknown("kill-stubborn", "the command has ended before the kill: %v", s)
		return
	}
	t.kill()
	if _, _, ok := w.within(limit); ok {
		x.pass("kill-stubborn", "ends", "")
	} else {
		x.deviates("kill-stubborn", "lives on", specKill, "the command was not reported to have ended within %v", limit)
	}
}

// release releases a command that runs, and looks at the id after that.
func (x *exam) release() {
	limit, ends := x.bound(callBound), x.bound(2*time.Second)
	t, err := x.create(x.sleep(ends + limit + time.Second)) // longer than all that is waited for below
	if err != nil {
		x.unknown("release", "%v", err)
		return
	}
	w := t.wait()
	if !x.pause(100 * time.Millisecond) {
		t.release()
		return
	}
	r, answered := x.w.await(x.ctx, t.sendRelease(), limit, nil)
	if answered && r.err != nil {
		x.deviates("release", "refused", specRelease, "%v", r.err)
	}
	_, waitErr, ok := w.within(ends)
	switch {
	case !answered && ok:
		x.deviates("release", "not answered", specRelease, "no answer within %v", limit)
	case !ok:
		x.deviates("release", "does not end it", specRelease, "the command was not reported to have ended %v later", ends)
	case waitErr != nil:
		x.unknown("release", "whether the command has ended is not said: %v", waitErr)
	default:
		x.pass("release", "ends it", "")
	}
	o, gone := x.do(acp.ClientMethodTerminalOutput, t.params(), x.bound(time.Second), nil)
	switch {
	case !gone:
		x.unknown("released-id", "no answer")
	case o.err == nil:
		x.deviates("released-id", "still valid", specReleased, "terminal/output is answered")
	default:
		x.pass("released-id", "invalid", "%v", o.err)
	}
	again, ok := x.do(acp.ClientMethodTerminalRelease, t.params(), x.bound(callBound), nil)
	switch {
	case !ok:
		x.unknown("second-release", "no answer")
	case again.err != nil:
		x.pass("second-release", "an error", "%v", again.err)
	default:
		x.pass("second-release", "succeeds", "")
	}
}

func (x *exam) unknownID() {
	t := &term{x: x, id: "termbridge-probe-no-such-terminal"}
	var succeed []string
	value := ""
	for _, method := range []string{acp.ClientMethodTerminalOutput, acp.ClientMethodTerminalWaitForExit, acp.ClientMethodTerminalKill} {
		r, ok := x.w.await(x.ctx, x.w.send(method, t.params()), x.bound(time.Second), nil)
		switch {
		case !ok:
			x.unknown("unknown-id", "%s is not answered", method)
			return
		case r.err == nil:
			succeed = append(succeed, method)
		default:
			value = fmt.Sprint(r.err.Code)
		}
	}
	if succeed != nil {
		x.deviates("unknown-id", "accepted", specID, "%s succeed", strings.Join(succeed, ", "))
	} else {
		x.pass("unknown-id", value, "")
	}
	r := x.run(x.sh("echo x"), false, true)
	if r.term == nil {
		x.unknown("wrong-session", "%v", r.err)
		return
	}
	defer r.term.release()
	other := r.term.params()
	other["sessionId"] = "termbridge-probe-no-such-session"
	switch o, ok := x.w.await(x.ctx, x.w.send(acp.ClientMethodTerminalOutput, other), x.bound(time.Second), nil); {
	case !ok:
		x.unknown("wrong-session", "no answer")
	case o.err != nil:
		x.pass("wrong-session", "refused", "%v", o.err)
	default:
		x.pass("wrong-session", "not looked at", "")
	}
}

// cancelledCreate gives a create up right after it was sent. A client may go on.
func (x *exam) cancelledCreate() {
	c := x.sh("sleep 2")
	call := x.w.send(acp.ClientMethodTerminalCreate, x.params(c))
	select {
	case <-call.sent:
	case <-x.ctx.Done():
	case <-x.w.ended:
	}
	x.w.notify("$/cancel_request", map[string]any{"requestId": rawID(call.id)})
	done := make(chan struct{})
	limit := x.bound(createBound)
	r, ok := x.w.await(x.ctx, call, limit, func(r reply) {
		defer close(done)
		x.createdLate(r)
	})
	if !ok {
		x.mu.Lock()
		x.late = append(x.late, done)
		x.mu.Unlock()
		x.deviates("cancelled-create", "not answered", specReply, "no answer within %v", limit)
		return
	}
	if t, err := x.created(r); err == nil {
		t.kill()
		t.release()
		x.pass("cancelled-create", "started all the same", "the id comes, and is to be released")
	} else {
		x.pass("cancelled-create", "given up", "%v", err)
	}
}

// requestIDs asks under an id that the client has used for a request of its own.
func (x *exam) requestIDs() {
	used := x.w.usedID()
	if used == nil {
		x.unknown("request-ids", "the client has made no request")
		return
	}
	t := &term{x: x, id: "termbridge-probe-no-such-terminal"}
	if _, ok := x.w.await(x.ctx, x.w.sendAs(used, acp.ClientMethodTerminalOutput, t.params()), x.bound(2*time.Second), nil); ok {
		x.pass("request-ids", "kept apart", "")
	} else {
		x.deviates("request-ids", "taken for an answer", specReply, "a request with the id %s is not answered", used)
	}
}

// Numbers of terminals at once: the second where creates take long.
const (
	manyTerminals = 51
	someTerminals = 6
)

func (x *exam) parallel() {
	x.mu.Lock()
	n := manyTerminals
	if middle(slices.Clone(x.took[acp.ClientMethodTerminalCreate])) > 60*time.Millisecond {
		n = someTerminals
	}
	x.mu.Unlock()
	c := x.sleep(3 * time.Second)
	type made struct {
		t   *term
		err error
	}
	all := make(chan made)
	for range n {
		go func() { // received from below
			t, err := x.create(c)
			all <- made{t, err}
		}()
	}
	var terms []*term
	var err error
	for range n {
		if m := <-all; m.err != nil {
			err = m.err
		} else {
			terms = append(terms, m.t)
		}
	}
	for _, t := range terms {
		t.release()
	}
	switch {
	case err == errNoAnswer:
		x.unknown("parallel", "%d of %d were answered", len(terms), n)
	case err != nil:
		x.deviates("parallel", fmt.Sprintf("at most %d", len(terms)), specCreate, "%v", err)
	default:
		x.pass("parallel", fmt.Sprintf("%d or more", n), "")
	}
}
