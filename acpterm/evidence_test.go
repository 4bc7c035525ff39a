package acpterm

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/terminal"
)

// What replies amount to, whatever their order in time but for the kill.
func TestVerdict(t *testing.T) {
	no, never := errors.New("no"), errors.New("never")
	unknown := terminal.Exit{}
	code := func(n int) terminal.Exit { return terminal.Exit{Code: &n} }
	killed9 := terminal.Exit{Signal: "SIGKILL"}

	type step func(e *evidence)
	waited := func(n int) step { return func(e *evidence) { e.waited(&n, nil, nil) } }
	waitedVoid := func(e *evidence) { e.waited(nil, nil, nil) }
	waitFailed := func(e *evidence) { e.waited(nil, nil, no) }
	waitUnknown := func(e *evidence) { e.waited(nil, nil, &refused{"wait", acp.NewMethodNotFound("")}) }
	shown := func(n int) step { return func(e *evidence) { e.read(&acp.TerminalExitStatus{ExitCode: &n}, nil) } }
	shownVoid := func(e *evidence) { e.read(&acp.TerminalExitStatus{}, nil) }
	running := func(e *evidence) { e.read(nil, nil) }
	readFailed := func(e *evidence) { e.read(nil, never) }
	wrote := func(e *evidence) { e.output = true }
	kill := func(e *evidence) { e.kill(never) }
	killOK := func(e *evidence) { e.killErr = nil }
	killRefused := func(e *evidence) { e.killErr = no }
	signalled := func(e *evidence) { e.waited(nil, new("SIGKILL"), nil) }

	for _, test := range []struct {
		name    string
		steps   []step
		why     ending
		silent  bool
		outcome terminal.Outcome
		exit    terminal.Exit
		errs    []error // that Err wraps; none is nil
	}{
		{"a code, and output", []step{running, wrote, waited(3)}, byItself, false, terminal.Exited, code(3), nil},
		{"a code by the output only", []step{shown(3)}, byItself, false, terminal.Exited, code(3), nil},
		{"a signal", []step{signalled}, byItself, false, terminal.Signalled, killed9, nil},
		{"success, of which the output knows", []step{waited(0), shown(0)}, byItself, false, terminal.Exited, code(0), nil},
		{"success that wrote", []step{running, wrote, waited(0), running}, byItself, false, terminal.Exited, code(0), nil},
		{"silent success of which nothing is known", []step{waited(0), running}, byItself, false, terminal.Unknown, unknown, []error{ErrBadReply}},
		{"silent success from a client that is silent", []step{waited(0), running}, byItself, true, terminal.Exited, code(0), nil},
		{"success that is a failure elsewhere", []step{waited(0), shown(1)}, byItself, true, terminal.Unknown, unknown, []error{ErrBadReply}},
		{"failure that is a success elsewhere", []step{waited(1), shown(0)}, byItself, false, terminal.Exited, code(1), nil},
		{"two codes that agree", []step{waited(1), shown(2)}, byItself, false, terminal.Exited, code(1), nil},
		{"the output cannot be read", []step{waited(0), readFailed}, byItself, false, terminal.Exited, code(0), []error{never}},
		{"it could once more", []step{readFailed, shown(0)}, byItself, false, terminal.Exited, code(0), nil},

		{"a stub", []step{waitedVoid, running}, inSilence, false, terminal.Unknown, unknown, []error{ErrStub}},
		{"an end without a how", []step{shownVoid, running}, inSilence, false, terminal.Unknown, unknown, []error{ErrBadReply}},
		{"a stub that wrote is none", []step{waitedVoid, running, wrote}, inSilence, false, terminal.Unknown, unknown, []error{ErrBadReply}},
		{"nobody tells the end", []step{waitFailed, running}, unwatched, false, terminal.Failed, unknown, []error{no}},
		{"nobody tells the end, and the kill is refused", []step{waitFailed, running, kill, killRefused}, unwatched, false, terminal.Failed, unknown, []error{no}},
		{"the client has forgotten it", []step{waitFailed, readFailed, readFailed}, byOblivion, false, terminal.StoppedByClient, unknown, []error{no}},
		{"the client has no such methods", []step{waitUnknown, readFailed, readFailed}, byOblivion, false, terminal.Failed, unknown, []error{errors.ErrUnsupported, never}},

		{"stopped, with a signal", []step{running, kill, killOK, signalled}, byStop, false, terminal.Stopped, killed9, nil},
		{"stopped by a timeout", []step{kill, killOK, signalled}, byTimeout, false, terminal.TimedOut, killed9, nil},
		{"stopped, it says, and not how", []step{kill, killOK, waitedVoid}, byStop, false, terminal.Stopped, unknown, nil},
		{"stopped, the output says, and not how", []step{kill, killOK, shownVoid}, byStop, false, terminal.Stopped, unknown, nil},
		{"stopped, it said, and not how, before as well", []step{waitedVoid, kill, killOK, waitedVoid}, byStop, false, terminal.Stopped, unknown, []error{errNotSaid}},
		{"stopped, it said before, and the command has written", []step{waitedVoid, wrote, kill, killOK, waitedVoid}, byStop, false, terminal.Stopped, unknown, nil},
		{"stopped, and nobody says that it ended", []step{running, kill, killOK, running}, byStop, false, terminal.Stopped, unknown, []error{errNotSaid}},
		{"the kill is not answered", []step{running, kill}, byStop, false, terminal.Stopped, unknown, []error{never}},
		{"the kill is not answered, and it ended", []step{running, kill, signalled}, byStop, false, terminal.Stopped, killed9, nil},
		{"the kill is refused", []step{running, kill, killRefused}, byTimeout, false, terminal.TimedOut, unknown, []error{no}},
		{"the kill is refused, it ended, and not how", []step{running, kill, killRefused, waitedVoid}, byStop, false, terminal.Stopped, unknown, []error{no}},
		{"the kill is refused, and nothing of it runs on this host", []step{func(e *evidence) { e.seen = true }, kill, killRefused}, byStop, false, terminal.Stopped, unknown, nil},
		{"stopped, and the output cannot be read", []step{kill, killOK, signalled, readFailed}, byStop, false, terminal.Stopped, killed9, []error{never}},

		{"the connection is lost", []step{running, wrote}, byLoss, false, terminal.ConnectionLost, unknown, []error{terminal.ErrConnectionLost}},
		{"lost when it had ended", []step{waited(3)}, byLoss, false, terminal.ConnectionLost, code(3), []error{terminal.ErrConnectionLost}},
	} {
		var e evidence
		for _, step := range test.steps {
			step(&e)
		}
		outcome, exit, err := e.verdict(test.why, test.silent)
		if diff := cmp.Diff(test.exit, exit); outcome != test.outcome || diff != "" {
			t.Errorf("%s: %s, %v; want %s, %v", test.name, outcome, exit, test.outcome, test.exit)
		}
		if (err != nil) != (test.errs != nil) {
			t.Errorf("%s: the error is %v", test.name, err)
		}
		for _, want := range test.errs {
			if !errors.Is(err, want) {
				t.Errorf("%s: the error is %v, want %v in it", test.name, err, want)
			}
		}
		if stub := errors.Is(err, ErrStub); stub != (len(test.errs) > 0 && test.errs[0] == ErrStub) {
			t.Errorf("%s: a stub: %v", test.name, stub)
		}
	}
}

// Of an answer and the end of the time for it, both there, the answer counts: each
// time, and wherever one of them decides what is done.
func TestAnAnswerCountsBeforeABound(t *testing.T) {
	past := time.Now().Add(-time.Second)
	m := newManager(peer{client: new(Client)}, Options{})
	watched := func() *watch {
		return &watch{
			term:  &term{manager: m, release: &release{id: "t", ctx: context.Background()}, peer: m.peer, wake: make(chan struct{}, 1)},
			waits: make(chan reply[acp.WaitForTerminalExitResponse], 1),
			alarm: time.NewTimer(0),
		}
	}
	for range 50 {
		w := watched()
		w.timeout, w.waiting = past, 1
		w.waits <- reply[acp.WaitForTerminalExitResponse]{value: acp.WaitForTerminalExitResponse{ExitCode: new(0)}}
		w.until(time.Time{}, func() bool { return w.why() != watching })
		if w.why() != byItself {
			t.Fatalf("a command that had ended when its time was up: %v", w.why())
		}

		w = watched()
		w.unconfirmed, w.waiting = past, 1
		w.ev.early = true
		w.waits <- reply[acp.WaitForTerminalExitResponse]{value: acp.WaitForTerminalExitResponse{ExitCode: new(0)}}
		w.until(time.Time{}, func() bool { return w.why() != watching })
		if w.why() != byItself {
			t.Fatalf("a command that had ended within its grace period: %v", w.why())
		}

		w = watched()
		killed := make(chan reply[acp.KillTerminalResponse], 1)
		killed <- reply[acp.KillTerminalResponse]{}
		w.kill = killed
		w.until(past, func() bool { return w.kill == nil })
		if w.kill != nil {
			t.Fatal("a kill that was answered counts as not answered")
		}

		w = watched()
		out := make(chan reply[acp.TerminalOutputResponse], 1)
		out <- reply[acp.TerminalOutputResponse]{value: acp.TerminalOutputResponse{ExitStatus: &acp.TerminalExitStatus{ExitCode: new(0)}}}
		w.out = out
		w.readNow(past)
		if w.ev.outErr != nil {
			t.Fatalf("an output that was answered: %v", w.ev.outErr)
		}

		answer := make(chan reply[int], 1)
		answer <- reply[int]{value: 7}
		if r := receive(m.peer, answer, -time.Second); r.err != nil || r.value != 7 {
			t.Fatalf("a request that was answered: %+v", r)
		}

		list := new(releases)
		r, _ := list.track("s", "t", Hooks{})
		r.send()
		r.end()
		if !m.peer.released(r, -time.Second, nil) {
			t.Fatal("a release that was answered counts as not answered")
		}
		if r.send() {
			t.Fatal("a release that was answered is sent again")
		}
	}
}

// A Manager keeps nothing of commands whose releases were answered late, and a State
// nothing of a session that was cleaned up.
func TestWhatIsOverIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &lateClient{}
		m := newManager(newPeer(c, "s", new(Client)), Options{Dir: "/"})
		for range 10 {
			if _, err := m.Start(t.Context(), terminal.Command{Line: "true"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if open := m.releases.open(); len(m.live) > 0 || len(open) > 0 || len(m.creating) > 0 {
			t.Errorf("%d live, %d to be released, %d being created", len(m.live), len(open), len(m.creating))
		}
		s := NewState()
		for range 10 {
			if _, err := s.Exec(t.Context(), c, "s", "", "true", "/", 0); err != nil {
				t.Fatal(err)
			}
			if _, err := s.StartBackground(t.Context(), c, "s", "true", "/", ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		s.CleanupPending(t.Context(), c, "s")
		s.CleanupBackground(t.Context(), c, "s")
		time.Sleep(time.Minute)
		synctest.Wait()
		if kept, open := s.manager.List(), s.manager.releases.open(); len(kept) > 0 || len(open) > 0 || len(s.manager.live) > 0 || len(s.clients) > 1 {
			t.Errorf("%d kept, %d to be released, %d live, %d clients", len(kept), len(open), len(s.manager.live), len(s.clients))
		}
	})
}

// A lateClient's commands end at once, and it answers a release after ten seconds.
type lateClient struct {
	Conn
	n atomic.Int64
}

func (c *lateClient) CreateTerminal(context.Context, acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	return acp.CreateTerminalResponse{TerminalId: strconv.FormatInt(c.n.Add(1), 10)}, nil
}

func (c *lateClient) WaitForTerminalExit(context.Context, acp.WaitForTerminalExitRequest) (acp.WaitForTerminalExitResponse, error) {
	return acp.WaitForTerminalExitResponse{ExitCode: new(0)}, nil
}

func (c *lateClient) TerminalOutput(context.Context, acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error) {
	return acp.TerminalOutputResponse{ExitStatus: &acp.TerminalExitStatus{ExitCode: new(0)}}, nil
}

func (c *lateClient) ReleaseTerminal(context.Context, acp.ReleaseTerminalRequest) (r acp.ReleaseTerminalResponse, err error) {
	time.Sleep(10 * time.Second)
	return r, err
}

func TestReleases(t *testing.T) {
	var settled []string
	track := func(list *releases, session acp.SessionId, id string) (*release, bool) {
		return list.track(session, id, Hooks{Done: func() { settled = append(settled, string(session)+id) }})
	}
	var list releases
	a, ok := track(&list, "s", "a")
	if !ok {
		t.Fatal("a new id lives already")
	}
	b, _ := track(&list, "s", "b")
	if _, ok := track(&list, "s", "a"); ok {
		t.Error("an id that lives came again")
	}
	other, ok := track(&list, "other", "a")
	if !ok {
		t.Error("the id of another session's terminal lives")
	}
	if !a.send() {
		t.Error("a is released")
	}
	again, ok := track(&list, "s", "a") // its release is not answered, so it was done
	if !ok || again == a {
		t.Error("an id cannot come again before the answer to its release")
	}
	if a.send() {
		t.Error("what has the id now would be released")
	}
	a.end() // the answer
	for range 2 {
		b.end()
	}
	if diff := cmp.Diff([]string{"sa", "sb"}, settled); diff != "" {
		t.Errorf("settled (-want +got):\n%s", diff)
	}
	if open := list.open(); len(open) != 2 || open[0] != other || open[1] != again {
		t.Errorf("open: %v", open)
	}
}
