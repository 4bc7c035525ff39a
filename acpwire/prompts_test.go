package acpwire_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/acpwire"
	"github.com/termbridge/termbridge/internal/limits"
)

const (
	ended     = string(acp.StopReasonEndTurn)
	cancelled = string(acp.StopReasonCancelled)
)

// A cancel applies to the prompts of its session that came before it and are not
// answered, and to nothing else, whatever the agent's Cancel does meanwhile.
func TestCancel(t *testing.T) {
	const work = 20 * time.Millisecond
	tests := []struct {
		name    string
		play    func(w *wire)
		want    map[string]string
		cancels int // calls of the agent's Cancel
	}{
		{"right behind its prompt", func(w *wire) {
			w.send(prompt("1", "s", "wait 1h"), cancel("s"))
		}, map[string]string{"1": cancelled}, 1},
		{"a moment later", func(w *wire) {
			w.send(prompt("1", "s", "wait 1h"))
			time.Sleep(time.Second)
			w.send(cancel("s"))
		}, map[string]string{"1": cancelled}, 1},
		{"nothing is open", func(w *wire) {
			w.send(cancel("s"), prompt("1", "s", "wait 1s"))
		}, map[string]string{"1": ended}, 1},
		{"the prompt is answered", func(w *wire) {
			w.send(prompt("1", "s", "wait 1s"))
			time.Sleep(time.Second + time.Millisecond)
			w.send(cancel("s"))
			time.Sleep(50 * time.Millisecond)
			w.send(prompt("2", "s", "wait 1s"))
		}, map[string]string{"1": ended, "2": ended}, 1},
		{"the next prompt is in the same write", func(w *wire) {
			w.send(prompt("1", "s", "wait 1h"))
			time.Sleep(time.Second)
			w.send(cancel("s"), prompt("2", "s", "wait 1s"))
		}, map[string]string{"1": cancelled, "2": ended}, 1},
		{"all is in the same write", func(w *wire) {
			w.send(prompt("1", "s", "wait 1h"), cancel("s"), prompt("2", "s", "wait 1s"))
		}, map[string]string{"1": cancelled, "2": ended}, 1},
		{"twice", func(w *wire) {
			w.send(prompt("1", "s", "wait 1h"))
			time.Sleep(time.Second)
			w.send(cancel("s"))
			time.Sleep(time.Millisecond)
			w.send(cancel("s"))
			time.Sleep(time.Millisecond)
			w.send(prompt("2", "s", "wait 1s"))
		}, map[string]string{"1": cancelled, "2": ended}, 2},
		{"twice, and the second is late", func(w *wire) {
			w.send(prompt("1", "s", "wait 1h"))
			time.Sleep(time.Second)
			w.send(cancel("s"))
			time.Sleep(time.Second)
			w.send(cancel("s"), prompt("2", "s", "wait 1s"))
		}, map[string]string{"1": cancelled, "2": ended}, 2},
		{"both prompts", func(w *wire) {
			w.send(prompt("1", "s", "ignore 2s"), prompt("2", "s", "wait 1h"), cancel("s"), prompt("3", "s", "wait 1s"))
		}, map[string]string{"1": cancelled, "2": cancelled, "3": ended}, 1},
		{"another session", func(w *wire) {
			w.send(prompt("1", "s", "wait 1s"), prompt("2", "other", "wait 1h"), cancel("other"), cancel("nobody"), prompt("3", "other", "wait 1s"))
		}, map[string]string{"1": ended, "2": cancelled, "3": ended}, 2},
		{"an agent that takes no note", func(w *wire) {
			w.send(prompt("1", "s", "ignore 10s"), cancel("s"))
		}, map[string]string{"1": cancelled}, 1},
		{"as a request", func(w *wire) {
			w.send(prompt("1", "s", "wait 1h"), `{"jsonrpc":"2.0","id":"c","method":"session/cancel","params":{"sessionId":"s"}}`)
		}, map[string]string{"1": cancelled, `"c"`: ""}, 1},
		{"by the id of the prompt", func(w *wire) {
			w.send(prompt("1", "s", "wait 1s"), prompt(`"x\u0061"`, "other", "wait 1h"), prompt("3", "third", "wait 1s"),
				`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"xa"}}`,
				`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":4}}`)
		}, map[string]string{"1": ended, `"x\u0061"`: cancelled, "3": ended}, 0},
		{"with members that do not belong", func(w *wire) {
			w.send(prompt("1", "s", "wait 1h"), `{"jsonrpc":"2.0","method":"session/cancel","params":{"_meta":[],"sessionId":"s","x":{}}}`)
		}, map[string]string{"1": cancelled}, 1},
	}
	for _, test := range tests {
		for _, takes := range []time.Duration{0, work} { // Cancel, before it cancels anything
			t.Run(fmt.Sprint(test.name, "/", takes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := connect(t, nil)
					w.agent.onCancel = func(acp.SessionId) { time.Sleep(takes) }
					test.play(w)
					if diff := cmp.Diff(test.want, w.answers(len(test.want))); diff != "" {
						t.Errorf("(-want +got)\n%s", diff)
					}
					w.quiet()
					if n := w.agent.cancelled(); n != test.cancels {
						t.Errorf("Cancel was called %d times, want %d", n, test.cancels)
					}
				})
			})
		}
	}
}

// Of any number of prompts the newest wins, however close they are.
func TestNewestPromptWins(t *testing.T) {
	for _, apart := range []time.Duration{0, 600 * time.Millisecond} {
		for _, n := range []int{2, 3, 4, 9} {
			t.Run(fmt.Sprint(n, " ", apart), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := connect(t, nil)
					want := map[string]string{}
					var lines []string
					for i := range n {
						id := fmt.Sprint(i)
						lines = append(lines, prompt(id, "s", "wait 3s"))
						want[id] = cancelled
					}
					want[fmt.Sprint(n-1)] = ended
					if apart == 0 {
						w.send(lines...)
					}
					for i := 0; apart > 0 && i < n; i++ {
						w.send(lines[i])
						time.Sleep(apart)
					}
					if diff := cmp.Diff(want, w.answers(n)); diff != "" {
						t.Errorf("(-want +got)\n%s", diff)
					}
					if seen := len(w.agent.seen()); seen != n {
						t.Errorf("the agent has seen %d prompts of %d", seen, n)
					}
				})
			})
		}
	}
}

// A prompt waits for a Cancel that came before it, but not for ever, and not for
// one of another session.
func TestCancelThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log locked
		w := connect(t, options(&log))
		never := make(chan struct{})
		defer close(never)
		w.agent.onCancel = func(s acp.SessionId) {
			if s == "s" {
				<-never
			}
		}
		start := time.Now()
		w.send(cancel("s"), cancel("other"), prompt("1", "other", "wait 1ms"), prompt("2", "s", "wait 1ms"))
		w.answers(1)
		if took := time.Since(start); took > time.Second {
			t.Errorf("a prompt of another session waits for %v", took)
		}
		if got := w.answers(1)["2"]; got != ended {
			t.Errorf("the prompt is answered %s", got)
		}
		if took := time.Since(start); took != limits.SettleTimeout+time.Millisecond {
			t.Errorf("the prompt is answered after %v", took)
		}
		time.Sleep(time.Second)
		if !strings.Contains(log.String(), "Cancel does not return") {
			t.Errorf("the log:\n%s", log.String())
		}
	})
}

// The agent may ask the client something in its Cancel.
func TestCancelMaySendRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t, nil)
		asked := make(chan error, 1)
		w.agent.onCancel = func(acp.SessionId) {
			_, err := w.conn.ReleaseTerminal(t.Context(), acp.ReleaseTerminalRequest{SessionId: "s", TerminalId: "1"})
			asked <- err
		}
		w.send(cancel("s"))
		request := w.line()
		w.send(strings.Replace(request[:strings.Index(request, `,"method"`)], "}", "", 1) + `,"result":{}}`)
		start := time.Now()
		if err := <-asked; err != nil || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A flood of cancels is a few calls of a slow Cancel.
func TestCancelFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t, nil)
		w.agent.onCancel = func(acp.SessionId) { time.Sleep(time.Second) }
		lines := []string{prompt("1", "s", "wait 1h")}
		for range 5000 {
			lines = append(lines, cancel("s"))
		}
		w.send(append(lines, prompt("2", "s", "wait 1s"))...)
		if diff := cmp.Diff(map[string]string{"1": cancelled, "2": ended}, w.answers(2)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if n := w.agent.cancelled(); n > 2 {
			t.Errorf("Cancel was called %d times", n)
		}

		// But one behind another prompt is not for the same.
		before := w.agent.cancelled()
		w.send(cancel("t"))
		time.Sleep(time.Millisecond)
		w.send(cancel("t"), prompt("3", "t", "wait 1h"), cancel("t"), cancel("t"))
		w.answers(1)
		time.Sleep(time.Minute)
		if n := w.agent.cancelled() - before; n != 3 {
			t.Errorf("Cancel was called %d times, want 3", n)
		}
	})
}

// The context of a prompt ends with its answer, and what was kept of its session
// is dropped.
func TestNothingIsKeptOfPrompts(t *testing.T) {
	w := connect(t, nil)
	var before, after runtime.MemStats
	const n = 5000
	for round := range 3 {
		for i := range n {
			session := fmt.Sprint("session ", round, " ", i)
			w.send(prompt(fmt.Sprint(i), session, "wait 0s"), cancel(session))
			w.answers(1)
		}
		w.agent.forget()
		if round == 0 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int(after.HeapAlloc) - int(before.HeapAlloc); grown > 100*2*n {
		t.Errorf("%d bytes are kept of each prompt", grown/(2*n))
	}
}

// What a prompt asks wrongly is the SDK's error, and it is answered once.
func TestBadPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t, nil)
		w.send(
			`{"jsonrpc":"2.0","id":1,"method":"session/prompt"}`,
			`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":{},"prompt":[]}}`,
			`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s"}}`,
			`{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":{}}]}}`,
			`{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":[]}`,
			`{"jsonrpc":"2.0","method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"wait 1h"}]}}`,
			`{"jsonrpc":"2.0","id":null,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"wait 1h"}]}}`,
			`{"jsonrpc":"2.0","id":6,"method":"session/cancel","params":{"sessionId":[]}}`,
			prompt("7", "s", "wait no"),
		)
		want := map[string]string{"1": "-32602", "2": "-32602", "3": "-32602", "4": "-32602", "5": "-32602", "6": "-32602", "7": "-32603"}
		if diff := cmp.Diff(want, w.answers(len(want))); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		w.quiet()
	})
}

// A panic of the agent's own code is the error of what it was called for. The
// connection goes on.
func TestAgentPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t, &acpwire.Options{Initialize: func(*acp.AgentSideConnection, acp.InitializeRequest) error { panic("in a hook") }})
		w.agent.onCancel = func(acp.SessionId) { panic("in a cancel") }
		w.send(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`,
			prompt("2", "s", "panic now"), cancel("s"),
			`{"jsonrpc":"2.0","method":"_test/panic","params":{}}`,
		)
		want := map[string]string{"1": "-32603", "2": "-32603"}
		if diff := cmp.Diff(want, w.answers(len(want))); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		w.send(prompt("3", "s", "wait 1s"))
		if diff := cmp.Diff(map[string]string{"3": "end_turn"}, w.answers(1)); diff != "" {
			t.Errorf("after the panics: (-want +got)\n%s", diff)
		}
		w.quiet()
	})
}

// The prompts of a connection that ends have a context that says so.
func TestPromptsEndWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := connect(t, nil)
		w.send(prompt("1", "s", "wait 1h"))
		time.Sleep(time.Second)
		w.in.Close()
		if got := w.answers(1)["1"]; got != cancelled {
			t.Errorf("the prompt is answered %s", got)
		}
	})
}

// Prompts, cancels and answers in any order and at any distance: what the rules
// of the package say of each prompt is how it is answered.
func TestPromptsAtRandom(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := connect(t, nil)
			w.agent.onCancel = func(acp.SessionId) { time.Sleep(time.Duration(seed%3) * time.Millisecond) }
			// What is known of the prompts that are not answered yet: when they are.
			type open struct {
				session string
				ends    time.Time
			}
			live := map[string]open{}
			want := map[string]string{}
			settle := func() {
				maps.DeleteFunc(live, func(id string, o open) bool {
					if !o.ends.After(time.Now()) {
						want[id] = ended
						return true
					}
					return false
				})
			}
			end := func(session string) {
				maps.DeleteFunc(live, func(id string, o open) bool {
					if o.session == session {
						want[id] = cancelled
					}
					return o.session == session
				})
			}
			var batch []string
			for i := range 60 {
				session := fmt.Sprint("s", r.IntN(3))
				settle()
				if r.IntN(3) == 0 {
					end(session)
					batch = append(batch, cancel(session))
				} else {
					end(session)
					// No two events at the same time, nor while a Cancel takes its time.
					d := time.Duration(r.IntN(40))*10*time.Millisecond + 5*time.Millisecond
					id := fmt.Sprint(i)
					live[id] = open{session, time.Now().Add(d + 2*time.Millisecond)}
					batch = append(batch, prompt(id, session, "wait "+d.String()))
				}
				if r.IntN(2) == 0 {
					w.send(batch...)
					batch = nil
					time.Sleep(time.Duration(r.IntN(4)) * 100 * time.Millisecond)
				}
			}
			w.send(append(batch, cancel("nobody"))...)
			time.Sleep(time.Hour)
			settle()
			got := w.answers(len(want))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("seed %d: (-want +got)\n%s", seed, diff)
			}
			if n := len(slices.Collect(maps.Keys(want))); n != len(w.agent.seen()) {
				t.Errorf("seed %d: the agent has seen %d prompts of %d", seed, len(w.agent.seen()), n)
			}
		})
		if t.Failed() {
			return
		}
	}
}
