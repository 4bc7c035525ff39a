package launcher_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// An agentClient speaks raw JSON-RPC with the built demo agent.
type agentClient struct {
	*testing.T
	in      io.WriteCloser
	session string
	lines   chan agentLine // closed at the end of the agent's output
	id      int
}

// An agentLine is what the test reads in a message of the agent.
type agentLine struct {
	ID     *int `json:"id"`
	Result struct {
		SessionID  string `json:"sessionId"`
		StopReason string `json:"stopReason"`
	} `json:"result"`
	Error  json.RawMessage `json:"error"`
	Params struct {
		Update struct {
			RawOutput struct {
				Output, Environment, Outcome, Error string
				ExitCode                            *int
				Environments                        []struct{ Name, Kind, State string }
			} `json:"rawOutput"`
		} `json:"update"`
	} `json:"params"`
}

// send sends a request, or a notification.
func (c *agentClient) send(method string, params map[string]any, request bool) {
	c.Helper()
	message := map[string]any{"jsonrpc": "2.0", "method": method, "params": params}
	if request {
		c.id++
		message["id"] = c.id
	}
	b, err := json.Marshal(message)
	if err == nil {
		_, err = c.in.Write(append(b, '\n'))
	}
	if err != nil {
		c.Fatal(err)
	}
}

// answer waits for the answer to the last request. Its update is the last one that
// had a rawOutput.
func (c *agentClient) answer() (last agentLine) {
	c.Helper()
	for end := time.After(60 * time.Second); ; {
		select {
		case line, ok := <-c.lines:
			switch {
			case !ok:
				c.Fatal("the agent has ended")
			case line.Error != nil:
				c.Fatalf("an error: %s", line.Error)
			case line.ID != nil && *line.ID == c.id:
				last.Result = line.Result
				return last
			case line.Params.Update.RawOutput.Outcome != "" || line.Params.Update.RawOutput.Environments != nil:
				last.Params = line.Params
			}
		case <-end:
			c.Fatalf("no answer to request %d", c.id)
		}
	}
}

func (c *agentClient) prompt(line string) {
	c.Helper()
	c.send("session/prompt", map[string]any{
		"sessionId": c.session, "prompt": []any{map[string]any{"type": "text", "text": line}},
	}, true)
}

var demoAgent = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir, "../../cmd/acp-demo-agent").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return filepath.Join(dir, "acp-demo-agent"), err
})

func TestDemoAgent(t *testing.T) {
	// The demo agent runs commands over ssh, in a container and in a sandbox as its
	// flags and prompts say, cancels them there, and leaves nothing.
	if !*everywhere {
		t.Skip("the agent is built: -everywhere runs it")
	}
	t.Parallel()
	agent, err := demoAgent()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(agent)) })
	for name, spec := range map[string]func(t *testing.T, dir string) string{
		"ssh": func(t *testing.T, dir string) string {
			ssh(t, "sh", nil)
			s, err := server()
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("ssh://127.0.0.1:%s%s?key=%s/user&known_hosts=%[3]s/known_hosts&config=none", s.ports["sh"], dir, s.dir)
		},
		"podman":  func(t *testing.T, dir string) string { podman(t); return "podman://" + containerName + dir },
		"sandbox": func(t *testing.T, dir string) string { bubblewrapWorks(t); return "sandbox:" + dir },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.Command(agent, "--env", "place="+spec(t, dir), "--state", "off")
			stderr := new(strings.Builder)
			cmd.Stderr = stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			c := &agentClient{T: t, in: in, lines: make(chan agentLine, 1000)}
			go func() { // ends with the agent
				defer close(c.lines)
				lines := bufio.NewScanner(out)
				lines.Buffer(nil, 16<<20)
				for lines.Scan() {
					var line agentLine
					if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
						t.Errorf("%s: %v", lines.Bytes(), err)
					}
					c.lines <- line
				}
			}()
			defer func() {
				in.Close()
				for range c.lines { // to the end
				}
				if err := cmd.Wait(); err != nil {
					t.Errorf("the agent: %v\n%s", err, stderr)
				}
				quiet(t, filepath.Join(dir, "background"))
			}()
			c.send("initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{}}, true)
			c.answer()
			c.send("session/new", map[string]any{"cwd": dir, "mcpServers": []any{}}, true)
			c.session = c.answer().Result.SessionID

			c.prompt("run --on place -- pwd; echo $((6*7)); exit 3")
			r := c.answer().Params.Update.RawOutput
			if r.Output != dir+"\n42\n" || r.Environment != "place" || r.ExitCode == nil || *r.ExitCode != 3 {
				t.Errorf("run: %+v", r)
			}
			growing := func(name string) string { return strings.ReplaceAll(beating, `"$1"`, name) }
			c.prompt("bg --on place -- " + growing("background"))
			if r := c.answer().Params.Update.RawOutput; r.Outcome != "running" || r.Environment != "place" {
				t.Errorf("bg: %+v", r)
			}
			c.prompt("run --on place -- " + growing("foreground"))
			for _, file := range []string{"background", "foreground"} {
				appears(t, filepath.Join(dir, file))
			}
			c.send("session/cancel", map[string]any{"sessionId": c.session}, false)
			a := c.answer()
			if r := a.Params.Update.RawOutput; a.Result.StopReason != "cancelled" || r.Outcome != "cancelled" {
				t.Errorf("cancel: %q, %+v", a.Result.StopReason, r)
			}
			quiet(t, filepath.Join(dir, "foreground"))
			c.prompt("env")
			list := c.answer().Params.Update.RawOutput.Environments
			if len(list) != 2 || list[1].Name != "place" || list[1].State != "1 process over 1 connection" || !strings.HasPrefix(list[1].Kind, name) {
				t.Errorf("env: %+v", list)
			}
		})
	}
}
