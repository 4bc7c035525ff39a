package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// TestMain makes the test binary serve as acp-demo-agent, which is in the PATH.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // they wait for other processes most of the time
	testscript.Main(m, map[string]func(){"acp-demo-agent": main})
}

var update = flag.Bool("update", false, "update the scripts in testdata")

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		UpdateScripts:       *update,
	})
}

// A rig is an agent process with a client.
type rig struct {
	*testing.T
	host    *acphost.Host
	local   *execenv.Local
	process execenv.Process
	stdin   io.WriteCloser
	stdout  *stallReader
	stderr  *lockedBuffer
	conn    *acp.ClientSideConnection
	id      acp.SessionId
	dir     string
	entry   string // in the environment of all that the agent starts
}

type rigOptions struct {
	args     []string
	env      map[string]string
	dir      string // where it is started
	terminal bool
	stderr   io.Writer // nil is the rig's
	wrap     func(acp.Client) acp.Client
}

// start starts the agent with a session.
func start(t *testing.T, o rigOptions) *rig {
	t.Helper()
	r := &rig{T: t, dir: t.TempDir(), stderr: &lockedBuffer{}}
	value := rand.Text()
	r.entry = tokenName + "=" + value
	r.local = execenv.NewLocal(nil)
	manager := localterm.New(nil)
	r.host = acphost.New(func(acp.SessionId) terminal.Manager { return manager }, &acphost.Options{TTY: true})
	env := execenv.Env{}.InheritSafe().With(map[string]string{"XDG_STATE_HOME": t.TempDir(), tokenName: value}).With(o.env)
	stderr := io.Writer(r.stderr)
	if o.stderr != nil {
		stderr = o.stderr
	}
	r.process = r.local.Command(context.Background(), execenv.Spec{
		Path: "acp-demo-agent", Args: o.args, Dir: o.dir, Env: env, Stderr: stderr, Group: true,
	})
	var err1, err2 error
	r.stdin, err1 = r.process.StdinPipe()
	r.stdout = &stallReader{free: make(chan struct{})}
	close(r.stdout.free)
	r.stdout.ReadCloser, err2 = r.process.StdoutPipe()
	if err := errors.Join(err1, err2, r.process.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(r.host.Close(), manager.Close(), r.local.Close())
		if err != nil {
			t.Error(err)
		}
	})
	var peer acp.Client = &client{Host: r.host}
	if o.wrap != nil {
		peer = o.wrap(peer)
	}
	r.conn = acp.NewClientSideConnection(peer, r.stdin, r.stdout)
	r.conn.SetLogger(slog.New(slog.DiscardHandler))
	_, err := r.conn.Initialize(t.Context(), acp.InitializeRequest{
		ProtocolVersion:    acp.ProtocolVersionNumber,
		ClientCapabilities: acp.ClientCapabilities{Terminal: o.terminal},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.conn.NewSession(t.Context(), acp.NewSessionRequest{Cwd: r.dir, McpServers: []acp.McpServer{}})
	if err != nil {
		t.Fatal(err)
	}
	r.id = s.SessionId
	return r
}

// ask sends a prompt of one line and returns the rawOutput of its tool call.
func (r *rig) ask(line string) (report agent.Report) {
	r.Helper()
	_, err := r.conn.Prompt(r.Context(), acp.PromptRequest{SessionId: r.id, Prompt: []acp.ContentBlock{acp.TextBlock(line)}})
	if err != nil {
		r.Fatalf("%s: %v", line, err)
	}
	cards := r.host.Cards(r.id)
	b, err := json.Marshal(cards[len(cards)-1].RawOutput)
	if err == nil {
		err = json.Unmarshal(b, &report)
	}
	if err != nil {
		r.Fatalf("%s: %v", line, err)
	}
	return report
}

// exits waits for the agent to exit, at most 5 s.
func (r *rig) exits() terminal.Exit {
	r.Helper()
	type result struct {
		exit terminal.Exit
		err  error
	}
	exited := make(chan result, 1)
	go func() {
		err := r.process.Wait()
		if err == nil {
			exited <- result{exit: terminal.Exit{Code: new(0)}}
		} else if exit, ok := errors.AsType[*execenv.ExitError](err); ok {
			exited <- result{exit: exit.Exit}
		} else {
			exited <- result{err: err}
		}
	}()
	select {
	case got := <-exited:
		if got.err != nil {
			r.Fatal(got.err)
		}
		return got.exit
	case <-time.After(20 * time.Second):
		_ = r.process.Kill()
		r.Fatalf("the agent did not exit within 20 s; stderr: %s", r.stderr)
	}
	panic("unreachable")
}

// processes returns the processes that the agent has started, and itself.
func (r *rig) processes() []terminal.Proc {
	r.Helper()
	procs, err := processesWith(r.entry)
	if errors.Is(err, errors.ErrUnsupported) {
		r.Skip("skipped: processes cannot be counted on this system")
	}
	if err != nil {
		r.Fatal(err)
	}
	return procs
}

// becomes waits until there are as many processes as want says.
func (r *rig) becomes(what string, within time.Duration, want func(n int) bool) {
	r.Helper()
	deadline := time.Now().Add(within)
	for {
		procs := r.processes()
		if want(len(procs)) {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("%s: processes %v", what, procs)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// family starts commands that are hard to end, in the background and in the
// foreground, and waits until they run.
func (r *rig) family() {
	r.Helper()
	const line = `trap '' TERM HUP; sleep 300 & nohup sleep 300 >/dev/null 2>&1 & (setsid sleep 300 &); sleep 300`
	report := r.ask("bg -- " + line)
	if report.Outcome != terminal.Running {
		r.Fatalf("bg: %+v", report)
	}
	go func() { // ends with the agent
		_, _ = r.conn.Prompt(context.Background(), acp.PromptRequest{SessionId: r.id, Prompt: []acp.ContentBlock{acp.TextBlock("!" + line)}})
	}()
	// The agent, and twice a shell and four sleeps.
	r.becomes("the commands do not all run", 10*time.Second, func(n int) bool { return n >= 11 })
}

func wantCode(t *testing.T, exit terminal.Exit, code int, stderr fmt.Stringer) {
	t.Helper()
	if exit.Code == nil || *exit.Code != code {
		t.Errorf("the agent ended with %s, want exit code %d; stderr: %s", exit, code, stderr)
	}
}

// sees reports whether some tool call shows text.
func (r *rig) sees(text string) bool {
	return slices.ContainsFunc(r.host.Cards(r.id), func(c acphost.Card) bool {
		return strings.Contains(c.Visible(), text)
	})
}

// A stallReader is a reader that can be made to read no more.
type stallReader struct {
	io.ReadCloser
	mu   sync.Mutex
	free chan struct{} // closed unless stalled
}

func (r *stallReader) stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = make(chan struct{})
}

func (r *stallReader) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.free)
}

func (r *stallReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	free := r.free
	r.mu.Unlock()
	<-free
	return r.ReadCloser.Read(p)
}

// A lockedBuffer is a bytes.Buffer for a writer on another goroutine.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// An environment of --env is there for --on.
func TestEnvironmentOfAFlag(t *testing.T) {
	t.Parallel()
	r := start(t, rigOptions{args: []string{"--env", "place=exec:env PLACE=there"}, terminal: true})
	if report := r.ask("run --on place -- echo $PLACE"); report.Output != "there\n" || report.Environment != "place" {
		t.Errorf("got %+v", report)
	}
	r.stdin.Close()
	wantCode(t, r.exits(), exitOK, r.stderr)
	if left := r.processes(); len(left) > 0 {
		t.Errorf("left after the exit: %v", left)
	}
}

// Both routes: commands of the agent, and terminals of the client.
func routes(t *testing.T, f func(t *testing.T, r *rig, delegated bool)) {
	for _, delegated := range []bool{false, true} {
		t.Run(fmt.Sprintf("terminal=%v", delegated), func(t *testing.T) {
			t.Parallel()
			r := start(t, rigOptions{terminal: delegated})
			if delegated {
				r.ask("bg -- sleep 300")
				if n := len(r.host.Unreleased(r.id)); n != 1 {
					t.Fatalf("%d terminals in the client", n)
				}
			} else {
				r.family()
			}
			f(t, r, delegated)
		})
	}
}

func TestEndOfInputLeavesNothing(t *testing.T) {
	t.Parallel()
	routes(t, func(t *testing.T, r *rig, _ bool) {
		r.stdin.Close()
		wantCode(t, r.exits(), exitOK, r.stderr)
		if left := r.processes(); len(left) > 0 {
			t.Errorf("left after the exit: %v", left)
		}
		if s := r.stderr.String(); s != "" {
			t.Errorf("stderr: %s", s)
		}
	})
}

func TestTerminationLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) { testTermination(t, signal) })
	}
}

func testTermination(t *testing.T, signal syscall.Signal) {
	routes(t, func(t *testing.T, r *rig, delegated bool) {
		answer := make(chan acp.StopReason, 1)
		go func() {
			resp, _ := r.conn.Prompt(context.Background(), acp.PromptRequest{
				SessionId: r.id, Prompt: []acp.ContentBlock{acp.TextBlock("!echo begun; sleep 300")},
			})
			answer <- resp.StopReason
		}()
		for deadline := time.Now().Add(10 * time.Second); !r.sees("begun"); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the prompt's command does not run")
			}
		}
		if err := r.process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if got := <-answer; got != acp.StopReasonCancelled {
			t.Errorf("the open prompt was answered %q", got)
		}
		wantCode(t, r.exits(), exitOK, r.stderr)
		if left := r.processes(); len(left) > 0 {
			t.Errorf("left after the exit: %v", left)
		}
		if ids := r.host.Unreleased(r.id); len(ids) > 0 {
			t.Errorf("not released: %v", ids)
		}
	})
}

// A client that does not read keeps the agent from nothing.
func TestStalledOutput(t *testing.T) {
	t.Parallel()
	r := start(t, rigOptions{})
	go func() { // ends with the agent
		_, _ = r.conn.Prompt(context.Background(), acp.PromptRequest{
			SessionId: r.id, Prompt: []acp.ContentBlock{acp.TextBlock("parallel\n!yes\n!yes\n!yes")},
		})
	}()
	r.becomes("the commands do not all run", 10*time.Second, func(n int) bool { return n >= 4 })
	r.stdout.stall()
	defer r.stdout.resume() // for the goroutine of the connection
	for range 2000 {        // answers fill the pipe, whose reader has stopped
		_, err := io.WriteString(r.stdin, `{"jsonrpc":"2.0","id":"x","method":"session/list","params":{}}`+"\n")
		if err != nil {
			t.Fatal(err)
		}
	}
	r.stdin.Close()
	wantCode(t, r.exits(), exitOK, r.stderr)
	if left := r.processes(); len(left) > 0 {
		t.Errorf("left after the exit: %v", left)
	}
}

func TestKilledAgentLeavesNothing(t *testing.T) {
	t.Parallel()
	r := start(t, rigOptions{})
	r.family()
	if err := r.process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.becomes("left after SIGKILL", 5*time.Second, func(n int) bool { return n == 0 })
	r.exits()
}

func TestBrokenOutput(t *testing.T) {
	t.Parallel()
	r := start(t, rigOptions{})
	r.ask("bg -- sleep 300")
	r.stdout.Close() // and stdin stays open
	_, _ = io.WriteString(r.stdin, `{"jsonrpc":"2.0","id":99,"method":"session/list","params":{}}`+"\n")
	wantCode(t, r.exits(), exitFailed, r.stderr)
	if left := r.processes(); len(left) > 0 {
		t.Errorf("left after the exit: %v", left)
	}
	if s := r.stderr.String(); !strings.Contains(s, "the client stopped listening") {
		t.Errorf("stderr: %s", s)
	}
}

// A line that the SDK cannot take costs that line, not the agent.
func TestOverlongLine(t *testing.T) {
	t.Parallel()
	r := start(t, rigOptions{})
	line := `{"jsonrpc":"2.0","method":"x","params":"` + strings.Repeat("x", 11<<20) + `"}` + "\n"
	if _, err := io.WriteString(r.stdin, line); err != nil {
		t.Fatal(err)
	}
	if report := r.ask("!echo on"); report.Output != "on\n" {
		t.Errorf("after the line: %+v", report)
	}
	r.stdin.Close()
	wantCode(t, r.exits(), exitOK, r.stderr)
	if s := r.stderr.String(); s == "" {
		t.Error("nobody was told of the dropped line")
	}
}

func TestSecretsStayWithTheAgent(t *testing.T) {
	t.Parallel()
	r := start(t, rigOptions{env: map[string]string{"OPENAI_API_KEY": "sk-1", "other_api_key": "sk-2", "PLAIN": "visible"}})
	report := r.ask("!env")
	if report.Outcome != terminal.Exited || !strings.Contains(report.Output, "PLAIN=visible") {
		t.Fatalf("env: %+v", report)
	}
	if strings.Contains(report.Output, "sk-1") || strings.Contains(report.Output, "sk-2") {
		t.Errorf("a secret reached a command:\n%s", report.Output)
	}
	if report := r.ask("run --env OPENAI_API_KEY=sk-3 -- env"); !strings.Contains(report.Output, "OPENAI_API_KEY=sk-3") {
		t.Errorf("what was asked for did not reach the command:\n%s", report.Output)
	}
	r.stdin.Close()
	wantCode(t, r.exits(), exitOK, r.stderr)
}

// refusing is a client whose user allows no terminal.
type refusing struct{ acp.Client }

func (refusing) CreateTerminal(context.Context, acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	return acp.CreateTerminalResponse{}, &acp.RequestError{Code: -32603, Message: "the user said no"}
}

func TestRefusedCreateRunsNothing(t *testing.T) {
	t.Parallel()
	r := start(t, rigOptions{terminal: true, wrap: func(c acp.Client) acp.Client { return refusing{c} }})
	marker := filepath.Join(r.dir, "marker")
	for _, line := range []string{"!touch marker", "bg -- touch marker"} {
		report := r.ask(line)
		if report.Outcome != terminal.Failed || !strings.Contains(report.Error, "the user said no") {
			t.Errorf("%s: %+v", line, report)
		}
	}
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
	// The same command runs where it may, so the marker means something.
	if report := r.ask("run --input -- touch marker"); report.Outcome != terminal.Exited {
		t.Errorf("locally: %+v", report)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Error(err)
	}
	r.stdin.Close()
	wantCode(t, r.exits(), exitOK, r.stderr)
}

// A terminal gets colours unless NO_COLOR says no, and lines that use the width
// there is.
func TestDemoOnATerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		columns int
		noColor bool
		uses    int // columns, and no more
	}{{30, false, 38}, {40, true, 38}, {80, false, 78}, {200, true, 118}} {
		t.Run(fmt.Sprintf("%d columns", tt.columns), func(t *testing.T) {
			t.Parallel()
			manager := localterm.New(nil)
			defer manager.Close()
			cast := filepath.Join(t.TempDir(), "demo.cast")
			cmd := terminal.Command{Args: []string{"acp-demo-agent", "demo", "--record", cast}, TTY: true, Size: terminal.Size{Rows: 24, Cols: tt.columns}}
			if tt.noColor {
				cmd.Env = map[string]string{"NO_COLOR": "1"}
			}
			term, err := manager.Start(t.Context(), cmd)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if _, err := terminal.Copy(t.Context(), &out, term, 0); err != nil {
				t.Fatal(err)
			}
			if info := term.Info(); !info.Exit.Success() {
				t.Errorf("the demo ended with %s:\n%s", info.Exit, &out)
			}
			if colours := strings.Contains(out.String(), "\x1b["); colours == tt.noColor {
				t.Errorf("colours: %v", colours)
			}
			text, longest := view.Plain(out.String()), 0
			for line := range strings.Lines(text) {
				n := utf8.RuneCountInString(strings.TrimRight(line, "\r\n"))
				if longest = max(longest, n); n > tt.uses {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			if longest < tt.uses {
				t.Errorf("the longest line has %d of %d columns", longest, tt.uses)
			}
			if narrow := regexp.MustCompile(`(?m)^text:\s*$`).MatchString(text); narrow != (tt.uses < 60) {
				t.Errorf("a table for each client: %v", narrow)
			}
			for _, want := range []string{" t3 │ got hello", "│ compiling 3 of 3", "0 terminals leaked, 0 processes left"} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			recorded := played(t, cast) // a player's terminal needs a CR in front of each LF, ours adds none
			if diff := cmp.Diff(out.String(), strings.ReplaceAll(recorded.text, "\r\n", "\n")); diff != "" || recorded.Width != tt.uses+2 {
				t.Errorf("the recording of %d columns is not what the terminal showed:\n%s", recorded.Width, diff)
			} else if tt.columns == 80 {
				want := story(played(t, "../../docs/demo.cast").text)
				if diff := cmp.Diff(want, story(recorded.text)); diff != "" {
					t.Errorf("the picture of the README tells another story; make it again (docs/demo-agent.md):\n%s", diff)
				}
			}
		})
	}
}

// A relative state directory is one of where the agent was started.
func TestRelativeStateDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := rigOptions{args: []string{"--state", "kept/here"}, dir: dir}
	r := start(t, o)
	r.ask("!echo x")
	r.stdin.Close()
	wantCode(t, r.exits(), exitOK, r.stderr)
	path := filepath.Join(dir, "kept", "here", string(r.id)+".json")
	if err := os.Truncate(path, 0); err != nil { // it must be there
		t.Fatal(err)
	}
	second := start(t, o)
	_, err := second.conn.LoadSession(t.Context(), acp.LoadSessionRequest{SessionId: r.id, Cwd: dir, McpServers: []acp.McpServer{}})
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("the error is %v, want it to name %s", err, path)
	}
	second.stdin.Close()
	wantCode(t, second.exits(), exitOK, second.stderr)
}

// A session outlives the agent, in the user's state directory.
func TestSessionOutlivesAgent(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	o := rigOptions{env: map[string]string{"XDG_STATE_HOME": state}}
	first := start(t, o)
	first.ask("!echo kept")
	first.stdin.Close()
	wantCode(t, first.exits(), exitOK, first.stderr)
	if _, err := os.Stat(filepath.Join(state, "acp-demo-agent", string(first.id)+".json")); err != nil {
		t.Error(err)
	}
	second := start(t, o)
	req := acp.LoadSessionRequest{SessionId: first.id, Cwd: first.dir, McpServers: []acp.McpServer{}}
	if _, err := second.conn.LoadSession(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	second.id = first.id
	second.ask("!echo more")
	cards := second.host.Cards(first.id)
	if len(cards) != 2 || cards[0].Title != "echo kept" || !strings.Contains(cards[0].Visible(), "kept") {
		t.Errorf("the cards are %+v", cards)
	}
	second.stdin.Close()
	wantCode(t, second.exits(), exitOK, second.stderr)

	o.args = []string{"--state", "off"}
	third := start(t, o)
	if _, err := third.conn.LoadSession(t.Context(), req); err == nil {
		t.Error("an agent that keeps nothing loads a session")
	}
	third.stdin.Close()
	wantCode(t, third.exits(), exitOK, third.stderr)
}
