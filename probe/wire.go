package probe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Wire lies between a client and the agent's side of a connection, which reads
// from it and writes to it. It passes every line on, and lets [Run] send requests of
// its own, whose replies it keeps back: the SDK hides too much of what a client does.
type Wire struct {
	in    *bufio.Reader
	out   chan io.Writer // holds the client's input, for one write at a time
	conn  syscall.Conn   // the client's input; nil if it has no descriptor
	next  atomic.Int64   // the last id
	ended chan struct{}  // closed by Read when the input has ended

	// Used by Read.
	rest   []byte
	inside bool // rest ended inside a line that is passed on
	err    error

	mu sync.Mutex
	// guards following
	calls map[string]*call // that are not answered, by their ids
	used  json.RawMessage  // the id of the client's first request
}

// NewWire returns a Wire for what a client writes and reads.
func NewWire(in io.Reader, out io.Writer) *Wire {
	w := &Wire{
		in:    bufio.NewReaderSize(in, 64<<10),
		out:   make(chan io.Writer, 1),
		ended: make(chan struct{}),
		calls: map[string]*call{},
	}
	w.out <- out
	w.conn, _ = out.(syscall.Conn)
	w.next.Store(firstID)
	return w
}

const (
	// firstID is far from the ids that clients count, and from those of package
	// acpwire.
	firstID = 1 << 29

	// maxLine bounds a reply that is kept back. A longer line is passed on.
	maxLine = 16 << 20
)

// A call is a request of a probe.
type call struct {
	id    string
	start time.Time
	sent  chan struct{} // closed when it is written
	done  chan struct{} // closed when it is answered: reply is valid
	reply reply

	late func(reply) // guarded by Wire.mu: takes an answer that nobody waits for any more
}

// A reply is the answer to a call.
type reply struct {
	result json.RawMessage
	err    *rpcError
	took   time.Duration
}

// An rpcError is an error of JSON-RPC.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (e *rpcError) Error() string {
	text := fmt.Sprintf("%s (%d)", e.Message, e.Code)
	if len(e.Data) > 0 && len(e.Data) < 200 && string(e.Data) != "null" {
		text += " " + string(e.Data)
	}
	return text
}

// SyscallConn implements [syscall.Conn] for an output with a descriptor.
func (w *Wire) SyscallConn() (syscall.RawConn, error) {
	if w.conn == nil {
		return nil, errors.ErrUnsupported
	}
	return w.conn.SyscallConn()
}

// Write implements [io.Writer].
func (w *Wire) Write(p []byte) (int, error) {
	out := <-w.out
	defer func() { w.out <- out }()
	return out.Write(p)
}

// Read implements [io.Reader]: it returns the client's lines but for replies to a
// probe.
func (w *Wire) Read(p []byte) (int, error) {
	for len(w.rest) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		w.line()
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// line makes rest the next line, or a part of it. A line is held only while a probe
// waits for replies.
func (w *Wire) line() {
	part, err := w.in.ReadSlice('\n')
	if !w.inside && w.expects() {
		var line []byte
		for err == bufio.ErrBufferFull && len(line) < maxLine {
			line = append(line, part...)
			part, err = w.in.ReadSlice('\n')
		}
		if line = append(line, part...); w.take(line) {
			part = nil
		} else {
			part = line
		}
	}
	w.rest, w.inside = part, err == bufio.ErrBufferFull
	if err != nil && !w.inside {
		w.err = err
		close(w.ended)
	}
}

// expects reports whether the next line is to be looked at.
func (w *Wire) expects() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls) > 0 || w.used == nil
}

// take keeps a line back if it is a reply to a call.
func (w *Wire) take(line []byte) bool {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method *string         `json:"method"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(bytes.TrimPrefix(line, []byte("\ufeff")), &m) != nil || m.ID == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Method != nil {
		if w.used == nil {
			w.used = m.ID
		}
		return false
	}
	c := w.calls[key(m.ID)]
	if c == nil {
		return false
	}
	delete(w.calls, c.id)
	c.reply = reply{result: m.Result, took: time.Since(c.start)}
	if len(m.Error) > 0 && string(m.Error) != "null" {
		c.reply.err = new(rpcError)
		if json.Unmarshal(m.Error, c.reply.err) != nil {
			c.reply.err.Message = string(m.Error)
		}
	}
	close(c.done)
	if c.late != nil {
		go c.late(c.reply) // it ends by itself, see exam.sweep
	}
	return true
}

// key is an id as calls has it: some clients return a number as 1.0, or as text.
func key(id json.RawMessage) string {
	s := string(bytes.Trim(id, `"`))
	if f, err := strconv.ParseFloat(s, 64); err == nil && f == float64(int64(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return s
}

// send sends a request. Like those of the SDK it goes out on a goroutine that the
// connection owns: a client that does not read holds up nobody.
func (w *Wire) send(method string, params any) *call {
	return w.sendAs(json.RawMessage(strconv.FormatInt(w.next.Add(1), 10)), method, params)
}

func (w *Wire) sendAs(id json.RawMessage, method string, params any) *call {
	c := &call{id: key(id), start: time.Now(), sent: make(chan struct{}), done: make(chan struct{})}
	w.mu.Lock()
	w.calls[c.id] = c
	w.mu.Unlock()
	line := encode(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	go func() {
		if w.write(line) {
			close(c.sent)
		}
	}()
	return c
}

// notify sends a notification behind what was sent.
func (w *Wire) notify(method string, params any) {
	line := encode(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
	go w.write(line)
}

// write reports whether a line was written.
func (w *Wire) write(line []byte) bool {
	select {
	case out := <-w.out:
		defer func() { w.out <- out }()
		_, err := out.Write(line)
		return err == nil
	case <-w.ended:
		return false
	}
}

func encode(message any) []byte {
	line, err := json.Marshal(message)
	if err != nil {
		panic(err) // the params are ours
	}
	return append(line, '\n')
}

// await waits for the answer to a call, and reports whether it came. One that comes
// later is for late, if that is not nil.
func (w *Wire) await(ctx context.Context, c *call, limit time.Duration, late func(reply)) (reply, bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.reply, true
	case <-ctx.Done():
	case <-w.ended:
	case <-timer.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-c.done: // just then
		return c.reply, true
	default:
		c.late = late
		return reply{}, false
	}
}

// usedID returns the id of a request of the client's own that is answered long
// since; nil if it has made none.
func (w *Wire) usedID() json.RawMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.used
}

// gone reports whether the client has ended the connection.
func (w *Wire) gone() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// rawID is the id of a call as it was sent.
func rawID(id string) json.RawMessage { return json.RawMessage(id) }
