//go:build unix

package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/termbridge/termbridge/control"
)

// A recorder is a Handler that notes what it is asked.
type recorder struct {
	mu    sync.Mutex
	calls []string
	wait  func(ctx context.Context) error
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) noted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.calls...)
}

var one = control.SessionInfo{ID: "t1", Name: "web", Status: control.Exited, ExitCode: new(0)}

func (r *recorder) List(_ context.Context, group string) ([]control.SessionInfo, error) {
	r.note("List %q", group)
	return []control.SessionInfo{one}, nil
}

func (r *recorder) Read(_ context.Context, id string, tail int) (string, error) {
	r.note("Read %q %d", id, tail)
	return "text\n", nil
}

func (r *recorder) New(_ context.Context, spec control.NewSpec) (string, error) {
	r.note("New %+v", spec)
	return "t2", nil
}

func (r *recorder) Send(_ context.Context, id, text string) error {
	r.note("Send %q %q", id, text)
	return nil
}

func (r *recorder) Kill(_ context.Context, id string) error {
	r.note("Kill %q", id)
	return fmt.Errorf("kill: %w", control.ErrUnknown)
}

func (r *recorder) Rename(_ context.Context, id, name string) error {
	r.note("Rename %q %q", id, name)
	return nil
}

func (r *recorder) SetGroup(_ context.Context, id, group string) error {
	r.note("SetGroup %q %q", id, group)
	return nil
}

func (r *recorder) GroupSend(_ context.Context, group, text string) (int, error) {
	r.note("GroupSend %q %q", group, text)
	return 2, nil
}

func (r *recorder) GroupKill(_ context.Context, group string) (int, error) {
	r.note("GroupKill %q", group)
	return 3, errors.New("one of four would not end")
}

func (r *recorder) Wait(ctx context.Context, id, group, state string, timeout time.Duration) (control.SessionInfo, error) {
	r.note("Wait %q %q %q %v", id, group, state, timeout)
	if r.wait != nil {
		return one, r.wait(ctx)
	}
	return one, nil
}

// listen serves h at a path of its own.
func listen(t testing.TB, h control.Handler, opts *control.ServerOptions) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	s, err := control.Listen(path, h, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return path
}

// TestVerbs pins what each verb of the wire asks of the Handler, and how its answer
// looks.
func TestVerbs(t *testing.T) {
	const info = `{"id":"t1","name":"web","status":"exited","exit_code":0}`
	h := &recorder{}
	path := listen(t, h, nil)
	for i, c := range []struct {
		req        control.Request
		call, want string
	}{
		{control.Request{Verb: control.VerbList, Group: "dev"}, `List "dev"`, `{"ok":true,"sessions":[` + info + `]}`},
		{control.Request{Verb: control.VerbRead, ID: "web", Tail: 5}, `Read "web" 5`, `{"ok":true,"output":"text\n"}`},
		{control.Request{Verb: control.VerbNew, Name: "n", Cwd: "/d", Command: "ls", Group: "g"}, `New {Name:n Cwd:/d Command:ls Group:g}`, `{"ok":true,"id":"t2"}`},
		{control.Request{Verb: control.VerbSend, ID: "web", Text: "ls\r"}, `Send "web" "ls\r"`, `{"ok":true}`},
		{control.Request{Verb: control.VerbKill, ID: "web"}, `Kill "web"`, `{"ok":false,"error":"kill: no such session","code":"unknown"}`},
		{control.Request{Verb: control.VerbRename, ID: "web", Name: "n"}, `Rename "web" "n"`, `{"ok":true}`},
		{control.Request{Verb: control.VerbGroup, ID: "web", Group: "g"}, `SetGroup "web" "g"`, `{"ok":true}`},
		{control.Request{Verb: control.VerbGroupSend, Group: "g", Text: "x"}, `GroupSend "g" "x"`, `{"ok":true,"count":2}`},
		{control.Request{Verb: control.VerbGroupKill, Group: "g"}, `GroupKill "g"`, `{"ok":false,"error":"one of four would not end","count":3}`},
		{control.Request{Verb: control.VerbWait, ID: "web", Group: "g", State: "idle", Timeout: 7}, `Wait "web" "g" "idle" 7s`, `{"ok":true,"sessions":[` + info + `]}`},
		{control.Request{Verb: control.VerbWait, ID: "web", State: "idle"}, `Wait "web" "" "idle" 2m0s`, `{"ok":true,"sessions":[` + info + `]}`},
		{control.Request{Verb: control.VerbWait, ID: "web", State: "idle", Timeout: -1}, `Wait "web" "" "idle" 2m0s`, `{"ok":true,"sessions":[` + info + `]}`},
		{control.Request{Verb: control.VerbWait, ID: "web", Timeout: 1 << 62}, `Wait "web" "" "" 8760h0m0s`, `{"ok":true,"sessions":[` + info + `]}`},
	} {
		r, err := control.Call(t.Context(), path, c.req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != c.want {
			t.Errorf("%s: answer %s, want %s", c.req.Verb, got, c.want)
		}
		if calls := h.noted(); len(calls) != i+1 || calls[i] != c.call {
			t.Errorf("%s: calls %q, want %s", c.req.Verb, calls, c.call)
		}
	}
	r, err := control.Call(t.Context(), path, control.Request{Verb: control.VerbKill, ID: "web"})
	if err != nil || !errors.Is(r.Err(), control.ErrUnknown) || errors.Is(r.Err(), control.ErrNoGroup) {
		t.Errorf("Err: %v, %v", r.Err(), err)
	}
}

// TestRequestJSON pins the names of the members of a Request.
func TestRequestJSON(t *testing.T) {
	full := control.Request{Verb: "v", ID: "i", Name: "n", Group: "g", Cwd: "c", Command: "m", Text: "t", Tail: 1, State: "s", Timeout: 2}
	for want, req := range map[string]control.Request{
		`{"verb":""}`: {},
		`{"verb":"v","id":"i","name":"n","group":"g","cwd":"c","command":"m","text":"t","tail":1,"state":"s","timeout":2}`: full,
	} {
		got, _ := json.Marshal(req)
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Error(diff)
		}
	}
}
