package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// wide returns a client that runs so many commands at once.
func (k kind) wide(n int) kind {
	k.client.Memterm = &memterm.Options{MaxTerminals: n}
	return k
}

// No output makes a size negative, wherever it stands: beside a card that fills
// the line, or after hundreds of others. The turn is answered, the card is final,
// and the next command runs.
func TestOutputThatLeavesNoRoom(t *testing.T) {
	t.Parallel()
	for name, output := range map[string]string{
		"backticks": strings.Repeat("`", 15_000),
		"invalid":   strings.Repeat("\xff\xfe", 8_000),
		"controls":  strings.Repeat("\x01", 16_000),
		"fences":    strings.Repeat("```\n", 8_000),
		"quotes":    strings.Repeat(`<"\>`, 8_000),
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world, k kind) {
				for id, content := range map[acp.ToolCallId]int{"small": 10, "29 kB": 29_000, "no room": 31_500} {
					w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
						c := card(id)
						c.Content = []acp.ToolCallContent{acp.ToolContent(acp.TextBlock(strings.Repeat("x", content)))}
						call := t.ToolCall(c)
						r, err := call.Exec(ctx, terminal.Command{Args: []string{"print", output}})
						if err != nil {
							w.Fatalf("%s: %v", id, err)
						}
						if name != "controls" && len(r.Output) < 15_000 {
							w.Errorf("%s: %d bytes of output", id, len(r.Output))
						}
						if err := call.Update(acp.SessionToolCallUpdate{RawOutput: map[string]any{"output": output}}); err != nil {
							w.Errorf("%s: Update: %v", id, err)
						}
						call.End("", err)
						return done, nil
					})
					check(w, "the status of "+string(id), w.c.Card(id).Status, completed)
				}
				if _, _, err := w.run("after", line("echo x")); err != nil {
					w.Error(err)
				}
			})
		})
	}
}

// Hundreds of commands in one tool call, one after the other or all at once, have
// one card that fits its lines: the later ones are shown, and how many are not.
func TestHundredsOfCommandsInACall(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		for _, size := range []int{0, 29_000} {
			n, live := 60, 40 // the work is quadratic: each update names all its terminals
			switch {
			case *full:
				n, live = 460, 460
			case k.presentation == bridge.PresentText && size == 0:
				n = 460 // not all are shown
			}
			t.Run(fmt.Sprint(k.presentation, " ", size), func(t *testing.T) {
				local := memterm.New(&memterm.Options{Programs: fakeconn.Programs(), MaxTerminals: 2 * n})
				o := &bridge.Options{
					MaxTerminals: 2 * n, MaxBackground: n,
					Local: func(acp.SessionId) terminal.Manager { return local },
				}
				in(t, k.wide(2*n), o, func(w *world) {
					w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
						call := t.ToolCall(sized("ended", size))
						for i := range n {
							if _, err := call.Exec(ctx, line(fmt.Sprint("echo number ", i))); err != nil {
								w.Fatal(err)
							}
						}
						call.End("", nil)
						call = t.ToolCall(sized("live", size))
						for range live {
							if _, err := call.StartBackground(ctx, line("sleep 1h")); err != nil {
								w.Fatal(err)
							}
						}
						call.End("", nil)
						return done, nil
					})
					for _, id := range []acp.ToolCallId{"ended", "live"} {
						check(w, "the status of "+string(id), w.c.Card(id).Status, acp.ToolCallStatusCompleted)
					}
					seen := w.c.Card("ended")
					if k.presentation == bridge.PresentText {
						contains(w, "what the user sees", seen.Visible(), fmt.Sprint("number ", n-1))
						contains(w, "what the user sees", seen.Visible(), "more commands are not shown ...]")
					}
				})
			})
		}
	}
}

// sized returns a card with so many bytes of content.
func sized(id acp.ToolCallId, size int) acp.SessionUpdateToolCall {
	c := card(id)
	if size > 0 {
		c.Content = []acp.ToolCallContent{acp.ToolContent(acp.TextBlock(strings.Repeat("x", size)))}
	}
	return c
}

// Whatever a card says, and however its commands write: every line fits, and there
// is one tool_call and one final status.
func TestCardsAtRandom(t *testing.T) {
	t.Parallel()
	pieces := []string{"plain ", "\x1b[1m<&>", "\xff", "漢字🙂", "`", "```\n", "\u202e", "\n"}
	seeds := uint64(10)
	if *full {
		seeds = 40
	}
	for _, k := range kinds {
		for seed := range seeds {
			t.Run(fmt.Sprint(k.presentation, " ", seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 7))
				text := func() string {
					n := r.IntN([]int{1, 100, 2_000, 20_000, 40_000}[r.IntN(5)])
					piece := pieces[r.IntN(len(pieces))]
					return strings.Repeat(piece, n/len(piece)+1)
				}
				in(t, k, nil, func(w *world) {
					w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
						c := card("1")
						c.Title, c.RawInput = text(), map[string]any{text(): text(), "n": seed}
						for range r.IntN(4) {
							c.Content = append(c.Content, acp.ToolContent(acp.TextBlock(text())))
						}
						call := t.ToolCall(c)
						for range r.IntN(5) {
							var err error
							switch r.IntN(4) {
							case 0:
								err = call.Update(acp.SessionToolCallUpdate{Title: new(text()), RawOutput: []string{text(), text()}})
							case 1:
								err = call.Update(acp.SessionToolCallUpdate{Content: []acp.ToolCallContent{acp.ToolContent(acp.TextBlock(text()))}})
							default:
								_, err = call.Exec(ctx, terminal.Command{Args: []string{"print", text()}})
							}
							if err != nil && !errors.Is(err, terminal.ErrTooLarge) {
								w.Error(err)
							}
						}
						call.End(strings.Repeat(text(), r.IntN(2)), nil)
						return done, nil
					})
					calls, finals := 0, 0
					for _, u := range w.updates("1") {
						if u["sessionUpdate"] == "tool_call" {
							calls++
						}
						if u["status"] == "completed" || u["status"] == "failed" {
							finals++
						}
					}
					check(w, "tool_calls", calls, 1)
					check(w, "final statuses", finals, 1)
				})
			})
		}
	}
}

// Ids and limits of any size are refused or bounded.
func TestSizesOfIDsAndLimits(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		long := strings.Repeat("\x01", 6_000)
		if _, err := w.b.Session(acp.SessionId(long), "/work"); !errors.Is(err, terminal.ErrTooLarge) {
			w.Errorf("Session: %v", err)
		}
		if err := w.s.Replay(w.Context(), bridge.Record{ToolCallID: acp.ToolCallId(long), Status: completed}); !errors.Is(err, terminal.ErrTooLarge) {
			w.Errorf("Replay: %v", err)
		}
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card(acp.ToolCallId(long)))
			if _, err := call.Exec(ctx, line("echo x")); !errors.Is(err, terminal.ErrTooLarge) {
				w.Errorf("Exec: %v", err)
			}
			// A directory that does not fit beside the rest is not shown.
			call = t.ToolCall(sized("deep", 29_000))
			if _, err := call.Exec(ctx, terminal.Command{Line: "echo x", Dir: "/" + strings.Repeat("\x01", 4_000)}); err != nil {
				w.Errorf("Exec: %v", err)
			}
			call.End("", nil)
			return done, nil
		})
	})
	for _, limit := range []int{math.MinInt, -1, 1, math.MaxInt} {
		for _, k := range kinds {
			in(t, k, &bridge.Options{ResultLimit: limit, MaxTerminals: max(limit, 0), MaxBackground: limit}, func(w *world) {
				r, _, err := w.run("1", line("spam 1000"))
				if err != nil {
					w.Fatal(err)
				}
				check(w, "bytes of output", len(r.Output), map[bool]int{true: 1, false: 1000}[limit == 1])
				for _, l := range w.c.Lines() {
					if l.Method == acp.ClientMethodTerminalCreate && strings.Contains(l.Raw, fmt.Sprint(math.MaxInt)) {
						w.Errorf("the client is asked for %s", l.Raw)
					}
				}
			})
		}
	}
}

// A record of any output can be replayed as it could be shown.
func TestReplayOfAwkwardRecords(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{display, text} {
		in(t, k, nil, func(w *world) {
			for i, output := range []string{strings.Repeat("`", 9_000), strings.Repeat("\x1b", 16_384), strings.Repeat("\xff", 16_384), strings.Repeat("```\n", 5_000)} {
				for j, content := range []int{0, 29_000, 60_000} {
					r := bridge.Record{
						ToolCallID: acp.ToolCallId(fmt.Sprint(i, "-", j)), Status: completed, Title: output, Ran: true, Output: output,
						RawInput: output, RawOutput: output, Error: output, Content: sized("", content).Content, Signal: output,
					}
					if err := w.s.Replay(w.Context(), r); err != nil {
						w.Error(err)
					}
					if err := w.c.Sync(w.Context()); err != nil {
						w.Error(err)
					}
					check(w, "the status", w.c.Card(r.ToolCallID).Status, completed)
				}
			}
		})
	}
}
