package acpterm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/fakeconn/emulate"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A fixture is a client and a session of it with a Manager.
type fixture struct {
	*testing.T
	c       *fakeconn.Client
	session acp.SessionId
	m       *acpterm.Manager
	leaks   bool // Close of the Manager may report leaks
}

// programs are those of the tests, besides fakeconn's.
var programs = map[string]memterm.Program{
	// say TEXT CODE
	"say": func(p *memterm.Process) terminal.Exit {
		io.WriteString(p.Stdout, p.Args[1])
		n, _ := strconv.Atoi(p.Args[2])
		return memterm.Code(n)
	},
	// hold TEXT prints TEXT and waits for its end.
	"hold": func(p *memterm.Process) terminal.Exit {
		io.WriteString(p.Stdout, p.Args[1])
		<-p.Stopped
		return p.Death()
	},
	// parts TEXT D TEXT… prints TEXT, and each further one after D.
	"parts": func(p *memterm.Process) terminal.Exit {
		for i := 1; i < len(p.Args); i += 2 {
			io.WriteString(p.Stdout, p.Args[i])
			if i+1 < len(p.Args) {
				d, _ := time.ParseDuration(p.Args[i+1])
				if !p.Sleep(d) {
					return p.Death()
				}
			}
		}
		return memterm.Code(0)
	},
}

const (
	create  = "terminal/create"
	output  = "terminal/output"
	wait    = "terminal/wait_for_exit"
	kill    = "terminal/kill"
	release = "terminal/release"
)

// run runs a test in fake time, against a client that judges the wire.
func run(t *testing.T, o *acpterm.Options, test func(f *fixture)) {
	t.Helper()
	runWith(t, o, &fakeconn.Options{}, test)
}

func runWith(t *testing.T, o *acpterm.Options, client *fakeconn.Options, test func(f *fixture)) {
	t.Helper()
	if client.Programs == nil {
		client.Programs = programs
	}
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, c: fakeconn.New(client)}
		var err error
		if f.session, err = f.c.NewSession(t.Context(), "/work"); err != nil {
			t.Fatal(err)
		}
		f.m = acpterm.New(f.c.Conn(), f.session, o)
		test(f)
		if err := f.m.Close(); err != nil && !f.leaks {
			t.Errorf("Close of the Manager: %v", err)
		}
		if err := f.c.Close(); err != nil {
			t.Errorf("Close of the client: %v", err)
		}
		if t.Failed() {
			t.Logf("the wire:\n%s", f.c.Transcript())
		}
	})
}

func (f *fixture) start(line string) terminal.Terminal {
	f.Helper()
	term, err := f.m.Start(f.Context(), terminal.Command{Line: line})
	if err != nil {
		f.Fatalf("Start(%q): %v", line, err)
	}
	return term
}

// end waits for the end and returns the final Info.
func (f *fixture) end(term terminal.Terminal) terminal.Info {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Hour)
	defer cancel()
	info, err := terminal.Wait(ctx, term)
	if err != nil {
		f.Fatalf("the command has not ended after an hour")
	}
	return info
}

func (f *fixture) text(term terminal.Terminal) string {
	f.Helper()
	var b strings.Builder
	for out, err := range terminal.Follow(f.Context(), term, 0) {
		if err != nil {
			f.Fatal(err)
		}
		b.WriteString(out.Text)
	}
	return b.String()
}

// counts fails the test if a method was not called want times.
func (f *fixture) count(method string, want int) {
	f.Helper()
	synctest.Wait()
	if got := f.c.Count(method); got != want {
		f.Errorf("%s was called %d times, want %d", method, got, want)
	}
}

// check compares how a command ended.
func (f *fixture) check(info terminal.Info, outcome terminal.Outcome, exit terminal.Exit) {
	f.Helper()
	if diff := cmp.Diff(exit, info.Exit); info.Outcome != outcome || diff != "" {
		f.Errorf("got %s, %v (Err: %v), want %s, %v", info.Outcome, info.Exit, info.Err, outcome, exit)
	}
}

// within fails the test if what took longer than limit since start.
func (f *fixture) within(start time.Time, limit time.Duration, what string) {
	f.Helper()
	if took := time.Since(start); took > limit {
		f.Errorf("%s took %v, want at most %v", what, took, limit)
	}
}

func code(n int) terminal.Exit { return terminal.Exit{Code: &n} }

func TestACommandFromStartToRelease(t *testing.T) {
	run(t, nil, func(f *fixture) {
		term := f.start("say hello 3")
		info := f.end(term)
		f.check(info, terminal.Exited, code(3))
		if got := f.text(term); got != "hello" {
			f.Errorf("output %q", got)
		}
		if info.Err != nil || info.FirstOutput.IsZero() {
			f.Errorf("%+v", info)
		}
		f.count(release, 1)
		f.count(kill, 0)
	})
}

func TestCreateRequest(t *testing.T) {
	tests := []struct {
		name    string
		options acpterm.Options
		command terminal.Command
		want    string
	}{
		{"a line", acpterm.Options{Dir: "/work"}, terminal.Command{Line: "echo $HOME | cat", TTY: true},
			`{"command":"/bin/sh","args":["-c",":;exec </dev/null;echo $HOME | cat"],"cwd":"/work","outputByteLimit":51204}`},
		{"words", acpterm.Options{Dir: "/work"}, terminal.Command{Args: []string{"echo", "a b", "it's", "$HOME", ""}},
			`{"command":"/bin/sh","args":["-c",":;exec 'echo' 'a b' 'it'\\''s' '$HOME' '' </dev/null"],"cwd":"/work","outputByteLimit":51204}`},
		{"a shell", acpterm.Options{Dir: "/work"}, terminal.Command{Line: "echo a", Shell: "bash", Dir: "/other"},
			`{"command":"/bin/sh","args":["-c",":;exec 'bash' '-c' 'echo a' </dev/null"],"cwd":"/other","outputByteLimit":51204}`},
		{"an environment is sorted", acpterm.Options{Dir: "/work", OutputLimit: 99}, terminal.Command{Line: "a", Env: map[string]string{"B": "2", "A": "1", "C": ""}},
			`{"command":"/bin/sh","args":["-c",":;exec </dev/null;a"],"cwd":"/work","outputByteLimit":103,"env":[{"name":"A","value":"1"},{"name":"B","value":"2"},{"name":"C","value":""}]}`},
		{"a limit that fits into the SDK's line", acpterm.Options{Dir: "/work"}, terminal.Command{Line: "a", OutputLimit: 100 << 20},
			`{"command":"/bin/sh","args":["-c",":;exec </dev/null;a"],"cwd":"/work","outputByteLimit":1572864}`},
		{"a client that executes", acpterm.Options{Dir: "/work", Profile: acpterm.Profile{Form: acpterm.FormExec}}, terminal.Command{Args: []string{"a", "b c"}},
			`{"command":"a","args":["b c"],"cwd":"/work","outputByteLimit":51204}`},
		{"a line for a client that executes", acpterm.Options{Dir: "/work", Profile: acpterm.Profile{Form: acpterm.FormExec}}, terminal.Command{Line: "a b"},
			`{"command":"/bin/sh","args":["-c","exec </dev/null;a b"],"cwd":"/work","outputByteLimit":51204}`},
		{"a client that takes lines", acpterm.Options{Dir: "/work", Profile: acpterm.Profile{Form: acpterm.FormLine}}, terminal.Command{Args: []string{"a", "b c"}},
			`{"command":"exec 'a' 'b c' </dev/null","cwd":"/work","outputByteLimit":51204}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, &test.options, func(f *fixture) {
				if term, err := f.m.Start(f.Context(), test.command); err == nil {
					f.end(term)
				}
				f.count(create, 1)
				for _, l := range f.c.Lines() {
					if l.Method != create || l.Kind != fakeconn.Request {
						continue
					}
					var got struct{ Params map[string]any }
					var want map[string]any
					if err := errors.Join(json.Unmarshal([]byte(l.Raw), &got), json.Unmarshal([]byte(test.want), &want)); err != nil {
						f.Fatal(err)
					}
					delete(got.Params, "sessionId")
					if diff := cmp.Diff(want, got.Params); diff != "" {
						f.Errorf("request (-want +got):\n%s", diff)
					}
				}
			})
		})
	}
}

func TestNothingIsSent(t *testing.T) {
	// What cannot be started is refused before anything is sent.
	because := errors.New("because")
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(because)
	tests := []struct {
		name    string
		ctx     context.Context
		command terminal.Command
		want    error
	}{
		{"an ended ctx", ended, terminal.Command{Line: "true"}, because},
		{"a command over 1 MiB", context.Background(), terminal.Command{Line: "echo " + strings.Repeat("x", 1<<20)}, terminal.ErrTooLarge},
		{"a command that escaping makes longer than 1 MiB", context.Background(), terminal.Command{Line: strings.Repeat("\x01", 200<<10)}, terminal.ErrTooLarge},
		{"input", context.Background(), terminal.Command{Line: "cat", Stdin: true}, terminal.ErrNoInput},
		{"no command", context.Background(), terminal.Command{}, terminal.ErrBadCommand},
		{"a relative directory", context.Background(), terminal.Command{Line: "a", Dir: "b"}, terminal.ErrBadCommand},
		{"another environment", context.Background(), terminal.Command{Line: "a", Environment: "local"}, terminal.ErrBadCommand},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				if _, err := f.m.Start(test.ctx, test.command); !errors.Is(err, test.want) {
					f.Errorf("got %v, want %v", err, test.want)
				}
				f.count(create, 0)
				if f.m.Busy() || len(f.m.List()) > 0 {
					f.Error("something is left")
				}
			})
		})
	}
}

func TestStartErrors(t *testing.T) {
	tests := []struct {
		name        string
		fault       fakeconn.Fault
		unsupported bool
		code        int // of the *acp.RequestError
		bad         bool
		text        string
	}{
		{"the client has no terminals", fakeconn.Fault{Error: acp.NewMethodNotFound(create)}, true, -32601, false, "Method not found"},
		{"the user refuses", fakeconn.Fault{Error: &acp.RequestError{Code: -32603, Message: "Permission denied for terminal/create"}}, false, -32603, false, "Permission denied for terminal/create"},
		{"details", fakeconn.Fault{Error: acp.NewInternalError(map[string]any{"details": "spawn x ENOENT"})}, false, -32603, false, "spawn x ENOENT"},
		{"no id", fakeconn.Fault{Result: map[string]any{"terminalId": ""}}, false, 0, true, "id"},
		{"null", fakeconn.Fault{Result: json.RawMessage("null")}, false, 0, true, "id"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, &acpterm.Options{MaxTerminals: 1}, func(f *fixture) {
				test.fault.Method = create
				i := f.c.Inject(test.fault)
				term, err := f.m.Start(f.Context(), terminal.Command{Line: "true"})
				if err == nil || term != nil {
					f.Fatalf("got %v, %v", term, err)
				}
				var re *acp.RequestError
				if test.code != 0 && (!errors.As(err, &re) || re.Code != test.code) {
					f.Errorf("got %v, want an *acp.RequestError with code %d", err, test.code)
				}
				if got := errors.Is(err, errors.ErrUnsupported); got != test.unsupported {
					f.Errorf("unsupported: %v", got)
				}
				if got := errors.Is(err, acpterm.ErrBadReply); got != test.bad {
					f.Errorf("bad reply: %v", got)
				}
				if !strings.Contains(err.Error(), test.text) {
					f.Errorf("%q does not say %q", err, test.text)
				}
				i.Remove()
				f.check(f.end(f.start("true")), terminal.Exited, code(0)) // the slot is free
				f.count(create, 2)
			})
		})
	}
}

func TestTwoLiveTerminalsWithOneID(t *testing.T) {
	// The innocent one is not killed, and neither is released twice.
	run(t, nil, func(f *fixture) {
		first := f.start("after 1s print done")
		f.c.Inject(fakeconn.Fault{Method: create, Result: map[string]any{"terminalId": f.m.TerminalID(first)}})
		if _, err := f.m.Start(f.Context(), terminal.Command{Line: "true"}); !errors.Is(err, acpterm.ErrBadReply) {
			f.Errorf("got %v, want ErrBadReply", err)
		}
		f.check(f.end(first), terminal.Exited, code(0))
		f.count(kill, 0)
		f.count(release, 1)
	})
}

func TestAnIDMayComeAgain(t *testing.T) {
	// Even if its create overtakes the answer to the release. The audit takes
	// the two terminals for one.
	allow := []fakeconn.Rule{fakeconn.RuleRelease, fakeconn.RuleReleased}
	runWith(t, nil, &fakeconn.Options{Allow: allow}, func(f *fixture) {
		f.c.Inject(fakeconn.Fault{Method: release, Reply: true, N: 1, Delay: time.Second})
		id := ""
		f.c.Inject(fakeconn.Fault{Method: create, Reply: true, Edit: func(raw string) string {
			return fakeconn.Set("result.terminalId", "again")(raw)
		}})
		for _, method := range []string{output, wait, kill, release} {
			f.c.Inject(fakeconn.Fault{Method: method, Match: func(l fakeconn.Line) bool { return l.Terminal == "again" },
				Result: map[string]any{"exitCode": 0, "output": "", "truncated": false, "exitStatus": map[string]any{"exitCode": 0}}})
		}
		for range 2 {
			term := f.start("true")
			f.check(f.end(term), terminal.Exited, code(0))
			id = f.m.TerminalID(term)
			synctest.Wait() // no client gives an id again before it has the release
		}
		if id != "again" {
			f.Errorf("id %q", id)
		}
		f.count(release, 2)
	})
}

func TestContextEndsDuringCreate(t *testing.T) {
	// Start returns at once with the cause; the terminal that comes late is
	// killed and released once; the call itself is not cancelled.
	run(t, nil, func(f *fixture) {
		f.c.Inject(fakeconn.Fault{Method: create, Reply: true, Delay: 10 * time.Second})
		because := errors.New("because")
		ctx, cancel := context.WithCancelCause(f.Context())
		time.AfterFunc(time.Second, func() { cancel(because) })
		start := time.Now()
		if _, err := f.m.Start(ctx, terminal.Command{Line: "sleep 1h"}); !errors.Is(err, because) {
			f.Errorf("got %v, want the cause", err)
		}
		f.within(start, time.Second, "Start")
		if f.m.Busy() {
			f.Error("busy")
		}
		f.count("$/cancel_request", 0)
		time.Sleep(20 * time.Second)
		f.count(kill, 1)
		f.count(release, 1)
	})
}

func TestCreateIsNotAnswered(t *testing.T) {
	// Start is bounded, and Close reports that a command may run.
	run(t, &acpterm.Options{CreateTimeout: 7 * time.Second}, func(f *fixture) {
		f.leaks = true
		f.c.Inject(fakeconn.Fault{Method: create, Drop: true})
		start := time.Now()
		_, err := f.m.Start(f.Context(), terminal.Command{Line: "true"})
		if err == nil || errors.Is(err, errors.ErrUnsupported) {
			f.Errorf("got %v", err)
		}
		if took := time.Since(start); took != 7*time.Second {
			f.Errorf("took %v", took)
		}
		err = f.m.Close()
		leak, ok := errors.AsType[*terminal.LeakError](err)
		if !ok || len(leak.Leaks) != 1 || leak.Leaks[0].What != create || leak.Leaks[0].ID != "" {
			f.Errorf("Close: %v", err)
		}
		f.within(start, time.Minute, "all")
	})
}

func TestCloseReapsWhatComesInTime(t *testing.T) {
	run(t, nil, func(f *fixture) {
		f.c.Inject(fakeconn.Fault{Method: create, Reply: true, Delay: 3 * time.Second})
		var err error
		var started sync.WaitGroup
		started.Go(func() { _, err = f.m.Start(f.Context(), terminal.Command{Line: "sleep 1h"}) })
		time.Sleep(time.Second)
		if err := f.m.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
		started.Wait()
		if !errors.Is(err, terminal.ErrClosed) {
			f.Errorf("Start: %v, want ErrClosed", err)
		}
		f.count(release, 1)
		if _, err := f.m.Start(f.Context(), terminal.Command{Line: "true"}); !errors.Is(err, terminal.ErrClosed) {
			f.Errorf("Start after Close: %v", err)
		}
	})
}

func TestCreatedComesBeforeTheRelease(t *testing.T) {
	// And before Start returns, unless it takes too long.
	var mu sync.Mutex
	var log []string
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, s)
	}
	run(t, nil, func(f *fixture) {
		hooks := acpterm.Hooks{Created: func(ctx context.Context, t terminal.Terminal) {
			note("created " + f.m.TerminalID(t))
			time.Sleep(3 * time.Second)
			note("shown")
		}}
		f.c.Inject(fakeconn.Fault{Method: release, Match: func(fakeconn.Line) bool { note("release"); return false }})
		term, err := f.m.StartWith(f.Context(), terminal.Command{Line: "true"}, hooks)
		if err != nil {
			f.Fatal(err)
		}
		note("started " + f.m.TerminalID(term))
		f.end(term)
		time.Sleep(time.Second)
		id := f.m.TerminalID(term)
		want := []string{"created " + id, "shown"}
		mu.Lock()
		defer mu.Unlock()
		// The release goes its own way beside the return of Start.
		if len(log) != 4 || cmp.Diff(want, log[:2]) != "" {
			f.Errorf("got %q, want %q and then the rest", log, want)
		}
	})
}

func TestCreatedThatHangs(t *testing.T) {
	// Start and Close are bounded, the terminal is not released, and reported.
	hang := make(chan struct{})
	hooks := acpterm.Hooks{Created: func(context.Context, terminal.Terminal) { <-hang }}
	synctest.Test(t, func(t *testing.T) {
		hang = make(chan struct{})
		c := fakeconn.New(&fakeconn.Options{Allow: []fakeconn.Rule{fakeconn.RuleRelease}})
		session, _ := c.NewSession(t.Context(), "/")
		m := acpterm.New(c.Conn(), session, nil)
		start := time.Now()
		term, err := m.StartWith(t.Context(), terminal.Command{Line: "true"}, hooks)
		if err != nil {
			t.Fatal(err)
		}
		<-term.Done()
		err = m.Close()
		if leak, ok := errors.AsType[*terminal.LeakError](err); !ok || len(leak.Leaks) != 1 || leak.Leaks[0].ID != term.Info().ID {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("took %v", took)
		}
		if n := c.Count(release); n != 0 {
			t.Errorf("%d releases", n)
		}
		close(hang)
		c.Close()
	})
}

func TestExitEvidence(t *testing.T) {
	// Either source may fail; the other one is enough.
	type faults []fakeconn.Fault
	refuse := acp.NewInternalError(nil)
	tests := []struct {
		name    string
		line    string
		faults  faults
		outcome terminal.Outcome
		exit    terminal.Exit
		text    string
		err     bool
	}{
		{"wait is never answered", "say hello 3", faults{{Method: wait, Drop: true}}, terminal.Exited, code(3), "hello", false},
		{"wait is refused", "say hello 3", faults{{Method: wait, Error: refuse}}, terminal.Exited, code(3), "hello", false},
		{"wait is not known", "say hello 3", faults{{Method: wait, Error: acp.NewMethodNotFound(wait)}}, terminal.Exited, code(3), "hello", false},
		{"wait answers nothing at once", "after 30s exit 3", faults{{Method: wait, N: 1, Result: map[string]any{}}}, terminal.Exited, code(3), "", false},
		{"output never has an exit status", "say hello 3", faults{{Method: output, Reply: true, Edit: fakeconn.Remove("result.exitStatus")}}, terminal.Exited, code(3), "hello", false},
		{"output has an empty exit status", "say hello 3", faults{{Method: output, Reply: true, Edit: fakeconn.Set("result.exitStatus", map[string]any{})}}, terminal.Exited, code(3), "hello", false},
		{"output is never answered", "say hello 3", faults{{Method: output, Drop: true}}, terminal.Exited, code(3), "", true},
		{"output is refused", "say hello 3", faults{{Method: output, Error: refuse}}, terminal.Exited, code(3), "", true},
		{"output is refused once", "say hello 3", faults{{Method: output, N: 1, Error: refuse}}, terminal.Exited, code(3), "hello", false},
		{"replies come twice", "say hello 3", faults{{Reply: true, Twice: true}}, terminal.Exited, code(3), "hello", false},
		{"a slow link", "say hello 3", faults{{Delay: 700 * time.Millisecond}, {Reply: true, Delay: 700 * time.Millisecond}}, terminal.Exited, code(3), "hello", false},
		{"a signal that nobody sent", "signal SIGSEGV", nil, terminal.Signalled, terminal.Exit{Signal: "SIGSEGV"}, "", false},
		{"a null code with a signal", "exit 0", faults{{Method: wait, Reply: true, Result: map[string]any{"exitCode": nil, "signal": "Killed"}}, {Method: output, Reply: true, Edit: fakeconn.Remove("result.exitStatus")}}, terminal.Signalled, terminal.Exit{Signal: "SIGKILL"}, "", false},
		{"code 0 with a signal is no success", "exit 0", faults{{Method: wait, Reply: true, Result: map[string]any{"exitCode": 0, "signal": "15"}}, {Method: output, Reply: true, Edit: fakeconn.Remove("result.exitStatus")}}, terminal.Signalled, terminal.Exit{Signal: "SIGTERM"}, "", false},
		{"a stub", "sleep 1h", faults{{Method: wait, Result: map[string]any{}}, {Method: output, Result: map[string]any{"output": "", "truncated": false}}}, terminal.Unknown, terminal.Exit{}, "", true},
		{"an end without a how", "sleep 1h", faults{{Method: wait, Drop: true}, {Method: output, Result: map[string]any{"output": "x", "truncated": false, "exitStatus": map[string]any{}}}}, terminal.Unknown, terminal.Exit{}, "x", true},
		{"the client forgets a live terminal", "sleep 1h", faults{{Method: wait, Error: refuse}, {Method: output, Error: refuse}}, terminal.StoppedByClient, terminal.Exit{}, "", true},
		{"the client has neither method", "sleep 1h", faults{{Method: wait, Error: acp.NewMethodNotFound(wait)}, {Method: output, Error: acp.NewMethodNotFound(output)}}, terminal.Failed, terminal.Exit{}, "", true},
	}
	for _, test := range tests {
		for _, reading := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reading %v", test.name, reading), func(t *testing.T) {
				run(t, nil, func(f *fixture) {
					for _, fault := range test.faults {
						f.c.Inject(fault)
					}
					term := f.start(test.line)
					if reading {
						f.text(term)
					}
					info := f.end(term)
					f.check(info, test.outcome, test.exit)
					if got := f.text(term); got != test.text {
						f.Errorf("output %q, want %q", got, test.text)
					}
					if (info.Err != nil) != test.err {
						f.Errorf("Err: %v, want one: %v", info.Err, test.err)
					}
					if info.Exit.Success() {
						f.Error("success")
					}
					time.Sleep(time.Minute)
					f.count(create, 1)
					f.count(release, 1)
				})
			})
		}
	}
}

func TestLostOutputIsNoSuccess(t *testing.T) {
	// A failed terminal/output is an error that says why, with what was seen.
	run(t, nil, func(f *fixture) {
		term := f.start("parts one 10s two")
		if out, err := term.ReadOutput(f.Context(), 0, time.Minute); err != nil || out.Text != "one" {
			f.Fatalf("%+v, %v", out, err)
		}
		f.c.Inject(fakeconn.Fault{Method: output, Error: acp.NewInternalError("the disk is full")})
		info := f.end(term)
		f.check(info, terminal.Exited, code(0))
		var re *acp.RequestError
		if !errors.As(info.Err, &re) || !strings.Contains(info.Err.Error(), "the disk is full") {
			f.Errorf("Err: %v", info.Err)
		}
		if got := f.text(term); got != "one" {
			f.Errorf("output %q", got)
		}
	})
}

func TestStop(t *testing.T) {
	refuse := acp.NewInternalError(nil)
	tests := []struct {
		name   string
		line   string
		faults []fakeconn.Fault
		exit   terminal.Exit
		err    bool
	}{
		{"a command that SIGTERM ends", "hold here", nil, terminal.Exit{Signal: "SIGTERM"}, false},
		{"a stubborn command", "ignore-term here", nil, terminal.Exit{Signal: "SIGKILL"}, false},
		{"kill hangs", "hold here", []fakeconn.Fault{{Method: kill, Drop: true}}, terminal.Exit{}, true},
		{"kill is refused", "hold here", []fakeconn.Fault{{Method: kill, Error: refuse}}, terminal.Exit{}, true},
		{"wait hangs after the kill", "hold here", []fakeconn.Fault{{Method: wait, Reply: true, Drop: true}}, terminal.Exit{Signal: "SIGTERM"}, false},
		{"nothing is answered", "hold here", []fakeconn.Fault{{Method: kill, Drop: true}, {Method: output, N: 3, Drop: true}, {Method: wait, Reply: true, Drop: true}}, terminal.Exit{}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				for _, fault := range test.faults {
					f.c.Inject(fault)
				}
				term := f.start(test.line)
				if out, err := term.ReadOutput(f.Context(), 0, time.Minute); err != nil || out.Text != "here" {
					f.Fatalf("%+v, %v", out, err)
				}
				time.Sleep(time.Minute)
				start := time.Now()
				info, err := term.Stop(f.Context())
				if err != nil {
					f.Errorf("Stop: %v", err)
				}
				f.within(start, limits.SettleTimeout, "Stop")
				f.check(info, terminal.Stopped, test.exit)
				if (info.Err != nil) != test.err {
					f.Errorf("Err: %v, want one: %v", info.Err, test.err)
				}
				if got := f.text(term); got != "here" {
					f.Errorf("output %q", got)
				}
				again, err := term.Stop(f.Context())
				if err != nil || again.Outcome != terminal.Stopped || !again.Ended.Equal(info.Ended) {
					f.Errorf("Stop again: %+v, %v", again, err)
				}
				time.Sleep(time.Minute)
				f.count(kill, 1)
				f.count(release, 1)
			})
		})
	}
}

func TestTimeoutKeepsTheOutput(t *testing.T) {
	run(t, nil, func(f *fixture) {
		start := time.Now()
		term, err := f.m.Start(f.Context(), terminal.Command{Line: "hold partial", Timeout: 5 * time.Second})
		if err != nil {
			f.Fatal(err)
		}
		f.check(f.end(term), terminal.TimedOut, terminal.Exit{Signal: "SIGTERM"})
		if took := time.Since(start); took < 5*time.Second || took > 10*time.Second {
			f.Errorf("took %v", took)
		}
		if got := f.text(term); got != "partial" {
			f.Errorf("output %q", got)
		}
		f.count(release, 1)
	})
}

func TestTheConnectionEnds(t *testing.T) {
	// Every waiter learns it at once, and nothing more is sent.
	run(t, nil, func(f *fixture) {
		term := f.start("hold here")
		if out, _ := term.ReadOutput(f.Context(), 0, time.Minute); out.Text != "here" {
			f.Fatalf("%+v", out)
		}
		var waiters sync.WaitGroup
		start := time.Now()
		waiters.Go(func() {
			if out, err := term.ReadOutput(f.Context(), 4, time.Hour); err != nil || !out.EOF() {
				f.Errorf("ReadOutput: %+v, %v", out, err)
			}
		})
		waiters.Go(func() {
			info := f.end(term)
			f.check(info, terminal.ConnectionLost, terminal.Exit{})
			if !errors.Is(info.Err, terminal.ErrConnectionLost) {
				f.Errorf("Err: %v", info.Err)
			}
		})
		f.c.Inject(fakeconn.Fault{Method: create, Disconnect: true})
		waiters.Go(func() {
			if _, err := f.m.Start(f.Context(), terminal.Command{Line: "true"}); !errors.Is(err, terminal.ErrConnectionLost) {
				f.Errorf("Start: %v", err)
			}
		})
		waiters.Wait()
		f.within(start, 0, "the end")
		sent := len(f.c.Lines())
		if err := f.m.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
		ended, cancel := context.WithCancel(f.Context())
		cancel() // as the SDK does it with the contexts of its handlers
		m := acpterm.New(f.c.Conn(), f.session, nil)
		if _, err := m.Start(ended, terminal.Command{Line: "true"}); !errors.Is(err, terminal.ErrConnectionLost) {
			f.Errorf("Start with an ended ctx: %v", err)
		}
		if got := f.text(term); got != "here" {
			f.Errorf("output %q", got)
		}
		time.Sleep(time.Minute)
		if now := len(f.c.Lines()); now != sent {
			f.Errorf("%d lines were sent to a client that is gone", now-sent)
		}
	})
}

func TestALineThatIsTooLong(t *testing.T) {
	// The request for the output fails, and the command ends as it did. Nothing
	// is claimed that is not known: on a bare connection the SDK closes it.
	for bare, want := range map[bool]terminal.Outcome{false: terminal.Exited, true: terminal.ConnectionLost} {
		runWith(t, nil, &fakeconn.Options{Bare: bare}, func(f *fixture) {
			f.c.Inject(fakeconn.Fault{Method: output, Reply: true, Edit: fakeconn.Pad(11 << 20)})
			info := f.end(f.start("print hello"))
			if info.Outcome != want || info.Err == nil {
				f.Errorf("bare %v: %+v", bare, info)
			}
		})
	}
}

func TestReleaseIsNotAnswered(t *testing.T) {
	tests := []struct {
		name  string
		fault fakeconn.Fault
		sent  int
		leak  bool
	}{
		{"an error settles it", fakeconn.Fault{Error: acp.NewInternalError("unknown terminal")}, 1, false},
		{"a late answer settles it", fakeconn.Fault{Reply: true, Delay: time.Minute}, 1, false},
		{"one more try at the end", fakeconn.Fault{N: 1, Drop: true}, 2, false},
		{"and then it is reported", fakeconn.Fault{Drop: true}, 2, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				f.leaks = test.leak
				test.fault.Method = release
				f.c.Inject(test.fault)
				term := f.start("true")
				f.end(term)
				time.Sleep(time.Hour)
				f.count(release, 1)
				start := time.Now()
				err := f.m.Close()
				f.within(start, 2*limits.ReleaseTimeout, "Close")
				f.count(release, test.sent)
				leak, ok := errors.AsType[*terminal.LeakError](err)
				if ok != test.leak {
					f.Fatalf("Close: %v", err)
				}
				if ok && (len(leak.Leaks) != 1 || leak.Leaks[0].ID != term.Info().ID || leak.Leaks[0].What != release) {
					f.Errorf("leaks: %+v", leak.Leaks)
				}
			})
		})
	}
}

func TestCloseStopsEverythingAtOnce(t *testing.T) {
	for name, fault := range map[string]fakeconn.Fault{
		"a client that answers":       {Method: "none"},
		"a client that never answers": {Method: kill, Drop: true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				f.c.Inject(fault)
				for range 20 {
					f.start("ignore-term")
				}
				start := time.Now()
				if err := f.m.Close(); err != nil {
					f.Errorf("Close: %v", err)
				}
				f.within(start, limits.SettleTimeout, "Close")
				for _, term := range f.m.List() {
					if info := term.Info(); info.Outcome != terminal.Stopped {
						f.Errorf("%+v", info)
					}
				}
				f.count(release, 20)
			})
		})
	}
}

func TestPolling(t *testing.T) {
	// Less and less while nobody reads, often while somebody does and there is
	// output, and at once when somebody begins.
	run(t, nil, func(f *fixture) {
		var lines strings.Builder
		for i := range 30 {
			fmt.Fprintf(&lines, "'line %d' 100ms ", i+1)
		}
		term := f.start("parts '' 605s 'line 0' 10s " + lines.String() + "'' 1h")
		time.Sleep(610 * time.Second)
		f.count(output, 8+19) // after 0.1, 0.3, 0.7, … 25.5 s, and then every 30 s
		start := time.Now()
		out, err := term.ReadOutput(f.Context(), 0, time.Hour)
		if err != nil || out.Text != "line 0" {
			f.Errorf("%+v, %v", out, err)
		}
		f.within(start, 0, "the first read")
		last, cursor := time.Now(), out.NextCursor
		for !strings.HasSuffix(out.Text, "line 30") {
			out, err = term.ReadOutput(f.Context(), cursor, time.Hour)
			if err != nil {
				f.Fatal(err)
			}
			if cursor > 6 {
				f.within(last, 250*time.Millisecond, "a line")
			}
			last, cursor = time.Now(), out.NextCursor
		}
		before := f.c.Count(output)
		ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
		defer cancel()
		term.ReadOutput(ctx, cursor, time.Hour)
		if n := f.c.Count(output) - before; n < 55 || n > 70 {
			f.Errorf("%d reads in a quiet minute", n)
		}
		time.Sleep(time.Minute)
		before = f.c.Count(output)
		time.Sleep(10 * time.Minute)
		if n := f.c.Count(output) - before; n != 20 {
			f.Errorf("%d reads in ten minutes that nobody read", n)
		}
	})
}

func TestAWaitThatAnswersTooEarly(t *testing.T) {
	// Output that was there already does not mean that the command runs on.
	for rule, test := range map[string]struct {
		waits   []any // the replies; the last one for the rest
		outcome terminal.Outcome
		bound   time.Duration
	}{
		"the second wait tells":  {[]any{map[string]any{}, map[string]any{"exitCode": 3}}, terminal.Exited, 2 * time.Second},
		"no wait ever tells":     {[]any{map[string]any{}}, terminal.Unknown, time.Minute},
		"a code that is no code": {[]any{map[string]any{"exitCode": 1 << 33}}, terminal.Unknown, time.Minute},
		"a negative one at once": {[]any{map[string]any{"exitCode": -9}}, terminal.Signalled, 2 * time.Second},
	} {
		t.Run(rule, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				f.c.Inject(fakeconn.Fault{Method: output, Reply: true, Edit: fakeconn.Remove("result.exitStatus")})
				for i, reply := range test.waits {
					n := i + 1
					if n == len(test.waits) {
						n = 0
					}
					f.c.Inject(fakeconn.Fault{Method: wait, N: n, Result: reply})
				}
				start := time.Now()
				term := f.start("parts hi 200ms")
				info := f.end(term)
				if info.Outcome != test.outcome || info.Exit.Success() {
					f.Errorf("%v, %v, %v; want %v", info.Outcome, info.Exit, info.Err, test.outcome)
				}
				if text := f.text(term); text != "hi" {
					f.Errorf("the output is %q", text)
				}
				f.within(start, test.bound, "the end")
			})
		})
	}
}

func TestAReadThatDoesNotWait(t *testing.T) {
	// Nobody has read for long: what the client shows by now is asked for, and
	// waited for as long as a read may take.
	run(t, nil, func(f *fixture) {
		term := f.start("parts '' 128s news 1h")
		time.Sleep(130 * time.Second)
		out, err := term.ReadOutput(f.Context(), 0, 0)
		if err != nil || out.Text != "news" {
			f.Errorf("%+v, %v", out, err)
		}
		time.Sleep(time.Minute)
		f.c.Inject(fakeconn.Fault{Method: output, Drop: true, N: 1})
		start := time.Now()
		out, err = term.ReadOutput(f.Context(), 0, 0)
		if err != nil || out.Text != "news" {
			f.Errorf("a client that does not answer: %+v, %v", out, err)
		}
		f.within(start, limits.PollMax, "the read")
	})
}

func TestAnEndThatOnlyTheOutputTells(t *testing.T) {
	// The client never answers terminal/wait_for_exit, and nobody reads: the end
	// is seen after about the time that the command ran.
	for _, d := range []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Second, 10 * time.Minute} {
		run(t, nil, func(f *fixture) {
			f.c.Inject(fakeconn.Fault{Method: wait, Drop: true})
			start := time.Now()
			info := f.end(f.start(fmt.Sprintf("parts '' %v end", d)))
			if info.Outcome != terminal.Exited || info.Exit.Code == nil {
				f.Errorf("%v: %v, %v, %v", d, info.Outcome, info.Exit, info.Err)
			}
			f.within(start, d+min(d, limits.PollIdle)+300*time.Millisecond, fmt.Sprint("a command of ", d))
		})
	}
}

func TestManyThatNobodyReads(t *testing.T) {
	// However many run, their outputs are read at most 40 times a second in all.
	const n = 1000
	runWith(t, &acpterm.Options{MaxTerminals: n}, &fakeconn.Options{Keep: -1, Memterm: &memterm.Options{MaxTerminals: n}}, func(f *fixture) {
		reads := f.c.Inject(fakeconn.Fault{Method: output, Reply: true, Edit: func(raw string) string { return raw }})
		for range n {
			f.start("sleep 1h")
		}
		last := 0
		for i := range 30 {
			time.Sleep(10 * time.Second)
			hits := reads.Hits()
			if hits-last > 10*40 {
				f.Errorf("%d reads in the ten seconds from %ds on", hits-last, 10*i)
			}
			last = hits
		}
		if last < n {
			f.Errorf("%d reads of %d outputs in five minutes", last, n)
		}
	})
}

func TestAStopWhileTheLastOutputIsRead(t *testing.T) {
	// The client does not answer, and whoever stops a command that has ended has
	// no longer grace period than for one that runs.
	run(t, nil, func(f *fixture) {
		term := f.start("parts text 10s ''")
		f.c.Inject(fakeconn.Fault{Method: output, Drop: true})
		time.Sleep(11 * time.Second)
		start := time.Now()
		info, err := term.Stop(f.Context())
		if err != nil || info.Outcome != terminal.Exited || info.Err == nil {
			f.Errorf("%v, %v, %v; %v", info.Outcome, info.Exit, info.Err, err)
		}
		f.within(start, limits.SettleTimeout-limits.ReleaseTimeout, "the stop")
	})
}

func TestNoReadFollowsTheRelease(t *testing.T) {
	// The kill is answered just when the output is to be read once more.
	for range 50 {
		run(t, nil, func(f *fixture) {
			term := f.start("sleep 1h")
			f.c.Inject(fakeconn.Fault{Method: kill, Reply: true, Delay: 3 * limits.PollMin})
			if _, err := term.Stop(f.Context()); err != nil {
				f.Error(err)
			}
		})
	}
}

func TestAMarkIsNoOutput(t *testing.T) {
	// Where the start of the kept output is in the middle of a mark, the rest of
	// the mark is not shown as if a program had written it.
	for limit := 100; limit < 140; limit++ {
		run(t, nil, func(f *fixture) {
			var parts strings.Builder
			for i := range 12 {
				fmt.Fprintf(&parts, "'output number %d,' 1s ", i)
			}
			term, err := f.m.Start(f.Context(), terminal.Command{Line: "parts " + parts.String() + "end", OutputLimit: limit})
			if err != nil {
				f.Fatal(err)
			}
			f.end(term)
			out, err := term.ReadOutput(f.Context(), 0, 0)
			if err != nil || !out.Truncated {
				f.Errorf("truncated: %v, %v", out.Truncated, err)
			}
			if rest := strings.ReplaceAll(out.Text, terminal.GapMark, ""); strings.Contains(rest, "]") {
				f.Errorf("with a limit of %d the output is %q", limit, out.Text)
			}
		})
	}
}

func TestOneReadAtATime(t *testing.T) {
	// Whatever many readers do: some clients empty their buffer by a read, or
	// answer only when there is something.
	run(t, nil, func(f *fixture) {
		var mu sync.Mutex
		var open, most int // guarded by mu
		count := func(d int) func(fakeconn.Line) bool {
			return func(fakeconn.Line) bool {
				mu.Lock()
				defer mu.Unlock()
				open += d
				most = max(most, open)
				return false
			}
		}
		f.c.Inject(fakeconn.Fault{Method: output, Match: count(+1)})
		f.c.Inject(fakeconn.Fault{Method: output, Reply: true, Match: count(-1)})
		f.c.Inject(fakeconn.Fault{Method: output, Delay: 3 * time.Second})
		term := f.start("lines 20 1s")
		var readers sync.WaitGroup
		for range 10 {
			readers.Go(func() { f.text(term) })
		}
		readers.Wait()
		f.end(term)
		mu.Lock()
		defer mu.Unlock()
		if most != 1 {
			f.Errorf("%d reads at a time", most)
		}
	})
}

func TestSessionsDoNotDisturbEachOther(t *testing.T) {
	// A session whose client never answers takes no time from another one.
	run(t, nil, func(f *fixture) {
		f.leaks = true
		f.c.Inject(fakeconn.Fault{Session: f.session, Drop: true})
		other, err := f.c.NewSession(f.Context(), "/other")
		if err != nil {
			f.Fatal(err)
		}
		var stuck sync.WaitGroup
		for range 10 {
			stuck.Go(func() { f.m.Start(f.Context(), terminal.Command{Line: "true"}) })
		}
		synctest.Wait()
		m := acpterm.New(f.c.Conn(), other, nil)
		start := time.Now()
		term, err := m.Start(f.Context(), terminal.Command{Line: "print hello"})
		if err != nil {
			f.Fatal(err)
		}
		f.check(f.end(term), terminal.Exited, code(0))
		f.within(start, 100*time.Millisecond, "the other session's command")
		if err := m.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
		stuck.Wait()
	})
}

func TestInsideTheHandlerOfACancel(t *testing.T) {
	// On a bare connection the SDK holds every response back while it handles a
	// notification. Stop waits no longer than its ctx, and the stop is not taken
	// back.
	t.Run("bare", func(t *testing.T) { stopInCancel(t, true, context.DeadlineExceeded) })
	t.Run("acpwire", func(t *testing.T) { stopInCancel(t, false, nil) })
}

func stopInCancel(t *testing.T, bare bool, want error) {
	synctest.Test(t, func(t *testing.T) {
		agent := &cancelAgent{t: t, want: want}
		c := fakeconn.New(&fakeconn.Options{Bare: bare, Agent: func(conn *acp.AgentSideConnection) acp.Agent {
			agent.conn = conn
			return agent
		}})
		session, err := c.NewSession(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		m := acpterm.New(agent.conn, session, nil)
		if agent.term, err = m.Start(t.Context(), terminal.Command{Line: "sleep 1h"}); err != nil {
			t.Fatal(err)
		}
		if err := c.Cancel(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		info, err := terminal.Wait(t.Context(), agent.term)
		if err != nil || info.Outcome != terminal.Stopped {
			t.Errorf("%+v, %v", info, err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("Close of the Manager: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close of the client: %v\n%s", err, c.Transcript())
		}
	})
}

// A cancelAgent stops its terminal inside the handler of session/cancel.
type cancelAgent struct {
	acp.Agent
	t    *testing.T
	conn *acp.AgentSideConnection
	term terminal.Terminal
	want error // of Stop
}

func (a *cancelAgent) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{ProtocolVersion: acp.ProtocolVersionNumber}, nil
}

func (a *cancelAgent) NewSession(context.Context, acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	return acp.NewSessionResponse{SessionId: "s"}, nil
}

func (a *cancelAgent) Cancel(context.Context, acp.CancelNotification) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	start := time.Now()
	if _, err := a.term.Stop(ctx); !errors.Is(err, a.want) {
		a.t.Errorf("Stop in the handler: %v", err)
	}
	if took := time.Since(start); took > time.Second {
		a.t.Errorf("Stop in the handler took %v", took)
	}
	return nil
}

func TestTheClientStopsReading(t *testing.T) {
	t.Parallel()
	// In real time: the SDK's writes block for ever, and ours return.
	if testing.Short() {
		t.Skip("takes some seconds of real time")
	}
	c := fakeconn.New(&fakeconn.Options{Programs: programs, Allow: []fakeconn.Rule{fakeconn.RuleRelease}})
	session, err := c.NewSession(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	m := acpterm.New(c.Conn(), session, nil)
	term, err := m.Start(t.Context(), terminal.Command{Line: "hold here"})
	if err != nil {
		t.Fatal(err)
	}
	c.Inject(fakeconn.Fault{Method: create, StopReading: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := m.Start(ctx, terminal.Command{Line: "true"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Start: %v", err)
	}
	start := time.Now()
	if info, err := term.Stop(t.Context()); err != nil || info.Outcome != terminal.Stopped {
		t.Errorf("Stop: %+v, %v", info, err)
	}
	if err := m.Close(); err == nil {
		t.Error("Close reports no leak")
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("Stop and Close took %v", took)
	}
	c.Close()
}

func TestTerminalID(t *testing.T) {
	run(t, nil, func(f *fixture) {
		term := f.start("true")
		id := f.m.TerminalID(term)
		if id == "" || id == term.Info().ID {
			f.Errorf("the client's id is %q, ours %q", id, term.Info().ID)
		}
		if got := f.m.TerminalID(struct{ terminal.Terminal }{term}); got != "" {
			f.Errorf("the id of a terminal that is none of a client: %q", got)
		}
		f.end(term)
	})
}

func TestTheClientClosesTheInputOnly(t *testing.T) {
	// What the client runs for an agent that is ending is killed and released,
	// each once: it still reads, and may live on.
	run(t, nil, func(f *fixture) {
		f.end(f.start("true"))
		f.start("ignore-term")
		term := f.start("hold here")
		f.count(release, 1)
		start := time.Now()
		f.c.EndInput()
		info := f.end(term)
		f.check(info, terminal.ConnectionLost, terminal.Exit{})
		if err := f.m.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
		f.within(start, 200*time.Millisecond, "all")
		f.count(kill, 2)
		f.count(release, 3)
		time.Sleep(2 * limits.StopGrace) // of the client
		if f.c.Memterm().Busy() {
			f.Error("a command runs on")
		}
	})
}

// stuck is a connection that has ended, on which kill and release are never done.
type stuck struct {
	acpterm.Conn
	done chan struct{}
}

func (s stuck) Done() <-chan struct{} { return s.done }

func (s stuck) KillTerminal(context.Context, acp.KillTerminalRequest) (r acp.KillTerminalResponse, err error) {
	time.Sleep(time.Hour)
	return r, err
}

func TestNobodyReadsAtTheEnd(t *testing.T) {
	// A client that has closed the input and reads nothing keeps no agent.
	run(t, nil, func(f *fixture) {
		conn := stuck{f.c.Conn(), make(chan struct{})}
		m := acpterm.New(conn, f.session, nil)
		if _, err := m.Start(f.Context(), terminal.Command{Line: "sleep 1h"}); err != nil {
			f.Fatal(err)
		}
		start := time.Now()
		close(conn.done)
		if err := m.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
		f.within(start, 200*time.Millisecond, "Close")
		time.Sleep(2 * time.Hour)
		f.count(release, 1)
	})
}

// waiting is a connection that has ended, on which a kill takes the time that it is
// given.
type waiting struct {
	acpterm.Conn
	done     chan struct{}
	released chan error // of the ctx of a release
}

func (w waiting) Done() <-chan struct{} { return w.done }

func (w waiting) KillTerminal(ctx context.Context, _ acp.KillTerminalRequest) (acp.KillTerminalResponse, error) {
	<-ctx.Done()
	return acp.KillTerminalResponse{}, ctx.Err()
}

func (w waiting) ReleaseTerminal(ctx context.Context, _ acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	w.released <- ctx.Err()
	return acp.ReleaseTerminalResponse{}, nil
}

func TestAKillAtTheEndLeavesTimeForTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeconn.New(nil)
		session, err := c.NewSession(t.Context(), "/work")
		if err != nil {
			t.Fatal(err)
		}
		conn := waiting{c.Conn(), make(chan struct{}), make(chan error, 1)}
		m := acpterm.New(conn, session, nil)
		if _, err := m.Start(t.Context(), terminal.Command{Line: "sleep 1s"}); err != nil {
			t.Fatal(err)
		}
		close(conn.done)
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		select {
		case err := <-conn.released:
			if err != nil {
				t.Errorf("the time for the release is over: %v", err)
			}
		default:
			t.Error("Close returns before the release")
		}
		_, _ = conn.Conn.ReleaseTerminal(t.Context(), acp.ReleaseTerminalRequest{SessionId: session, TerminalId: c.Host().Unreleased(session)[0]})
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A closing is a connection that ends as it answers a create.
type closing struct {
	acpterm.Conn
	done chan struct{}

	mu    sync.Mutex
	calls []string // guarded by mu
}

func (c *closing) Done() <-chan struct{} { return c.done }

func (c *closing) note(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, method)
}

func (c *closing) CreateTerminal(context.Context, acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	close(c.done)
	return acp.CreateTerminalResponse{TerminalId: "x"}, nil
}

func (c *closing) WaitForTerminalExit(context.Context, acp.WaitForTerminalExitRequest) (acp.WaitForTerminalExitResponse, error) {
	c.note(wait)
	return acp.WaitForTerminalExitResponse{}, errors.New("gone")
}

func (c *closing) TerminalOutput(context.Context, acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error) {
	c.note(output)
	return acp.TerminalOutputResponse{}, errors.New("gone")
}

func (c *closing) KillTerminal(context.Context, acp.KillTerminalRequest) (acp.KillTerminalResponse, error) {
	c.note(kill)
	return acp.KillTerminalResponse{}, errors.New("gone")
}

func (c *closing) ReleaseTerminal(context.Context, acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	c.note(release)
	return acp.ReleaseTerminalResponse{}, errors.New("gone")
}

// A terminal that comes as the connection ends is killed and released, and nothing
// else is asked of it.
func TestNothingIsAskedAfterTheEnd(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			c := &closing{done: make(chan struct{})}
			m := acpterm.New(c, "s", &acpterm.Options{Dir: "/work"})
			_, _ = m.Start(t.Context(), terminal.Command{Line: "true"})
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			if got := strings.Join(c.calls, " "); got != kill+" "+release {
				t.Errorf("the calls are %s", got)
			}
		})
	}
}

// A slowWrite is a connection whose writes of one method take long, and that notes
// what was written.
type slowWrite struct {
	closing
	method string
}

func (c *slowWrite) write(method string) {
	if method == c.method {
		time.Sleep(time.Minute)
	}
	c.note(method)
}

func (c *slowWrite) CreateTerminal(context.Context, acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	return acp.CreateTerminalResponse{TerminalId: "x"}, nil
}

func (c *slowWrite) WaitForTerminalExit(ctx context.Context, _ acp.WaitForTerminalExitRequest) (acp.WaitForTerminalExitResponse, error) {
	c.write(wait)
	<-ctx.Done()
	return acp.WaitForTerminalExitResponse{}, ctx.Err()
}

func (c *slowWrite) TerminalOutput(context.Context, acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error) {
	c.write(output)
	return acp.TerminalOutputResponse{}, nil
}

func (c *slowWrite) KillTerminal(context.Context, acp.KillTerminalRequest) (acp.KillTerminalResponse, error) {
	c.write(kill)
	return acp.KillTerminalResponse{}, nil
}

func (c *slowWrite) ReleaseTerminal(context.Context, acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	c.write(release)
	return acp.ReleaseTerminalResponse{}, nil
}

// A release is written behind every other request about its terminal, whichever of
// them is held up: behind it the id may be that of another terminal.
func TestAReleaseIsWrittenLast(t *testing.T) {
	for _, method := range []string{wait, output, kill} {
		synctest.Test(t, func(t *testing.T) {
			c := &slowWrite{method: method}
			m := acpterm.New(c, "s", &acpterm.Options{Dir: "/work"})
			term, err := m.Start(t.Context(), terminal.Command{Line: "true"})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if _, err := term.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			_ = m.Close() // a leak, by then
			time.Sleep(2 * time.Minute)
			c.mu.Lock()
			defer c.mu.Unlock()
			if i := slices.Index(c.calls, release); i < 0 || i != len(c.calls)-1 || !slices.Contains(c.calls, method) {
				t.Errorf("%s is slow: the calls are %v", method, c.calls)
			}
		})
	}
}

func TestSilentSuccess(t *testing.T) {
	// Of a client whose outputs never tell that the command has ended: it is
	// believed once the client has shown that it runs commands, in any session of
	// the connection.
	client := emulate.Behaviour{NoExitStatus: true}.Client(&fakeconn.Options{Programs: programs})
	runWith(t, nil, client, func(f *fixture) {
		shared := new(acpterm.Client)
		end := func(line string) terminal.Info {
			f.Helper()
			m := acpterm.New(f.c.Conn(), f.session, &acpterm.Options{Client: shared})
			term, err := m.Start(f.Context(), terminal.Command{Line: line})
			if err != nil {
				f.Fatal(err)
			}
			info := f.end(term)
			if err := m.Close(); err != nil {
				f.Error(err)
			}
			return info
		}
		f.check(end("true"), terminal.Unknown, terminal.Exit{})
		f.check(end("print hello"), terminal.Exited, code(0))
		f.check(end("true"), terminal.Exited, code(0))
		f.check(end("exit 3"), terminal.Exited, code(3))
		f.check(f.end(f.start("true")), terminal.Unknown, terminal.Exit{}) // it shares nothing
		f.check(f.end(f.start("exit 3")), terminal.Exited, code(3))
		f.check(f.end(f.start("true")), terminal.Exited, code(0))
	})
	// A client whose outputs do tell: one that does not is suspect for ever.
	run(t, nil, func(f *fixture) {
		f.check(f.end(f.start("true")), terminal.Exited, code(0))
		f.c.Inject(fakeconn.Fault{Method: output, Reply: true, Edit: fakeconn.Remove("result.exitStatus")})
		f.check(f.end(f.start("print hello")), terminal.Exited, code(0))
		f.check(f.end(f.start("true")), terminal.Unknown, terminal.Exit{})
	})
}

func TestADrainedOutput(t *testing.T) {
	// Each read gives only what is new, and the same text six times looks like one
	// that does not change.
	client := emulate.Behaviour{Destructive: true}.Client(&fakeconn.Options{Programs: programs})
	runWith(t, nil, client, func(f *fixture) {
		const again = "parts 'same\n' 1s 'same\n' 1s 'same\n' 1s 'same\n' 1s 'same\n' 1s 'same\n'"
		six := strings.Repeat("same\n", 6)
		for i := range 3 {
			term := f.start(again)
			got := f.text(term)
			if got != six && !strings.Contains(got, terminal.GapMark) {
				f.Errorf("command %d: %q: neither all of it, nor a mark", i, got)
			}
			f.end(term)
			if i > 0 && got != six {
				f.Errorf("command %d: %q, and the client is known by now", i, got)
			}
			if i == 0 {
				f.end(f.start("print 'a longer text'")) // that is read twice after its end
			}
		}
	})
}

func TestTheLastWindowStandsStill(t *testing.T) {
	// While a command runs, a full window of equal lines may have slid. After its
	// end it has not: there is one mark for what was lost, and none behind the text.
	run(t, &acpterm.Options{OutputLimit: 396}, func(f *fixture) {
		term := f.start("repeat 200 'yes\n'")
		f.end(term)
		text := f.text(term)
		if strings.HasSuffix(text, terminal.GapMark) {
			f.Errorf("a mark behind the text: %q", text[max(0, len(text)-60):])
		}
	})
}

func TestAKillThatIsRefusedReleasesAtOnce(t *testing.T) {
	// Nothing but the release can end the command then.
	for name, refused := range map[string]*acp.RequestError{
		"refused": acp.NewInternalError("no"),
		"unknown": acp.NewMethodNotFound(kill),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				f.c.Inject(fakeconn.Fault{Method: kill, Error: refused})
				term := f.start("hold here")
				time.Sleep(time.Minute)
				start := time.Now()
				info, err := term.Stop(f.Context())
				f.count(release, 1)
				f.within(start, 0, "the stop and the release")
				var re *acp.RequestError
				if err != nil || info.Outcome != terminal.Stopped || !errors.As(info.Err, &re) {
					f.Errorf("%s, %v; %v", info.Outcome, info.Err, err)
				}
				if got := f.text(term); got != "here" {
					f.Errorf("output %q", got)
				}
			})
		})
	}
}

func TestTheKillIsAnsweredBeforeTheRelease(t *testing.T) {
	// The end shows sooner, and the release waits for the answer to the kill.
	run(t, nil, func(f *fixture) {
		f.c.Inject(fakeconn.Fault{Method: kill, Reply: true, Delay: time.Second})
		term := f.start("hold here")
		start := time.Now()
		if _, err := term.Stop(f.Context()); err != nil {
			f.Error(err)
		}
		if took := time.Since(start); took < time.Second {
			f.Errorf("stopped after %v, and the kill was answered after 1 s", took)
		}
		f.count(release, 1)
	})
}

func TestAnIDThatComesAgainCostsNothing(t *testing.T) {
	// Its release is not answered, and a client that gives the id again has done it.
	// The second command is not hit by another release of the first.
	c := &script{}
	synctest.Test(t, func(t *testing.T) {
		c.done, c.never = make(chan struct{}), make(chan struct{})
		m := acpterm.New(c, "s", nil)
		first, err := m.Start(t.Context(), terminal.Command{Line: "true"})
		if err != nil {
			t.Fatal(err)
		}
		<-first.Done()
		time.Sleep(time.Second)
		start := time.Now()
		second, err := m.Start(t.Context(), terminal.Command{Line: "true"})
		if took := time.Since(start); err != nil || took > 0 {
			t.Errorf("the start took %v, %v", took, err)
		}
		if n := c.released.Load(); n != 1 {
			t.Errorf("%d releases", n)
		}
		<-second.Done()
		time.Sleep(time.Hour)
		if err := m.Close(); err == nil {
			t.Error("Close reports no leak of the second")
		}
		if n := c.released.Load(); n != 3 { // the first once, the second twice
			t.Errorf("%d releases, want 3", n)
		}
		close(c.never)
	})
}

// A script is a client whose commands end at once, whose only id is "t", and which
// never answers a release.
type script struct {
	acpterm.Conn
	done, never chan struct{}
	released    atomic.Int64
}

func (c *script) Done() <-chan struct{} { return c.done }

func (c *script) CreateTerminal(context.Context, acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	return acp.CreateTerminalResponse{TerminalId: "t"}, nil
}

func (c *script) WaitForTerminalExit(context.Context, acp.WaitForTerminalExitRequest) (acp.WaitForTerminalExitResponse, error) {
	return acp.WaitForTerminalExitResponse{ExitCode: new(0)}, nil
}

func (c *script) TerminalOutput(context.Context, acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error) {
	return acp.TerminalOutputResponse{ExitStatus: &acp.TerminalExitStatus{ExitCode: new(0)}}, nil
}

func (c *script) ReleaseTerminal(context.Context, acp.ReleaseTerminalRequest) (r acp.ReleaseTerminalResponse, err error) {
	c.released.Add(1)
	<-c.never
	return r, err
}

func TestNoReleaseIsRepeatedWithoutNeed(t *testing.T) {
	// Answers that come after the bound of a release count: nothing is released
	// again, whenever that is.
	run(t, nil, func(f *fixture) {
		f.c.Inject(fakeconn.Fault{Method: release, Reply: true, Delay: limits.ReleaseTimeout + time.Second})
		for range 20 {
			f.start("true")
		}
		time.Sleep(time.Hour)
		if err := f.m.Close(); err != nil {
			f.Error(err)
		}
		f.count(release, 20)
	})
	run(t, nil, func(f *fixture) {
		f.c.Inject(fakeconn.Fault{Method: release, Reply: true, Delay: limits.ReleaseTimeout})
		for range 20 {
			f.start("sleep 1h")
		}
		if err := f.m.Close(); err != nil { // waits for the answers
			f.Error(err)
		}
		f.count(release, 20)
	})
}

func TestPollsDoNotBackOffWhileOutputFlows(t *testing.T) {
	// Although nobody reads it.
	run(t, nil, func(f *fixture) {
		term := f.start("lines 600 200ms")
		time.Sleep(time.Minute)
		before := f.c.Count(output)
		time.Sleep(time.Minute - time.Second)
		if n := f.c.Count(output) - before; n < 50 {
			f.Errorf("%d reads in a minute of output", n)
		}
		f.end(term)
	})
}

func TestTheFirstOutputHasOneTime(t *testing.T) {
	run(t, nil, func(f *fixture) {
		start := time.Now()
		term := f.start("parts '' 10s one 10s two 10s three")
		f.text(term)
		first := f.end(term).FirstOutput
		if first.Before(start.Add(10*time.Second)) || first.After(start.Add(11*time.Second)) {
			f.Errorf("the first output came after %v, want 10 s", first.Sub(start))
		}
	})
}

func TestARefreshIsNoOlderRead(t *testing.T) {
	// A read that was sent before tells what was then.
	run(t, nil, func(f *fixture) {
		term := f.start("parts one 10s two 1h")
		if out, err := term.ReadOutput(f.Context(), 0, time.Minute); err != nil || out.Text != "one" {
			f.Fatalf("%+v, %v", out, err)
		}
		time.Sleep(9 * time.Second) // it is read seldom now
		slow := f.c.Inject(fakeconn.Fault{Method: output, Reply: true, N: 1, Delay: 3 * time.Second})
		go term.ReadOutput(f.Context(), 3, time.Millisecond) // has it read at once
		time.Sleep(2500 * time.Millisecond)
		if slow.Hits() != 1 {
			f.Fatal("no read is under way")
		}
		if out, err := term.ReadOutput(f.Context(), 0, 0); err != nil || out.Text != "onetwo" {
			f.Errorf("%q, %v", out.Text, err)
		}
	})
}

func TestCreateIsBoundedByTheProfile(t *testing.T) {
	// A client that asks its user first has more time.
	for _, asks := range []bool{false, true} {
		run(t, &acpterm.Options{Profile: acpterm.Profile{Asks: asks}}, func(f *fixture) {
			f.c.Inject(fakeconn.Fault{Method: create, Delay: 4 * time.Minute})
			start := time.Now()
			term, err := f.m.Start(f.Context(), terminal.Command{Line: "true"})
			if (err == nil) != asks {
				f.Errorf("asks %v: %v", asks, err)
			}
			if !asks && time.Since(start) != limits.CreateTimeout {
				f.Errorf("given up after %v", time.Since(start))
			}
			if term != nil {
				f.end(term)
			}
			time.Sleep(10 * time.Minute)
		})
	}
	run(t, &acpterm.Options{Profile: acpterm.Profile{Asks: true}}, func(f *fixture) {
		f.c.Inject(fakeconn.Fault{Method: create, Delay: 6 * time.Minute})
		start := time.Now()
		if _, err := f.m.Start(f.Context(), terminal.Command{Line: "true"}); err == nil || time.Since(start) != limits.PermitTimeout {
			f.Errorf("asks and is not answered: %v after %v; want an error after %v", err, time.Since(start), limits.PermitTimeout)
		}
		time.Sleep(10 * time.Minute)
	})
}

// A panicHost is a Host that panics.
type panicHost struct{ method string }

func (h panicHost) Env(string) (name, value string) {
	if h.method == "Env" {
		panic("Env")
	}
	return "TAG", "x"
}

func (h panicHost) Find(string) []terminal.Proc {
	if h.method == "Find" {
		panic("Find")
	}
	return nil
}

func (h panicHost) End(string, time.Time) (found, left []terminal.Proc) {
	if h.method == "End" {
		panic("End")
	}
	return nil, nil
}

// Whatever of the caller's panics, a command runs once and is released once, its slot
// comes back, and Close has nothing to report.
func TestCallbacksThatPanic(t *testing.T) {
	for _, name := range []string{"NewID", "Sent", "Created", "Releasing", "Done", "Env", "Find", "End"} {
		t.Run(name, func(t *testing.T) {
			boom := func(which string) {
				if which == name {
					panic(which)
				}
			}
			ids := 0
			o := &acpterm.Options{MaxTerminals: 1, Host: panicHost{name}, NewID: func() string {
				ids++
				boom("NewID")
				return strconv.Itoa(ids)
			}}
			run(t, o, func(f *fixture) {
				hooks := acpterm.Hooks{
					Sent:      func() { boom("Sent") },
					Created:   func(context.Context, terminal.Terminal) { boom("Created") },
					Releasing: func(context.Context) { boom("Releasing") },
					Done:      func() { boom("Done") },
				}
				for range 3 {
					term, err := f.m.StartWith(f.Context(), terminal.Command{Line: "hold x"}, hooks)
					if name == "NewID" {
						if term != nil || err == nil || !strings.Contains(err.Error(), "panicked: NewID") {
							f.Fatalf("got %v, %v", term, err)
						}
						continue
					}
					if err != nil {
						f.Fatal(err)
					}
					time.Sleep(time.Minute)
					if info, err := term.Stop(f.Context()); err != nil || info.Outcome != terminal.Stopped {
						f.Errorf("Stop: %v, %v", info, err)
					}
				}
				want := 3
				if name == "NewID" {
					want = 0
				}
				time.Sleep(time.Minute)
				f.count(create, want)
				f.count(release, want)
			})
		})
	}
}

// A request that the client never answers keeps no release back.
func TestNoRequestKeepsTheReleaseBack(t *testing.T) {
	for _, method := range []string{wait, output, kill} {
		t.Run(method, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				f.c.Inject(fakeconn.Fault{Method: method, Drop: true})
				term := f.start("hold x")
				time.Sleep(time.Second)
				if _, err := term.Stop(f.Context()); err != nil {
					f.Error(err)
				}
				time.Sleep(limits.SettleTimeout)
				f.count(release, 1)
			})
		})
	}
	t.Run("a terminal that came too late", func(t *testing.T) {
		run(t, nil, func(f *fixture) {
			f.c.Inject(fakeconn.Fault{Method: create, Reply: true, Delay: time.Second})
			f.c.Inject(fakeconn.Fault{Method: kill, Drop: true})
			ctx, cancel := context.WithTimeout(f.Context(), time.Millisecond)
			defer cancel()
			if _, err := f.m.Start(ctx, terminal.Command{Line: "hold x"}); err == nil {
				f.Error("it has started")
			}
			time.Sleep(limits.SettleTimeout)
			f.count(kill, 1)
			f.count(release, 1)
		})
	})
}

// With the connection a release ends that was not answered, and so does each request
// of its terminal, also on a connection whose calls heed only their ctx, or nothing.
func TestTheEndOfTheConnectionSettles(t *testing.T) {
	for _, when := range []string{"running", "stopping", "releasing", "late"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &hanging{closing: closing{done: make(chan struct{})}, free: make(chan struct{})}
				m := acpterm.New(c, "s", &acpterm.Options{Dir: "/work"})
				var settled atomic.Int32
				hooks := acpterm.Hooks{Done: func() { settled.Add(1) }}
				ctx, cancel := context.WithCancel(t.Context())
				if when == "late" {
					c.slow = time.Second
					time.AfterFunc(time.Millisecond, cancel)
				}
				term, err := m.StartWith(ctx, terminal.Command{Line: "true"}, hooks)
				cancel()
				if (err != nil) != (when == "late") {
					t.Fatal(err)
				}
				var stopped sync.WaitGroup
				if when == "stopping" || when == "releasing" {
					stopped.Go(func() { _, _ = term.Stop(t.Context()) })
				}
				if when == "releasing" {
					time.Sleep(limits.KillTimeout + limits.ReleaseTimeout/2)
				} else {
					time.Sleep(time.Second + limits.KillTimeout/2)
				}
				close(c.done)
				time.Sleep(time.Second)
				if n := settled.Load(); n != 1 {
					t.Errorf("Done was called %d times, want 1", n)
				}
				if n := c.heeding.Load(); n != 0 {
					t.Errorf("%d requests have a ctx that has not ended", n)
				}
				if err := m.Close(); err != nil {
					t.Error(err)
				}
				stopped.Wait()
				close(c.free)
			})
		})
	}
}

// A hanging connection answers no request but create before its ctx ends, and a
// release not at all.
type hanging struct {
	closing
	slow    time.Duration // of create
	free    chan struct{} // closed by the test at its end
	heeding atomic.Int64  // requests that wait for their ctx
}

func (c *hanging) hang(ctx context.Context) error {
	c.heeding.Add(1)
	defer c.heeding.Add(-1)
	<-ctx.Done()
	return ctx.Err()
}

func (c *hanging) CreateTerminal(context.Context, acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	time.Sleep(c.slow)
	return acp.CreateTerminalResponse{TerminalId: "x"}, nil
}

func (c *hanging) WaitForTerminalExit(ctx context.Context, _ acp.WaitForTerminalExitRequest) (r acp.WaitForTerminalExitResponse, err error) {
	return r, c.hang(ctx)
}

func (c *hanging) TerminalOutput(ctx context.Context, _ acp.TerminalOutputRequest) (r acp.TerminalOutputResponse, err error) {
	return r, c.hang(ctx)
}

func (c *hanging) KillTerminal(ctx context.Context, _ acp.KillTerminalRequest) (r acp.KillTerminalResponse, err error) {
	return r, c.hang(ctx)
}

func (c *hanging) ReleaseTerminal(context.Context, acp.ReleaseTerminalRequest) (r acp.ReleaseTerminalResponse, err error) {
	<-c.free
	return r, nil
}
