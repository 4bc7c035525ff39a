//go:build unix

package control_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/termbridge/termbridge/control"
)

// A wire is a connection without a client's manners.
type wire struct {
	t testing.TB
	*net.UnixConn
	r *bufio.Reader
}

func dial(t testing.TB, path string) *wire {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	return &wire{t, conn.(*net.UnixConn), bufio.NewReader(conn)}
}

func (w *wire) send(s string) {
	w.t.Helper()
	if _, err := w.Write([]byte(s)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) answer() (r control.Response) {
	w.t.Helper()
	line, err := w.r.ReadBytes('\n')
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

const list = `{"verb":"list"}` + "\n"

// TestBadLines pins that whatever a line is has one answer, and the connection stays.
func TestBadLines(t *testing.T) {
	w := dial(t, listen(t, &recorder{}, nil))
	for _, c := range []struct {
		line string
		code control.Code
	}{
		{"{\n", control.CodeBad},
		{"null\n", control.CodeBad},
		{"[]\n", control.CodeBad},
		{`{"verb":7}` + "\n", control.CodeBad},
		{`{"verb":"dance"}` + "\n", control.CodeBad},
		{`{"verb":"list"} {"verb":"list"}` + "\n", control.CodeBad},
		{`{"verb":"attach","id":"web"}` + "\n", ""},
		{"\x00\xff\n", control.CodeBad},
		{strings.Repeat("x", control.MaxRequest+1) + "\n", control.CodeTooLarge},
		{strings.Repeat("x", 3*control.MaxRequest) + "\n", control.CodeTooLarge},
		{strings.Repeat("x", control.MaxRequest) + "\n", control.CodeBad},
	} {
		w.send(c.line)
		if r := w.answer(); r.OK || r.Error == "" || r.Code != c.code {
			t.Errorf("%.40q: %+v, want %q", c.line, r, c.code)
		}
	}
	// Empty lines are skipped, unknown members ignored, and requests may come at once.
	w.send("\n \r\n" + `{"verb":"list","colour":"red"}` + "\r\n\n" + list)
	for range 2 {
		if r := w.answer(); !r.OK || len(r.Sessions) != 1 {
			t.Errorf("list: %+v", r)
		}
	}
}

// A talker answers with a lot.
type talker struct{ recorder }

func (*talker) Read(context.Context, string, int) (string, error) {
	return strings.Repeat("x", control.MaxResponse), nil
}

func (*talker) Rename(context.Context, string, string) error { panic("no names") }

// TestBadAnswers pins that an answer over the limit, and a Handler that panics, are
// errors of one request.
func TestBadAnswers(t *testing.T) {
	w := dial(t, listen(t, &talker{}, nil))
	w.send(`{"verb":"read"}` + "\n" + `{"verb":"rename"}` + "\n" + list)
	if r := w.answer(); r.OK || r.Code != control.CodeTooLarge || r.Output != "" {
		t.Errorf("a long answer: %v %q", r.OK, r.Error)
	}
	if r := w.answer(); r.OK || !strings.Contains(r.Error, "no names") {
		t.Errorf("a panic: %+v", r)
	}
	if r := w.answer(); !r.OK {
		t.Errorf("then: %+v", r)
	}
}

// TestHangUp pins that a wait ends when its caller is gone, and not when that has only
// ended its own side.
func TestHangUp(t *testing.T) {
	ended := make(chan error, 2)
	release := make(chan struct{})
	h := &recorder{wait: func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		case <-release:
			return nil
		}
	}}
	path := listen(t, h, nil)
	const wait = `{"verb":"wait","id":"web","state":"idle"}` + "\n"
	gone := dial(t, path)
	gone.send(wait)
	half := dial(t, path)
	half.send(wait)
	half.CloseWrite()
	for len(h.noted()) < 2 {
		time.Sleep(time.Millisecond)
	}
	gone.Close()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "hung up") {
			t.Errorf("the wait ends because of %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the wait goes on for nobody")
	}
	time.Sleep(250 * time.Millisecond) // it is looked at twice meanwhile
	close(release)
	if r := half.answer(); !r.OK {
		t.Errorf("half closed: %+v", r)
	}
	select {
	case err := <-ended:
		t.Errorf("the half closed one ended because of %v", err)
	default:
	}
	// The client's own ctx ends its call, at once.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := control.Call(ctx, path, control.Request{Verb: control.VerbWait, ID: "web"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call: %v", err)
	}
}

// TestBadClients pins that clients which are silent, stop in a line, do not read or send
// without end hold up nobody, not Close either, while 200 others are served.
func TestBadClients(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	h := &talker{}
	s, err := control.Listen(path, h, nil)
	if err != nil {
		t.Fatal(err)
	}
	dial(t, path)
	dial(t, path).send(`{"verb":`)
	unread := dial(t, path)
	unread.send(strings.Repeat(`{"verb":"wait","id":"`+strings.Repeat("x", 100<<10)+`"}`+"\n", 3)) // its answers are not read
	endless := dial(t, path)
	go func() {
		for {
			if _, err := endless.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
				return
			}
		}
	}()
	var clients sync.WaitGroup
	for range 200 {
		clients.Go(func() {
			if r, err := control.Call(t.Context(), path, control.Request{Verb: control.VerbList}); err != nil || !r.OK {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	clients.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := control.Call(t.Context(), path, control.Request{Verb: control.VerbList}); err == nil || !strings.Contains(err.Error(), "nothing serves") {
		t.Errorf("after Close: %v", err)
	}
}

// TestCloseEndsRequests pins that Close ends what is asked, and answers it.
func TestCloseEndsRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	h := &recorder{wait: func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	s, err := control.Listen(path, h, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := dial(t, path)
	w.send(`{"verb":"wait","id":"web"}` + "\n")
	for len(h.noted()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if r := w.answer(); r.OK || !strings.Contains(r.Error, "closed") {
		t.Errorf("%+v", r)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("Close leaves %v", left)
	}
}

// TestListen pins which paths are served, and how.
func TestListen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	path := filepath.Join(dir, "s")
	s, err := control.Listen(path, &recorder{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Path() != path || !control.IsLive(path) {
		t.Errorf("%q is not live", s.Path())
	}
	for file, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, path: 0o600 | os.ModeSocket, path + ".lock": 0o600} {
		if info, err := os.Lstat(file); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", file, info, err, want)
		}
	}

	// A live one is not taken over, with its lock or without.
	if _, err := control.Listen(path, &recorder{}, nil); !errors.Is(err, control.ErrAlive) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a second server: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if control.IsLive(path) {
		t.Error("it lives after Close")
	}
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(path, &recorder{}, nil); !errors.Is(err, control.ErrAlive) {
		t.Errorf("beside a server that has no lock: %v", err)
	}
	// A dead one is: of many at once by exactly one.
	old.SetUnlinkOnClose(false)
	old.Close()
	var servers sync.WaitGroup
	var mu sync.Mutex
	var live []*control.Server
	for range 20 {
		servers.Go(func() {
			s, err := control.Listen(path, &recorder{}, nil)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				live = append(live, s)
			} else if !errors.Is(err, control.ErrAlive) {
				t.Error(err)
			}
		})
	}
	servers.Wait()
	if len(live) != 1 || !control.IsLive(path) {
		t.Errorf("%d servers live", len(live))
	}
	for _, s := range live {
		s.Close()
	}

	// What is no socket stays.
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(path, &recorder{}, nil); !errors.Is(err, control.ErrPath) {
		t.Errorf("a file is there: %v", err)
	}
	if data, err := os.ReadFile(path); string(data) != "precious" {
		t.Errorf("the file: %q, %v", data, err)
	}
	os.Remove(path)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	for what, c := range map[string]struct{ path, say string }{
		"a long path": {filepath.Join(dir, strings.Repeat("x", 110)), "at most 103"},
		"no path":     {"", "empty"},
		"a NUL":       {dir + "/\x00", "NUL"},
		"in a file":   {filepath.Join(os.Args[0], "s"), "not a directory"},
	} {
		_, err := control.Listen(c.path, &recorder{}, nil)
		if !errors.Is(err, control.ErrPath) && !strings.Contains(fmt.Sprint(err), c.say) || !strings.Contains(fmt.Sprint(err), c.say) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := control.Call(t.Context(), c.path, control.Request{Verb: control.VerbList}); err == nil {
			t.Errorf("%s is called", what)
		}
	}
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(path, &recorder{}, nil); !errors.Is(err, control.ErrPath) || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("a directory of the group: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Log("not root: the directory of another user is not tried")
		return
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(path, &recorder{}, nil); !errors.Is(err, control.ErrPath) || !strings.Contains(err.Error(), "another user (uid 65534)") {
		t.Errorf("a directory of another user: %v", err)
	}
}

// TestAutoPath pins where a server goes that is given no path.
func TestAutoPath(t *testing.T) {
	run := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", run)
	path := control.AutoPath("agent-7")
	if want := filepath.Join(run, "termbridge", "agent-7.sock"); path != want {
		t.Errorf("%s, want %s", path, want)
	}
	s, err := control.Listen(path, &recorder{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if live := control.AutoPaths(); len(live) != 1 || live[0] != path {
		t.Errorf("live: %v", live)
	}
	s.Close()
	if live := control.AutoPaths(); len(live) != 0 {
		t.Errorf("live after Close: %v", live)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", run)
	if want := filepath.Join(run, fmt.Sprintf("termbridge-%d", os.Getuid()), "agent-7.sock"); control.AutoPath("agent-7") != want {
		t.Errorf("%s, want %s", control.AutoPath("agent-7"), want)
	}
}

// A logbook is a handler's output that may be read meanwhile.
type logbook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestAudit pins that the log says which process of which user asked for what, and not
// what is typed.
func TestAudit(t *testing.T) {
	var l logbook
	path := listen(t, &recorder{}, &control.ServerOptions{Logger: slog.New(slog.NewTextHandler(&l, nil))})
	for _, req := range []control.Request{
		{Verb: control.VerbSend, ID: "web", Text: "hunter2\r"},
		{Verb: control.VerbKill, ID: "web"},
	} {
		if _, err := control.Call(t.Context(), path, req); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(30 * time.Second); strings.Count(l.String(), "control: request") < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(l.String())
		}
	}
	who := fmt.Sprintf("level=INFO msg=\"control: request\" uid=%d pid=%d ", os.Geteuid(), os.Getpid())
	for _, want := range []string{who + "verb=send id=web bytes=8 ok=true", who + `verb=kill id=web ok=false err="kill: no such session"`} {
		if !strings.Contains(l.String(), want) {
			t.Errorf("no %q in:\n%s", want, l.String())
		}
	}
	if strings.Contains(l.String(), "hunter2") {
		t.Error("what is typed is logged")
	}
}

// Whatever a line is, it has one answer, and the next request is answered.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{`{"verb":"list"}`, `{"verb":"wait","timeout":-1e99}`, `{"verb":"attach","rows":-1}`, "{", "\xff", `{"verb":{}}`, "\x00"} {
		f.Add(s)
	}
	path := listen(f, &recorder{}, nil)
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ReplaceAll(s, "\n", " ")
		w := dial(t, path)
		w.send(s + "\n" + `{"verb":"new"}` + "\n")
		if strings.Trim(s, " \t\r\v\f\u0085\u00a0") != "" && strings.TrimSpace(s) != "" {
			w.answer()
		}
		if r := w.answer(); !r.OK || r.ID != "t2" {
			t.Errorf("%q, then new: %+v", s, r)
		}
		w.Close()
	})
}

// first returns the answer that comes without a request.
func (w *wire) first() (r control.Response) {
	line, _ := bufio.NewReader(w.UnixConn).ReadBytes('\n')
	_ = json.Unmarshal(line, &r)
	return r
}
