package terminaltest

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

var exitRule = rule{
	name: "5-exit",
	text: "Exit is tri-state; unknown is never success. A non-zero exit, a signal and a timeout are values, not errors.",
	cases: []testCase{
		{"codes", func(h *harness) {
			for _, code := range []int{0, 1, 3, 127, 255} {
				t := h.start("exit", strconv.Itoa(code))
				info := h.end(t)
				h.checkExit(info, code)
				if info.Exit.Success() != (code == 0) {
					h.Errorf("code %d is a success: %v", code, info.Exit.Success())
				}
				h.read(t, 0, 0) // no error
				h.stop(t)       // no error
			}
		}},
		{"signal", func(h *harness) {
			for _, name := range []string{"SIGKILL", "SIGTERM", "SIGINT"} {
				info := h.end(h.start("die", name))
				if info.Outcome != terminal.Signalled || info.Exit.Signal != name || info.Exit.Code != nil {
					h.Errorf("after %s: %s, %v (code %v)", name, info.Outcome, info.Exit, info.Exit.Code)
				}
			}
		}},
		{"timeout", func(h *harness) {
			cmd := h.c.Program("hold")
			cmd.Timeout = 700 * time.Millisecond
			t := h.startCommand(cmd)
			info := h.end(t)
			if info.Outcome != terminal.TimedOut || info.Exit.Success() {
				h.Errorf("after its timeout: %s, %v", info.Outcome, info.Exit)
			}
			if info.RunTime() < cmd.Timeout {
				h.Errorf("timed out after %v, before its time of %v", info.RunTime(), cmd.Timeout)
			}
			if text, truncated := h.all(t); h.c.TTY || text != "" { // what it wrote before is kept
				h.checkText(text, "ready\n", truncated)
			}
			h.checkSame(info, h.stop(t)) // no error
		}},
		{"timeout by force", func(h *harness) {
			cmd := h.c.Program("stubborn")
			cmd.Timeout = time.Second
			if info := h.end(h.startCommand(cmd)); info.Outcome != terminal.TimedOut || info.Exit.Success() {
				h.Errorf("after its timeout: %s, %v", info.Outcome, info.Exit)
			}
		}},
		{"in time", func(h *harness) {
			cmd := h.c.Program("exit", "3")
			cmd.Timeout = bound
			h.checkExit(h.end(h.startCommand(cmd)), 3)
		}},
		{"unknown", func(h *harness) {
			// Where there are no real exits, the program does not say how it
			// ended; where there are, it fails.
			info := h.end(h.start("vanish"))
			if info.Exit.Success() || info.Outcome == terminal.Exited && info.Exit.Code == nil {
				h.Errorf("nobody knows how it ended: %s, %v", info.Outcome, info.Exit)
			}
			if !info.Exit.Known() && (info.Outcome != terminal.Unknown || info.Err == nil) {
				h.Errorf("nobody knows how it ended: %s (Err: %v), want unknown and why", info.Outcome, info.Err)
			}
		}},
		{"times", func(h *harness) {
			t := h.start("drip", "300ms", "one", "two")
			if info := t.Info(); !info.FirstOutput.IsZero() && info.FirstOutput.Before(info.Started) {
				h.Errorf("first output %v, before the start %v", info.FirstOutput, info.Started)
			}
			info := h.end(t)
			if info.FirstOutput.Before(info.Started) || info.FirstOutput.After(info.Ended) {
				h.Errorf("started %v, first output %v, ended %v", info.Started, info.FirstOutput, info.Ended)
			}
			if silent := h.end(h.start("true")); !silent.FirstOutput.IsZero() {
				h.Errorf("first output %v of a command without any", silent.FirstOutput)
			}
		}},
		{"a wait that ends is no end", func(h *harness) {
			t := h.start("hold")
			because := errors.New("because")
			ctx, cancel := context.WithTimeoutCause(h.Context(), 100*time.Millisecond, because)
			defer cancel()
			if info, err := terminal.Wait(ctx, t); !errors.Is(err, because) || info.Outcome != terminal.Running {
				h.Errorf("Wait: %s, %v; want running and the cause of the context", info.Outcome, err)
			}
		}},
	},
}
