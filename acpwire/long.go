package acpwire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/jsonrpc"
)

// maxLine is the longest line that SDK 0.13 reads, with its end: it closes the
// connection at one that fills its 10 MiB buffer.
const maxLine = 10<<20 - 1

// receiveLong is receive for the line of which g.line is the start and err came
// with the last of that. It keeps no more of it, and answers for it.
func (g *guard) receiveLong(err error) []byte {
	var e envelope
	e.scan(g.line)
	size := len(g.line)
	for err == bufio.ErrBufferFull {
		g.line, err = g.in.ReadSlice('\n')
		e.scan(g.line)
		size += len(g.line)
	}
	g.line = nil
	e.id = bytes.TrimSpace(e.id)
	what := "reply"
	if e.method {
		what = "request"
	}
	if len(e.id) == 0 || string(e.id) == "null" || !json.Valid(e.id) {
		what, e.id = "message", nil
	}
	g.logger.Error("acpwire: a line is too long, and was dropped", "bytes", size, "what", what, "id", string(e.id))
	refusal := &acp.RequestError{
		Code:    jsonrpc.Internal,
		Message: fmt.Sprintf("the %s has %d bytes, more than the %d that the connection carries", what, size, maxLine),
	}
	switch what {
	case "reply":
		return g.receive(reply(e.id, nil, refusal))
	case "request":
		refusal.Code = jsonrpc.InvalidRequest
		g.answer(e.id, nil, refusal)
	}
	return nil
}

// An envelope finds the members of a JSON-RPC message without keeping the
// message: the state of a scanner that takes it in pieces.
type envelope struct {
	depth  int
	quoted bool // in a string
	escape bool // behind a backslash in it
	at     place
	key    []byte // the name of the member that is being read

	id     []byte // the value of "id"
	method bool   // there is a "method"
}

// A place is where a scanner is in the outermost object.
type place int

const (
	inValue place = iota // or before the object
	inKey
	inID // in the value of "id"
)

// maxID is far more than an id has.
const maxID = 1 << 10

// scan takes the next piece of the message.
func (e *envelope) scan(piece []byte) {
	for _, c := range piece {
		if e.at == inID && (e.quoted || e.depth == 1 && c != ',' && c != '}') {
			e.id = append(e.id, c)
			if len(e.id) > maxID {
				e.id, e.at = nil, inValue
			}
		}
		if e.quoted {
			switch {
			case e.escape:
				e.escape = false
			case c == '\\':
				e.escape = true
			case c == '"':
				e.quoted = false
				continue
			}
			if e.at == inKey && len(e.key) < len(`"jsonrpc"`) {
				e.key = append(e.key, c)
			}
			continue
		}
		switch c {
		case '"':
			e.quoted = true
		case '{', '[':
			if e.depth++; e.depth == 1 {
				e.at, e.key = inKey, e.key[:0]
			}
		case '}', ']':
			e.depth--
		case ',':
			if e.depth == 1 {
				e.at, e.key = inKey, e.key[:0]
			}
		case ':':
			if e.at == inKey {
				e.member(string(e.key))
			}
		}
	}
}

// member notes that the value of a member of the message begins.
func (e *envelope) member(name string) {
	e.at = inValue
	switch name {
	case "id":
		e.at, e.id = inID, nil
	case "method":
		e.method = true
	}
}
