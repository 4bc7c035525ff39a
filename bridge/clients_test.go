package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/fakeconn/emulate"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A story is a command of which is known what it writes and how it ends.
type story struct {
	name    string
	cmd     terminal.Command
	program string // that must be started at most once
	output  string // all of it
	code    int    // of its exit, if
	ends    bool   // it ends by itself
	signal  string // that ends it
	unsaid  bool   // some clients say nothing of why it did not start
	by      terminal.Outcome
	cancel  time.Duration // when the turn is cancelled
}

func wordy(p *memterm.Process) terminal.Exit {
	for _, arg := range p.Args[1:] {
		fmt.Fprintf(p.Stdout, "<%s>\n", arg)
	}
	return memterm.Code(0)
}

// many is more than a result keeps: 4,000 different lines.
var many = func() string {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "this is line %d of many\n", i)
	}
	return b.String()
}()

var storyPrograms = map[string]memterm.Program{
	"wordy": wordy,
	"many": func(p *memterm.Process) terminal.Exit {
		for i, l := range strings.SplitAfter(many, "\n") {
			p.Stdout.Write([]byte(l))
			if i%100 == 0 && !p.Sleep(10*time.Millisecond) {
				return p.Death()
			}
		}
		return memterm.Code(0)
	},
}

var stories = []story{
	{name: "exit 0", cmd: line("echo here"), program: "echo", output: "here\n", ends: true},
	{name: "exit 7", cmd: line("echo here; exit 7"), program: "echo", output: "here\n", code: 7, ends: true},
	{name: "exit 0 without output", cmd: line("true"), program: "true", ends: true},
	{name: "exit 3 of words", cmd: terminal.Command{Args: []string{"exit", "3"}}, program: "exit", code: 3, ends: true},
	{name: "awkward words", cmd: terminal.Command{Args: []string{"wordy", "a b", "$HOME", "*", `it's "quoted"`, "", "#", "x;y|z&", `back\slash`, "two\nlines", "'"}},
		program: "wordy", output: "<a b>\n<$HOME>\n<*>\n<it's \"quoted\">\n<>\n<#>\n<x;y|z&>\n<back\\slash>\n<two\nlines>\n<'>\n", ends: true},
	{name: "quotes", cmd: line(`wordy "a b" 'c "d"' e\ f "$NONE" \$HOME; exit 5`), program: "wordy", output: "<a b>\n<c \"d\">\n<e f>\n<>\n<$HOME>\n", code: 5, ends: true},
	{name: "here-document", cmd: line("cat <<'END'\nit's $HOME \"here\"\nEND"), program: "cat", output: "it's $HOME \"here\"\n", ends: true},
	{name: "comment", cmd: line("echo a # and no more"), program: "echo", output: "a\n", ends: true},
	{name: "lists", cmd: line("false || echo a && (echo b; exit 4)"), program: "false", output: "a\nb\n", code: 4, ends: true},
	{name: "killed by a signal", cmd: terminal.Command{Args: []string{"signal", "SIGKILL"}}, program: "signal", signal: "SIGKILL", ends: true},
	{name: "no such program", cmd: terminal.Command{Args: []string{"nothing"}}, code: 127, ends: true, output: "sh: nothing: not found\n"},
	{name: "no such directory", cmd: terminal.Command{Args: []string{"true"}, Dir: emulate.MissingDir + "/x"}, unsaid: true},
	{name: "input", cmd: terminal.Command{Args: []string{"cat"}, Timeout: 3 * time.Second}, program: "cat", ends: true, by: terminal.TimedOut},
	{name: "timeout", cmd: terminal.Command{Line: "echo here; sleep 100", Timeout: 3 * time.Second}, program: "sleep", output: "here\n", by: terminal.TimedOut},
	{name: "timeout of words", cmd: terminal.Command{Args: []string{"ignore-term", "here"}, Timeout: 3 * time.Second}, program: "ignore-term", output: "here", by: terminal.TimedOut},
	{name: "cancel", cmd: line("echo here; sleep 100"), program: "sleep", output: "here\n", by: terminal.Cancelled, cancel: 3 * time.Second},
	{name: "more output than is kept", cmd: terminal.Command{Args: []string{"many"}}, program: "many", output: many, ends: true},
	{name: "output for a minute", cmd: terminal.Command{Args: []string{"lines", "600", "100ms"}}, program: "lines", output: numbered(600), ends: true},
	{name: "a child that holds the output", cmd: line("after 2s echo late & echo here"), program: "after", output: "here\n", ends: true},
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

// The same commands, through every client that is known: what is told of them is
// right, or is marked as not known; and none runs twice.
func TestKnownClients(t *testing.T) {
	t.Parallel()
	for _, b := range emulate.Behaviours() {
		t.Run(b.Name, func(t *testing.T) {
			for _, st := range stories {
				t.Run(st.name, func(t *testing.T) { tellStory(t, b, st, nil) })
			}
			t.Run("background", func(t *testing.T) { tellBackground(t, b) })
		})
	}
}

// needProfile is what cannot be right with a client of which nothing is known.
var needProfile = map[string]string{
	"deepchat":                 "what a command writes last is lost, and nothing shows it",
	"vscode no such directory": "-2 is a signal from other clients",
}

// So it is with clients that behave alike, and of which nothing is known.
func TestUnknownClients(t *testing.T) {
	t.Parallel()
	for _, b := range emulate.Behaviours() {
		t.Run(b.Name, func(t *testing.T) {
			for _, st := range stories {
				t.Run(st.name, func(t *testing.T) {
					for _, key := range []string{b.Name, b.Name + " " + st.name} {
						if why := needProfile[key]; why != "" {
							t.Skip(why)
						}
					}
					tellStory(t, b, st, &bridge.Options{Profiles: acpterm.Profiles{}})
				})
			}
		})
	}
}

// like is a kind of client with this Behaviour.
func like(b emulate.Behaviour) kind {
	return kind{bridge.PresentClient, *b.Client(&fakeconn.Options{Programs: storyPrograms})}
}

func tellStory(t *testing.T, b emulate.Behaviour, st story, o *bridge.Options) {
	in(t, like(b), o, func(w *world) {
		start := time.Now()
		if st.cancel > 0 {
			timer := time.AfterFunc(st.cancel, func() { w.cancel() })
			defer timer.Stop()
		}
		var r *bridge.Result
		var end bridge.End
		var err error
		_, perr := w.prompt(func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			r, err = call.Exec(ctx, st.cmd)
			end = call.End("", err)
			return done, nil
		})
		if perr != nil {
			t.Errorf("the prompt: %v", perr)
		}
		atMost(t, "all of it", time.Since(start), 80*time.Second)
		if n := w.c.Starts(st.program); n > 1 {
			t.Errorf("%s was started %d times", st.program, n)
		}
		succeeds := st.ends && st.code == 0 && st.signal == ""
		if end.Status == acp.ToolCallStatusCompleted && !succeeds {
			t.Errorf("the tool call is completed")
		}
		verdict := told(t, w, st, r, err)
		t.Logf("%s", verdict)
		if stub := b.Stub != ""; !stub && st.by == "" && st.program != "" && succeeds && st.output != many && verdict != "right" && b.Name != "deepchat" && b.Name != "kotlin-sample" {
			t.Errorf("it is only %s", verdict)
		}
	})
}

// told says what a Result is worth, and complains if it is wrong.
func told(t *testing.T, w *world, st story, r *bridge.Result, err error) string {
	if r == nil {
		if _, ok := errors.AsType[*acp.RequestError](err); !ok && !errors.Is(err, context.Canceled) {
			t.Errorf("no result, and the error is %v", err)
		}
		if st.program != "" && w.c.Starts(st.program) > 0 {
			t.Errorf("no result, and it was started")
		}
		return "refused"
	}
	if r.Outcome == terminal.Unknown || r.Outcome == terminal.Failed {
		if err == nil {
			t.Errorf("it is %s, and there is no error", r.Outcome)
		}
		return string(r.Outcome)
	}
	right := false
	switch r.Outcome {
	case st.by:
		right = true
	case terminal.Exited:
		code := *r.Exit.Code
		switch {
		case st.unsaid:
			right = code != 0
		case st.signal != "":
			right = code > 128
		default:
			right = st.ends && code == st.code
		}
	case terminal.Signalled:
		right = r.Exit.Signal == st.signal
	}
	if !right {
		t.Errorf("it is %s by %+v (%v)", r.Outcome, r.Exit, err)
	}
	if st.unsaid {
		return "right"
	}
	if st.name == "a child that holds the output" && r.Output == "here\nlate\n" {
		return "right" // who waits for it sees it
	}
	want := st.output
	if r.Output == want {
		return "right"
	}
	if r.Truncated && strings.HasSuffix(want, r.Output) {
		return "right, the end"
	}
	if term, gerr := w.s.Get(r.ID); gerr == nil && term.Info().Err != nil && strings.HasPrefix(want, r.Output) {
		if err == nil {
			t.Errorf("the error is nil, and that of the terminal is %v", term.Info().Err)
		}
		return "incomplete, by its error"
	}
	if !strings.Contains(r.Output, strings.TrimSpace(terminal.GapMark)) {
		t.Errorf("the output has no mark and is %.300q…%.100q (truncated: %v)", r.Output, r.Output[max(0, len(r.Output)-100):], r.Truncated)
		return "wrong"
	}
	// Between the marks is what was written, in order.
	rest := want
	for i, piece := range strings.Split(r.Output, strings.TrimSpace(terminal.GapMark)) {
		piece = strings.Trim(piece, "\n")
		at := strings.Index(rest, piece)
		if at < 0 {
			t.Errorf("piece %d was not written, or not then: %.300q", i, piece)
			break
		}
		rest = rest[at+len(piece):]
	}
	return "right, with a mark"
}

func tellBackground(t *testing.T, b emulate.Behaviour) {
	in(t, like(b), nil, func(w *world) {
		var id string
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, turn *bridge.Turn) (acp.PromptResponse, error) {
			call := turn.ToolCall(card("1"))
			term, err := call.StartBackground(ctx, terminal.Command{Args: []string{"lines", "1000", "1s"}})
			if err != nil {
				t.Errorf("start: %v", err)
				return done, nil
			}
			id = term.Info().ID
			call.End("it runs", nil)
			return done, nil
		})
		if id == "" {
			return
		}
		time.Sleep(10 * time.Second)
		start := time.Now()
		info, err := w.s.Stop(id)
		atMost(t, "kill", time.Since(start), limits.SettleTimeout)
		switch {
		case b.Stub != "":
			check(t, "the outcome", info.Outcome, terminal.Unknown)
			return
		case err != nil || info.Outcome != terminal.Stopped || info.Exit.Success():
			t.Errorf("it is %s by %+v, %v (%v)", info.Outcome, info.Exit, info.Err, err)
		}
		check(t, "starts", w.c.Starts("lines"), 1)
		term, err := w.s.Get(id)
		if err != nil {
			t.Error(err)
			return
		}
		o, err := term.ReadOutput(w.Context(), 0, 0)
		if err != nil || !strings.HasPrefix(strings.ReplaceAll(o.Text, "\r", ""), "line 1\n") {
			if b.Blocking && info.Err != nil {
				return // it shows nothing before the end, and has not come to one
			}
			t.Errorf("the output is %q, %v", o.Text, err)
		}
	})
}

// The rows of Options take the place of those that are built in, and say how
// commands are sent: once, in one form.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		form       string
		cmd        terminal.Command
		want, sent string
	}{
		{acpterm.FormPortable, line("echo a; echo b"), "a\nb\n", `"args":["-c",":;exec \u003c/dev/null;echo a; echo b"],"command":"/bin/sh"`},
		{acpterm.FormExec, line("echo a; echo b"), "a\nb\n", `"args":["-c","exec \u003c/dev/null;echo a; echo b"],"command":"/bin/sh"`},
		{acpterm.FormExec, terminal.Command{Args: []string{"wordy", "a b"}}, "<a b>\n", `"args":["a b"],"command":"wordy"`},
		{acpterm.FormLine, line("echo a; echo b"), "a\nb\n", `"command":"exec \u003c/dev/null;echo a; echo b"`},
		{acpterm.FormLine, terminal.Command{Args: []string{"wordy", "a b"}}, "<a b>\n", `"command":"exec 'wordy' 'a b' \u003c/dev/null"`},
	} {
		b := emulate.Behaviour{Info: acp.Implementation{Name: "Editor", Version: "2.1"}}
		if test.form == acpterm.FormLine {
			b.Run = func(command string, args []string) []string {
				return []string{"/bin/sh", "-c", strings.Join(append([]string{command}, args...), " ")}
			}
		}
		o := &bridge.Options{Profiles: acpterm.Profiles{
			{Name: "editor", Before: "2", Profile: acpterm.Profile{Form: "never"}},
			{Name: "editor", Since: "2", Profile: acpterm.Profile{Form: test.form}},
		}}
		in(t, like(b), o, func(w *world) {
			r, _, err := w.run("1", test.cmd)
			if err != nil || r.Output != test.want {
				t.Errorf("%q %s: %+v, %v", test.form, test.cmd, r, err)
			}
			var creates []string
			for _, l := range w.c.Lines() {
				if l.Method == acp.ClientMethodTerminalCreate && l.Kind == fakeconn.Request {
					creates = append(creates, l.Raw)
				}
			}
			if len(creates) != 1 || !strings.Contains(creates[0], test.sent) {
				t.Errorf("%q %s: sent %q, want one with %s", test.form, test.cmd, creates, test.sent)
			}
		})
	}
}

// Members of a wrong type in the client's replies cost neither the output nor the
// exit of a command, and leave no terminal behind.
func TestRepliesOfWrongTypes(t *testing.T) {
	t.Parallel()
	const (
		create = acp.ClientMethodTerminalCreate
		output = acp.ClientMethodTerminalOutput
		wait   = acp.ClientMethodTerminalWaitForExit
	)
	for _, test := range []struct {
		method, path string
		value        any
		lost         bool // there is no output
	}{
		{output, "result.truncated", "true", false},
		{output, "result.truncated", 1, false},
		{output, "result.truncated", "false", false},
		{output, "result.truncated", []any{}, false},
		{output, "result.exitStatus", 3, false},
		{output, "result.exitStatus", map[string]any{"exitCode": "3"}, false},
		{output, "result.output", map[string]any{"text": "x"}, true},
		{output, "result", []any{}, true},
		{wait, "result", "exited", false},
		{wait, "result.exitCode", "3", false},
		{wait, "result.signal", 0, false},
		{acp.ClientMethodTerminalRelease, "result", true, false},
		{create, "result._meta", "x", false},
	} {
		t.Run(fmt.Sprint(test.method, " ", test.path, " ", test.value), func(t *testing.T) {
			in(t, client, nil, func(w *world) {
				w.c.Inject(fakeconn.Fault{Method: test.method, Reply: true, Edit: fakeconn.Set(test.path, test.value)})
				r, _, err := w.run("1", line("fail x"))
				if err != nil {
					w.Fatal(err)
				}
				check(w, "outcome", r.Outcome, terminal.Exited)
				if r.Exit.Code == nil || *r.Exit.Code == 0 {
					w.Errorf("the exit is %v", r.Exit)
				}
				if (r.Output == "") != test.lost {
					w.Errorf("the output is %q", r.Output)
				}
			})
		})
	}
}

// A terminal whose id is a number is shown, read, killed and released as any.
func TestNumberAsTerminalID(t *testing.T) {
	t.Parallel()
	n := 0
	k := client
	k.client.Memterm = &memterm.Options{NewID: func() string { n++; return fmt.Sprint(n) }}
	k.client.Allow = []fakeconn.Rule{fakeconn.RuleUnknown} // the audit takes no number for an id
	in(t, k, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Reply: true, Edit: func(raw string) string {
			return fakeconn.Set("result.terminalId", n)(raw)
		}})
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			if r, err := t.ToolCall(card("1")).Exec(ctx, line("echo x")); err != nil || r.Output != "x\n" || r.TerminalID != "1" {
				w.Errorf("%+v, %v", r, err)
			}
			cmd := line("sleep 1h")
			cmd.Timeout = time.Second
			if r, err := t.ToolCall(card("2")).Exec(ctx, cmd); err != nil || r.Outcome != terminal.TimedOut {
				w.Errorf("%+v, %v", r, err)
			}
			return done, nil
		})
		synctest.Wait() // the release of one that was stopped goes its own way
		check(w, "released", w.c.Count(acp.ClientMethodTerminalRelease), 2)
	})
}
