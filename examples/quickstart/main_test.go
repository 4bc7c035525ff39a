package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
)

func serve(in io.Reader, out io.Writer) error {
	return bridge.Serve(context.Background(), in, out, func(b *bridge.Bridge) acp.Agent { return &agent{bridge: b} }, nil)
}

func TestLength(t *testing.T) {
	// The first page of the README is a whole program, and short.
	b, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n > 80 {
		t.Errorf("main.go has %d lines, at most 80 are allowed", n)
	}
}

func TestSessions(t *testing.T) {
	// Several sessions at once, in a client with terminals, that can only display
	// them, and that has none.
	for name, o := range map[string]fakeconn.Options{
		"client": {}, "display": {NoTerminal: true, Display: true}, "text": {NoTerminal: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.Serve = func(in io.Reader, out io.Writer) {
				if err := serve(in, out); err != nil {
					t.Errorf("Serve: %v", err)
				}
			}
			editor := fakeconn.New(&o)
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					id, err := editor.NewSession(t.Context(), t.TempDir())
					if err != nil {
						t.Error(err)
						return
					}
					for range 2 {
						answer, err := editor.Prompt(t.Context(), id, fmt.Sprint("echo session ", i))
						if err != nil || answer.StopReason != acp.StopReasonEndTurn {
							t.Errorf("prompt: %v, %v", answer.StopReason, err)
						}
					}
					if want := fmt.Sprintf(`It wrote "session %d\n" and ended: exit code 0.`, i); !strings.Contains(editor.Messages(id), want) {
						t.Errorf("the messages are %q, want %q", editor.Messages(id), want)
					}
					if err := editor.CloseSession(t.Context(), id); err != nil {
						t.Errorf("close: %v", err)
					}
				})
			}
			all.Wait()
			if err := editor.Close(); err != nil { // audits the wire
				t.Error(err)
			}
		})
	}
}

func TestEveryMethod(t *testing.T) {
	// Every method of the protocol, before initialize, behind it and in sessions
	// that nobody made, is answered once: with a result, or with an error that says
	// why. Nothing ends the agent.
	D := map[string]string{
		"authenticate":              `{"methodId":"x"}`,
		"session/new":               `{"cwd":"/","mcpServers":[]}`,
		"session/load":              `{"sessionId":"x","cwd":"/","mcpServers":[]}`,
		"session/resume":            `{"sessionId":"x","cwd":"/","mcpServers":[]}`,
		"session/list":              `{}`,
		"session/prompt":            `{"sessionId":"x","prompt":[{"type":"text","text":"true"}]}`,
		"session/close":             `{"sessionId":"x"}`,
		"session/set_mode":          `{"sessionId":"x","modeId":"y"}`,
		"session/set_config_option": `{"sessionId":"x","configId":"y","value":"z"}`,
		"session/set_model":         `{"sessionId":"x","modelId":"y"}`,
		"session/fork":              `{"sessionId":"x","cwd":"/","mcpServers":[]}`,
		"initialize":                `{"protocolVersion":1,"clientCapabilities":{}}`,
		"logout":                    `{}`,
		"no/such":                   `{}`,
		"_ours/none":                `{}`,
	}
	methods := make([]string, 0, len(D))
	for m := range D {
		methods = append(methods, m)
	}
	slices.Sort(methods)
	var in bytes.Buffer
	n := 0
	send := func(method, params string) {
		n++
		fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", n, method, params)
	}
	notify := func() {
		fmt.Fprintln(&in, `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"x"}}`)
		fmt.Fprintln(&in, `{"jsonrpc":"2.0","method":"_no/such","params":{}}`)
	}
	for range 3 { // initialize is in the middle of the first, and late in the others
		for _, m := range methods {
			notify()
			send(m, D[m])
			send(m, `{}`)
			send(m, `{"sessionId":7}`)
		}
		slices.Reverse(methods)
	}
	var out bytes.Buffer
	if err := serve(&in, &out); err != nil {
		t.Errorf("Serve: %v", err)
	}
	answers := make(map[int]int)
	for line := range strings.Lines(out.String()) {
		var m struct {
			ID     int
			Result json.RawMessage
			Error  *acp.RequestError
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if m.Result == nil && m.Error == nil {
			t.Errorf("neither a result nor an error: %s", line)
		}
		if m.Error != nil && m.Error.Code == -32603 {
			t.Errorf("an internal error: %s", line)
		}
		answers[m.ID]++
	}
	for i := 1; i <= n; i++ {
		if answers[i] != 1 {
			t.Errorf("request %d has %d answers", i, answers[i])
		}
	}
}
