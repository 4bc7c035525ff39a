package terminaltest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

var concurrencyRule = rule{
	name: "7-concurrency",
	text: "Safe for concurrent use. Whoever starts a goroutine joins it. No lock is held across I/O or an RPC. " +
		"Enders take no ctx; they have their own bound.",
	cases: []testCase{
		{name: "everything at once", run: func(h *harness) {
			m := h.manager()
			shared := h.start("drip", "50ms", "one", "two", "three", "four", "five", "six")
			ctx := h.ctx(bound)
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() {
					t, err := m.Start(ctx, h.c.Program("drip", "20ms", "a", "b"))
					if err != nil {
						h.Errorf("Start: %v", err)
						return
					}
					if i%2 == 0 {
						t.Stop(ctx)
					}
					var b strings.Builder
					if _, err := terminal.Copy(ctx, &b, t, 0); err != nil {
						h.Errorf("Copy: %v", err)
					}
					if i%2 == 1 {
						h.checkText(b.String(), "a\nb\n", false)
					}
				})
				all.Go(func() {
					var b strings.Builder
					if _, err := terminal.Copy(ctx, &b, shared, 0); err != nil {
						h.Errorf("Copy: %v", err)
					}
					h.checkText(b.String(), "one\ntwo\nthree\nfour\nfive\nsix\n", false)
				})
				all.Go(func() {
					for range 20 {
						for _, t := range m.List() {
							t.Info()
							if _, err := m.Get(t.Info().ID); err != nil {
								h.Errorf("Get: %v", err)
							}
							t.Resize(terminal.Size{Rows: 10, Cols: 10})
							t.WriteInput(ctx, "x")
						}
						m.Busy()
						time.Sleep(5 * time.Millisecond)
					}
				})
			}
			h.within(bound, "everything at once", all.Wait)
			h.checkExit(h.end(shared), 0)
		}},
		{name: "a read blocks nothing", run: func(h *harness) {
			m := h.manager()
			t := h.start("stubborn")
			_, cursor := h.waitText(t, "ready\n")
			var out terminal.Output
			var err error
			var all sync.WaitGroup
			ctx := h.ctx(3 * bound)
			all.Go(func() { out, err = t.ReadOutput(ctx, cursor, 2*bound) })
			time.Sleep(200 * time.Millisecond)
			start := time.Now()
			h.within(bound, "other calls during a read that waits", func() {
				t.Info()
				t.ReadOutput(ctx, 0, 0)
				m.List()
				m.Get(t.Info().ID)
				m.Busy()
			})
			h.checkExit(h.end(h.start("true")), 0)
			h.stop(t)
			h.within(bound, "a read of a stopped command", all.Wait)
			if err != nil || !out.EOF() {
				h.Errorf("a read of a stopped command: %+v, %v; want the end", out, err)
			}
			h.checkPrompt("all that", start)
		}},
		{name: "a stop blocks nothing", run: func(h *harness) {
			m := h.manager()
			t := h.start("stubborn")
			h.waitText(t, "ready\n")
			var all sync.WaitGroup
			ctx := h.ctx(bound)
			all.Go(func() { t.Stop(ctx) })
			time.Sleep(100 * time.Millisecond)
			h.within(bound, "other calls during a stop", func() {
				t.Info()
				t.ReadOutput(ctx, 0, 0)
				m.List()
				m.Get(t.Info().ID)
				m.Busy()
			})
			h.checkExit(h.end(h.start("true")), 0)
			h.within(bound, "Stop", all.Wait)
		}},
		{name: "close", run: func(h *harness) {
			m := h.manager()
			done := h.start("print", "kept")
			h.end(done)
			plain, tough := h.start("hold"), h.start("stubborn")
			h.waitText(plain, "ready\n")
			_, cursor := h.waitText(tough, "ready\n")
			var out terminal.Output
			var err error
			var all sync.WaitGroup
			ctx := h.ctx(3 * bound)
			all.Go(func() { out, err = tough.ReadOutput(ctx, cursor, 2*bound) })
			errs := make([]error, 3)
			for i := range errs {
				all.Go(func() { errs[i] = m.Close() })
			}
			h.within(bound, "three calls of Close", all.Wait)
			for _, err := range errs {
				if err != nil {
					h.Errorf("Close: %v", err)
				}
			}
			if err != nil || !out.EOF() {
				h.Errorf("a read of a command whose Manager closes: %+v, %v; want the end", out, err)
			}
			for _, t := range []terminal.Terminal{plain, tough} {
				select {
				case <-t.Done():
					h.checkStopped(t.Info())
				default:
					h.Errorf("the Manager is closed, and a command runs: %+v", t.Info())
				}
			}
			if m.Busy() {
				h.Errorf("a closed Manager is busy")
			}
			if text, truncated := h.all(done); text != "kept" || truncated {
				h.Errorf("after Close, what a caller still holds reads %q", text)
			}
			if _, err := h.tryStart(h.ctx(bound), h.c.Program("true")); !errors.Is(err, terminal.ErrClosed) {
				h.Errorf("Start after Close: %v, want ErrClosed", err)
			}
		}},
		{name: "close during starts", run: func(h *harness) {
			m := h.manager()
			var all sync.WaitGroup
			var mu sync.Mutex
			// guards following
			var started []terminal.Terminal
			for range 8 {
				all.Go(func() {
					t, err := m.Start(h.Context(), h.c.Program("hold"))
					switch {
					case err == nil:
						mu.Lock()
						defer mu.Unlock()
						started = append(started, t)
					case !errors.Is(err, terminal.ErrClosed):
						h.Errorf("Start while the Manager closes: %v, want ErrClosed", err)
					}
				})
			}
			all.Go(func() {
				if err := m.Close(); err != nil {
					h.Errorf("Close: %v", err)
				}
			})
			h.within(2*bound, "Close during starts", all.Wait)
			for _, t := range started {
				select {
				case <-t.Done():
				default:
					h.Errorf("the Manager is closed, and a command runs: %+v", t.Info())
				}
			}
		}},
		{name: "close while a start waits", run: func(h *harness) {
			m := h.limited(Limits{MaxTerminals: 1, WaitForSlot: true})
			h.start("hold")
			var err error
			var all sync.WaitGroup
			all.Go(func() { _, err = m.Start(h.ctx(bound), h.c.Program("true")) })
			time.Sleep(100 * time.Millisecond)
			h.close()
			h.within(bound, "a start that waits for a slot", all.Wait)
			if !errors.Is(err, terminal.ErrClosed) {
				h.Errorf("a start that waits for a slot when the Manager closes: %v, want ErrClosed", err)
			}
		}},
		{name: "goroutines", alone: true, run: func(h *harness) {
			m := h.manager()
			before, _ := goroutines(h.c.Lasting)
			ctx, cancel := context.WithCancel(h.Context())
			for range 3 {
				t := h.start("hold")
				h.waitText(t, "ready\n")
			}
			stopped := h.start("stubborn")
			h.waitText(stopped, "ready\n")
			h.stop(stopped)
			var all sync.WaitGroup
			all.Go(func() { m.List()[0].ReadOutput(ctx, 100, bound) })
			h.close()
			cancel()
			h.within(bound, "a read", all.Wait)
			var after int
			var dump string
			for range 100 {
				if after, dump = goroutines(h.c.Lasting); after <= before {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			h.Errorf("%d goroutines before, %d after Close:\n%s", before, after, dump)
		}},
	},
}

// inBubble is in the header of the goroutines of a synctest bubble.
var inBubble = regexp.MustCompile(`^goroutine \d+ \[.*(synctest bubble \d+)`)

// goroutines counts the goroutines of the caller's bubble, or those outside of
// any, and returns their stacks. Those with one of the texts do not count, and
// neither does that of os/signal, which the process's first signal.Notify starts.
func goroutines(lasting []string) (n int, dump string) {
	lasting = append([]string{"os/signal.loop"}, lasting...)
	buf := make([]byte, 1<<20)
	for {
		if n := runtime.Stack(buf, true); n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	stacks := strings.Split(string(buf), "\n\n")
	bubbleOf := func(stack string) string {
		header, _, _ := strings.Cut(stack, "\n")
		if m := inBubble.FindStringSubmatch(header); m != nil {
			return m[1]
		}
		return ""
	}
	own := bubbleOf(stacks[0]) // the caller's comes first
	var b strings.Builder
	for _, stack := range stacks {
		lasts := slices.ContainsFunc(lasting, func(text string) bool { return strings.Contains(stack, text) })
		if !lasts && bubbleOf(stack) == own {
			n++
			fmt.Fprintf(&b, "%s\n\n", stack)
		}
	}
	return n, b.String()
}
