package clients_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// habits are what a client does unlike others, each as clients do that are in
// use. The zero value does what the protocol says. Both our clients have them: the
// raw one, which is here, and client.mjs, which reads them as JSON.
type habits struct {
	OpenInput bool   `json:"openInput,omitempty"` // commands wait for input that never comes
	ShellOnly string `json:"shellOnly,omitempty"` // the signal that a kill or release sends, to the first process only
	SameIDs   bool   `json:"sameIds,omitempty"`   // an id comes again after its release
	Drained   bool   `json:"drained,omitempty"`   // terminal/output gives only what is new
	NoExit    bool   `json:"noExit,omitempty"`    // and no exitStatus
	Cuts      bool   `json:"cuts,omitempty"`      // an output over its limit begins inside a character
	Permit    string `json:"permit,omitempty"`    // the kind of the option that the user takes
	NumberIDs bool   `json:"numberIds,omitempty"` // the id of a terminal is a number in the answer to create
	NoKill    bool   `json:"noKill,omitempty"`    // terminal/kill is answered with an error
	Unread    bool   `json:"unread,omitempty"`    // nobody reads the agent's stderr
	Link      int64  `json:"link,omitempty"`      // milliseconds that a message takes, in each direction
	Lag       int64  `json:"lag,omitempty"`       // milliseconds after which a release is answered

	// First are requests that it sends before initialize.
	First []order `json:"first,omitempty"`

	// Params and Answers are laid over those of a method.
	Params  map[string]map[string]any `json:"params,omitempty"`
	Answers map[string]map[string]any `json:"answers,omitempty"`
}

// A rawClient is a client at work.
type rawClient struct {
	*rig
	scene
	send func(line []byte) // to the agent; nil is the end

	session string
	mu      sync.Mutex
	// guards following
	paused    time.Time // until then nothing is read
	lastID    int64
	asked     map[int64]chan json.RawMessage
	terminals map[string]*child // those not yet released
	releases  map[string]int
}

// startRaw starts the agent with a raw client and opens a session.
func (r *rig) startRaw(s scene) {
	r.Helper()
	cmd := exec.Command(r.agent, s.args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), r.mark, "HOME="+r.home, "XDG_STATE_HOME=")
	cmd.Stderr = writerFunc(r.keepStderr)
	if s.habits.Unread {
		unread, w, err := os.Pipe()
		if err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() { unread.Close() })
		defer w.Close()
		cmd.Stderr = w
	}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		r.Fatal(err)
	}
	c := &rawClient{
		rig: r, scene: s,
		asked: map[int64]chan json.RawMessage{}, terminals: map[string]*child{}, releases: map[string]int{},
	}
	c.send = c.slow(func(line []byte) {
		if line == nil {
			stdin.Close()
			return
		}
		r.recordFrom("client", line) // before the agent has it
		_, _ = stdin.Write(append(line, '\n'))
	})
	r.direct, r.order, r.stdin, r.stdout = true, c.order, endOf(c.send), stdout
	r.exited = make(chan struct{})
	all := make(chan struct{}) // closed when all that the agent wrote was received
	receive := c.slow(func(line []byte) {
		if line == nil {
			close(all)
			return
		}
		c.receive(line)
	})
	go func() { // ends with the agent, at the latest at the end of the test
		defer close(r.exited)
		lines := bufio.NewReaderSize(stdout, 1<<20)
		for line, err := lines.ReadBytes('\n'); err == nil; line, err = lines.ReadBytes('\n') {
			c.mu.Lock()
			paused := c.paused
			c.mu.Unlock()
			time.Sleep(time.Until(paused))
			receive(line)
		}
		receive(nil)
		<-all
		_ = cmd.Wait()
		r.exit = exitOf(cmd.ProcessState.Sys().(syscall.WaitStatus))
		c.mu.Lock()
		defer c.mu.Unlock()
		r.note(func() { r.end = &ending{Code: r.exit.Code, Releases: maps.Clone(c.releases)} })
	}()
	r.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-r.exited
		for _, left := range c.terminals {
			left.kill(0)
		}
	})
	for _, o := range s.habits.First {
		c.wait(c.ask(o.Method, maps.Clone(o.Params)))
	}
	c.ask("initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{
		"terminal": !s.bare, "_meta": map[string]any{"terminal_output": s.display},
	}})
	var session struct{ SessionID string }
	answer := c.wait(c.ask("session/new", map[string]any{"cwd": r.dir, "mcpServers": []any{}}))
	if err := json.Unmarshal(answer, &session); err != nil || session.SessionID == "" {
		r.Fatalf("no session: %s\n%s", answer, r.transcript())
	}
	c.session = session.SessionID
}

// endOf is the input of the agent, for its Close.
type endOf func(line []byte)

func (e endOf) Write(p []byte) (int, error) { e(p); return len(p), nil }
func (e endOf) Close() error                { e(nil); return nil }

// slow returns f behind the link.
func (c *rawClient) slow(f func([]byte)) func([]byte) {
	type sent struct {
		at   time.Time
		line []byte
	}
	queue := make(chan sent, 1<<16) // ends with the process of the test
	go func() {
		for s := range queue {
			time.Sleep(time.Until(s.at.Add(time.Duration(c.habits.Link) * time.Millisecond)))
			f(s.line)
		}
	}()
	return func(line []byte) { queue <- sent{time.Now(), line} }
}

// write sends a message.
func (c *rawClient) write(message map[string]any) {
	message["jsonrpc"] = "2.0"
	line, err := json.Marshal(message)
	if err != nil {
		c.Error(err)
	}
	c.send(line)
}

// ask sends a request and returns where its result will be, or its error.
func (c *rawClient) ask(method string, params map[string]any) <-chan json.RawMessage {
	maps.Copy(params, c.habits.Params[method])
	c.mu.Lock()
	c.lastID++
	id, answer := c.lastID, make(chan json.RawMessage, 1)
	c.asked[id] = answer
	c.mu.Unlock()
	c.write(map[string]any{"id": id, "method": method, "params": params})
	return answer
}

func (c *rawClient) wait(answer <-chan json.RawMessage) json.RawMessage {
	c.Helper()
	select {
	case a := <-answer:
		return a
	case <-c.exited:
		c.Fatalf("the agent exited (%s) and did not answer\n%s", c.exit, c.transcript())
	case <-time.After(testTimeout):
		c.Fatalf("no answer within %v\n%s", testTimeout, c.transcript())
	}
	return nil
}

func (c *rawClient) order(o order) {
	switch {
	case o.Method != "":
		params := map[string]any{"sessionId": c.session, "cwd": c.dir}
		maps.Copy(params, o.Params)
		c.ask(o.Method, params)
	case o.Prompt != "":
		c.ask("session/prompt", map[string]any{"sessionId": c.session, "prompt": []any{map[string]any{"type": "text", "text": o.Prompt}}})
	case o.Cancel:
		params := map[string]any{"sessionId": c.session}
		maps.Copy(params, c.habits.Params["session/cancel"])
		c.write(map[string]any{"method": "session/cancel", "params": params})
	case o.Notify != "":
		for range o.Times {
			c.write(map[string]any{"method": o.Notify, "params": map[string]any{}})
		}
	case o.Pause > 0:
		c.mu.Lock()
		c.paused = time.Now().Add(time.Duration(o.Pause) * time.Millisecond)
		c.mu.Unlock()
	case o.Stalled:
		c.stdout.Close()
	case o.Close:
		c.ask("session/close", map[string]any{"sessionId": c.session})
	}
}

// receive takes a line of the agent's.
func (c *rawClient) receive(line []byte) {
	c.recordFrom("agent", line)
	var m struct {
		ID            json.RawMessage
		Method        string
		Params        terminalCall
		Result, Error json.RawMessage
	}
	if err := json.Unmarshal(line, &m); err != nil {
		c.fault("the agent wrote %q: %v", line, err)
		return
	}
	switch {
	case m.Method == "":
		var id int64
		_ = json.Unmarshal(m.ID, &id)
		c.mu.Lock()
		answer := c.asked[id]
		delete(c.asked, id)
		c.mu.Unlock()
		if answer == nil {
			c.fault("an answer to what was not asked: %s", line)
			return
		}
		if m.Result == nil {
			m.Result = m.Error
		}
		answer <- m.Result
	case m.ID != nil:
		serve := c.serve(m.Method, m.Params)
		go func() { // ends with the command that it waits for
			answer := map[string]any{"id": m.ID}
			result, err := serve()
			if err != nil {
				answer["error"] = map[string]any{"code": -32603, "message": err.Error()}
			} else {
				maps.Copy(result, c.habits.Answers[m.Method])
				answer["result"] = result
			}
			c.write(answer)
		}()
	}
}

// A terminalCall has the params of every terminal/* request, and the options of a
// permission.
type terminalCall struct {
	Options         []struct{ Kind, OptionID string }
	TerminalID      string
	Command         string
	Args            []string
	Cwd             string
	OutputByteLimit *int
	Env             []struct{ Name, Value string }
}

// serve returns what does what the agent asks, of the terminal that the id names
// now.
func (c *rawClient) serve(method string, req terminalCall) func() (map[string]any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.terminals[req.TerminalID]
	switch {
	case method == "session/request_permission":
		outcome := map[string]any{"outcome": "cancelled"}
		for _, o := range req.Options {
			if o.Kind == c.habits.Permit {
				outcome = map[string]any{"outcome": "selected", "optionId": o.OptionID}
			}
		}
		return func() (map[string]any, error) { return map[string]any{"outcome": outcome}, nil }
	case method == "terminal/create":
		return func() (map[string]any, error) { return c.create(req) }
	case t == nil:
		c.fault("%s names %q, which is no terminal now", method, req.TerminalID)
	case method == "terminal/output":
		return func() (map[string]any, error) { return t.output(c.habits.Drained, c.habits.NoExit), nil }
	case method == "terminal/wait_for_exit":
		return func() (map[string]any, error) { <-t.exited; return t.status(), nil }
	case method == "terminal/release":
		delete(c.terminals, req.TerminalID)
		c.releases[req.TerminalID]++
		return func() (map[string]any, error) {
			t.kill(unix.SignalNum(c.habits.ShellOnly))
			time.Sleep(time.Duration(c.habits.Lag) * time.Millisecond)
			return map[string]any{}, nil
		}
	case method == "terminal/kill" && c.habits.NoKill:
		return func() (map[string]any, error) { return nil, errors.New(noKill) }
	case method == "terminal/kill":
		return func() (map[string]any, error) {
			t.kill(unix.SignalNum(c.habits.ShellOnly))
			return map[string]any{}, nil
		}
	}
	return func() (map[string]any, error) { return nil, fmt.Errorf("no %s for %q", method, req.TerminalID) }
}

func (c *rawClient) create(req terminalCall) (map[string]any, error) {
	if c.refuse {
		return nil, errors.New(c.refusal())
	}
	t, err := newChild(req, c.dir, c.mark, c.habits)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.releases) + 1
	if c.habits.SameIDs {
		for n = 1; c.terminals[fmt.Sprintf("terminal-%d", n)] != nil; n++ {
		}
	}
	id := fmt.Sprintf("terminal-%d", n)
	answer := map[string]any{"terminalId": id}
	if c.habits.NumberIDs {
		id = fmt.Sprint(n)
		answer["terminalId"] = n
	}
	c.terminals[id] = t
	c.releases[id] += 0
	return answer, nil
}

// noKill is the error of a kill by a client that kills nothing.
const noKill = "this client kills nothing"

// A child is a process that the agent has asked for.
type child struct {
	cmd    *exec.Cmd
	limit  int
	cuts   bool
	exited chan struct{} // closed when cmd has been waited for

	mu sync.Mutex
	// guards following
	text      []byte // of the output
	read      int    // of text, by drained outputs
	truncated bool
}

func newChild(req terminalCall, dir, mark string, h habits) (*child, error) {
	t := &child{cmd: exec.Command(req.Command, req.Args...), limit: 1 << 20, cuts: h.Cuts, exited: make(chan struct{})}
	if req.OutputByteLimit != nil {
		t.limit = *req.OutputByteLimit
	}
	t.cmd.Dir = dir
	if req.Cwd != "" {
		t.cmd.Dir = req.Cwd
	}
	t.cmd.Env = append(os.Environ(), mark)
	for _, e := range req.Env {
		t.cmd.Env = append(t.cmd.Env, e.Name+"="+e.Value)
	}
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	t.cmd.Stdout, t.cmd.Stderr = w, w
	if h.OpenInput {
		_, err = t.cmd.StdinPipe() // closed by Wait
	}
	if err = errors.Join(err, t.cmd.Start()); err != nil {
		out.Close()
		return nil, err
	}
	go func() { // ends with the last holder of the output
		defer out.Close()
		_, _ = io.Copy(writerFunc(t.keep), out)
	}()
	go func() { // ends with the process
		_ = t.cmd.Wait()
		close(t.exited)
	}()
	return t, nil
}

func (t *child) keep(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	tail := text.Tail(t.text, t.limit)
	if t.cuts {
		tail = t.text[max(0, len(t.text)-t.limit):]
	}
	if len(tail) < len(t.text) {
		t.read = max(0, t.read-(len(t.text)-len(tail)))
		t.text, t.truncated = slices.Clone(tail), true
	}
	return len(p), nil
}

func (t *child) output(drained, noExit bool) map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := 0
	if drained {
		from, t.read = t.read, len(t.text)
	}
	answer := map[string]any{"output": string(t.text[from:]), "truncated": t.truncated}
	if !noExit && t.over() {
		answer["exitStatus"] = t.status()
	}
	return answer
}

func (t *child) over() bool {
	select {
	case <-t.exited:
		return true
	default:
		return false
	}
}

// status is how the process has exited.
func (t *child) status() map[string]any {
	exit := exitOf(t.cmd.ProcessState.Sys().(syscall.WaitStatus))
	status := map[string]any{"exitCode": exit.Code, "signal": nil}
	if exit.Signal != "" {
		status["signal"] = exit.Signal
	}
	return status
}

func exitOf(status syscall.WaitStatus) terminal.Exit {
	if status.Signaled() {
		return terminal.Exit{Signal: unix.SignalName(status.Signal())}
	}
	return terminal.Exit{Code: new(status.ExitStatus())}
}

// kill ends the group; a signal goes to the first process only, come what may.
func (t *child) kill(shellOnly syscall.Signal) {
	if t.over() {
		return
	}
	if shellOnly != 0 {
		_ = t.cmd.Process.Signal(shellOnly)
		return
	}
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
	<-t.exited
}
