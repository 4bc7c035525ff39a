package localterm_test

import (
	"errors"
	"io"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// BenchmarkStop is from Stop to its return, for a shell with two children: such
// as end when they are asked, and such as do not. The median beyond the grace is
// reported.
func BenchmarkStop(b *testing.B) {
	const grace = 200 * time.Millisecond
	for _, tree := range []struct {
		name, line string
		grace      time.Duration
	}{
		{"cooperative", "sleep 300 & sleep 300 & echo ready; wait", 0},
		{"escaped", "setsid sleep 300 & (setsid sleep 300 &); echo ready; wait", 0},
		{"stubborn", "trap '' TERM HUP INT; sleep 300 & sleep 300 & echo ready; wait", grace},
	} {
		for _, tty := range []bool{false, true} {
			b.Run(tree.name+map[bool]string{false: "/pipe", true: "/tty"}[tty], func(b *testing.B) {
				m := localterm.New(&localterm.Options{Grace: grace})
				defer m.Close()
				var took []time.Duration
				for b.Loop() {
					t, err := m.Start(b.Context(), terminal.Command{Line: tree.line, TTY: tty})
					if err != nil {
						b.Fatal(err)
					}
					if _, err := t.ReadOutput(b.Context(), 0, time.Minute); err != nil {
						b.Fatal(err)
					}
					time.Sleep(20 * time.Millisecond) // the children have started
					began := time.Now()
					info, err := t.Stop(b.Context())
					if err != nil || len(info.Survivors) > 0 {
						b.Fatal(info, err)
					}
					took = append(took, time.Since(began)-tree.grace)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(median(took).Microseconds())/1e3, "ms")
			})
		}
	}
}

// BenchmarkYes compares with the usual way to run a command on a terminal, for
// short lines.
func BenchmarkYes(b *testing.B) {
	const n, line = 16 << 20, "yes | head -c 16777216"
	m := localterm.New(nil)
	defer m.Close()
	ratio(b, n, 0, func() {
		f, err := pty.Start(exec.Command("/bin/sh", "-c", line))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		// It puts CR before each LF.
		if got, err := io.Copy(io.Discard, f); got != n+n/2 || !errors.Is(err, syscall.EIO) {
			b.Fatal(got, err)
		}
	}, func() {
		t, err := m.Start(b.Context(), terminal.Command{Line: line, TTY: true})
		if err != nil {
			b.Fatal(err)
		}
		<-t.Done()
	})
}
