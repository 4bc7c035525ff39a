package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/terminal"
)

// load loads a session.
func (f *fixture) load(id acp.SessionId) error {
	_, err := f.Peer().LoadSession(f.Context(), acp.LoadSessionRequest{SessionId: id, Cwd: f.dir, McpServers: []acp.McpServer{}})
	if err == nil {
		err = f.Sync(f.Context())
	}
	return err
}

// keep runs lines in a session that is kept in dir, and returns its id and file.
func keep(t *testing.T, k kind, dir string, lines ...string) (acp.SessionId, string) {
	t.Helper()
	var id acp.SessionId
	with(t, k, &agent.Options{StateDir: dir}, func(f *fixture) {
		f.ask(lines...)
		id = f.id
	})
	return id, filepath.Join(dir, string(id)+".json")
}

// A session that was kept is shown again to any client, as display or as text,
// and goes on from there; no terminal of it lives.
func TestLoadSession(t *testing.T) {
	lines := []string{`!print 'one\ntwo\n'`, "!fail oh", "bg -- sleep 1h", "what?", "jobs"}
	for _, before := range kinds {
		for _, after := range kinds {
			t.Run(fmt.Sprintf("%s as %s", before.presentation, after.presentation), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "made", "when needed")
				id, path := keep(t, before, dir, lines...)
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
					t.Errorf("%s: %v, %v", path, info.Mode(), err)
				}
				with(t, after, &agent.Options{StateDir: dir}, func(f *fixture) {
					if err := f.load(id); err != nil {
						t.Fatal(err)
					}
					cards := f.Host().Cards(id)
					var got []string
					for _, c := range cards {
						got = append(got, c.Title+" "+string(c.Status))
					}
					check(t, "cards", got, []string{
						`print 'one\ntwo\n' completed`, "fail oh failed", "[in the background] sleep 1h completed", "jobs completed",
					})
					contains(t, "what the user sees", cards[0].Visible(), "two")
					contains(t, "what the user sees", cards[1].Visible(), "oh")
					r := report(t, cards[0])
					check(t, "outcome", r.Outcome, terminal.Exited)
					check(t, "terminalId", r.TerminalID, "")
					check(t, "outcome of what ran", report(t, cards[2]).Outcome, terminal.Unknown)
					contains(t, "the jobs", fmt.Sprint(cards[3].RawOutput), "unknown")
					contains(t, "messages", f.Messages(id), "I do not know what to do with `what?`")
					for _, c := range cards {
						for _, x := range c.Terminals {
							if x.Exit == nil {
								t.Errorf("%s: a terminal lives", c.Title)
							}
						}
					}
					check(t, "terminal requests", f.Count(acp.ClientMethodTerminalCreate), 0)
					wantError(t, "a second load", f.load(id), -32600, "open already")

					// The session goes on, with ids of its own.
					f.id = id
					next := f.ask("!echo more")
					if slices.ContainsFunc(cards, func(c acphost.Card) bool { return c.ID == next[0].ID }) {
						t.Errorf("the id %q was used before", next[0].ID)
					}
				})
				with(t, after, &agent.Options{StateDir: dir}, func(f *fixture) {
					if err := f.load(id); err != nil {
						t.Fatal(err)
					}
					check(t, "cards", len(f.Host().Cards(id)), 5)
				})
			})
		}
	}
}

// Without a directory nothing is kept, and nothing is promised.
func TestLoadSessionOff(t *testing.T) {
	with(t, kinds[0], nil, func(f *fixture) {
		f.ask("!echo x")
		wantError(t, "session/load", f.load(f.id), -32601, "")
	})
	dir := t.TempDir()
	with(t, kinds[0], &agent.Options{StateDir: dir}, func(f *fixture) {
		for _, id := range []acp.SessionId{"sess_AAAAAAAAAAAA", "../../etc/passwd", "", "x"} {
			wantError(t, string(id), f.load(id), -32002, "nothing is kept")
		}
	})
}

// A file that makes no sense is an error that names it and says why, and leaves
// the agent as it was.
func TestLoadSessionCorrupt(t *testing.T) {
	dir := t.TempDir()
	id, path := keep(t, kinds[2], dir, "!echo x")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(old, new string) string {
		s := strings.Replace(string(good), old, new, 1)
		if s == string(good) {
			t.Fatalf("no %q in %s", old, good)
		}
		return s
	}
	for _, tt := range []struct{ name, data, want string }{
		{"empty", "", "EOF"},
		{"cut", string(good[:len(good)/2]), "unexpected EOF"},
		{"nothing", "null", "version 0"},
		{"no members", "{}", "version 0"},
		{"no JSON", "hello", "invalid character"},
		{"another shape", `{"entries": 3}`, "cannot unmarshal"},
		{"another version", edit(`"version":2`, `"version":7`), "version 7"},
		{"another session", edit(string(id), "sess_ABCDEFGH"), "it is of session"},
		{"a strange entry", edit(`{"user":`, `{"usr":`), "unknown field"},
		{"a tool call that runs", edit(`"status":"completed"`, `"status":"in_progress"`), "in_progress"},
		{"too large", strings.Repeat("x", 3<<20), "more than is ever kept"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(tt.data), 0o600); err != nil {
				t.Fatal(err)
			}
			with(t, kinds[2], &agent.Options{StateDir: dir}, func(f *fixture) {
				err := f.load(id)
				wantError(t, "session/load", err, -32603, tt.want)
				wantError(t, "session/load", err, -32603, path)
				f.one("!echo it goes on")
			})
		})
	}
}

// What is kept is bounded, of a session and in all.
func TestHistoryIsBounded(t *testing.T) {
	dir := t.TempDir()
	id, path := keep(t, kinds[2], dir, slices.Repeat([]string{"!spam 20000"}, 60)...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Entries []any }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(data) > 1<<20+4096 || len(file.Entries) > 200 || len(file.Entries) < 20 {
		t.Errorf("%d bytes, %d entries", len(data), len(file.Entries))
	}
	with(t, kinds[2], &agent.Options{StateDir: dir}, func(f *fixture) {
		if err := f.load(id); err != nil {
			t.Error(err)
		}
	})
	for range 66 {
		keep(t, kinds[2], dir, "help")
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 64 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// A directory that cannot be written is no obstacle.
func TestHistoryCannotBeKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	with(t, kinds[2], &agent.Options{StateDir: filepath.Join(file, "sub")}, func(f *fixture) {
		_, r := f.one("!echo x")
		check(t, "output", r.Output, "x\n")
	})
}

// A command that takes longer than the user wants to wait goes on as bg would
// have it; one that ends before is like any other.
func TestBackgroundAfter(t *testing.T) {
	eachKind(t, func(f *fixture, p bridge.Presentation) {
		card, r := f.one("run --background-after 2.5 -- lines 1000 1s")
		check(f.T, "status", card.Status, acp.ToolCallStatusCompleted)
		check(f.T, "outcome", r.Outcome, terminal.Running)
		check(f.T, "presentation", r.Presentation, p)
		contains(f.T, "output", r.Output, "line 2\n")
		contains(f.T, "message", f.Messages(), "is running as "+r.ID+", for 2.")
		contains(f.T, "message", f.Messages(), "goes on in the background")
		contains(f.T, "what the user sees", card.Visible(), "line 2")
		card, _ = f.one("jobs")
		contains(f.T, "jobs", fmt.Sprint(card.RawOutput), r.ID)
		_, later := f.one("output " + r.ID + " --wait 2s")
		contains(f.T, "output", later.Output, "line 3\n")
		_, r = f.one("kill " + r.ID)
		check(f.T, "outcome", r.Outcome, terminal.Stopped)

		card, r = f.one("run --background-after 2s -- exit 3")
		check(f.T, "status", card.Status, acp.ToolCallStatusFailed)
		check(f.T, "outcome", r.Outcome, terminal.Exited)
		card, r = f.one("run --background-after 2s --timeout 1s -- sleep 1h")
		check(f.T, "outcome", r.Outcome, terminal.TimedOut)

		for _, line := range []string{"bg --background-after 2s -- echo x", "run --background-after 0 -- echo x", "run --background-after x -- echo x"} {
			card, _ := f.one(line)
			check(f.T, line, card.Status, acp.ToolCallStatusFailed)
			contains(f.T, line, card.Text, "background-after")
		}
		check(f.T, "starts", f.starts("echo"), 0)
	})
}
