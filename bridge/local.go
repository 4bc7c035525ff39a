package bridge

import (
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// newLocal returns the Manager of a session's local commands.
func (b *Bridge) newLocal(s *State) terminal.Manager {
	if b.opts.Local != nil {
		return b.opts.Local(s.id)
	}
	return localterm.New(&localterm.Options{
		Dir:          s.cwd,
		Env:          b.opts.Env, // nil: without what looks like a secret
		MaxTerminals: b.opts.MaxTerminals,
		NewID:        b.opts.NewID,
		Logger:       b.opts.Logger,
	})
}
