// Package noinput has the environment of commands that get no input.
package noinput

// Env returns the variables that keep programs from waiting for somebody who
// is not there: nothing is shown page by page, an editor fails at once with a reason, and
// nobody is asked for a password.
func Env() map[string]string {
	return map[string]string{
		"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat",
		"GH_PAGER": "cat", "SYSTEMD_PAGER": "cat", "AWS_PAGER": "cat",
		"EDITOR": editor, "VISUAL": editor, "GIT_EDITOR": editor, "GIT_SEQUENCE_EDITOR": editor,
		"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "false", "SSH_ASKPASS": "false", "SSH_ASKPASS_REQUIRE": "never",
		"GCM_INTERACTIVE": "never", "GH_PROMPT_DISABLED": "1",
	}
}

// editor fails whether a shell runs it or not, and who reports that names it.
const editor = "false no-editor:the-command-has-no-input"
