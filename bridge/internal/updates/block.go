package updates

import (
	"encoding/json"
	"strings"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/text"
)

// A Room is how many bytes of JSON are left of a line. It never gets negative.
type Room int

// Rest returns the room beside what takes so many bytes of a line.
func Rest(taken int) Room { return Room(max(Line-taken, 0)) }

// Take takes n bytes, or reports false and takes none.
func (r *Room) Take(n int) bool {
	if n < 0 || Room(n) > *r {
		return false
	}
	*r -= Room(n)
	return true
}

// Size returns how long the JSON of a frozen value is.
func Size(v any) int {
	b, _ := json.Marshal(v)
	return len(b)
}

const (
	minBlock = 64  // bytes of JSON of a text that is still worth to be shown
	minShare = 512 // of one of several, before others are left out
)

var (
	textOverhead     = Size(acp.ToolContent(acp.TextBlock(""))) + 1 // and the comma
	terminalOverhead = Size(acp.ToolTerminalRef("")) + 1
)

// Terminal returns a block that embeds a terminal, or false if there is no room
// for it.
func (r *Room) Terminal(id string) (acp.ToolCallContent, bool) {
	if !r.Take(terminalOverhead + text.JSONLen(id)) {
		return acp.ToolCallContent{}, false
	}
	return acp.ToolTerminalRef(id), true
}

// Output returns a block that shows the end of an output exactly as it is, in its
// share of the room as one of n, or what is worth it: clients render text as Markdown, so it stands in
// a fence. It returns false if there is no room for it.
func (r *Room) Output(s string, n int) (acp.ToolCallContent, bool) {
	share := min(max(int(*r)/max(n, 1), minShare), int(*r)) - textOverhead
	if share < minBlock {
		return acp.ToolCallContent{}, false
	}
	s = fenced(s, share)
	if !r.Take(textOverhead + text.JSONLen(s)) {
		return acp.ToolCallContent{}, false
	}
	return acp.ToolContent(acp.TextBlock(s)), true
}

// fenced returns the end of an output in a fence, in at most limit bytes of JSON,
// of which there are at least minBlock.
func fenced(s string, limit int) string {
	const lines = 2 * len(`\n`) // one behind the fence, one before the other
	s = tailText(s, limit)
	fence := fenceOf(s)
	if room := limit - 2*len(fence) - lines; text.JSONLen(s) > room {
		// The fence takes room, too. Text of a third fits with any fence.
		s = tailText(s, max(room, limit/3-lines))
		fence = fenceOf(s)
	}
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return fence + "\n" + s + fence
}

// fenceOf returns a fence that does not end inside s.
func fenceOf(s string) string {
	longest, run := 2, 0
	for i := range len(s) {
		if s[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return strings.Repeat("`", longest+1)
}

// cutFront stands for the start of an output of which only the end is shown.
const cutFront = "[... earlier output is not shown ...]\n"

// tailText returns s, or a mark and its end, from the start of a line on where
// one is near: at most limit bytes of JSON, and TextLimit bytes.
func tailText(s string, limit int) string {
	if len(s) <= limits.TextLimit && text.JSONLen(s) <= limit {
		return s
	}
	mark := cutFront
	room := limit - text.JSONLen(mark)
	if room < 0 {
		mark, room = "", limit
	}
	s = text.JSONTail(text.Tail(s, limits.TextLimit-len(mark)), room)
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)/2 {
		s = s[i+1:]
	}
	return mark + s
}
