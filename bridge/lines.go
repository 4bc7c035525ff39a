package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// envelope is how many bytes JSON-RPC puts around the params of a
// session/update, the end of the line included.
const envelope = len(`{"jsonrpc":"2.0","method":"session/update","params":}` + "\n")

// lineSize returns how long the line of n is on the wire.
func lineSize(n acp.SessionNotification) (int, error) {
	b, err := json.Marshal(n)
	return envelope + len(b), err
}

// fit returns n as it may be sent: a line of at most MaxUpdateLine bytes, in
// which the title, rawInput, rawOutput and, if cutText is set, text content
// were cut and marked where that was needed. What is still too long is an
// ErrTooLarge. It changes nothing that the caller may still hold.
func fit(n acp.SessionNotification, cutText bool) (acp.SessionNotification, error) {
	size, err := lineSize(n)
	if err != nil || size <= terminal.MaxUpdateLine {
		return n, err
	}
	over := func() int { return size - terminal.MaxUpdateLine }
	cut := func(change func()) {
		if err == nil && over() > 0 {
			change()
			size, err = lineSize(n)
		}
	}
	// raw shrinks a value in place to what the line leaves for it, at least room.
	raw := func(v *any, room int) {
		if tree, size, err := plain(*v); err == nil && *v != nil {
			*v = shrink(tree, max(size-over(), room))
		}
	}
	switch u := n.Update; {
	case u.ToolCall != nil:
		tc := *u.ToolCall
		n.Update.ToolCall = &tc
		cut(func() { tc.Title = cutMiddle(tc.Title, maxTitle) })
		cut(func() { raw(&tc.RawInput, minRaw) })
		cut(func() { raw(&tc.RawOutput, minRaw) })
		if cutText {
			cut(func() { tc.Content = cutContent(tc.Content, over()) })
		}
	case u.ToolCallUpdate != nil:
		tu := *u.ToolCallUpdate
		n.Update.ToolCallUpdate = &tu
		if tu.Title != nil {
			cut(func() { tu.Title = new(cutMiddle(*tu.Title, maxTitle)) })
		}
		cut(func() { raw(&tu.RawInput, minRaw) })
		if cutText { // both tell the output: neither takes more than half from the other
			cut(func() { raw(&tu.RawOutput, terminal.MaxUpdateLine/2) })
			cut(func() { tu.Content = cutContent(tu.Content, over()) })
		}
		cut(func() { raw(&tu.RawOutput, minRaw) })
	}
	if err == nil && over() > 0 {
		err = fmt.Errorf("bridge: %w: a session/update line of %d bytes; at most %d are sent", terminal.ErrTooLarge, size, terminal.MaxUpdateLine)
	}
	return n, err
}

const (
	maxTitle = 1 << 10 // bytes of JSON of a title that had to be cut
	minRaw   = 1 << 10 // bytes of JSON of a raw value that had to be cut
)

// cutContent takes about over bytes of JSON from the text blocks of content,
// from the longest first. It shares no block that it changes.
func cutContent(content []acp.ToolCallContent, over int) []acp.ToolCallContent {
	content = append([]acp.ToolCallContent(nil), content...)
	for over > 0 {
		longest, size := -1, 64
		for i, c := range content {
			if c.Content != nil && c.Content.Content.Text != nil {
				if n := jsonLen(c.Content.Content.Text.Text); n > size {
					longest, size = i, n
				}
			}
		}
		if longest < 0 {
			break
		}
		block := *content[longest].Content
		t := *block.Content.Text
		t.Text = cutMiddle(t.Text, max(size-over, 64))
		block.Content.Text = &t
		content[longest].Content = &block
		over -= size - jsonLen(t.Text)
	}
	return content
}

// plain returns v as plain JSON values, and how long their JSON is.
func plain(v any) (tree any, size int, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, 0, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, 0, err
	}
	b, err = json.Marshal(tree) // strings are valid UTF-8 now
	return tree, len(b), err
}

// shrink returns a copy of plain JSON values whose longest strings were cut in
// the middle and marked, so that its JSON takes at most max bytes. What cannot be
// brought down so is replaced by a mark.
func shrink(tree any, max int) any {
	best := any("[... cut ...]")
	for low, high := 32, max; low <= high; {
		limit := (low + high) / 2
		cut := cutStrings(tree, limit)
		if b, err := json.Marshal(cut); err == nil && len(b) <= max {
			best, low = cut, limit+1
		} else {
			high = limit - 1
		}
	}
	return best
}

// cutStrings returns a copy of a tree of JSON values with every string cut to
// limit bytes of JSON.
func cutStrings(tree any, limit int) any {
	switch v := tree.(type) {
	case string:
		return cutMiddle(v, limit)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cutStrings(v[i], limit)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name := range v {
			out[name] = cutStrings(v[name], limit)
		}
		return out
	}
	return tree
}

// cutMark stands where bytes were cut out of a text.
const cutMark = " [... %d bytes cut ...] "

// cutMiddle returns s, or its start and its end with a mark between them, in at
// most max bytes of JSON.
func cutMiddle(s string, max int) string {
	if jsonLen(s) <= max {
		return s
	}
	return middle(s, max, cutMark)
}

// middle returns the start and the end of s around a mark that tells how many
// bytes are not there, in at most max bytes of JSON. The end gets the larger
// share: it is what a person looks for in an output.
func middle(s string, max int, mark string) string {
	room := max - jsonLen(fmt.Sprintf(mark, len(s)))
	if room <= 0 {
		return fmt.Sprintf(mark, len(s))
	}
	head := jsonHead(s, room/3)
	if i := strings.LastIndexByte(head, '\n'); i >= len(head)/2 {
		head = head[:i+1]
	}
	tail := jsonTail(s[len(head):], room-jsonLen(head))
	if i := strings.IndexByte(tail, '\n'); i >= 0 && i < len(tail)/2 {
		tail = tail[i+1:]
	}
	return head + fmt.Sprintf(mark, len(s)-len(head)-len(tail)) + tail
}

// jsonLen returns how many bytes s takes inside a JSON string, as encoding/json
// writes it.
func jsonLen(s string) int {
	n := 0
	for _, r := range s {
		n += jsonRune(r)
	}
	return n
}

// jsonRune returns how many bytes a rune takes in JSON. A byte that is no UTF-8 is
// U+FFFD: the SDK's detour over a map makes it one.
func jsonRune(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t', r == '\b', r == '\f':
		return 2
	case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}

// jsonHead returns the longest start of s that takes at most max bytes of JSON.
func jsonHead(s string, max int) string {
	n := 0
	for i, r := range s {
		if n += jsonRune(r); n > max {
			return s[:i]
		}
	}
	return s
}

// jsonTail returns the longest end of s that takes at most max bytes of JSON.
func jsonTail(s string, max int) string {
	if max < len(s) { // a byte takes at least one byte
		s = text.Tail(s, max)
	}
	for i := len(s); i > 0; {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if max -= jsonRune(r); max < 0 {
			return s[i:]
		}
		i -= size
	}
	return s
}

// split returns s in parts of at most max bytes of JSON each.
func split(s string, max int) []string {
	var parts []string
	for jsonLen(s) > max {
		part := jsonHead(s, max)
		if part == "" {
			break
		}
		parts, s = append(parts, part), s[len(part):]
	}
	return append(parts, s)
}

// chunks returns u as updates that each fit a line: message chunks of text are
// split, everything else is one update. See fit.
func chunks(session acp.SessionId, u acp.SessionUpdate) ([]acp.SessionNotification, error) {
	n := acp.SessionNotification{SessionId: session, Update: u}
	size, err := lineSize(n)
	if err != nil {
		return nil, fmt.Errorf("bridge: session/update: %w", err)
	}
	words, with := chunkText(u)
	if size <= terminal.MaxUpdateLine || words == "" {
		n, err = fit(n, false)
		return []acp.SessionNotification{n}, err
	}
	room := terminal.MaxUpdateLine - (size - jsonLen(words))
	if room < minRaw {
		_, err := fit(n, false)
		return nil, err
	}
	var all []acp.SessionNotification
	for _, part := range split(words, room) {
		all = append(all, acp.SessionNotification{SessionId: session, Update: with(part)})
	}
	return all, nil
}

// chunkText returns the text of a message chunk, and a function that makes the
// same chunk with another text; "" for every other update.
func chunkText(u acp.SessionUpdate) (string, func(string) acp.SessionUpdate) {
	with := func(b acp.ContentBlock, s string) acp.ContentBlock {
		t := *b.Text
		t.Text = s
		b.Text = &t
		return b
	}
	switch {
	case u.AgentMessageChunk != nil && u.AgentMessageChunk.Content.Text != nil:
		return u.AgentMessageChunk.Content.Text.Text, func(s string) acp.SessionUpdate {
			c := *u.AgentMessageChunk
			c.Content = with(c.Content, s)
			return acp.SessionUpdate{AgentMessageChunk: &c}
		}
	case u.AgentThoughtChunk != nil && u.AgentThoughtChunk.Content.Text != nil:
		return u.AgentThoughtChunk.Content.Text.Text, func(s string) acp.SessionUpdate {
			c := *u.AgentThoughtChunk
			c.Content = with(c.Content, s)
			return acp.SessionUpdate{AgentThoughtChunk: &c}
		}
	case u.UserMessageChunk != nil && u.UserMessageChunk.Content.Text != nil:
		return u.UserMessageChunk.Content.Text.Text, func(s string) acp.SessionUpdate {
			c := *u.UserMessageChunk
			c.Content = with(c.Content, s)
			return acp.SessionUpdate{UserMessageChunk: &c}
		}
	}
	return "", nil
}
