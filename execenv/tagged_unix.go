//go:build linux || darwin

package execenv

import (
	"time"

	"github.com/termbridge/termbridge/terminal"
)

const canFindTags = true

// Find returns the processes in whose tags tag is.
func (Tagged) Find(tag string) []terminal.Proc { return describe(tagged(tag).search()) }

// End ends the processes in whose tags tag is, and what they have started: it asks,
// and kills those that live on at the deadline. It returns whom it found, and whom it
// could not end.
func (Tagged) End(tag string, deadline time.Time) (found, left []terminal.Proc) {
	t := tagged(tag)
	found = describe(t.search())
	if len(found) == 0 {
		return nil, nil
	}
	rest, _ := t.end(func() time.Time { return deadline })
	return found, describe(rest)
}

func tagged(tag string) *tree {
	return &tree{leaders: make(map[int]bool), tag: []byte(tag), group: (*cgroup)(nil), known: make(map[ident]bool)}
}
