package view

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/termbridge/termbridge/terminal"
)

// Completed returns what is known of the commands of m that have ended and are
// still kept, with exits and run times, in the order of their ends.
func Completed(m terminal.Manager) []terminal.Info {
	var list []terminal.Info
	for _, t := range m.List() {
		if info := t.Info(); info.Outcome.Ended() {
			list = append(list, info)
		}
	}
	slices.SortStableFunc(list, func(a, b terminal.Info) int { return a.Ended.Compare(b.Ended) })
	return list
}

// Stop ends the command of m with this id and all that it started, also what it
// left behind if it has ended by itself, and waits until all of it has ended. It
// returns [StopEnded], [StopFailed] or [StopNotFound], and why it is not the first: the
// Cause of ctx if that ended first, which takes nothing back; an error for
// which errors.Is reports [terminal.ErrNotFound]; or what is left.
func Stop(ctx context.Context, m terminal.Manager, id string) (result string, info terminal.Info, err error) {
	t, err := m.Get(id)
	switch {
	case errors.Is(err, terminal.ErrNotFound):
		return StopNotFound, terminal.Info{}, err
	case err != nil:
		return StopFailed, terminal.Info{}, err
	}
	info, err = t.Stop(ctx)
	switch {
	case err != nil:
		return StopFailed, info, err
	case len(info.Survivors) > 0:
		leak := terminal.Leak{ID: id, What: "process", Procs: info.Survivors, Err: info.Err}
		return StopFailed, info, &terminal.LeakError{Leaks: []terminal.Leak{leak}}
	case info.Outcome == terminal.Failed, info.Outcome == terminal.ConnectionLost:
		err := info.Err
		if err == nil {
			err = errors.New("what became of it is unknown")
		}
		return StopFailed, info, fmt.Errorf("view: stop %s: %s: %w", id, info.Outcome, err)
	}
	return StopEnded, info, nil
}
