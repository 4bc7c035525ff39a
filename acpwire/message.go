package acpwire

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/jsonrpc"
)

// A message is a line of the wire and where its parts are.
type message struct {
	line   []byte
	method string
	// Without a value, and for an id, a result or an error of null, a part is empty.
	id, params, result, err, version part
	edits                            []edit
}

// A part of a line is line[start:end].
type part struct{ start, end int }

func (m *message) has(p part) bool    { return p.end > 0 }
func (m *message) text(p part) []byte { return m.line[p.start:p.end] }

// errNoMessage and errNoMethod are what is wrong with a line that the SDK would
// drop.
var (
	errNoMessage = errors.New("this is no JSON-RPC message")
	errNoMethod  = errors.New("the method is no string")
)

// parse finds the parts of a line. With an error those found so far are valid.
// As in encoding/json the last of several members of a name counts.
func parse(line []byte) (message, error) {
	m := message{line: line}
	w := walker{data: line}
	start := w.blanks(0)
	if w.at(start) != '{' {
		return m, errNoMessage
	}
	var err error
	end := w.object(start, func(name []byte, i int) int {
		p := part{i, w.skip(i)}
		if p.end < 0 {
			return p.end
		}
		value := p
		if line[i] == 'n' {
			value = part{}
		}
		switch asMember(name) {
		case "jsonrpc":
			m.version = value
		case "id":
			m.id = value
		case "method":
			m.method, err = "", nil
			if line[i] == '"' {
				m.method = unquote(m.text(p))
			} else if line[i] != 'n' {
				err = errNoMethod
			}
		case "params":
			m.params = p
		case "result":
			m.result = value
		case "error":
			m.err = value
		}
		return p.end
	})
	if end < 0 || w.blanks(end) != len(line) {
		if after := w.at(w.blanks(m.id.end)); after != ',' && after != '}' {
			m.id = part{} // half of it, maybe
		}
		return m, errNoMessage
	}
	return m, err
}

// asMember returns the name of a member of a message as it is spelt, whatever
// its case.
func asMember(name []byte) string {
	for _, known := range [...]string{"jsonrpc", "id", "method", "params", "result", "error"} {
		if len(name) == len(known) && strings.EqualFold(string(name), known) {
			return known
		}
	}
	return ""
}

// memberOf returns a member of an object, nil if there is none or data is none.
func memberOf(data []byte, name string) (value []byte) {
	w := walker{data: data}
	if i := w.blanks(0); w.at(i) == '{' {
		w.object(i, func(n []byte, i int) int {
			end := w.skip(i)
			if string(n) == name {
				value = data[i:end]
			}
			return end
		})
	}
	return value
}

// rpcError is the shape of an error reply.
type rpcError struct {
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Data    any    `json:"data,omitempty"`
}

// edit replaces a part when the message is rewritten.
func (m *message) edit(p part, text string) {
	m.edits = append(m.edits, edit{start: p.start, end: p.end, text: text})
}

// setID makes n the id, in place: n is one of fewer digits.
func (m *message) setID(n int64) {
	id := m.text(m.id)
	for i := copy(id, strconv.AppendInt(nil, n, 10)); i < len(id); i++ {
		id[i] = ' '
	}
}

// rewrite makes the edits. The line is as it was if there are none.
func (m *message) rewrite() {
	if len(m.edits) == 0 {
		return
	}
	slices.SortFunc(m.edits, func(a, b edit) int { return a.start - b.start })
	*m, _ = parse(apply(m.line, 0, m.edits))
}

// lenient edits the message so that the SDK takes it, if it can be: t is the
// type of its params or result, nil if that is not known.
func (m *message) lenient(t reflect.Type) {
	if m.has(m.version) && m.line[m.version.start] != '"' {
		m.edits = append(m.edits, edit{m.version.start, m.version.end, `"2.0"`, "jsonrpc"})
	}
	if m.has(m.err) {
		m.lenientError()
	}
	for _, p := range [...]part{m.params, m.result} {
		if t == nil || !m.has(p) {
			continue
		}
		absent := p == m.result || m.method == acp.AgentMethodInitialize
		w := walker{data: m.line, absent: absent}
		s := shapeOf(t)
		_, fits := w.fit(p.start, s, false)
		// PHP has it that an empty object is []. An output of any other type is an error,
		// so that nobody takes it for none.
		empty := m.line[p.start] == '[' && (&walker{data: m.line}).blanks(p.start+1) == p.end-1
		if !fits && s.kind == object && (!s.requires() || absent && (empty || t != results[acp.ClientMethodTerminalOutput])) {
			w.edits = append(w.edits, edit{p.start, p.end, "{}", "all"})
		}
		m.edits = append(m.edits, w.edits...)
	}
}

// lenientError is lenient for the error of a reply: one that is lost leaves a
// request without an answer.
func (m *message) lenientError() {
	w := walker{data: m.line}
	p := m.err
	if m.line[p.start] == '{' {
		w.fit(p.start, shapeOf(reflect.TypeFor[rpcError]()), false)
		m.edits = append(m.edits, w.edits...)
		return
	}
	text := m.text(p)
	if text[0] != '"' {
		text, _ = json.Marshal(string(text))
	}
	m.edits = append(m.edits, edit{p.start, p.end, fmt.Sprintf(`{"code":%d,"message":%s}`, jsonrpc.Internal, text), "error"})
}

// reply returns the line that answers a request.
func reply(id []byte, result any, err *acp.RequestError) []byte {
	var body json.RawMessage
	if err == nil {
		var failed error
		if body, failed = json.Marshal(result); failed != nil {
			err = &acp.RequestError{Code: jsonrpc.Internal, Message: failed.Error()}
		}
	}
	line, _ := json.Marshal(struct {
		Version string            `json:"jsonrpc"`
		ID      json.RawMessage   `json:"id"`
		Result  json.RawMessage   `json:"result,omitempty"`
		Error   *acp.RequestError `json:"error,omitempty"`
	}{"2.0", id, body, err})
	return append(line, '\n')
}
