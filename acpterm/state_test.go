package acpterm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
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
		if !errors.Is(err, acpterm.ErrAborted) || !errors.Is(err, context.Canceled) {
			f.Errorf("got %v, want ErrAborted", err)
		}
		if got == nil || got.Output != "partial" || got.ExitCode != nil {
			f.Errorf("got %+v", got)
		}
		if took := time.Since(start); took < time.Minute || took > time.Minute+limits.SettleTimeout {
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
		if _, err := s.Exec(ctx, f.c.Conn(), string(f.session), "call", "true", "/work", 0); !errors.Is(err, acpterm.ErrAborted) || !errors.Is(err, context.Canceled) {
			f.Errorf("Exec: %v, want ErrAborted", err)
		}
		if _, err := s.StartBackground(ctx, f.c.Conn(), string(f.session), "true", "/work", "call"); !errors.Is(err, acpterm.ErrAborted) || !errors.Is(err, context.Canceled) {
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
		if _, err := s.Exec(ctx, f.c.Conn(), string(f.session), "call", "sleep 1h", "/work", 0); !errors.Is(err, acpterm.ErrAborted) || !errors.Is(err, context.DeadlineExceeded) {
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
		f.within(start, limits.SettleTimeout, "KillBackground")
		start = time.Now()
		if _, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call 2", "sleep 1h", "/work", 1); err == nil {
			f.Error("no error")
		}
		f.within(start, time.Second+limits.SettleTimeout, "Exec")
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

func TestExecTellsTheSignal(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		got, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call", "signal SIGSEGV", "/work", 0)
		if diff := cmp.Diff(&acpterm.ExecResult{Signal: "SIGSEGV"}, got); diff != "" || err != nil {
			f.Errorf("(-want +got):\n%s%v", diff, err)
		}
	})
}

func TestErrAbortedKeepsTheCause(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		because := errors.New("because")
		check := func(name string, err error) {
			f.Helper()
			if !errors.Is(err, acpterm.ErrAborted) || !errors.Is(err, because) {
				f.Errorf("%s: %v, want ErrAborted and the cause", name, err)
			}
		}
		start := func(d time.Duration) context.Context {
			ctx, cancel := context.WithCancelCause(f.Context())
			time.AfterFunc(d, func() { cancel(because) })
			time.Sleep(d / 2)
			return ctx
		}
		_, err := s.Exec(start(time.Second), f.c.Conn(), string(f.session), "call", "sleep 1h", "/work", 0)
		check("while it runs", err)
		ctx := start(time.Second)
		time.Sleep(time.Second)
		_, err = s.Exec(ctx, f.c.Conn(), string(f.session), "call", "true", "/work", 0)
		check("before", err)
		_, err = s.StartBackground(ctx, f.c.Conn(), string(f.session), "true", "/work", "call")
		check("in the background", err)
		f.c.Inject(fakeconn.Fault{Method: create, Reply: true, Delay: time.Minute})
		_, err = s.Exec(start(time.Second), f.c.Conn(), string(f.session), "call", "true", "/work", 0)
		check("during create", err)
		time.Sleep(2 * time.Minute)
	})
}

func TestExecWithoutAnyEvidenceOfTheEnd(t *testing.T) {
	// terminal/wait_for_exit fails, and no output has an exit status: it is asked
	// again, and given up once the command is quiet, with the wait's error.
	noStatus := fakeconn.Fault{Method: output, Reply: true, Edit: fakeconn.Remove("result.exitStatus")}
	t.Run("it is given up", func(t *testing.T) {
		runState(t, func(f *fixture, s *acpterm.State) {
			f.c.Inject(noStatus)
			f.c.Inject(fakeconn.Fault{Method: wait, Error: acp.NewInternalError("no")})
			start := time.Now()
			got, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call", "parts one 20s two 20s three", "/work", 0)
			var re *acp.RequestError
			if !errors.As(err, &re) || got == nil || got.Output != "onetwothree" || got.ExitCode != nil {
				f.Errorf("%+v, %v", got, err)
			}
			if took := time.Since(start); took < time.Minute || took > 2*time.Minute {
				f.Errorf("took %v", took)
			}
			f.count(kill, 1)
			f.count(release, 1)
			if n := f.c.Count(wait); n < 3 || n > 9 {
				f.Errorf("%d waits", n)
			}
		})
	})
	t.Run("a wait that fails for a while", func(t *testing.T) {
		runState(t, func(f *fixture, s *acpterm.State) {
			f.c.Inject(noStatus)
			refused := f.c.Inject(fakeconn.Fault{Method: wait, Error: acp.NewInternalError("no")})
			time.AfterFunc(5*time.Second, refused.Remove)
			got, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call", "after 5m exit 3", "/work", 0)
			if err != nil || got.ExitCode == nil || *got.ExitCode != 3 {
				f.Errorf("%+v, %v", got, err)
			}
		})
	})
	t.Run("the client's outputs are known to tell", func(t *testing.T) {
		runState(t, func(f *fixture, s *acpterm.State) {
			if _, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call 1", "true", "/work", 0); err != nil {
				f.Fatal(err)
			}
			f.c.Inject(fakeconn.Fault{Method: wait, Error: acp.NewInternalError("no")})
			got, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call 2", "after 1h exit 3", "/work", 0)
			if err != nil || got.ExitCode == nil || *got.ExitCode != 3 {
				f.Errorf("%+v, %v", got, err)
			}
		})
	})
}

func TestBackgroundOutputBelievesItsOwnReply(t *testing.T) {
	// Also before it is known otherwise, and if the reply does not tell how.
	for name, test := range map[string]struct {
		status any
		code   *int
	}{
		"a code":   {map[string]any{"exitCode": 3}, new(3)},
		"a signal": {map[string]any{"exitCode": nil, "signal": "SIGTERM"}, nil},
		"no how":   {map[string]any{"exitCode": nil, "signal": nil}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			runState(t, func(f *fixture, s *acpterm.State) {
				f.c.Inject(fakeconn.Fault{Method: wait, Drop: true})
				id := f.background(s, "hold text", "call 1")
				time.Sleep(10 * time.Minute)
				f.c.Inject(fakeconn.Fault{Method: output, Reply: true, Edit: fakeconn.Set("result.exitStatus", test.status)})
				start := time.Now()
				output, running, code, err := s.BackgroundOutput(f.Context(), f.c.Conn(), string(f.session), id)
				if diff := cmp.Diff(test.code, code); output != "text" || running || diff != "" || err != nil {
					f.Errorf("%q, running %v, code %v, %v", output, running, code, err)
				}
				f.within(start, time.Second, "the call")
				time.Sleep(time.Minute) // what is said without a how is watched for a while
			})
		})
	}
}

func TestKillBackgroundOfAClientThatTellsNoHow(t *testing.T) {
	// It has said that the command ended, and not how: that is no error.
	for name, faults := range map[string][]fakeconn.Fault{
		"by the wait": {
			{Method: wait, Reply: true, Result: map[string]any{}},
			{Method: output, Reply: true, Edit: fakeconn.Remove("result.exitStatus")},
		},
		"by the output": {
			{Method: wait, Reply: true, Drop: true},
			{Method: output, Reply: true, Match: func(l fakeconn.Line) bool { return strings.Contains(l.Raw, "exitStatus") },
				Edit: fakeconn.Set("result.exitStatus", map[string]any{"exitCode": nil, "signal": nil})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			runState(t, func(f *fixture, s *acpterm.State) {
				for _, fault := range faults {
					f.c.Inject(fault)
				}
				id := f.background(s, "hold text", "call 1")
				output, code, err := s.KillBackground(f.Context(), f.c.Conn(), string(f.session), id)
				if output != "text" || code != nil || err != nil {
					f.Errorf("%q, %v, %v", output, code, err)
				}
			})
		})
	}
}

// A wrapper is a connection that a caller makes for one call, and that cannot be
// compared.
type wrapper struct {
	*acp.AgentSideConnection
	notes []string
	count func(method string)
}

func (w wrapper) CreateTerminal(ctx context.Context, p acp.CreateTerminalRequest) (acp.CreateTerminalResponse, error) {
	w.count(create)
	return w.AgentSideConnection.CreateTerminal(ctx, p)
}

func (w wrapper) SessionUpdate(ctx context.Context, p acp.SessionNotification) error {
	w.count("session/update")
	return w.AgentSideConnection.SessionUpdate(ctx, p)
}

func (w wrapper) TerminalOutput(ctx context.Context, p acp.TerminalOutputRequest) (acp.TerminalOutputResponse, error) {
	w.count(output)
	return w.AgentSideConnection.TerminalOutput(ctx, p)
}

func (w wrapper) KillTerminal(ctx context.Context, p acp.KillTerminalRequest) (acp.KillTerminalResponse, error) {
	w.count(kill)
	return w.AgentSideConnection.KillTerminal(ctx, p)
}

func (w wrapper) ReleaseTerminal(ctx context.Context, p acp.ReleaseTerminalRequest) (acp.ReleaseTerminalResponse, error) {
	w.count(release)
	return w.AgentSideConnection.ReleaseTerminal(ctx, p)
}

func TestEachCallHasItsOwnConn(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		var mu sync.Mutex
		got := map[string]int{} // guarded by mu
		conn := func(call string) acpterm.Conn {
			return wrapper{f.c.Conn(), []string{"not", "comparable"}, func(method string) {
				mu.Lock()
				defer mu.Unlock()
				got[call+": "+method]++
			}}
		}
		session := string(f.session)
		if _, err := s.Exec(f.Context(), conn("exec"), session, "call 1", "true", "/work", 0); err != nil {
			f.Fatal(err)
		}
		var ids []string
		for _, call := range []string{"call 2", "call 3", "call 4"} {
			id, err := s.StartBackground(f.Context(), conn("start"), session, "hold text", "/work", call)
			if err != nil {
				f.Fatal(err)
			}
			ids = append(ids, id)
		}
		time.Sleep(time.Hour)
		mu.Lock()
		clear(got)
		mu.Unlock()
		if _, _, _, err := s.BackgroundOutput(f.Context(), conn("output"), session, ids[0]); err != nil {
			f.Error(err)
		}
		if _, _, err := s.KillBackground(f.Context(), conn("kill"), session, ids[1]); err != nil {
			f.Error(err)
		}
		s.CleanupBackground(f.Context(), conn("cleanup"), session)
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{"output: " + output, "kill: " + kill, "kill: " + release, "cleanup: " + kill, "cleanup: " + release} {
			if got[want] == 0 {
				f.Errorf("no %s; %v", want, got)
			}
		}
		if got["output: "+kill] > 0 || got["start: "+kill] > 0 || got["start: "+release] > 0 {
			f.Errorf("a request went through the conn of an earlier call: %v", got)
		}
	})
}

func TestAWrapperThatCannotTellTheEnd(t *testing.T) {
	// The connection of the former call still tells it.
	runState(t, func(f *fixture, s *acpterm.State) {
		id := f.background(s, "hold text", "call 1")
		conn := struct{ acpterm.Conn }{f.c.Conn()}
		if _, running, _, err := s.BackgroundOutput(f.Context(), conn, string(f.session), id); !running || err != nil {
			f.Errorf("running %v, %v", running, err)
		}
		f.c.Disconnect()
		synctest.Wait()
		if _, running, _, err := s.BackgroundOutput(f.Context(), conn, string(f.session), id); running || !errors.Is(err, terminal.ErrConnectionLost) {
			f.Errorf("running %v, %v", running, err)
		}
	})
}

func TestStateOptions(t *testing.T) {
	runState(t, func(f *fixture, _ *acpterm.State) {
		s := acpterm.StateOptions{
			Shell: "bash", Profile: acpterm.Profile{Form: acpterm.FormExec}, MaxBackground: 1,
		}.NewState()
		session := string(f.session)
		s.Exec(f.Context(), f.c.Conn(), session, "call 1", "echo hi", "/work", 0) // there is no bash here
		lines := f.c.Lines()
		for _, l := range lines {
			if l.Method == create && l.Kind == fakeconn.Request && !strings.Contains(l.Raw, `"args":["-c","echo hi"],"command":"bash"`) {
				f.Errorf("sent %s", l.Raw)
			}
		}
		f.count(create, 1)
		s = acpterm.StateOptions{MaxBackground: 1}.NewState()
		f.background(s, "hold text", "call 2")
		if _, err := s.StartBackground(f.Context(), f.c.Conn(), session, "true", "/work", "call 3"); !errors.Is(err, terminal.ErrTooMany) {
			f.Errorf("a second one: %v", err)
		}
		s.CleanupBackground(f.Context(), f.c.Conn(), session)
	})
}

func TestCreateWaitsForTheUser(t *testing.T) {
	// A client may ask first: the caller's ctx and an option decide how long.
	for _, test := range []struct {
		name    string
		options acpterm.StateOptions
		ask     time.Duration
		ctx     time.Duration
		ok      bool
		within  time.Duration
	}{
		{"four minutes", acpterm.StateOptions{}, 4 * time.Minute, 0, true, 5 * time.Minute},
		{"six minutes", acpterm.StateOptions{}, 6 * time.Minute, 0, false, 5 * time.Minute},
		{"six minutes, and no bound", acpterm.StateOptions{CreateTimeout: -1}, 6 * time.Minute, 0, true, 7 * time.Minute},
		{"an hour, and the ctx", acpterm.StateOptions{CreateTimeout: -1}, time.Hour, time.Minute, false, time.Minute},
		{"an option", acpterm.StateOptions{CreateTimeout: time.Second}, time.Minute, 0, false, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			runState(t, func(f *fixture, _ *acpterm.State) {
				f.c.Inject(fakeconn.Fault{Method: create, Delay: test.ask})
				ctx := f.Context()
				if test.ctx > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.ctx)
					defer cancel()
				}
				start := time.Now()
				_, err := test.options.NewState().Exec(ctx, f.c.Conn(), string(f.session), "call", "true", "/work", 0)
				if (err == nil) != test.ok {
					f.Errorf("%v", err)
				}
				f.within(start, test.within, "Exec")
				time.Sleep(2 * time.Hour)
				f.count(release, 1)
			})
		})
	}
}

func TestATimeoutWithoutEnd(t *testing.T) {
	runState(t, func(f *fixture, s *acpterm.State) {
		for _, timeout := range []int{math.MaxInt, 9223372036, 9223372037, -1, math.MinInt} {
			got, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call", "after 1h exit 3", "/work", timeout)
			if err != nil || got.ExitCode == nil || *got.ExitCode != 3 {
				f.Errorf("%d: %+v, %v", timeout, got, err)
			}
		}
	})
}

func TestCleanupWaitsForReleases(t *testing.T) {
	// Of commands that have just ended as well, and within bounds.
	for name, background := range map[string]bool{"CleanupPending": false, "CleanupBackground": true} {
		t.Run(name, func(t *testing.T) {
			runState(t, func(f *fixture, s *acpterm.State) {
				clean := s.CleanupPending
				if background {
					clean = s.CleanupBackground
				}
				run := func(line string) {
					if background {
						f.background(s, line, "call 1")
					} else if _, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call 1", line, "/work", 0); err != nil {
						f.Fatal(err)
					}
					time.Sleep(time.Second / 10) // the release is sent
				}
				slow := f.c.Inject(fakeconn.Fault{Method: release, Reply: true, Delay: 1500 * time.Millisecond})
				run("true")
				start := time.Now()
				clean(f.Context(), f.c.Conn(), string(f.session))
				if took := time.Since(start); took < time.Second {
					f.Errorf("it took %v, and the release 1.5 s", took)
				}
				f.count(release, 1)
				slow.Remove()
				f.c.Inject(fakeconn.Fault{Method: release, Drop: true})
				run("true")
				start = time.Now()
				clean(f.Context(), f.c.Conn(), string(f.session))
				f.within(start, 2*limits.ReleaseTimeout, "a cleanup without an answer")
				f.count(release, 3)
			})
		})
	}
}
