// Package clients_test drives the built agent with ACP clients that others
// wrote: the official TypeScript SDK, by client.mjs, and acpx in two versions
// that behave very differently. They come from npm:
//
//	npm ci --prefix cmd/acp-demo-agent/clients
//
// What others do differently is played by raw JSON-RPC clients; see [habits].
// What is judged is the wire as the client saw it, and the processes that are
// there.
package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

// testTimeout is how long anything may take that is not the subject of a test.
const testTimeout = 60 * time.Second

func TestMain(m *testing.M) {
	// These tests wait for other processes most of the time.
	_ = flag.Set("test.parallel", "8")
	status := m.Run()
	if buildDir != "" {
		os.RemoveAll(buildDir)
	}
	os.Exit(status)
}

var buildDir string

// buildAgent builds the agent, and beside it the example quickstart, once; the
// example with the race detector if the tests have it.
var buildAgent = sync.OnceValues(func() (path string, err error) {
	if buildDir, err = os.MkdirTemp("", "acp-demo-agent"); err != nil {
		return "", err
	}
	local := execenv.NewLocal(nil)
	build := func(args ...string) {
		out, e := local.Command(context.Background(), execenv.Spec{
			Path: "go", Args: append([]string{"build", "-o", buildDir}, args...), Env: execenv.Env{}.InheritSafe(),
		}).CombinedOutput()
		if e != nil {
			err = errors.Join(err, fmt.Errorf("go build: %w\n%s", e, out))
		}
	}
	build("..")
	build("../../termbridge")
	info, ok := debug.ReadBuildInfo()
	race := ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	build(fmt.Sprint("-race=", race), "../../../examples/quickstart")
	return filepath.Join(buildDir, "acp-demo-agent"), errors.Join(err, local.Close())
})

// nodePath is the Node that comes with the clients: acpx wants a newer one than
// systems have.
var nodePath = "node-linux-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1) + "/bin/node"

// installed returns the path of a file that npm has installed. Without it the
// test is skipped, or fails where the real clients are a must.
func installed(t *testing.T, file string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("node_modules", file))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		lack := fmt.Sprintf("no real clients (%v): run npm ci --prefix cmd/acp-demo-agent/clients", err)
		if os.Getenv("TERMBRIDGE_REAL") != "" {
			t.Fatal(lack)
		}
		t.Skip("skipped: " + lack)
	}
	return path
}

// A rig is a client at work, and what was recorded of it.
type rig struct {
	*testing.T
	dir   string // where commands run
	home  string // for the state of client and agent
	agent string // the agent's program
	mark  string // NAME=VALUE, in the environment of everything
	env   execenv.Env
	local *execenv.Local

	// direct: the client says the direction of every message.
	direct bool
	// order tells the client what to do; nil if that has all been said.
	order func(order)

	process execenv.Process
	stdin   io.WriteCloser // closed by the test, or with the process
	stdout  io.Closer      // what a raw client reads of the agent
	exited  chan struct{}  // closed when process has ended; exit is valid then
	exit    terminal.Exit

	mu sync.Mutex
	// guards following
	wire    []message
	faults  []string
	end     *ending
	stderr  bytes.Buffer
	changed chan struct{} // closed when any of this has changed
}

// A message is one line of the wire.
type message struct {
	at   time.Time
	from string // "agent" or "client"
	raw  string

	ID     *int64          `json:"id"`
	Method string          `json:"method"`
	Params params          `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// params has what the tests look at, of all methods.
type params struct {
	TerminalID string `json:"terminalId"`
	Update     update `json:"update"`
}

type update struct {
	Kind       string          `json:"sessionUpdate"`
	ToolCallID string          `json:"toolCallId"`
	Title      string          `json:"title"`
	Status     string          `json:"status"`
	Content    json.RawMessage `json:"content"`
	RawOutput  json.RawMessage `json:"rawOutput"`
	Meta       struct {
		Output struct {
			Data string `json:"data"`
		} `json:"terminal_output"`
		Exit *struct {
			Code   *int    `json:"exit_code"`
			Signal *string `json:"signal"`
		} `json:"terminal_exit"`
	} `json:"_meta"`
}

// An ending is what client.mjs says last.
type ending struct {
	Code     *int           `json:"code"`
	Releases map[string]int `json:"releases"`
}

// rig returns a rig for a client of this kind.
func (k kind) rig(t *testing.T) *rig {
	t.Helper()
	if !k.raw {
		installed(t, nodePath) // or there is no need to build
	}
	path, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	value, home := rand.Text(), home(t)
	r := &rig{
		T: t, dir: t.TempDir(), home: home, agent: path, mark: "TERMBRIDGE_CLIENTS=" + value,
		env:   execenv.Env{}.InheritSafe().With(map[string]string{"TERMBRIDGE_CLIENTS": value, "HOME": home, "XDG_STATE_HOME": ""}),
		local: execenv.NewLocal(nil), changed: make(chan struct{}),
	}
	t.Cleanup(func() {
		if err := r.local.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the wire:\n%s", r.transcript())
		}
	})
	return r
}

// again returns a rig for another client at the same place.
func (r *rig) again() *rig {
	return &rig{T: r.T, dir: r.dir, home: r.home, agent: r.agent, mark: r.mark, env: r.env, local: r.local, changed: make(chan struct{})}
}

// home returns a directory for the state of a client, whose path is short
// enough for sockets.
func home(t *testing.T) string {
	dir, err := os.MkdirTemp("", "home")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// start starts a client: node with these arguments.
func (r *rig) start(args ...string) {
	r.Helper()
	r.process = r.local.Command(context.Background(), execenv.Spec{
		Path: installed(r.T, nodePath), Args: args, Dir: r.dir, Env: r.env,
		Stderr: writerFunc(r.keepStderr), Group: true,
	})
	stdin, err1 := r.process.StdinPipe()
	stdout, err2 := r.process.StdoutPipe()
	if err := errors.Join(err1, err2, r.process.Start()); err != nil {
		r.Fatal(err)
	}
	r.stdin = stdin
	r.exited = make(chan struct{})
	go func() { // ends with the process, at the latest when local is closed
		defer close(r.exited)
		r.read(stdout)
		err := r.process.Wait()
		r.exit = terminal.Exit{Code: new(0)}
		if exit, ok := errors.AsType[*execenv.ExitError](err); ok {
			r.exit = exit.Exit
		} else if err != nil {
			r.exit = terminal.Exit{}
		}
	}()
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (r *rig) keepStderr(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stderr.Write(p)
}

// read records what the client prints until that ends.
func (r *rig) read(stdout io.Reader) {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.record(line)
		}
		if err != nil {
			return
		}
	}
}

func (r *rig) record(line []byte) {
	var entry struct {
		From    string
		Message json.RawMessage
		Fault   string
		End     *ending
	}
	m := message{at: time.Now()}
	raw := json.RawMessage(line)
	err := json.Unmarshal(line, &entry)
	if r.direct {
		raw, m.from = entry.Message, entry.From
	}
	if err == nil && raw != nil {
		m.raw = strings.TrimSpace(string(raw))
		err = json.Unmarshal(raw, &m)
	}

	r.note(func() {
		switch {
		case err != nil:
			r.faults = append(r.faults, fmt.Sprintf("the client printed %q: %v", line, err))
		case entry.Fault != "":
			r.faults = append(r.faults, entry.Fault)
		case entry.End != nil:
			r.end = entry.End
		default:
			if m.from == "" {
				m.from = r.sender(m)
			}
			r.wire = append(r.wire, m)
		}
	})
}

// recordFrom records a message of one side.
func (r *rig) recordFrom(side string, line []byte) {
	r.record(fmt.Appendf(nil, `{"from":%q,"message":%s}`, side, line))
}

// fault records that a rule was broken.
func (r *rig) fault(format string, args ...any) {
	r.note(func() { r.faults = append(r.faults, fmt.Sprintf(format, args...)) })
}

// note changes what is recorded.
func (r *rig) note(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// sender tells who sent a message of a log that does not say. Both sides number
// their requests on their own.
func (r *rig) sender(m message) string {
	switch {
	case strings.HasPrefix(m.Method, "terminal/"), m.Method == "session/update":
		return "agent"
	case m.Method != "" || m.ID == nil:
		return "client"
	}
	var answer map[string]any
	_ = json.Unmarshal(m.Result, &answer)
	for _, key := range []string{"protocolVersion", "sessionId", "stopReason"} {
		if _, ok := answer[key]; ok {
			return "agent"
		}
	}
	if request(r.wire, "agent", *m.ID) == nil {
		return "agent" // an error: the agent itself has asked nothing like it
	}
	return "client"
}

// request returns the request with this id that one side sent last.
func request(wire []message, from string, id int64) *message {
	for i, m := range slices.Backward(wire) {
		if m.from == from && m.Method != "" && m.ID != nil && *m.ID == id {
			return &wire[i]
		}
	}
	return nil
}

// until waits until want holds of the wire.
func (r *rig) until(what string, want func(wire []message) bool) {
	r.Helper()
	timeout := time.After(testTimeout)
	for {
		r.mu.Lock()
		wire, changed := r.wire, r.changed
		r.mu.Unlock()
		if want(wire) {
			return
		}
		select {
		case <-changed:
		case <-r.exited:
			if !want(r.messages()) {
				r.Fatalf("%s: the client exited (%s) and it never came", what, r.exit)
			}
			return
		case <-timeout:
			r.Fatalf("%s: not within %v", what, testTimeout)
		}
	}
}

// messages returns the wire so far.
func (r *rig) messages() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wire
}

// answers returns the answers to the prompts so far.
func answers(wire []message) (stops []string) {
	for _, m := range wire {
		var answer struct{ StopReason string }
		if m.from == "agent" && m.Method == "" && json.Unmarshal(m.Result, &answer) == nil && answer.StopReason != "" {
			stops = append(stops, answer.StopReason)
		}
	}
	return stops
}

// exits waits until the client has exited, and reports what it found wrong.
func (r *rig) exits() {
	r.Helper()
	select {
	case <-r.exited:
	case <-time.After(testTimeout):
		r.Fatalf("the client did not exit within %v; there are %q", testTimeout, processesWith(r.T, r.mark))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, fault := range r.faults {
		r.Error(fault)
	}
}

// nothingWith waits until no process has this entry in its environment.
func (r *rig) nothingWith(entry string) {
	r.Helper()
	r.processes(entry, "no process", func(procs []string) bool { return len(procs) == 0 })
}

// running waits until a process with this entry in its environment runs a
// command that begins with these words.
func (r *rig) running(entry, words string) {
	r.Helper()
	r.processes(entry, words, func(procs []string) bool {
		return slices.ContainsFunc(procs, func(p string) bool { return strings.HasPrefix(p, words) })
	})
}

func (r *rig) processes(entry, what string, want func(procs []string) bool) {
	r.Helper()
	for deadline := time.Now().Add(testTimeout / 2); ; time.Sleep(20 * time.Millisecond) {
		procs := processesWith(r.T, entry)
		if want(procs) {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("want %s with %s, there are %q", what, entry, procs)
		}
	}
}

// processesWith returns the command lines of the processes that were started
// with entry, a NAME=VALUE, in their environment.
func processesWith(t *testing.T, entry string) (commands []string) {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		// Unreadable: another user's, or gone.
		environ, _ := os.ReadFile(filepath.Join("/proc", d.Name(), "environ"))
		if bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+entry+"\x00")) {
			cmdline, _ := os.ReadFile(filepath.Join("/proc", d.Name(), "cmdline"))
			commands = append(commands, string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return commands
}

// A card is a tool call, as its updates have made it.
type card struct {
	id, title, status string
	embeds            []string // terminals that it has shown
	display           string   // what a display-only terminal was given
	displayExit       *int
	report            agent.ReadReport
	hasReport         bool
	raw               json.RawMessage // rawOutput
}

// cards returns the tool calls in the order in which they came, and everything
// that the agent said.
func (r *rig) cards() (cards []*card, said string) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	byID := map[string]*card{}
	for _, m := range r.wire {
		u := m.Params.Update
		switch {
		case m.Method != "session/update":
			continue
		case u.Kind == "agent_message_chunk":
			var content struct{ Text string }
			if err := json.Unmarshal(u.Content, &content); err != nil {
				r.Error(err)
			}
			said += content.Text
			continue
		case u.ToolCallID == "":
			continue
		}
		c := byID[u.ToolCallID]
		if c == nil {
			c = &card{id: u.ToolCallID, title: u.Title}
			byID[c.id] = c
			cards = append(cards, c)
		}
		if u.Status != "" {
			c.status = u.Status
		}
		for _, id := range embeds(u) {
			if !slices.Contains(c.embeds, id) {
				c.embeds = append(c.embeds, id)
			}
		}
		c.display += u.Meta.Output.Data
		if u.Meta.Exit != nil {
			c.displayExit = u.Meta.Exit.Code
		}
		if u.RawOutput != nil {
			if err := json.Unmarshal(u.RawOutput, &c.report); err != nil {
				r.Error(err)
			}
			c.hasReport, c.raw = true, u.RawOutput
		}
	}
	return cards, said
}

// embeds returns the terminals that an update shows.
func embeds(u update) (ids []string) {
	var content []struct{ Type, TerminalID string }
	_ = json.Unmarshal(u.Content, &content) // a message's is no list
	for _, item := range content {
		if item.Type == "terminal" {
			ids = append(ids, item.TerminalID)
		}
	}
	return ids
}

// card returns the tool call with this title, behind what is unusual about it.
func (r *rig) card(title string) *card {
	r.Helper()
	cards, _ := r.cards()
	i := slices.IndexFunc(cards, func(c *card) bool { return c.title == title || strings.HasSuffix(c.title, "] "+title) })
	if i < 0 || !cards[i].hasReport {
		r.Fatalf("no tool call %q with a rawOutput", title)
	}
	return cards[i]
}

// count returns how often the agent called a method, "terminal/" for all of
// them.
func (r *rig) count(prefix string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.wire {
		if m.from == "agent" && strings.HasPrefix(m.Method, prefix) {
			n++
		}
	}
	return n
}

// called reports whether the agent has called a method.
func called(wire []message, method string) bool {
	return slices.ContainsFunc(wire, func(m message) bool { return m.from == "agent" && m.Method == method })
}

// audit checks every terminal of the log: embedded before its release, released
// exactly once, and not named afterwards. An id may come again.
func (r *rig) audit(s scene) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	type use struct {
		made, released int
		embedded       bool
	}
	uses := map[string]*use{}
	for _, m := range r.wire {
		u := uses[m.Params.TerminalID]
		switch {
		case m.from == "client" && m.Method == "":
			asked := request(r.wire, "agent", *m.ID)
			var answer struct{ TerminalID any }
			if asked != nil && asked.Method == "terminal/create" && json.Unmarshal(m.Result, &answer) == nil && answer.TerminalID != nil {
				id := fmt.Sprint(answer.TerminalID) // some are numbers
				if uses[id] == nil {
					uses[id] = &use{}
				}
				uses[id].made++
				uses[id].embedded = false
			}
		case m.Method == "session/update":
			for _, id := range embeds(m.Params.Update) {
				if u := uses[id]; u != nil && u.released < u.made {
					u.embedded = true
				} else if u != nil {
					r.Errorf("%s is embedded after its release", id)
				}
			}
		case strings.HasPrefix(m.Method, "terminal/") && u != nil:
			if u.released >= u.made {
				r.Errorf("%s names %s after its release", m.Method, m.Params.TerminalID)
			}
			if m.Method == "terminal/release" {
				u.released++
				if !u.embedded && !s.early {
					r.Errorf("%s is released and was never embedded", m.Params.TerminalID)
				}
			}
		}
	}
	for id, u := range uses {
		if u.released != u.made {
			r.Errorf("%s was made %d times and released %d times", id, u.made, u.released)
		}
		if r.end != nil && r.end.Releases[id] != u.made {
			r.Errorf("the client has made %s %d times and released it %d times", id, u.made, r.end.Releases[id])
		}
	}
	if r.end != nil && len(r.end.Releases) != len(uses) {
		r.Errorf("the client has made %d terminals, the log %d", len(r.end.Releases), len(uses))
	}
}

// latencies returns how long the client took to answer a method.
func (r *rig) latencies(method string) (list []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, m := range r.wire {
		if m.from != "client" || m.Method != "" || m.ID == nil {
			continue
		}
		if asked := request(r.wire[:i], "agent", *m.ID); asked != nil && asked.Method == method {
			list = append(list, m.at.Sub(asked.at).Round(time.Millisecond))
		}
	}
	return list
}

func (r *rig) transcript() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, m := range r.wire {
		fmt.Fprintf(&b, "%s %s %s\n", m.at.Format("05.000"), m.from, m.raw)
	}
	fmt.Fprintf(&b, "stderr: %s", r.stderr.String())
	return b.String()
}
