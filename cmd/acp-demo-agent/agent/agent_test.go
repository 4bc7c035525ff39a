package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A fixture is an agent with a fake client, in fake time. What the client's
// terminals run and what runs locally are both memterm programs.
type fixture struct {
	*testing.T
	*fakeconn.Client
	local *memterm.Manager // of the session
	dir   string
	id    acp.SessionId
}

// A kind of client, and how it shows commands.
type kind struct {
	presentation bridge.Presentation
	options      fakeconn.Options
}

var kinds = []kind{
	{bridge.PresentClient, fakeconn.Options{Display: true}},
	{bridge.PresentDisplay, fakeconn.Options{NoTerminal: true, Display: true}},
	{bridge.PresentText, fakeconn.Options{NoTerminal: true}},
}

// with runs f with an agent and a client of this kind that has one session. Then
// it closes all and fails the test for anything that is left, or that broke the
// rules of the wire.
func with(t *testing.T, k kind, o *agent.Options, f func(*fixture)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		fix := &fixture{T: t, dir: dir}
		var ids atomic.Int64
		opts := agent.Options{}
		if o != nil {
			opts = *o
		}
		opts.Local = func(acp.SessionId) terminal.Manager {
			programs := fakeconn.Programs()
			maps.Copy(programs, k.options.Programs)
			fix.local = memterm.New(&memterm.Options{
				Programs: programs,
				NewID:    func() string { return "local-" + strconv.FormatInt(ids.Add(1), 10) },
			})
			return fix.local
		}
		client := k.options
		client.Agent = func(conn *acp.AgentSideConnection) acp.Agent {
			a := agent.New(&opts)
			a.SetAgentConnection(conn)
			return a
		}
		fix.Client = fakeconn.New(&client)
		id, err := fix.NewSession(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		fix.id = id
		f(fix)
		// The test may have closed the session itself.
		_, _ = fix.Peer().CloseSession(t.Context(), acp.CloseSessionRequest{SessionId: id})
		if err := fix.Client.Close(); err != nil {
			t.Errorf("close: %v\n%s", err, fix.Transcript())
		}
	})
}

// eachKind runs f with every kind of client.
func eachKind(t *testing.T, f func(*fixture, bridge.Presentation)) {
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			with(t, k, nil, func(f2 *fixture) { f(f2, k.presentation) })
		})
	}
}

// starts returns how often a program ran, anywhere.
func (f *fixture) starts(name string) int {
	n := f.Memterm().Starts(name)
	if f.local != nil {
		n += f.local.Starts(name)
	}
	return n
}

// ask sends a prompt that must end the turn normally and returns its cards.
func (f *fixture) ask(lines ...string) []acphost.Card {
	f.Helper()
	before := len(f.Host().Cards(f.id))
	resp, err := f.Prompt(f.Context(), f.id, strings.Join(lines, "\n"))
	if err != nil || resp.StopReason != acp.StopReasonEndTurn {
		f.Fatalf("prompt %q: %q, %v\n%s", lines, resp.StopReason, err, f.Transcript())
	}
	return f.Host().Cards(f.id)[before:]
}

// one is ask for one line, and decodes its rawOutput.
func (f *fixture) one(line string) (acphost.Card, agent.ReadReport) {
	f.Helper()
	cards := f.ask(line)
	if len(cards) != 1 {
		f.Fatalf("%q: %d tool calls\n%s", line, len(cards), f.Transcript())
	}
	return cards[0], report(f.T, cards[0])
}

func report(t *testing.T, c acphost.Card) (r agent.ReadReport) {
	t.Helper()
	b, err := json.Marshal(c.RawOutput)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Errorf("rawOutput %s: %v", b, err)
	}
	return r
}

func check[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func contains(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: %q\nwant it to have %q", what, got, want)
	}
}

func TestRun(t *testing.T) {
	eachKind(t, func(f *fixture, p bridge.Presentation) {
		card, r := f.one(`!echo 'a  b'`)
		check(f.T, "title", card.Title, "echo 'a  b'")
		check(f.T, "kind", card.Kind, acp.ToolKindExecute)
		check(f.T, "status", card.Status, acp.ToolCallStatusCompleted)
		check(f.T, "rawInput", card.RawInput, any(map[string]any{"command": "echo 'a  b'", "cwd": f.dir}))
		contains(f.T, "what the user sees", card.Visible(), "a  b")
		check(f.T, "outcome", r.Outcome, terminal.Exited)
		check(f.T, "exit code", r.ExitCode, new(0))
		check(f.T, "signal", r.Signal, nil)
		check(f.T, "output", r.Output, "a  b\n")
		check(f.T, "truncated", r.Truncated, false)
		check(f.T, "presentation", r.Presentation, p)
		check(f.T, "error", r.Error, "")
		if (r.TerminalID != "") != (p == bridge.PresentClient) {
			f.Errorf("terminalId %q with %s", r.TerminalID, p)
		}
		if r.ID == "" {
			f.Error("no id")
		}
		contains(f.T, "message", f.Messages(), "`echo 'a  b'` exited with code 0")
	})
}

// The rawOutput is an interface: these are its names and types.
func TestRawOutputNames(t *testing.T) {
	with(t, kinds[0], nil, func(f *fixture) {
		names := func(c acphost.Card) (names []string) {
			for name, v := range c.RawOutput.(map[string]any) {
				names = append(names, fmt.Sprintf("%s:%T", name, v))
			}
			slices.Sort(names)
			return names
		}
		base := []string{
			"durationMs:float64", "exitCode:float64", "id:string", "outcome:string", "output:string",
			"presentation:string", "signal:<nil>", "terminalId:string", "truncated:bool",
		}
		card, _ := f.one("!exit 3")
		check(f.T, "run", names(card), base)
		card, _ = f.one("!signal SIGKILL")
		want := slices.Clone(base)
		want[1], want[6] = "exitCode:<nil>", "signal:string"
		check(f.T, "a signal", names(card), want)
		_, r := f.one("bg -- sleep 1h")
		card, _ = f.one("output " + r.ID)
		want = slices.Insert(slices.Clone(base), 3, "more:bool", "nextCursor:float64")
		want[1] = "exitCode:<nil>"
		want[2], want[3], want[4], want[5] = "id:string", "more:bool", "nextCursor:float64", "outcome:string"
		check(f.T, "output", names(card), want)
		card, _ = f.one("jobs")
		job := card.RawOutput.(map[string]any)["jobs"].([]any)[0].(map[string]any)
		if _, has := job["output"]; has || len(job) != len(base)-1 {
			f.Errorf("a job is %v; want what run has, without output", job)
		}
	})
}

func TestOutcomes(t *testing.T) {
	eachKind(t, func(f *fixture, p bridge.Presentation) {
		tests := []struct {
			line    string
			status  acp.ToolCallStatus
			outcome terminal.Outcome
			code    *int
			signal  *string
			output  string
			message string
		}{
			{"!exit 3", acp.ToolCallStatusFailed, terminal.Exited, new(3), nil, "", "exited with code 3"},
			{"!fail broken", acp.ToolCallStatusFailed, terminal.Exited, new(1), nil, "broken", "exited with code 1"},
			{"!signal SIGKILL", acp.ToolCallStatusFailed, terminal.Signalled, nil, new("SIGKILL"), "", "ended by SIGKILL"},
			{"run --timeout 2.5 -- lines 100 1s", acp.ToolCallStatusFailed, terminal.TimedOut, nil, nil,
				"line 1\nline 2\nline 3\n", "reached its timeout"},
			{"!no-such-program", acp.ToolCallStatusFailed, terminal.Exited, new(127), nil, "not found", "exited with code 127"},
		}
		for _, tt := range tests {
			card, r := f.one(tt.line)
			check(f.T, tt.line+": status", card.Status, tt.status)
			check(f.T, tt.line+": outcome", r.Outcome, tt.outcome)
			if tt.outcome != terminal.TimedOut { // how a stop ends a program is the program's matter
				check(f.T, tt.line+": code", r.ExitCode, tt.code)
				check(f.T, tt.line+": signal", r.Signal, tt.signal)
			}
			contains(f.T, tt.line+": output", r.Output, tt.output)
			contains(f.T, tt.line+": message", f.Messages(), tt.message)
		}
	})
}

func TestLinesRunInOrderAndGoOn(t *testing.T) {
	eachKind(t, func(f *fixture, _ bridge.Presentation) {
		begin := time.Now()
		cards := f.ask("!sleep 2", "!exit 1", "what?", "run --timeout x -- echo no", "!sleep 3")
		var titles []string
		for _, c := range cards {
			titles = append(titles, c.Title+" "+string(c.Status))
		}
		check(f.T, "cards", titles, []string{
			"sleep 2 completed", "exit 1 failed", "run --timeout x -- echo no failed", "sleep 3 completed",
		})
		if took := time.Since(begin); took < 5*time.Second {
			f.Errorf("it took %v; one after the other takes 5 s", took)
		}
		check(f.T, "starts of echo", f.starts("echo"), 0)
	})
}

func TestParallel(t *testing.T) {
	eachKind(t, func(f *fixture, _ bridge.Presentation) {
		begin := time.Now()
		cards := f.ask("parallel", "!sleep 10", "!sleep 10", "!exit 2", "run -- sleep 10")
		if took := time.Since(begin); took > 19*time.Second {
			f.Errorf("it took %v; at once it takes 10 s", took)
		}
		// The cards come in any order. Their numbers are those of the lines.
		statuses := map[acp.ToolCallId]acp.ToolCallStatus{}
		for _, c := range cards {
			statuses[c.ID] = c.Status
		}
		check(f.T, "statuses", statuses, map[acp.ToolCallId]acp.ToolCallStatus{
			"call_1": acp.ToolCallStatusCompleted,
			"call_2": acp.ToolCallStatusCompleted,
			"call_3": acp.ToolCallStatusFailed,
			"call_4": acp.ToolCallStatusCompleted,
		})
	})
}

func TestFlags(t *testing.T) {
	eachKind(t, func(f *fixture, _ bridge.Presentation) {
		_, r := f.one("run --env A_NAME=1 --env OTHER='x y' -- env")
		contains(f.T, "env", r.Output, "A_NAME=1\n")
		contains(f.T, "env", r.Output, "OTHER=x y\n")
		_, r = f.one("!pwd")
		check(f.T, "the session's directory", r.Output, f.dir+"\n")
		other := filepath.Dir(f.dir)
		card, r := f.one("run --dir " + other + " -- pwd")
		check(f.T, "--dir", r.Output, other+"\n")
		check(f.T, "cwd of rawInput", card.RawInput.(map[string]any)["cwd"], any(other))
		_, r = f.one(`run --argv -- echo "a  b" '$HOME' *`)
		check(f.T, "--argv", r.Output, "a  b $HOME *\n")
		_, r = f.one("run --limit 64 -- lines 100 1ms")
		if len(r.Output) > 64 || !strings.HasSuffix(r.Output, "line 100\n") || !r.Truncated {
			f.Errorf("--limit 64: truncated %v, %d bytes %q", r.Truncated, len(r.Output), r.Output)
		}
	})
}

func TestBackground(t *testing.T) {
	eachKind(t, func(f *fixture, p bridge.Presentation) {
		card, r := f.one("bg -- lines 3 10s")
		check(f.T, "bg: kind", card.Kind, acp.ToolKindExecute)
		check(f.T, "bg: status", card.Status, acp.ToolCallStatusCompleted)
		check(f.T, "bg: outcome", r.Outcome, terminal.Running)
		check(f.T, "bg: exit code", r.ExitCode, nil)
		check(f.T, "bg: presentation", r.Presentation, p)
		id := r.ID

		card, r = f.one("output " + id + " --wait 2s")
		check(f.T, "output: kind", card.Kind, acp.ToolKindOther)
		check(f.T, "output: status", card.Status, acp.ToolCallStatusCompleted)
		check(f.T, "output", strings.ReplaceAll(r.Output, "\r", ""), "line 1\n")
		check(f.T, "output: outcome", r.Outcome, terminal.Running)
		check(f.T, "output: presentation", r.Presentation, p)
		check(f.T, "output: id", r.ID, id)
		cursor := r.NextCursor

		_, r = f.one(fmt.Sprintf("output %s --since %d", id, cursor))
		check(f.T, "nothing new", r.Output, "")
		_, r = f.one(fmt.Sprintf("output %s --since %d --wait 1m", id, cursor))
		check(f.T, "the next line", r.Output, "line 2\n")

		_, r = f.one("wait " + id + " --timeout 1s")
		check(f.T, "a short wait: outcome", r.Outcome, terminal.Running)
		contains(f.T, "a short wait", r.Error, "still runs after 1s")
		card, r = f.one("wait " + id)
		check(f.T, "wait: status", card.Status, acp.ToolCallStatusCompleted)
		check(f.T, "wait: outcome", r.Outcome, terminal.Exited)
		check(f.T, "wait: exit code", r.ExitCode, new(0))
		check(f.T, "wait: output", r.Output, "line 1\nline 2\nline 3\n")

		card, r = f.one("kill " + id)
		check(f.T, "kill of an ended command: status", card.Status, acp.ToolCallStatusCompleted)
		check(f.T, "kill of an ended command: outcome", r.Outcome, terminal.Exited)
		_, r = f.one("output " + id)
		check(f.T, "output of an ended command", r.Output, "line 1\nline 2\nline 3\n")

		_, r = f.one("bg --timeout 5 -- lines 100 2s")
		_, r = f.one("wait " + r.ID)
		check(f.T, "timeout in the background: outcome", r.Outcome, terminal.TimedOut)
		check(f.T, "timeout in the background: output", r.Output, "line 1\nline 2\nline 3\n")

		_, r = f.one("bg -- sleep 1h")
		card, r = f.one("kill " + r.ID)
		check(f.T, "kill: status", card.Status, acp.ToolCallStatusCompleted)
		check(f.T, "kill: outcome", r.Outcome, terminal.Stopped)
	})
}

func TestJobs(t *testing.T) {
	eachKind(t, func(f *fixture, p bridge.Presentation) {
		jobs := func() (jobs agent.JobsReport) {
			card, _ := f.one("jobs")
			check(f.T, "status", card.Status, acp.ToolCallStatusCompleted)
			b, _ := json.Marshal(card.RawOutput)
			if err := json.Unmarshal(b, &jobs); err != nil {
				f.Fatal(err)
			}
			return jobs
		}
		if n := jobs().Jobs; n == nil || len(n) != 0 {
			f.Errorf("jobs at the start: %v; want an empty list", n)
		}
		f.ask("!true") // no job
		_, first := f.one("bg -- sleep 1h")
		_, second := f.one("bg -- exit 4")
		f.one("wait " + second.ID)
		got := jobs().Jobs
		if len(got) != 2 {
			f.Fatalf("jobs: %+v", got)
		}
		check(f.T, "ids", []string{got[0].ID, got[1].ID}, []string{first.ID, second.ID})
		check(f.T, "outcomes", []terminal.Outcome{got[0].Outcome, got[1].Outcome}, []terminal.Outcome{terminal.Running, terminal.Exited})
		check(f.T, "exit code", got[1].ExitCode, new(4))
		check(f.T, "presentation", got[0].Presentation, p)
	})
}

func TestInput(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			with(t, k, nil, func(f *fixture) {
				_, r := f.one("bg --input -- cat")
				if r.Presentation == bridge.PresentClient || r.TerminalID != "" {
					f.Errorf("a command with input: presentation %s, terminal %q; clients have no input", r.Presentation, r.TerminalID)
				}
				check(f.T, "starts in the client", f.Memterm().Starts("cat"), 0)
				id := r.ID
				card, _ := f.one("input " + id + ` one\ntwo\n`)
				check(f.T, "input: status", card.Status, acp.ToolCallStatusCompleted)
				check(f.T, "input: kind", card.Kind, acp.ToolKindOther)
				var all string
				for cursor := int64(0); strings.Count(all, "two") < 2; { // echo, and cat
					_, r := f.one(fmt.Sprintf("output %s --since %d --wait 10s", id, cursor))
					if r.Output == "" {
						f.Fatalf("output so far: %q", all)
					}
					all, cursor = all+r.Output, r.NextCursor
				}
				f.one("input " + id + ` \x03`)
				_, r = f.one("wait " + id + " --timeout 1m")
				check(f.T, "after Ctrl-C", r.Outcome, terminal.Signalled)

				card, r = f.one("input " + id + " more")
				check(f.T, "input after the end: status", card.Status, acp.ToolCallStatusFailed)
				contains(f.T, "input after the end", r.Error, "has ended")

				_, r = f.one("bg -- sleep 1h")
				card, r = f.one("input " + r.ID + ` x\n`)
				check(f.T, "without --input: status", card.Status, acp.ToolCallStatusFailed)
				contains(f.T, "without --input", r.Error, "without --input")
			})
		})
	}
}

func TestUnknownID(t *testing.T) {
	with(t, kinds[0], nil, func(f *fixture) {
		card, r := f.one("output nothing")
		check(f.T, "status", card.Status, acp.ToolCallStatusFailed)
		contains(f.T, "without commands", r.Error, `no command "nothing" in this session: none was started yet`)
		_, a := f.one("bg -- sleep 1h")
		_, b := f.one("bg -- sleep 1h")
		for _, line := range []string{"output x", "input x y", "wait x", "kill x"} {
			card, r := f.one(line)
			check(f.T, line+": status", card.Status, acp.ToolCallStatusFailed)
			check(f.T, line+": outcome", r.Outcome, terminal.Failed)
			contains(f.T, line, r.Error, `no command "x" in this session: there are `+a.ID+", "+b.ID)
		}
	})
}

func TestUnknownLines(t *testing.T) {
	with(t, kinds[0], nil, func(f *fixture) {
		for prompt, want := range map[string]string{
			"hello there": "I do not know what to do with `hello there`. To run it, write `!` before it",
			" \n ":        "There is no line to run",
			"parallel":    "There is no line to run",
			"é`x`":        "`é'x'`",
		} {
			if cards := f.ask(prompt); len(cards) != 0 {
				f.Errorf("%q made a tool call: %+v", prompt, cards)
			}
			contains(f.T, prompt, f.Messages(), want)
		}
		card, _ := f.one("help")
		check(f.T, "help: status", card.Status, acp.ToolCallStatusCompleted)
		check(f.T, "help: kind", card.Kind, acp.ToolKindOther)
		for _, verb := range []string{"!LINE", "run ", "bg ", "jobs", "output ID", "input ID TEXT", "wait ID", "kill ID", "parallel"} {
			contains(f.T, "help", f.Messages(), verb)
		}
	})
}

// A command that must not run leaves no trace of a start anywhere.
func TestNothingRuns(t *testing.T) {
	refuse := fakeconn.Fault{Method: acp.ClientMethodTerminalCreate,
		Error: &acp.RequestError{Code: -32603, Message: "the user said no"}}
	tests := []struct {
		name string
		line string
		kind kind
		opts *agent.Options
		want string
	}{
		{"a refused create", "!echo x", kinds[0], nil, "the user said no"},
		{"a refused create in the background", "bg -- echo x", kinds[0], nil, "the user said no"},
		{"a client without terminals, required", "!echo x", kinds[2], &agent.Options{Policy: bridge.Require}, "the client offers no terminals"},
		{"input where the client is required", "bg --input -- echo x", kinds[0], &agent.Options{Policy: bridge.Require}, "no input"},
		{"a missing directory", "run --dir /no/such/dir -- echo x", kinds[0], nil, `--dir "/no/such/dir" does not exist`},
		{"a relative directory", "run --dir sub -- echo x", kinds[0], nil, "give an absolute path"},
		{"an empty command", "!", kinds[0], nil, "the command is empty"},
		{"a bad flag", "run --timeot 5s -- echo x", kinds[0], nil, "there is no flag --timeot"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			with(t, tt.kind, tt.opts, func(f *fixture) {
				if strings.HasPrefix(tt.name, "a refused") {
					f.Inject(refuse)
				}
				card, r := f.one(tt.line)
				check(f.T, "status", card.Status, acp.ToolCallStatusFailed)
				check(f.T, "kind", card.Kind, acp.ToolKindExecute)
				check(f.T, "outcome", r.Outcome, terminal.Failed)
				contains(f.T, "error", r.Error, tt.want)
				contains(f.T, "message", f.Messages(), tt.want)
				check(f.T, "starts", f.starts("echo"), 0)
				card, _ = f.one("help")
				check(f.T, "the agent goes on", card.Status, acp.ToolCallStatusCompleted)
			})
		})
	}
}

func TestPolicyLocal(t *testing.T) {
	with(t, kinds[0], &agent.Options{Policy: bridge.Local}, func(f *fixture) {
		_, r := f.one("!echo x")
		check(f.T, "presentation", r.Presentation, bridge.PresentDisplay)
		check(f.T, "starts in the client", f.Memterm().Starts("echo"), 0)
		check(f.T, "terminal/create", f.Count(acp.ClientMethodTerminalCreate), 0)
	})
}

// The command of a line names the shell that was chosen, as its card shows.
func TestShell(t *testing.T) {
	const shell = "/no/such/shell"
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			with(t, k, &agent.Options{Shell: shell}, func(f *fixture) {
				card, _ := f.one("!echo x")
				check(f.T, "rawInput", card.RawInput.(map[string]any)["shell"], any(shell))
			})
		})
	}
}

func TestCancel(t *testing.T) {
	eachKind(t, func(f *fixture, _ bridge.Presentation) {
		_, kept := f.one("bg -- sleep 100h")
		before := len(f.Host().Cards(f.id))
		answer := make(chan acp.PromptResponse, 1)
		go func() {
			resp, err := f.Prompt(f.Context(), f.id, "!lines 1000 10s\n!echo never")
			if err != nil {
				f.Error(err)
			}
			answer <- resp
		}()
		time.Sleep(25 * time.Second)
		if err := f.Cancel(f.Context(), f.id); err != nil {
			f.Fatal(err)
		}
		resp := <-answer
		check(f.T, "stop reason", resp.StopReason, acp.StopReasonCancelled)
		cards := f.Host().Cards(f.id)[before:]
		if len(cards) != 1 {
			f.Fatalf("%d cards", len(cards))
		}
		r := report(f.T, cards[0])
		check(f.T, "status", cards[0].Status, acp.ToolCallStatusFailed)
		check(f.T, "outcome", r.Outcome, terminal.Cancelled)
		check(f.T, "output", r.Output, "line 1\nline 2\nline 3\n")
		check(f.T, "error", r.Error, "")
		contains(f.T, "message", f.Messages(), "was cancelled")
		check(f.T, "starts of what came behind", f.starts("echo"), 0)
		_, r = f.one("output " + kept.ID)
		check(f.T, "what ran in the background before", r.Outcome, terminal.Running)
	})
}

func TestCancelOfWait(t *testing.T) {
	with(t, kinds[0], nil, func(f *fixture) {
		_, job := f.one("bg -- sleep 100h")
		answer := make(chan acp.StopReason, 1)
		go func() {
			resp, _ := f.Prompt(f.Context(), f.id, "wait "+job.ID)
			answer <- resp.StopReason
		}()
		time.Sleep(time.Minute)
		_ = f.Cancel(f.Context(), f.id)
		check(f.T, "stop reason", <-answer, acp.StopReasonCancelled)
		_, r := f.one("output " + job.ID)
		check(f.T, "a wait never kills", r.Outcome, terminal.Running)
	})
}

func TestSessions(t *testing.T) {
	with(t, kinds[0], nil, func(f *fixture) {
		second, err := f.NewSession(f.Context(), f.dir)
		if err != nil || second == f.id {
			f.Fatalf("second session: %q, %v", second, err)
		}
		_, job := f.one("bg -- sleep 1h")
		if _, err := f.Prompt(f.Context(), second, "kill "+job.ID); err != nil {
			f.Fatal(err)
		}
		r := report(f.T, f.Host().Cards(second)[0])
		contains(f.T, "a command of another session", r.Error, "in this session")

		if err := f.CloseSession(f.Context(), f.id); err != nil {
			f.Fatal(err)
		}
		check(f.T, "commands die with their session", f.Memterm().Busy(), false)
		_, err = f.Prompt(f.Context(), f.id, "!echo x")
		wantError(f.T, "prompt to a closed session", err, -32002, "is closed")
		err = f.CloseSession(f.Context(), f.id)
		wantError(f.T, "close of a closed session", err, -32002, string(f.id))
		if _, err := f.Prompt(f.Context(), second, "!echo x"); err != nil {
			f.Errorf("the other session: %v", err)
		}
		if err := f.CloseSession(f.Context(), second); err != nil {
			f.Error(err)
		}
	})
}

func TestCloseEndsATurn(t *testing.T) {
	eachKind(t, func(f *fixture, _ bridge.Presentation) {
		answer := make(chan acp.StopReason, 1)
		go func() {
			resp, err := f.Prompt(f.Context(), f.id, "!sleep 100h\n!echo never")
			if err != nil {
				f.Error(err)
			}
			answer <- resp.StopReason
		}()
		time.Sleep(time.Second)
		if err := f.CloseSession(f.Context(), f.id); err != nil {
			f.Error(err)
		}
		check(f.T, "stop reason", <-answer, acp.StopReasonCancelled)
		check(f.T, "starts of what came behind", f.starts("echo"), 0)
	})
}

func TestNonsenseFromTheClient(t *testing.T) {
	for name, reply := range map[string]any{
		"null":        json.RawMessage("null"),
		"an empty id": map[string]any{"terminalId": ""},
		"a number":    7,
	} {
		t.Run(name, func(t *testing.T) {
			with(t, kinds[0], nil, func(f *fixture) {
				f.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Result: reply})
				card, r := f.one("!echo x")
				check(f.T, "status", card.Status, acp.ToolCallStatusFailed)
				check(f.T, "outcome", r.Outcome, terminal.Failed)
				if r.Error == "" {
					f.Error("no error says what was wrong")
				}
				check(f.T, "starts", f.starts("echo"), 0)
				card, _ = f.one("help")
				check(f.T, "the agent goes on", card.Status, acp.ToolCallStatusCompleted)
			})
		})
	}
}

func wantError(t *testing.T, what string, err error, code int, text string) {
	t.Helper()
	re, ok := errors.AsType[*acp.RequestError](err)
	if !ok || re.Code != code || !strings.Contains(re.Message, text) {
		t.Errorf("%s: %v\nwant code %d and a message with %q", what, err, code, text)
	}
}

func TestBadRequests(t *testing.T) {
	with(t, kinds[0], nil, func(f *fixture) {
		file := filepath.Join(f.dir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			f.Fatal(err)
		}
		for cwd, want := range map[string]string{
			"relative":                  `cwd "relative" is relative: give an absolute path`,
			filepath.Join(f.dir, "not"): "does not exist",
			file:                        "is not a directory",
		} {
			_, err := f.NewSession(f.Context(), cwd)
			wantError(f.T, "cwd "+cwd, err, -32602, want)
		}
		_, err := f.Prompt(f.Context(), "nobody", "!echo x")
		wantError(f.T, "unknown session", err, -32002, `no session "nobody"`)
		_, err = f.Peer().Initialize(f.Context(), f.Init())
		wantError(f.T, "a second initialize", err, -32600, "initialized already")
		_, err = f.Peer().Authenticate(f.Context(), acp.AuthenticateRequest{MethodId: "x"})
		wantError(f.T, "authenticate", err, -32601, "")
		_, err = f.Peer().ListSessions(f.Context(), acp.ListSessionsRequest{}) // nothing is kept
		wantError(f.T, "session/list", err, -32601, "")
		_, err = f.Peer().ResumeSession(f.Context(), acp.ResumeSessionRequest{SessionId: f.id, Cwd: f.dir, McpServers: []acp.McpServer{}})
		wantError(f.T, "session/resume", err, -32601, "")
		_, err = f.Peer().SetSessionMode(f.Context(), acp.SetSessionModeRequest{SessionId: f.id, ModeId: "x"})
		wantError(f.T, "session/set_mode", err, -32601, "")
		if err := f.Cancel(f.Context(), "nobody"); err != nil {
			f.Error(err)
		}
		card, _ := f.one("!echo x")
		check(f.T, "the agent goes on", card.Status, acp.ToolCallStatusCompleted)
	})
}

func TestInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeconn.New(&fakeconn.Options{Agent: func(conn *acp.AgentSideConnection) acp.Agent {
			a := agent.New(&agent.Options{Version: "1.2.3"})
			a.SetAgentConnection(conn)
			return a
		}})
		_, err := c.Peer().NewSession(t.Context(), acp.NewSessionRequest{Cwd: os.TempDir(), McpServers: []acp.McpServer{}})
		wantError(t, "session/new first", err, -32600, "call initialize first")
		resp, err := c.Peer().Initialize(t.Context(), c.Init())
		if err != nil {
			t.Fatal(err)
		}
		check(t, "protocol version", int(resp.ProtocolVersion), acp.ProtocolVersionNumber)
		check(t, "agent", *resp.AgentInfo, acp.Implementation{Name: "acp-demo-agent", Title: new("termbridge demo agent"), Version: "1.2.3"})
		if resp.AgentCapabilities.SessionCapabilities.Close == nil || resp.AgentCapabilities.LoadSession {
			t.Errorf("capabilities: %+v", resp.AgentCapabilities)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The audit of the fixture fails if a line is longer than 32 KiB.
func TestLongOutput(t *testing.T) {
	print := func(text string) memterm.Program {
		return func(p *memterm.Process) terminal.Exit {
			text := strings.Repeat(text, (48<<10)/len(text)) + "the end"
			if _, err := p.Stdout.Write([]byte(text)); err != nil {
				return p.Death()
			}
			return memterm.Code(0)
		}
	}
	programs := map[string]memterm.Program{
		"plain": print("x"), "angles": print("<>&"), "quotes": print(`"\`), "colours": print("\x1b[1mé\x1b[0m"),
		"garbage": print("\xff\xfe"), "lines": print("x\n"),
	}
	for _, k := range kinds {
		k.options.Programs = programs
		for name := range programs {
			t.Run(string(k.presentation)+"/"+name, func(t *testing.T) {
				with(t, k, nil, func(f *fixture) {
					_, r := f.one("!" + name)
					whole := name == "colours" // plain, it fits
					if len(r.Output) < 2<<10 || !strings.HasSuffix(r.Output, "the end") || r.Truncated == whole {
						f.Errorf("truncated %v, %d bytes, end %q", r.Truncated, len(r.Output), r.Output[max(0, len(r.Output)-20):])
					}
					f.one("output " + r.ID)
				})
			})
		}
	}
}

// What is read page by page is all that was written.
func TestOutputPages(t *testing.T) {
	eachKind(t, func(f *fixture, _ bridge.Presentation) {
		_, job := f.one("bg --limit 1000000 -- spam 200000")
		f.one("wait " + job.ID)
		var all strings.Builder
		pages := 0
		for cursor := int64(0); ; pages++ {
			_, r := f.one(fmt.Sprintf("output %s --since %d", job.ID, cursor))
			if r.Truncated {
				f.Fatalf("page %d is truncated", pages)
			}
			all.WriteString(r.Output)
			if !r.More {
				break
			}
			if r.NextCursor <= cursor {
				f.Fatalf("page %d: the cursor stays at %d", pages, cursor)
			}
			cursor = r.NextCursor
		}
		want := strings.Repeat(strings.Repeat("x", 63)+"\n", 200000/64)
		if all.String() != want {
			f.Errorf("%d bytes in %d pages; want %d", all.Len(), pages+1, len(want))
		}
	})
}

// No page begins or ends inside of a control sequence, not even where one is as
// long as many pages, was written in two pieces, or lost its beginning.
func TestOutputPagesOfSequences(t *testing.T) {
	const word = "\x1b[1;38;5;123mword\x1b[0m "
	write := func(pieces ...string) memterm.Program {
		return func(p *memterm.Process) terminal.Exit {
			for i, piece := range pieces {
				if i > 0 && !p.Sleep(10*time.Second) {
					return p.Death()
				}
				if _, err := p.Stdout.Write([]byte(piece)); err != nil {
					return p.Death()
				}
			}
			return memterm.Code(0)
		}
	}
	k := kinds[2] // a client's terminal is read by other means, of a limited size
	k.options.Programs = map[string]memterm.Program{
		"colours": write(strings.Repeat(word, 10_000)),
		"image":   write("before\x1bPq" + strings.Repeat("#0~~\n", 60_000) + "\x1b\\after"),
		"lines":   write(strings.Repeat(word+"\n", 10_000)),
		"halves":  write("one\x1b[1;3", "1mtwo\x1b]0;ti", "tle\athree\n"),
		"no end":  write("one\x1b]0;title"),
	}
	read := func(f *fixture, id string) (pages []string, truncated bool) {
		for cursor, more := int64(0), true; more; {
			_, r := f.one(fmt.Sprintf("output %s --since %d --wait 1m", id, cursor))
			if r.Error != "" || r.More && r.NextCursor <= cursor {
				f.Fatalf("page %d: %+v", len(pages), r)
			}
			pages = append(pages, r.Output)
			truncated = truncated || r.Truncated
			cursor, more = r.NextCursor, r.More || r.Outcome == terminal.Running
		}
		return pages, truncated
	}
	with(t, k, nil, func(f *fixture) {
		for _, tt := range []struct{ name, line, want string }{
			{"colours", "bg --limit 1000000 -- colours", strings.Repeat("word ", 10_000)},
			{"a string that is longer than pages", "bg --limit 1000000 -- image", "beforeafter"},
			{"pieces", "bg -- halves", "onetwothree\n"},
			{"a sequence without end", "bg -- no end", "one"},
		} {
			_, job := f.one(strings.Replace(tt.line, "no end", "'no end'", 1))
			pages, truncated := read(f, job.ID)
			check(f.T, tt.name, strings.Join(pages, ""), tt.want)
			check(f.T, tt.name+": truncated", truncated, false)
		}
		_, job := f.one("bg -- halves")
		time.Sleep(time.Second) // the first piece
		_, r := f.one("output " + job.ID)
		check(f.T, "before half a sequence", r.Output, "one")
		check(f.T, "more", r.More, false)
		_, half := f.one(fmt.Sprintf("output %s --since %d", job.ID, r.NextCursor))
		check(f.T, "half a sequence", half.Output, "")
		check(f.T, "its cursor", half.NextCursor, r.NextCursor)
		f.one("wait " + job.ID)
		_, job = f.one("bg -- 'no end'")
		f.one("wait " + job.ID)
		_, r = f.one("output " + job.ID)
		_, half = f.one(fmt.Sprintf("output %s --since %d --wait 1h", job.ID, r.NextCursor))
		check(f.T, "a sequence without end", half.Output, "")
		if half.NextCursor <= r.NextCursor {
			f.Errorf("the end of an ended command is never reached: %d, then %d", r.NextCursor, half.NextCursor)
		}
		for limit := 1000; limit < 1000+len(word); limit++ { // cut everywhere
			_, job := f.one(fmt.Sprintf("bg --limit %d -- lines", limit))
			f.one("wait " + job.ID)
			pages, truncated := read(f, job.ID)
			if all := strings.Join(pages, ""); strings.ReplaceAll(all, "word \n", "") != "" || all == "" {
				f.Errorf("limit %d: the oldest page begins with %q", limit, all[:min(20, len(all))])
			}
			check(f.T, "truncated", truncated, true)
		}
	})
}

func TestEOF(t *testing.T) {
	eachKind(t, func(f *fixture, _ bridge.Presentation) {
		f.one("bg -- sleep 100h")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = f.Prompt(f.Context(), f.id, "!sleep 100h") // ends with the connection
		}()
		time.Sleep(time.Second)
		f.Disconnect()
		<-done
		time.Sleep(5 * time.Second)
		if f.local != nil && f.local.Busy() {
			f.Error("a local command runs 5 s after the end of the connection")
		}
	})
}

// A client that does nothing about a kill: nothing is called ended that is not
// known to be.
func TestStopIsNotConfirmed(t *testing.T) {
	with(t, kinds[0], nil, func(f *fixture) {
		kill := f.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalKill, Result: json.RawMessage("{}")})
		card, r := f.one("run --timeout 1s -- sleep 100h")
		check(f.T, "timeout: status", card.Status, acp.ToolCallStatusFailed)
		check(f.T, "timeout: outcome", r.Outcome, terminal.TimedOut)
		contains(f.T, "timeout: error", r.Error, "has not said that the command has ended")
		contains(f.T, "timeout: message", f.Messages(), "not known to have ended")

		_, job := f.one("bg -- sleep 100h")
		card, r = f.one("kill " + job.ID)
		check(f.T, "kill: status", card.Status, acp.ToolCallStatusFailed)
		contains(f.T, "kill: error", r.Error, job.ID+" is not known to have ended")

		time.AfterFunc(time.Second, func() { _ = f.Cancel(f.Context(), f.id) })
		resp, err := f.Prompt(f.Context(), f.id, "!sleep 100h")
		if err != nil || resp.StopReason != acp.StopReasonCancelled {
			f.Fatalf("cancel: %v, %v", resp, err)
		}
		cards := f.Host().Cards(f.id)
		r = report(f.T, cards[len(cards)-1])
		check(f.T, "cancel: outcome", r.Outcome, terminal.Cancelled)
		contains(f.T, "cancel: error", r.Error, "has not said that the command has ended")
		contains(f.T, "cancel: message", f.Messages(), "was cancelled; it is not known to have ended")
		if n := kill.Hits(); n != 3 {
			f.Errorf("%d kills of 3 commands", n)
		}
	})
}

// Errors say what to do.
func TestAdvice(t *testing.T) {
	with(t, kinds[0], nil, func(f *fixture) {
		f.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, N: 1, Error: &acp.RequestError{Code: -32603, Message: "not today"}})
		_, r := f.one("!echo x")
		contains(f.T, "refused", r.Error, "not today")
		contains(f.T, "refused", r.Error, "allow it in the client")
		for range limits.MaxBackground {
			f.one("bg -- sleep 100h")
		}
		_, r = f.one("bg -- sleep 100h")
		contains(f.T, "too many", r.Error, "end one with kill ID")
	})
}
