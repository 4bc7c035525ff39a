package clients_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/terminal"
)

// open starts a client with habits, for a test that gives the orders itself.
func (k kind) open(t *testing.T, s scene) *rig {
	t.Helper()
	r := k.rig(t)
	k.begin(r, s)
	return r
}

// shut ends the client and checks what play does.
func (r *rig) shut(s scene) {
	r.Helper()
	r.stdin.Close()
	r.exits()
	r.nothingWith(r.mark)
	r.audit(s)
}

// answered waits until so many prompts are, and returns how.
func (r *rig) answered(n int) (stops []string) {
	r.Helper()
	r.until(fmt.Sprintf("%d answers", n), func(wire []message) bool {
		stops = answers(wire)
		return len(stops) >= n
	})
	return stops
}

// Over any link, a cancel is for the prompts that came before it, and the prompt
// that follows at once runs: Stop pressed twice, Stop behind an answer, and Stop
// with the next prompt right behind it.
func TestInterruptAndSend(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		for _, link := range []int64{0, 25} {
			s := scene{habits: habits{Link: link}, early: true}
			r := k.open(t, s)
			const rounds = 4
			var want []string
			for n := range rounds {
				r.order(order{Prompt: "!exec sleep 300"})
				if n%2 == 0 { // it runs; or the cancel is right behind it
					r.running(r.mark, "sleep 300")
				}
				r.order(order{Cancel: true})
				if n == 0 {
					r.order(order{Cancel: true})
				}
				r.order(order{Prompt: fmt.Sprintf("!echo round %d", n)})
				r.answered(2*n + 2)
				r.order(order{Cancel: true}) // of nothing
				want = append(want, "cancelled", "end_turn")
			}
			r.order(order{Prompt: "!echo last"})
			stops := r.answered(2*rounds + 1)
			slices.Sort(stops) // two answers at once come in any order
			want = append(want, "end_turn")
			slices.Sort(want)
			check(t, "answers", stops, want)
			for n := range rounds {
				r.result(fmt.Sprintf("echo round %d", n), terminal.Exited, fmt.Sprintf("round %d\n", n))
			}
			r.result("echo last", terminal.Exited, "last\n")
			r.shut(s)
		}
	})
}

// Of any number of overlapping prompts the newest wins.
func TestOverlappingPrompts(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		s := scene{early: true}
		r := k.open(t, s)
		for n := range 5 {
			r.order(order{Prompt: fmt.Sprintf("!echo %d; exec sleep 300", n)})
			time.Sleep(time.Duration(n%2) * 300 * time.Millisecond) // apart, or at once
		}
		r.order(order{Prompt: "!echo newest"})
		stops := r.answered(6)
		slices.Sort(stops)
		check(t, "answers", stops, []string{"cancelled", "cancelled", "cancelled", "cancelled", "cancelled", "end_turn"})
		r.result("echo newest", terminal.Exited, "newest\n")
		r.shut(s)
	})
}

// While a client reads nothing, commands flood, end, are stopped and are followed by
// the next prompt. When it reads on, it gets each tool call first, then its updates,
// and one final status last; and a cancel counted when it was sent.
func TestPausedReading(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		for _, s := range []scene{{bare: true}, {bare: true, display: true}, {early: true}} {
			r := k.open(t, s)
			const pause = 1000
			r.order(order{Pause: pause})
			r.order(order{Prompt: "!yes | head -c 1000000\n!echo two\nbg -- echo three; exec sleep 300"})
			check(t, "answers", r.answered(1), []string{"end_turn"})
			r.order(order{Prompt: "!echo begun; yes | head -c 1000000; exec sleep 300"})
			r.running(r.mark, "sleep 300")
			r.order(order{Pause: pause})
			r.order(order{Cancel: true})
			r.order(order{Prompt: "!echo last"})
			stops := r.answered(3)[1:]
			slices.Sort(stops) // both answers at once come in any order
			check(t, "answers", stops, []string{"cancelled", "end_turn"})
			check(t, "output", r.card("echo last").report.Output, "last\n")
			r.ordered()
			r.shut(s)
		}
	})
}

// A question whose card the client could not be shown, and that is cancelled, is about
// a tool call all the same: that comes when the client reads on, before its end.
func TestPausedReadingOfAQuestion(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		s := scene{bare: true, display: true, args: []string{"--ask"}, habits: habits{Permit: "allow_once"}}
		r := k.open(t, s)
		r.order(order{Prompt: "bg -- while :; do printf '%20000s\\n' x; sleep 0.05; done"})
		r.answered(1)
		r.order(order{Pause: 4000})
		time.Sleep(1500 * time.Millisecond) // its output fills the pipe
		r.order(order{Prompt: "parallel\n!echo asked\n!echo as well"})
		time.Sleep(time.Second)
		r.order(order{Cancel: true})
		t.Logf("answers: %q", r.answered(2)) // cancelled, unless all this took longer than the pause
		r.order(order{Prompt: "!echo on"})
		r.answered(3)
		check(t, "the next", r.card("echo on").report.Output, "on\n")
		r.ordered()
		r.shut(s)
	})
}

// ordered checks that each tool call came before its updates, and had one final
// status; behind that comes only the output of a background command.
func (r *rig) ordered() {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	finals := map[string]int{}
	for _, m := range r.wire {
		u := m.Params.Update
		if m.Method != "session/update" || u.ToolCallID == "" {
			continue
		}
		_, known := finals[u.ToolCallID]
		if (u.Kind == "tool_call") == known {
			r.Errorf("%s of %s, which came before: %v", u.Kind, u.ToolCallID, known)
		}
		finals[u.ToolCallID] += 0
		if u.Status == "completed" || u.Status == "failed" {
			finals[u.ToolCallID]++
		}
	}
	for id, n := range finals {
		if n != 1 {
			r.Errorf("%s has %d final statuses", id, n)
		}
	}
}

// What a kill or a release of the shell leaves of a command on the agent's own host
// is found, ended and named.
func TestKillOfTheShellOnly(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		for _, signal := range []string{"SIGTERM", "SIGKILL"} {
			s := scene{habits: habits{ShellOnly: signal}, early: true}
			r := k.open(t, s)
			r.order(order{Prompt: "run --timeout 1s -- echo early; sleep 36; echo late"})
			r.answered(1)
			c := r.result("echo early; sleep 36; echo late", terminal.TimedOut, "early\n")
			if !strings.Contains(c.report.Error, "(sleep 36)") {
				t.Errorf("%s: the error is %q, want the sleep named", signal, c.report.Error)
			}
			r.order(order{Prompt: "!sleep 37 | cat"})
			r.running(r.mark, "sleep 37")
			r.order(order{Cancel: true})
			check(t, signal+": answers", r.answered(2), []string{"end_turn", "cancelled"})
			r.processes(r.mark, "no sleep", func(procs []string) bool {
				return !slices.ContainsFunc(procs, func(p string) bool { return strings.HasPrefix(p, "sleep") })
			})
			r.order(order{Prompt: "bg -- (trap '' TERM; sleep 38; sleep 39); echo late"})
			r.answered(3)
			r.running(r.mark, "sleep 38")
			r.order(order{Prompt: "kill t3"})
			r.answered(4)
			c = r.result("kill t3", terminal.Stopped, "")
			if !strings.Contains(c.report.Error, "(sleep 38)") || c.report.Unknown {
				t.Errorf("%s: unknown: %v, the error is %q, want the sleep named", signal, c.report.Unknown, c.report.Error)
			}
			r.shut(s)
		}
	})
}

// A request that is too long for the connection is answered, and only that fails.
func TestLongRequest(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		s := scene{}
		r := k.open(t, s)
		r.order(order{Prompt: "!true " + strings.Repeat("x", 11<<20)})
		r.order(order{Prompt: "!echo on"})
		r.answered(1)
		var failure string
		r.until("an error", func(wire []message) bool {
			for _, m := range wire {
				if m.from == "agent" && m.Error != nil {
					failure = m.Error.Message
					return true
				}
			}
			return false
		})
		if !strings.Contains(failure, "bytes") {
			t.Errorf("the error says %q", failure)
		}
		r.result("echo on", terminal.Exited, "on\n")
		r.shut(s)
	})
}

// Members of a wrong type cost nothing: not the initialize, not a cancel, not the
// output and exit of a command, not the terminal that it runs in.
func TestWrongTypes(t *testing.T) {
	params := func(method, member string, value any) habits {
		return habits{Params: map[string]map[string]any{method: {member: value}}}
	}
	answer := func(method, member string, value any) habits {
		return habits{Answers: map[string]map[string]any{method: {member: value}}}
	}
	status := func(code, signal any) any { return map[string]any{"exitCode": code, "signal": signal} }
	each(t, ours, func(t *testing.T, k kind) {
		for name, h := range map[string]habits{
			"clientInfo is text":        params("initialize", "clientInfo", "x"),
			"fs is a list":              params("initialize", "clientCapabilities", map[string]any{"terminal": true, "fs": []any{}}),
			"_meta of initialize":       params("initialize", "_meta", []any{}),
			"_meta of a prompt":         params("session/prompt", "_meta", "x"),
			"_meta of a cancel":         params("session/cancel", "_meta", []any{}),
			"_meta of an output":        answer("terminal/output", "_meta", 7),
			"a number as signal":        answer("terminal/output", "exitStatus", status(0, 9)),
			"text as exit code":         answer("terminal/output", "exitStatus", status("0", nil)),
			"a list as exitStatus":      answer("terminal/output", "exitStatus", []any{}),
			"text as exit code of wait": answer("terminal/wait_for_exit", "exitCode", "0"),
			"_meta of a create":         answer("terminal/create", "_meta", true),
			"_meta of a kill":           answer("terminal/kill", "_meta", "x"),
			"a number as terminalId, text as protocolVersion": {
				NumberIDs: true, Params: map[string]map[string]any{"initialize": {"protocolVersion": "1"}},
			},
			"text as truncated":      answer("terminal/output", "truncated", "false"),
			"an object as truncated": answer("terminal/output", "truncated", map[string]any{}),
		} {
			s := scene{habits: h, early: true}
			r := k.open(t, s)
			r.order(order{Prompt: "!echo out"})
			r.answered(1)
			c := r.card("echo out")
			check(t, name+": output", c.report.Output, "out\n")
			if o := c.report.Outcome; o != terminal.Exited && o != terminal.Unknown || o == terminal.Exited && *c.report.ExitCode != 0 {
				t.Errorf("%s: %s, %v", name, o, c.report.ExitCode)
			}
			if h.Answers["terminal/output"]["exitStatus"] == nil { // else it says at once that the command has ended
				r.order(order{Prompt: "!exec sleep 300"})
				r.running(r.mark, "sleep 300")
				r.order(order{Cancel: true})
				check(t, name+": answers", r.answered(2), []string{"end_turn", "cancelled"})
			}
			r.shut(s)
		}
	})
}

// A number is an output of digits, and an output of another type is none: neither
// costs the exit. A prompt's text may be a number, too.
func TestWrongTypesOfContent(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		for _, test := range []struct {
			output any
			want   string
		}{{7, "7"}, {[]any{"out"}, ""}} {
			r := k.play(t, scene{prompts: []string{"!echo out; exit 3"}, habits: habits{Answers: map[string]map[string]any{
				"terminal/output": {"output": test.output},
			}}})
			c := r.result("echo out; exit 3", terminal.Exited, test.want)
			check(t, "exit code", c.report.ExitCode, new(3))
		}
		s := scene{}
		r := k.open(t, s)
		r.order(order{Method: "session/prompt", Params: map[string]any{"prompt": []any{map[string]any{"type": "text", "text": 7}}}})
		check(t, "answers", r.answered(1), []string{"end_turn"})
		r.shut(s)
	})
}

// A kill that is answered with an error is followed by the release at once, whoever
// ended the command, and it is not repeated. What runs on this host is ended here.
func TestKillIsRefused(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		s := scene{habits: habits{NoKill: true}, early: true}
		r := k.open(t, s)
		r.order(order{Prompt: "run --timeout 1s -- echo early; exec sleep 300"})
		check(t, "answers", r.answered(1), []string{"end_turn"})
		c := r.result("echo early; exec sleep 300", terminal.TimedOut, "early\n")
		if !strings.Contains(c.report.Error, "(sleep 300)") {
			t.Errorf("the error is %q, want the sleep named", c.report.Error)
		}
		r.order(order{Prompt: "!exec sleep 300"})
		r.running(r.mark, "sleep 300")
		r.order(order{Cancel: true})
		check(t, "answers", r.answered(2), []string{"end_turn", "cancelled"})
		r.order(order{Prompt: "bg -- exec sleep 300"})
		r.answered(3)
		r.order(order{Prompt: "kill t3"})
		r.answered(4)
		kills := 0
		wire := r.messages()
		for i, m := range wire {
			if m.from != "client" || m.Error == nil || !strings.Contains(m.raw, noKill) {
				continue
			}
			kills++
			id := request(wire, "agent", *m.ID).Params.TerminalID
			released := slices.IndexFunc(wire[i:], func(m message) bool {
				return m.Method == "terminal/release" && m.Params.TerminalID == id
			})
			if released < 0 {
				t.Errorf("%s is not released behind its kill", id)
				continue
			}
			for _, m := range wire[i : i+released] {
				if m.Method == "terminal/kill" && m.Params.TerminalID == id {
					t.Errorf("%s is killed again", id)
				}
			}
			t.Logf("%s: released %v after the error", id, wire[i+released].at.Sub(m.at))
		}
		check(t, "kills that were refused", kills, 3)
		r.shut(s)
	})
}

// A prompt with a link or a mention in its line is not run in part.
func TestPromptWithALink(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		text := func(s string) any { return map[string]any{"type": "text", "text": s} }
		link := map[string]any{"type": "resource_link", "name": "f", "uri": "file:///f"}
		web := map[string]any{"type": "resource_link", "name": "w", "uri": "https://localhost/w"}
		s := scene{}
		r := k.open(t, s)
		for i, prompt := range [][]any{{text("!echo part "), web}, {text("!echo part "), link, text("; echo rest")}, {link, text("!echo part")}} {
			r.order(order{Method: "session/prompt", Params: map[string]any{"prompt": prompt}})
			r.until("an answer", func(wire []message) bool { return len(answers(wire)) == i+1 })
		}
		r.order(order{Prompt: "!echo whole"})
		r.until("an answer", func(wire []message) bool { return len(answers(wire)) == 4 })
		r.result("echo whole", terminal.Exited, "whole\n")
		r.mu.Lock()
		for _, m := range r.wire {
			if m.from == "agent" && m.Method == "terminal/create" && !strings.Contains(m.raw, "echo whole") {
				t.Errorf("the agent ran %s", m.raw)
			}
		}
		r.mu.Unlock()
		r.shut(s)
	})
}

// A log that nobody reads blocks nothing: not a prompt, not Stop.
func TestUnreadLog(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		s := scene{habits: habits{Unread: true}, early: true}
		r := k.open(t, s)
		r.order(order{Notify: "no/such/notification", Times: 3000})
		r.order(order{Prompt: "!echo one"})
		r.answered(1)
		r.order(order{Prompt: "!exec sleep 300"})
		r.running(r.mark, "sleep 300")
		r.order(order{Cancel: true})
		check(t, "answers", r.answered(2), []string{"end_turn", "cancelled"})
		r.shut(s)
	})
}

// The agent asks under ids that no client counts to, and offers options under
// ids that say what they mean.
func TestPermission(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		for permit, want := range map[string]terminal.Outcome{
			"allow_once": terminal.Exited, "allow_always": terminal.Exited, "reject_once": terminal.Failed, "": terminal.Failed,
		} {
			s := scene{habits: habits{Permit: permit}, args: []string{"--ask"}}
			r := k.open(t, s)
			r.order(order{Prompt: "run --env PATH=/x:/usr/bin:/bin -- echo $PATH\n!echo two"})
			stops := r.answered(1)
			c := r.card("echo $PATH")
			check(t, permit+": title", c.title, "[PATH=/x:/usr/bin:/bin] echo $PATH")
			if permit == "" { // the client closes the question
				t.Logf("closed: %s, %s", stops, c.report.Outcome)
			} else {
				check(t, permit+": outcome", c.report.Outcome, want)
				check(t, permit+": answers", stops, []string{"end_turn"})
			}
			for _, m := range r.messages() {
				if m.Method != "session/request_permission" {
					continue
				}
				if *m.ID < 1<<30 {
					t.Errorf("the agent asks under the id %d", *m.ID)
				}
				var params struct {
					Options  []struct{ OptionID string }
					ToolCall struct {
						Title    string
						RawInput agent.RunInput
					}
				}
				var raw struct{ Params json.RawMessage }
				if err := json.Unmarshal([]byte(m.raw), &raw); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(raw.Params, &params); err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(params.ToolCall.Title, "$PATH") {
					check(t, permit+": env", params.ToolCall.RawInput.Env, map[string]string{"PATH": "/x:/usr/bin:/bin"})
				}
			}
			r.shut(s)
		}
	})
}

// An answer by the kind of an option, in place of its id, is that option.
func TestPermissionByKind(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		for kind, want := range map[string]terminal.Outcome{"allow_once": terminal.Exited, "reject_once": terminal.Failed} {
			s := scene{args: []string{"--ask"}, habits: habits{Answers: map[string]map[string]any{
				"session/request_permission": {"outcome": map[string]any{"outcome": "selected", "optionId": kind}},
			}}}
			r := k.open(t, s)
			r.order(order{Prompt: "!echo one"})
			check(t, kind+": answers", r.answered(1), []string{"end_turn"})
			check(t, kind+": outcome", r.card("echo one").report.Outcome, want)
			r.shut(s)
		}
	})
}

// A flood of bytes that are no text is cancelled and answered as any command is.
func TestCancelOfAFlood(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		for _, s := range []scene{{bare: true}, {early: true}} {
			r := k.open(t, s)
			r.order(order{Prompt: "!exec cat /dev/urandom"})
			r.running(r.mark, "cat /dev/urandom")
			r.order(order{Cancel: true})
			check(t, "answers", r.answered(1), []string{"cancelled"})
			r.ordered()
			r.shut(s)
		}
	})
}

// What a program draws is read as text: nothing of it is lost on a line that was
// erased, or on an alternate screen that is never left.
func TestEscapeSequences(t *testing.T) {
	lines := map[string]string{
		`printf '\033[1Kx\n'`:                       "x\n",
		`printf 'a\tb\033[2Xc\rd\n'`:                "d",
		`printf 'out\n\033[?1049h\033[Hlast words'`: "last words",
		`printf '\033[999A\033[Jkept\n'`:            "kept\n",
	}
	each(t, ours, func(t *testing.T, k kind) {
		for _, s := range []scene{{bare: true}, {}} {
			r := k.open(t, s)
			n := 0
			for line, want := range lines {
				r.order(order{Prompt: "!" + line})
				n++
				r.answered(n)
				if got := r.card(line).report.Output; !strings.Contains(got, want) || strings.Contains(got, "\x1b") {
					t.Errorf("%s: %q, want %q in it", line, got, want)
				}
			}
			r.shut(s)
		}
	})
}

// No output and no number of commands keeps the agent from answering, from
// hearing a cancel, or from ending: not what has to be fenced, or escaped, or does
// not fit beside what else a line of the wire holds.
func TestOutputsOfAllSizes(t *testing.T) {
	lines := []string{
		"!printf '%15000s' | tr ' ' '`'",
		"!printf '%30000s' | tr ' ' '`'; exit 3",
		`!head -c 10000000 /dev/zero | tr '\0' '\033'`,
		`!head -c 3000000 /dev/zero`,
		`!yes '"\' | head -c 3000000`,
		"!printf '%20000s\\n' x 'y`'; : " + strings.Repeat("é", 15000),
		"run --env A=" + strings.Repeat("`", 20000) + " -- printf '%20000s' | tr ' ' '`'",
		"bg -- printf '%15000s' | tr ' ' '`'",
		"wait t8",
		"output t8",
	}
	each(t, ours, func(t *testing.T, k kind) {
		for _, s := range []scene{{bare: true}, {bare: true, display: true}, {}} {
			r := k.open(t, s)
			for i, line := range lines {
				r.order(order{Prompt: line})
				check(t, line[:min(20, len(line))], r.answered(i + 1)[i], "end_turn")
			}
			r.order(order{Prompt: "!while :; do printf '%15000s' | tr ' ' '`'; done"})
			time.Sleep(300 * time.Millisecond)
			r.order(order{Cancel: true})
			check(t, "the cancel", r.answered(len(lines) + 1)[len(lines)], "cancelled")
			cards, _ := r.cards()
			for i, c := range cards[:len(lines)] {
				if c.status != "completed" && i != 1 || !c.hasReport || c.report.Error != "" {
					t.Errorf("card %d: %s, %.200v", i, c.status, c.report)
				}
			}
			r.shut(s)
		}
	})
}

// Hundreds of commands in one prompt come to an end each.
func TestHundredsOfCommands(t *testing.T) {
	n := 100
	if os.Getenv("TERMBRIDGE_REAL") != "" {
		n = 460
	}
	each(t, ours, func(t *testing.T, k kind) {
		s := scene{bare: true}
		r := k.open(t, s)
		r.order(order{Prompt: strings.Repeat("!echo x\n", n)})
		check(t, "answers", r.answered(1), []string{"end_turn"})
		cards, _ := r.cards()
		check(t, "tool calls", len(cards), n)
		for _, c := range cards {
			if c.status != "completed" || c.report.Output != "x\n" {
				t.Errorf("%s: %s, %+v", c.id, c.status, c.report)
			}
		}
		r.shut(s)
	})
}

// A command does not wait for input that its client leaves open.
func TestOpenInput(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		s := scene{habits: habits{OpenInput: true}, prompts: []string{"!cat; echo on\nrun --argv -- cat\nbg -- cat; echo bg\nwait t3 --timeout 30s\n!read x || echo $?"}}
		r := k.play(t, s)
		r.result("cat; echo on", terminal.Exited, "on\n")
		r.result("cat", terminal.Exited, "")
		r.result("wait t3 --timeout 30s", terminal.Exited, "bg\n")
		r.result("read x || echo $?", terminal.Exited, "1\n")
	})
}

// A terminal whose release is answered late is released once, and what has its
// id then lives on.
func TestIDsThatComeAgain(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		s := scene{habits: habits{SameIDs: true, Lag: 2500}}
		r := k.open(t, s)
		r.order(order{Prompt: "!echo one\n!echo two\nbg -- echo lives; exec sleep 300\n!echo three\n!echo four"})
		r.answered(1)
		time.Sleep(4 * time.Second) // past every bound of a release
		r.order(order{Prompt: "output t3"})
		r.answered(2)
		r.result("output t3", terminal.Running, "lives\n")
		for _, word := range []string{"one", "two", "three", "four"} {
			r.result("echo "+word, terminal.Exited, word+"\n")
		}
		r.shut(s)
	})
}

// An output that comes in pieces, each once, is whole or says what is missing.
func TestDrainedOutputs(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		r := k.play(t, scene{habits: habits{Drained: true}, prompts: []string{
			"!for i in 1 2 3 4 5 6; do echo same; sleep 0.3; done", "!for i in 1 2 3 4; do echo $i; sleep 0.3; done", "!printf 'aa'; sleep 0.4; printf 'aa\\n'",
		}})
		for title, want := range map[string]string{
			"for i in 1 2 3 4 5 6; do echo same; sleep 0.3; done": strings.Repeat("same\n", 6),
			"for i in 1 2 3 4; do echo $i; sleep 0.3; done":       "1\n2\n3\n4\n",
			"printf 'aa'; sleep 0.4; printf 'aa\\n'":              "aaaa\n",
		} {
			c := r.card(title)
			if got := c.report.Output; got != want && !strings.Contains(got, strings.TrimSpace(terminal.GapMark)) {
				t.Errorf("%s: %q", title, got)
			}
			check(t, title+": exit code", c.report.ExitCode, new(0))
		}
	})
}

// Exits that only wait_for_exit tells of are exits: a failure, a code of Windows,
// and a silent success once another command has shown that commands run here.
func TestExitsOfWaitOnly(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		r := k.play(t, scene{habits: habits{NoExit: true}, prompts: []string{"!echo out; exit 3\n!true\nbg -- exit 4\nwait t3"}})
		check(t, "exit code", r.result("echo out; exit 3", terminal.Exited, "out\n").report.ExitCode, new(3))
		check(t, "exit code", r.result("true", terminal.Exited, "").report.ExitCode, new(0))
		check(t, "exit code", r.result("wait t3", terminal.Exited, "").report.ExitCode, new(4))
		const windows = 0xC0000005
		r = k.play(t, scene{habits: habits{NoExit: true, Answers: map[string]map[string]any{
			"terminal/wait_for_exit": {"exitCode": windows},
		}}, prompts: []string{"!echo out; exit 3"}})
		check(t, "exit code of Windows", r.result("echo out; exit 3", terminal.Exited, "out\n").report.ExitCode, new(windows))
		r = k.play(t, scene{habits: habits{NoExit: true, Answers: map[string]map[string]any{
			"terminal/wait_for_exit": {"exitCode": nil, "signal": nil},
		}}, prompts: []string{"!echo out"}})
		check(t, "neither code nor signal", r.card("echo out").report.Outcome, terminal.Unknown)
	})
}

// What a client does at the limit of an output: it begins inside a character, or is
// said to be whole. Neither doubles or loses a character without a mark.
func TestOutputsAtTheirLimit(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		for name, h := range map[string]habits{
			"cut in a character": {Cuts: true},
			"said to be whole":   {Answers: map[string]map[string]any{"terminal/output": {"truncated": false}}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				const line = "i=10000; while [ $i -lt 18000 ]; do echo $i-é漢🙂; i=$((i+1)); [ $((i % 500)) = 0 ] && sleep 0.2; done; :"
				s := scene{habits: h}
				r := k.open(t, s)
				r.order(order{Prompt: "bg -- " + line})
				r.answered(1)
				var out strings.Builder
				var cursor int64
				for n := 1; ; n++ { // as it comes: each page is of other snapshots
					title := fmt.Sprintf("output t1 --since %d --wait %dms", cursor, 1000+n)
					r.order(order{Prompt: title})
					r.answered(n + 1)
					c := r.card(title).report
					out.WriteString(c.Output)
					cursor = c.NextCursor
					if c.Outcome != terminal.Running && !c.More {
						check(t, "outcome", c.Outcome, terminal.Exited)
						break
					}
				}
				mark := strings.TrimSpace(terminal.GapMark)
				next := 10000
				for i, part := range strings.Split(out.String(), mark) {
					lines := strings.Split(part, "\n")
					for at, l := range lines {
						n := 0
						_, err := fmt.Sscanf(l, "%5d-é漢🙂", &n)
						beside := i > 0 && at <= 1 || at >= len(lines)-2 // a mark, or the end
						switch {
						case err == nil && (n == next || beside && n > next):
							next = n + 1
						case err == nil || !beside:
							t.Errorf("%q follows %d, and no mark says so", l, next-1)
						}
					}
				}
				check(t, "the next line", next, 18000)
				r.shut(s)
			})
		}
	})
}
