package updates

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
)

// Line is the longest line of a session/update, in bytes.
const Line = limits.MaxUpdateLine

// envelope is how many bytes JSON-RPC puts around the params of a
// session/update, the end of the line included.
const envelope = len(`{"jsonrpc":"2.0","method":"session/update","params":}` + "\n")

// LineSize returns how long the line of n is on the wire.
func LineSize(n acp.SessionNotification) (int, error) {
	b, err := json.Marshal(n)
	return envelope + len(b), err
}

// MaxID is how long an id in a line may be, in bytes of JSON: a card has its own
// three times.
const MaxID = 1 << 10

// CheckID returns an error unless a session's or a tool call's id can be sent.
func CheckID(id string) error {
	if n := text.JSONLen(id); n > MaxID {
		return fmt.Errorf("%w: an id of %d bytes; at most %d are sent", terminal.ErrTooLarge, n, MaxID)
	}
	return nil
}

const (
	maxTitle = 1 << 10 // bytes of JSON of a title that had to be cut
	minTitle = 1 << 8  // and of one that had to be cut more
	minRaw   = 1 << 10 // bytes of JSON of a raw value that had to be cut
)

// Fit returns n within a line: title, rawInput and rawOutput of a tool call are
// cut and marked where that is needed. What is still too long is an ErrTooLarge.
// It changes nothing that n shares with others.
func Fit(n acp.SessionNotification) (acp.SessionNotification, error) {
	return fit(n, titleTo(maxTitle), inputTo(minRaw), outputTo(minRaw))
}

// Force returns n, an update of a tool call, within a line, whatever that takes:
// text content is cut, too, and at last everything goes but the ids, the status,
// and what concerns terminals.
func Force(n acp.SessionNotification) (acp.SessionNotification, error) {
	return fit(n, titleTo(maxTitle), inputTo(minRaw),
		// Both tell the output: neither takes more than half from the other.
		outputTo(Line/2), parts.cutContent, outputTo(minRaw), parts.cutContent,
		titleTo(minTitle), parts.strip)
}

// parts are what can be cut of an update of a tool call.
type parts struct {
	title               *string // nil if there is none, as all are for other updates
	rawInput, rawOutput *any
	content             *[]acp.ToolCallContent
	locations           *[]acp.ToolCallLocation
	meta                *map[string]any
	kind                *acp.ToolKind
}

// fit returns n within a line, to which each step may bring it closer: it gets
// what can be cut, and how much too long the line is.
func fit(n acp.SessionNotification, steps ...func(p parts, over int)) (acp.SessionNotification, error) {
	size, err := LineSize(n)
	if err != nil || size <= Line {
		return n, err
	}
	var p parts
	switch {
	case n.Update.ToolCall != nil:
		u := *n.Update.ToolCall
		n.Update.ToolCall = &u
		p = parts{&u.Title, &u.RawInput, &u.RawOutput, &u.Content, &u.Locations, &u.Meta, &u.Kind}
	case n.Update.ToolCallUpdate != nil:
		u := *n.Update.ToolCallUpdate
		n.Update.ToolCallUpdate = &u
		if u.Title != nil {
			u.Title = new(*u.Title)
		}
		if u.Kind != nil {
			u.Kind = new(*u.Kind)
		}
		p = parts{u.Title, &u.RawInput, &u.RawOutput, &u.Content, &u.Locations, &u.Meta, u.Kind}
	default:
		steps = nil
	}
	for _, step := range steps {
		step(p, size-Line)
		if size, err = LineSize(n); err != nil || size <= Line {
			return n, err
		}
	}
	return n, fmt.Errorf("bridge: %w: a session/update line of %d bytes; at most %d are sent", terminal.ErrTooLarge, size, Line)
}

func titleTo(limit int) func(parts, int) {
	return func(p parts, _ int) {
		if p.title != nil {
			*p.title = Middle(*p.title, limit, CutMark)
		}
	}
}

// inputTo shrinks rawInput to what the line leaves for it, and at least to least.
func inputTo(least int) func(parts, int) {
	return func(p parts, over int) { *p.rawInput = shrinkBy(*p.rawInput, over, least) }
}

func outputTo(least int) func(parts, int) {
	return func(p parts, over int) { *p.rawOutput = shrinkBy(*p.rawOutput, over, least) }
}

func shrinkBy(tree any, over, least int) any {
	return Shrink(tree, max(sizeWithin(tree, Line, 2*Line)-over, least))
}

// cutContent takes as many bytes as the line is too long from the text blocks of
// the content, from the longest first. It shares no block that it changes.
func (p parts) cutContent(over int) {
	content := slices.Clone(*p.content)
	for over > 0 {
		longest, size := -1, minBlock
		for i, c := range content {
			if c.Content != nil && c.Content.Content.Text != nil {
				if n := text.JSONLen(c.Content.Content.Text.Text); n > size {
					longest, size = i, n
				}
			}
		}
		if longest < 0 {
			break
		}
		block := *content[longest].Content
		t := *block.Content.Text
		t.Text = Middle(t.Text, max(size-over, minBlock), CutMark)
		block.Content.Text = &t
		content[longest].Content = &block
		over -= size - text.JSONLen(t.Text)
	}
	*p.content = content
}

// strip leaves what a client needs to show the terminals of a tool call.
func (p parts) strip(int) {
	*p.content = slices.DeleteFunc(slices.Clone(*p.content), func(c acp.ToolCallContent) bool { return c.Terminal == nil })
	if len(*p.content) == 0 {
		*p.content = nil
	}
	*p.locations, *p.rawInput, *p.rawOutput = nil, nil, nil
	*p.meta = maps.Clone(*p.meta)
	maps.DeleteFunc(*p.meta, func(name string, _ any) bool { return !strings.HasPrefix(name, "terminal_") })
	if p.kind != nil && len(*p.kind) > minBlock {
		*p.kind = acp.ToolKindOther
	}
}

// Shrink returns a copy of plain JSON values whose longest strings were cut in
// the middle and marked, so that its JSON takes at most limit bytes. What cannot
// be brought down so is replaced by a mark.
func Shrink(tree any, limit int) any {
	if sizeWithin(tree, limit, limit) <= limit {
		return tree
	}
	fits := -1
	for low, high := 32, limit; low <= high; {
		longest := low + (high-low)/2
		if sizeWithin(tree, longest, limit) <= limit {
			fits, low = longest, longest+1
		} else {
			high = longest - 1
		}
	}
	switch {
	case fits >= 0:
		return cutStrings(tree, fits)
	case limit >= len(cutAll)+2:
		return cutAll
	}
	return nil
}

// cutAll stands for a value that could not be cut.
const cutAll = "[... cut ...]"

// sizeWithin returns how long the JSON of plain values is if no string in it takes
// more than longest bytes, or some number over limit. It looks at no more than
// that takes.
func sizeWithin(tree any, longest, limit int) int {
	n := 0
	var add func(v any)
	add = func(v any) {
		switch v := v.(type) {
		case string:
			head := text.JSONHead(v, longest)
			if len(head) < len(v) {
				n += 2 + max(longest, 0)
			} else {
				n += 2 + text.JSONLen(head)
			}
		case []any:
			n += 2 + max(len(v)-1, 0)
			for i := 0; i < len(v) && n <= limit; i++ {
				add(v[i])
			}
		case map[string]any:
			n += 2 + max(len(v)-1, 0)
			for name, member := range v {
				if n > limit {
					return
				}
				n += 2 + text.JSONLen(name) + 1
				add(member)
			}
		default: // a number, true, false, null
			b, _ := json.Marshal(v)
			n += len(b)
		}
	}
	add(tree)
	return n
}

// cutStrings returns a copy of plain JSON values with every string cut to limit
// bytes of JSON.
func cutStrings(tree any, limit int) any {
	switch v := tree.(type) {
	case string:
		return Middle(v, limit, CutMark)
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

// CutMark stands where bytes were cut out of a text.
const CutMark = " [... %d bytes cut ...] "

// Middle returns s, or its start and its end with a mark between them that tells
// how many bytes are not there, in at most limit bytes of JSON.
func Middle(s string, limit int, mark string) string {
	if len(text.JSONHead(s, limit)) == len(s) {
		return s
	}
	return Cut(s, s, -len(s), limit, mark)
}

// Cut returns the start of head and the end of tail around a mark that tells how
// many bytes are not there: what is cut of both, and skipped bytes that were
// between them. It takes at most limit bytes of JSON, none if that is negative.
// The end gets the larger share: it is what a person looks for in an output. It
// does not begin inside of an escape sequence.
func Cut(head, tail string, skipped, limit int, mark string) string {
	skipped += len(head) + len(tail)
	label := fmt.Sprintf(mark, skipped)
	room := max(limit, 0) - text.JSONLen(label)
	if room <= 0 {
		return text.JSONHead(label, limit)
	}
	h := text.JSONHead(head, room/3)
	if i := strings.LastIndexByte(h, '\n'); i >= len(h)/2 {
		h = h[:i+1]
	}
	t := vt.From(tail, len(tail)-len(text.JSONTail(tail, room-text.JSONLen(h))))
	if i := strings.IndexByte(t, '\n'); i >= 0 && i < len(t)/2 {
		t = t[i+1:]
	}
	return h + fmt.Sprintf(mark, skipped-len(h)-len(t)) + t
}

// Split returns s in parts of at most limit bytes of JSON each, or of one rune.
func Split(s string, limit int) (parts []string) {
	for {
		part := text.JSONHead(s, limit)
		if part == "" && s != "" {
			_, size := utf8.DecodeRuneInString(s)
			part = s[:size]
		}
		parts, s = append(parts, part), s[len(part):]
		if s == "" {
			return parts
		}
	}
}

// Chunks returns u as updates that each fit a line: message chunks of text are
// split, everything else is one update; see Fit. They are frozen.
func (s *Stream) Chunks(u acp.SessionUpdate) ([]acp.SessionUpdate, error) {
	u, err := freezeAny(u)
	if err != nil {
		return nil, err
	}
	block := messageBlock(u)
	if block == nil {
		n, err := Fit(s.Notification(u))
		return []acp.SessionUpdate{n.Update}, err
	}
	words := Message(block.Text)
	block.Text = ""
	size, err := LineSize(s.Notification(u))
	if err != nil {
		return nil, err
	}
	room := Line - size
	if room < minBlock {
		return nil, fmt.Errorf("bridge: %w: a session/update line of %d bytes without its text; at most %d are sent", terminal.ErrTooLarge, size, Line)
	}
	var all []acp.SessionUpdate
	for _, part := range Split(words, room) {
		chunk, _, err := Freeze(u)
		if err != nil {
			return nil, err
		}
		messageBlock(chunk).Text = part
		all = append(all, chunk)
	}
	return all, nil
}

// messageBlock returns the text block of a message chunk, nil for every other
// update.
func messageBlock(u acp.SessionUpdate) *acp.ContentBlockText {
	switch {
	case u.AgentMessageChunk != nil:
		return u.AgentMessageChunk.Content.Text
	case u.AgentThoughtChunk != nil:
		return u.AgentThoughtChunk.Content.Text
	case u.UserMessageChunk != nil:
		return u.UserMessageChunk.Content.Text
	}
	return nil
}
