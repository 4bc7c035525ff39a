package terminal

import "time"

// Defaults, shared by the packages of termbridge. Each is the value used where
// an option is zero; docs/architecture.md has them as a table, together with the
// bounds that no option changes.
const (
	// MaxText is the most text that one ReadOutput returns.
	MaxText = 64 << 10

	DefaultOutputLimit  = 1 << 20   // output kept of a local command
	DefaultResultLimit  = 50 << 10  // output in a result, and asked of a client
	DefaultManagerBytes = 256 << 20 // output kept by one manager
	DefaultMaxTerminals = 64        // terminals kept, live and ended
	MaxBackground       = 32        // live background commands of a session

	StopGrace     = 2 * time.Second // between SIGTERM and SIGKILL
	CreateTimeout = 30 * time.Second
	PermitTimeout = 5 * time.Minute // create, while a permission may be open
	SettleTimeout = 5 * time.Second // the end of a turn, and Close
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
