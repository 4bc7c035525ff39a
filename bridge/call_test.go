package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// The first visible byte reaches the user within 300 ms of being printed.
func TestFirstVisibleByte(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		start := time.Now()
		w.run("1", line("after 1s print hello\\n"))
		printed := start.Add(time.Second)
		card := w.c.Card("1")
		if card.FirstVisible.Before(printed) {
			w.Errorf("nothing became visible: %q", card.Visible())
		}
		atMost(w, "the way to the user", card.FirstVisible.Sub(printed), 300*time.Millisecond)
		contains(w, "what the user sees", card.Visible(), "hello")
	})
}

// The user sees output while the command runs, not at its end.
func TestOutputIsLive(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			go func() {
				time.Sleep(3500 * time.Millisecond)
				seen := w.c.Card("1").Visible()
				contains(w, "what the user sees after 3.5 s", seen, "line 3")
				if strings.Contains(seen, "line 5") {
					w.Errorf("the user sees the future: %q", seen)
				}
			}()
			r, err := call.Exec(ctx, line("lines 10 1s"))
			call.End("", err)
			check(w, "the output", r.Output, "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\nline 8\nline 9\nline 10\n")
			return done, nil
		})
		check(w, "the status", w.c.Card("1").Status, acp.ToolCallStatusCompleted)
	})
}

// A command ends, then its tool call does: the terminal stays in the card, or
// the text does, and there is one final status, completed for exit 0 only.
func TestExecEndsThenToolEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line    string
		outcome terminal.Outcome
		status  acp.ToolCallStatus
	}{
		{"echo hello", terminal.Exited, acp.ToolCallStatusCompleted},
		{"fail 'hello\\n'", terminal.Exited, acp.ToolCallStatusFailed},
		{"signal SIGKILL", terminal.Signalled, acp.ToolCallStatusFailed},
	} {
		each(t, func(w *world, k kind) {
			r, end, err := w.run("1", line(c.line))
			if err != nil {
				w.Fatal(err)
			}
			check(w, "the outcome", r.Outcome, c.outcome)
			check(w, "the presentation", r.Presentation, k.presentation)
			check(w, "the client has the terminal", r.TerminalID != "", k.presentation == bridge.PresentClient)
			check(w, "the status", end.Status, c.status)
			check(w, "content was omitted", end.Content == nil, k.presentation != bridge.PresentText || c.outcome == terminal.Signalled)
			seen := w.c.Card("1")
			check(w, "the user's status", seen.Status, c.status)
			if c.outcome == terminal.Exited {
				contains(w, "what the user sees", seen.Visible(), "hello")
				check(w, "the output", r.Output, "hello\n")
			}
			check(w, "terminals in the card", len(seen.Terminals), map[bool]int{true: 0, false: 1}[k.presentation == bridge.PresentText])
		})
	}
}

// A client's terminal that ended by a signal with no code is no success.
func TestNullExitWithSignal(t *testing.T) {
	t.Parallel()
	in(t, client, nil, func(w *world) {
		w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalWaitForExit, Reply: true, Result: map[string]any{"exitCode": nil, "signal": "Killed"}})
		r, end, err := w.run("1", line("sleep 1s"))
		if err != nil {
			w.Fatal(err)
		}
		check(w, "the outcome", r.Outcome, terminal.Signalled)
		check(w, "the signal", r.Exit.Signal, "SIGKILL")
		check(w, "the status", end.Status, acp.ToolCallStatusFailed)
	})
}

// A timeout is a value, and keeps what was printed before.
func TestTimeoutWithPartialOutput(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		start := time.Now()
		r, end, err := w.run("1", terminal.Command{Line: "lines 100 1s", Timeout: 2500 * time.Millisecond})
		if err != nil {
			w.Fatal(err)
		}
		check(w, "the outcome", r.Outcome, terminal.TimedOut)
		check(w, "the output", r.Output, "line 1\nline 2\nline 3\n")
		check(w, "the status", end.Status, acp.ToolCallStatusFailed)
		atMost(w, "the timeout", time.Since(start), 6*time.Second)
		contains(w, "what the user sees", w.c.Card("1").Visible(), "line 3")
	})
}

// A context that has ended sends nothing, not even the card.
func TestCancelledContextSendsNothing(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		before := len(w.c.Lines())
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			ended, cancel := context.WithCancelCause(ctx)
			cause := errors.New("no longer wanted")
			cancel(cause)
			if _, err := call.Exec(ended, line("echo x")); !errors.Is(err, cause) {
				w.Errorf("Exec: %v, want the cause", err)
			}
			if _, err := call.StartBackground(ended, line("echo x")); !errors.Is(err, cause) {
				w.Errorf("StartBackground: %v, want the cause", err)
			}
			check(w, "lines sent", len(w.c.Lines())-before, 1) // the prompt
			return done, nil
		})
		check(w, "starts", w.starts("echo"), 0)
	})
}

// The end of Exec's own context stops the command, and leaves a result.
func TestExecContextEnds(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
			defer cancel()
			r, err := call.Exec(ctx, line("lines 100 1s"))
			if !errors.Is(err, context.DeadlineExceeded) || r == nil {
				w.Fatalf("Exec: %v, %v", r, err)
			}
			check(w, "the outcome", r.Outcome, terminal.Stopped)
			check(w, "the output", r.Output, "line 1\nline 2\n")
			check(w, "the status", call.End("", err).Status, acp.ToolCallStatusFailed)
			return done, nil
		})
	})
}

// A background command outlives its turn when its Call has ended, and is
// stopped with the session.
func TestBackground(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		var term terminal.Terminal
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			var err error
			if term, err = call.StartBackground(ctx, line("lines 1000 1s")); err != nil {
				w.Fatal(err)
			}
			check(w, "the status", call.End("started", nil).Status, acp.ToolCallStatusCompleted)
			return done, nil
		})
		time.Sleep(5 * time.Second)
		check(w, "the outcome", term.Info().Outcome, terminal.Running)
		how, clientID := w.s.Presentation(term.Info().ID)
		check(w, "the presentation", how, k.presentation)
		check(w, "the client has the terminal", clientID != "", k.presentation == bridge.PresentClient)
		seen := w.c.Card("1").Visible()
		if k.presentation == bridge.PresentText {
			contains(w, "what the user sees", seen, "started")
		} else {
			contains(w, "what the user sees", seen, "line 5")
		}
		if got, err := w.s.Get(term.Info().ID); err != nil || got != term {
			w.Errorf("Get: %v, %v", got, err)
		}
		info, err := w.s.Stop(term.Info().ID)
		if err != nil {
			w.Error(err)
		}
		check(w, "the outcome", info.Outcome, terminal.Stopped)
		again, err := w.s.Stop(term.Info().ID)
		if err != nil || again.Ended != info.Ended {
			w.Errorf("the second kill: %v, %v", again, err)
		}
		if _, err := w.s.Stop("nonsense"); !errors.Is(err, terminal.ErrNotFound) {
			w.Errorf("killing nonsense: %v", err)
		}
	})
}

// Ending the Call while Exec runs sends the command to the background.
func TestPromotion(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		var r *bridge.Result
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			check(w, "terminals before", len(call.Terminals()), 0)
			time.AfterFunc(2500*time.Millisecond, func() {
				if ts := call.Terminals(); len(ts) != 1 || ts[0].Info().Outcome != terminal.Running {
					w.Errorf("the terminals are %v", ts)
				}
				check(w, "the status", call.End("goes on", nil).Status, acp.ToolCallStatusCompleted)
			})
			var err error
			if r, err = call.Exec(ctx, line("lines 1000 1s")); err != nil {
				w.Fatal(err)
			}
			return done, nil
		})
		check(w, "the outcome", r.Outcome, terminal.Running)
		contains(w, "the output", r.Output, "line 2\n")
		term, err := w.s.Get(r.ID)
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		check(w, "the outcome", term.Info().Outcome, terminal.Running)
		check(w, "the user's status", w.c.Card("1").Status, acp.ToolCallStatusCompleted)
	})
}

// So many starts at once with room for one: one runs, and no slot is lost.
func TestConcurrentStartsAtCapOne(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			in(t, k, &bridge.Options{MaxBackground: 1}, func(w *world) {
				const n = 5
				w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					var all sync.WaitGroup
					var mu sync.Mutex
					refused := 0
					for i := range n {
						all.Go(func() {
							call := t.ToolCall(card(acp.ToolCallId(fmt.Sprint(i))))
							_, err := call.StartBackground(ctx, line("sleep 1h"))
							call.End("", err)
							mu.Lock()
							defer mu.Unlock()
							if errors.Is(err, terminal.ErrTooMany) {
								refused++
							} else if err != nil {
								w.Error(err)
							}
						})
					}
					all.Wait()
					check(w, "refused", refused, n-1)
					return done, nil
				})
				check(w, "starts", w.starts("sleep"), 1)
				for _, t := range w.s.List() {
					w.s.Stop(t.Info().ID)
				}
				w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
					call := t.ToolCall(card("again"))
					_, err := call.StartBackground(ctx, line("sleep 1h"))
					check(w, "the status", call.End("", err).Status, acp.ToolCallStatusCompleted)
					return done, nil
				})
			})
		})
	}
}

// A Call may run several commands. Each update names only terminals that the
// client still has.
func TestSeveralCommandsInACall(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			for _, l := range []string{"echo one", "echo two"} {
				if _, err := call.Exec(ctx, line(l)); err != nil {
					w.Error(err)
				}
			}
			var both sync.WaitGroup
			for _, l := range []string{"lines 3 1s", "after 1s echo four"} {
				both.Go(func() {
					if _, err := call.Exec(ctx, line(l)); err != nil {
						w.Error(err)
					}
				})
			}
			both.Wait()
			check(w, "the status", call.End("", nil).Status, acp.ToolCallStatusCompleted)
			return done, nil
		})
		seen := w.c.Card("1").Visible()
		for _, want := range []string{"one", "two", "line 3", "four"} {
			contains(w, "what the user sees", seen, want)
		}
	})
}

// End counts once, whoever calls it and however often.
func TestEndOnce(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			call.Exec(ctx, line("echo x"))
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() { check(w, "the status", call.End("", nil).Status, acp.ToolCallStatusCompleted) })
			}
			all.Wait()
			check(w, "the status of a late End", call.End("", errors.New("late")).Status, acp.ToolCallStatusCompleted)
			if err := call.Update(acp.SessionToolCallUpdate{}); !errors.Is(err, terminal.ErrEnded) {
				w.Errorf("Update after End: %v", err)
			}
			if _, err := call.Exec(ctx, line("echo x")); !errors.Is(err, terminal.ErrEnded) {
				w.Errorf("Exec after End: %v", err)
			}
			return done, nil
		})
		check(w, "starts", w.starts("echo"), 1)
	})
}

// The card is held back until something concerns the user; what Update says is
// in it, and RawOutput comes last.
func TestCard(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			time.Sleep(time.Second)
			check(w, "updates", len(w.updates("1")), 0)
			if err := call.Update(acp.SessionToolCallUpdate{Title: new("better"), RawInput: "in", RawOutput: "early"}); err != nil {
				w.Error(err)
			}
			if err := call.Update(acp.SessionToolCallUpdate{RawOutput: "out"}); err != nil {
				w.Error(err)
			}
			check(w, "updates", len(w.updates("1")), 1)
			if err := call.Update(acp.SessionToolCallUpdate{Status: new(acp.ToolCallStatusCompleted)}); err == nil {
				w.Error("a final status was accepted")
			}
			r, err := call.Exec(ctx, line("echo x"))
			if err != nil {
				w.Fatal(err)
			}
			check(w, "the presentation", r.Presentation, k.presentation)
			call.End("", nil)
			return done, nil
		})
		seen := w.c.Card("1")
		check(w, "the title", seen.Title, "better")
		check(w, "the rawInput", seen.RawInput, any("in"))
		check(w, "the rawOutput", seen.RawOutput, any("out"))
		check(w, "the status", seen.Status, acp.ToolCallStatusCompleted)
		for _, u := range w.updates("1")[1:] {
			if raw := u["rawOutput"]; raw != nil && raw != "out" {
				w.Errorf("an update has the rawOutput %v", raw)
			}
		}
	})
}

// A tool call without commands is told like any other.
func TestCallWithoutCommand(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			good, bad := t.ToolCall(card("good")), t.ToolCall(card("bad"))
			check(w, "the status", good.End("fine", nil).Status, acp.ToolCallStatusCompleted)
			check(w, "the status", bad.End("", errors.New("it is broken")).Status, acp.ToolCallStatusFailed)
			if err := t.ToolCall(card("")).Update(acp.SessionToolCallUpdate{}); err == nil {
				w.Error("a tool call without an id was accepted")
			}
			open := t.ToolCall(card("open"))
			if err := t.ToolCall(card("open")).Update(acp.SessionToolCallUpdate{}); err == nil {
				w.Error("two open tool calls with one id were accepted")
			}
			open.End("", nil)
			return done, nil
		})
		check(w, "the text", w.c.Card("good").Text, "fine")
		check(w, "the text", w.c.Card("bad").Text, "it is broken")
	})
}

// A quiet command's card is kept alive, without content.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		r, _, err := w.run("1", line("sleep 100s"))
		if err != nil || r.Duration < 100*time.Second {
			w.Fatal(r, err)
		}
		alive := 0
		for _, u := range w.updates("1") {
			if u["status"] == "in_progress" && u["content"] == nil && u["_meta"] == nil && u["sessionUpdate"] == "tool_call_update" {
				alive++
			}
		}
		check(w, "keep-alives", alive, 3)
	})
}

// Every bad command is an error that says what was wrong, and a failed card.
func TestBadCommands(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		for i, c := range []struct {
			cmd  terminal.Command
			want string
		}{
			{terminal.Command{}, "empty"},
			{terminal.Command{Line: "echo x", Dir: "relative"}, "relative"},
			{terminal.Command{Line: "echo x", Environment: "nowhere"}, "nowhere"},
		} {
			id := acp.ToolCallId(fmt.Sprint(i))
			_, end, err := w.run(id, c.cmd)
			if err == nil {
				w.Errorf("%+v was run", c.cmd)
				continue
			}
			contains(w, "the error", err.Error(), c.want)
			check(w, "the status", end.Status, acp.ToolCallStatusFailed)
			contains(w, "what the user sees", w.c.Card(id).Text, c.want)
		}
		check(w, "starts", w.starts("echo"), 0)
	})
}

// Commands get pagers that do not wait, a terminal, and the session's directory;
// what a command says itself counts.
func TestWhatCommandsGet(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		r, _, err := w.run("1", terminal.Command{Line: "env", Env: map[string]string{"GIT_PAGER": "mine"}})
		if err != nil {
			w.Fatal(err)
		}
		contains(w, "the environment", r.Output, "\nPAGER=cat\n")
		contains(w, "the environment", r.Output, "GIT_PAGER=mine\n")
		term, _ := w.s.Get(r.ID)
		check(w, "TTY", term.Info().Command.TTY, true)
		r, _, err = w.run("2", line("pwd"))
		if err != nil {
			w.Fatal(err)
		}
		check(w, "the directory", r.Output, "/work\n")
	})
	in(t, text, &bridge.Options{Pipes: true}, func(w *world) {
		r, _, err := w.run("1", terminal.Command{Line: "env", Stdin: true})
		if err != nil {
			w.Fatal(err)
		}
		if strings.Contains(r.Output, "PAGER") {
			w.Errorf("a command with input has pagers: %q", r.Output)
		}
		term, _ := w.s.Get(r.ID)
		check(w, "TTY", term.Info().Command.TTY, false)
	})
}

// Results are cut to the end of the output, and say so.
func TestResultLimit(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		r, _, err := w.run("1", terminal.Command{Line: "spam 200000", OutputLimit: 300000})
		if err != nil {
			w.Fatal(err)
		}
		check(w, "truncated", r.Truncated, true)
		check(w, "the length", len(r.Output), limits.DefaultResultLimit)
	})
}

// The local Manager is made once, and only when it is needed.
func TestLocalIsLazy(t *testing.T) {
	t.Parallel()
	made := 0
	o := &bridge.Options{}
	var local *memterm.Manager
	o.Local = func(acp.SessionId) terminal.Manager {
		made++
		local = memterm.New(nil)
		return local
	}
	in(t, client, o, func(w *world) {
		w.run("1", line("echo x"))
		check(w, "made", made, 0)
		for _, id := range []acp.ToolCallId{"2", "3"} {
			r, _, err := w.run(id, terminal.Command{Line: "echo x", Environment: bridge.EnvironmentLocal})
			if err != nil {
				w.Fatal(err)
			}
			check(w, "the presentation", r.Presentation, bridge.PresentText)
		}
		check(w, "made", made, 1)
	})
	if _, err := local.Start(t.Context(), line("echo x")); !errors.Is(err, terminal.ErrClosed) {
		t.Errorf("the local Manager is not closed with the session: %v", err)
	}
}

// A command that runs longer than ExecFor waits goes on in the background, with a
// slot: the Result, the card and the next read agree on that.
func TestExecFor(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		var r *bridge.Result
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("short"))
			r, err := call.ExecFor(ctx, line("lines 2 1s"), time.Minute)
			if err != nil || r.Outcome != terminal.Exited || !r.Exit.Success() {
				w.Errorf("a short command: %+v, %v", r, err)
			}
			call.End("", err)
			return done, nil
		})
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			var err error
			if r, err = call.ExecFor(ctx, line("lines 20 1s"), 2500*time.Millisecond); err != nil {
				w.Fatal(err)
			}
			check(w, "the status", call.End("goes on as "+r.ID, nil).Status, acp.ToolCallStatusCompleted)
			return done, nil
		})
		check(w, "the outcome", r.Outcome, terminal.Running)
		check(w, "the exit", r.Exit.Known(), false)
		contains(w, "the output", r.Output, "line 1\nline 2\n")
		term, err := w.s.Get(r.ID)
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		out, err := term.ReadOutput(w.Context(), r.Cursor, 0)
		if all := r.Output + strings.ReplaceAll(out.Text, "\r", ""); err != nil || !strings.HasPrefix(all, "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n") {
			w.Errorf("what was read: %q and %q, %v", r.Output, out.Text, err)
		}
		if _, err := terminal.Wait(w.Context(), term); err != nil {
			w.Error(err)
		}
		time.Sleep(5 * time.Second)
		seen := w.c.Card("1")
		check(w, "the user's status", seen.Status, acp.ToolCallStatusCompleted)
		for i := range 20 {
			contains(w, "what the user sees", seen.Visible(), fmt.Sprintf("line %d", i+1))
		}
		if k.presentation == bridge.PresentText {
			contains(w, "what the user sees", seen.Visible(), "goes on as "+r.ID)
		}
	})
}

// In whatever order the end of a command, the end of its time in the foreground and
// the end of its Call come: a Result that says that the command goes on is of a
// completed Call, and one that does not agrees with how the command ended.
func TestPromotionAtTheSameTime(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k.presentation), func(t *testing.T) {
			went := 0
			const runs = 220
			in(t, k, nil, func(w *world) {
				for i := range runs {
					w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
						call := t.ToolCall(card(acp.ToolCallId(fmt.Sprint(i))))
						// A client's command counts as ended when its output was read, 50 ms later.
						after := time.Second + time.Duration(i/2%11)*5*time.Millisecond + time.Duration(i%5-2)
						byHand := make(chan struct{})
						if i%2 == 1 {
							time.AfterFunc(after, func() { defer close(byHand); call.End("", nil) })
						} else {
							close(byHand)
						}
						r, err := call.ExecFor(ctx, line("sleep 1s"), after)
						<-byHand
						if err != nil {
							w.Fatal(err)
						}
						status := call.End("", nil).Status
						check(w, "the status", status, acp.ToolCallStatusCompleted)
						switch {
						case r.Outcome == terminal.Running && !r.Exit.Known():
							went++
						case r.Outcome == terminal.Exited && r.Exit.Success():
						default:
							w.Errorf("%v, %v", r.Outcome, r.Exit)
						}
						return done, nil
					})
				}
			})
			t.Logf("%d of %d went on in the background", went, runs)
			if went == 0 || went == runs {
				t.Error("want both")
			}
		})
	}
}

// Without a slot a command stays in the foreground until there is one, or is stopped
// if the option says so.
func TestExecForAtTheLimit(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		in(t, text, &bridge.Options{MaxBackground: 1, StopAtLimit: stop}, func(w *world) {
			w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				first := t.ToolCall(card("1"))
				if _, err := first.StartBackground(ctx, line("sleep 10s")); err != nil {
					w.Fatal(err)
				}
				first.End("", nil)
				call := t.ToolCall(card("2"))
				start := time.Now()
				r, err := call.ExecFor(ctx, line("lines 100 1s"), 2500*time.Millisecond)
				took := time.Since(start).Round(100 * time.Millisecond)
				end := call.End("", err)
				if stop {
					check(w, "the outcome", r.Outcome, terminal.Stopped)
					check(w, "the output", r.Output, "line 1\nline 2\nline 3\n")
					check(w, "the time", took, 2500*time.Millisecond)
					check(w, "the status", end.Status, acp.ToolCallStatusFailed)
					if !errors.Is(err, terminal.ErrTooMany) {
						w.Errorf("the error is %v", err)
					}
					return done, nil
				}
				check(w, "the outcome", r.Outcome, terminal.Running)
				check(w, "the time in whole seconds", took.Truncate(time.Second), 10*time.Second)
				check(w, "the status", end.Status, acp.ToolCallStatusCompleted)
				if err != nil {
					w.Error(err)
				}
				if _, err := t.ToolCall(card("3")).StartBackground(ctx, line("sleep 1s")); !errors.Is(err, terminal.ErrTooMany) {
					w.Errorf("a command that went on has no slot: %v", err)
				}
				return done, nil
			})
		})
	}
}

// A cancel at the very time at which a command is to go on in the background stops
// it, whichever comes first, since its Call is open.
func TestCancelWhenACommandGoesOn(t *testing.T) {
	t.Parallel()
	each(t, func(w *world, k kind) {
		for i := range 20 {
			var r *bridge.Result
			time.AfterFunc(time.Second+time.Duration(i%3-1), w.cancel)
			w.must(acp.StopReasonCancelled, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				call := t.ToolCall(card(acp.ToolCallId(fmt.Sprint(i))))
				r, _ = call.ExecFor(ctx, line("sleep 1h"), time.Second)
				<-ctx.Done()
				return done, nil
			})
			if r == nil || r.Outcome != terminal.Running && r.Outcome != terminal.Cancelled {
				w.Errorf("%+v", r)
			}
			check(w, "live", len(live(w.s.List())), 0)
			check(w, "the status", w.c.Card(acp.ToolCallId(fmt.Sprint(i))).Status, acp.ToolCallStatusFailed)
		}
	})
}

// What a user of text has seen stays when the tool call ends, whatever End is given,
// and in a session that is loaded, too.
func TestEndKeepsWhatWasShown(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		text string
		err  error
		want string
	}{{"", nil, ""}, {"and so on", nil, "and so on"}, {"", errors.New("no good"), "no good"}, {"and so on", errors.New("no good"), "and so on"}} {
		in(t, text, nil, func(w *world) {
			w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				call := t.ToolCall(card("1"))
				if _, err := call.Exec(ctx, line("lines 11 100ms")); err != nil {
					w.Error(err)
				}
				call.End(end.text, end.err)
				record, err := call.Record(ctx)
				if err != nil {
					w.Error(err)
				}
				record.ToolCallID = "again"
				if err := w.s.Replay(ctx, record); err != nil {
					w.Error(err)
				}
				return done, nil
			})
			for _, id := range []acp.ToolCallId{"1", "again"} {
				seen := w.c.Card(id).Visible()
				for i := range 11 {
					contains(w, "what the user sees", seen, fmt.Sprintf("line %d\n", i+1))
				}
				contains(w, "what the user sees", seen, end.want)
				if strings.Count(seen, "line 1\n") != 1 {
					w.Errorf("shown twice: %q", seen)
				}
			}
		})
	}
}

// The last words of a background command are shown at once, and a session that closes
// does not wait for the pace of the text.
func TestLastWordsOfABackgroundCommand(t *testing.T) {
	t.Parallel()
	in(t, text, nil, func(w *world) {
		w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
			call := t.ToolCall(card("1"))
			if _, err := call.StartBackground(ctx, line("lines 3 100ms")); err != nil {
				w.Fatal(err)
			}
			call.End("it runs", nil)
			return done, nil
		})
		time.Sleep(350 * time.Millisecond)
		if err := w.c.Sync(context.Background()); err != nil {
			w.Fatal(err)
		}
		contains(w, "what the user sees", w.c.Card("1").Visible(), "line 3")
	})
}
