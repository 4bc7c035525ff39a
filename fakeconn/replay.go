package fakeconn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/wirelog"
)

// A Run is what a client saw of an agent, for a comparison: what was asked and how it
// was answered, and what became of each tool call.
type Run struct {
	About string // of a recorded one: the program
	// Answers are those to the client's requests, in the order of the requests:
	// "initialize: ok", "session/prompt: end_turn", "session/prompt: error -32603".
	Answers []string
	// Calls are the tool calls, in the order in which they came: their titles and last
	// states, "go test: failed".
	Calls []string
	// Asked is how often the agent has called each method of the client, without
	// terminal/output, which depends on time.
	Asked map[string]int
}

// String lists all of it.
func (r Run) String() string {
	var b strings.Builder
	for _, line := range slices.Concat(r.Answers, r.Calls) {
		fmt.Fprintln(&b, line)
	}
	for _, method := range slices.Sorted(maps.Keys(r.Asked)) {
		fmt.Fprintf(&b, "%s: %d\n", method, r.Asked[method])
	}
	return b.String()
}

// Replay plays the client of a recorded connection (acp-demo-agent --record FILE) to an
// agent, so that a user's report becomes a test: it returns what the client saw when it
// was recorded, and what it has seen now.
//
//	recorded, now, err := fakeconn.Replay(ctx, data, func(in io.Reader, out io.Writer) {
//		agent.Serve(ctx, in, out, nil)
//	})
//	if now.String() != recorded.String() { … }
//
// What the client asked is asked again, behind what it had been told before, and as
// much later. What the agent asks is answered as it was, by method and terminal, after
// the same time and not before what had come before it; the last answer is given again where the agent asks more often. What
// was never answered is not answered. Ids are mapped. Serve is the agent: it returns
// when its input ends, which is when the record does, or when ctx ends.
//
// Everything works in a bubble of testing/synctest, where a long record takes no time.
// The error is that the data are no record, or that the agent did not do within
// 30 s what the record waits for.
func Replay(ctx context.Context, data []byte, serve func(in io.Reader, out io.Writer)) (recorded, now Run, err error) {
	about, entries, err := wirelog.Parse(data)
	if err != nil {
		return Run{}, Run{}, err
	}
	p := &replay{
		answers: map[string][]replayed{}, ids: map[string]string{}, sessions: map[string]string{},
		changed: make(chan struct{}), seen: newSight(), before: newSight(),
	}
	p.read(entries)
	agentIn, clientOut := io.Pipe()
	clientIn, agentOut := io.Pipe()
	p.out = clientOut
	var all sync.WaitGroup
	all.Go(func() {
		serve(agentIn, agentOut)
		agentOut.Close()
		agentIn.Close()
	})
	all.Go(func() { p.listen(clientIn) })
	err = p.play(ctx)
	clientOut.Close()
	all.Wait()
	p.replies.Wait()
	recorded, now = p.before.run(), p.seen.run()
	recorded.About = about
	return recorded, now, err
}

// replayBound is how long [Replay] waits for what the agent did in the record.
const replayBound = 30 * time.Second

// A wireMessage is what Replay looks at.
type wireMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		SessionID  string `json:"sessionId"`
		TerminalID any    `json:"terminalId"`
		Update     struct {
			Kind       string `json:"sessionUpdate"`
			ToolCallID string `json:"toolCallId"`
			Title      string `json:"title"`
			Status     string `json:"status"`
		} `json:"update"`
	} `json:"params"`
	Result struct {
		SessionID  string `json:"sessionId"`
		StopReason string `json:"stopReason"`
	} `json:"result"`
	Error *struct {
		Code int `json:"code"`
	} `json:"error"`
}

func parseMessage(line string) (m wireMessage, ok bool) {
	// Members of a wrong type are what records are made for: the rest counts.
	var wrong *json.UnmarshalTypeError
	err := json.Unmarshal([]byte(line), &m)
	return m, err == nil || errors.As(err, &wrong)
}

func (m wireMessage) request() bool { return m.Method != "" && len(m.ID) > 0 }
func (m wireMessage) reply() bool   { return m.Method == "" && len(m.ID) > 0 }

// about says what a request of the agent is about: requests about the same thing get
// the same answers.
func (m wireMessage) about() string { return fmt.Sprint(m.Method, " ", m.Params.TerminalID) }

// A replayed is what the client gave to a request of the agent.
type replayed struct {
	line  string
	after time.Duration // behind the request
	steps int           // that the client had sent before
	asked map[string]int
}

// A step is a line that the client sends of itself, and what has come before it.
type step struct {
	line    string
	after   time.Duration  // behind what came last of replies and the steps before
	replies int            // that the agent had given
	asked   map[string]int // what the agent had asked, by method
}

// A replay is one Replay at work.
type replay struct {
	out     io.Writer
	steps   []step
	before  *sight
	replies sync.WaitGroup // answers that are on their way

	mu sync.Mutex
	// guards following
	answers  map[string][]replayed // by what the request is about
	ids      map[string]string     // of the agent's sessions: recorded to now
	sessions map[string]string     // recorded sessions by the id of their session/new
	seen     *sight
	sent     int // steps
	ended    bool
	changed  chan struct{} // closed when any of this has changed
}

// read takes the record apart.
func (p *replay) read(entries []wirelog.Entry) {
	asked := map[string]wirelog.Entry{} // the agent's requests, by id
	var last time.Duration
	for _, e := range entries {
		m, ok := parseMessage(e.Line)
		p.before.see(e.From == wirelog.Client, m)
		switch {
		case e.From == wirelog.Agent:
			if m.request() {
				asked[string(m.ID)] = e
			}
			if m.reply() {
				last = e.At
				if m.Result.SessionID != "" {
					p.sessions[string(m.ID)] = m.Result.SessionID
				}
			}
		case ok && m.reply() && asked[string(m.ID)].Line != "":
			request := asked[string(m.ID)]
			what, _ := parseMessage(request.Line)
			p.answers[what.about()] = append(p.answers[what.about()], replayed{e.Line, e.At - request.At, len(p.steps), maps.Clone(p.before.asked)})
		default:
			p.steps = append(p.steps, step{e.Line, max(0, e.At-last), p.before.replies, maps.Clone(p.before.asked)})
			last = e.At
		}
	}
}

// play sends the client's own lines, and waits for the answers to them.
func (p *replay) play(ctx context.Context) error {
	for i, s := range p.steps {
		if err := p.wait(ctx, i, s.replies, s.asked, fmt.Sprintf("line %d of the client", i+1)); err != nil {
			return err
		}
		select {
		case <-time.After(s.after):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := p.send(s.line); err != nil {
			return err
		}
	}
	return p.wait(ctx, len(p.steps), p.before.replies, p.before.asked, "the end")
}

// wait waits until the client has sent so many steps, and the agent has done so much.
func (p *replay) wait(ctx context.Context, steps, replies int, asked map[string]int, what string) error {
	timeout := time.NewTimer(replayBound)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		lack := p.seen.lacks(replies, asked)
		if p.sent < steps {
			lack = fmt.Sprintf("the client has sent %d lines, in the record %d", p.sent, steps)
		}
		changed, ended := p.changed, p.ended
		p.mu.Unlock()
		switch {
		case lack == "":
			return nil
		case ended:
			return fmt.Errorf("fakeconn: the agent has ended before %s: %s", what, lack)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeout.C:
			return fmt.Errorf("fakeconn: before %s, within %v: %s", what, replayBound, lack)
		}
	}
}

// send sends a line with the ids of now.
func (p *replay) send(line string) error {
	p.mu.Lock()
	m, _ := parseMessage(line)
	p.seen.see(true, m)
	for recorded, now := range p.ids {
		line = strings.ReplaceAll(line, quoted(recorded), quoted(now))
	}
	p.mu.Unlock()
	_, err := io.WriteString(p.out, line+"\n")
	p.note(func() { p.sent++ })
	return err
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// listen reads what the agent sends, and answers it.
func (p *replay) listen(in io.Reader) {
	lines := json.NewDecoder(in)
	for {
		var line json.RawMessage
		if err := lines.Decode(&line); err != nil {
			_, _ = io.Copy(io.Discard, in)
			p.note(func() { p.ended = true })
			return
		}
		m, _ := parseMessage(string(line))
		p.note(func() {
			p.seen.see(false, m)
			if recorded := p.sessions[string(m.ID)]; m.reply() && recorded != "" && m.Result.SessionID != "" {
				p.ids[recorded] = m.Result.SessionID
			}
		})
		if m.request() {
			p.answer(m)
		}
	}
}

func (p *replay) note(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// answer answers a request as it was answered.
func (p *replay) answer(m wireMessage) {
	p.mu.Lock()
	list := p.answers[m.about()]
	if len(list) > 1 {
		p.answers[m.about()] = list[1:]
	}
	p.mu.Unlock()
	if len(list) == 0 {
		return
	}
	p.replies.Go(func() {
		time.Sleep(list[0].after)
		// What had come before it comes before it, unless the agent does otherwise.
		_ = p.wait(context.Background(), list[0].steps, 0, list[0].asked, "an answer")
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(list[0].line), &members); err != nil {
			return
		}
		members["id"] = m.ID
		line, _ := json.Marshal(members)
		_, _ = p.out.Write(append(bytes.TrimSpace(line), '\n')) // the agent may have ended
	})
}

// A sight is what was seen of a connection.
type sight struct {
	replies int
	asked   map[string]int
	methods map[string]string // of the client's requests, by id
	order   []string          // their ids
	answers map[string]string // by id
	calls   []string          // ids of tool calls
	titles  map[string]string
	states  map[string]string
}

func newSight() *sight {
	return &sight{asked: map[string]int{}, methods: map[string]string{}, answers: map[string]string{}, titles: map[string]string{}, states: map[string]string{}}
}

// see takes a message in.
func (s *sight) see(client bool, m wireMessage) {
	id := string(m.ID)
	switch u := m.Params.Update; {
	case client && m.request():
		s.order, s.methods[id] = append(s.order, id), m.Method
	case client:
	case m.request():
		s.asked[m.Method]++
	case m.reply():
		s.replies++
		switch {
		case m.Error != nil:
			s.answers[id] = fmt.Sprint("error ", m.Error.Code)
		case m.Result.StopReason != "":
			s.answers[id] = m.Result.StopReason
		default:
			s.answers[id] = "ok"
		}
	case m.Method == acp.ClientMethodSessionUpdate && u.ToolCallID != "":
		if u.Kind == "tool_call" {
			s.calls = append(s.calls, u.ToolCallID)
		}
		if u.Title != "" {
			s.titles[u.ToolCallID] = u.Title
		}
		if u.Status != "" {
			s.states[u.ToolCallID] = u.Status
		}
	}
}

// lacks says what of that was not seen yet, or "".
func (s *sight) lacks(replies int, asked map[string]int) string {
	for method, n := range asked {
		if method != acp.ClientMethodTerminalOutput && s.asked[method] < n {
			return fmt.Sprintf("it has called %s %d times, in the record %d times", method, s.asked[method], n)
		}
	}
	if s.replies < replies {
		return fmt.Sprintf("it has answered %d requests, in the record %d", s.replies, replies)
	}
	return ""
}

func (s *sight) run() (r Run) {
	for _, id := range s.order {
		state := s.answers[id]
		if state == "" {
			state = "no answer"
		}
		r.Answers = append(r.Answers, s.methods[id]+": "+state)
	}
	for _, id := range s.calls {
		r.Calls = append(r.Calls, s.titles[id]+": "+s.states[id])
	}
	r.Asked = maps.Clone(s.asked)
	delete(r.Asked, acp.ClientMethodTerminalOutput)
	return r
}
