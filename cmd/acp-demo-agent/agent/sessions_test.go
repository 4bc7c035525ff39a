package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
)

// list is session/list.
func (f *fixture) list(req acp.ListSessionsRequest) []acp.SessionInfo {
	f.Helper()
	resp, err := f.Peer().ListSessions(f.Context(), req)
	if err != nil {
		f.Fatal(err)
	}
	return resp.Sessions
}

// What is kept is listed, the newest first, with the title that its first prompt
// gave it, and can be gone on with; a file that makes no sense hides nothing.
func TestListSessions(t *testing.T) {
	dir := t.TempDir()
	first, firstPath := keep(t, kinds[2], dir, "", "  !echo first  ", "!echo more")
	second, secondPath := keep(t, kinds[2], dir, strings.Repeat("é", 100))
	third, thirdPath := keep(t, kinds[2], dir, " ")
	now := time.Now()
	for i, path := range []string{firstPath, thirdPath, secondPath} {
		at := now.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string]string{
		"sess_AAAAAAAAAAAA.json": "hello", "sess_BBBBBBBBBBBB.json": "{}", "sess_CCCCCCCCCCCC.json": "", "other.json": "{}",
		"sess_DDDDDDDDDDDD.json": `{"version":2,"entries":[]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	with(t, kinds[2], &agent.Options{StateDir: dir}, func(f *fixture) {
		got := f.list(acp.ListSessionsRequest{})
		var ids []acp.SessionId
		var titles []string
		for i, s := range got {
			ids = append(ids, s.SessionId)
			title := "none"
			if s.Title != nil {
				title = *s.Title
			}
			titles = append(titles, title)
			want := now.Add(time.Duration(len(got)-1-i) * time.Minute).UTC().Format(time.RFC3339)
			check(t, "updatedAt", *s.UpdatedAt, want)
		}
		check(t, "ids", ids, []acp.SessionId{second, third, first})
		check(t, "titles", titles, []string{strings.Repeat("é", 40) + "…", "none", "!echo first"})

		check(t, "of a directory", len(f.list(acp.ListSessionsRequest{Cwd: new(got[2].Cwd + "/")})), 1)
		check(t, "of another", f.list(acp.ListSessionsRequest{Cwd: new("/")}), []acp.SessionInfo{})
		_, err := f.Peer().ListSessions(f.Context(), acp.ListSessionsRequest{Cwd: new("here")})
		wantError(t, "a relative directory", err, -32602, "give an absolute path")
		_, err = f.Peer().ListSessions(f.Context(), acp.ListSessionsRequest{Cursor: new("7")})
		wantError(t, "a cursor that was never given", err, -32602, "on one")
		for _, s := range got {
			if err := f.load(s.SessionId); err != nil {
				t.Errorf("%s is listed, and cannot be loaded: %v", s.SessionId, err)
			}
		}
	})
	with(t, kinds[2], &agent.Options{StateDir: filepath.Join(dir, "none")}, func(f *fixture) {
		check(t, "of nothing", f.list(acp.ListSessionsRequest{}), []acp.SessionInfo{})
	})
}

// A session that is resumed goes on with what was kept of it, and shows nothing.
func TestResumeSession(t *testing.T) {
	dir := t.TempDir()
	id, _ := keep(t, kinds[2], dir, "!echo one", "!echo two")
	with(t, kinds[2], &agent.Options{StateDir: dir}, func(f *fixture) {
		resume := func(id acp.SessionId, cwd string) error {
			_, err := f.Peer().ResumeSession(f.Context(), acp.ResumeSessionRequest{SessionId: id, Cwd: cwd})
			return err
		}
		wantError(t, "a session that is not there", resume("sess_AAAAAAAAAAAA", f.dir), -32002, "nothing is kept")
		wantError(t, "a directory that is not there", resume(id, "/no/such/dir"), -32602, "does not exist")
		if err := resume(id, f.dir); err != nil {
			t.Fatal(err)
		}
		wantError(t, "a second time", resume(id, f.dir), -32600, "open already")
		if err := f.Sync(f.Context()); err != nil {
			t.Fatal(err)
		}
		check(t, "cards", len(f.Host().Cards(id)), 0)
		check(t, "messages", f.Messages(id), "")
		f.id = id
		f.ask("!echo three")
	})
	with(t, kinds[2], &agent.Options{StateDir: dir}, func(f *fixture) {
		if err := f.load(id); err != nil {
			t.Fatal(err)
		}
		var titles []string
		for _, c := range f.Host().Cards(id) {
			titles = append(titles, string(c.ID)+" "+c.Title)
		}
		check(t, "cards", titles, []string{"call_1 echo one", "call_2 echo two", "call_3 echo three"})
		check(t, "title", *f.list(acp.ListSessionsRequest{})[0].Title, "!echo one")
	})
}

// A file of an earlier agent, without a title, is read.
func TestLoadSessionOfVersion1(t *testing.T) {
	dir := t.TempDir()
	id, path := keep(t, kinds[2], dir, "!echo x")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.NewReplacer(`"version":2`, `"version":1`, `"title":"!echo x",`, "").Replace(string(data))
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil || len(old) >= len(data) {
		t.Fatal(err, old)
	}
	with(t, kinds[2], &agent.Options{StateDir: dir}, func(f *fixture) {
		if err := f.load(id); err != nil {
			t.Error(err)
		}
		f.id = id
		f.ask("!echo y")
		check(t, "title", *f.list(acp.ListSessionsRequest{})[0].Title, "!echo y")
	})
}

// A client is told what a line can begin with as soon as it knows the session,
// and the session's title with the first prompt; it can write the commands as it
// shows them.
func TestAnnouncements(t *testing.T) {
	dir := t.TempDir()
	quoted, err := json.Marshal(dir)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		lines := wire(t, &agent.Options{StateDir: dir},
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`,
			`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":`+string(quoted)+`,"mcpServers":[]}}`)
		for _, can := range []string{`"list":{}`, `"resume":{}`, `"close":{}`, `"loadSession":true`} {
			contains(t, "capabilities", answerTo(1, lines), can)
		}
		answer := slices.Index(lines, answerTo(2, lines))
		update := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, `"available_commands_update"`) })
		if answer < 0 || update < answer {
			t.Fatalf("the commands come %d., the answer %d.:\n%s", update, answer, strings.Join(lines, "\n"))
		}
		var n struct{ Params acp.SessionNotification }
		if err := json.Unmarshal([]byte(lines[update]), &n); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range n.Params.Update.AvailableCommandsUpdate.AvailableCommands {
			names = append(names, c.Name)
			if c.Description == "" || (c.Input == nil) != (c.Name == "jobs" || c.Name == "env" || c.Name == "help") {
				t.Errorf("%+v", c)
			}
		}
		check(t, "names", names, []string{"run", "bg", "jobs", "output", "input", "screen", "keys", "wait", "kill", "env", "probe", "help"})
	})
	with(t, kinds[0], nil, func(f *fixture) {
		f.ask("/run -- echo one", "/help", "run -- echo two")
		check(t, "starts", f.starts("echo"), 2)
		f.ask("/jobs")
		if n := strings.Count(f.Transcript(), "session_info_update"); n != 1 {
			t.Errorf("%d titles\n%s", n, f.Transcript())
		}
		contains(t, "transcript", f.Transcript(), `"title":"/run -- echo one"`)
	})
}
