package acphost_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acphost"
)

func notification(u acp.SessionUpdate) acp.SessionNotification {
	return acp.SessionNotification{SessionId: "s", Update: u}
}

// update sends an update that must be taken.
func (h host) update(u acp.SessionUpdate) {
	h.t.Helper()
	if err := h.SessionUpdate(h.t.Context(), notification(u)); err != nil {
		h.t.Error(err)
	}
}

// refuse sends an update that must be an error with this text.
func (h host) refuse(u acp.SessionUpdate, text string) {
	h.t.Helper()
	if err := h.SessionUpdate(h.t.Context(), notification(u)); err == nil || !strings.Contains(err.Error(), text) {
		h.t.Errorf("the update returned %v, want %q", err, text)
	}
}

func (h host) card(id acp.ToolCallId) acphost.Card {
	h.t.Helper()
	c, ok := h.Card("s", id)
	if !ok {
		h.t.Errorf("no card %s", id)
	}
	return c
}

func refs(ids ...string) []acp.ToolCallContent {
	var content []acp.ToolCallContent
	for _, id := range ids {
		content = append(content, acp.ToolTerminalRef(id))
	}
	return content
}

func texts(text string) []acp.ToolCallContent {
	return []acp.ToolCallContent{acp.ToolContent(acp.TextBlock(text))}
}

// display is a tool_call with a display-only terminal.
func display(call, id string) acp.SessionUpdate {
	return acp.SessionUpdate{ToolCall: &acp.SessionUpdateToolCall{
		ToolCallId: acp.ToolCallId(call), Title: "title", Content: refs(id),
		Meta: map[string]any{"terminal_info": map[string]any{"terminal_id": id, "cwd": "/work"}},
	}}
}

func data(call, id, data string) acp.SessionUpdate {
	return acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{
		ToolCallId: acp.ToolCallId(call),
		Meta:       map[string]any{"terminal_output": map[string]any{"terminal_id": id, "data": data}},
	}}
}

func exit(call, id string, code any, signal any) acp.SessionUpdate {
	return acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{
		ToolCallId: acp.ToolCallId(call),
		Meta:       map[string]any{"terminal_exit": map[string]any{"terminal_id": id, "exit_code": code, "signal": signal}},
	}}
}

func TestUpdatesMerge(t *testing.T) {
	run(t, nil, func(t *testing.T, h host) {
		h.update(acp.StartToolCall("c", "title", acp.WithStartKind(acp.ToolKindExecute), acp.WithStartStatus(acp.ToolCallStatusPending), acp.WithStartRawInput("in"), acp.WithStartContent(texts("one"))))
		h.update(acp.UpdateToolCall("c", acp.WithUpdateTitle("new title")))
		h.update(acp.UpdateToolCall("c", acp.WithUpdateContent(texts("two")), acp.WithUpdateStatus(acp.ToolCallStatusInProgress)))
		time.Sleep(time.Second)
		h.update(acp.UpdateToolCall("c", acp.WithUpdateStatus(acp.ToolCallStatusFailed), acp.WithUpdateRawOutput(map[string]any{"x": 1})))
		h.update(acp.UpdateAgentMessageText("all "))
		h.update(acp.UpdateAgentMessageText("done"))

		c := h.card("c")
		if c.Title != "new title" || c.Kind != acp.ToolKindExecute || c.Status != acp.ToolCallStatusFailed || c.Text != "two" || c.RawInput != "in" {
			t.Errorf("the card is %+v", c)
		}
		if diff := cmp.Diff(map[string]any{"x": 1}, c.RawOutput); diff != "" {
			t.Errorf("rawOutput (-want +got)\n%s", diff)
		}
		if c.Ended.Sub(c.Announced) != time.Second || c.FirstVisible != c.Announced {
			t.Errorf("announced %v, visible %v, ended %v", c.Announced, c.FirstVisible, c.Ended)
		}
		if got := h.Messages("s"); got != "all done" {
			t.Errorf("the agent said %q", got)
		}
		h.refuse(acp.UpdateToolCall("nope", acp.WithUpdateTitle("x")), "never announced")
		if got := len(h.Cards("s")); got != 1 {
			t.Errorf("%d cards", got)
		}
	})
}

func TestAnEmbedOfWhatIsNotThereFailsTheWholeUpdate(t *testing.T) {
	run(t, &acphost.Options{Display: true}, func(t *testing.T, h host) {
		id := h.create("echo", "hello")
		h.wait(id)
		h.update(acp.StartToolCall("c", "title", acp.WithStartContent(refs(id))))
		h.release(id)

		for _, bad := range []string{"nope", id} {
			h.refuse(acp.UpdateToolCall("c", acp.WithUpdateTitle("lost"), acp.WithUpdateContent(refs(bad))), bad)
			h.refuse(acp.StartToolCall("d", "title", acp.WithStartContent(refs(bad))), bad)
		}
		u := display("e", "x")
		u.ToolCall.Content = refs("x", "nope")
		h.refuse(u, "nope")
		h.refuse(acp.UpdateToolCall("c", acp.WithUpdateContent(refs("x"))), "x") // not made by half an update

		c := h.card("c")
		if c.Title != "title" || c.Visible() != "hello\n" || !c.Terminals[0].Released {
			t.Errorf("the card is %+v", c)
		}
		if got := len(h.Cards("s")); got != 1 {
			t.Errorf("%d cards, want 1", got)
		}
		other := notification(acp.StartToolCall("f", "title", acp.WithStartContent(refs(h.create("true")))))
		other.SessionId = "other"
		if err := h.SessionUpdate(t.Context(), other); err == nil {
			t.Error("a terminal of another session was embedded")
		}
	})
}

func TestDisplayTerminals(t *testing.T) {
	run(t, &acphost.Options{Display: true}, func(t *testing.T, h host) {
		h.update(display("c", "c"))
		h.update(data("c", "c", ""))
		if c := h.card("c"); !c.FirstVisible.IsZero() {
			t.Error("nothing was printed, and something is visible")
		}
		time.Sleep(time.Second)
		h.update(data("c", "c", "one\r\n"))
		h.update(data("c", "c", "two\r\n"))
		h.refuse(data("c", "nope", "x"), "nope")
		h.refuse(exit("c", "nope", 0.0, nil), "nope")

		c := h.card("c")
		want := []acphost.CardTerminal{{ID: "c", Display: true, Dir: "/work", Output: "one\r\ntwo\r\n", FirstVisible: c.Announced.Add(time.Second)}}
		if diff := cmp.Diff(want, c.Terminals); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if c.FirstVisible.Sub(c.Announced) != time.Second {
			t.Errorf("visible after %v", c.FirstVisible.Sub(c.Announced))
		}
		h.update(exit("c", "c", 3.0, nil))
		if e := h.card("c").Terminals[0].Exit; e == nil || e.String() != "exit code 3" {
			t.Errorf("exit is %v", e)
		}

		h.update(display("d", "d"))
		h.update(exit("d", "d", -9.0, "SIGKILL"))
		if e := h.card("d").Terminals[0].Exit; e == nil || e.Code != nil || e.Signal != "SIGKILL" {
			t.Errorf("exit is %v", e)
		}
		none := display("e", "e")
		none.ToolCall.Meta = map[string]any{"terminal_info": map[string]any{}}
		h.refuse(none, "terminal_id")
	})
}

// A member of a type that it should not have is as good as none.
func TestDisplayMembersOfAWrongType(t *testing.T) {
	run(t, &acphost.Options{Display: true}, func(t *testing.T, h host) {
		u := display("c", "c")
		u.ToolCall.Meta["terminal_info"].(map[string]any)["cwd"] = []any{"/work"}
		h.update(u)
		u = data("c", "c", "")
		u.ToolCallUpdate.Meta["terminal_output"].(map[string]any)["data"] = 7.0
		h.update(u)
		u.ToolCallUpdate.Meta = map[string]any{"terminal_output": "text", "terminal_exit": []any{}}
		h.update(u)
		h.update(data("c", "c", "seen"))
		if v := h.card("c").Terminals[0]; v.Dir != "" || v.Output != "seen" || v.Exit != nil {
			t.Errorf("the terminal is %+v", v)
		}
		for _, code := range []any{"3", nil, true, []any{}, -1.0, 0.5, 1e300, math.NaN(), math.Inf(1)} {
			h.update(exit("c", "c", code, 9.0))
			if e := h.card("c").Terminals[0].Exit; e == nil || e.Known() {
				t.Errorf("exit code %v: the exit is %v", code, e)
			}
		}
		h.update(exit("c", "c", 3221225477.0, nil))
		if e := h.card("c").Terminals[0].Exit; e.String() != "exit code 3221225477" {
			t.Errorf("the exit is %v", e)
		}
	})
}

func TestDisplayTerminalsKeepTheirTail(t *testing.T) {
	run(t, &acphost.Options{Display: true, OutputLimit: 8}, func(t *testing.T, h host) {
		h.update(display("c", "c"))
		h.update(data("c", "c", "0123456789"))
		if v := h.card("c").Terminals[0]; v.Output != "23456789" || !v.Truncated {
			t.Errorf("output is %q, truncated %v", v.Output, v.Truncated)
		}
	})
}

func TestAClientWithoutDisplayDoesNotKnowTheTerminal(t *testing.T) {
	run(t, nil, func(t *testing.T, h host) {
		h.refuse(display("c", "c"), `"c"`)
	})
}

func TestFirstVisible(t *testing.T) {
	tests := []struct {
		name  string
		words []string
		wait  time.Duration // before the card has the terminal
		want  time.Duration
	}{
		{"printed before it was shown", []string{"echo", "x"}, time.Second, time.Second},
		{"printed after it was shown", []string{"after", "3s", "echo", "x"}, time.Second, 3 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, h host) {
				start := time.Now()
				id := h.create(test.words...)
				h.update(acp.StartToolCall("c", "title"))
				time.Sleep(test.wait)
				h.update(acp.UpdateToolCall("c", acp.WithUpdateContent(refs(id))))
				h.wait(id)
				c := h.card("c")
				if got := c.FirstVisible.Sub(start); got != test.want || c.Terminals[0].FirstVisible != c.FirstVisible {
					t.Errorf("visible after %v, want %v", got, test.want)
				}
			})
		})
	}
}

// shown collects events as a user would read them.
type shown struct {
	mu  sync.Mutex
	log []string
}

func (s *shown) show(e acphost.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := string(e.Kind)
	switch e.Kind {
	case acphost.ShowCard:
		line += " " + e.Card.Title + " " + string(e.Card.Status)
	case acphost.ShowOutput:
		line += " " + e.Text
	case acphost.ShowEnd:
		line += " " + e.Exit.String()
	case acphost.ShowMessage:
		line += " " + e.Text
	}
	s.log = append(s.log, line)
}

func (s *shown) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}

func TestShow(t *testing.T) {
	var s shown
	run(t, &acphost.Options{Display: true, Show: s.show}, func(t *testing.T, h host) {
		id := h.create("after", "1s", "print", `hello\n`)
		h.update(acp.StartToolCall("c", "one", acp.WithStartContent(refs(id))))
		h.wait(id)
		synctest.Wait()
		h.update(acp.UpdateToolCall("c", acp.WithUpdateStatus(acp.ToolCallStatusCompleted)))
		h.update(display("d", "d"))
		h.update(data("d", "d", "more\r\n"))
		h.update(exit("d", "d", 0.0, nil))
		h.update(acp.UpdateAgentMessageText("done"))
		h.release(id)
		synctest.Wait()
		want := []string{
			"card one ", "output hello\n", "end exit code 0", "card one completed",
			"card title ", "output more\r\n", "end exit code 0", "message done",
		}
		if diff := cmp.Diff(want, s.lines()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// What a terminal has written already is shown behind the card that embeds it.
func TestACardIsShownBeforeItsOutput(t *testing.T) {
	var s shown
	run(t, &acphost.Options{Show: s.show}, func(t *testing.T, h host) {
		var want []string
		for i := range 300 {
			id := h.create("print", `hello\n`)
			h.wait(id)
			call := acp.ToolCallId(fmt.Sprint(i))
			if i%2 == 0 {
				h.update(acp.StartToolCall(call, "new", acp.WithStartContent(refs(id))))
				want = append(want, "card new ", "output hello\n", "end exit code 0")
			} else {
				h.update(acp.StartToolCall(call, "old"))
				h.update(acp.UpdateToolCall(call, acp.WithUpdateContent(refs(id))))
				want = append(want, "card old ", "card old ", "output hello\n", "end exit code 0")
			}
			synctest.Wait()
			h.release(id)
		}
		if diff := cmp.Diff(want, s.lines()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestASlowUserHoldsNobodyUp(t *testing.T) {
	var s shown
	slow := func(e acphost.Event) {
		time.Sleep(time.Second)
		s.show(e)
	}
	run(t, &acphost.Options{Show: slow}, func(t *testing.T, h host) {
		start := time.Now()
		id := h.create("lines", "50", "10ms")
		h.update(acp.StartToolCall("c", "one", acp.WithStartContent(refs(id))))
		for range 5 {
			h.update(acp.UpdateAgentMessageText("x"))
		}
		h.wait(id)
		h.release(id)
		if took := time.Since(start); took != 500*time.Millisecond {
			t.Errorf("the agent took %v, want the command's 500ms", took)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		var output strings.Builder
		for _, line := range s.lines() {
			if text, ok := strings.CutPrefix(line, "output "); ok {
				output.WriteString(text)
			}
		}
		if got := strings.Count(output.String(), "\n"); got != 50 {
			t.Errorf("Close returned with %d lines of 50 shown", got)
		}
		if n := len(s.lines()); n > 20 {
			t.Errorf("%d events: output that waits is to be shown at once", n)
		}
	})
}

func TestCardsAreSafeForConcurrentUse(t *testing.T) {
	run(t, &acphost.Options{Show: func(acphost.Event) {}}, func(t *testing.T, h host) {
		var wg sync.WaitGroup
		for _, call := range []acp.ToolCallId{"a", "b", "c", "d"} {
			wg.Go(func() {
				for range 10 {
					id := h.create("lines", "3", "1ms")
					h.update(acp.StartToolCall(call, "title", acp.WithStartContent(refs(id))))
					h.wait(id)
					if got := h.card(call).Visible(); got != "line 1\nline 2\nline 3\n" {
						t.Errorf("visible is %q", got)
					}
					h.release(id)
				}
			})
		}
		for range 20 {
			h.Cards("s")
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
	})
}
