package view_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/terminaltest"
	"github.com/termbridge/termbridge/view"
)

func ids(infos []terminal.Info) []string {
	var ids []string
	for _, info := range infos {
		ids = append(ids, info.ID)
	}
	return ids
}

func TestLists(t *testing.T) {
	onEach(t, func(t *testing.T, m terminal.Manager, program func(string, ...string) terminal.Command) {
		slow := start(t, m, program("hold"))
		quick := start(t, m, program("exit", "3"))
		start(t, m, program("hold")) // and goes on
		wait(t, quick)
		time.Sleep(300 * time.Millisecond)
		if _, err := slow.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := view.Completed(m)
		if got, want := ids(done), []string{quick.Info().ID, slow.Info().ID}; !cmp.Equal(got, want) {
			t.Fatalf("completed: %q, want %q, by their ends", got, want)
		}
		if code := done[0].Exit.Code; code == nil || *code != 3 {
			t.Errorf("exit %v, want 3", done[0].Exit)
		}
		if d := done[1].RunTime(); d < 300*time.Millisecond {
			t.Errorf("run time %v, want 300ms or more", d)
		}
	})
}

func TestStop(t *testing.T) {
	onEach(t, func(t *testing.T, m terminal.Manager, program func(string, ...string) terminal.Command) {
		term := start(t, m, program("hold"))
		for _, when := range []string{"live", "ended"} {
			result, info, err := view.Stop(t.Context(), m, term.Info().ID)
			if result != view.StopEnded || err != nil || info.Outcome != terminal.Stopped {
				t.Errorf("%s: %q, %q, %v; want ended, stopped", when, result, info.Outcome, err)
			}
		}
		// What a command that ended by itself has left behind ends, too.
		term = start(t, m, program("leave", filepath.Join(t.TempDir(), "beat")))
		if wait(t, term); term.Info().Survivors != nil && len(term.Info().Survivors) != 1 { // nil: it cannot tell
			t.Fatalf("left %v, want the child", term.Info().Survivors)
		}
		if result, info, err := view.Stop(t.Context(), m, term.Info().ID); result != view.StopEnded || err != nil || len(info.Survivors) > 0 || info.Outcome != terminal.Exited {
			t.Errorf("one that ended by itself: %q, %+v, %v", result, info, err)
		}
		result, _, err := view.Stop(t.Context(), m, "nobody")
		if result != view.StopNotFound || !errors.Is(err, terminal.ErrNotFound) {
			t.Errorf("an unknown id: %q, %v", result, err)
		}
	})
}

func TestStopFails(t *testing.T) {
	t.Run("something could not be ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hours := make(chan struct{})
			m := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{
				"undead": func(*memterm.Process) terminal.Exit { <-hours; return memterm.Code(0) },
			}})
			term := start(t, m, terminal.Command{Args: []string{"undead"}})
			result, info, err := view.Stop(t.Context(), m, term.Info().ID)
			leak, ok := errors.AsType[*terminal.LeakError](err)
			if result != view.StopFailed || !ok || len(leak.Leaks[0].Procs) != 1 || len(info.Survivors) != 1 {
				t.Errorf("%q, left %v, %v; want failed and the process", result, info.Survivors, err)
			}
			close(hours)
			synctest.Wait()
			m.Close()
		})
	})
	t.Run("the caller does not wait, and takes nothing back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := memterm.New(&memterm.Options{Programs: terminaltest.Programs()})
			defer m.Close()
			term := start(t, m, terminal.Command{Args: []string{"stubborn"}})
			why := errors.New("no more time")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, why)
			defer cancel()
			if result, _, err := view.Stop(ctx, m, term.Info().ID); result != view.StopFailed || !errors.Is(err, why) {
				t.Errorf("%q, %v, want failed and the cause", result, err)
			}
			if info := wait(t, term); info.Outcome != terminal.Stopped {
				t.Errorf("%q, want stopped", info.Outcome)
			}
		})
	})
	t.Run("what became of it is unknown", func(t *testing.T) {
		for _, outcome := range []terminal.Outcome{terminal.ConnectionLost, terminal.Failed} {
			lost := errors.New("the reason")
			m := oneTerminal{outcome: outcome, err: lost}
			if result, _, err := view.Stop(t.Context(), m, "x"); result != view.StopFailed || !errors.Is(err, lost) {
				t.Errorf("%s: %q, %v, want failed and the reason", outcome, result, err)
			}
			if result, _, err := view.Stop(t.Context(), oneTerminal{outcome: outcome}, "x"); result != view.StopFailed || err == nil {
				t.Errorf("%s: %q, %v, want failed and an error", outcome, result, err)
			}
		}
	})
}

// oneTerminal is a Manager and its terminal, whose Stop has this outcome.
type oneTerminal struct {
	terminal.Manager
	terminal.Terminal
	outcome terminal.Outcome
	err     error
}

func (o oneTerminal) Get(string) (terminal.Terminal, error) { return o, nil }

func (o oneTerminal) Stop(context.Context) (terminal.Info, error) {
	return terminal.Info{Outcome: o.outcome, Err: o.err}, nil
}
