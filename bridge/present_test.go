package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// outputs returns when the session/updates that carry output were sent.
func (w *world) outputs() (times []time.Time) {
	for _, l := range w.c.Lines() {
		if l.Method == acp.ClientMethodSessionUpdate && (strings.Contains(l.Raw, `"terminal_output"`) || strings.Contains(l.Raw, `"type":"content"`)) {
			times = append(times, l.Time)
		}
	}
	return times
}

// A display terminal gets at most one update per 50 ms, a text card one a second,
// however much is printed; and nothing is lost between.
func TestRates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind     kind
		interval time.Duration
		most     int
	}{
		{display, limits.DisplayInterval, 3000/50 + 2},
		{text, limits.TextInterval, 3 + 2},
	} {
		in(t, c.kind, nil, func(w *world) {
			_, _, err := w.run("1", line("lines 3000 1ms"))
			if err != nil {
				w.Fatal(err)
			}
			times := w.outputs()
			if len(times) > c.most || len(times) < 3 {
				w.Errorf("%d updates in 3 s", len(times))
			}
			for i := 1; i < len(times)-1; i++ { // the last is End's
				if d := times[i].Sub(times[i-1]); d < c.interval {
					w.Errorf("two updates %v apart", d)
				}
			}
			contains(w, "what the user sees", w.c.Card("1").Visible(), "line 2999")
		})
	}
}

// Output that comes in pieces is shown as it comes, each piece once.
func TestEachPieceIsShownOnce(t *testing.T) {
	for _, k := range []kind{display, text} {
		in(t, k, nil, func(w *world) {
			seen := func(want string) func() {
				return func() {
					shown := strings.Join(regexp.MustCompile(`line \d`).FindAllString(w.c.Card("1").Visible(), -1), ", ")
					check(w, "what the user sees", shown, want)
				}
			}
			w.later(5*time.Second, seen("line 1, line 2"))
			w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				if _, err := t.ToolCall(card("1")).Exec(ctx, line("lines 3 3s")); err != nil {
					w.Error(err)
				}
				return done, nil
			})
			synctest.Wait()
			seen("line 1, line 2, line 3")()
		})
	}
}

// A connection gets at most 50 display updates a second, of all terminals, and
// each terminal its share.
func TestDisplayRateOfAConnection(t *testing.T) {
	t.Parallel()
	in(t, display, nil, func(w *world) {
		const n = 20
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			for i := range n {
				call := t.ToolCall(card(acp.ToolCallId(fmt.Sprint(i))))
				if _, err := call.StartBackground(ctx, line("lines 3000 1ms")); err != nil {
					w.Fatal(err)
				}
				call.End("", nil)
			}
			return done, nil
		})
		time.Sleep(10 * time.Second)
		times := w.outputs()
		for i := limits.DisplayRate; i < len(times); i++ {
			if d := times[i].Sub(times[i-limits.DisplayRate]); d < time.Second {
				w.Fatalf("%d updates in %v", limits.DisplayRate+1, d)
			}
		}
		for i := range n {
			contains(w, "what the user sees", w.c.Card(acp.ToolCallId(fmt.Sprint(i))).Visible(), "line 3000\r\n")
		}
	})
}

// What does not fit a line is left out of the middle and marked, and can be read
// all the same.
func TestTooMuchOutput(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		r, _, err := w.run("1", line("spam 500000"))
		if err != nil {
			w.Fatal(err)
		}
		seen := w.c.Card("1").Visible()
		switch k.presentation {
		case bridge.PresentDisplay:
			contains(w, "what the user sees", seen, "bytes skipped ...]")
		case bridge.PresentText:
			contains(w, "what the user sees", seen, "earlier output is not shown")
			if len(seen) > limits.TextLimit+64 {
				w.Errorf("%d bytes of text", len(seen))
			}
		}
		if k.presentation != bridge.PresentClient {
			term, _ := w.s.Get(r.ID)
			n := 0
			for out, err := range terminal.Follow(w.Context(), term, 0) {
				if err != nil {
					w.Fatal(err)
				}
				n += len(out.Text)
			}
			check(w, "the length of the output", n, 500000)
		}
	})
}

// No output makes a line too long, splits a character, or breaks Markdown.
func TestAwkwardOutput(t *testing.T) {
	t.Parallel()
	for name, piece := range map[string]string{
		"escapes":  "\x1b[1m<&>\"\\",
		"controls": "\x01\x02",
		"wide":     "漢字🙂",
		"fences":   "```\n````\n",
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world, k kind) {
				w.run("1", terminal.Command{Args: []string{"print", strings.Repeat(piece, 100_000/len(piece))}})
				seen := w.c.Card("1").Visible()
				if !utf8.ValidString(seen) || strings.ContainsRune(seen, utf8.RuneError) {
					w.Error("a character was split")
				}
				if name == "fences" && k.presentation == bridge.PresentText {
					if fence, _, _ := strings.Cut(seen, "\n"); len(fence) < 5 {
						w.Errorf("the fence %q ends inside", fence)
					}
				}
			})
		})
	}
}

// A line feed alone becomes CR LF in a display terminal, and only that; not on the
// alternate screen, on which programs move by it.
func TestDisplayLineFeeds(t *testing.T) {
	t.Parallel()
	for _, pipes := range []bool{true, false} {
		in(t, display, &bridge.Options{Pipes: pipes}, func(w *world) {
			w.run("1", terminal.Command{Args: []string{"print", "a\nb\r\n\nc\x1b[?1049h\x1b[Hd\ne\x1b[?1049l\nf"}})
			check(w, "the output", w.c.Card("1").Visible(), "a\r\nb\r\n\r\nc\x1b[?1049h\x1b[Hd\ne\x1b[?1049l\r\nf")
		})
	}
}

// A display terminal has one exit, with the command's status, also when its Call
// has ended long ago.
func TestDisplayExit(t *testing.T) {
	t.Parallel()
	in(t, display, nil, func(w *world) {
		w.run("1", line("exit 3"))
		check(w, "the exit", w.c.Card("1").Terminals[0].Exit.String(), "exit code 3")
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("2"))
			call.StartBackground(ctx, line("after 5s signal SIGSEGV"))
			call.End("", nil)
			return done, nil
		})
		if exit := w.c.Card("2").Terminals[0].Exit; exit != nil {
			w.Errorf("a running command has the exit %v", exit)
		}
		time.Sleep(6 * time.Second)
		check(w, "the exit", w.c.Card("2").Terminals[0].Exit.String(), "SIGSEGV")
	})
}

// A title and a rawInput that are too long are cut and marked, and so is what the
// final update says; other updates that are too long are refused.
func TestCardsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("0123456789 <&> ", 10_000)
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			c := card("1")
			c.Title = huge
			c.RawInput = map[string]any{"command": huge, "n": 1}
			call := t.ToolCall(c)
			if err := call.Update(acp.SessionToolCallUpdate{}); err != nil {
				w.Error(err)
			}
			content := []acp.ToolCallContent{acp.ToolContent(acp.TextBlock(huge))}
			if err := call.Update(acp.SessionToolCallUpdate{Content: content}); !errors.Is(err, terminal.ErrTooLarge) {
				w.Errorf("Update: %v", err)
			}
			if err := call.Update(acp.SessionToolCallUpdate{RawOutput: map[string]any{"output": huge, "code": 0}}); err != nil {
				w.Error(err)
			}
			call.End(huge, nil)
			if err := w.s.Update(ctx, acp.UpdateAgentMessageText(huge)); err != nil {
				w.Error(err)
			}
			plan := acp.UpdatePlan(acp.PlanEntry{Content: huge})
			if err := w.s.Update(ctx, plan); !errors.Is(err, terminal.ErrTooLarge) {
				w.Errorf("Update: %v", err)
			}
			return done, nil
		})
		seen := w.c.Card("1")
		contains(w, "the title", seen.Title, "bytes cut ...]")
		in := seen.RawInput.(map[string]any)
		contains(w, "the rawInput", in["command"].(string), "bytes cut ...]")
		check(w, "the rest of it", in["n"], any(1.0))
		out := seen.RawOutput.(map[string]any)
		contains(w, "the rawOutput", out["output"].(string), "bytes cut ...]")
		contains(w, "the text", seen.Text, "bytes cut ...]")
		check(w, "the message", w.c.Messages(), huge)
	})
}

// A tool call that cannot be sent still has its final status.
func TestCardThatCannotBeSent(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			c := card("1")
			c.Content = []acp.ToolCallContent{acp.ToolContent(acp.TextBlock(strings.Repeat("x", 100_000)))}
			call := t.ToolCall(c)
			if _, err := call.Exec(ctx, line("echo x")); !errors.Is(err, terminal.ErrTooLarge) {
				w.Errorf("Exec: %v", err)
			}
			call.Update(acp.SessionToolCallUpdate{RawOutput: make(chan int)})
			check(w, "the status", call.End("", nil).Status, acp.ToolCallStatusFailed)
			return done, nil
		})
		check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusFailed)
		check(w, "starts", w.starts("echo"), 0)
	})
}

// When the client stops reading, nothing here hangs: a turn, a cancel, an update
// and a close return within their bounds.
func TestClientStopsReading(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			t.Parallel()
			w := open(t, k, nil)
			if _, _, err := w.run("1", line("echo x")); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			turn := make(chan acp.PromptResponse, 1)
			started := make(chan struct{})
			go func() {
				resp, _ := w.s.Turn(ctx, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					call := t.ToolCall(card("2"))
					call.StartBackground(ctx, line("lines 1000000 1ms"))
					close(started)
					_, err := t.ToolCall(card("3")).Exec(ctx, line("lines 1000000 1ms"))
					return done, err
				})
				turn <- resp
			}()
			<-started
			w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodSessionUpdate, StopReading: true})
			expect := func(what string, bound time.Duration, f func()) {
				start := time.Now()
				f()
				atMost(t, what, time.Since(start), bound+10*time.Second)
			}
			time.Sleep(200 * time.Millisecond)
			short, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			w.s.Update(short, acp.UpdateAgentMessageText("makes it stop reading"))
			expect("Update", 0, func() {
				if err := w.s.Update(short, acp.UpdateAgentMessageText("hello?")); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("an update that nobody reads: %v", err)
				}
			})
			expect("Cancel", 0, w.s.Cancel)
			expect("the turn", 2*limits.SettleTimeout, func() { check(t, "the answer", (<-turn).StopReason, acp.StopReasonCancelled) })
			cancel()
			expect("Close", 2*limits.SettleTimeout, func() { w.b.Close() })
			check(t, "live here", len(live(w.local.List())), 0)
			w.c.Disconnect()
			w.local.Close()
			w.c.Close()
		})
	}
}
