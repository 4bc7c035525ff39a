package acpwire_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acpwire"
)

// outcome is what came of a request of the agent.
type outcome struct {
	Output string
	Code   int
}

// request asks the client for an output, on a goroutine of its own.
func (w *wire) request() chan outcome {
	ch := make(chan outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		resp, err := w.conn.TerminalOutput(ctx, acp.TerminalOutputRequest{SessionId: "s", TerminalId: "t"})
		o := outcome{Output: resp.Output}
		if refusal, ok := errors.AsType[*acp.RequestError](err); ok {
			o.Code = refusal.Code
		}
		ch <- o
	}()
	return ch
}

// The ids of the agent's requests are far from those that clients count. Replies
// find their way back, and those to nothing do not.
func TestRequestIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t, nil)
		for i, format := range []string{
			`{"jsonrpc":"2.0","id":%d,"result":{"output":"x","truncated":false}}`,
			`{"jsonrpc":"2.0","result":{"output":"x","truncated":false},"id":%d}`,
			`{"jsonrpc":"2.0","id":%d.0,"result":{"output":"x","truncated":false}}`,
			`{"jsonrpc":"2.0","id":"%d","result":{"output":"x","truncated":false}}`,
			`{"jsonrpc":"2.0","ID":%de0,"result":{"output":"x","truncated":false}}`,
		} {
			got := w.request()
			var m struct {
				ID     int64
				Method string
			}
			if err := json.Unmarshal([]byte(w.line()), &m); err != nil || m.ID != acpwire.FirstID+int64(i)+1 || m.Method != "terminal/output" {
				t.Fatalf("%+v, %v", m, err)
			}
			// None of these is the answer, though the SDK counts as the client does.
			w.send(
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"output":"wrong","truncated":false}}`, i+1),
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"output":"wrong","truncated":false}}`, m.ID+1),
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"wrong"}}`, m.ID-1),
				`{"jsonrpc":"2.0","id":"x","result":{}}`,
				`{"jsonrpc":"2.0","id":[],"result":{}}`,
				`{"jsonrpc":"2.0","id":null,"result":{}}`,
				fmt.Sprintf(format, m.ID),
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"output":"twice","truncated":false}}`, m.ID))
			if diff := cmp.Diff(outcome{Output: "x"}, <-got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", format, diff)
			}
		}
		// The client is asked to give up the request by the id that it knows.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := w.conn.KillTerminal(ctx, acp.KillTerminalRequest{}); err == nil {
			t.Error("an answer came of nothing")
		}
		w.line()
		if got, want := w.line(), fmt.Sprintf(`"params":{"requestId":%d}`, acpwire.FirstID+6); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
		// The client's own ids are its own.
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":1}}`, acpwire.FirstID+1))
		if line := w.line(); !strings.HasPrefix(line, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":`, acpwire.FirstID+1)) {
			t.Error(line)
		}
	})
}

// A line that the SDK does not take, by its length or by what it is, fails the
// one request that it was, whoever sent that; everything else goes on.
func TestLinesThatAreDropped(t *testing.T) {
	long := strings.Repeat("x", acpwire.MaxLine)
	const reply = "reply" // the answer to our request, whose id is %d
	tests := []struct {
		name, line string
		id         string // that is answered with the error; "" for none, reply for ours
		code       int
	}{
		{"a long request", `{"jsonrpc":"2.0","id":7,"method":"initialize","params":"` + long + `"}`, `7`, -32600},
		{"a long prompt", prompt(`"a\"b,}"`, "s", long), `"a\"b,}"`, -32600},
		{"a long request, its id at the end", `{"params":{"id":1,"x":["` + long + `"]},"method":"m","id" : 7 }`, `7`, -32600},
		{"a long notification", `{"method":"x","params":{"id":7,"result":"` + long + `"}}`, "", 0},
		{"a long request without an id", `{"id":null,"method":"x","params":"` + long + `"}`, "", 0},
		{"a long reply", `{"jsonrpc":"2.0","id":%d,"result":{"output":"` + long + `"}}`, reply, -32603},
		{"a long reply, its id at the end", `{"result":{"id":1,"method":"x","output":["` + long + `"]},"id" : %d ,"jsonrpc":"2.0"}`, reply, -32603},
		{"a long error", `{"id":%d,"error":{"code":1,"message":"` + long + `"}}`, reply, -32603},
		{"a long text with quotes", `{"id":%d,"result":"\",\"id\":8,{[` + long + `\\"}`, reply, -32603},
		{"a long reply to nothing", `{"id":7,"result":"` + long + `"}`, "", 0},
		{"a long text", long, "", 0},
		{"a long id", `{"id":"` + long + `","method":"x"}`, "", 0},
		{"an id that is none", `{"id":1 2,"method":"x","params":"` + long + `"}`, "", 0},
		{"half a request", `{"jsonrpc":"2.0","id":7,"method":"initialize","par`, `7`, -32700},
		{"half an id", `{"jsonrpc":"2.0","method":"initialize","id":7`, "", 0},
		{"half a string id", `{"jsonrpc":"2.0","method":"initialize","id":"7`, "", 0},
		{"a request with a bad string", "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"initialize\",\"params\":\"\x01\"}", `"x"`, -32700},
		{"a request and more", `{"jsonrpc":"2.0","id":7,"method":"initialize"} x`, `7`, -32700},
		{"a method that is none", `{"jsonrpc":"2.0","id":7,"method":["initialize"]}`, `7`, -32600},
		{"a method that is none, without an id", `{"jsonrpc":"2.0","method":7}`, "", 0},
		{"half a notification", `{"jsonrpc":"2.0","method":"session/can`, "", 0},
		{"half a reply", `{"jsonrpc":"2.0","id":%d,"result":{"output`, reply, -32603},
		{"half a reply to nothing", `{"jsonrpc":"2.0","id":7,"result":{"output`, `7`, -32700}, // or half a request
		{"a reply with an error that is none", `{"jsonrpc":"2.0","id":%d,"error":"no"}`, reply, -32603},
		{"a reply with neither", `{"jsonrpc":"2.0","id":%d}`, reply, 0},
		{"nothing", ``, "", 0},
		{"blanks", " \t", "", 0},
		{"no JSON", `Debugger attached.`, "", 0},
		{"an array", `[{"jsonrpc":"2.0","id":7,"method":"initialize"}]`, "", 0},
		{"an empty object", `{}`, "", 0},
		{"too deep", `{"id":7,"method":"initialize","params":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, `7`, -32700},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log locked
				w := connect(t, options(&log))
				got := w.request()
				w.line()
				line := test.line
				if test.id == reply {
					line = fmt.Sprintf(strings.Replace(line, "%d", "%[1]d", 1), acpwire.FirstID+1)
				}
				w.send(line)
				switch test.id {
				case "":
					w.quiet()
				case reply:
					if o := <-got; o.Code != test.code || o.Output != "" {
						t.Errorf("the request came to %+v", o)
					}
				default:
					if diff := cmp.Diff(map[string]string{test.id: fmt.Sprint(test.code)}, w.answers(1)); diff != "" {
						t.Errorf("(-want +got)\n%s", diff)
					}
				}
				if test.id == "" && strings.TrimSpace(line) != "" && !strings.Contains(log.String(), "dropped") {
					t.Errorf("nothing of it in the log:\n%s", log.String())
				}
				if strings.Contains(log.String(), strings.Repeat("x", 100)) {
					t.Errorf("the line is in the log:\n%.2000s", log.String())
				}
				// The connection goes on.
				w.send(prompt("9", "s", "wait 1s"))
				if got := w.answers(1)["9"]; got != ended {
					t.Errorf("the next prompt is answered %q", got)
				}
			})
		})
	}
}

// A line that fits goes to the SDK, however it comes.
func TestLinesThatFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t, nil)
		got := w.request()
		w.line()
		before, after := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"truncated":false,"output":"`, acpwire.FirstID+1), `"}}`
		text := strings.Repeat("x", acpwire.MaxLine-len(before)-len(after)-len("\n"))
		w.send(before + text + after)
		if o := <-got; o.Output != text {
			t.Errorf("%d bytes became %d, %d", len(text), len(o.Output), o.Code)
		}
	})
	// Byte by byte, and the last line without its end.
	a := &agent{open: map[*bool]acp.SessionId{}}
	var out locked
	in := strings.NewReader("\n" + prompt("1", "s", "wait 1ms") + "\r\n" + prompt("2", "other", "wait 1ms"))
	conn := acpwire.Connect(a, iotest.OneByteReader(in), &out, nil)
	<-conn.Done()
	for end := time.Now().Add(10 * time.Second); strings.Count(out.String(), "\n") < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the answers are %s", out.String())
		}
	}
}

// The agent has its connection before it is asked anything.
func TestConnectHoldsInputBack(t *testing.T) {
	for range 100 {
		a := &agent{open: map[*bool]acp.SessionId{}}
		var out locked
		conn := acpwire.Connect(a, strings.NewReader(prompt("1", "s", "wait 0s")), &out, nil)
		if a.conn != conn {
			t.Fatal("the agent has no connection, or another one")
		}
		<-conn.Done()
	}
}

// A client that does not read its errors is not read from without end, and gets
// all of them once it reads.
func TestErrorsToAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, out := io.Pipe()
		in, to := io.Pipe()
		conn := acpwire.Connect(&agent{}, in, out, nil)
		const n = 1000
		go func() {
			for i := range n {
				fmt.Fprintf(to, "{\"id\":%d,\"method\":7}\n", i)
			}
			to.Close()
		}()
		time.Sleep(time.Second)
		got := map[string]bool{}
		go func() { <-conn.Done(); time.Sleep(time.Second); out.Close() }()
		all, _ := io.ReadAll(from)
		for line := range bytes.Lines(all) {
			var m struct{ ID json.RawMessage }
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatal(err)
			}
			got[string(m.ID)] = true
		}
		if len(got) != n {
			t.Errorf("%d errors of %d came", len(got), n)
		}
	})
}

// A flood of notifications that the agent has no use for costs nothing; what it
// has a use for, it gets.
func TestNotificationsThatNobodyTakes(t *testing.T) {
	flood := func(method, params string) (lines []string) {
		for range 5000 {
			lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params))
		}
		return lines
	}
	known := map[string]string{
		"_mine":              `[]`,
		"document/didOpen":   `{"sessionId":"s","uri":"u","languageId":"go","version":1,"text":"x"}`,
		"document/didChange": `{"sessionId":"s","uri":"u","version":1,"contentChanges":[]}`,
		"document/didSave":   `{"sessionId":"s","uri":"u"}`,
		"document/didFocus":  `{"sessionId":"s","uri":"u","version":1,"position":{"line":1,"character":1},"visibleRange":{"start":{"line":1,"character":1},"end":{"line":1,"character":1}}}`,
		"document/didClose":  `{"sessionId":"s","uri":"u"}`,
		"nes/accept":         `{"sessionId":"s","id":"1"}`,
		"nes/reject":         `{"sessionId":"s","id":"1"}`,
	}
	unknown := map[string]string{"unknown": `{}`, "$/unknown": `{}`, "session/update": `{}`}
	maps.Copy(unknown, known)
	for method, params := range unknown {
		t.Run(method, func(t *testing.T) {
			w := connect(t, nil)
			w.send(append(append([]string{prompt("1", "s", "wait 1h")}, flood(method, params)...), cancel("s"))...)
			if got := w.answers(1)["1"]; got != cancelled {
				t.Errorf("the prompt is answered %s", got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		// One that the agent has no method for is dropped here: it is no matter of the SDK's.
		var lines []string
		for method, params := range known {
			line := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params)
			lines = append(lines, line, line)
		}
		var log strings.Builder // written by one goroutine, that of the log
		conn := acpwire.Connect(&agent{}, strings.NewReader(strings.Join(lines, "\n")), io.Discard, &acpwire.Options{Logger: logger(&log)})
		<-conn.Done()
		synctest.Wait()
		for method := range known {
			if n := strings.Count(log.String(), "was dropped\" method="+method); n != 1 {
				t.Errorf("that %s was dropped is logged %d times, want once:\n%s", method, n, log.String())
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		a := &curious{agent: &agent{}, got: map[string]bool{}}
		var lines []string
		for method, params := range known {
			lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params))
		}
		conn := acpwire.Connect(a, strings.NewReader(strings.Join(lines, "\n")), io.Discard, nil)
		<-conn.Done()
		synctest.Wait()
		for method := range known {
			if !a.got[method] {
				t.Errorf("the agent did not get %s", method)
			}
		}
	})
}

// An editor is an agent that takes documents and extensions, slowly.
type editor struct {
	*agent
	pause time.Duration
	got   []string // written by one handler after the other
}

func (e *editor) UnstableDidSaveDocument(_ context.Context, n acp.UnstableDidSaveDocumentNotification) error {
	time.Sleep(e.pause)
	e.got = append(e.got, string(n.Uri))
	return nil
}

func (e *editor) HandleExtensionMethod(_ context.Context, method string, params json.RawMessage) (any, error) {
	time.Sleep(e.pause)
	e.got = append(e.got, method+string(params))
	return nil, errors.New("no")
}

// Any number of notifications may wait for the agent: it gets all of them, in
// their order, and neither a cancel nor a request waits for them. Requests without
// an id are no notifications, and no answer comes of them.
func TestFloodOfNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &editor{agent: &agent{open: map[*bool]acp.SessionId{}}, pause: time.Second}
		in, to := io.Pipe()
		from, out := io.Pipe()
		conn := acpwire.Connect(e, in, out, nil)
		const n = 5000
		var want []string
		go func() {
			fmt.Fprintln(to, prompt("1", "s", "wait 1h"))
			for i := range n {
				fmt.Fprintf(to, `{"method":"document/didSave","params":{"sessionId":"s","uri":"%d"}}`+"\n", i)
				fmt.Fprintf(to, `{"method":"_mine","params":[%d]}`+"\n", i)
				fmt.Fprintln(to, `{"method":"document/didSave","params":{"uri":[7]}}`)
				fmt.Fprintln(to, `{"id":null,"method":"initialize","params":{"protocolVersion":1}}`)
			}
			fmt.Fprintln(to, cancel("s"))
			fmt.Fprintln(to, `{"id":2,"method":"initialize","params":{"protocolVersion":1}}`)
		}()
		for i := range n {
			want = append(want, fmt.Sprint(i), fmt.Sprintf("_mine[%d]", i))
		}
		start := time.Now()
		lines := bufio.NewScanner(from)
		var answers []string
		for range 2 {
			lines.Scan()
			answers = append(answers, lines.Text())
		}
		slices.Sort(answers)
		if !strings.Contains(answers[0], `"id":1,"result":{"stopReason":"cancelled"`) || !strings.Contains(answers[1], `"id":2,"result"`) {
			t.Errorf("the answers are %q", answers)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("the answers took %v", took)
		}
		time.Sleep(2*n*e.pause + time.Second)
		synctest.Wait()
		if !slices.Equal(e.got, want) {
			t.Errorf("of %d notifications the agent got %d, or in another order", len(want), len(e.got))
		}
		to.Close()
		<-conn.Done()
		out.Close()
	})
}

// Notifications that wait have a bound; what is over it is lost, and that is
// logged once.
func TestBacklogOfNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &editor{agent: &agent{open: map[*bool]acp.SessionId{}}, pause: time.Hour}
		var log locked
		in, to := io.Pipe()
		conn := acpwire.Connect(e, in, io.Discard, options(&log))
		const n, size = 100, 1 << 20
		for range n {
			fmt.Fprintf(to, `{"method":"_mine","params":"%s"}`+"\n", strings.Repeat("x", size))
		}
		time.Sleep((n + 1) * e.pause)
		synctest.Wait()
		if got := len(e.got); got < 60 || got > 70 {
			t.Errorf("%d notifications of 1 MiB were kept, want 64 MiB", got)
		}
		fmt.Fprintf(to, `{"method":"_mine","params":"again%s"}`+"\n", strings.Repeat("x", 2*size))
		time.Sleep(2 * e.pause)
		synctest.Wait()
		if last := e.got[len(e.got)-1]; !strings.HasPrefix(last, `_mine"again`) {
			t.Errorf("the last is %.30s", last)
		}
		if got := strings.Count(log.String(), "notifications are lost"); got != 1 {
			t.Errorf("the loss is logged %d times", got)
		}
		to.Close()
		<-conn.Done()
	})
}

// A byte order mark in front of a line costs nothing: programs on .NET write one.
func TestByteOrderMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t, nil)
		w.send("\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`)
		if line := w.line(); !strings.HasPrefix(line, `{"jsonrpc":"2.0","id":1,"result":`) {
			t.Error(line)
		}
	})
}

// A curious agent takes every notification that there is.
type curious struct {
	*agent
	got map[string]bool // written by one handler after the other
}

func (c *curious) UnstableDidOpenDocument(context.Context, acp.UnstableDidOpenDocumentNotification) error {
	c.got["document/didOpen"] = true
	return nil
}

func (c *curious) UnstableDidChangeDocument(context.Context, acp.UnstableDidChangeDocumentNotification) error {
	c.got["document/didChange"] = true
	return nil
}

func (c *curious) UnstableDidSaveDocument(context.Context, acp.UnstableDidSaveDocumentNotification) error {
	c.got["document/didSave"] = true
	return nil
}

func (c *curious) UnstableDidFocusDocument(context.Context, acp.UnstableDidFocusDocumentNotification) error {
	c.got["document/didFocus"] = true
	return nil
}

func (c *curious) UnstableDidCloseDocument(context.Context, acp.UnstableDidCloseDocumentNotification) error {
	c.got["document/didClose"] = true
	return nil
}

func (c *curious) UnstableAcceptNes(context.Context, acp.UnstableAcceptNesNotification) error {
	c.got["nes/accept"] = true
	return nil
}

func (c *curious) UnstableRejectNes(context.Context, acp.UnstableRejectNesNotification) error {
	c.got["nes/reject"] = true
	return nil
}

func (c *curious) HandleExtensionMethod(_ context.Context, method string, _ json.RawMessage) (any, error) {
	c.got[method] = true
	return nil, nil
}

// stuck is a handler whose records are taken when the test ends.
type stuck struct{ slog.Handler }

func (stuck) Handle(context.Context, slog.Record) error {
	select {}
}

// Whatever is logged, a handler that does not return stops nothing.
func TestLogThatBlocks(t *testing.T) {
	w := connect(t, &acpwire.Options{Logger: slog.New(stuck{slog.NewTextHandler(io.Discard, nil)})})
	lines := []string{prompt("1", "s", "wait 1h")}
	for i := range 3000 {
		lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","method":"unknown/%d","params":{}}`, i),
			`{"jsonrpc":"2.0","id":1,"result":{}}`, `no JSON`, `{}`,
			fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%d}}`, i))
	}
	w.send(append(lines, cancel("s"))...)
	if got := w.answers(1)["1"]; got != cancelled {
		t.Errorf("the prompt is answered %s", got)
	}
}
