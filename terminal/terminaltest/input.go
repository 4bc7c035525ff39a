package terminaltest

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

var inputRule = rule{
	name: "3-input",
	text: "WriteInput: verbatim, returns what the kernel has taken. No Stdin: ErrNoInput. Ended: ErrEnded. Nobody reads: waits; ctx ends it at once; " +
		"at most one left-over write per terminal, later writes queue behind it. A canonical line over the limit: ErrLineTooLong before anything is written. " +
		"It never blocks another call. Resize and Signal reach the program, or are ErrUnsupported. " +
		"A terminal that tells the state tells the truth: Working unless there is evidence, Finished after the end.",
	cases: []testCase{
		{name: "verbatim", run: func(h *harness) {
			text := "a\tb \x1b[A\x03\x04 é漢😀\r\n.END"
			t, ok := h.startInput("gulp", "0s", "END")
			if !ok {
				return
			}
			h.write(t, text[:3])
			h.write(t, text[3:])
			h.checkExit(h.end(t), 0)
			got, truncated := h.all(t)
			h.checkText(got, "ready\n"+text, truncated)
		}},
		{name: "no Stdin", run: func(h *harness) {
			t := h.start("hold")
			if n, err := h.tryWrite(h.ctx(bound), t, "x"); n != 0 || !errors.Is(err, terminal.ErrNoInput) {
				h.Errorf("WriteInput without Stdin: %d, %v; want 0, ErrNoInput", n, err)
			}
		}},
		{name: "ended", run: func(h *harness) {
			t, ok := h.startInput("true")
			if !ok {
				return
			}
			h.end(t)
			if n, err := h.tryWrite(h.ctx(bound), t, "x"); n != 0 || !errors.Is(err, terminal.ErrEnded) {
				h.Errorf("WriteInput after the end: %d, %v; want 0, ErrEnded", n, err)
			}
		}},
		{name: "read late", run: func(h *harness) {
			t, ok := h.startInput("gulp", "1s", "END")
			if !ok {
				return
			}
			text := strings.Repeat("0123456789abcdef", 16<<10) + "END"
			h.write(t, text)
			h.checkExit(h.end(t), 0)
			got, truncated := h.all(t)
			h.checkText(got, "ready\n"+text, truncated)
		}},
		{name: "ctx ends it", run: func(h *harness) {
			// What was counted is what the program gets, and nothing more.
			t, ok := h.startInput("gulp", "2s", "END")
			if !ok {
				return
			}
			because := errors.New("because")
			ctx, cancel := context.WithTimeoutCause(h.Context(), 300*time.Millisecond, because)
			defer cancel()
			start := time.Now()
			text := strings.Repeat("a", 4<<20)
			n, err := h.tryWrite(ctx, t, text)
			if !errors.Is(err, because) || n < 0 || n >= len(text) {
				h.Fatalf("4 MiB to a program that does not read: %d, %v; want some, and the cause of the context", n, err)
			}
			h.checkPrompt("a write whose context ended", start)
			h.write(t, "END")
			h.checkExit(h.end(t), 0)
			got, truncated := h.all(t)
			h.checkText(got, "ready\n"+text[:n]+"END", truncated)
		}},
		{name: "writes queue", run: func(h *harness) {
			t, ok := h.startInput("gulp", "1s", "bEND")
			if !ok {
				return
			}
			a, b := strings.Repeat("a", 300<<10), strings.Repeat("b", 300<<10)+"END"
			var all sync.WaitGroup
			ctx := h.ctx(bound)
			write := func(text string) {
				if n, err := t.WriteInput(ctx, text); n != len(text) || err != nil {
					h.Errorf("WriteInput: %d of %d, %v", n, len(text), err)
				}
			}
			all.Go(func() { write(a) })
			time.Sleep(300 * time.Millisecond)
			all.Go(func() { write(b) })
			h.within(bound, "two writes", all.Wait)
			h.checkExit(h.end(t), 0)
			got, truncated := h.all(t)
			h.checkText(got, "ready\n"+a+b, truncated)
		}},
		{name: "blocks nothing else", run: func(h *harness) {
			m := h.manager()
			t, ok := h.startInput("hold")
			if !ok {
				return
			}
			_, cursor := h.waitText(t, "ready\n")
			var n int
			var err error
			var all sync.WaitGroup
			ctx := h.ctx(2 * bound)
			all.Go(func() { n, err = t.WriteInput(ctx, strings.Repeat("a\n", 2<<20)) })
			time.Sleep(300 * time.Millisecond)
			start := time.Now()
			h.within(bound, "other calls during a blocked write", func() {
				t.Info()
				t.ReadOutput(ctx, cursor, 100*time.Millisecond)
				t.Resize(terminal.Size{Rows: 10, Cols: 10})
				m.List()
				m.Get(t.Info().ID)
				m.Busy()
			})
			short, cancel := context.WithTimeout(h.Context(), 100*time.Millisecond)
			defer cancel()
			if n, err := h.tryWrite(short, t, "second"); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
				h.Errorf("a second write behind a blocked one: %d, %v; want 0 and the end of its context", n, err)
			}
			h.checkExit(h.end(h.start("true")), 0)
			h.stop(t)
			h.within(bound, "a blocked write of a stopped command", all.Wait)
			if !errors.Is(err, terminal.ErrEnded) || n >= 4<<20 {
				h.Errorf("a blocked write of a stopped command: %d, %v; want ErrEnded", n, err)
			}
			h.checkPrompt("all that", start)
		}},
		{name: "line too long", run: func(h *harness) {
			t, ok := h.startTTYInput("cat")
			if !ok {
				return
			}
			if n, err := h.tryWrite(h.ctx(bound), t, strings.Repeat("x", 5000)+"\n"); n != 0 || !errors.Is(err, terminal.ErrLineTooLong) {
				h.Errorf("a line of 5,000 bytes: %d, %v; want 0, ErrLineTooLong", n, err)
			}
			h.write(t, "ok\n"+strings.Repeat("y", 4000)+"\n\x04")
			h.checkExit(h.end(t), 0)
			text, _ := h.all(t)
			if !strings.Contains(plain(text), "ok\n") || strings.Contains(text, "x") || !strings.Contains(text, strings.Repeat("y", 4000)) {
				h.Errorf("the program got, of a refused line and two good ones: …%q", tailOf(text))
			}
		}},
		{name: "line too long in parts", run: func(h *harness) {
			t, ok := h.startTTYInput("cat")
			if !ok {
				return
			}
			part := strings.Repeat("x", 3000)
			h.write(t, part)
			if n, err := h.tryWrite(h.ctx(bound), t, part); n != 0 || !errors.Is(err, terminal.ErrLineTooLong) {
				h.Errorf("3,000 bytes after 3,000 of the same line: %d, %v; want 0, ErrLineTooLong", n, err)
			}
			h.write(t, "\n\x04")
			h.checkExit(h.end(t), 0)
			text, _ := h.all(t)
			if n := strings.Count(text, "x"); n != 2*len(part) && n != len(part) { // with or without echo
				h.Errorf("%d bytes of a line of %d and its echo", n, len(part))
			}
		}},
		{name: "close", run: func(h *harness) {
			// Whoever reads gets all that was written, and then the end of the file.
			closer := func(t terminal.Terminal) terminal.InputCloser {
				c, ok := terminal.As[terminal.InputCloser](t)
				if !ok {
					h.Skipf("the input of this Manager's commands cannot be closed")
				}
				return c
			}
			closeInput := func(t terminal.Terminal, what string, want error) {
				h.Helper()
				c, ctx := closer(t), h.ctx(bound)
				h.within(bound, "CloseInput", func() {
					if err := c.CloseInput(ctx); !errors.Is(err, want) {
						h.Errorf("CloseInput %s: %v, want %v", what, err, want)
					}
				})
			}
			t, ok := h.startInput("cat")
			if !ok {
				return
			}
			text := strings.Repeat("0123456789abcdef", 1<<10) // more than one read, less than a pipe
			h.write(t, text)
			closeInput(t, "of a pipe", nil)
			h.checkExit(h.end(t), 0)
			got, truncated := h.all(t)
			h.checkText(got, text, truncated)
			closeInput(t, "after the end", terminal.ErrEnded)
			closeInput(h.start("hold"), "without Stdin", terminal.ErrNoInput)

			t, _ = h.startInput("hold")
			closeInput(t, "that nobody reads", nil)
			closeInput(t, "that is closed", nil)
			if n, err := h.tryWrite(h.ctx(bound), t, "x"); n != 0 || !errors.Is(err, terminal.ErrNoInput) {
				h.Errorf("WriteInput behind CloseInput: %d, %v; want 0, ErrNoInput", n, err)
			}
			h.stop(t)

			// It waits for its turn, and no longer than its context lasts.
			t, _ = h.startInput("hold")
			h.waitText(t, "ready\n")
			var all sync.WaitGroup
			ctx := h.ctx(2 * bound)
			all.Go(func() { t.WriteInput(ctx, strings.Repeat("a", 4<<20)) })
			time.Sleep(300 * time.Millisecond)
			short, cancel := context.WithTimeout(h.Context(), 100*time.Millisecond)
			defer cancel()
			if err := closer(t).CloseInput(short); !errors.Is(err, context.DeadlineExceeded) {
				h.Errorf("CloseInput behind a write that waits: %v, want the end of its context", err)
			}
			h.stop(t)
			h.within(bound, "a blocked write of a stopped command", all.Wait)

			if !h.c.TTY {
				return
			}
			for _, text := range []string{"", "line\n", "li", "li\x16"} {
				t, _ = h.startTTYInput("cat")
				h.write(t, text)
				closeInput(t, "of a terminal", nil)
				h.checkExit(h.end(t), 0)
			}
		}},
		{name: "edited lines", run: func(h *harness) {
			// How long a line is counts as the terminal edits it: what is erased is
			// gone, and a key behind Ctrl-V is text.
			x, y := strings.Repeat("x", 4000), strings.Repeat("v", 4000)
			for typed, read := range map[string]string{
				x + "\x17" + y:       y, // Ctrl-W: a word
				x + " x\x17\x17" + y: y,
				x + "\x15" + y:       y, // Ctrl-U: the line
				x + strings.Repeat("\x7f", 3000) + y[:3000]:                 x[:1000] + y[:3000],
				strings.Repeat("é", 2000) + "\x7f\x7f" + y[:96]:             strings.Repeat("é", 1998) + y[:96], // a whole character
				x[:10] + strings.Repeat("\x11", 4200) + "v":                 x[:10] + "v",                       // keys that are no text
				x[:3000] + "\x16\n" + y[:1000] + "\x16\x16\x16\x15\x16\x03": x[:3000] + "\n" + y[:1000] + "\x16\x15\x03",
			} {
				t, ok := h.startTTYInput("gulp", "0s", "END")
				if !ok {
					return
				}
				h.write(t, typed+"END\x04")
				h.checkExit(h.end(t), 0)
				text, _ := h.all(t)
				// The echo, and behind it what the program read.
				text = strings.TrimSuffix(plain(text), "END")
				text = strings.TrimPrefix(text[strings.LastIndex(text, "END")+len("END"):], "ready\n")
				if text != read {
					h.Errorf("of …%q the program read …%q, want …%q", tailOf(typed), tailOf(text), tailOf(read))
				}
			}
			for _, typed := range []string{
				x + "\x16\n" + y[:200],   // a line end that is text
				x + "\x16\x15" + y[:200], // a Ctrl-U that is
				x[:95] + y + "\x16\x7f",  // and a key that would erase
				x + "\x7f\x7f" + y[:200],
				"a " + x + "\x17" + y + x[:100],
				x[:95] + y + "z\x17", // too long before it is erased
			} {
				t, ok := h.startTTYInput("gulp", "0s", "END")
				if !ok {
					return
				}
				if n, err := h.tryWrite(h.ctx(bound), t, typed+"\n"); n != 0 || !errors.Is(err, terminal.ErrLineTooLong) {
					h.Errorf("WriteInput(…%q) = %d, %v; want 0, ErrLineTooLong", tailOf(typed), n, err)
				}
				h.write(t, "END\x04")
				h.checkExit(h.end(t), 0)
				if text, _ := h.all(t); strings.ContainsAny(text, "xvz") {
					h.Errorf("some of a refused line was written: %q", tailOf(text))
				}
			}

			// In parts, and with what takes the line away; that may be the end of the
			// command as well.
			for _, key := range []string{"\x03", "\x1a", "\x1c"} {
				t, ok := h.startTTYInput("signals")
				if !ok {
					return
				}
				h.waitText(t, "ready\n")
				h.write(t, x)
				if n, err := h.tryWrite(h.ctx(bound), t, key+y[:3000]); err != nil && !errors.Is(err, terminal.ErrEnded) {
					h.Errorf("%q and 3,000 bytes behind 4,000: %d, %v; want them written", key, n, err)
				}
				if n, err := h.tryWrite(h.ctx(bound), t, x); n != 0 || !errors.Is(err, terminal.ErrLineTooLong) && !errors.Is(err, terminal.ErrEnded) {
					h.Errorf("behind 3,000 bytes after %q: %d, %v; want 0, ErrLineTooLong", key, n, err)
				}
				h.stop(t)
			}
			t, ok := h.startTTYInput("hold")
			if !ok {
				return
			}
			h.write(t, x+"\x16")
			if n, err := h.tryWrite(h.ctx(bound), t, "\n"+y); n != 0 || !errors.Is(err, terminal.ErrLineTooLong) {
				h.Errorf("a line end behind an earlier Ctrl-V: %d, %v; want 0, ErrLineTooLong", n, err)
			}
			h.stop(t)
		}},
		{name: "interrupt", run: func(h *harness) {
			t, ok := h.startTTYInput("signals")
			if !ok {
				return
			}
			h.waitText(t, "ready\n")
			h.write(t, "\x03")
			h.waitText(t, "SIGINT\n")
		}},
		{name: "resize", run: func(h *harness) {
			cmd := h.c.Program("hold")
			cmd.TTY = false
			t := h.startCommand(cmd)
			if err := t.Resize(terminal.Size{Rows: 10, Cols: 20}); !errors.Is(err, errors.ErrUnsupported) {
				h.Errorf("Resize without TTY: %v, want ErrUnsupported", err)
			}
			if !h.c.TTY {
				return // the case tty of the command has the rest
			}
			cmd = h.c.Program("size")
			cmd.TTY = true
			t = h.startCommand(cmd)
			h.waitText(t, "40 x 120\n")
			if err := t.Resize(terminal.Size{Rows: 10, Cols: 20}); err != nil {
				h.Errorf("Resize: %v", err)
			}
			h.waitText(t, "10 x 20\n")
			if err := t.Resize(terminal.Size{}); err == nil {
				h.Errorf("Resize to nothing: no error")
			}
			h.stop(t)
			if err := t.Resize(terminal.Size{Rows: 11, Cols: 20}); err != nil {
				h.Errorf("Resize after the end: %v, want nothing", err)
			}
		}},
		{name: "signal", run: func(h *harness) {
			t := h.start("signals")
			h.waitText(t, "ready\n")
			err := t.Signal(os.Interrupt)
			if !h.c.Signal {
				if err != nil && !errors.Is(err, errors.ErrUnsupported) {
					h.Errorf("Signal: %v, want ErrUnsupported", err)
				}
				return
			}
			if err != nil {
				h.Errorf("Signal: %v", err)
			}
			h.waitText(t, "SIGINT\n")
			if err := t.Signal(os.Kill); err != nil {
				h.Errorf("Signal: %v", err)
			}
			if info := h.end(t); info.Outcome != terminal.Signalled || info.Exit.Signal != "SIGKILL" {
				h.Errorf("after SIGKILL: %s, %v", info.Outcome, info.Exit)
			}
			if err := t.Signal(os.Interrupt); !errors.Is(err, terminal.ErrEnded) {
				h.Errorf("Signal after the end: %v, want ErrEnded", err)
			}
		}},
		{name: "state", run: func(h *harness) {
			cmd := h.c.Program("hold")
			cmd.Stdin = h.c.Input
			t := h.startCommand(cmd)
			reader, ok := terminal.As[terminal.ActivityReader](t)
			if !ok {
				h.Skipf("terminals of this Manager do not tell the state")
			}
			_, cursor := h.waitText(t, "ready\n")
			h.checkState(reader, 0, terminal.Working) // it sleeps, and reads nothing
			because := errors.New("because")
			ctx, cancel := context.WithTimeoutCause(h.Context(), 300*time.Millisecond, because)
			defer cancel()
			h.within(bound, "WaitActivity", func() {
				if state, _, err := reader.WaitActivity(ctx, terminal.Waiting, 0); state != terminal.Working || !errors.Is(err, because) {
					h.Errorf("WaitActivity of a command that does not wait: %s, %v; want working, and the cause of the context", state, err)
				}
			})
			if g, ok := h.startInput("gulp", "300ms", "END"); ok {
				if waiter, ok := terminal.As[terminal.ActivityReader](g); ok {
					h.within(bound, "WaitActivity", func() { // an executor may not know
						ctx, cancel := context.WithTimeout(h.Context(), 2*time.Second)
						defer cancel()
						state, e, err := waiter.WaitActivity(ctx, terminal.Waiting, 0)
						if state == terminal.Waiting && (err != nil || e.Certainty == terminal.NoCertainty || e.Reason == "") {
							h.Errorf("WaitActivity = waiting, %+v, %v; want evidence", e, err)
						}
					})
				}
				h.write(g, "END")
				h.checkExit(h.end(g), 0)
			}
			h.stop(t)
			h.checkState(reader, cursor, terminal.Finished)
			h.within(bound, "WaitActivity", func() {
				if state, _, err := reader.WaitActivity(h.Context(), terminal.Waiting, cursor); state != terminal.Finished || err != nil {
					h.Errorf("WaitActivity of an ended command: %s, %v; want finished", state, err)
				}
			})
		}},
	},
}

// checkState checks what the command is doing.
func (h *harness) checkState(r terminal.ActivityReader, cursor int64, want terminal.Activity) {
	h.Helper()
	h.within(bound, "ReadActivity", func() {
		if state, e, err := r.ReadActivity(h.Context(), cursor); state != want || err != nil {
			h.Errorf("ReadActivity = %s, %+v, %v; want %s", state, e, err, want)
		}
	})
}

// startInput starts a program with Stdin, a pipe, and reports true. A Manager without
// Config.Input must refuse it: that is checked, and false reported.
func (h *harness) startInput(name string, args ...string) (terminal.Terminal, bool) {
	h.Helper()
	cmd := h.c.Program(name, args...)
	cmd.Stdin, cmd.TTY = true, false
	cmd.OutputLimit = 8 << 20 // more than is on its way while nobody reads
	return h.startWithInput(cmd)
}

// startTTYInput is startInput with TTY. Without Config.TTY there is no line
// editing, and the case has nothing to show.
func (h *harness) startTTYInput(name string, args ...string) (terminal.Terminal, bool) {
	h.Helper()
	cmd := h.c.Program(name, args...)
	cmd.Stdin, cmd.TTY = true, true
	if h.c.Input && !h.c.TTY {
		h.Skipf("input of this Manager never goes through a terminal")
	}
	return h.startWithInput(cmd)
}

func (h *harness) startWithInput(cmd terminal.Command) (terminal.Terminal, bool) {
	h.Helper()
	if h.c.Input {
		return h.startCommand(cmd), true
	}
	if _, err := h.tryStart(h.ctx(bound), cmd); !errors.Is(err, terminal.ErrNoInput) {
		h.Errorf("Start with Stdin: %v, want ErrNoInput", err)
	}
	if list := h.m.List(); len(list) > 0 || h.m.Busy() {
		h.Errorf("after a failed start: %d terminals, busy %v", len(list), h.m.Busy())
	}
	return nil, false
}

// write is a WriteInput that must take everything.
func (h *harness) write(t terminal.Terminal, text string) {
	h.Helper()
	if n, err := h.tryWrite(h.ctx(bound), t, text); n != len(text) || err != nil {
		h.Fatalf("WriteInput: %d of %d bytes, %v", n, len(text), err)
	}
}

// tryWrite is a WriteInput that must return.
func (h *harness) tryWrite(ctx context.Context, t terminal.Terminal, text string) (n int, err error) {
	h.Helper()
	h.within(bound+time.Second, "WriteInput", func() { n, err = t.WriteInput(ctx, text) })
	return n, err
}
