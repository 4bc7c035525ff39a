// Package emulate makes fake clients that treat terminals as known ones do, with
// all that they do wrong: [Behaviours] lists them, and a [Behaviour] of one's own is
// a few fields.
//
//	c := fakeconn.New(emulate.Client("zed-old", nil))
//	c := fakeconn.New(emulate.Behaviour{NoExitStatus: true}.Client(nil))
//
// A Behaviour is plain data and may be used by several goroutines; the options that
// it makes serve one [fakeconn.Client], whose Close ends the commands.
package emulate

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/jsonrpc"
	"github.com/termbridge/termbridge/internal/shellwords"
	"github.com/termbridge/termbridge/internal/signals"
	"github.com/termbridge/termbridge/internal/text"
)

// A Behaviour is how a client treats terminals, where that is not what the
// specification says. The zero Behaviour has no deviation. [Behaviours] are those
// of known clients.
type Behaviour struct {
	// Name is for [Client]; Info is what the client says of itself.
	Name string
	Info acp.Implementation

	// Run makes the argv that is executed of command and args, be it a shell's; nil
	// executes them as they are. FallBack runs a command without args that does
	// not exist as a shell line.
	Run      func(command string, args []string) []string
	FallBack bool
	// BadStart is what becomes of a program, or of a directory under
	// [MissingDir], that does not exist; the zero BadStart is an error.
	BadStart BadStart
	// OpenInput is an input that never ends, so that cat waits for ever. TTY
	// makes CR LF of every line feed.
	OpenInput, TTY bool

	// Create and Release are how long the client takes for them, InTurn that it
	// creates one terminal after the other. Ask is how long its user thinks
	// before each command, and Refuse the answer instead of a start.
	Create, Release time.Duration
	InTurn          bool
	Ask             time.Duration
	Refuse          *acp.RequestError
	// DeniedEnv are variables that the client refuses. MaxTerminals is how many
	// terminals there may be at once; 0 is any number.
	DeniedEnv    []string
	MaxTerminals int
	// Stub makes every create return this id and do nothing, and every other
	// method succeed with nothing to tell.
	Stub string

	// DefaultLimit is the output limit of a create that names none, 0 for no
	// limit. NoLimit ignores every limit.
	DefaultLimit int
	NoLimit      bool
	// Truncate cuts an output that is over the limit; nil keeps the
	// last limit bytes, cut between characters.
	Truncate func(output []byte, limit int) string
	// Truncated is what is said of it, from the size of the output, what is
	// left of it and the limit; nil is the truth.
	Truncated func(size, left, limit int) bool
	// SplitRunes makes two U+FFFD of a character that two writes make up.
	SplitRunes bool
	// Lag is how long a write takes until it is seen; LosesTail, that what is
	// not seen at the exit never is.
	Lag       time.Duration
	LosesTail bool
	// Blocking makes terminal/output wait for the end of the output, and
	// Destructive return what was not returned before. Pipe is how many bytes
	// a command can write that nobody asks for; 0 is any number.
	Blocking, Destructive bool
	Pipe                  int

	// WaitsForClose makes the client report the exit only when nobody holds
	// the output any more.
	WaitsForClose bool
	// Exit is how an exit is reported; nil reports the
	// code, or a signal by its name. NoExitStatus leaves it out of terminal/output.
	Exit         func(code *int, signal string) acp.TerminalExitStatus
	NoExitStatus bool

	// Kill is what terminal/kill does, and terminal/release unless Outlives is
	// set: then commands outlive their terminals.
	Kill     Kill
	Outlives bool

	// UnknownCode is the code for an unknown terminal; 0 is -32002. KillUnknown
	// makes kill and release of it succeed; ReleaseUnknown, release only.
	UnknownCode                 int
	KillUnknown, ReleaseUnknown bool
	// AfterRelease is how long a released terminal still answers; negative is for ever.
	AfterRelease time.Duration
	// ReuseIDs makes ids come again: a terminal gets the lowest number that no
	// terminal has which is not released.
	ReuseIDs bool
	// SessionCode is the code for a terminal of another session; 0 ignores the
	// session.
	SessionCode int
}

// MissingDir is a directory under which a Behaviour finds none.
const MissingDir = "/missing"

// A BadStart is what a client makes of a command that it cannot start: an error
// of create with Code and Text, or, without a Code, a terminal whose output is
// Text and whose end is reported as Wait and Output. A nil Output is none.
type BadStart struct {
	Code         int
	Text         string
	Wait, Output *acp.TerminalExitStatus
}

// A Kill is how a client kills. The zero Kill sends SIGKILL to every process.
type Kill struct {
	Signal   string        // "" is SIGKILL
	Leader   bool          // only the first process gets it, which may be a shell
	Escalate time.Duration // after which SIGKILL follows, and the answer when it is dead; 0 is never
}

// Argv returns what the client executes of command and args.
func (b Behaviour) Argv(command string, args []string) []string {
	if b.Run == nil {
		return runArgv(command, args)
	}
	return b.Run(command, args)
}

// Cut returns what the client keeps of an output that is over the limit.
func (b Behaviour) Cut(output []byte, limit int) string {
	if b.Truncate == nil {
		return truncateTail(output, limit)
	}
	return b.Truncate(output, limit)
}

// ExitStatus returns an exit as the client reports it.
func (b Behaviour) ExitStatus(code *int, signal string) acp.TerminalExitStatus {
	if b.Exit == nil {
		return exitNames(code, signal)
	}
	return b.Exit(code, signal)
}

// runArgv executes command and args as they are.
func runArgv(command string, args []string) []string { return append([]string{command}, args...) }

// runLine pastes command and args into a shell, separated by spaces and without
// quotes.
func runLine(command string, args []string) []string {
	return []string{"/bin/sh", "-c", strings.Join(runArgv(command, args), " ")}
}

// runQuoted has a shell run command: as a line without args, else each word of
// both in quotes.
func runQuoted(command string, args []string) []string {
	if len(args) == 0 {
		return runLine(command, nil)
	}
	return []string{"/bin/sh", "-c", shellwords.Join(runArgv(command, args))}
}

// runWithoutInput puts what run makes into a subshell without input.
func runWithoutInput(run func(string, []string) []string) func(string, []string) []string {
	return func(command string, args []string) []string {
		words := run(command, args)
		words[2] = "(" + words[2] + ") </dev/null"
		return words
	}
}

// runDirectly makes the shell that run starts become the command that args are.
func runDirectly(run func(string, []string) []string) func(string, []string) []string {
	return func(command string, args []string) []string {
		words := run(command, args)
		if len(args) > 0 {
			words[2] = "exec " + words[2]
		}
		return words
	}
}

// runWords splits a command without args into words, and executes that.
func runWords(command string, args []string) []string {
	if len(args) > 0 {
		return runArgv(command, args)
	}
	words, err := shellwords.Split(command)
	if err != nil || len(words) == 0 {
		return []string{command}
	}
	return words
}

// runLineIfSpaced has a shell run command, and drops args if command has a space.
func runLineIfSpaced(command string, args []string) []string {
	if strings.Contains(command, " ") {
		return runLine(command, nil)
	}
	return []string{"/bin/sh", "-c", shellwords.Join(runArgv(command, args))}
}

// truncateTail keeps the last limit bytes, cut between characters.
func truncateTail(output []byte, limit int) string { return decode(text.Tail(output, limit)) }

// truncateBytes keeps the last limit bytes, of which those of a character that
// is cut become one U+FFFD each: three bytes, so that the result is over the limit.
func truncateBytes(output []byte, limit int) string {
	return decode(output[max(0, len(output)-limit):])
}

// truncateHead keeps what lies before the last line feed of the first limit bytes.
func truncateHead(output []byte, limit int) string {
	head := output[:min(limit, len(output))]
	return decode(head[:bytes.LastIndexByte(head, '\n')+1])
}

// exitNames reports a signal by its name, without a code.
func exitNames(code *int, signal string) acp.TerminalExitStatus {
	if signal == "" {
		return acp.TerminalExitStatus{ExitCode: code}
	}
	return acp.TerminalExitStatus{Signal: &signal}
}

// exitTexts reports a signal by its description, beside code 1.
func exitTexts(code *int, signal string) acp.TerminalExitStatus {
	if signal == "" {
		return acp.TerminalExitStatus{ExitCode: code}
	}
	said, ok := map[string]string{
		"SIGHUP": "Hangup", "SIGINT": "Interrupt", "SIGKILL": "Killed", "SIGTERM": "Terminated", "SIGSEGV": "Segmentation fault",
	}[signal]
	if !ok {
		said = fmt.Sprintf("Signal %d", signals.Number(signal))
	}
	return acp.TerminalExitStatus{ExitCode: new(1), Signal: &said}
}

// exitNumbers reports a signal by its number, beside code 0; "0" is none.
func exitNumbers(code *int, signal string) acp.TerminalExitStatus {
	if signal == "" {
		return acp.TerminalExitStatus{ExitCode: code, Signal: new("0")}
	}
	return acp.TerminalExitStatus{ExitCode: new(0), Signal: new(fmt.Sprint(signals.Number(signal)))}
}

// exitNegative reports a signal as a negative code. (In Go's types it fits; in
// the protocol a code is unsigned.)
func exitNegative(code *int, signal string) acp.TerminalExitStatus {
	if signal == "" {
		return acp.TerminalExitStatus{ExitCode: code}
	}
	return acp.TerminalExitStatus{ExitCode: new(-signals.Number(signal))}
}

// Behaviours returns the Behaviours of known clients, as docs/clients.md
// describes them. The names that end in "-old" are versions from before 2026.
func Behaviours() []Behaviour {
	const internal, notFound, params = jsonrpc.Internal, jsonrpc.NotFound, jsonrpc.InvalidParams
	enoent := BadStart{Code: internal, Text: "spawn ENOENT"}
	zed := Behaviour{
		Name: "zed", Info: acp.Implementation{Name: "zed", Version: "0.220.0"},
		Run:         runWithoutInput(runQuoted),
		BadStart:    BadStart{Code: internal, Text: "No such file or directory"},
		TTY:         false, // it shows a screen, whose text has line feeds
		Truncate:    truncateHead,
		Exit:        exitTexts,
		UnknownCode: internal,
		SessionCode: internal,
	}
	zedOld := zed
	zedOld.Name, zedOld.Info.Version = "zed-old", "0.205.0"
	zedOld.Run = runWithoutInput(runLine)
	acpx := Behaviour{
		Name: "acpx", Info: acp.Implementation{Name: "acpx", Version: "0.19.1"},
		FallBack:       true,
		BadStart:       enoent,
		Create:         270 * time.Millisecond,
		Release:        280 * time.Millisecond,
		InTurn:         true,
		DefaultLimit:   64 << 10,
		Lag:            5 * time.Millisecond, // exit may be reported before the output is read
		Kill:           Kill{Signal: "SIGTERM", Escalate: 1500 * time.Millisecond},
		UnknownCode:    internal,
		ReleaseUnknown: true,
	}
	acpxOld := acpx
	acpxOld.Name, acpxOld.Info.Version = "acpx-old", "0.1.15"
	acpxOld.FallBack, acpxOld.InTurn = false, false
	acpxOld.Create, acpxOld.Release = 20*time.Millisecond, time.Millisecond
	acpxOld.Kill.Leader = true
	return []Behaviour{
		zedOld, zed, acpx, acpxOld,
		{
			Name: "vscode", Info: acp.Implementation{Name: "vscode-acp-client", Version: "0.1.0"},
			Run:           runLine,
			BadStart:      BadStart{Wait: &acp.TerminalExitStatus{}, Output: &acp.TerminalExitStatus{ExitCode: new(-2)}},
			OpenInput:     true,
			Create:        10 * time.Millisecond,
			DefaultLimit:  1 << 20,
			Truncate:      truncateBytes,
			SplitRunes:    true,
			WaitsForClose: true,
			Kill:          Kill{Signal: "SIGTERM", Leader: true},
			UnknownCode:   internal,
		},
		{
			Name: "obsidian", Info: acp.Implementation{Name: "obsidian-agent-client", Version: "0.5.0"},
			Run:            runDirectly(runQuoted), // of a line that is one command, bash makes that process
			BadStart:       BadStart{Wait: &acp.TerminalExitStatus{ExitCode: new(127)}, Output: &acp.TerminalExitStatus{ExitCode: new(127)}},
			OpenInput:      true,
			Create:         10 * time.Millisecond,
			Truncate:       truncateBytes,
			Truncated:      func(_, left, limit int) bool { return left >= limit },
			SplitRunes:     true,
			Lag:            5 * time.Millisecond,
			Kill:           Kill{Signal: "SIGTERM", Leader: true},
			UnknownCode:    internal,
			ReleaseUnknown: true,
			AfterRelease:   30 * time.Second,
		},
		{
			Name: "deepchat", Info: acp.Implementation{Name: "DeepChat", Version: "0.5.0"},
			BadStart: BadStart{
				Text:   "execvp(3) failed.: No such file or directory\n",
				Wait:   &acp.TerminalExitStatus{ExitCode: new(1), Signal: new("0")},
				Output: &acp.TerminalExitStatus{ExitCode: new(1), Signal: new("0")},
			},
			OpenInput:      true,
			TTY:            true,
			Create:         10 * time.Millisecond,
			DefaultLimit:   1 << 20,
			Lag:            5 * time.Millisecond,
			LosesTail:      true,
			Exit:           exitNumbers,
			Kill:           Kill{Signal: "SIGHUP"},
			ReleaseUnknown: true,
		},
		{
			Name: "jupyter", Info: acp.Implementation{Name: "Jupyter AI", Version: "3.0.0"},
			Run:           runWords,
			BadStart:      BadStart{Code: params, Text: "No such file or directory"},
			Create:        4 * time.Millisecond,
			DeniedEnv:     []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV", "ENV"},
			MaxTerminals:  50,
			DefaultLimit:  10 << 20,
			WaitsForClose: true,
			SessionCode:   jsonrpc.InvalidRequest,
		},
		{
			Name: "toad", Info: acp.Implementation{Name: "toad", Version: "0.5.0"},
			Run:          runLineIfSpaced,
			BadStart:     BadStart{Wait: &acp.TerminalExitStatus{ExitCode: new(0)}},
			OpenInput:    true,
			TTY:          true,
			Create:       4 * time.Millisecond,
			Truncated:    func(size, left, limit int) bool { return size > limit && left != limit },
			Exit:         exitNegative,
			Kill:         Kill{Leader: true},
			UnknownCode:  internal,
			KillUnknown:  true,
			AfterRelease: -1,

			WaitsForClose: true,
		},
		{
			Name: "go-sdk-stub", Info: acp.Implementation{Name: "acp-go-client-example", Version: "0.1.0"},
			Stub: "term-1",
		},
		{
			Name: "kotlin-sample", Info: acp.Implementation{Name: "kotlin-sample", Version: "0.1.0"},
			BadStart:     BadStart{Code: internal, Text: "Cannot run program"},
			OpenInput:    true,
			NoLimit:      true,
			Blocking:     true,
			Destructive:  true,
			Pipe:         64 << 10,
			NoExitStatus: true,
			Kill:         Kill{Signal: "SIGTERM", Leader: true},
			Outlives:     true,
			UnknownCode:  internal,
			KillUnknown:  true,
		},
	}
}
