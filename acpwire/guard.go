package acpwire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/jsonrpc"
)

// A guard stands between a client and the SDK: it is what the SDK reads from
// and writes to.
type guard struct {
	agent  acp.Agent
	logger *slog.Logger
	in     *bufio.Reader
	open   chan struct{}   // closed when in may be read
	ctx    context.Context // of the agent's handlers; it ends with the connection
	// initialize is Options.Initialize; nil for none.
	initialize func(acp.InitializeRequest) error
	answers    chan struct{} // has one value for each answer of ours that is being written

	// Used by Read, which the SDK calls on one goroutine.
	line []byte // the line that is being read, reused
	rest []byte // what of it Read has not returned
	err  error  // what ended the input; given out after rest

	// out holds the client's input, for one write at a time. A write lasts as long
	// as the client does not read, and a channel lets the clock of a synctest
	// bubble go on meanwhile.
	out chan io.Writer

	mu sync.Mutex
	// guards following
	waiting  []notification      // that wait for the handler of the one before
	backlog  int                 // their bytes
	handling bool                // one is being handled
	sent     map[int64]string    // the methods of our requests that are not answered, by the SDK's id
	prompts  map[string]*prompt  // that are not answered, by the client's id
	sessions map[string]*session // that have prompts or cancels
	told     map[string]bool     // the kinds of messages of which something was logged
}

// Read implements [io.Reader]: it returns the client's lines as the SDK is to
// see them.
func (g *guard) Read(p []byte) (int, error) {
	<-g.open
	for len(g.rest) == 0 {
		if g.err != nil {
			return 0, g.err
		}
		g.next()
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// next reads a line, and makes rest what the SDK gets of it.
func (g *guard) next() {
	if cap(g.line) > 4<<20 { // room for the outputs that acpterm asks for
		g.line = nil
	}
	g.line = g.line[:0]
	for {
		part, err := g.in.ReadSlice('\n')
		g.line = append(g.line, part...)
		switch {
		case err == bufio.ErrBufferFull && len(g.line) < maxLine:
			continue
		case err == bufio.ErrBufferFull, len(g.line) > maxLine:
			g.rest = g.receiveLong(err)
		default:
			g.err = err
			g.rest = g.receive(g.line)
		}
		return
	}
}

// receive takes a line of the client, and returns what the SDK gets of it.
func (g *guard) receive(line []byte) []byte {
	line = bytes.TrimPrefix(line, []byte("\ufeff")) // of clients on .NET, in front of the first line
	m, err := parse(line)
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		return nil
	case err != nil:
		return g.refuse(&m, err)
	case m.method == "" && m.has(m.id):
		return g.receiveReply(&m)
	}
	m.lenient(params[m.method])
	g.tell(m.method, m.edits)
	m.rewrite()
	switch {
	case m.method == acp.AgentMethodSessionPrompt:
		g.receivePrompt(&m)
	case m.method == acp.AgentMethodSessionCancel:
		g.receiveCancel(&m)
	case m.method == acp.AgentMethodInitialize && g.initialize != nil && m.has(m.id):
		return g.receiveInitialize(&m)
	case m.method == methodCancelRequest:
		if g.cancelPrompt(memberOf(m.text(m.params), "requestId")) {
			return nil
		}
		return m.line
	case !m.has(m.id):
		return g.receiveNotification(&m)
	default:
		return m.line
	}
	return nil
}

// receiveInitialize is receive for initialize. What the SDK will refuse is left
// to it.
func (g *guard) receiveInitialize(m *message) []byte {
	var req acp.InitializeRequest
	if json.Unmarshal(m.text(m.params), &req) != nil || req.Validate() != nil {
		return m.line
	}
	if err := g.call(acp.AgentMethodInitialize, func() error { return g.initialize(req) }); err != nil {
		g.answer(m.text(m.id), nil, requestError(err))
		return nil
	}
	return m.line
}

// methodCancelRequest is JSON-RPC's way to give a request up, in both directions.
const methodCancelRequest = "$/cancel_request"

// refuse answers for a line that nobody can read, since somebody may wait for
// what it was. It returns what the SDK gets in its place.
func (g *guard) refuse(m *message, why error) []byte {
	g.logger.Warn("acpwire: a line was dropped", "err", why, "bytes", len(bytes.TrimSpace(m.line)))
	if !m.has(m.id) {
		return nil // a notification, or an id that was not found
	}
	id := m.text(m.id)
	if _, ours := g.ours(id); ours && m.method == "" {
		return g.receive(reply(id, nil, &acp.RequestError{Code: jsonrpc.Internal, Message: "the client's reply: " + why.Error()}))
	}
	code := jsonrpc.Parse
	if why == errNoMethod {
		code = jsonrpc.InvalidRequest
	}
	g.answer(id, nil, &acp.RequestError{Code: code, Message: why.Error()})
	return nil
}

// firstID is added to the ids of our requests. Clients count theirs from 0 or 1,
// and some take a request with the id of one of theirs for the answer to it. It
// leaves room for a thousand million requests in 32 bits.
const firstID = 1 << 30

// ours returns the SDK's id of a request of ours that is not answered. Some
// clients return an id as 1.0, or as a string.
func (g *guard) ours(id []byte) (n int64, ok bool) {
	id = bytes.Trim(id, `"`)
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		f, _ := strconv.ParseFloat(string(id), 64)
		if n = int64(f); float64(n) != f {
			return 0, false
		}
	}
	n -= firstID
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok = g.sent[n]
	return n, ok
}

// receiveReply is receive for a reply.
func (g *guard) receiveReply(m *message) []byte {
	n, ok := g.ours(m.text(m.id))
	if !ok {
		g.logger.Warn("acpwire: a reply to no request was dropped", "id", string(m.text(m.id)))
		return nil
	}
	g.mu.Lock()
	method := g.sent[n]
	delete(g.sent, n)
	g.mu.Unlock()
	m.setID(n)
	m.lenient(results[method])
	g.tell(method, m.edits)
	m.rewrite()
	return m.line
}

// tell logs what of a message did not fit, each kind once.
func (g *guard) tell(method string, misfits []edit) {
	for _, e := range misfits {
		if e.member != "" {
			g.tellOnce(method+" "+e.member, "acpwire: the client sends a member of the wrong type", "method", method, "member", e.member, "readAs", e.text)
		}
	}
}

// tellOnce logs something about a kind of message, unless it did before.
func (g *guard) tellOnce(kind, message string, args ...any) {
	const most = 100
	g.mu.Lock()
	fresh := !g.told[kind] && len(g.told) < most
	if fresh {
		g.told[kind] = true
	}
	g.mu.Unlock()
	if fresh {
		g.logger.Warn(message, args...)
	}
}

// Write implements [io.Writer]. The SDK writes each line in one call.
func (g *guard) Write(line []byte) (int, error) {
	if out := g.send(line); out != nil {
		if err := g.write(out); err != nil {
			return 0, err
		}
	}
	return len(line), nil
}

// write writes a line to the client.
func (g *guard) write(line []byte) error {
	out := <-g.out
	defer func() { g.out <- out }()
	_, err := out.Write(line)
	return err
}

// send returns what the client gets of a line of the SDK, nil for nothing: its ids
// of requests are moved.
func (g *guard) send(line []byte) []byte {
	m, err := parse(line)
	if err != nil {
		return line
	}
	switch {
	case m.method == "" && string(m.text(m.id)) == noID:
		return nil
	case m.method == methodCancelRequest:
		if n, err := strconv.ParseInt(string(memberOf(m.text(m.params), "requestId")), 10, 64); err == nil {
			g.mu.Lock()
			delete(g.sent, n) // the SDK takes no reply to it any more
			g.mu.Unlock()
			m.edit(m.params, fmt.Sprintf(`{"requestId":%d}`, firstID+n))
		}
	case m.method != "" && m.has(m.id):
		if n, err := strconv.ParseInt(string(m.text(m.id)), 10, 64); err == nil {
			g.mu.Lock()
			g.sent[n] = m.method
			g.mu.Unlock()
			m.edit(m.id, strconv.FormatInt(firstID+n, 10))
		}
	}
	m.rewrite()
	return m.line
}

// maxAnswers is how many answers of ours may be on their way to a client that
// does not read. Then no more is read of it either.
const maxAnswers = 64

// answer answers a request of the client, or refuses to, on a goroutine of the
// connection's own.
func (g *guard) answer(id []byte, result any, err *acp.RequestError) {
	line := reply(id, result, err)
	g.answers <- struct{}{}
	go func() {
		defer func() { <-g.answers }()
		_ = g.write(line) // whoever made out sees the error
	}()
}
