package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A close with a hundred live commands in two sessions ends in time, and lists
// exactly what it could not settle: here every second terminal, of which the
// client never answers the release.
func TestCloseListsExactlyWhatIsLeft(t *testing.T) {
	t.Parallel()
	many := kind{bridge.PresentClient, fakeconn.Options{Memterm: &memterm.Options{MaxTerminals: 200}}}
	synctestWorld(t, many, &bridge.Options{MaxBackground: 50}, func(w *world) {
		other, err := w.b.Session("other", "/work")
		if err != nil {
			w.Fatal(err)
		}
		var want []string // ids of terminals
		lost := make(map[string]bool)
		for _, s := range []*bridge.State{w.s, other} {
			s.Turn(w.Context(), func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				for i := range 50 {
					call := t.ToolCall(card(acp.ToolCallId(fmt.Sprint(i))))
					term, err := call.StartBackground(ctx, line("sleep 1h"))
					if call.End("", err); err != nil {
						w.Error(err)
						return done, nil
					}
					if i%2 == 0 {
						_, id := s.Presentation(term.Info().ID)
						lost[id] = true
						want = append(want, term.Info().ID)
					}
				}
				return done, nil
			})
		}
		check(w, "commands that live", w.lives(), 100)
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalRelease, Drop: true, Match: func(l fakeconn.Line) bool { return lost[l.Terminal] }})
		start := time.Now()
		leak, ok := errors.AsType[*terminal.LeakError](w.b.Close())
		atMost(w, "Close", time.Since(start), 2*limits.SettleTimeout)
		if !ok {
			w.Fatal("nothing was left, says Close")
		}
		var got []string
		for _, l := range leak.Leaks {
			check(w, "what is left", l.What, acp.ClientMethodTerminalRelease)
			got = append(got, l.ID)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			w.Errorf("left are %v, want %v", got, want)
		}
		check(w, "leaks counted", w.b.Stats().Leaked, len(want))
		check(w, "commands that live", w.lives(), 0) // they were killed
	})
	// With every answer there is nothing to list.
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			for i := range limits.MaxBackground {
				call := t.ToolCall(card(acp.ToolCallId(fmt.Sprint(i))))
				if _, err := call.StartBackground(ctx, line("sleep 1h")); err != nil {
					w.Fatal(err)
				}
				call.End("", nil)
			}
			return done, nil
		})
		if err := w.b.Close(); err != nil {
			w.Error(err)
		}
		check(w, "commands that live", w.lives(), 0)
	})
}

// A client that has closed the agent's input may still read, and live on with the
// commands: they are killed and released before Close returns.
func TestCloseAtTheEndOfTheInput(t *testing.T) {
	t.Parallel()
	in(t, kind{bridge.PresentClient, fakeconn.Options{}}, nil, func(w *world) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			for range 3 {
				if _, err := call.StartBackground(ctx, line("sleep 1h")); err != nil {
					w.Fatal(err)
				}
			}
			call.End("", nil)
			return done, nil
		})
		start := time.Now()
		w.c.EndInput()
		<-w.c.Conn().Done()
		if err := w.b.Close(); err != nil {
			w.Errorf("Close: %v", err)
		}
		atMost(w, "Close", time.Since(start), 200*time.Millisecond)
		for _, method := range []string{acp.ClientMethodTerminalKill, acp.ClientMethodTerminalRelease} {
			check(w, method, w.c.Count(method), 3)
		}
		time.Sleep(time.Second)
		check(w, "commands that live", w.lives(), 0)
	})
}
