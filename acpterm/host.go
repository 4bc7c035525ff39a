package acpterm

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/terminal"
)

// A Host finds and ends processes on the agent's own host by a tag in their
// environment, since many clients end no more of a command than the shell that runs
// it. execenv.Tagged is one.
type Host interface {
	// Env returns the variable that gives a command, and what it starts, a tag;
	// name is "" where processes cannot be found by it.
	Env(tag string) (name, value string)

	// Find returns the processes that have the tag.
	Find(tag string) []terminal.Proc

	// End ends the processes that have the tag: it asks, and kills those that live
	// on at the deadline. It returns those that it found, and those that it could
	// not end.
	End(tag string, deadline time.Time) (found, left []terminal.Proc)
}

// maxUnseen is after how many commands that a client was running, and that were not
// seen on this host, it counts as being on another.
const maxUnseen = 3

type noHost struct{}

func (noHost) Env(string) (name, value string)                     { return "", "" }
func (noHost) Find(string) []terminal.Proc                         { return nil }
func (noHost) End(string, time.Time) (found, left []terminal.Proc) { return nil, nil }

// A guardedHost is a Host whose panics are logged: then it finds nothing.
type guardedHost struct {
	Host
	log *slog.Logger
}

func (h guardedHost) guard(f func()) {
	if failure := caught.Call(f); failure != nil {
		h.log.Error("acpterm: the Host panicked", "panic", failure.Value, "stack", failure.Stack)
	}
}

func (h guardedHost) Env(tag string) (name, value string) {
	h.guard(func() { name, value = h.Host.Env(tag) })
	return name, value
}

func (h guardedHost) Find(tag string) (found []terminal.Proc) {
	h.guard(func() { found = h.Host.Find(tag) })
	return found
}

func (h guardedHost) End(tag string, deadline time.Time) (found, left []terminal.Proc) {
	h.guard(func() { found, left = h.Host.End(tag, deadline) })
	return found, left
}

// nextTag returns the tag of the next command, or "" if its processes need not, or
// cannot, be found.
func (m *Manager) nextTag() string {
	if m.options.Profile.KillsTree {
		return ""
	}
	tag := fmt.Sprintf("%s%d,", m.tags, m.tagged.Add(1))
	if name, _ := m.options.Host.Env(tag); name == "" {
		m.tagged.Add(-1)
		return ""
	}
	return tag
}

// sight looks for the processes of a command that the client is running. That they
// are seen is the evidence that it runs on this host.
func (m *Manager) sight(p peer, tag string) bool {
	if tag == "" || p.client.elsewhere() {
		return false
	}
	return p.client.saw(len(m.options.Host.Find(tag)) > 0)
}

// sweep ends what the command with a tag, or all commands of the Manager, have left
// behind on this host, and returns what it could not end.
func (m *Manager) sweep(tag string, grace time.Duration) []terminal.Proc {
	if m.tagged.Load() == 0 || m.peer.client.elsewhere() {
		return nil
	}
	found, left := m.options.Host.End(tag, time.Now().Add(grace))
	if len(found) > 0 {
		m.options.Logger.Info("acpterm: the client has left processes behind; they were ended", "processes", names(found))
	}
	return left
}

// errSurvivors is why the end of a command was not the client's doing alone.
var errSurvivors = errors.New("the client has not ended all of the command")

// survivors says what was left of a command, and ended here, or nil.
func survivors(found, left []terminal.Proc) error {
	switch {
	case len(found) == 0:
		return nil
	case len(left) > 0:
		return fmt.Errorf("acpterm: %w: %s; of these, run on: %s", errSurvivors, names(found), names(left))
	}
	return fmt.Errorf("acpterm: %w: ended here: %s", errSurvivors, names(found))
}

func names(procs []terminal.Proc) string {
	all := make([]string, len(procs))
	for i, p := range procs {
		all[i] = p.String()
	}
	return strings.Join(all, ", ")
}
