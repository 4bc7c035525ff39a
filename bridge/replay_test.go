package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// recorded runs tool calls with one kind of client and returns their records,
// as they come back from JSON.
func recorded(t *testing.T, k kind) (records []bridge.Record) {
	in(t, k, nil, func(w *world) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			keep := func(call *bridge.Call) {
				r, err := call.Record(ctx)
				if err != nil {
					w.Error(err)
				}
				var back bridge.Record
				b, err := json.Marshal(r)
				if err == nil {
					err = json.Unmarshal(b, &back)
				}
				if err != nil {
					w.Error(err)
				}
				records = append(records, back)
			}
			for _, c := range []struct {
				id   acp.ToolCallId
				line string
			}{{"good", "print 'one\\ntwo\\n'"}, {"bad", "fail oh"}, {"killed", "signal SIGSEGV"}, {"big", "spam 100000"}, {"awkward", "print '\x1b[1m<&>\xff```'"}} {
				call := t.ToolCall(card(c.id))
				r, err := call.Exec(ctx, terminal.Command{Line: c.line, Dir: "/tmp"})
				if err != nil {
					w.Error(err)
				}
				call.Update(acp.SessionToolCallUpdate{RawOutput: map[string]any{"was": r.Output}})
				call.End("", nil)
				keep(call)
			}
			background := t.ToolCall(card("background"))
			if _, err := background.StartBackground(ctx, line("sleep 1h")); err != nil {
				w.Error(err)
			}
			background.End("it runs", nil)
			keep(background)
			talk := t.ToolCall(card("talk"))
			talk.End("", errors.New("no idea"))
			keep(talk)
			open := t.ToolCall(card("open"))
			ended, cancel := context.WithCancelCause(ctx)
			cancel(errNotNow)
			if _, err := open.Record(ended); !errors.Is(err, errNotNow) {
				w.Errorf("the record of an open Call: %v", err)
			}
			open.End("", nil)
			return done, nil
		})
	})
	return records
}

var errNotNow = errors.New("not now")

// What a session's tool calls showed can be shown again to any client, as
// display or as text, with the same status, and without any live terminal.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, before := range kinds {
		t.Run("recorded as "+string(before.presentation), func(t *testing.T) {
			records := recorded(t, before)
			check(t, "records", len(records), 7)
			for _, after := range []kind{display, text, {bridge.PresentText, fakeconn.Options{}}, {bridge.PresentDisplay, fakeconn.Options{Display: true}}} {
				in(t, after, nil, func(w *world) { replay(w, after, records) })
			}
		})
	}
}

func replay(w *world, k kind, records []bridge.Record) {
	for _, r := range records {
		if err := w.s.Replay(w.Context(), r); err != nil {
			w.Error(err)
		}
	}
	if err := w.c.Sync(w.Context()); err != nil {
		w.Error(err)
	}
	check(w, "terminal requests", w.terminalRequests(), 0)
	for _, c := range []struct {
		id     acp.ToolCallId
		status acp.ToolCallStatus
		ran    bool
		seen   string
		exit   string
	}{
		{"good", acp.ToolCallStatusCompleted, true, "two", "exit code 0"},
		{"bad", acp.ToolCallStatusFailed, true, "oh", "exit code 1"},
		{"killed", acp.ToolCallStatusFailed, true, "", "SIGSEGV"},
		{"big", acp.ToolCallStatusCompleted, true, "xxx\n", "exit code 0"},
		{"awkward", acp.ToolCallStatusCompleted, true, "<&>\uFFFD```", "exit code 0"},
		{"background", acp.ToolCallStatusCompleted, true, "", "exit unknown"},
		{"talk", acp.ToolCallStatusFailed, false, "no idea", ""},
	} {
		seen := w.c.Card(c.id)
		check(w, "the title", seen.Title, "call "+string(c.id))
		check(w, "the status of "+string(c.id), seen.Status, c.status)
		contains(w, "what the user sees", strings.ReplaceAll(seen.Visible(), "\r\n", "\n"), c.seen)
		if c.ran && k.presentation == bridge.PresentDisplay {
			if len(seen.Terminals) != 1 || seen.Terminals[0].Exit == nil || seen.Terminals[0].Exit.String() != c.exit {
				w.Errorf("%s: the terminals are %+v", c.id, seen.Terminals)
			}
		} else {
			check(w, "terminals in the card", len(seen.Terminals), 0)
		}
	}
	check(w, "the rawOutput", w.c.Card("good").RawOutput.(map[string]any)["was"], any("one\ntwo\n"))
	if k.presentation == bridge.PresentText {
		contains(w, "the background command", w.c.Card("background").Text, "it runs")
	}
}

// A record that cannot be of a call that is over is refused, and so is one
// whose call is open, and one for a session that is closed.
func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		good := bridge.Record{ToolCallID: "1", Status: acp.ToolCallStatusCompleted}
		for _, r := range []bridge.Record{{}, {ToolCallID: "1"}, {Status: acp.ToolCallStatusFailed}, {ToolCallID: "1", Status: acp.ToolCallStatusPending}} {
			if err := w.s.Replay(w.Context(), r); err == nil {
				w.Errorf("%+v was replayed", r)
			}
		}
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			if err := w.s.Replay(ctx, good); err == nil {
				w.Error("a record of an open tool call was replayed")
			}
			call.End("", nil)
			return done, nil
		})
		check(w, "updates", len(w.updates("1")), 2)
		w.s.Close()
		if err := w.s.Replay(w.Context(), bridge.Record{ToolCallID: "2", Status: acp.ToolCallStatusCompleted}); !errors.Is(err, terminal.ErrClosed) {
			w.Errorf("a closed session: %v", err)
		}
	})
}

// A long session does not flood a client that reads slowly.
func TestReplayOfMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := display
		k.client.Keep = -1
		k.client.Wrap = func(c acp.Client) acp.Client { return slow{c} }
		w := open(t, k, nil)
		for i := range 700 {
			r := bridge.Record{ToolCallID: acp.ToolCallId(fmt.Sprint(i)), Status: acp.ToolCallStatusCompleted, Text: "hello"}
			if err := w.s.Replay(t.Context(), r); err != nil {
				t.Fatal(i, err)
			}
		}
		w.close()
	})
}
