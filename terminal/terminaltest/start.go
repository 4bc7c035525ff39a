package terminaltest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

var startRule = rule{
	name: "1-start",
	text: "Start returns after the command has started; a failed start returns an error, no id, and gives its slot back. " +
		"The command is not bound to ctx. Ids are ours, unique in a manager, never reused.",
	cases: []testCase{
		{name: "started", run: func(h *harness) {
			m := h.manager()
			before := time.Now()
			t := h.start("hold")
			after := time.Now()
			info := t.Info()
			if info.ID == "" || info.Outcome != terminal.Running || info.Exit.Known() || !info.Ended.IsZero() {
				h.Errorf("just started: %+v", info)
			}
			if info.Started.Before(before) || info.Started.After(after) {
				h.Errorf("started %v, not between %v and %v", info.Started, before, after)
			}
			if !m.Busy() {
				h.Errorf("a command runs, and the Manager is not busy")
			}
			got, err := m.Get(info.ID)
			if err != nil || got.Info().ID != info.ID {
				h.Errorf("Get(%q): %v", info.ID, err)
			}
			second := h.start("true").Info().ID
			h.checkList(info.ID, second)
		}},
		{name: "unknown id", run: func(h *harness) {
			h.start("true")
			for _, id := range []string{"", "nonsense"} {
				if t, err := h.m.Get(id); !errors.Is(err, terminal.ErrNotFound) || t != nil {
					h.Errorf("Get(%q): a terminal %v, %v; want none, and ErrNotFound", id, t != nil, err)
				}
			}
		}},
		{name: "no such program", run: func(h *harness) {
			// Where a shell stands between, its start succeeds; the command
			// must fail all the same.
			m := h.manager()
			t, err := h.tryStart(h.ctx(bound), terminal.Command{Args: []string{"/nonexistent/program"}})
			switch {
			case err == nil:
				if info := h.end(t); info.Exit.Success() || info.Outcome == terminal.Stopped {
					h.Errorf("a program that does not exist: %s, %v", info.Outcome, info.Exit)
				}
			case len(m.List()) > 0 || m.Busy():
				h.Errorf("after a failed start: %d terminals, busy %v", len(m.List()), m.Busy())
			}
		}},
		{name: "slot given back", run: func(h *harness) {
			h.limited(Limits{MaxTerminals: 1})
			ended, cancel := context.WithCancel(h.Context())
			cancel()
			for range 3 {
				if _, err := h.tryStart(h.ctx(bound), terminal.Command{}); err == nil {
					h.Errorf("an empty command was started")
				}
				if _, err := h.tryStart(ended, h.c.Program("true")); err == nil {
					h.Errorf("a command was started with an ended context")
				}
			}
			h.start("hold")
		}},
		{name: "context ended before", run: func(h *harness) {
			m := h.manager()
			because := errors.New("because")
			ctx, cancel := context.WithCancelCause(h.Context())
			cancel(because)
			file := filepath.Join(h.TempDir(), "beat")
			if _, err := h.tryStart(ctx, h.c.Program("beat", file)); !errors.Is(err, because) {
				h.Errorf("Start with an ended context: %v, want its cause", err)
			}
			time.Sleep(500 * time.Millisecond)
			if _, err := os.Stat(file); err == nil {
				h.Errorf("the command runs")
			}
			if len(m.List()) > 0 || m.Busy() {
				h.Errorf("after a failed start: %d terminals, busy %v", len(m.List()), m.Busy())
			}
		}},
		{name: "not bound to ctx", run: func(h *harness) {
			m := h.manager()
			ctx, cancel := context.WithCancel(h.Context())
			cmd := h.c.Program("drip", "300ms", "one", "two")
			t, err := m.Start(ctx, cmd)
			cancel()
			if err != nil {
				h.Fatalf("Start: %v", err)
			}
			h.checkExit(h.end(t), 0)
			text, truncated := h.all(t)
			h.checkText(text, "one\ntwo\n", truncated)
		}},
		{name: "ids", run: func(h *harness) {
			m := h.limited(Limits{MaxTerminals: 4})
			seen := map[string]bool{}
			var mu sync.Mutex // guards seen
			for range 3 {     // those of the second and third round evict those before
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						t, err := m.Start(h.Context(), h.c.Program("true"))
						if err != nil {
							h.Errorf("Start: %v", err)
							return
						}
						id := t.Info().ID
						<-t.Done() // a Start in the next round must find it ended
						mu.Lock()
						defer mu.Unlock()
						if id == "" || seen[id] {
							h.Errorf("id %s was given before", strconv.Quote(id))
						}
						seen[id] = true
					})
				}
				h.within(2*bound, "a round of starts", all.Wait)
			}
		}},
	},
}

// checkList compares the ids of List with want, in order.
func (h *harness) checkList(want ...string) {
	h.Helper()
	var got []string
	for _, t := range h.m.List() {
		got = append(got, t.Info().ID)
	}
	if len(got) != len(want) {
		h.Errorf("List has %q, want %q", got, want)
		return
	}
	for i := range want {
		if got[i] != want[i] {
			h.Errorf("List has %q, want %q", got, want)
			return
		}
	}
}
