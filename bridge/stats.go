package bridge

import (
	"errors"
	"slices"

	"github.com/termbridge/termbridge/terminal"
)

// Stats are counts of the commands of a session, or of all those of a Bridge.
type Stats struct {
	Started   int // so far
	Running   int // now
	Delegated int // started in the client
	Local     int // started locally
	Timeouts  int // ended by their timeout
	Leaked    int // what Close could not settle, as in its LeakError
}

// Stats returns the counts so far.
func (s *State) Stats() Stats {
	sum, terms := s.counted()
	for _, t := range terms {
		sum.count(t.Info().Outcome)
	}
	return sum
}

// counted returns what is counted already, and the terminals that are not.
func (s *State) counted() (Stats, []terminal.Terminal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var terms []terminal.Terminal
	for _, k := range s.commands {
		if k.term != nil {
			terms = append(terms, k.term)
		}
	}
	return s.stats, terms
}

// Stats returns the counts of all sessions, open and closed.
func (b *Bridge) Stats() Stats {
	states, sum := b.counted()
	for _, s := range states {
		sum.add(s.Stats())
	}
	return sum
}

func (b *Bridge) counted() ([]*State, Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.order), b.past
}

func (a *Stats) add(b Stats) {
	a.Started += b.Started
	a.Running += b.Running
	a.Delegated += b.Delegated
	a.Local += b.Local
	a.Timeouts += b.Timeouts
	a.Leaked += b.Leaked
}

// count adds what is known of a command by its outcome.
func (a *Stats) count(o terminal.Outcome) {
	switch o {
	case terminal.Running:
		a.Running++
	case terminal.TimedOut:
		a.Timeouts++
	}
}

// leaked returns how many leaks the error of a close lists.
func leaked(err error) int {
	if leak, ok := errors.AsType[*terminal.LeakError](err); ok {
		return len(leak.Leaks)
	}
	return 0
}
