package fakeconn

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"
)

// Record returns the recorded lines and the tool calls as a txtar archive, for a
// golden file: the comment, "wire" with a line for each line, and a file for each
// tool call.
//
// In the fake time of testing/synctest it is the same for each run, if
// Options.Latency is set: times count from the first line; requests, sessions
// and terminals are numbered; and what is sent at the same instant by one side,
// which has no order, is ordered: updates, requests, replies.
func (c *Client) Record(comment string) []byte {
	lines := c.Lines()
	lines = slices.DeleteFunc(lines, func(l Line) bool { return l.Method == syncMethod })
	slices.SortStableFunc(lines, func(a, b Line) int {
		if n := a.Time.Compare(b.Time); n != 0 {
			return n
		}
		if n := cmp.Compare(a.From, b.From); n != 0 {
			return n
		}
		if n := cmp.Compare(rank(a), rank(b)); n != 0 || a.Kind == Notification {
			return n
		}
		return cmp.Or(cmp.Compare(a.Method, b.Method), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Terminal, b.Terminal),
			bytes.Compare(a.message.Params, b.message.Params))
	})

	r := recorder{requests: map[call]int{}, names: map[string]string{}}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\n-- wire --\n", strings.TrimSpace(comment))
	for _, l := range lines {
		r.line(&b, l, l.Time.Sub(lines[0].Time))
	}
	for _, card := range c.Cards() {
		fmt.Fprintf(&b, "-- tool call %s: %s --\n", card.ID, card.Status)
		if s := r.rename(card.Visible()); s != "" {
			fmt.Fprintf(&b, "%s\n", strings.TrimSuffix(s, "\n"))
		}
	}
	return b.Bytes()
}

// rank orders lines of one side and instant.
func rank(l Line) int {
	switch l.Kind {
	case Notification:
		return 0
	case Request:
		return 1
	}
	return 2
}

// A recorder gives the ids of a connection names that do not change.
type recorder struct {
	n        int
	requests map[call]int
	names    map[string]string // by id
	counts   [2]int
}

// line writes a line.
func (r *recorder) line(b *bytes.Buffer, l Line, at time.Duration) {
	r.name(string(l.Session), "session", 0)
	if l.Method == acp.ClientMethodTerminalCreate && l.Kind == Reply {
		var created target
		json.Unmarshal(l.message.Result, &created) // an error has none
		r.name(created.TerminalID, "terminal", 1)
	}
	if l.Method == acp.AgentMethodSessionNew && l.Kind == Reply {
		var made target
		json.Unmarshal(l.message.Result, &made)
		r.name(string(made.SessionID), "session", 0)
	}
	what, body := l.Method, l.message.Params
	switch l.Kind {
	case Request:
		r.n++
		r.requests[call{l.From, l.ID}] = r.n
		what = fmt.Sprintf("%s #%d", l.Method, r.n)
	case Reply:
		what = fmt.Sprintf("#%d", r.requests[call{l.From.other(), l.ID}])
		if body = l.message.Result; len(l.message.Error) > 0 {
			what, body = what+" error", l.message.Error
		}
	case Garbage:
		what, body = "garbage", json.RawMessage(l.Raw)
	}
	if l.Note != "" {
		what += " [" + l.Note + "]"
	}
	if l.Made {
		what += " [made by a fault]"
	}
	fmt.Fprintf(b, "%8v %-6s %s %s\n", at, l.From, what, r.rename(sorted(body)))
}

// name gives an id a name, if it has none.
func (r *recorder) name(id, kind string, count int) {
	if id == "" || r.names[id] != "" {
		return
	}
	r.counts[count]++
	r.names[id] = fmt.Sprintf("%s-%d", kind, r.counts[count])
}

// rename replaces the ids, as JSON strings, by their names.
func (r *recorder) rename(s string) string {
	for id, name := range r.names {
		quoted, _ := json.Marshal(id)
		s = strings.ReplaceAll(s, string(quoted), `"`+name+`"`)
	}
	return s
}

// sorted is a JSON value with its members in order.
func sorted(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return string(raw)
	}
	return strings.TrimSpace(b.String())
}
