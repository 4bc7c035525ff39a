package terminal

import "time"

// Defaults, shared by the packages of termbridge. Each is the value used where
// an option is zero; docs/architecture.md has them as a table.
const (
	// MaxText is the most text that one ReadOutput returns.
	MaxText = 64 << 10

	DefaultOutputLimit  = 1 << 20   // output kept of a local command
	DefaultResultLimit  = 50 << 10  // output in a result, and asked of a client
	DefaultManagerBytes = 256 << 20 // output kept by one manager
	DefaultMaxTerminals = 64        // terminals kept, live and ended
	MaxBackground       = 32        // live background commands of a session

	StopGrace      = 2 * time.Second // between SIGTERM and SIGKILL
	CreateTimeout  = 30 * time.Second
	PermitTimeout  = 5 * time.Minute // create, while a permission may be open
	KillTimeout    = 2 * time.Second
	OutputTimeout  = 5 * time.Second
	ReleaseTimeout = 2 * time.Second
	SettleTimeout  = 5 * time.Second // the end of a turn, and Close

	DrainQuiet = 100 * time.Millisecond // after exit: output quiet this long has ended
	DrainLimit = 500 * time.Millisecond // after exit: output is waited for this long at most

	PollMin  = 100 * time.Millisecond // terminal/output while somebody reads
	PollMax  = time.Second
	PollIdle = 30 * time.Second // terminal/output while nobody reads

	KeepAlive = 30 * time.Second // an update for a card of a quiet command

	DisplayInterval = 50 * time.Millisecond // between two display updates of a terminal
	DisplayRate     = 50                    // display updates a second on a connection
	TextInterval    = time.Second           // between two text updates of a terminal
	TextLimit       = 16 << 10              // bytes of text in a card
	MaxUpdateLine   = 32 << 10              // bytes of a session/update line
	MaxCreate       = 1 << 20               // bytes of a command sent to a client
	MaxWord         = 128 << 10             // bytes of a word of a local command (the kernel's MAX_ARG_STRLEN)
)

// DefaultSize is the size of a terminal whose Command names none.
var DefaultSize = Size{Rows: 40, Cols: 120}

// NoInput returns the variables that keep programs from waiting for somebody who
// is not there, for commands without Stdin: nothing is shown page by page, an
// editor fails at once with a reason, and nobody is asked for a password.
func NoInput() map[string]string {
	return map[string]string{
		"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat",
		"GH_PAGER": "cat", "SYSTEMD_PAGER": "cat", "AWS_PAGER": "cat",
		"EDITOR": noEditor, "VISUAL": noEditor, "GIT_EDITOR": noEditor, "GIT_SEQUENCE_EDITOR": noEditor,
		"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "false", "SSH_ASKPASS": "false", "SSH_ASKPASS_REQUIRE": "never",
		"GCM_INTERACTIVE": "never", "GH_PROMPT_DISABLED": "1",
	}
}

// noEditor fails whether a shell runs it or not, and who reports that names it.
const noEditor = "false no-editor:the-command-has-no-input"

// GapMark stands in an output for text that was lost before it could be read,
// where the transport cannot tell how much.
const GapMark = "\n[... output missing ...]\n"
