package terminaltest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

var limitRule = rule{
	name: "6-limits",
	text: "Terminals kept per manager: live and ended; ended ones are evicted oldest first; all live: ErrTooMany, or, " +
		"if the Manager was told so, a wait that a free slot, the ctx of Start and Close end. " +
		"OutputLimit kept per command, the tail; a byte cap over the manager.",
	cases: []testCase{
		{name: "oldest first", run: func(h *harness) {
			m := h.limited(Limits{MaxTerminals: 3})
			live := h.start("hold")
			ids := []string{live.Info().ID}
			for range 4 {
				t := h.start("true")
				h.end(t)
				ids = append(ids, t.Info().ID)
			}
			h.checkList(ids[0], ids[3], ids[4])
			for _, id := range ids[1:3] {
				if _, err := m.Get(id); !errors.Is(err, terminal.ErrNotFound) {
					h.Errorf("Get of an evicted terminal: %v, want ErrNotFound", err)
				}
			}
			for _, id := range []string{ids[0], ids[3], ids[4]} {
				if _, err := m.Get(id); err != nil {
					h.Errorf("Get of a kept terminal: %v", err)
				}
			}
			if info := live.Info(); info.Outcome != terminal.Running {
				h.Errorf("the live one is %s", info.Outcome)
			}
		}},
		{name: "all live", run: func(h *harness) {
			m := h.limited(Limits{MaxTerminals: 2})
			first, second := h.start("hold"), h.start("hold")
			if _, err := h.tryStart(h.ctx(bound), h.c.Program("true")); !errors.Is(err, terminal.ErrTooMany) {
				h.Errorf("a start over the limit: %v, want ErrTooMany", err)
			}
			h.checkList(first.Info().ID, second.Info().ID)
			h.stop(first)
			third := h.start("hold")
			h.checkList(second.Info().ID, third.Info().ID)
			if _, err := m.Get(first.Info().ID); !errors.Is(err, terminal.ErrNotFound) {
				h.Errorf("Get of an evicted terminal: %v, want ErrNotFound", err)
			}
		}},
		{name: "a slot that is waited for", run: func(h *harness) {
			m := h.limited(Limits{MaxTerminals: 2, WaitForSlot: true})
			first := h.start("hold")
			h.start("hold")
			because := errors.New("because")
			ctx, cancel := context.WithTimeoutCause(h.Context(), 200*time.Millisecond, because)
			defer cancel()
			if _, err := h.tryStart(ctx, h.c.Program("true")); !errors.Is(err, because) {
				h.Errorf("a start that waits when its ctx ends: %v, want the cause", err)
			}
			const n = 4
			begun := make(chan error, n)
			var all sync.WaitGroup
			for range n { // each frees the slot of the next
				all.Go(func() {
					t, err := m.Start(h.ctx(bound), h.c.Program("true"))
					if err == nil {
						_, err = terminal.Wait(h.ctx(bound), t)
					}
					begun <- err
				})
			}
			time.Sleep(200 * time.Millisecond)
			if len(begun) > 0 {
				h.Errorf("without a slot a start returned %v", <-begun)
			}
			h.stop(first)
			h.within(2*bound, "a start that gets a slot", all.Wait)
			for range len(begun) {
				if err := <-begun; err != nil {
					h.Errorf("a start that waited for a slot: %v", err)
				}
			}
		}},
		{name: "the default", run: func(h *harness) {
			h.limited(Limits{OutputLimit: 1 << 10})
			t := h.start("lines", "1000")
			h.end(t)
			h.checkTail(t, 1000, 1<<10)
			cmd := h.c.Program("lines", "1000")
			cmd.OutputLimit = 4 << 10 // its own goes before
			t = h.startCommand(cmd)
			h.end(t)
			h.checkTail(t, 1000, 4<<10)
		}},
		{name: "the tail", run: func(h *harness) {
			for _, limit := range []int{100, 4096, 70_000} {
				cmd := h.c.Program("lines", "20000")
				cmd.OutputLimit = limit
				t := h.startCommand(cmd)
				h.end(t)
				h.checkTail(t, 20000, limit)
			}
		}},
		{name: "all of a short output", run: func(h *harness) {
			cmd := h.c.Program("print", "0123456789")
			cmd.OutputLimit = 10
			text, truncated := h.all(h.startCommand(cmd))
			h.checkText(text, "0123456789", truncated)
		}},
		{name: "manager bytes", run: func(h *harness) {
			const limit, n = 256 << 10, 8
			m := h.limited(Limits{ManagerBytes: limit})
			hold := h.start("hold")
			for range n {
				h.end(h.start("lines", "10000")) // 80,000 bytes
			}
			kept := 0
			list := m.List()
			for _, t := range list {
				text, _ := h.keptOf(t)
				kept += len(text)
			}
			// A page for each terminal is its own.
			if most := limit + len(list)*4<<10; kept > most || kept == 0 {
				h.Errorf("%d bytes kept with a limit of %d", kept, limit)
			}
			if last := list[len(list)-1]; last.Info().ID != hold.Info().ID {
				if text, _ := h.keptOf(last); !strings.HasSuffix(plain(text), "0009999\n") {
					h.Errorf("the newest output is gone: %d bytes, %q", len(text), tailOf(text))
				}
			}
			if _, err := m.Get(hold.Info().ID); err != nil {
				h.Errorf("the live command is gone: %v", err)
			}
		}},
		{name: "manager bytes are shared", run: func(h *harness) {
			// Each of those that run keeps a fair share of the end of its output,
			// whoever came first.
			const limit, n = 400 << 10, 8
			h.limited(Limits{ManagerBytes: limit})
			var live []terminal.Terminal
			for range n {
				t := h.start("spill", "20000") // 160,000 bytes
				h.waitText(t, "0019999\n")
				live = append(live, t)
			}
			total := 0
			for i, t := range live {
				text, _ := h.keptOf(t)
				total += len(text)
				if len(text) < limit/n/2 || !strings.HasSuffix(plain(text), "0019999\n") {
					h.Errorf("command %d of %d keeps %d bytes of %d for all, …%q", i+1, n, len(text), limit, tailOf(text))
				}
			}
			if most := limit + n*4<<10; total > most {
				h.Errorf("%d bytes kept with a limit of %d", total, limit)
			}
		}},
		{name: "room that cannot be had", run: func(h *harness) {
			// What a command wants and cannot have costs nobody else's output.
			const limit = 75 << 10
			m := h.limited(Limits{ManagerBytes: limit})
			ended := h.start("print", "small")
			h.end(ended)
			h.waitText(h.start("spill", "20000"), "0019999\n")
			if _, err := m.Get(ended.Info().ID); err != nil {
				h.Errorf("an ended command with 5 bytes is gone: %v", err)
			}
		}},
	},
}

// checkTail fails the case if not the last bytes, and no more than limit, are
// kept of numbered(n).
func (h *harness) checkTail(t terminal.Terminal, n, limit int) {
	h.Helper()
	text, marked := h.keptOf(t)
	want := numbered(n)
	switch {
	case len(text) > limit || len(text) < limit/2:
		h.Errorf("%d bytes kept with a limit of %d", len(text), limit)
	case !strings.HasSuffix(want, plain(text)):
		h.Errorf("not the end of the output is kept: %q … %q", headOf(text), tailOf(text))
	case !marked:
		h.Errorf("output is gone, and no read said so")
	}
}

// keptOf returns what is kept of an output, and whether a loss before it is
// marked. It does not wait.
func (h *harness) keptOf(t terminal.Terminal) (text string, marked bool) {
	h.Helper()
	for cursor := int64(0); ; {
		out := h.read(t, cursor, 0)
		text += out.Text
		marked = marked || out.Truncated
		cursor = out.NextCursor
		if !out.More {
			break
		}
	}
	if !h.c.Exact {
		if at := strings.LastIndex(text, terminal.GapMark); at >= 0 {
			return text[at+len(terminal.GapMark):], true
		}
	}
	return text, marked
}
