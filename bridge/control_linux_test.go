package bridge_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// controlled is a Bridge whose terminals are served, in a client of a kind with real
// processes.
func controlled(t *testing.T, k kind, o *bridge.Options) (c *fakeconn.Client, b *bridge.Bridge, path string) {
	t.Helper()
	manager := localterm.New(nil)
	t.Cleanup(func() { manager.Close() })
	k.client.Manager = func(acp.SessionId) terminal.Manager { return manager }
	k.client.Host = &acphost.Options{TTY: true}
	c = fakeconn.New(&k.client)
	t.Cleanup(func() { c.Close() })
	b = bridge.New(c.Conn(), c.Init(), o)
	t.Cleanup(func() { b.Close() })
	path = filepath.Join(t.TempDir(), "s")
	if err := b.ServeControl(path); err != nil {
		t.Fatal(err)
	}
	return c, b, path
}

// session opens a session in dir.
func session(t *testing.T, c *fakeconn.Client, b *bridge.Bridge, dir string) *bridge.State {
	t.Helper()
	id, err := c.NewSession(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Session(id, dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ctl makes a request that must be answered with OK.
func ctl(t *testing.T, path string, req control.Request) control.Response {
	t.Helper()
	r, err := control.Call(t.Context(), path, req)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		t.Fatalf("%+v: %v", req, err)
	}
	return r
}

// readUntil reads a terminal until it shows a text.
func readUntil(t *testing.T, path, id, text string) string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out := ctl(t, path, control.Request{Verb: control.VerbRead, ID: id}).Output
		if strings.Contains(out, text) {
			return out
		}
		if time.Now().After(end) {
			t.Fatalf("%s shows no %q but %q", id, text, out)
		}
	}
}

// TestServeControl pins that others see the commands of every session, wherever they
// run, that what they start is shown in a card, and that a command finds itself.
func TestServeControl(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			c, b, path := controlled(t, k, &bridge.Options{Shell: "/bin/sh"})
			s := session(t, c, b, t.TempDir())

			// A command of the agent.
			var own terminal.Terminal
			_, err := s.Turn(t.Context(), func(ctx context.Context, turn *bridge.Turn) (acp.PromptResponse, error) {
				call := turn.ToolCall(card("1"))
				var err error
				own, err = call.StartBackground(ctx, terminal.Command{
					Line:   `echo "me: $TERMBRIDGE_TERMINAL at $TERMBRIDGE_SOCKET."; sleep 60`,
					Labels: map[string]string{control.NameLabel: "server", control.GroupLabel: "dev"},
				})
				call.End("", err)
				return done, err
			})
			if err != nil {
				t.Fatal(err)
			}
			id := own.Info().ID
			readUntil(t, path, "server", "me: "+id+" at "+path+".")
			info := ctl(t, path, control.Request{Verb: control.VerbList, Group: "dev"}).Sessions[0]
			transport := control.TransportLocal
			if k.presentation == bridge.PresentClient {
				transport = control.TransportClient
			}
			if info.ID != id || info.Name != "server" || info.Transport != transport || info.ReadOnly == "" || info.Status != control.Running {
				t.Errorf("the server: %+v", info)
			}
			r, err := control.Call(t.Context(), path, control.Request{Verb: control.VerbSend, ID: "server", Text: "x"})
			if err != nil || !errors.Is(r.Err(), control.ErrReadOnly) {
				t.Errorf("send to what has no input: %+v, %v", r, err)
			}
			view, err := control.Attach(t.Context(), path, control.Request{ID: "server", Write: true})
			if err != nil {
				t.Fatal(err)
			}
			defer view.Close()
			if view.ReadOnly == "" {
				t.Error("what has no input can be typed into")
			}
			if f, err := view.Recv(); err != nil || !f.Repaint || !strings.Contains(string(f.Data), "me: "+id) {
				t.Errorf("the first frame: %+v, %v", f, err)
			}

			// A command of another.
			web := ctl(t, path, control.Request{Verb: control.VerbNew, Name: "web", Command: `echo "I am $TERMBRIDGE_TERMINAL, at $TERMBRIDGE_SOCKET."; pwd`}).ID
			out := readUntil(t, path, web, "I am "+web+", at "+path+".")
			if state := ctl(t, path, control.Request{Verb: control.VerbWait, ID: "web", State: "idle", Timeout: 30}).Sessions[0]; state.Transport != control.TransportLocal || state.ReadOnly != "" {
				t.Errorf("web: %+v", state)
			}
			if _, err := s.Get(web); err != nil {
				t.Errorf("it belongs to no session: %v, %q", err, out)
			}
			if err := c.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if seen := c.Card("control-1"); seen.Status != acp.ToolCallStatusCompleted || !strings.Contains(seen.Title, "I am") {
				t.Errorf("its card: %+v", seen)
			}
			ctl(t, path, control.Request{Verb: control.VerbKill, ID: "web"})
			ctl(t, path, control.Request{Verb: control.VerbKill, ID: "server"})
			for _, info := range ctl(t, path, control.Request{Verb: control.VerbList}).Sessions {
				if info.Status != control.Exited || info.ExitCode == nil {
					t.Errorf("killed: %+v", info)
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("Close leaves the socket")
			}
		})
	}
}

// TestControlSessions pins to which session something belongs that another starts, and
// that ids which two sessions give are told apart.
func TestControlSessions(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	own := func(acp.SessionId) terminal.Manager { return localterm.New(nil) } // each counts from t1 on
	c, b, path := controlled(t, text, &bridge.Options{Local: own, Shell: "/bin/sh"})
	r, err := control.Call(t.Context(), path, control.Request{Verb: control.VerbNew})
	if err != nil || r.OK || !strings.Contains(r.Error, "no session") {
		t.Errorf("new without a session: %+v, %v", r, err)
	}
	dir, other := t.TempDir(), t.TempDir()
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	states := map[string]*bridge.State{}
	for _, d := range []string{dir, other} {
		states[d] = session(t, c, b, d)
	}
	for _, n := range []struct{ cwd, session, want string }{
		{sub, dir, "t1"}, {"", other, string(states[other].ID()) + "/t1"}, {"/", other, "t2"}, {dir, dir, string(states[dir].ID()) + "/t2"},
	} {
		before := len(states[n.session].List())
		id := ctl(t, path, control.Request{Verb: control.VerbNew, Cwd: n.cwd}).ID
		if after := len(states[n.session].List()); id != n.want || after != before+1 {
			t.Errorf("new in %q is %s (want %s), and the session of %s has %d more", n.cwd, id, n.want, n.session, after-before)
		}
		if got := ctl(t, path, control.Request{Verb: control.VerbWait, ID: id, State: "idle", Timeout: 30}).Sessions[0]; got.ID != id {
			t.Errorf("%s is shown as %+v", id, got)
		}
	}
	if err := b.ServeControl(path + "2"); err == nil {
		t.Error("the terminals are served twice")
	}
	seen := map[string]bool{}
	for _, info := range ctl(t, path, control.Request{Verb: control.VerbList}).Sessions {
		if seen[info.ID] {
			t.Errorf("%s is there twice", info.ID)
		}
		seen[info.ID] = true
	}
	if len(seen) != 4 {
		t.Errorf("listed: %v", seen)
	}
}

// TestNoControl pins that nothing is served, and no variable set, unless asked for.
func TestNoControl(t *testing.T) {
	t.Parallel()
	onMachine(t, nil, func(t *testing.T, _ kind, run func(terminal.Command) (*bridge.Result, acphost.Card)) {
		r, _ := run(terminal.Command{Line: `echo "<$TERMBRIDGE_SOCKET$TERMBRIDGE_TERMINAL>"`})
		contains(t, "the output", r.Output, "<>")
	})
	c := fakeconn.New(nil)
	defer c.Close()
	b := bridge.New(c.Conn(), c.Init(), nil)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.ServeControl(filepath.Join(t.TempDir(), "s")); !errors.Is(err, terminal.ErrClosed) {
		t.Errorf("a closed Bridge serves: %v", err)
	}
}

// TestControlOfNoSocket pins the words about a path that will not do.
func TestControlOfNoSocket(t *testing.T) {
	t.Parallel()
	c := fakeconn.New(nil)
	defer c.Close()
	b := bridge.New(c.Conn(), c.Init(), nil)
	defer b.Close()
	if err := b.ServeControl(filepath.Join(t.TempDir(), strings.Repeat("x", 110))); !errors.Is(err, control.ErrPath) {
		t.Errorf("a long path: %v", err)
	}
	path := filepath.Join(t.TempDir(), "s")
	if err := b.ServeControl(path); err != nil {
		t.Errorf("after an error: %v", err)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
}
