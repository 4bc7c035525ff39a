package updates

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/text"
)

// Freeze returns a copy of v, one of the SDK's types, that shares nothing with it
// and in which every value of the caller's is a plain JSON value: what comes later
// runs no code of the caller's, and reads nothing that the caller may change. It
// also returns how long the JSON of v is. A MarshalJSON that panics is an error.
func Freeze[T any](v T) (frozen T, size int, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("bridge: a value that cannot be sent: its JSON panicked: %v", p)
		}
	}()
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &frozen)
	}
	if err != nil {
		return frozen, 0, fmt.Errorf("bridge: a value that cannot be sent: %w", err)
	}
	return frozen, len(b), nil
}

// FreezeCall returns a tool call as it may be kept and sent: see Freeze. What
// would not fit a line by itself is cut, and hidden characters in its title and
// its texts are spelled out.
func FreezeCall(card acp.SessionUpdateToolCall) (acp.SessionUpdateToolCall, error) {
	card, size, err := Freeze(card)
	if err != nil {
		return card, err
	}
	card.Title = Title(card.Title)
	visibleTexts(card.Content)
	if size > limits.MaxUpdateLine {
		card.RawInput, card.RawOutput = Shrink(card.RawInput, limits.MaxUpdateLine), Shrink(card.RawOutput, limits.MaxUpdateLine)
	}
	return card, nil
}

// FreezeUpdate is FreezeCall for an update of a tool call.
func FreezeUpdate(u acp.SessionToolCallUpdate) (acp.SessionToolCallUpdate, error) {
	noContent := u.Content != nil && len(u.Content) == 0 // which the JSON does not tell from none
	u, size, err := Freeze(u)
	if err != nil {
		return u, err
	}
	if noContent {
		u.Content = []acp.ToolCallContent{}
	}
	if u.Title != nil {
		u.Title = new(Title(*u.Title))
	}
	visibleTexts(u.Content)
	if size > limits.MaxUpdateLine {
		u.RawInput, u.RawOutput = Shrink(u.RawInput, limits.MaxUpdateLine), Shrink(u.RawOutput, limits.MaxUpdateLine)
	}
	return u, nil
}

// freezeAny is Freeze for any update.
func freezeAny(u acp.SessionUpdate) (acp.SessionUpdate, error) {
	switch {
	case u.ToolCall != nil:
		card, err := FreezeCall(*u.ToolCall)
		return acp.SessionUpdate{ToolCall: &card}, err
	case u.ToolCallUpdate != nil:
		tu, err := FreezeUpdate(*u.ToolCallUpdate)
		return acp.SessionUpdate{ToolCallUpdate: &tu}, err
	}
	u, _, err := Freeze(u)
	return u, err
}

// Title returns a title as a person may be shown it, on one line: clients show
// the first line only.
func Title(s string) string {
	return text.Visible(Middle(s, limits.MaxUpdateLine, CutMark), "\t")
}

// Message returns text of several lines as a person may be shown it.
func Message(s string) string {
	lines := strings.Split(s, "\r\n")
	for i := range lines {
		lines[i] = text.Visible(lines[i], "\n\t")
	}
	return strings.Join(lines, "\r\n")
}

// visibleTexts spells out what is hidden in the text blocks of content, in place.
func visibleTexts(content []acp.ToolCallContent) {
	for _, c := range content {
		if c.Content != nil && c.Content.Content.Text != nil {
			c.Content.Content.Text.Text = Message(c.Content.Content.Text.Text)
		}
	}
}

// VisibleRaw returns a copy of plain JSON values in which hidden characters are
// spelled out, in names, too.
func VisibleRaw(tree any) any {
	switch v := tree.(type) {
	case string:
		return Message(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = VisibleRaw(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			shown := Message(name)
			for _, taken := out[shown]; taken; _, taken = out[shown] {
				shown += "_" // no value hides another one
			}
			out[shown] = VisibleRaw(v[name])
		}
		return out
	}
	return tree
}
