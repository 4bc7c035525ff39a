package control_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// A desk is an agent's terminals behind a socket.
type desk struct {
	t    *testing.T
	m    *localterm.Manager
	c    *control.Control
	path string
}

// newDesk returns one whose shell is bash, without anybody's settings, or sh.
func newDesk(t *testing.T) *desk {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	shell := "/bin/bash"
	if _, err := os.Stat(shell); err != nil {
		shell = "/bin/sh"
	}
	d := &desk{t: t, m: localterm.New(nil)}
	t.Cleanup(func() { d.m.Close() })
	d.c = control.New(d.m, &control.Options{Shell: shell})
	t.Cleanup(func() { d.c.Close() })
	d.path = listen(t, d.c, nil)
	return d
}

// call returns the answer to a request.
func (d *desk) call(req control.Request) control.Response {
	d.t.Helper()
	r, err := control.Call(d.t.Context(), d.path, req)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// do returns the answer to a request that must be OK.
func (d *desk) do(req control.Request) control.Response {
	d.t.Helper()
	r := d.call(req)
	if err := r.Err(); err != nil {
		d.t.Fatalf("%+v: %v", req, err)
	}
	return r
}

// wait waits for a state of a session, or of a group.
func (d *desk) wait(id, group string, state control.State) control.SessionInfo {
	d.t.Helper()
	return d.do(control.Request{Verb: control.VerbWait, ID: id, Group: group, State: string(state), Timeout: 30}).Sessions[0]
}

func (d *desk) list(group string) []control.SessionInfo {
	d.t.Helper()
	return d.do(control.Request{Verb: control.VerbList, Group: group}).Sessions
}

// shows waits until a session has shown a text.
func (d *desk) shows(id, text string) {
	d.t.Helper()
	term, err := d.m.Get(id)
	if err != nil {
		d.t.Fatal(err)
	}
	e, err := view.WaitFor(d.t.Context(), term, view.Until{Literal: text, Timeout: 30 * time.Second})
	if err != nil || e.Reason != view.ByMatch {
		d.t.Fatalf("%s shows no %q: %v, %v", id, text, e.Reason, err)
	}
}

// TestOperations drives every operation over the socket, with a real shell.
func TestOperations(t *testing.T) {
	d := newDesk(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	// New types the command into a shell, which survives it.
	web := d.do(control.Request{Verb: control.VerbNew, Name: "web", Group: " dev ", Cwd: dir, Command: "pwd; echo hello-$((1+1))"}).ID
	d.shows(web, "hello-2")
	info := d.wait("web", "", control.Idle)
	if info.ID != web || info.Name != "web" || info.Group != "dev" || info.Cwd != dir || info.Status != control.Running || info.ExitCode != nil {
		t.Errorf("web: %+v", info)
	}
	if info.Certainty == terminal.NoCertainty || info.Evidence == "" || info.PID == 0 || info.Process == "" || info.Transport != control.TransportLocal {
		t.Errorf("idle without evidence: %+v", info)
	}
	if out := d.do(control.Request{Verb: control.VerbRead, ID: web}).Output; !strings.Contains(out, "\n"+dir+"\nhello-2\n") || strings.Contains(out, "\x1b") {
		t.Errorf("read: %q", out)
	}

	// Send is verbatim: Enter is the caller's.
	d.do(control.Request{Verb: control.VerbSend, ID: "web", Text: "echo sent-$((40+2))"})
	d.do(control.Request{Verb: control.VerbSend, ID: "web", Text: "\r"})
	d.shows(web, "sent-42")
	d.wait("web", "", control.Idle)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) { // the prompt comes
		out := d.do(control.Request{Verb: control.VerbRead, ID: "web", Tail: 2}).Output
		if strings.HasPrefix(out, "sent-42\n") {
			break
		}
		if time.Now().After(end) {
			t.Errorf("the last two lines: %q", out)
			break
		}
	}

	// A program that asks is blocked, and not idle as the shell is.
	d.do(control.Request{Verb: control.VerbSend, ID: web, Text: "cat\r"})
	if info := d.wait("", "dev", control.Blocked); info.ID != web || info.Process == "" {
		t.Errorf("blocked: %+v", info)
	}
	d.do(control.Request{Verb: control.VerbSend, ID: web, Text: "\x04"})
	d.wait(web, "", control.Idle)
	d.do(control.Request{Verb: control.VerbSend, ID: web, Text: "sleep 60\r"})
	if info := d.wait(web, "", control.Working); info.Evidence == "" {
		t.Errorf("working without evidence: %+v", info)
	}

	// Names and groups.
	repl := d.do(control.Request{Verb: control.VerbNew, Group: "dev"}).ID
	if list := d.list(""); len(list) != 2 || list[0].ID != web || list[1].Name != repl {
		t.Errorf("list: %+v", list)
	}
	d.do(control.Request{Verb: control.VerbRename, ID: repl, Name: "the repl"})
	d.do(control.Request{Verb: control.VerbGroup, ID: "the repl", Group: "other"})
	if list := d.list("other"); len(list) != 1 || list[0].Name != "the repl" || list[0].Group != "other" {
		t.Errorf("list of other: %+v", list)
	}
	d.do(control.Request{Verb: control.VerbGroup, ID: "the repl"})
	if list := d.list(""); list[1].Group != "" {
		t.Errorf("out of its group: %+v", list[1])
	}
	d.do(control.Request{Verb: control.VerbGroup, ID: "the repl", Group: "dev"})
	d.do(control.Request{Verb: control.VerbSend, ID: web, Text: "\x03"})
	d.wait(web, "", control.Idle)
	d.wait(repl, "", control.Idle)
	if n := d.do(control.Request{Verb: control.VerbGroupSend, Group: "dev", Text: "echo to-$((1))-all\r"}).Count; n != 2 {
		t.Errorf("group-send reached %d", n)
	}
	d.shows(web, "to-1-all")
	d.shows(repl, "to-1-all")

	// Kill leaves it in the list; what is typed into it is an error.
	d.do(control.Request{Verb: control.VerbKill, ID: repl})
	killed := d.list("")[1]
	if killed.Status != control.Exited || killed.AgentState != control.Done || killed.ExitCode == nil || killed.Outcome != terminal.Stopped {
		t.Errorf("killed: %+v", killed)
	}
	if r := d.call(control.Request{Verb: control.VerbSend, ID: repl, Text: "x"}); !errors.Is(r.Err(), control.ErrExited) {
		t.Errorf("send to the killed one: %+v", r)
	}
	if n := d.do(control.Request{Verb: control.VerbGroupSend, Group: "dev", Text: "\r"}).Count; n != 1 {
		t.Errorf("group-send reached %d, of which one has exited", n)
	}
	// An exit code of 0 is not the same as running.
	d.do(control.Request{Verb: control.VerbSend, ID: web, Text: "exit 0\r"})
	if info := d.wait(web, "", control.Done); info.Status != control.Exited || info.ExitCode == nil || *info.ExitCode != 0 {
		t.Errorf("exited: %+v", info)
	}
	if n := d.do(control.Request{Verb: control.VerbGroupKill, Group: "dev"}).Count; n != 2 {
		t.Errorf("group-kill acted on %d", n)
	}
	for _, c := range []struct {
		req  control.Request
		want error
	}{
		{control.Request{Verb: control.VerbGroupSend, Group: "dev", Text: "x"}, control.ErrExited},
		{control.Request{Verb: control.VerbGroupSend, Text: "x"}, control.ErrNoGroup},
		{control.Request{Verb: control.VerbGroupSend, Group: "none", Text: "x"}, control.ErrNoGroup},
		{control.Request{Verb: control.VerbGroupKill}, control.ErrNoGroup},
		{control.Request{Verb: control.VerbGroupKill, Group: "none"}, control.ErrNoGroup},
		{control.Request{Verb: control.VerbRead, ID: "none"}, control.ErrUnknown},
		{control.Request{Verb: control.VerbRead}, control.ErrBad},
		{control.Request{Verb: control.VerbRead, ID: web, Tail: -1}, control.ErrBad},
		{control.Request{Verb: control.VerbSend, ID: "none", Text: "x"}, control.ErrUnknown},
		{control.Request{Verb: control.VerbKill, ID: "none"}, control.ErrUnknown},
		{control.Request{Verb: control.VerbRename, ID: "web", Name: " "}, control.ErrBad},
		{control.Request{Verb: control.VerbRename, ID: "web", Name: "a\nb"}, control.ErrBad},
		{control.Request{Verb: control.VerbRename, ID: "none", Name: "x"}, control.ErrUnknown},
		{control.Request{Verb: control.VerbGroup, ID: "web", Group: "a\nb"}, control.ErrBad},
		{control.Request{Verb: control.VerbGroup, ID: "none", Group: "x"}, control.ErrUnknown},
		{control.Request{Verb: control.VerbNew, Cwd: "relative"}, control.ErrBad},
		{control.Request{Verb: control.VerbNew, Group: "a\nb"}, control.ErrBad},
		{control.Request{Verb: control.VerbWait, State: "idle"}, control.ErrBad},
		{control.Request{Verb: control.VerbWait, ID: "none", State: "idle"}, control.ErrUnknown},
		{control.Request{Verb: control.VerbWait, Group: "none", State: "idle"}, control.ErrNoGroup},
		{control.Request{Verb: control.VerbWait, ID: "web", State: "asleep"}, control.ErrBadState},
		{control.Request{Verb: control.VerbWait, ID: "web", State: "idle"}, control.ErrExited},
		{control.Request{Verb: control.VerbWait, Group: "dev", State: "idle"}, control.ErrExited},
		{control.Request{Verb: "dance"}, control.ErrBad},
	} {
		if r := d.call(c.req); r.OK || !errors.Is(r.Err(), c.want) {
			t.Errorf("%+v: %+v, want %v", c.req, r, c.want)
		}
	}
	if r := d.call(control.Request{Verb: control.VerbNew, Cwd: dir + "/none"}); r.OK || !strings.Contains(r.Error, "none") {
		t.Errorf("new in no directory: %+v", r)
	}
}

// lack skips a test that needs a real part, and fails it where all are a must.
func lack(t *testing.T, why ...any) {
	t.Helper()
	if os.Getenv("TERMBRIDGE_REAL") != "" {
		t.Fatal(why...)
	}
	t.Skip(why...)
}

// TestNewTypesALongLine pins that a line over 4,095 bytes is typed whole: at the prompt,
// where bash edits it, and not before.
func TestNewTypesALongLine(t *testing.T) {
	d := newDesk(t)
	if _, err := os.Stat("/bin/bash"); err != nil {
		lack(t, "there is no bash here: ", err)
	}
	long := strings.Repeat("x", 5000)
	id := d.do(control.Request{Verb: control.VerbNew, Command: "v=" + long + "; echo length-${#v}"}).ID
	d.shows(id, "length-5000")
	// What is sent at once comes behind the line.
	id = d.do(control.Request{Verb: control.VerbNew, Command: "echo first-$((1))"}).ID
	d.do(control.Request{Verb: control.VerbSend, ID: id, Text: "echo second-$((2))\r"})
	d.shows(id, "first-1")
	d.shows(id, "second-2")
}

// TestNewSaysWhatCannotBeTyped pins that a shell which edits no lines takes no long one,
// and that there is no session then.
func TestNewSaysWhatCannotBeTyped(t *testing.T) {
	const shell = "/bin/dash"
	if _, err := os.Stat(shell); err != nil {
		lack(t, "there is no shell here that edits no lines: ", err)
	}
	m := localterm.New(nil)
	defer m.Close()
	c := control.New(m, &control.Options{Shell: shell})
	defer c.Close()
	if _, err := c.New(t.Context(), control.NewSpec{Command: "echo " + strings.Repeat("x", 5000)}); !errors.Is(err, terminal.ErrLineTooLong) {
		t.Errorf("a long line: %v", err)
	}
	all, err := c.List(t.Context(), "")
	if err != nil || len(all) != 1 || all[0].Status != control.Exited {
		t.Errorf("the session: %+v, %v", all, err)
	}
}

// A viewer shows what an attached connection sends, on a screen of its own.
type viewer struct {
	t      *testing.T
	conn   *control.Conn
	screen strings.Builder
	end    *control.SessionInfo
	errs   []string
	size   control.Size
}

func (d *desk) attach(req control.Request) *viewer {
	d.t.Helper()
	conn, err := control.Attach(d.t.Context(), d.path, req)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	return &viewer{t: d.t, conn: conn}
}

// until reads frames until cond holds.
func (v *viewer) until(what string, cond func() bool) {
	v.t.Helper()
	stop := time.AfterFunc(30*time.Second, func() { v.conn.Close() })
	defer stop.Stop()
	for !cond() {
		f, err := v.conn.Recv()
		if err != nil {
			v.t.Fatalf("waiting for %s: %v; it has %q", what, err, v.screen.String())
		}
		if f.Repaint {
			v.screen.Reset()
		}
		v.screen.Write(f.Data)
		if f.Size != nil {
			v.size = *f.Size
		}
		if f.Error != "" {
			v.errs = append(v.errs, f.Error)
		}
		v.end = f.End
	}
}

func (v *viewer) shows(text string) {
	v.t.Helper()
	v.until(fmt.Sprintf("%q", text), func() bool { return strings.Contains(v.screen.String(), text) })
}

// TestAttach pins that a view begins with the screen, follows, and that only a writer
// types and resizes, for all to see.
func TestAttach(t *testing.T) {
	d := newDesk(t)
	id := d.do(control.Request{Verb: control.VerbNew, Name: "web", Command: `printf '\033[?1049h\033[2J\033[3;5Hfull-%s\n' screen; read x; stty size; read y; printf '\033[?1049lby''e\n'; exit 3`}).ID
	d.shows(id, "full-screen")
	d.wait(id, "", control.Blocked)

	watcher := d.attach(control.Request{ID: "web"})
	if watcher.conn.Session.ID != id || watcher.conn.ReadOnly == "" {
		t.Errorf("a watcher: %+v, %q", watcher.conn.Session, watcher.conn.ReadOnly)
	}
	watcher.until("the screen", func() bool { return watcher.screen.Len() > 0 })
	if s := watcher.screen.String(); !strings.Contains(s, "\x1b[?1049h") || !strings.Contains(s, "full-screen") {
		t.Errorf("the first frame paints %q", s)
	}
	if watcher.size != (control.Size{Rows: limits.DefaultRows, Cols: limits.DefaultCols}) {
		t.Errorf("size %+v", watcher.size)
	}
	watcher.conn.Write([]byte("typed\r"))
	watcher.until("the refusal", func() bool { return len(watcher.errs) > 0 })
	watcher.conn.Resize(terminal.Size{Rows: 10, Cols: 20})
	watcher.until("the refusal of a resize", func() bool { return len(watcher.errs) > 1 })

	writer := d.attach(control.Request{ID: "web", Write: true, Rows: 33, Cols: 101})
	if writer.conn.ReadOnly != "" {
		t.Errorf("a writer is read-only: %q", writer.conn.ReadOnly)
	}
	writer.until("its size", func() bool { return writer.size == control.Size{Rows: 33, Cols: 101} })
	watcher.until("the other's size", func() bool { return watcher.size == control.Size{Rows: 33, Cols: 101} })
	if err := writer.conn.Resize(terminal.Size{}); err != nil {
		t.Fatal(err)
	}
	writer.until("the refusal of no size", func() bool { return len(writer.errs) > 0 })
	writer.conn.Write([]byte("\r"))
	writer.shows("33 101")
	watcher.shows("33 101")
	if len(watcher.errs) != 2 {
		t.Errorf("errors of the watcher: %q", watcher.errs)
	}

	// One who goes away leaves the other, and the session.
	writer.conn.Close()
	again := d.attach(control.Request{ID: "web", Write: true})
	again.shows("33 101")
	again.conn.Write([]byte("\r"))
	for _, v := range []*viewer{again, watcher} {
		v.until("the end", func() bool { return v.end != nil })
		if v.end.ExitCode == nil || *v.end.ExitCode != 3 || !strings.Contains(v.screen.String(), "bye\r\n") {
			t.Errorf("the end: %+v, %q", v.end, v.screen.String())
		}
		if _, err := v.conn.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("behind the end: %v", err)
		}
	}
	// What has ended shows its last screen.
	late := d.attach(control.Request{ID: "web", Write: true})
	late.until("the end", func() bool { return late.end != nil })
	if late.conn.ReadOnly == "" || !strings.Contains(late.screen.String(), "bye") {
		t.Errorf("late: %q, %q", late.conn.ReadOnly, late.screen.String())
	}
	if _, err := control.Attach(t.Context(), d.path, control.Request{ID: "none"}); !errors.Is(err, control.ErrUnknown) {
		t.Errorf("attach to nothing: %v", err)
	}
}

// TestViewerThatDoesNotRead pins that a viewer which stops reading is shown the screen
// as it is when it reads again, and not all that it has missed, and that nobody waits
// for it meanwhile.
func TestViewerThatDoesNotRead(t *testing.T) {
	d := newDesk(t)
	id := d.do(control.Request{Verb: control.VerbNew, Command: "read x; yes missed | head -c 8000000; echo the-$((1))-end; read y"}).ID
	d.wait(id, "", control.Blocked)
	slow := d.attach(control.Request{ID: id})
	slow.until("the screen", func() bool { return slow.screen.Len() > 0 })
	d.do(control.Request{Verb: control.VerbSend, ID: id, Text: "\r"})
	d.shows(id, "the-1-end")
	d.wait(id, "", control.Blocked)

	read, repaints := 0, 0
	stop := time.AfterFunc(30*time.Second, func() { slow.conn.Close() })
	defer stop.Stop()
	for !strings.Contains(slow.screen.String(), "the-1-end") {
		f, err := slow.conn.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if read += len(f.Data); f.Repaint {
			repaints++
			slow.screen.Reset()
		}
		slow.screen.Write(f.Data)
	}
	if read > 4<<20 || repaints == 0 {
		t.Errorf("it read %d bytes of 8,000,000, and the screen was painted %d times", read, repaints)
	}
}

// TestRedraw pins that a program whose screen is not known any more is asked to draw it
// again when somebody attaches.
func TestRedraw(t *testing.T) {
	d := newDesk(t)
	script := `trap 'echo redrawn-$((1))' WINCH; yes missed | head -c 2000000; echo the-$((1))-end; while :; do sleep 0.1; done`
	term, err := d.m.Start(t.Context(), terminal.Command{Line: script, TTY: true, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	id := term.Info().ID
	d.shows(id, "the-1-end")
	d.attach(control.Request{ID: id}).shows("redrawn-1")
}
