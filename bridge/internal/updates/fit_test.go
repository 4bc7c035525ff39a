package updates_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// lineOf is how long the line of an update is on the wire.
func lineOf(t testing.TB, n acp.SessionNotification) int {
	t.Helper()
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": "session/update", "params": n})
	if err != nil {
		t.Fatal(err)
	}
	return len(b) + 1
}

func inJSON(s string) int {
	b, _ := json.Marshal(s)
	return len(b) - 2
}

var awkward = []string{"plain ", "\x1b\x00<>&\u2028\xff\"\\", "漢字🙂", "\n", "`", "```\n", "\xe2\x82"}

// random makes values of tool calls, some of them large.
type random struct{ *rand.Rand }

func (r random) text() string {
	most := []int{0, 10, 10, 30, 30, 300, 300, 5_000, 30_000, 70_000}[r.IntN(10)]
	piece := awkward[r.IntN(len(awkward))]
	n := r.IntN(most + 1)
	return strings.Repeat(piece, n/len(piece)+1)[:n]
}

func (r random) value(depth int) any {
	switch n := r.IntN(8); {
	case n == 0:
		return nil
	case n == 1:
		return r.NormFloat64() * 1e30
	case n == 2:
		return r.IntN(2) == 0
	case n < 5 || depth == 0:
		return r.text()
	case n == 5:
		out := make([]any, r.IntN(12))
		for i := range out {
			out[i] = r.value(depth - 1)
		}
		return out
	}
	out := map[string]any{}
	for range r.IntN(12) {
		out[r.text()] = r.value(depth - 1)
	}
	return out
}

func (r random) content() (all []acp.ToolCallContent) {
	for range r.IntN(6) {
		switch r.IntN(5) {
		case 0:
			all = append(all, acp.ToolTerminalRef(fmt.Sprint("terminal-", r.IntN(100))))
		case 1:
			all = append(all, acp.ToolDiffContent("/file", r.text(), r.text()))
		default:
			all = append(all, acp.ToolContent(acp.TextBlock(r.text())))
		}
	}
	return all
}

func (r random) card() acp.SessionUpdateToolCall {
	c := acp.SessionUpdateToolCall{
		ToolCallId: "call-1", Title: r.text(), Kind: acp.ToolKind(r.text()), Status: acp.ToolCallStatusInProgress,
		Content: r.content(), RawInput: r.value(2), RawOutput: r.value(2),
	}
	for range r.IntN(3) {
		c.Locations = append(c.Locations, acp.ToolCallLocation{Path: r.text()})
	}
	if r.IntN(2) == 0 {
		c.Meta = map[string]any{"mine": r.value(2), "terminal_info": map[string]any{"terminal_id": "call-1"}}
	}
	return c
}

// FuzzForce: of any tool call there is a line that can be sent, which still has
// its status and its terminals; and nothing of the caller's is changed.
func FuzzForce(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := random{rand.New(rand.NewPCG(seed, 1))}
		given := r.card()
		before, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		card, err := updates.FreezeCall(given)
		if err != nil {
			t.Fatal(err)
		}
		update, err := updates.FreezeUpdate(acp.SessionToolCallUpdate{
			ToolCallId: given.ToolCallId, Title: &given.Title, Kind: &given.Kind, Status: new(given.Status), Content: given.Content,
			Locations: given.Locations, RawInput: given.RawInput, RawOutput: given.RawOutput, Meta: given.Meta,
		})
		if err != nil {
			t.Fatal(err)
		}
		terminals := func(content []acp.ToolCallContent) (n int) {
			for _, c := range content {
				if c.Terminal != nil {
					n++
				}
			}
			return n
		}
		for _, u := range []acp.SessionUpdate{{ToolCall: &card}, {ToolCallUpdate: &update}} {
			frozen, _ := json.Marshal(u)
			n, err := updates.Force(acp.SessionNotification{SessionId: "s", Update: u})
			if err != nil {
				t.Fatal(err)
			}
			if size := lineOf(t, n); size > updates.Line {
				t.Fatalf("a line of %d bytes", size)
			}
			if again, _ := json.Marshal(u); string(again) != string(frozen) {
				t.Fatal("Force has changed what it was given")
			}
			if c := n.Update.ToolCall; c != nil && (c.Status != given.Status || terminals(c.Content) != terminals(given.Content) || (c.Meta["terminal_info"] == nil) != (given.Meta["terminal_info"] == nil)) {
				t.Fatalf("what is sent is %+v", c)
			}
			if c := n.Update.ToolCallUpdate; c != nil && (*c.Status != given.Status || terminals(c.Content) != terminals(given.Content)) {
				t.Fatalf("what is sent is %+v", c)
			}
			if n, err := updates.Fit(acp.SessionNotification{SessionId: "s", Update: u}); err == nil && lineOf(t, n) > updates.Line {
				t.Fatalf("Fit gives a line of %d bytes", lineOf(t, n))
			} else if err != nil && !errors.Is(err, terminal.ErrTooLarge) {
				t.Fatal(err)
			}
		}
		if after, _ := json.Marshal(given); string(after) != string(before) {
			t.Fatal("what the caller gave was changed")
		}
	})
}

// FuzzShrink: what is shrunk takes no more than it may, and looks the same where
// nothing had to be cut.
func FuzzShrink(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, 1000)
		f.Add(seed, int(seed)*100-200)
	}
	f.Fuzz(func(t *testing.T, seed uint64, limit int) {
		if limit > 1<<20 {
			return
		}
		tree, _, err := updates.Freeze[any](random{rand.New(rand.NewPCG(seed, 2))}.value(3))
		if err != nil {
			t.Fatal(err)
		}
		size := updates.Size(tree)
		small := updates.Shrink(tree, limit)
		switch n := updates.Size(small); {
		case size <= limit && n != size:
			t.Fatalf("%d bytes at most %d became %d", size, limit, n)
		case n > max(limit, len("null")):
			t.Fatalf("%d bytes; at most %d were allowed", n, limit)
		}
	})
}

// FuzzCut: no limit makes a cut panic or gives more than it allows, and the mark
// tells how much is missing.
func FuzzCut(f *testing.F) {
	for _, s := range awkward {
		for _, limit := range []int{math.MinInt, -1, 0, 1, 20, 64, 300, math.MaxInt} {
			f.Add(s, uint16(200), limit)
		}
	}
	f.Fuzz(func(t *testing.T, piece string, times uint16, limit int) {
		if len(piece) > 100 {
			return
		}
		s := strings.Repeat(piece, int(times)%1000)
		most := max(limit, 0)
		got := updates.Middle(s, limit, updates.CutMark)
		if n := inJSON(got); n > most || inJSON(s) <= limit && got != s {
			t.Fatalf("Middle(%d bytes, %d) takes %d: %.60q", len(s), limit, n, got)
		}
		if got := updates.Cut(s, s, 7, limit, updates.CutMark); inJSON(got) > most {
			t.Fatalf("Cut(…, %d) takes %d", limit, inJSON(got))
		}
		var missing int
		if i := strings.Index(got, " [... "); i >= 0 && !strings.Contains(piece, "[") {
			if _, err := fmt.Sscanf(got[i:], updates.CutMark, &missing); err == nil {
				mark := fmt.Sprintf(updates.CutMark, missing)
				if strings.Contains(got, mark) && len(got)-len(mark)+missing != len(s) {
					t.Fatalf("%d bytes of %d are there, and %d are said to be missing", len(got)-len(mark), len(s), missing)
				}
			}
		}
		if limit < 1<<20 {
			parts := updates.Split(s, limit)
			for _, part := range parts {
				if inJSON(part) > most && utf8.RuneCountInString(part) > 1 {
					t.Fatalf("a part of %d bytes of JSON; at most %d were allowed", inJSON(part), limit)
				}
			}
			if strings.Join(parts, "") != s {
				t.Fatal("the parts are not the whole")
			}
		}
	})
}

// The end of an output that is cut does not begin inside of an escape sequence:
// the user's terminal would show the rest of it.
func TestCutOfSequences(t *testing.T) {
	s := strings.Repeat("\x1b[38;5;200mword\x1b[0m", 100)
	for limit := 300; limit < 400; limit++ {
		_, tail, _ := strings.Cut(updates.Middle(s, limit, updates.CutMark), " bytes cut ...] ")
		rest := strings.NewReplacer("\x1b[38;5;200m", "", "\x1b[0m", "", "word", "").Replace(tail)
		if len(tail) < limit/4 || !strings.HasSuffix("word", rest) {
			t.Errorf("in %d bytes the end is %q", limit, tail)
		}
	}
}

// FuzzOutput: any output stands, in a fence that it does not end, in any room;
// and a room is never overdrawn.
func FuzzOutput(f *testing.F) {
	for _, s := range awkward {
		for _, room := range []int{-1, 100, 150, 1000, 32_000, math.MaxInt} {
			f.Add(s, uint16(9_000), room, 1)
			f.Add(s, uint16(15_000), room, math.MinInt)
		}
	}
	f.Fuzz(func(t *testing.T, piece string, times uint16, size, n int) {
		if len(piece) > 100 {
			return
		}
		s := strings.Repeat(piece, int(times)%20_000)
		room := updates.Room(max(size, 0))
		before := room
		block, ok := room.Output(s, n)
		if room < 0 || room > before || !ok && room != before {
			t.Fatalf("the room was %d, and is %d, %v", before, room, ok)
		}
		share := min(max(int(before)/max(n, 1), 512), int(before))
		if !ok {
			if share >= 200 {
				t.Fatalf("no output is shown in a room of %d", before)
			}
			return
		}
		if taken, json := int(before-room), updates.Size(block); json > taken {
			t.Fatalf("a block of %d bytes has taken %d", json, taken)
		}
		body := block.Content.Content.Text.Text
		fence, rest, _ := strings.Cut(body, "\n")
		if len(fence) < 3 || strings.Trim(fence, "`") != "" {
			t.Fatalf("%q is no fence", fence)
		}
		if i := strings.Index(rest, fence); i != len(rest)-len(fence) {
			t.Fatalf("the fence %q ends inside", fence)
		}
		if len(body) > limits.TextLimit+2*len(fence)+2 {
			t.Fatalf("%d bytes of text", len(body))
		}
		shown := strings.TrimSuffix(strings.TrimSuffix(rest, fence), "\n")
		shown = shown[strings.LastIndex(shown, "not shown ...]\n")+1:]
		shown = strings.TrimPrefix(shown, "ot shown ...]\n")
		if shown == "" && strings.Trim(s, "\n") != "" && share >= 200 {
			t.Fatal("nothing of the output is shown")
		}
		if !strings.HasSuffix(strings.TrimSuffix(s, "\n"), shown) {
			t.Fatalf("%.80q is not the end of the output", shown)
		}
	})
}

// FuzzChunks: what is sent of any text fits a line of the wire, is whole, and hides
// nothing.
func FuzzChunks(f *testing.F) {
	f.Add("plain", 5000)
	f.Add("\x1b\x00<>&\u2028\xff\"\\", 9000)
	f.Add("漢字🙂", 12000)
	f.Add("\r\n\u202e", 40_000)
	stream := updates.NewQueue(nil, nil).Stream("s")
	f.Fuzz(func(t *testing.T, s string, n int) {
		if s == "" || n < 0 || n > 100_000 {
			return
		}
		long := strings.Repeat(s, n/len(s)+1)
		for _, u := range []acp.SessionUpdate{
			acp.UpdateAgentMessageText(long),
			acp.UpdateAgentThoughtText(long),
			acp.UpdateUserMessageText(long),
			acp.StartToolCall("1", long, acp.WithStartRawInput(map[string]any{"a": long, "b": []string{long, "x"}})),
			acp.UpdateToolCall("1", acp.WithUpdateTitle(long), acp.WithUpdateRawOutput(long)),
		} {
			all, err := stream.Chunks(u)
			if err != nil {
				t.Fatal(err)
			}
			var message strings.Builder
			for _, u := range all {
				if size := lineOf(t, stream.Notification(u)); size > updates.Line {
					t.Fatalf("a line of %d bytes", size)
				}
				if u.AgentMessageChunk != nil {
					message.WriteString(u.AgentMessageChunk.Content.Text.Text)
				}
			}
			if want := updates.Message(strings.ToValidUTF8(long, "\ufffd")); u.AgentMessageChunk != nil && utf8.ValidString(long) && message.String() != want {
				t.Fatal("a split message is another message")
			}
		}
	})
}

// A panic of a caller's MarshalJSON is an error, as what cannot be sent at all is.
func TestFreezeRefuses(t *testing.T) {
	for _, v := range []any{panics{}, make(chan int), map[string]any{"deep": []any{panics{}}}, func() {}, json.Number("1e400"), math.Inf(1)} {
		if _, err := updates.FreezeCall(acp.SessionUpdateToolCall{RawInput: v}); err == nil {
			t.Errorf("%T was frozen", v)
		}
		if _, err := updates.FreezeUpdate(acp.SessionToolCallUpdate{Meta: map[string]any{"x": v}}); err == nil {
			t.Errorf("%T was frozen", v)
		}
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("not today") }

// A huge value is cut in about the time that it takes to look at it.
func TestHugeValuesAreCut(t *testing.T) {
	many := make([]any, 100_000)
	for i := range many {
		many[i] = "a string of some length, of which there are many"
	}
	for _, v := range []any{strings.Repeat("x", 8<<20), many, map[string]any{"a": many, "b": strings.Repeat("\x1b", 1<<20)}} {
		start := time.Now()
		card, err := updates.FreezeCall(acp.SessionUpdateToolCall{ToolCallId: "1", RawInput: v})
		if err != nil {
			t.Fatal(err)
		}
		if n := updates.Size(card.RawInput); n > updates.Line {
			t.Errorf("%d bytes are left", n)
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("that took %v", d)
		}
	}
}

// What hides itself in a title, a text or the values of a question is spelled
// out; values under two names that look the same are both there.
func TestHiddenCharacters(t *testing.T) {
	const hidden = "git status\u202e\r\x1b[2K"
	card, err := updates.FreezeCall(acp.SessionUpdateToolCall{
		Title: "a\n" + hidden, Content: []acp.ToolCallContent{acp.ToolContent(acp.TextBlock("a\n" + hidden))},
		RawInput: map[string]any{"command": hidden},
	})
	if err != nil {
		t.Fatal(err)
	}
	const shown = `git status\u202e\r\x1b[2K`
	if got := card.Title; got != `a\n`+shown {
		t.Errorf("the title is %q", got)
	}
	if got := card.Content[0].Content.Content.Text.Text; got != "a\n"+shown {
		t.Errorf("the text is %q", got)
	}
	if got := card.RawInput.(map[string]any)["command"]; got != hidden {
		t.Errorf("the value is %q", got)
	}
	raw := updates.VisibleRaw(map[string]any{"a\x1b": "x" + hidden, `a\x1b`: []any{hidden, 1.0}}).(map[string]any)
	if len(raw) != 2 || raw[`a\x1b`] != "x"+shown || raw[`a\x1b_`].([]any)[0] != shown {
		t.Errorf("the values of a question are %q", raw)
	}
}
