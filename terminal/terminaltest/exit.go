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
		{name: "codes", run: func(h *harness) {
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
		{name: "signal", run: func(h *harness) {
			for number, name := range map[int]string{9: "SIGKILL", 15: "SIGTERM", 2: "SIGINT"} {
				info := h.end(h.start("die", name))
				if h.c.Codes && info.Outcome == terminal.Exited && info.Exit.Code != nil && *info.Exit.Code == 128+number {
					continue
				}
				if info.Outcome != terminal.Signalled || info.Exit.Signal != name || info.Exit.Code != nil {
					h.Errorf("after %s: %s, %v (code %v)", name, info.Outcome, info.Exit, info.Exit.Code)
				}
			}
		}},
		{name: "timeout", run: func(h *harness) {
			cmd := h.c.Program("hold")
			cmd.Timeout = 2 * time.Second // a busy machine starts it in that time
			t := h.startCommand(cmd)
			info := h.end(t)
			if info.Outcome != terminal.TimedOut || info.Exit.Success() {
				h.Errorf("after its timeout: %s, %v", info.Outcome, info.Exit)
			}
			if info.RunTime() < cmd.Timeout {
				h.Errorf("timed out after %v, before its time of %v", info.RunTime(), cmd.Timeout)
			}
			text, truncated := h.all(t) // what it wrote before is kept
			h.checkText(text, "ready\n", truncated)
			h.checkSame(info, h.stop(t)) // no error
		}},
		{name: "timeout by force", run: func(h *harness) {
			cmd := h.c.Program("stubborn")
			cmd.Timeout = time.Second
			if info := h.end(h.startCommand(cmd)); info.Outcome != terminal.TimedOut || info.Exit.Success() {
				h.Errorf("after its timeout: %s, %v", info.Outcome, info.Exit)
			}
		}},
		{name: "in time", run: func(h *harness) {
			cmd := h.c.Program("drip", "500ms", "one")
			cmd.Timeout = bound
			t := h.startCommand(cmd)
			h.checkExit(h.end(t), 0)
		}},
		{name: "unknown", run: func(h *harness) {
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
		{name: "times", run: func(h *harness) {
			t := h.start("drip", "300ms", "one", "two")
			if info := t.Info(); !info.FirstOutput.IsZero() && info.FirstOutput.Before(info.Started) {
				h.Errorf("first output %v, before the start %v", info.FirstOutput, info.Started)
			}
			info := h.end(t)
			if info.FirstOutput.Before(info.Started) || info.FirstOutput.After(info.Ended) {
				h.Errorf("started %v, first output %v, ended %v", info.Started, info.FirstOutput, info.Ended)
			}
			if info.LastOutput.Before(info.FirstOutput) || info.LastOutput.After(info.Ended) {
				h.Errorf("first output %v, last output %v, ended %v", info.FirstOutput, info.LastOutput, info.Ended)
			}
			if apart := info.LastOutput.Sub(info.FirstOutput); h.c.Exact && apart < 100*time.Millisecond {
				h.Errorf("two outputs are %v apart, want 300ms", apart)
			}
			if silent := h.end(h.start("true")); !silent.FirstOutput.IsZero() || !silent.LastOutput.IsZero() {
				h.Errorf("first output %v, last output %v of a command without any", silent.FirstOutput, silent.LastOutput)
			}
		}},
		{name: "a wait that ends is no end", run: func(h *harness) {
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
