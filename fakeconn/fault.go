package fakeconn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"
)

// A Fault is something that goes wrong on the wire. The first group of fields
// says with which lines, the second what happens to them; faults that match
// the same line add up. The sender never notices, unless it is StopReading.
type Fault struct {
	// Method of the requests or notifications; "" is any.
	Method string
	// Reply makes the fault act on the replies to requests of Method. The peer
	// has then done what was asked.
	Reply bool
	// Session limits the fault to a session; "" is any.
	Session acp.SessionId
	// Match limits the fault further; nil matches. It must not call the Client.
	Match func(Line) bool
	// N limits the fault to the N-th line that matches so far, from 1; 0 is
	// every line.
	N int

	// Delay holds the line back, and Until does until it is closed. Lines
	// behind it overtake it, unless InOrder makes them wait as well.
	Delay   time.Duration
	Until   <-chan struct{}
	InOrder bool

	// Drop loses the line: a request is never answered.
	Drop bool
	// Twice delivers the line twice.
	Twice bool
	// Error answers a request, which the peer then never sees, or replaces the
	// content of a reply. So does Result, if it is not nil: any JSON value,
	// json.RawMessage("null") for null.
	Error  *acp.RequestError
	Result any
	// Edit changes the line; see [Set], [Remove], [Cut], [Pad].
	Edit Edit

	// Disconnect ends the connection instead of delivering the line.
	Disconnect bool
	// StopReading makes the receiver of the line read nothing any more, the
	// line neither; the connection still takes Room bytes, then the sender's
	// writes block. It does not work in a synctest bubble, where the SDK's
	// mutex around the blocked write stops the clock.
	StopReading bool
	Room        int
}

// An Injected fault is one that was handed to [Client.Inject].
type Injected struct {
	Fault
	f *filter

	// f.mu guards following
	seen, hits int
	removed    bool
}

// Hits returns on how many lines the fault has acted.
func (i *Injected) Hits() int {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	return i.hits
}

// Remove takes the fault away. Lines that it holds stay held.
func (i *Injected) Remove() {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	i.removed = true
}

// acts reports whether the fault acts on l, and counts it. Called with f.mu held.
func (i *Injected) acts(l *Line) bool {
	switch {
	case i.removed, l.Kind == Garbage, i.Reply != (l.Kind == Reply):
		return false
	case i.Method != "" && i.Method != l.Method, i.Session != "" && i.Session != l.Session:
		return false
	case i.Match != nil && !i.Match(*l):
		return false
	}
	i.seen++
	if i.N != 0 && i.N != i.seen {
		return false
	}
	i.hits++
	return true
}

// note says what the fault does, for the transcript.
func (i *Injected) note() string {
	var notes []string
	add := func(on bool, format string, args ...any) {
		if on {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	add(i.Delay > 0, "delayed %v", i.Delay)
	add(i.Until != nil, "held")
	add(i.Drop, "dropped")
	add(i.Twice, "twice")
	add(i.Error != nil, "error")
	add(i.Result != nil, "result replaced")
	add(i.Edit != nil, "edited")
	add(i.Disconnect, "disconnected")
	add(i.StopReading, "not read")
	return strings.Join(notes, ", ")
}

// A filter sits between the two sides, records every line, audits it and lets
// faults act on it.
type filter struct {
	to    map[Side]*pipe // by the receiver
	start time.Time
	holds sync.WaitGroup // a goroutine for every line that is held
	ended chan struct{}  // closed by disconnect
	once  sync.Once

	mu sync.Mutex
	// guards following
	n      int
	keep   int
	lines  []Line
	faults []*Injected
	calls  map[call]Line // requests without a reply so far
	audit  audit
}

// call names a request: ids of the two sides are independent.
type call struct {
	from Side
	id   string
}

func newFilter(latency time.Duration, keep int, a audit) *filter {
	f := &filter{
		start: time.Now(),
		ended: make(chan struct{}),
		keep:  keep,
		calls: map[call]Line{},
		audit: a,
	}
	f.to = map[Side]*pipe{}
	for _, side := range []Side{Agent, Editor} {
		f.to[side] = &pipe{latency: latency, send: func(raw []byte) { f.send(side.other(), string(raw)) }}
	}
	return f
}

// send takes a line from its sender.
func (f *filter) send(from Side, raw string) {
	f.mu.Lock()
	l := f.record(from, raw, false)
	if from == Agent {
		f.audit.sent(l)
	}
	var acting []*Injected
	for _, i := range f.faults {
		if i.acts(l) {
			acting = append(acting, i)
		}
	}
	var notes []string
	for _, i := range acting {
		notes = append(notes, i.note())
	}
	l.Note = strings.Join(notes, "; ")
	f.store(l)
	f.mu.Unlock()

	if len(acting) == 0 {
		f.deliver(l, 0, nil)
		return
	}
	f.act(l, acting)
}

// record makes a Line of raw, and looks up or keeps its request. Called with mu held.
func (f *filter) record(from Side, raw string, made bool) *Line {
	f.n++
	l := &Line{N: f.n, Time: time.Now(), From: from, Raw: raw, Made: made}
	l.parse()
	switch l.Kind {
	case Request:
		f.calls[call{from, l.ID}] = *l
	case Reply:
		req := f.calls[call{from.other(), l.ID}]
		l.Method, l.Session, l.Terminal = req.Method, req.Session, req.Terminal
	}
	return l
}

// store keeps the line for Lines. Called with mu held.
func (f *filter) store(l *Line) {
	if f.keep < 0 {
		return
	}
	f.lines = append(f.lines, *l)
	if f.keep > 0 && len(f.lines) >= 2*f.keep {
		f.lines = append(f.lines[:0], f.lines[len(f.lines)-f.keep:]...)
	}
}

// act lets faults act on a line.
func (f *filter) act(l *Line, acting []*Injected) {
	var delay time.Duration
	var untils []<-chan struct{}
	inOrder := false
	for _, i := range acting {
		delay += i.Delay
		if i.Until != nil {
			untils = append(untils, i.Until)
		}
		inOrder = inOrder || i.InOrder
		if i.StopReading {
			f.to[l.From.other()].stop(i.Room)
		}
	}
	if delay == 0 && len(untils) == 0 {
		f.finish(l, acting, 0, nil)
		return
	}
	if inOrder {
		f.finish(l, acting, delay, f.all(untils))
		return
	}
	f.holds.Go(func() {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-f.ended:
			return
		}
		for _, until := range untils {
			select {
			case <-until:
			case <-f.ended:
				return
			}
		}
		f.finish(l, acting, 0, nil)
	})
}

// all returns a channel that is closed when all of untils are.
func (f *filter) all(untils []<-chan struct{}) <-chan struct{} {
	switch len(untils) {
	case 0:
		return nil
	case 1:
		return untils[0]
	}
	done := make(chan struct{})
	f.holds.Go(func() {
		for _, until := range untils {
			select {
			case <-until:
			case <-f.ended:
				return
			}
		}
		close(done)
	})
	return done
}

// finish delivers what the faults have made of a line.
func (f *filter) finish(l *Line, acting []*Injected, delay time.Duration, until <-chan struct{}) {
	raw, copies := l.Raw, 1
	for _, i := range acting {
		switch {
		case i.Disconnect:
			f.disconnect()
			return
		case i.Drop:
			return
		case i.Error != nil || i.Result != nil:
			switch l.Kind {
			case Reply:
				raw = answer(l.ID, i.Error, i.Result)
			case Request:
				f.make(l.From.other(), answer(l.ID, i.Error, i.Result))
				return // the peer never sees it
			default:
				return // nobody waits for an answer to a notification
			}
		}
		if i.Edit != nil {
			raw = i.Edit(raw)
		}
		if i.Twice {
			copies++
		}
	}
	if raw == l.Raw {
		f.deliver(l, delay, until)
		copies--
	}
	for range copies {
		f.mu.Lock()
		m := f.record(l.From, raw, true)
		f.store(m)
		f.mu.Unlock()
		f.deliver(m, delay, until)
	}
}

// make delivers a line that its apparent sender never sent.
func (f *filter) make(from Side, raw string) {
	f.mu.Lock()
	l := f.record(from, raw, true)
	f.store(l)
	f.mu.Unlock()
	f.deliver(l, 0, nil)
}

// deliver queues a line for its receiver.
func (f *filter) deliver(l *Line, delay time.Duration, until <-chan struct{}) {
	f.mu.Lock()
	if l.Kind == Reply {
		key := call{l.From.other(), l.ID}
		_, open := f.calls[key]
		delete(f.calls, key)
		// Before the agent can act on it.
		if open && l.From == Editor {
			f.audit.delivered(l)
		}
	} else if l.From == Editor {
		f.audit.delivered(l)
	}
	f.mu.Unlock()
	f.to[l.From.other()].push(l.Raw, delay, until)
}

// disconnect ends the connection: both sides read EOF.
func (f *filter) disconnect() {
	f.once.Do(func() {
		f.mu.Lock()
		f.audit.lost = true
		f.mu.Unlock()
		close(f.ended)
		for _, p := range f.to {
			p.close()
		}
	})
}

// answer returns a reply line.
func answer(id string, re *acp.RequestError, result any) string {
	m := map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id)}
	if re != nil {
		m["error"] = re
	} else {
		m["result"] = result
	}
	return encode(m)
}

// encode returns v as JSON without the escapes for HTML. Values of faults that
// are no JSON are a mistake of the test.
func encode(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("fakeconn: %v", err))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// An Edit returns what becomes of a line.
type Edit func(raw string) string

// Set returns an Edit that sets a member: Set("result.terminalId", "t9"),
// Set("result.exitStatus", nil) for null, Set("id", 4711) for a wrong id.
// Objects on the way that are not there are made.
func Set(path string, value any) Edit {
	return edit(path, func(m map[string]any, name string) { m[name] = value })
}

// Remove returns an Edit that takes a member away: Remove("result.output").
func Remove(path string) Edit {
	return edit(path, func(m map[string]any, name string) { delete(m, name) })
}

func edit(path string, f func(m map[string]any, name string)) Edit {
	names := strings.Split(path, ".")
	return func(raw string) string {
		var line map[string]any
		d := json.NewDecoder(strings.NewReader(raw))
		d.UseNumber()
		if d.Decode(&line) != nil || line == nil {
			return raw // no object
		}
		m := line
		for _, name := range names[:len(names)-1] {
			next, ok := m[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				m[name] = next
			}
			m = next
		}
		f(m, names[len(names)-1])
		return encode(line)
	}
}

// Cut is an Edit that leaves half of a line: no JSON.
func Cut(raw string) string { return raw[:len(raw)/2] }

// Pad returns an Edit that makes a line n bytes long, by a last member that
// means nothing. The SDK closes a connection on which a line of 10 MiB comes.
func Pad(n int) Edit {
	return func(raw string) string {
		object, ok := strings.CutSuffix(raw, "}")
		const member = `,"_pad":"`
		if fill := n - len(raw) - len(member) - 1; ok && fill > 0 {
			return object + member + strings.Repeat("x", fill) + `"}`
		}
		return raw
	}
}
