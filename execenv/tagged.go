package execenv

import "os"

// Tagged finds and ends processes that somebody else started on this host, by a tag
// in their environment: those of commands that run in an editor, for instance. It is
// an [github.com/termbridge/termbridge/acpterm.Host].
type Tagged struct{}

// Env returns the variable that gives a process, and all that it starts, a tag.
// Where processes cannot be found by it, name is "".
func (Tagged) Env(tag string) (name, value string) {
	if !canFindTags {
		return "", ""
	}
	// An agent that runs in a command of another termbridge has that one's tags,
	// and so have, mostly, the processes around it.
	return tagName, os.Getenv(tagName) + tag
}
