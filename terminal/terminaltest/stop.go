package terminaltest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

var stopRule = rule{
	name: "4-stop",
	text: "Stop ends the whole tree, waits until settled, returns the final Info; idempotent; a cancelled wait does not take back the accepted stop. " +
		"What a command left behind at its natural end is not ended with it, is named in Info.Survivors, and ends with a Stop or with the manager.",
	cases: []testCase{
		{name: "final", run: func(h *harness) {
			m := h.manager()
			t := h.start("hold")
			h.waitText(t, "ready\n")
			info := h.stop(t)
			h.checkStopped(info)
			select {
			case <-t.Done():
			default:
				h.Errorf("Stop has returned, and Done is open")
			}
			h.checkSame(info, t.Info())
			if m.Busy() {
				h.Errorf("the only command is stopped, and the Manager is busy")
			}
		}},
		{name: "last words", run: func(h *harness) {
			t := h.start("trap", "7")
			h.waitText(t, "ready\n")
			h.checkStopped(h.stop(t))
			text, truncated := h.all(t)
			h.checkText(text, "ready\nbye\n", truncated)
		}},
		{name: "whole tree", run: func(h *harness) {
			file := filepath.Join(h.TempDir(), "beat")
			t := h.start("family", file)
			h.waitText(t, "ready\n")
			h.waitBeat(file+".plain", file+".stubborn")
			info := h.stop(t)
			h.checkStopped(info)
			if !h.c.Tree {
				return // what it does not reach, it cannot name
			}
			h.checkDead(file+".plain", file+".stubborn")
			if info.Survivors == nil || len(info.Survivors) > 0 {
				h.Errorf("Survivors is %#v, want none and not unknown", info.Survivors)
			}
		}},
		{name: "by force", run: func(h *harness) {
			t := h.start("stubborn")
			h.waitText(t, "ready\n")
			h.checkStopped(h.stop(t))
		}},
		{name: "idempotent", run: func(h *harness) {
			t := h.start("stubborn")
			h.waitText(t, "ready\n")
			var all sync.WaitGroup
			var infos [4]terminal.Info
			ctx := h.ctx(bound)
			for i := range infos {
				all.Go(func() {
					info, err := t.Stop(ctx)
					if err != nil {
						h.Errorf("Stop: %v", err)
					}
					infos[i] = info
				})
			}
			h.within(2*bound, "four calls of Stop", all.Wait)
			h.checkStopped(infos[0])
			for _, info := range append(infos[1:], h.stop(t)) {
				h.checkSame(infos[0], info)
			}
		}},
		{name: "after the end", run: func(h *harness) {
			t := h.start("exit", "3")
			before := h.end(t)
			info := h.stop(t)
			h.checkSame(before, info)
			h.checkExit(info, 3)
		}},
		{name: "cancelled wait", run: func(h *harness) {
			because := errors.New("because")
			for _, d := range []time.Duration{0, 100 * time.Millisecond} {
				t := h.start("stubborn")
				h.waitText(t, "ready\n")
				ctx, cancel := context.WithCancelCause(h.Context())
				timer := time.AfterFunc(d, func() { cancel(because) })
				if d == 0 {
					cancel(because)
				}
				start := time.Now()
				var err error
				h.within(bound, "Stop", func() { _, err = t.Stop(ctx) })
				timer.Stop()
				if err != nil && !errors.Is(err, because) {
					h.Errorf("Stop: %v, want the cause of its context", err)
				}
				if err == nil {
					h.checkFinal(t.Info()) // it was quicker than its context
				}
				h.checkPrompt("a Stop whose context ended", start)
				h.checkStopped(h.end(t))
			}
		}},
		{name: "left behind", run: func(h *harness) {
			file := filepath.Join(h.TempDir(), "beat")
			t := h.start("leave", file)
			h.waitText(t, "left\n")
			info := h.end(t)
			h.checkExit(info, 0)
			if !h.c.Tree {
				return // what it cannot see, it cannot name
			}
			if h.c.Alone {
				h.checkDead(file)
				return
			}
			h.waitBeat(file)
			if len(info.Survivors) != 1 || info.Survivors[0].PID == 0 || !strings.Contains(info.Survivors[0].Command, "beat") {
				h.Errorf("Survivors is %#v, want the child beat", info.Survivors)
			}
			time.Sleep(15 * beatInterval)
			h.waitBeat(file) // not ended with its parent
			h.close()
			h.checkDead(file)
		}},
		{name: "left behind, and stopped", run: func(h *harness) {
			file := filepath.Join(h.TempDir(), "beat")
			t := h.start("leave", file)
			final := h.end(t)
			if !h.c.Tree || h.c.Alone {
				return
			}
			h.waitBeat(file)
			info := h.stop(t)
			h.checkDead(file)
			if info.Survivors == nil || len(info.Survivors) > 0 {
				h.Errorf("Survivors is %#v, want none and not unknown", info.Survivors)
			}
			if info.Outcome != final.Outcome {
				h.Errorf("%s, and after a Stop %s", final.Outcome, info.Outcome)
			}
			if info := h.stop(t); info.Survivors == nil || len(info.Survivors) > 0 {
				h.Errorf("once more, Survivors is %#v", info.Survivors)
			}
		}},
	},
}

// checkStopped fails the case if info is not that of a stopped command.
func (h *harness) checkStopped(info terminal.Info) {
	h.Helper()
	h.checkFinal(info)
	if info.Outcome != terminal.Stopped || info.Exit.Success() {
		h.Errorf("after Stop: %s, %v", info.Outcome, info.Exit)
	}
}

// checkSame compares what is final of two Infos.
func (h *harness) checkSame(a, b terminal.Info) {
	h.Helper()
	if a.ID != b.ID || a.Outcome != b.Outcome || a.Exit.String() != b.Exit.String() || !a.Started.Equal(b.Started) || !a.Ended.Equal(b.Ended) {
		h.Errorf("the final Info changes:\n%+v\n%+v", a, b)
	}
}

// waitBeat waits until each file grows.
func (h *harness) waitBeat(files ...string) {
	h.Helper()
	for _, file := range files {
		deadline := time.Now().Add(bound)
		for first := beats(file); beats(file) <= first; time.Sleep(beatInterval) {
			if time.Now().After(deadline) {
				h.Fatalf("no sign of life of the process of %s", filepath.Base(file))
			}
		}
	}
}

// checkDead fails the case if one of the files still grows.
func (h *harness) checkDead(files ...string) {
	h.Helper()
	for _, file := range files {
		before := beats(file)
		time.Sleep(15 * beatInterval)
		if beats(file) != before {
			h.Errorf("the process of %s still lives", filepath.Base(file))
		}
	}
}

func beats(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}
