package fakeconn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/text"
)

// A Side is an end of the connection.
type Side string

// The sides.
const (
	Agent  Side = "agent"
	Editor Side = "client"
)

func (s Side) other() Side {
	if s == Agent {
		return Editor
	}
	return Agent
}

// A Kind is what a line of the wire is.
type Kind string

// The kinds.
const (
	Request      Kind = "request"
	Reply        Kind = "reply"
	Notification Kind = "notification"
	Garbage      Kind = "garbage" // no JSON-RPC
)

// A Line is a line of the wire, as it was sent.
type Line struct {
	N    int       // from 1, over both directions
	Time time.Time // when it was sent
	From Side
	Kind Kind

	// Method, Session and Terminal of a reply are those of its request.
	Method   string
	Session  acp.SessionId
	Terminal string
	ID       string // the JSON of the id, "" without

	// Raw is the line without its end.
	Raw string

	// Made says that a fault made the line, and Note what faults did with it.
	Made bool
	Note string

	message message
}

// String returns the line as a transcript has it: cut if it is long.
func (l Line) String() string {
	arrow := "→ client"
	if l.From == Editor {
		arrow = "← client"
	}
	raw := text.Head(l.Raw, maxShown)
	if len(raw) < len(l.Raw) {
		raw = fmt.Sprintf("%s… (%d bytes)", raw, len(l.Raw))
	}
	note := l.Note
	if l.Made {
		note = strings.TrimSpace("made by a fault " + note)
	}
	if note != "" {
		note = " [" + note + "]"
	}
	return fmt.Sprintf("#%-4d %s %s %-12s %s%s %s", l.N, l.Time.Format("15:04:05.000"), arrow, l.Kind, l.Method, note, raw)
}

// maxShown is how many bytes of a line a transcript shows.
const maxShown = 300

// message is the JSON-RPC of a line.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// target is what most requests name.
type target struct {
	SessionID  acp.SessionId `json:"sessionId"`
	TerminalID string        `json:"terminalId"`
}

// parse fills in what the line itself says.
func (l *Line) parse() {
	if err := json.Unmarshal([]byte(l.Raw), &l.message); err != nil {
		l.Kind = Garbage
		return
	}
	l.ID = string(bytes.TrimSpace(l.message.ID))
	switch {
	case l.message.Method != "" && l.ID != "":
		l.Kind = Request
	case l.message.Method != "":
		l.Kind = Notification
	case l.ID != "":
		l.Kind = Reply
		return
	default:
		l.Kind = Garbage
		return
	}
	l.Method = l.message.Method
	var t target
	json.Unmarshal(l.message.Params, &t) // other params have none
	l.Session, l.Terminal = t.SessionID, t.TerminalID
}

// A pipe is one direction of the connection: an unbounded queue of lines. Its
// Write never blocks, but for a reader that a fault has stopped; its Read
// waits on channels only, so that a synctest bubble sees it as idle.
type pipe struct {
	latency time.Duration
	send    func(raw []byte) // called by Write with every line

	mu sync.Mutex
	// guards following
	partial     []byte // of the line being written
	items       []item
	rest        []byte // of the line being read
	bytes, peak int    // in items
	stopped     bool   // the reader reads no more, but for
	left        int    // items from before it stopped
	room        int    // bytes that a stopped pipe takes
	closed      bool
	wake        chan struct{} // closed at the next change; nil while nobody waits
}

// item is a line on its way.
type item struct {
	raw   []byte // with its end
	due   time.Time
	until <-chan struct{} // nil, or closed when the line may be read
}

// Write takes lines from the sender.
func (p *pipe) Write(b []byte) (int, error) {
	if !p.waitRoom() {
		return 0, io.ErrClosedPipe
	}
	p.mu.Lock()
	p.partial = append(p.partial, b...)
	var lines [][]byte
	for {
		i := bytes.IndexByte(p.partial, '\n')
		if i < 0 {
			break
		}
		lines = append(lines, p.partial[:i])
		p.partial = p.partial[i+1:]
	}
	if len(p.partial) == 0 {
		p.partial = nil
	}
	p.mu.Unlock()
	for _, line := range lines {
		p.send(line)
	}
	return len(b), nil
}

// waitRoom waits while the reader is stopped and the pipe is full, and reports
// false when it is closed.
func (p *pipe) waitRoom() bool {
	for {
		p.mu.Lock()
		if p.closed || !p.stopped || p.bytes < p.room {
			open := !p.closed
			p.mu.Unlock()
			return open
		}
		wake := p.wait()
		p.mu.Unlock()
		<-wake
	}
}

// push queues a line for the reader.
func (p *pipe) push(raw string, delay time.Duration, until <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.items = append(p.items, item{append([]byte(raw), '\n'), time.Now().Add(p.latency + delay), until})
	p.bytes += len(raw) + 1
	p.peak = max(p.peak, p.bytes)
	p.changed()
}

// Read hands lines to the reader, each once it is due, in order. After close it
// hands out what was due by then.
func (p *pipe) Read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		if len(p.rest) > 0 {
			n := copy(b, p.rest)
			p.rest = p.rest[n:]
			p.mu.Unlock()
			return n, nil
		}
		var until <-chan struct{}
		var wait time.Duration
		if len(p.items) > 0 && (!p.stopped || p.left > 0) {
			next := p.items[0]
			wait, until = time.Until(next.due), next.until
			if wait <= 0 && over(until) {
				p.items[0] = item{} // or the queue keeps it
				p.items = p.items[1:]
				p.bytes -= len(next.raw)
				p.rest = next.raw
				p.left--
				p.changed() // there is room
				p.mu.Unlock()
				continue
			}
		}
		if p.closed {
			p.mu.Unlock()
			return 0, io.EOF
		}
		wake := p.wait()
		p.mu.Unlock()

		var due <-chan time.Time
		if wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			due, until = timer.C, nil // one after the other
		}
		select {
		case <-wake:
		case <-due:
		case <-until:
		}
	}
}

// over reports whether c is closed, or nil: nothing to wait for.
func over(c <-chan struct{}) bool {
	if c == nil {
		return true
	}
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stop makes the reader read nothing that is not in the pipe yet, which then
// takes room bytes.
func (p *pipe) stop(room int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped, p.left = true, len(p.items)
	}
	p.room = room
	p.changed()
}

// close ends the pipe: EOF for the reader, an error for the writer.
func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.changed()
}

// wait returns a channel that is closed at the next change. Called with mu held.
func (p *pipe) wait() chan struct{} {
	if p.wake == nil {
		p.wake = make(chan struct{})
	}
	return p.wake
}

// changed wakes who waits. Called with mu held.
func (p *pipe) changed() {
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
}

// highWater returns the most bytes that were queued at once.
func (p *pipe) highWater() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peak
}
