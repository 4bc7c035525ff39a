package agent_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/fakeconn/emulate"
)

// record returns the record of what do makes of an agent with this client.
func record(t *testing.T, o fakeconn.Options, do func(c *fakeconn.Client, id acp.SessionId)) []byte {
	t.Helper()
	var file bytes.Buffer
	o.Serve = func(in io.Reader, out io.Writer) {
		if err := agent.Serve(context.Background(), in, out, &agent.Options{Record: &file}); err != nil {
			t.Log(err)
		}
	}
	c := fakeconn.New(&o)
	id, err := c.NewSession(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	do(c, id)
	_ = c.Close() // the audit's words are not the subject
	return file.Bytes()
}

// play plays a record to an agent.
func play(t *testing.T, data []byte) (recorded, now fakeconn.Run) {
	t.Helper()
	recorded, now, err := fakeconn.Replay(t.Context(), data, func(in io.Reader, out io.Writer) {
		_ = agent.Serve(context.Background(), in, out, nil)
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return recorded, now
}

func TestReplay(t *testing.T) {
	// A report of a user becomes a test: what the agent did with a client that deviates
	// it does again with the record of it, and the record shows what failed.
	for name, c := range map[string]struct {
		options fakeconn.Options
		fault   *fakeconn.Fault
		prompts []string
		cancel  bool
		want    string
	}{
		"a terminal without an id": {
			fault:   &fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Result: map[string]any{}, Reply: true},
			prompts: []string{"!echo x"}, want: "echo x: failed",
		},
		"waits that fail": {
			fault:   &fakeconn.Fault{Method: acp.ClientMethodTerminalWaitForExit, Error: &acp.RequestError{Code: -32603, Message: "no"}},
			prompts: []string{"!echo one", "!exit 3"}, want: "exit 3: failed",
		},
		"a stub": {
			options: *emulate.Client("toad", nil),
			prompts: []string{"!echo x", "jobs"}, want: "jobs: completed",
		},
		"cancelled": {prompts: []string{"!echo before; sleep 2", "!sleep 1000"}, cancel: true, want: "session/prompt: cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := record(t, c.options, func(client *fakeconn.Client, id acp.SessionId) {
				if c.fault != nil {
					client.Inject(*c.fault)
				}
				for i, prompt := range c.prompts {
					if c.cancel && i == len(c.prompts)-1 {
						time.AfterFunc(500*time.Millisecond, func() { _ = client.Cancel(context.Background(), id) })
					}
					if _, err := client.Prompt(t.Context(), id, prompt); err != nil {
						t.Log(err)
					}
				}
			})
			recorded, now := play(t, data)
			if now.String() != recorded.String() || !strings.Contains(now.String(), c.want) {
				t.Errorf("recorded:\n%s\nnow:\n%s\nwant %q in it", recorded, now, c.want)
			}
			if !strings.HasPrefix(recorded.About, "acp-demo-agent ") {
				t.Errorf("about: %q", recorded.About)
			}
		})
	}
}

func TestReplayFindsTheMend(t *testing.T) {
	// Where the agent does something else than in the record, the runs differ.
	data := record(t, fakeconn.Options{}, func(c *fakeconn.Client, id acp.SessionId) {
		if _, err := c.Prompt(t.Context(), id, "!exit 3"); err != nil {
			t.Fatal(err)
		}
	})
	mended := bytes.ReplaceAll(data, []byte(`"exitCode":3`), []byte(`"exitCode":0`))
	if bytes.Equal(mended, data) {
		t.Fatalf("no exit in\n%s", data)
	}
	recorded, now := play(t, mended)
	if now.String() == recorded.String() || !strings.Contains(now.String(), "exit 3: completed") {
		t.Errorf("recorded:\n%s\nnow:\n%s", recorded, now)
	}
	for _, data := range []string{"", "no record", "-- file --\nx\n"} {
		if _, _, err := fakeconn.Replay(t.Context(), []byte(data), func(io.Reader, io.Writer) {}); err == nil {
			t.Errorf("%q is taken for a record", data)
		}
	}
}

func TestRecordKeepsNoSecrets(t *testing.T) {
	// A record has what went over the wire, but for secrets, and a full disk ends the
	// record only.
	t.Setenv("RECORD_TEST_TOKEN", "of-this-process-1234")
	data := record(t, fakeconn.Options{NoTerminal: true}, func(c *fakeconn.Client, id acp.SessionId) {
		for _, line := range []string{"run --env API_KEY=abcdefgh12345 -- echo $API_KEY", "!echo of-this-process-1234", "!echo https://me:hunter2secret@example.org/"} {
			if _, err := c.Prompt(t.Context(), id, line); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, secret := range []string{"of-this-process-1234", "hunter2secret", `"API_KEY":"abcdefgh12345"`} {
		if strings.Contains(string(data), secret) {
			t.Errorf("%q is in\n%s", secret, data)
		}
	}
	for _, there := range []string{" client --\n", " agent --\n", `"method":"initialize"`, `"stopReason":"end_turn"`} {
		if !strings.Contains(string(data), there) {
			t.Errorf("no %q in\n%s", there, data)
		}
	}
	c := fakeconn.New(&fakeconn.Options{NoTerminal: true, Serve: func(in io.Reader, out io.Writer) {
		_ = agent.Serve(context.Background(), in, out, &agent.Options{Record: full{}})
	}})
	id, err := c.NewSession(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := c.Prompt(t.Context(), id, "!echo x"); err != nil || answer.StopReason != acp.StopReasonEndTurn {
		t.Errorf("on a full disk: %v, %v", answer, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
