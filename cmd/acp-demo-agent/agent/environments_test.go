package agent_test

import (
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/launcher"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A command that is sent to an environment runs there, whatever the client offers,
// and its card and report say so.
func TestEnvironments(t *testing.T) {
	if _, err := exec.LookPath("env"); err != nil {
		t.Skip(err)
	}
	place := launcher.New(launcher.Command("env"), &launcher.Options{Dir: "/"})
	absent := launcher.New(launcher.Command("/no/such/launcher"), nil)
	t.Cleanup(func() {
		if err := place.Close(); err != nil {
			t.Error(err)
		}
		absent.Close()
	})
	toAgent, fromClient := io.Pipe()
	toClient, fromAgent := io.Pipe()
	served := make(chan error, 1)
	go func() { // joined below
		served <- agent.Serve(context.Background(), toAgent, fromAgent, &agent.Options{
			Executors: map[string]execenv.Executor{"place": place, "absent": absent},
		})
	}()
	manager := memterm.New(nil)
	defer manager.Close()
	client := exampleClient{acphost.New(func(acp.SessionId) terminal.Manager { return manager }, nil)}
	defer client.Close()
	conn := acp.NewClientSideConnection(client, fromClient, toClient)
	defer func() {
		fromClient.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	ctx := context.Background()
	if _, err := conn.Initialize(ctx, acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber, ClientCapabilities: acp.ClientCapabilities{Terminal: true},
	}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	session, err := conn.NewSession(ctx, acp.NewSessionRequest{Cwd: dir, McpServers: []acp.McpServer{}})
	if err != nil {
		t.Fatal(err)
	}
	one := func(line string) (card acphost.Card, report map[string]any) {
		t.Helper()
		before := len(client.Cards(session.SessionId))
		if _, err := conn.Prompt(ctx, acp.PromptRequest{SessionId: session.SessionId, Prompt: []acp.ContentBlock{acp.TextBlock(line)}}); err != nil {
			t.Fatal(err)
		}
		card = client.Cards(session.SessionId)[before]
		b, err := json.Marshal(card.RawOutput)
		if err == nil {
			err = json.Unmarshal(b, &report)
		}
		if err != nil {
			t.Fatal(err)
		}
		return card, report
	}

	card, r := one("run --on place -- pwd; echo $TERMBRIDGE_PLACE | wc -c")
	if out, _ := r["output"].(string); !strings.HasPrefix(out, "/\n") || strings.HasSuffix(out, "\n1\n") || r["environment"] != "place" || r["exitCode"] != 0.0 {
		t.Errorf("it did not run there: %v", r)
	}
	if card.Title != "[on place] pwd; echo $TERMBRIDGE_PLACE | wc -c" || card.Status != acp.ToolCallStatusCompleted || !strings.Contains(card.Visible(), "/\n") {
		t.Errorf("card: %q, %s, %q", card.Title, card.Status, card.Visible())
	}
	if _, r = one("run --on place --dir " + dir + " -- pwd"); r["output"] != dir+"\n" {
		t.Errorf("--dir: %v", r)
	}
	none := filepath.Join(dir, "none")
	if card, r = one("run --on place --dir " + none + " -- pwd"); card.Status != acp.ToolCallStatusFailed || !strings.Contains(r["error"].(string), "no such working directory") {
		t.Errorf("a directory that is not there: %v", r)
	}
	if _, r = one("run --on nowhere -- true"); !strings.Contains(r["error"].(string), "absent, place") {
		t.Errorf("an unknown name: %v", r)
	}
	if _, r = one("run --on absent -- true"); !strings.Contains(r["error"].(string), "not installed") {
		t.Errorf("an environment that cannot be reached: %v", r)
	}
	if _, r = one("!echo client"); r["presentation"] != "client" || r["environment"] != nil {
		t.Errorf("without --on: %v", r)
	}

	_, r = one("bg --on place -- sleep 300")
	id, _ := r["id"].(string)
	if r["environment"] != "place" || id == "" {
		t.Errorf("bg: %v", r)
	}
	card, r = one("env")
	list, _ := r["environments"].([]any)
	if len(list) != 3 {
		t.Fatalf("env: %v", r)
	}
	want := []map[string]any{
		{"name": "local", "running": 0.0}, {"name": "absent", "running": 0.0}, {"name": "place", "kind": "env", "running": 1.0, "state": "1 process over 1 connection"},
	}
	for i, w := range want {
		for key, value := range w {
			if got := list[i].(map[string]any)[key]; got != value {
				t.Errorf("env: %d: %s is %v, want %v", i, key, got, value)
			}
		}
	}
	if state := list[1].(map[string]any)["state"].(string); !strings.Contains(state, "not installed") || !strings.Contains(card.Visible(), "`place` (env)") {
		t.Errorf("env: %q, %q", state, card.Visible())
	}
	if _, r = one("kill " + id); r["outcome"] != "stopped" || r["environment"] != "place" {
		t.Errorf("kill: %v", r)
	}
}
