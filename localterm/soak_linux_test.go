package localterm_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// full is the length that .ci/run gives the tests that count or last.
var full = flag.Bool("full", false, "run the tests that count or last at full length")

// resources are what commands may use of this process and of the system.
type resources struct {
	files, goroutines, threads, ptys, memory, zombies int
}

func (r resources) String() string {
	return fmt.Sprintf("%d descriptors, %d goroutines, %d threads, %d terminals of the kernel, %d KiB, %d zombies",
		r.files, r.goroutines, r.threads, r.ptys, r.memory>>10, r.zombies)
}

func used(t *testing.T) resources {
	t.Helper()
	return resources{fds(t), runtime.NumGoroutine(), threads(t), ptys(t), inUse(), zombies(t)}
}

// zombies returns how many children of this process nobody has reaped.
func zombies(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	parent := fmt.Sprintf(" %d ", os.Getpid())
	for _, e := range entries {
		stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		if _, rest, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(rest, "Z"+parent) {
			n++
		}
	}
	return n
}

// Thousands of short commands, and then hundreds of live ones at once, leave
// nothing. -full is the full number of them.
func TestSoak(t *testing.T) {
	short, live := 400, 60
	switch {
	case *full:
		short, live = 5000, 500
	case testing.Short():
		t.Skip("starts hundreds of processes")
	}
	need(t, "/proc/self/fd")
	commands := []terminal.Command{
		{Line: "echo out; echo err >&2"},
		{Args: []string{"/bin/true"}, TTY: true},
		{Line: "exit 3", TTY: true, Stdin: true},
		{Line: "read x", Stdin: true, Timeout: 10 * time.Millisecond},
		{Line: "kill -9 $$"},
		{Args: []string{"/no/such/program"}, TTY: true, Stdin: true},
		{Line: "seq 2000", OutputLimit: 1000},
		{Args: []string{"/bin/true"}},
	}
	run := func(m *localterm.Manager, n int, f func(i int)) {
		var wg sync.WaitGroup
		slots := make(chan struct{}, 4)
		for i := range n {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				f(i)
			})
		}
		wg.Wait()
	}
	begin := func(m *localterm.Manager, cmd terminal.Command) terminal.Terminal {
		ctx, cancel := context.WithTimeout(t.Context(), 2*bound)
		defer cancel()
		term, err := m.Start(ctx, cmd)
		if err != nil && cmd.Args[0] != "/no/such/program" {
			t.Error(err)
		}
		return term
	}
	rounds := func(short, live int) (took [2]time.Duration) {
		m := localterm.New(&localterm.Options{MaxTerminals: max(live, 64), Grace: 10 * time.Second})
		began := time.Now()
		run(m, short, func(i int) {
			if term := begin(m, commands[i%len(commands)]); term != nil {
				select {
				case <-term.Done():
				case <-time.After(2 * bound):
					t.Errorf("%s has not ended", term.Info().Command)
				}
			}
		})
		took[0] = time.Since(began)
		began = time.Now()
		run(m, live, func(int) {
			begin(m, terminal.Command{Args: []string{"sleep", "1000"}, TTY: true, Stdin: true})
		})
		if n := len(m.List()); n < live {
			t.Errorf("%d terminals live, want %d", n, live)
		}
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		took[1] = time.Since(began)
		return took
	}
	rounds(40, 10) // what the runtime opens once is open
	before := used(t)
	took := rounds(short, live)
	t.Logf("%d short commands in %v; %d live at once, started and closed in %v", short, took[0], live, took[1])
	t.Logf("before: %v", before)
	for deadline := time.Now().Add(bound); ; time.Sleep(50 * time.Millisecond) {
		after := used(t)
		// Go keeps threads, and others on this machine use terminals.
		if after.files <= before.files && after.goroutines <= before.goroutines && after.threads <= before.threads+10 &&
			after.ptys <= before.ptys+50 && after.memory <= before.memory+4<<20 && after.zombies == 0 {
			t.Logf("after:  %v", after)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after: %v", after)
		}
	}
}

// A flood stays within 64 MiB, whoever reads: nobody, or a hundred who keep up
// and one who does not.
func TestFloodIsBounded(t *testing.T) {
	length := 600 * time.Millisecond
	switch {
	case *full:
		length = 10 * time.Second
	case testing.Short():
		t.Skip("takes seconds")
	}
	for _, fast := range []int{0, 100} {
		t.Run(fmt.Sprint(fast, " readers"), func(t *testing.T) {
			modes(t, func(t *testing.T, tty bool) {
				m := newManager(t, nil)
				before := inUse()
				const line = "a line of output that goes on and on\n"
				term := start(t, m, terminal.Command{Args: []string{"yes", line[:len(line)-1]}, TTY: tty})
				ctx, cancel := context.WithTimeout(t.Context(), length)
				defer cancel()
				var readers sync.WaitGroup
				follow := func(pause time.Duration) {
					for cursor := int64(0); ctx.Err() == nil; time.Sleep(pause) {
						out, err := term.ReadOutput(ctx, cursor, time.Second)
						if err != nil {
							return
						}
						if out.NextCursor <= cursor {
							t.Errorf("a read at %d went on at %d", cursor, out.NextCursor)
							return
						}
						cursor = out.NextCursor
					}
				}
				for range fast {
					readers.Go(func() { follow(0) })
				}
				if fast > 0 {
					readers.Go(func() { follow(200 * time.Millisecond) })
				}
				most := 0
				for ctx.Err() == nil {
					var stats runtime.MemStats
					runtime.ReadMemStats(&stats)
					most = max(most, int(stats.HeapInuse+stats.StackInuse)-before)
					time.Sleep(20 * time.Millisecond)
				}
				readers.Wait()
				if most > 64<<20 {
					t.Errorf("the memory in use grew by %d MiB", most>>20)
				}
				out, err := term.ReadOutput(t.Context(), 0, 0)
				if err != nil || !out.Truncated {
					t.Errorf("from the start: truncated is %v, %v", out.Truncated, err)
				}
				lines, cursor := term.(interface{ EvictedLines() (lines, cursor int64) }).EvictedLines()
				if want := int64(len(line)); cursor/want != lines {
					t.Errorf("%d lines before %d, want %d", lines, cursor, cursor/want)
				}
				t.Logf("%d MiB of output, and at most %.1f MiB of memory more", cursor>>20, float64(most)/(1<<20))
			})
		})
	}
}
