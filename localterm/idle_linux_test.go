package localterm_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// threads returns how many threads this process has.
func threads(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "Threads:")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ptys returns how many pseudo-terminals the kernel has.
func ptys(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/sys/kernel/pty/nr")
	if err != nil {
		t.Skipf("the kernel does not count its terminals: %v", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// inUse is the memory of this process that Go uses, stacks included.
func inUse() int {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapInuse + stats.StackInuse)
}

// 500 idle terminals cost no threads and little memory, and go without a trace.
func TestIdle(t *testing.T) {
	if testing.Short() {
		t.Skip("starts 500 processes")
	}
	need(t, "/proc/self/status")
	const n = 500
	m := localterm.New(&localterm.Options{MaxTerminals: n, Grace: 10 * time.Second})
	defer m.Close()
	wait(t, start(t, m, terminal.Command{Line: "true", TTY: true})) // the watchdog runs
	oldThreads, oldPtys, oldMemory, oldFiles := threads(t), ptys(t), inUse(), fds(t)

	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(t.Context(), 2*bound)
			defer cancel()
			if _, err := m.Start(ctx, terminal.Command{Args: []string{"sleep", "1000"}, TTY: true, Stdin: true}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	perTerminal := (inUse() - oldMemory) / n
	more := threads(t) - oldThreads
	t.Logf("%d idle terminals: %d bytes each, %d threads and %d descriptors more", n, perTerminal, more, fds(t)-oldFiles)
	if perTerminal > 25_000 {
		t.Errorf("%d bytes a terminal, want at most 25 KB", perTerminal)
	}
	if more > 10 {
		t.Errorf("%d threads more, want at most 10", more)
	}
	cpu := cpuTime(t)
	time.Sleep(2 * time.Second)
	if used := cpuTime(t) - cpu; used > 200*time.Millisecond {
		t.Errorf("idle terminals took %v of processor time in 2 s", used)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if got := fds(t); got > oldFiles {
		t.Errorf("%d descriptors after Close, %d before", got, oldFiles)
	}
	for deadline := time.Now().Add(bound); ptys(t) > oldPtys+n/10; time.Sleep(50 * time.Millisecond) { // others on this machine use some
		if time.Now().After(deadline) {
			t.Errorf("the kernel has %d terminals, and had %d", ptys(t), oldPtys)
			break
		}
	}
}

// cpuTime is the processor time that this process has used.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
