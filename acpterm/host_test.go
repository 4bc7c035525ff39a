package acpterm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// A fakeHost is a host on which what it says runs.
type fakeHost struct {
	seen, found, left []terminal.Proc

	mu    sync.Mutex
	finds []string // tags, guarded by mu
	ends  []string
}

func (*fakeHost) Env(tag string) (name, value string) { return "TAG", tag }

func (h *fakeHost) Find(tag string) []terminal.Proc {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finds = append(h.finds, tag)
	return h.seen
}

func (h *fakeHost) End(tag string, _ time.Time) (found, left []terminal.Proc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, tag)
	return h.found, h.left
}

func TestWhatTheClientLeavesIsEnded(t *testing.T) {
	// And named, where it was seen on this host while it ran; where it was not, it is
	// not known. Nil is unknown, empty is none.
	shell, child := terminal.Proc{PID: 10, Command: "sh"}, terminal.Proc{PID: 11, Command: "sleep 36"}
	both, one, none := []terminal.Proc{shell, child}, []terminal.Proc{child}, []terminal.Proc{}
	for _, test := range []struct {
		name    string
		host    *fakeHost
		profile acpterm.Profile
		fault   fakeconn.Fault
		left    []terminal.Proc
		err     string // "" is none
		tagged  bool
	}{
		{"a client elsewhere", &fakeHost{}, acpterm.Profile{}, fakeconn.Fault{}, nil, "", true},
		{"all has ended", &fakeHost{seen: both}, acpterm.Profile{}, fakeconn.Fault{}, none, "", true},
		{"a child lived on", &fakeHost{seen: both, found: one}, acpterm.Profile{}, fakeconn.Fault{}, none, "ended here: 11 (sleep 36)", true},
		{"and cannot be ended", &fakeHost{seen: both, found: one, left: one}, acpterm.Profile{}, fakeconn.Fault{}, one, "run on: 11 (sleep 36)", true},
		{"a client that ends everything", &fakeHost{seen: both, found: one}, acpterm.Profile{KillsTree: true}, fakeconn.Fault{}, none, "", false},
		{"one that should, and does not answer", &fakeHost{}, acpterm.Profile{KillsTree: true}, fakeconn.Fault{Method: kill, Drop: true}, nil, "does not answer", false},
		{"a kill that is not answered, and all was ended here", &fakeHost{seen: both, found: both}, acpterm.Profile{}, fakeconn.Fault{Method: kill, Drop: true}, none, "ended here: 10 (sh), 11 (sleep 36)", true},
		{"a kill that is refused, and all was ended here", &fakeHost{seen: both, found: both}, acpterm.Profile{}, fakeconn.Fault{Method: kill, Error: acp.NewInternalError("no")}, none, "ended here: 10 (sh), 11 (sleep 36)", true},
		{"a kill that is refused elsewhere", &fakeHost{}, acpterm.Profile{}, fakeconn.Fault{Method: kill, Error: acp.NewInternalError("no")}, nil, "Internal error", true},
	} {
		for _, timeout := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("%s, timeout %v", test.name, timeout), func(t *testing.T) {
				run(t, &acpterm.Options{Host: test.host, Profile: test.profile}, func(f *fixture) {
					f.leaks = len(test.left) > 0
					if test.fault.Method != "" {
						f.c.Inject(test.fault)
					}
					term, err := f.m.Start(f.Context(), terminal.Command{Line: "hold here", Timeout: timeout})
					if err != nil {
						f.Fatal(err)
					}
					time.Sleep(time.Second / 2)
					start := time.Now()
					want := terminal.TimedOut
					if timeout == 0 {
						want = terminal.Stopped
						term.Stop(f.Context())
					}
					info := f.end(term)
					f.within(start, time.Second+limits.SettleTimeout, "the end")
					if diff := cmp.Diff(test.left, info.Survivors); info.Outcome != want || diff != "" {
						f.Errorf("%s, left (-want +got):\n%s", info.Outcome, diff)
					}
					if got := fmt.Sprint(info.Err); (info.Err == nil) != (test.err == "") || !strings.Contains(got, test.err) {
						f.Errorf("the error is %v, want %q", info.Err, test.err)
					} else if strings.Contains(test.err, "ended here") && strings.Contains(got, kill) {
						f.Errorf("all was ended here, and the error is %v", info.Err)
					}
					for _, l := range f.c.Lines() {
						if l.Method == create && l.Kind == fakeconn.Request && strings.Contains(l.Raw, `"name":"TAG"`) != test.tagged {
							f.Errorf("sent %s", l.Raw)
						}
					}
					f.count(release, 1)
				})
			})
		}
	}
}

func TestTagsAreOfOneCommand(t *testing.T) {
	// And all of them of their Manager: Close ends what any has left behind.
	host := &fakeHost{seen: []terminal.Proc{{PID: 7, Command: "server"}}}
	run(t, &acpterm.Options{Host: host}, func(f *fixture) {
		f.end(f.start("true"))
		first, second := f.start("hold a"), f.start("hold b")
		first.Stop(f.Context())
		second.Stop(f.Context())
		if err := f.m.Close(); err != nil {
			f.Error(err)
		}
		if len(host.finds) != 2 || host.finds[0] == host.finds[1] {
			f.Errorf("looked for %q", host.finds)
		}
		if len(host.ends) != 3 || !slices.Equal(host.ends[:2], host.finds) {
			f.Fatalf("ended %q, looked for %q", host.ends, host.finds)
		}
		all := host.ends[2]
		for _, tag := range host.finds {
			if !strings.HasPrefix(tag, all) || len(all) < 20 {
				f.Errorf("the tag %q does not begin with the Manager's, %q", tag, all)
			}
		}
	})
}

func TestAHostThatSeesNothingIsAskedNoMore(t *testing.T) {
	host := &fakeHost{}
	run(t, &acpterm.Options{Host: host}, func(f *fixture) {
		for range 10 {
			f.start("hold a").Stop(f.Context())
		}
		if err := f.m.Close(); err != nil {
			f.Error(err)
		}
		if len(host.finds) != 3 || len(host.ends) != 0 {
			f.Errorf("looked for %q, ended %q", host.finds, host.ends)
		}
	})
}

// A shellClient is a client on this host that kills the shell only, and leaves its
// input open.
type shellClient struct {
	acpterm.Conn
	mu   sync.Mutex
	cmds map[string]*shellCommand // guarded by mu
}

type shellCommand struct {
	cmd    *exec.Cmd
	exited chan struct{}
	mu     sync.Mutex
	out    bytes.Buffer // guarded by mu
}

func (c *shellCommand) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}

func (s *shellClient) get(id string) *shellCommand {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmds[id]
}

func (s *shellClient) CreateTerminal(_ context.Context, p acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	c := &shellCommand{cmd: exec.Command(p.Command, p.Args...), exited: make(chan struct{})}
	c.cmd.Env = os.Environ()
	for _, v := range p.Env {
		c.cmd.Env = append(c.cmd.Env, v.Name+"="+v.Value)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return acp.CreateTerminalResponse{}, err
	}
	c.cmd.Stdout, c.cmd.Stderr = w, w // a file, so that nobody waits for the children
	if err := c.cmd.Start(); err != nil {
		return acp.CreateTerminalResponse{}, err
	}
	w.Close()
	go func() { // ends with the last process of the command
		defer r.Close()
		buf := make([]byte, 1<<10)
		for {
			n, err := r.Read(buf)
			c.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() { // ends with the shell
		c.cmd.Wait()
		close(c.exited)
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	id := fmt.Sprint("shell-", len(s.cmds))
	s.cmds[id] = c
	return acp.CreateTerminalResponse{TerminalId: id}, nil
}

func (c *shellCommand) status() (code *int, signal *string) {
	if ws, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return nil, new(ws.Signal().String())
	}
	return new(c.cmd.ProcessState.ExitCode()), nil
}

func (s *shellClient) WaitForTerminalExit(ctx context.Context, p acp.WaitForTerminalExitRequest) (r acp.WaitForTerminalExitResponse, err error) {
	c := s.get(p.TerminalId)
	select {
	case <-c.exited:
		r.ExitCode, r.Signal = c.status()
		return r, nil
	case <-ctx.Done():
		return r, ctx.Err()
	}
}

func (s *shellClient) TerminalOutput(_ context.Context, p acp.TerminalOutputRequest) (r acp.TerminalOutputResponse, err error) {
	c := s.get(p.TerminalId)
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Output = c.out.String()
	return r, nil
}

func (s *shellClient) KillTerminal(_ context.Context, p acp.KillTerminalRequest) (r acp.KillTerminalResponse, err error) {
	return r, s.get(p.TerminalId).cmd.Process.Signal(syscall.SIGTERM)
}

func (s *shellClient) ReleaseTerminal(_ context.Context, p acp.ReleaseTerminalRequest) (r acp.ReleaseTerminalResponse, err error) {
	s.get(p.TerminalId).cmd.Process.Signal(syscall.SIGTERM)
	return r, nil
}

func TestARealClientThatKillsTheShellOnly(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("processes are found by a tag on Linux only in this test")
	}
	client := &shellClient{cmds: map[string]*shellCommand{}}
	m := acpterm.New(client, "s", &acpterm.Options{Dir: t.TempDir(), Host: execenv.Tagged{}})
	closed := false
	defer func() {
		if !closed {
			m.Close()
		}
	}()
	start := func(line string, timeout time.Duration) terminal.Terminal {
		t.Helper()
		term, err := m.Start(t.Context(), terminal.Command{Line: line, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		return term
	}
	// The shell dies, and the sleep would live on and hold the output.
	term := start("echo early; sleep 361; echo late", time.Second)
	info, err := terminal.Wait(t.Context(), term)
	if err != nil || info.Outcome != terminal.TimedOut {
		t.Errorf("%s, %v; %v", info.Outcome, info.Err, err)
	}
	if info.Err == nil || !strings.Contains(info.Err.Error(), "(sleep 361)") || info.Survivors == nil || len(info.Survivors) > 0 {
		t.Errorf("left %#v, %v; want none, and sleep named", info.Survivors, info.Err)
	}
	if out, err := term.ReadOutput(t.Context(), 0, 0); err != nil || out.Text != "early\n" {
		t.Errorf("%q, %v", out.Text, err)
	}
	// One that ignores SIGTERM, in a session of its own.
	term = start(`setsid sh -c 'trap "" TERM; echo ready; while :; do sleep 0.362; done' & wait`, 0)
	for out := (terminal.Output{}); out.Text == ""; {
		if out, err = term.ReadOutput(t.Context(), 0, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if info, err = term.Stop(t.Context()); err != nil || info.Err == nil || !strings.Contains(info.Err.Error(), "trap") || len(info.Survivors) > 0 {
		t.Errorf("left %#v, %v; %v", info.Survivors, info.Err, err)
	}
	// What it leaves at its natural end is ended by Close.
	term = start("sleep 363 >/dev/null 2>&1 & echo over", 0)
	if info, err = terminal.Wait(t.Context(), term); err != nil || info.Outcome != terminal.Exited {
		t.Errorf("%s, %v; %v", info.Outcome, info.Err, err)
	}
	closed = true
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	for _, mine := range []string{"sleep 361", "sleep 0.362", "sleep 363"} {
		if runs(t, mine) {
			t.Errorf("it runs on: %s", mine)
		}
	}
}

// lateClient answers a create when it is told to.
type lateClient struct {
	*shellClient
	created, answer chan struct{}
}

func (c *lateClient) CreateTerminal(ctx context.Context, p acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	resp, err := c.shellClient.CreateTerminal(ctx, p)
	close(c.created)
	<-c.answer
	return resp, err
}

// A command whose terminal comes after its cancel is ended as a whole, too.
func TestALateTerminalOfAClientThatKillsTheShellOnly(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are found by a tag on Linux only in this test")
	}
	client := &lateClient{&shellClient{cmds: map[string]*shellCommand{}}, make(chan struct{}), make(chan struct{})}
	m := acpterm.New(client, "s", &acpterm.Options{Dir: t.TempDir(), Host: execenv.Tagged{}})
	defer m.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-client.created
		for !runs(t, "sleep 364") {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	if _, err := m.Start(ctx, terminal.Command{Line: "sleep 364 | cat"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Start: %v", err)
	}
	close(client.answer)
	for deadline := time.Now().Add(30 * time.Second); runs(t, "sleep 364"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it runs on")
		}
	}
}

// runs reports whether a process with that command line runs.
func runs(t *testing.T, command string) bool {
	list, err := exec.Command("ps", "-eo", "args").Output()
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
	return slices.ContainsFunc(strings.Split(string(list), "\n"), func(line string) bool { return strings.TrimSpace(line) == command })
}
