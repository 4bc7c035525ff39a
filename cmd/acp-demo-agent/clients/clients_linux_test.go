package clients_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/terminal"
)

// A kind is a client and what is special about it.
type kind struct {
	name string
	acpx string // the folder of the package; "" is client.mjs
	raw  bool   // no package at all

	// tree: its kill reaches what a command has started, too.
	tree bool
	// always: it has no way to say that it has no terminals.
	always bool
	// sessions: it keeps an agent between its runs.
	sessions bool
	// refused is its exit status when it has refused something.
	refused int
}

var kinds = []kind{
	{name: "sdk", tree: true},
	{name: "acpx", acpx: "acpx", tree: true, sessions: true, refused: 5},
	{name: "acpx-0.1", acpx: "acpx-0.1", always: true},
	{name: "raw", raw: true, tree: true},
}

// full is the length that .ci/run gives the tests.
var full = flag.Bool("full", false, "give every habit to the official SDK's client too, and examine it in every mode")

// ours are the kinds that can be given habits.
func ours(k kind) bool { return k.raw || *full && k.acpx == "" }

// each runs f with every client that want accepts; nil is all.
func each(t *testing.T, want func(kind) bool, f func(t *testing.T, k kind)) {
	t.Parallel()
	for _, k := range kinds {
		if want != nil && !want(k) {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			f(t, k)
		})
	}
}

// A scene is what is asked of a client.
type scene struct {
	prompts []string // acpx takes one
	refuse  bool     // the user refuses every terminal
	bare    bool     // the client has no terminals
	display bool     // but can display some; client.mjs only
	early   bool     // a terminal may come too late to be shown
	habits  habits   // ours only
	args    []string // of the agent; ours only
	agent   string   // another one that buildAgent builds
	// during runs once the first prompt was asked, last before the client is
	// told to end; acpx ends by itself.
	during, last func(r *rig)
}

// refusal is what the user says to a terminal, if anything.
func (s scene) refusal() string {
	if s.refuse {
		return "The user does not want that"
	}
	return ""
}

// play starts a client with an agent, plays the scene, and checks what is to be
// so at every end: all answers came, nothing broke a rule, nothing is left.
func (k kind) play(t *testing.T, s scene) *rig {
	t.Helper()
	r := k.rig(t)
	if s.agent != "" {
		r.agent = filepath.Join(filepath.Dir(r.agent), s.agent)
	}
	k.begin(r, s)
	for i, prompt := range s.prompts {
		if r.order != nil {
			r.order(order{Prompt: prompt})
		}
		if i == 0 && s.during != nil {
			s.during(r)
		}
		r.until("the answer to "+prompt, func(wire []message) bool { return len(answers(wire)) > i })
	}
	if s.last != nil {
		s.last(r)
	}
	r.stdin.Close()
	r.exits()
	r.nothingWith(r.mark)
	r.audit(s)
	return r
}

// begin starts the client; acpx is given its prompt with it.
func (k kind) begin(r *rig, s scene) {
	r.Helper()
	if k.raw {
		r.startRaw(s)
		return
	}
	if k.acpx != "" {
		r.start(k.args(r, s, "exec", s.prompts[0])...)
		return
	}
	text, err := json.Marshal(struct {
		habits
		Agent    []string `json:"agent"`
		Cwd      string   `json:"cwd"`
		Terminal bool     `json:"terminal"`
		Display  bool     `json:"display"`
		Refuse   string   `json:"refuse,omitempty"`
	}{s.habits, append([]string{r.agent}, s.args...), r.dir, !s.bare, s.display, s.refusal()})
	if err != nil {
		r.Fatal(err)
	}
	script, err := filepath.Abs("client.mjs")
	if err != nil {
		r.Fatal(err)
	}
	r.direct = true
	r.start(script, string(text))
	r.order = func(o order) {
		r.Helper()
		line, err := json.Marshal(o)
		if err == nil {
			_, err = r.stdin.Write(append(line, '\n'))
		}
		if err != nil {
			r.Fatal(err)
		}
	}
}

// An order is what a client is told to do: one of these.
type order struct {
	Prompt  string `json:"prompt,omitempty"`
	Cancel  bool   `json:"cancel,omitempty"`
	Close   bool   `json:"close,omitempty"`   // the session
	Stalled bool   `json:"stalled,omitempty"` // read no more, and leave the agent's input open
	Pause   int64  `json:"pause,omitempty"`   // read nothing for so many milliseconds

	// Notify is a notification of any kind, sent so often.
	Notify string `json:"notify,omitempty"`
	Times  int    `json:"times,omitempty"`

	// Method is a request of any kind; Params are laid over a sessionId and a cwd.
	Method string         `json:"method,omitempty"`
	Params map[string]any `json:"params,omitempty"`
}

// args are the arguments of node that run acpx.
func (k kind) args(r *rig, s scene, command ...string) []string {
	args := []string{installed(r.T, filepath.Join(k.acpx, "dist", "cli.js")), "--agent", r.agent, "--cwd", r.dir, "--format", "json"}
	if s.bare {
		args = append(args, "--no-terminal")
	}
	if s.refuse {
		args = append(args, "--deny-all")
	} else {
		args = append(args, "--approve-all")
	}
	return append(args, command...)
}

// cancel makes the client cancel the turn, as its user would.
func (k kind) cancel(r *rig) {
	r.Helper()
	if r.order != nil {
		r.order(order{Cancel: true})
	} else if err := r.process.Signal(os.Interrupt); err != nil {
		r.Fatal(err)
	}
}

// lasting is a shell line that writes a word and then lasts. Where the client's
// kill reaches only what it has started itself, that is what lasts.
func (k kind) lasting(word string) string {
	if k.tree {
		return "echo " + word + "; sleep 300 & wait"
	}
	return "echo " + word + "; exec sleep 300"
}

func check[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// result checks a tool call about a command of the client.
func (r *rig) result(title string, outcome terminal.Outcome, output string) *card {
	r.Helper()
	c := r.card(title)
	check(r.T, title+": outcome", c.report.Outcome, outcome)
	check(r.T, title+": output", c.report.Output, output)
	check(r.T, title+": presentation", c.report.Presentation, bridge.PresentClient)
	return c
}

// A foreground command runs in the client, and its exit code, its output and
// its words arrive unchanged.
func TestForeground(t *testing.T) {
	each(t, nil, func(t *testing.T, k kind) {
		const fails, words = `echo out; echo err >&2; exit 3`, `printf '<%s>' 'a b' '$HOME' '*' '' "it's"`
		r := k.play(t, scene{prompts: []string{"!" + fails + "\nrun --argv -- " + words}})
		c := r.card(fails)
		check(t, "outcome", c.report.Outcome, terminal.Exited)
		check(t, "exit code", c.report.ExitCode, new(3))
		check(t, "presentation", c.report.Presentation, bridge.PresentClient)
		check(t, "embedded", c.embeds, []string{c.report.TerminalID})
		check(t, "status", c.status, "failed")
		// Two pipes: nobody promises their order.
		lines := strings.Split(c.report.Output, "\n")
		slices.Sort(lines)
		check(t, "output", lines, []string{"", "err", "out"})
		c = r.result(words, terminal.Exited, `<a b><$HOME><*><><it's>`)
		check(t, "exit code", c.report.ExitCode, new(0))
		check(t, "status", c.status, "completed")
		check(t, "answers", answers(r.messages()), []string{"end_turn"})
		check(t, "exit of the client", r.exit.String(), "exit code 0")
		t.Logf("create answered in %v, release in %v", r.latencies("terminal/create"), r.latencies("terminal/release"))
	})
}

// A command that reaches its timeout is ended with what it has started, and
// keeps what it had written.
func TestTimeout(t *testing.T) {
	each(t, nil, func(t *testing.T, k kind) {
		line := k.lasting("waiting")
		r := k.play(t, scene{
			prompts: []string{"run --timeout 1s --env SCENE=timeout -- " + line},
			during: func(r *rig) {
				r.running("SCENE=timeout", "sleep 300")
				r.until("the answer", func(wire []message) bool { return len(answers(wire)) > 0 })
				r.nothingWith("SCENE=timeout")
			},
		})
		c := r.result(line, terminal.TimedOut, "waiting\n")
		check(t, "status", c.status, "failed")
		if c.report.DurationMS < 1000 {
			t.Errorf("it ran for %d ms", c.report.DurationMS)
		}
	})
}

// A cancel ends the turn with "cancelled" once the command has ended; nothing of
// it is left even while the session lives.
func TestCancel(t *testing.T) {
	each(t, nil, func(t *testing.T, k kind) {
		line := k.lasting("deploying")
		r := k.play(t, scene{
			prompts: []string{"run --env SCENE=cancel -- " + line + "\n!touch never"},
			during: func(r *rig) {
				r.until("the terminal", func(wire []message) bool { return called(wire, "terminal/wait_for_exit") })
				r.running("SCENE=cancel", "sleep 300")
				k.cancel(r)
				r.until("the answer", func(wire []message) bool { return len(answers(wire)) > 0 })
				r.nothingWith("SCENE=cancel")
			},
		})
		r.result(line, terminal.Cancelled, "deploying\n")
		check(t, "answers", answers(r.messages()), []string{"cancelled"})
		if _, err := os.Stat(filepath.Join(r.dir, "never")); err == nil {
			t.Error("the line after the cancelled one ran")
		}
	})
}

// A cancel that comes while the client is still busy with terminal/create leaves
// nothing behind, whether the client takes the create back or not.
func TestCancelEarly(t *testing.T) {
	each(t, nil, func(t *testing.T, k kind) {
		line := k.lasting("deploying")
		r := k.play(t, scene{
			early:   true,
			prompts: []string{"run --env SCENE=early -- " + line},
			during: func(r *rig) {
				r.until("terminal/create", func(wire []message) bool { return called(wire, "terminal/create") })
				k.cancel(r)
				r.until("the answer", func(wire []message) bool { return len(answers(wire)) > 0 })
				r.nothingWith("SCENE=early")
			},
		})
		check(t, "outcome", r.card(line).report.Outcome, terminal.Cancelled)
		check(t, "answers", answers(r.messages()), []string{"cancelled"})
	})
}

// Lines of a parallel prompt run at once: each of these waits for the other. The
// tool calls are numbered as the lines are.
func TestParallel(t *testing.T) {
	each(t, nil, func(t *testing.T, k kind) {
		meet := func(own, other string) string {
			return fmt.Sprintf("touch %s; until test -e %s; do sleep 0.1; done; echo %s met %[2]s", own, other, own)
		}
		lines := []string{meet("a", "b"), meet("b", "c"), meet("c", "a")}
		r := k.play(t, scene{prompts: []string{"parallel\n!" + strings.Join(lines, "\n!")}})
		for i, want := range []string{"a met b\n", "b met c\n", "c met a\n"} {
			c := r.result(lines[i], terminal.Exited, want)
			check(t, "exit code", c.report.ExitCode, new(0))
			check(t, "number", c.id, fmt.Sprintf("call_%d", i+1))
		}
		t.Logf("create answered in %v, release in %v", r.latencies("terminal/create"), r.latencies("terminal/release"))
	})
}

// A client without terminals is asked for none: commands run in the agent.
func TestNoCapability(t *testing.T) {
	each(t, func(k kind) bool { return !k.always }, func(t *testing.T, k kind) {
		r := k.play(t, scene{bare: true, prompts: []string{"!touch marker; echo here; exit 4"}})
		check(t, "terminal/* requests", r.count("terminal/"), 0)
		c := r.card("touch marker; echo here; exit 4")
		check(t, "outcome", c.report.Outcome, terminal.Exited)
		check(t, "exit code", c.report.ExitCode, new(4))
		check(t, "output", c.report.Output, "here\n")
		check(t, "presentation", c.report.Presentation, bridge.PresentText)
		if _, err := os.Stat(filepath.Join(r.dir, "marker")); err != nil {
			t.Error(err)
		}
	})
}

// A client that can only display terminals is given the output as it comes.
func TestDisplay(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		r := k.play(t, scene{bare: true, display: true, prompts: []string{"!echo one; sleep 0.3; echo two; exit 5"}})
		check(t, "terminal/* requests", r.count("terminal/"), 0)
		c := r.card("echo one; sleep 0.3; echo two; exit 5")
		check(t, "presentation", c.report.Presentation, bridge.PresentDisplay)
		check(t, "display", c.display, "one\r\ntwo\r\n")
		check(t, "exit code", c.report.ExitCode, new(5))
		check(t, "exit code on display", c.displayExit, new(5))
	})
}

// What the user refuses does not run, anywhere, and the agent says why.
func TestRefused(t *testing.T) {
	each(t, nil, func(t *testing.T, k kind) {
		r := k.play(t, scene{refuse: true, prompts: []string{"!touch marker\nbg -- touch marker"}})
		want := scene{refuse: true}.refusal()
		if k.acpx != "" {
			want = "Permission denied"
		}
		cards, said := r.cards()
		check(t, "tool calls", len(cards), 2)
		for _, c := range cards {
			check(t, "outcome", c.report.Outcome, terminal.Failed)
			check(t, "status", c.status, "failed")
			check(t, "embedded", c.embeds, nil)
			if !strings.Contains(c.report.Error, want) {
				t.Errorf("the report says %q, want it to have %q", c.report.Error, want)
			}
		}
		if n := strings.Count(said, want); n != 2 {
			t.Errorf("the agent said %q, want %q twice", said, want)
		}
		check(t, "terminal/create requests", r.count("terminal/create"), 2)
		check(t, "exit of the client", r.exit.String(), fmt.Sprintf("exit code %d", k.refused))
		if _, err := os.Stat(filepath.Join(r.dir, "marker")); err == nil {
			t.Error("the command ran")
		}
	})
}

// A background command ends by kill, within the turn that started it.
func TestBackgroundKill(t *testing.T) {
	each(t, nil, func(t *testing.T, k kind) {
		line := k.lasting("ready")
		r := k.play(t, scene{prompts: []string{"bg -- " + line + "\noutput t1 --wait 10s\nkill t1\njobs"}})
		check(t, "started", r.card(line).report.Outcome, terminal.Running)
		r.result("output t1 --wait 10s", terminal.Running, "ready\n")
		r.result("kill t1", terminal.Stopped, "ready\n")
	})
}

// A background command survives its turn. What was not killed ends with the
// session, while the agent and its client go on.
func TestBackgroundSurvives(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		line := k.lasting("ready")
		r := k.play(t, scene{
			prompts: []string{
				"bg --env SCENE=killed -- " + line + "\nbg --env SCENE=closed -- " + line,
				"output t1 --wait 10s",
				"kill t1",
				"wait t2 --timeout 0.1s",
			},
			last: func(r *rig) {
				r.nothingWith("SCENE=killed")
				r.running("SCENE=closed", "sleep 300")
				r.order(order{Close: true})
				r.nothingWith("SCENE=closed")
				r.running(r.mark, r.agent)
			},
		})
		r.result("output t1 --wait 10s", terminal.Running, "ready\n")
		r.result("kill t1", terminal.Stopped, "ready\n")
		check(t, "t2", r.card("wait t2 --timeout 0.1s").report.Outcome, terminal.Running)
	})
}

// The same in a session of acpx, whose agent lives on between its runs.
func TestBackgroundSurvivesRuns(t *testing.T) {
	each(t, func(k kind) bool { return k.sessions }, func(t *testing.T, k kind) {
		line := k.lasting("ready")
		r := k.rig(t)
		run := func(command ...string) *rig {
			t.Helper()
			r := r.again()
			r.start(k.args(r, scene{}, command...)...)
			r.exits()
			check(t, fmt.Sprintf("exit of acpx %q", command), r.exit.String(), "exit code 0")
			return r
		}
		run("sessions", "new")
		run("prompt", "bg --env SCENE=killed -- "+line+"\nbg --env SCENE=closed -- "+line)
		run("prompt", "output t1 --wait 10s").result("output t1 --wait 10s", terminal.Running, "ready\n")
		run("prompt", "kill t1").result("kill t1", terminal.Stopped, "ready\n")
		r.nothingWith("SCENE=killed")
		r.running("SCENE=closed", "sleep 300")
		run("sessions", "close")
		r.nothingWith(r.mark)
	})
}

// An editor that starts the agent anew finds its earlier sessions by their titles
// and goes on with them.
func TestSessionsOfAnEditor(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		first := k.play(t, scene{prompts: []string{"/run -- echo kept"}})
		if !slices.ContainsFunc(first.wire, func(m message) bool { return m.Params.Update.Kind == "available_commands_update" }) {
			t.Error("no commands were announced")
		}
		r := first.again()
		k.begin(r, scene{})
		result := func(method string, params map[string]any) (result json.RawMessage) {
			t.Helper()
			r.order(order{Method: method, Params: params})
			r.until(method, func(wire []message) bool {
				for _, m := range wire {
					if m.from != "agent" || m.Method != "" {
						continue
					}
					if asked := request(wire, "client", *m.ID); asked != nil && asked.Method == method {
						result = m.Result
						return true
					}
				}
				return false
			})
			return result
		}
		var list struct {
			Sessions []struct{ SessionID, Title, Cwd string }
		}
		if err := json.Unmarshal(result("session/list", nil), &list); err != nil || len(list.Sessions) != 1 {
			t.Fatalf("%v, %+v", err, list)
		}
		s := list.Sessions[0]
		check(t, "title", s.Title, "/run -- echo kept")
		check(t, "cwd", s.Cwd, r.dir)
		if got := string(result("session/resume", map[string]any{"sessionId": s.SessionID})); got != "{}" {
			t.Errorf("session/resume: %s", got)
		}
		cards, said := r.cards()
		check(t, "cards", len(cards), 0)
		check(t, "messages", said, "")
		result("session/close", map[string]any{"sessionId": s.SessionID})
		if got := string(result("session/load", map[string]any{"sessionId": s.SessionID, "mcpServers": []any{}})); got != "{}" {
			t.Errorf("session/load: %s", got)
		}
		check(t, "status", r.card("echo kept").status, "completed")
		r.stdin.Close()
		r.exits()
	})
}

// At the end of its input the agent has all commands killed and released by a
// client that reads on, and exits; nobody else would end them.
func TestEndOfInput(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		line := k.lasting("ready")
		r := k.play(t, scene{
			prompts: []string{"bg -- " + line + "\nbg -- " + line + "\n!true", "bg --input -- " + line},
			last: func(r *rig) {
				r.running(r.mark, "sleep 300")
				r.order(order{Prompt: "!" + line}) // its answer is never seen
				r.until("its terminal", func(wire []message) bool {
					return r.count("terminal/wait_for_exit") == 4 && slices.ContainsFunc(wire, func(m message) bool {
						return slices.Contains(embeds(m.Params.Update), "terminal-4")
					})
				})
			},
		})
		check(t, "exit of the client", r.exit.String(), "exit code 0")
		check(t, "exit of the agent", r.end.Code, new(0))
		check(t, "kills", r.count("terminal/kill"), 3)
		check(t, "stderr", r.stderr.String(), "")
	})
}

// An agent whose output nobody reads any more ends, with what runs in it, even
// while it has nothing to write and something holds its input open.
func TestNobodyReads(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		for _, prompt := range []string{"help", "bg -- sleep 300", "bg --input -- sleep 300"} {
			r := k.rig(t)
			k.begin(r, scene{})
			r.order(order{Prompt: prompt})
			r.until("the answer", func(wire []message) bool { return len(answers(wire)) > 0 })
			r.order(order{Stalled: true})
			if !k.raw {
				r.stdin.Close()
			}
			r.exits()
			check(t, prompt+": exit of the agent", r.end.Code, new(1))
			if s := r.stderr.String(); !strings.Contains(s, "nobody reads the output") {
				t.Errorf("%s: stderr: %q", prompt, s)
			}
			if prompt != "bg -- sleep 300" { // that is the client's own
				r.nothingWith(r.mark)
			}
		}
	})
}

// A client that dies says nothing. The agent ends, with what runs in it.
func TestClientDies(t *testing.T) {
	each(t, func(k kind) bool { return !k.raw }, func(t *testing.T, k kind) {
		r := k.rig(t)
		const prompt = "run --input --env SCENE=dies -- sleep 300 & wait" // input: not in the client
		k.begin(r, scene{prompts: []string{prompt}})
		if r.order != nil {
			r.order(order{Prompt: prompt})
		}
		r.running("SCENE=dies", "sleep 300")
		if err := r.process.Signal(os.Kill); err != nil {
			t.Fatal(err)
		}
		r.exits()
		r.nothingWith("SCENE=dies")
		r.nothingWith(r.mark)
	})
}
