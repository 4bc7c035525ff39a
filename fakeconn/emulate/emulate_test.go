package emulate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/fakeconn/emulate"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/memterm/memshell"
)

// A probe is a client with a Behaviour and an agent that asks it directly.
type probe struct {
	*testing.T
	c       *fakeconn.Client
	session acp.SessionId
}

// argv prints its words, quoted, so that nothing is lost of them.
func argv(p *memterm.Process) terminal.Exit {
	for _, arg := range p.Args[1:] {
		fmt.Fprintf(p.Stdout, "%q\n", arg)
	}
	return memterm.Code(0)
}

func probing(t *testing.T, b emulate.Behaviour, f func(p *probe)) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeconn.New(b.Client(&fakeconn.Options{
			Programs: map[string]memterm.Program{"argv": argv},
			Memterm:  &memterm.Options{Shell: memshell.New(map[string]string{"/work/EXPANDED": ""})},
			// The probe does what no agent may.
			Allow: []fakeconn.Rule{fakeconn.RuleUnknown, fakeconn.RuleReleased, fakeconn.RuleRelease},
		}))
		id, err := c.NewSession(t.Context(), "/work")
		if err != nil {
			t.Fatal(err)
		}
		f(&probe{t, c, id})
		if err := c.Close(); err != nil {
			t.Errorf("%v\n%s", err, c.Transcript())
		}
	})
}

// bounded is how long a probe waits for an answer.
func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// said is an error as a probe tells it.
func said(err error) string {
	if re, ok := err.(*acp.RequestError); ok && re.Code != -32800 && !strings.Contains(fmt.Sprint(re.Data), "deadline") {
		return fmt.Sprintf("error %d", re.Code)
	}
	return "no answer"
}

func (p *probe) create(req acp.CreateTerminalRequest) (id, failed string) {
	req.SessionId = p.session
	if req.Cwd == nil {
		req.Cwd = new("/work")
	}
	ctx, cancel := bounded()
	defer cancel()
	resp, err := p.c.Conn().CreateTerminal(ctx, req)
	if err != nil {
		return "", "create " + said(err)
	}
	return resp.TerminalId, ""
}

func status(code *int, signal *string) string {
	text := func(null bool, v func() string) string {
		if null {
			return "null"
		}
		return v()
	}
	return text(code == nil, func() string { return fmt.Sprint(*code) }) + " " + text(signal == nil, func() string { return *signal })
}

func (p *probe) wait(id string) string {
	ctx, cancel := bounded()
	defer cancel()
	resp, err := p.c.Conn().WaitForTerminalExit(ctx, acp.WaitForTerminalExitRequest{SessionId: p.session, TerminalId: id})
	if err != nil {
		return said(err)
	}
	return status(resp.ExitCode, resp.Signal)
}

func (p *probe) output(id string) string {
	ctx, cancel := bounded()
	defer cancel()
	resp, err := p.c.Conn().TerminalOutput(ctx, acp.TerminalOutputRequest{SessionId: p.session, TerminalId: id})
	if err != nil {
		return said(err)
	}
	s := fmt.Sprintf("%q", resp.Output)
	if resp.Truncated {
		s += " truncated"
	}
	if resp.ExitStatus != nil {
		s += ", " + status(resp.ExitStatus.ExitCode, resp.ExitStatus.Signal)
	}
	return s
}

func (p *probe) kill(id string) string {
	ctx, cancel := bounded()
	defer cancel()
	if _, err := p.c.Conn().KillTerminal(ctx, acp.KillTerminalRequest{SessionId: p.session, TerminalId: id}); err != nil {
		return said(err)
	}
	return "ok"
}

func (p *probe) release(id string) string {
	ctx, cancel := bounded()
	defer cancel()
	if _, err := p.c.Conn().ReleaseTerminal(ctx, acp.ReleaseTerminalRequest{SessionId: p.session, TerminalId: id}); err != nil {
		return said(err)
	}
	return "ok"
}

// run tells how a command ends: as wait_for_exit says, and what terminal/output
// says a moment later.
func (p *probe) run(req acp.CreateTerminalRequest) string {
	id, failed := p.create(req)
	if failed != "" {
		return failed
	}
	exit := p.wait(id)
	time.Sleep(time.Second)
	out := p.output(id)
	p.release(id)
	return exit + "; " + out
}

func line(s string) acp.CreateTerminalRequest { return acp.CreateTerminalRequest{Command: s} }

func sh(s string) acp.CreateTerminalRequest {
	return acp.CreateTerminalRequest{Command: "/bin/sh", Args: []string{"-c", s}}
}

// probes are what is asked of every Behaviour.
var probes = []struct {
	name string
	ask  func(*probe) string
}{
	{"line", func(p *probe) string { return p.run(line("echo a && exit 3")) }},
	{"sh -c", func(p *probe) string { return p.run(sh("echo a; exit 3")) }},
	{"argv", func(p *probe) string {
		return p.run(acp.CreateTerminalRequest{Command: "argv", Args: []string{"a b", "$HOME", "*"}})
	}},
	{"portable line", func(p *probe) string { return p.run(sh(":;echo a; exit 3")) }},
	{"portable words", func(p *probe) string { return p.run(sh(`:;exec 'argv' 'a b' '$HOME' '*' 'it'\''s' ''`)) }},
	{"missing program", func(p *probe) string { return p.run(line("nothing")) }},
	{"missing directory", func(p *probe) string {
		req := sh(":;exec 'true'")
		req.Cwd = new(emulate.MissingDir)
		return p.run(req)
	}},
	{"signal", func(p *probe) string { return p.run(sh(":;exec 'signal' 'SIGTERM'")) }},
	{"signal of a child", func(p *probe) string { return p.run(sh(":;signal SIGTERM; exit $?")) }},
	{"input", func(p *probe) string { return p.run(sh(":;exec 'cat'")) }},
	{"limit 9 of aaaa bbbb cccc", func(p *probe) string {
		req := sh(`:;exec 'print' 'aaaa\nbbbb\ncccc\n'`)
		req.OutputByteLimit = new(9)
		return p.run(req)
	}},
	{"limit 7 of two emoji", func(p *probe) string {
		req := sh(`:;exec 'print' '12🦊🦊'`)
		req.OutputByteLimit = new(7)
		return p.run(req)
	}},
	{"output at the exit", func(p *probe) string {
		id, _ := p.create(sh(":;echo a; sleep 1; echo b"))
		p.wait(id)
		return p.output(id)
	}},
	{"second output", func(p *probe) string {
		id, _ := p.create(sh(":;exec 'echo' 'a'"))
		p.wait(id)
		time.Sleep(time.Second)
		p.output(id)
		return p.output(id)
	}},
	{"output of sleep 2", func(p *probe) string {
		id, _ := p.create(sh(":;echo a; exec 'sleep' '2'"))
		time.Sleep(time.Second)
		start := time.Now()
		out := p.output(id)
		return fmt.Sprintf("%s after %v", out, time.Since(start))
	}},
	{"a child that holds the output for 3 s", func(p *probe) string {
		id, _ := p.create(sh(":;after 3s echo late & echo a"))
		start := time.Now()
		exit := p.wait(id)
		waited := time.Since(start).Round(time.Second)
		time.Sleep(4 * time.Second)
		return fmt.Sprintf("%s after %v; %s", exit, waited, p.output(id))
	}},
	{"kill of sleep", func(p *probe) string {
		id, _ := p.create(sh(":;exec 'sleep' '100'"))
		time.Sleep(time.Second)
		return p.kill(id) + "; " + p.wait(id)
	}},
	{"kill of a shell's child", func(p *probe) string {
		id, _ := p.create(sh(":;sleep 100; echo no"))
		time.Sleep(time.Second)
		return p.kill(id) + "; " + p.wait(id)
	}},
	{"kill of what ignores it", func(p *probe) string {
		id, _ := p.create(sh(":;exec 'ignore-term'"))
		time.Sleep(time.Second)
		start := time.Now()
		killed := p.kill(id)
		return fmt.Sprintf("%s after %v; %s", killed, time.Since(start), p.wait(id))
	}},
	{"released", func(p *probe) string {
		id, _ := p.create(sh(":;exec 'echo' 'a'"))
		p.wait(id)
		return p.release(id) + "; release " + p.release(id) + "; output " + p.output(id) + "; kill " + p.kill(id)
	}},
	{"unknown", func(p *probe) string {
		return "wait " + p.wait("x") + "; kill " + p.kill("x") + "; release " + p.release("x")
	}},
	{"other session", func(p *probe) string {
		id, _ := p.create(sh(":;exec 'echo' 'a'"))
		p.wait(id)
		p.session = "another"
		return p.wait(id)
	}},
	{"60 KiB and more that nobody reads", func(p *probe) string {
		id, _ := p.create(sh(":;exec 'spam' '200000'"))
		return p.wait(id)
	}},
	{"200,000 bytes without a limit", func(p *probe) string {
		id, _ := p.create(sh(":;exec 'spam' '200000'"))
		ctx, cancel := bounded()
		defer cancel()
		time.Sleep(time.Second)
		resp, err := p.c.Conn().TerminalOutput(ctx, acp.TerminalOutputRequest{SessionId: p.session, TerminalId: id})
		if err != nil {
			return said(err)
		}
		return fmt.Sprintf("%d %v", len(resp.Output), resp.Truncated)
	}},
	{"12 creates at once", func(p *probe) string {
		start := time.Now()
		done := make(chan string)
		for range 12 {
			go func() {
				id, failed := p.create(sh(":;exec 'true'"))
				if failed == "" {
					failed = "ok"
				}
				p.release(id)
				done <- failed
			}()
		}
		all := map[string]int{}
		for range 12 {
			all[<-done]++
		}
		return fmt.Sprintf("%v in %v", all, time.Since(start))
	}},
	{"NODE_OPTIONS", func(p *probe) string {
		req := sh(":;exec 'true'")
		req.Env = []acp.EnvVariable{{Name: "NODE_OPTIONS", Value: "x"}}
		return p.run(req)
	}},
}

// Every Behaviour does what docs/clients.md, and the measurements behind it, say
// of its client.
func TestBehaviours(t *testing.T) {
	for _, b := range append(emulate.Behaviours(), emulate.Behaviour{Name: "spec"}) {
		t.Run(b.Name, func(t *testing.T) {
			for _, a := range probes {
				probing(t, b, func(p *probe) {
					got := a.ask(p)
					want, ok := behaves[b.Name][a.name]
					if !ok {
						want = behaves["spec"][a.name]
					}
					if got != want {
						t.Errorf("%s:\n got %s\nwant %s", a.name, got, want)
					}
				})
			}
		})
	}
}

// Knobs that no known client has set by itself.
func TestKnobs(t *testing.T) {
	probing(t, emulate.Behaviour{Ask: 4 * time.Second, MaxTerminals: 1}, func(p *probe) {
		start := time.Now()
		id, failed := p.create(sh(":;exec 'sleep' '100'"))
		if took := time.Since(start); failed != "" || took != 4*time.Second {
			t.Errorf("a user who thinks for 4 s: %q after %v", failed, took)
		}
		if _, failed := p.create(sh(":")); failed != "create error -32603" {
			t.Errorf("a second terminal where there may be one: %q", failed)
		}
		p.release(id)
		if _, failed := p.create(sh(":")); failed != "" {
			t.Errorf("a second terminal after the first: %q", failed)
		}
	})
	probing(t, emulate.Behaviour{ReuseIDs: true}, func(p *probe) {
		show := func(call acp.ToolCallId, id string) {
			if err := p.c.Conn().SessionUpdate(p.Context(), acp.SessionNotification{SessionId: p.session, Update: acp.StartToolCall(call, "title",
				acp.WithStartContent([]acp.ToolCallContent{acp.ToolTerminalRef(id)}))}); err != nil {
				p.Error(err)
			}
		}
		first, _ := p.create(sh("echo first"))
		second, _ := p.create(sh("echo second"))
		show("a", first)
		p.wait(first)
		p.release(first)
		third, _ := p.create(sh("echo third"))
		show("b", third)
		if first != third || first == second {
			t.Errorf("the ids are %s, %s and, after the release of the first, %s", first, second, third)
		}
		if got := p.wait(third) + "; " + p.output(third); got != `0 null; "third\n", 0 null` {
			t.Errorf("the terminal whose id came again: %s", got)
		}
		p.c.Sync(p.Context())
		if a, b := p.c.Card("a").Visible(), p.c.Card("b").Visible(); a != "first\n" || b != "third\n" {
			t.Errorf("the user sees %q and %q", a, b)
		}
	})
	probing(t, emulate.Behaviour{Refuse: &acp.RequestError{Code: -32000, Message: "no"}}, func(p *probe) {
		if got := p.run(sh("echo a")); got != "create error -32000" {
			t.Errorf("a user who refuses: %s", got)
		}
		if n := p.c.Starts("echo"); n != 0 {
			t.Errorf("%d starts of what was refused", n)
		}
	})
	probing(t, emulate.Behaviour{}, func(p *probe) {
		p.run(sh("echo a; (echo b); sh -c 'echo c'; exec echo d"))
		if n := p.c.Starts("echo"); n != 4 {
			t.Errorf("%d starts of echo, want 4", n)
		}
	})
}

// behaves is what each Behaviour answers to the probes: one that it does not name
// is answered as by "spec", which has no deviation.
var behaves = map[string]map[string]string{
	"spec": {
		`line`:                                  `create error -32603`,
		`sh -c`:                                 `3 null; "a\n", 3 null`,
		`argv`:                                  `0 null; "\"a b\"\n\"$HOME\"\n\"*\"\n", 0 null`,
		`portable line`:                         `3 null; "a\n", 3 null`,
		`portable words`:                        `0 null; "\"a b\"\n\"$HOME\"\n\"*\"\n\"it's\"\n\"\"\n", 0 null`,
		`missing program`:                       `create error -32603`,
		`missing directory`:                     `create error -32603`,
		`signal`:                                `null SIGTERM; "", null SIGTERM`,
		`signal of a child`:                     `143 null; "", 143 null`,
		`input`:                                 `0 null; "", 0 null`,
		`limit 9 of aaaa bbbb cccc`:             `0 null; "bbb\ncccc\n" truncated, 0 null`,
		`limit 7 of two emoji`:                  `0 null; "🦊" truncated, 0 null`,
		`output at the exit`:                    `"a\nb\n", 0 null`,
		`second output`:                         `"a\n", 0 null`,
		`output of sleep 2`:                     `"a\n" after 0s`,
		`a child that holds the output for 3 s`: `0 null after 0s; "a\nlate\n", 0 null`,
		`kill of sleep`:                         `ok; null SIGKILL`,
		`kill of a shell's child`:               `ok; null SIGKILL`,
		`kill of what ignores it`:               `ok after 0s; null SIGKILL`,
		`released`:                              `ok; release error -32002; output error -32002; kill error -32002`,
		`unknown`:                               `wait error -32002; kill error -32002; release error -32002`,
		`other session`:                         `0 null`,
		`60 KiB and more that nobody reads`:     `0 null`,
		`200,000 bytes without a limit`:         `200000 false`,
		`12 creates at once`:                    `map[ok:12] in 0s`,
		`NODE_OPTIONS`:                          `0 null; "", 0 null`,
	},
	"zed-old": {
		`line`:                      `3 null; "a\n", 3 null`,
		`sh -c`:                     `3 null; "\n", 3 null`,
		`argv`:                      `0 null; "\"a\"\n\"b\"\n\"EXPANDED\"\n", 0 null`,
		`missing program`:           `127 null; "sh: nothing: not found\n", 127 null`,
		`signal`:                    `143 null; "", 143 null`,
		`limit 9 of aaaa bbbb cccc`: `0 null; "aaaa\n" truncated, 0 null`,
		`limit 7 of two emoji`:      `0 null; "" truncated, 0 null`,
		`kill of sleep`:             `ok; 1 Killed`,
		`kill of a shell's child`:   `ok; 1 Killed`,
		`kill of what ignores it`:   `ok after 0s; 1 Killed`,
		`released`:                  `ok; release error -32603; output error -32603; kill error -32603`,
		`unknown`:                   `wait error -32603; kill error -32603; release error -32603`,
		`other session`:             `error -32603`,
	},
	"zed": {
		`line`:                      `3 null; "a\n", 3 null`,
		`missing program`:           `127 null; "sh: nothing: not found\n", 127 null`,
		`signal`:                    `143 null; "", 143 null`,
		`limit 9 of aaaa bbbb cccc`: `0 null; "aaaa\n" truncated, 0 null`,
		`limit 7 of two emoji`:      `0 null; "" truncated, 0 null`,
		`kill of sleep`:             `ok; 1 Killed`,
		`kill of a shell's child`:   `ok; 1 Killed`,
		`kill of what ignores it`:   `ok after 0s; 1 Killed`,
		`released`:                  `ok; release error -32603; output error -32603; kill error -32603`,
		`unknown`:                   `wait error -32603; kill error -32603; release error -32603`,
		`other session`:             `error -32603`,
	},
	"acpx": {
		`line`:                          `3 null; "a\n", 3 null`,
		`missing program`:               `127 null; "sh: nothing: not found\n", 127 null`,
		`output at the exit`:            `"a\n", 0 null`,
		`kill of sleep`:                 `ok; null SIGTERM`,
		`kill of a shell's child`:       `ok; null SIGTERM`,
		`kill of what ignores it`:       `ok after 1.5s; null SIGKILL`,
		`released`:                      `ok; release ok; output error -32603; kill error -32603`,
		`unknown`:                       `wait error -32603; kill error -32603; release ok`,
		`200,000 bytes without a limit`: `65536 true`,
		`12 creates at once`:            `map[ok:12] in 3.52s`,
	},
	"acpx-old": {
		`output at the exit`:            `"a\n", 0 null`,
		`kill of sleep`:                 `ok; null SIGTERM`,
		`kill of a shell's child`:       `ok; null SIGTERM`,
		`kill of what ignores it`:       `ok after 1.5s; null SIGKILL`,
		`released`:                      `ok; release ok; output error -32603; kill error -32603`,
		`unknown`:                       `wait error -32603; kill error -32603; release ok`,
		`200,000 bytes without a limit`: `65536 true`,
		`12 creates at once`:            `map[ok:12] in 21ms`,
	},
	"vscode": {
		`line`:                                  `3 null; "a\n", 3 null`,
		`sh -c`:                                 `3 null; "\n", 3 null`,
		`argv`:                                  `0 null; "\"a\"\n\"b\"\n\"EXPANDED\"\n", 0 null`,
		`missing program`:                       `127 null; "sh: nothing: not found\n", 127 null`,
		`missing directory`:                     `null null; "", -2 null`,
		`input`:                                 `no answer; ""`,
		`limit 7 of two emoji`:                  `0 null; "���🦊" truncated, 0 null`,
		`a child that holds the output for 3 s`: `0 null after 3s; "a\nlate\n", 0 null`,
		`kill of sleep`:                         `ok; null SIGTERM`,
		`kill of a shell's child`:               `ok; no answer`,
		`kill of what ignores it`:               `ok after 0s; no answer`,
		`released`:                              `ok; release error -32603; output error -32603; kill error -32603`,
		`unknown`:                               `wait error -32603; kill error -32603; release error -32603`,
		`12 creates at once`:                    `map[ok:12] in 10ms`,
	},
	"obsidian": {
		`line`:                    `3 null; "a\n", 3 null`,
		`missing program`:         `127 null; "sh: nothing: not found\n", 127 null`,
		`missing directory`:       `127 null; "", 127 null`,
		`input`:                   `no answer; ""`,
		`limit 7 of two emoji`:    `0 null; "���🦊" truncated, 0 null`,
		`output at the exit`:      `"a\n", 0 null`,
		`kill of sleep`:           `ok; null SIGTERM`,
		`kill of a shell's child`: `ok; null SIGTERM`,
		`kill of what ignores it`: `ok after 0s; no answer`,
		`released`:                `ok; release ok; output "", 0 null; kill ok`,
		`unknown`:                 `wait error -32603; kill error -32603; release ok`,
		`12 creates at once`:      `map[ok:12] in 10ms`,
	},
	"deepchat": {
		`line`:                                  `1 0; "execvp(3) failed.: No such file or directory\r\n", 1 0`,
		`sh -c`:                                 `3 0; "", 3 0`,
		`argv`:                                  `0 0; "", 0 0`,
		`portable line`:                         `3 0; "", 3 0`,
		`portable words`:                        `0 0; "", 0 0`,
		`missing program`:                       `1 0; "execvp(3) failed.: No such file or directory\r\n", 1 0`,
		`missing directory`:                     `1 0; "execvp(3) failed.: No such file or directory\r\n", 1 0`,
		`signal`:                                `0 15; "", 0 15`,
		`signal of a child`:                     `143 0; "", 143 0`,
		`input`:                                 `no answer; ""`,
		`limit 9 of aaaa bbbb cccc`:             `0 0; "", 0 0`,
		`limit 7 of two emoji`:                  `0 0; "", 0 0`,
		`output at the exit`:                    `"a\r\n", 0 0`,
		`second output`:                         `"", 0 0`,
		`output of sleep 2`:                     `"a\r\n" after 0s`,
		`a child that holds the output for 3 s`: `0 0 after 0s; "", 0 0`,
		`kill of sleep`:                         `ok; 0 1`,
		`kill of a shell's child`:               `ok; 0 1`,
		`kill of what ignores it`:               `ok after 0s; no answer`,
		`released`:                              `ok; release ok; output error -32002; kill error -32002`,
		`unknown`:                               `wait error -32002; kill error -32002; release ok`,
		`other session`:                         `0 0`,
		`60 KiB and more that nobody reads`:     `0 0`,
		`200,000 bytes without a limit`:         `0 false`,
		`12 creates at once`:                    `map[ok:12] in 10ms`,
		`NODE_OPTIONS`:                          `0 0; "", 0 0`,
	},
	"jupyter": {
		`line`:                                  `0 null; "a && exit 3\n", 0 null`,
		`missing program`:                       `create error -32602`,
		`missing directory`:                     `create error -32602`,
		`a child that holds the output for 3 s`: `0 null after 3s; "a\nlate\n", 0 null`,
		`other session`:                         `error -32600`,
		`12 creates at once`:                    `map[ok:12] in 4ms`,
		`NODE_OPTIONS`:                          `create error -32602`,
	},
	"toad": {
		`line`:                                  `3 null; "a\r\n", 3 null`,
		`sh -c`:                                 `3 null; "a\r\n", 3 null`,
		`argv`:                                  `0 null; "\"a b\"\r\n\"$HOME\"\r\n\"*\"\r\n", 0 null`,
		`portable line`:                         `3 null; "a\r\n", 3 null`,
		`portable words`:                        `0 null; "\"a b\"\r\n\"$HOME\"\r\n\"*\"\r\n\"it's\"\r\n\"\"\r\n", 0 null`,
		`missing program`:                       `127 null; "sh: nothing: not found\r\n", 127 null`,
		`missing directory`:                     `0 null; ""`,
		`signal`:                                `143 null; "", 143 null`,
		`input`:                                 `no answer; ""`,
		`limit 9 of aaaa bbbb cccc`:             `0 null; "b\r\ncccc\r\n", 0 null`,
		`output at the exit`:                    `"a\r\nb\r\n", 0 null`,
		`second output`:                         `"a\r\n", 0 null`,
		`output of sleep 2`:                     `"a\r\n" after 0s`,
		`a child that holds the output for 3 s`: `0 null after 3s; "a\r\nlate\r\n", 0 null`,
		`kill of sleep`:                         `ok; no answer`,
		`kill of a shell's child`:               `ok; no answer`,
		`kill of what ignores it`:               `ok after 0s; no answer`,
		`released`:                              `ok; release ok; output "a\r\n", 0 null; kill ok`,
		`unknown`:                               `wait error -32603; kill ok; release ok`,
		`200,000 bytes without a limit`:         `203125 false`,
		`12 creates at once`:                    `map[ok:12] in 4ms`,
	},
	"go-sdk-stub": {
		`line`:                                  `null null; ""`,
		`sh -c`:                                 `null null; ""`,
		`argv`:                                  `null null; ""`,
		`portable line`:                         `null null; ""`,
		`portable words`:                        `null null; ""`,
		`missing program`:                       `null null; ""`,
		`missing directory`:                     `null null; ""`,
		`signal`:                                `null null; ""`,
		`signal of a child`:                     `null null; ""`,
		`input`:                                 `null null; ""`,
		`limit 9 of aaaa bbbb cccc`:             `null null; ""`,
		`limit 7 of two emoji`:                  `null null; ""`,
		`output at the exit`:                    `""`,
		`second output`:                         `""`,
		`output of sleep 2`:                     `"" after 0s`,
		`a child that holds the output for 3 s`: `null null after 0s; ""`,
		`kill of sleep`:                         `ok; null null`,
		`kill of a shell's child`:               `ok; null null`,
		`kill of what ignores it`:               `ok after 0s; null null`,
		`released`:                              `ok; release ok; output ""; kill ok`,
		`unknown`:                               `wait null null; kill ok; release ok`,
		`other session`:                         `null null`,
		`60 KiB and more that nobody reads`:     `null null`,
		`200,000 bytes without a limit`:         `0 false`,
		`NODE_OPTIONS`:                          `null null; ""`,
	},
	"kotlin-sample": {
		`sh -c`:                                 `3 null; "a\n"`,
		`argv`:                                  `0 null; "\"a b\"\n\"$HOME\"\n\"*\"\n"`,
		`portable line`:                         `3 null; "a\n"`,
		`portable words`:                        `0 null; "\"a b\"\n\"$HOME\"\n\"*\"\n\"it's\"\n\"\"\n"`,
		`signal`:                                `null SIGTERM; ""`,
		`signal of a child`:                     `143 null; ""`,
		`input`:                                 `no answer; no answer`,
		`limit 9 of aaaa bbbb cccc`:             `0 null; "aaaa\nbbbb\ncccc\n"`,
		`limit 7 of two emoji`:                  `0 null; "12🦊🦊"`,
		`output at the exit`:                    `"a\nb\n"`,
		`second output`:                         `""`,
		`output of sleep 2`:                     `"a\n" after 1s`,
		`a child that holds the output for 3 s`: `0 null after 0s; "a\nlate\n"`,
		`kill of sleep`:                         `ok; null SIGTERM`,
		`kill of a shell's child`:               `ok; null SIGTERM`,
		`kill of what ignores it`:               `ok after 0s; no answer`,
		`released`:                              `ok; release ok; output error -32603; kill ok`,
		`unknown`:                               `wait error -32603; kill ok; release ok`,
		`60 KiB and more that nobody reads`:     `no answer`,
		`NODE_OPTIONS`:                          `0 null; ""`,
	},
}
