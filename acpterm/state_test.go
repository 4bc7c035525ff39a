package acpterm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// runState runs a test of a State in fake time, with a client that has announced
// the tool calls "call" and "call 1" to "call 9".
func runState(t *testing.T, test func(f *fixture, s *acpterm.State)) {
	t.Helper()
	run(t, nil, func(f *fixture) {
		f.announce(f.session)
		test(f, acpterm.NewState())
		// A State has no Close: what it has started is cleaned up by session.
		synctest.Wait()
		f.complete(f.session)
	})
}

var calls = []acp.ToolCallId{"call", "call 1", "call 2", "call 3", "call 4", "call 5", "call 6", "call 7", "call 8", "call 9"}

func (f *fixture) announce(session acp.SessionId) {
	f.Helper()
	for _, id := range calls {
		if err := f.c.Conn().SessionUpdate(f.Context(), acp.SessionNotification{SessionId: session, Update: acp.StartToolCall(id, "a command")}); err != nil {
			f.Fatal(err)
		}
	}
}

func (f *fixture) complete(session acp.SessionId) {
	f.Helper()
	for _, id := range calls {
		// An error means that the test has ended the connection.
		_ = f.c.Conn().SessionUpdate(f.Context(), acp.SessionNotification{SessionId: session,
			Update: acp.UpdateToolCall(id, acp.WithUpdateStatus(acp.ToolCallStatusCompleted))})
	}
}

func (f *fixture) background(s *acpterm.State, line, call string) string {
	f.Helper()
	id, err := s.StartBackground(f.Context(), f.c.Conn(), string(f.session), line, "/work", call)
	if err != nil {
		f.Fatalf("StartBackground(%q): %v", line, err)
	}
	synctest.Wait() // until it has printed what it prints at once
	return id
}

func TestExec(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		got, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call", "say hello 3", "/work", 10)
		want := &acpterm.ExecResult{ExitCode: new(3), Output: "hello"}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			f.Errorf("(-want +got):\n%s%v", diff, err)
		}
		f.count(release, 1)
		f.count(kill, 0)
		if err := f.c.Sync(f.Context()); err != nil {
			f.Fatal(err)
		}
		if card := f.c.Card("call"); !strings.Contains(card.Visible(), "hello") {
			f.Errorf("the user sees %q", card.Visible())
		}
	})
}

func TestPendingIsKeptUntilToolEnd(t *testing.T) {
	// Of a command that has ended, too, since an agent's tool-end comes later.
	runState(t, func(f *fixture, s *acpterm.State) {
		if _, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call 1", "true", "/work", 0); err != nil {
			f.Fatal(err)
		}
		f.background(s, "true", "call 2")
		time.Sleep(time.Hour)
		for _, call := range []string{"call 1", "call 2"} {
			if !s.TakePending(call) {
				f.Errorf("%s is not pending", call)
			}
			if s.TakePending(call) {
				f.Errorf("%s is pending again", call)
			}
		}
		if s.TakePending("call 3") {
			f.Error("a tool call without a command is pending")
		}
	})
}

func TestNotPendingIfNothingWasShown(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		conn := &noUpdates{Conn: f.c.Conn()}
		if _, err := s.Exec(f.Context(), conn, string(f.session), "call", "true", "/work", 0); err != nil {
			f.Fatal(err)
		}
		if s.TakePending("call") {
			f.Error("pending, though the terminal was not embedded")
		}
	})
}

// noUpdates is a connection on which session/update fails.
type noUpdates struct{ acpterm.Conn }

func (*noUpdates) SessionUpdate(context.Context, acp.SessionNotification) error {
	return errors.New("the disk is full")
}

func TestCancelWithoutTimeoutKills(t *testing.T) {
	// And returns ErrAborted, with what was seen.
	runState(t, func(f *fixture, s *acpterm.State) {
		ctx, cancel := context.WithCancel(f.Context())
		time.AfterFunc(time.Minute, cancel)
		start := time.Now()
		got, err := s.Exec(ctx, f.c.Conn(), string(f.session), "call", "hold partial", "/work", 0)
		if !errors.Is(err, acpterm.ErrAborted) {
			f.Errorf("got %v, want ErrAborted", err)
		}
		if got == nil || got.Output != "partial" || got.ExitCode != nil {
			f.Errorf("got %+v", got)
		}
		if took := time.Since(start); took < time.Minute || took > time.Minute+terminal.SettleTimeout {
			f.Errorf("took %v", took)
		}
		f.count(kill, 1)
		f.count(release, 1)
	})
}

func TestCancelledContextSendsNothing(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		if _, err := s.Exec(ctx, f.c.Conn(), string(f.session), "call", "true", "/work", 0); !errors.Is(err, acpterm.ErrAborted) {
			f.Errorf("Exec: %v, want ErrAborted", err)
		}
		if _, err := s.StartBackground(ctx, f.c.Conn(), string(f.session), "true", "/work", "call"); !errors.Is(err, acpterm.ErrAborted) {
			f.Errorf("StartBackground: %v, want ErrAborted", err)
		}
		f.count(create, 0)
	})
}

func TestCancelDuringCreate(t *testing.T) {
	// The terminal that comes late is killed and released once, and not shown.
	runState(t, func(f *fixture, s *acpterm.State) {
		f.c.Inject(fakeconn.Fault{Method: create, Reply: true, Delay: time.Minute})
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		if _, err := s.Exec(ctx, f.c.Conn(), string(f.session), "call", "sleep 1h", "/work", 0); !errors.Is(err, acpterm.ErrAborted) {
			f.Errorf("got %v, want ErrAborted", err)
		}
		time.Sleep(2 * time.Minute)
		f.count(kill, 1)
		f.count(release, 1)
		if s.TakePending("call") {
			f.Error("pending")
		}
	})
}

func TestTimeoutErrorHasTheOutput(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		_, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call", "hold partial", "/work", 5)
		want := &acpterm.TimeoutError{Seconds: 5, Output: "partial"}
		got, _ := errors.AsType[*acpterm.TimeoutError](err)
		if diff := cmp.Diff(want, got); diff != "" {
			f.Errorf("(-want +got):\n%s%v", diff, err)
		}
		f.count(release, 1)
	})
}

func TestBackgroundLimitHoldsForConcurrentStarts(t *testing.T) {
	// Five starts at once with one slot: one command starts.
	run(t, nil, func(f *fixture) {
		f.announce(f.session)
		s := acpterm.NewStateWithLimit(1)
		var starts sync.WaitGroup
		var mu sync.Mutex
		started := 0
		for i := range 5 {
			starts.Go(func() {
				_, err := s.StartBackground(f.Context(), f.c.Conn(), string(f.session), "sleep 1h", "/work", fmt.Sprintf("call %d", i+1))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					started++
				} else if !errors.Is(err, terminal.ErrTooMany) {
					f.Errorf("got %v, want ErrTooMany", err)
				}
			})
		}
		starts.Wait()
		f.count(create, 1)
		if started != 1 {
			f.Errorf("%d started", started)
		}
		s.CleanupBackground(f.Context(), f.c.Conn(), string(f.session))
		f.complete(f.session)
	})
}

func TestEndedCommandFreesItsSlot(t *testing.T) {
	// And stays readable.
	run(t, nil, func(f *fixture) {
		f.announce(f.session)
		s := acpterm.NewStateWithLimit(1)
		first := f.background(s, "say first 3", "call 1")
		time.Sleep(time.Second)
		second := f.background(s, "hold second", "call 2")
		for id, want := range map[string]string{first: "first", second: "second"} {
			output, running, exit, err := s.BackgroundOutput(f.Context(), f.c.Conn(), string(f.session), id)
			if output != want || running != (id == second) || err != nil {
				f.Errorf("%s: %q, %v, %v", want, output, running, err)
			}
			if id == first && (exit == nil || *exit != 3) {
				f.Errorf("exit code %v", exit)
			}
		}
		failed := f.c.Inject(fakeconn.Fault{Method: create, Error: acp.NewInternalError("no")})
		s.CleanupBackground(f.Context(), f.c.Conn(), string(f.session))
		if _, err := s.StartBackground(f.Context(), f.c.Conn(), string(f.session), "true", "/work", "call 3"); err == nil {
			f.Error("started")
		}
		failed.Remove()
		f.background(s, "true", "call 4") // a failed start gives its slot back
		time.Sleep(time.Second)
		f.complete(f.session)
	})
}

func TestCleanupPendingLeavesBackgroundAlone(t *testing.T) {
	// Also one whose tool call has not ended; each is released once.
	runState(t, func(f *fixture, s *acpterm.State) {
		id := f.background(s, "hold server", "call 1")
		var err error
		var exec sync.WaitGroup
		exec.Go(func() {
			_, err = s.Exec(f.Context(), f.c.Conn(), string(f.session), "call 2", "sleep 1h", "/work", 0)
		})
		time.Sleep(time.Second)
		ended, cancel := context.WithCancel(f.Context())
		cancel() // it is, when a turn was cancelled
		s.CleanupPending(ended, f.c.Conn(), string(f.session))
		f.count(release, 1)
		exec.Wait()
		if !errors.Is(err, acpterm.ErrAborted) {
			f.Errorf("Exec: %v, want ErrAborted", err)
		}
		if s.TakePending("call 2") {
			f.Error("what was cleaned up is pending")
		}
		output, running, _, err := s.BackgroundOutput(f.Context(), f.c.Conn(), string(f.session), id)
		if output != "server" || !running || err != nil {
			f.Errorf("the background command: %q, running %v, %v", output, running, err)
		}
		if !s.TakePending("call 1") {
			f.Error("the background command is not pending")
		}
		s.CleanupBackground(ended, f.c.Conn(), string(f.session))
		s.CleanupBackground(ended, f.c.Conn(), string(f.session))
		s.CleanupPending(ended, f.c.Conn(), string(f.session))
		f.count(kill, 2)
		f.count(release, 2)
		if _, _, _, err := s.BackgroundOutput(f.Context(), f.c.Conn(), string(f.session), id); !errors.Is(err, terminal.ErrNotFound) {
			f.Errorf("after the cleanup: %v", err)
		}
	})
}

func TestCleanupDuringCreate(t *testing.T) {
	// What a cleanup finds starting does not run on.
	runState(t, func(f *fixture, s *acpterm.State) {
		f.c.Inject(fakeconn.Fault{Method: create, Reply: true, Delay: 3 * time.Second})
		var errs [2]error
		var starts sync.WaitGroup
		starts.Go(func() {
			_, errs[0] = s.Exec(f.Context(), f.c.Conn(), string(f.session), "call 1", "sleep 1h", "/work", 0)
		})
		starts.Go(func() {
			_, errs[1] = s.StartBackground(f.Context(), f.c.Conn(), string(f.session), "sleep 1h", "/work", "call 2")
		})
		time.Sleep(time.Second)
		s.CleanupPending(f.Context(), f.c.Conn(), string(f.session))
		s.CleanupBackground(f.Context(), f.c.Conn(), string(f.session))
		starts.Wait()
		for _, err := range errs {
			if !errors.Is(err, acpterm.ErrAborted) {
				f.Errorf("got %v, want ErrAborted", err)
			}
		}
		time.Sleep(time.Second)
		f.count(kill, 2)
		f.count(release, 2)
	})
}

func TestTwoCommandsUnderOneToolCall(t *testing.T) {
	// Both are known, and both are cleaned up.
	runState(t, func(f *fixture, s *acpterm.State) {
		var execs sync.WaitGroup
		for range 2 {
			execs.Go(func() {
				s.Exec(f.Context(), f.c.Conn(), string(f.session), "call", "sleep 1h", "/work", 0)
			})
		}
		time.Sleep(time.Second)
		s.CleanupPending(f.Context(), f.c.Conn(), string(f.session))
		execs.Wait()
		f.count(kill, 2)
		f.count(release, 2)
	})
}

func TestHungKillHangsNobody(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		f.c.Inject(fakeconn.Fault{Method: kill, Drop: true})
		id := f.background(s, "hold here", "call 1")
		start := time.Now()
		output, _, err := s.KillBackground(f.Context(), f.c.Conn(), string(f.session), id)
		if output != "here" || err == nil {
			f.Errorf("KillBackground: %q, %v; want the output, and that the client does not answer", output, err)
		}
		f.within(start, terminal.SettleTimeout, "KillBackground")
		start = time.Now()
		if _, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call 2", "sleep 1h", "/work", 1); err == nil {
			f.Error("no error")
		}
		f.within(start, time.Second+terminal.SettleTimeout, "Exec")
		time.Sleep(time.Minute)
		f.count(release, 2)
	})
}

func TestFailedOutputIsNoSuccess(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		id := f.background(s, "hold here", "call 1")
		if output, _, _, err := s.BackgroundOutput(f.Context(), f.c.Conn(), string(f.session), id); output != "here" || err != nil {
			f.Errorf("%q, %v", output, err)
		}
		f.c.Inject(fakeconn.Fault{Method: output, Error: acp.NewInternalError("no")})
		var re *acp.RequestError
		got, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call 2", "say hello 0", "/work", 0)
		if !errors.As(err, &re) || got == nil || got.ExitCode == nil || *got.ExitCode != 0 {
			f.Errorf("Exec: %+v, %v", got, err)
		}
		output, running, _, err := s.BackgroundOutput(f.Context(), f.c.Conn(), string(f.session), id)
		if output != "here" || !running || !errors.As(err, &re) {
			f.Errorf("BackgroundOutput: %q, running %v, %v", output, running, err)
		}
		output, _, err = s.KillBackground(f.Context(), f.c.Conn(), string(f.session), id)
		if output != "here" || !errors.As(err, &re) {
			f.Errorf("KillBackground: %q, %v", output, err)
		}
	})
}

func TestSignalIsNoSuccess(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		f.c.Inject(fakeconn.Fault{Method: wait, Reply: true, Result: map[string]any{"exitCode": 0, "signal": "Killed"}})
		got, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call", "true", "/work", 0)
		if err != nil || got.ExitCode != nil {
			f.Errorf("%+v, %v", got, err)
		}
	})
}

func TestKillBackgroundIsIdempotent(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		id := f.background(s, "hold here", "call 1")
		ended, cancel := context.WithCancel(f.Context())
		cancel()
		for range 3 {
			output, exit, err := s.KillBackground(ended, f.c.Conn(), string(f.session), id)
			if output != "here" || exit != nil || err != nil {
				f.Errorf("%q, %v, %v", output, exit, err)
			}
		}
		f.count(kill, 1)
		f.count(release, 1)
		if _, _, err := s.KillBackground(f.Context(), f.c.Conn(), string(f.session), "nonsense"); !errors.Is(err, terminal.ErrNotFound) {
			f.Errorf("an unknown id: %v", err)
		}
	})
}

func TestConnectionLostIsNoCancel(t *testing.T) {
	// Although the SDK cancels the contexts of handlers then, too.
	runState(t, func(f *fixture, s *acpterm.State) {
		ctx, cancel := context.WithCancel(f.Context())
		time.AfterFunc(time.Second, func() {
			f.c.Disconnect()
			<-f.c.Conn().Done()
			cancel()
		})
		got, err := s.Exec(ctx, f.c.Conn(), string(f.session), "call", "hold here", "/work", 0)
		if !errors.Is(err, terminal.ErrConnectionLost) || got == nil || got.ExitCode != nil {
			f.Errorf("%+v, %v", got, err)
		}
		if _, err := s.Exec(ctx, f.c.Conn(), string(f.session), "call", "true", "/work", 0); !errors.Is(err, terminal.ErrConnectionLost) {
			f.Errorf("Exec after the end: %v", err)
		}
	})
}

func TestTwoStatesAndTwoSessions(t *testing.T) {
	// Ids, limits, pendings and cleanups of one are none of the other's.
	run(t, nil, func(f *fixture) {
		other, err := f.c.NewSession(f.Context(), "/other")
		if err != nil {
			f.Fatal(err)
		}
		f.announce(f.session)
		f.announce(other)
		one, two := acpterm.NewStateWithLimit(2), acpterm.NewStateWithLimit(2)
		start := func(s *acpterm.State, session acp.SessionId, text string) string {
			id, err := s.StartBackground(f.Context(), f.c.Conn(), string(session), "hold "+text, "/work", "call")
			if err != nil {
				f.Fatalf("%s: %v", text, err)
			}
			synctest.Wait()
			return id
		}
		a, b, c := start(one, f.session, "a"), start(two, other, "b"), start(two, f.session, "c")
		one.CleanupPending(f.Context(), f.c.Conn(), string(f.session))
		one.CleanupBackground(f.Context(), f.c.Conn(), string(f.session))
		two.CleanupBackground(f.Context(), f.c.Conn(), string(f.session))
		if _, _, _, err := one.BackgroundOutput(f.Context(), f.c.Conn(), string(f.session), a); !errors.Is(err, terminal.ErrNotFound) {
			f.Errorf("a: %v", err)
		}
		if _, _, _, err := two.BackgroundOutput(f.Context(), f.c.Conn(), string(f.session), c); !errors.Is(err, terminal.ErrNotFound) {
			f.Errorf("c: %v", err)
		}
		if _, _, _, err := two.BackgroundOutput(f.Context(), f.c.Conn(), string(f.session), b); !errors.Is(err, terminal.ErrNotFound) {
			f.Errorf("b in the other session: %v", err)
		}
		output, running, _, err := two.BackgroundOutput(f.Context(), f.c.Conn(), string(other), b)
		if output != "b" || !running || err != nil {
			f.Errorf("b: %q, running %v, %v", output, running, err)
		}
		if !two.TakePending("call") {
			f.Error("b is not pending")
		}
		two.CleanupBackground(f.Context(), f.c.Conn(), string(other))
		f.count(release, 3)
		f.complete(f.session)
		f.complete(other)
	})
}
