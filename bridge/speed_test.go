package bridge_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A foreground command over a link costs round trips for its create, its exit and
// its output: at most 3 R + T where the profile says that the output is complete at
// the exit, else another read 50 ms later. Nothing else is on the path: not the
// release, and not the updates.
func TestForegroundRoundTrips(t *testing.T) {
	t.Parallel()
	for _, complete := range []bool{true, false} {
		for _, trip := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond, time.Second} {
			for _, runs := range []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second} {
				for _, slow := range []bool{false, true} {
					name := fmt.Sprintf("complete=%v/R=%v/T=%v/slow=%v", complete, trip, runs, slow)
					t.Run(name, func(t *testing.T) {
						k := kind{bridge.PresentClient, fakeconn.Options{Latency: trip / 2}}
						o := &bridge.Options{Profiles: acpterm.Profiles{{Name: "*", Profile: acpterm.Profile{CompleteAtExit: complete}}}}
						var took time.Duration
						in(t, k, o, func(w *world) {
							if slow {
								w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalRelease, Reply: true, Delay: time.Second / 2})
								w.c.Inject(fakeconn.Fault{Method: acp.ClientMethodSessionUpdate, Drop: true})
							}
							w.must(acp.StopReasonEndTurn, func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
								call := t.ToolCall(card("1"))
								start := time.Now()
								r, err := call.Exec(ctx, terminal.Command{Args: []string{"sleep", runs.String()}})
								took = time.Since(start)
								if err != nil || !r.Exit.Success() {
									w.Errorf("%+v, %v", r, err)
								}
								call.End("", err)
								return done, nil
							})
						})
						// The exit is told to a request that is sent when the create
						// is answered, half a round trip after the command started:
						// it costs what is longer. A read that was under way may
						// save the next one.
						want := trip + max(runs, trip) + trip
						if !complete {
							want += 50*time.Millisecond + trip
						}
						if took > want {
							t.Errorf("it took %v, want at most %v", took, want)
						}
					})
				}
			}
		}
	}
}

// What a thousand live terminals in the client cost when nobody reads them.
func TestAThousandTerminals(t *testing.T) {
	for _, sessions := range []int{20, 1} {
		if sessions == 1 && !*full {
			continue
		}
		t.Run(fmt.Sprintf("sessions=%d", sessions), func(t *testing.T) { thousand(t, sessions) })
	}
}

func thousand(t *testing.T, sessions int) {
	const n, watched = 1000, 2 * time.Minute
	before := memory()
	synctest.Test(t, func(t *testing.T) {
		counts := map[int64]int{} // terminal/output by the second
		var mu sync.Mutex
		start := time.Now()
		c := fakeconn.New(&fakeconn.Options{Keep: -1, Memterm: &memterm.Options{MaxTerminals: n}})
		c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalOutput, Match: func(fakeconn.Line) bool {
			mu.Lock()
			defer mu.Unlock()
			counts[int64(time.Since(start)/time.Second)]++
			return false
		}})
		b := bridge.New(c.Conn(), c.Init(), &bridge.Options{MaxTerminals: n, MaxBackground: n})
		for i := range n {
			s, err := b.Session(acp.SessionId(fmt.Sprint("s", i%sessions)), "/work")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Manager().Start(t.Context(), terminal.Command{Args: []string{"lines", "1000", "10s"}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(watched)
		mu.Lock()
		total, most := 0, 0
		for _, n := range counts {
			total += n
			most = max(most, n)
		}
		mu.Unlock()
		rate := float64(total) / watched.Seconds()
		used := memory() - before
		t.Logf("%d live terminals for %v: %.1f terminal/output a second, at most %d in one; %d MiB, the client's and the commands' own included",
			n, watched, rate, most, used>>20)
		if rate > 40 || most > 40 {
			t.Errorf("%.1f terminal/output a second, %d in one; want at most 40", rate, most)
		}
		if used > 100<<20 {
			t.Errorf("%d MiB, want at most 100", used>>20)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// memory returns what the process uses.
func memory() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// A session whose client never answers its create changes nothing for another
// one: each of its updates and requests is sent at the same time.
func TestSessionsAreIndependent(t *testing.T) {
	t.Parallel()
	alone, beside := timing(t, false), timing(t, true)
	if diff := cmp.Diff(alone, beside); len(alone) == 0 || diff != "" {
		t.Errorf("beside a session that hangs it is another one (-alone +beside):\n%s", diff)
	}
}

// timing returns what a session sends, and when, perhaps beside one that hangs.
func timing(t *testing.T, hangs bool) []string {
	var sent []string
	synctest.Test(t, func(t *testing.T) {
		c := fakeconn.New(&fakeconn.Options{Latency: 10 * time.Millisecond})
		b := bridge.New(c.Conn(), c.Init(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		run := func(name acp.SessionId, n int) {
			s, err := b.Session(name, "/work")
			if err != nil {
				t.Error(err)
				return
			}
			s.Turn(ctx, func(ctx context.Context, turn *bridge.Turn) (acp.PromptResponse, error) {
				var calls sync.WaitGroup
				for i := range n {
					calls.Go(func() {
						call := turn.ToolCall(card(acp.ToolCallId(fmt.Sprint(name, i))))
						_, err := call.Exec(ctx, line("lines 3 1s"))
						call.End("", err)
					})
				}
				calls.Wait()
				return done, nil
			})
		}
		c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, Session: "hangs", Drop: true})
		if hangs {
			all.Go(func() { run("hangs", 10) })
			synctest.Wait()
		}
		start := time.Now()
		for range 3 {
			run("runs", 1)
			time.Sleep(time.Second)
		}
		for _, l := range c.Lines() {
			if l.Session == "runs" {
				sent = append(sent, fmt.Sprintf("%9d µs %s %s %s", l.Time.Sub(start).Microseconds(), l.From, l.Kind, l.Method))
			}
		}
		slices.Sort(sent) // what is sent at one instant has no order
		cancel()
		all.Wait()
		b.Close() // reports the creates that were never answered
		c.Close()
	})
	return sent
}
