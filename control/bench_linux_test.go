package control_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// BenchmarkIngest measures how fast the output of a command is taken in, with viewers
// that have stopped reading and without: it is the same.
func BenchmarkIngest(b *testing.B) {
	const size = 64 << 20
	m := localterm.New(nil)
	defer m.Close()
	c := control.New(m, nil)
	defer c.Close()
	path := listen(b, c, nil)
	run := func(viewers int) time.Duration {
		t, err := m.Start(b.Context(), terminal.Command{
			Line: fmt.Sprintf("read x; yes 0123456789012345678901234567890123456789 | head -c %d", size), TTY: true, Stdin: true,
		})
		if err != nil {
			b.Fatal(err)
		}
		for range viewers {
			v, err := control.Attach(b.Context(), path, control.Request{ID: t.Info().ID})
			if err != nil {
				b.Fatal(err)
			}
			defer v.Close()
		}
		begin := time.Now()
		if _, err := t.WriteInput(b.Context(), "\n"); err != nil {
			b.Fatal(err)
		}
		if _, err := terminal.Wait(context.Background(), t); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	var without, with time.Duration
	for b.Loop() {
		without += run(0)
		with += run(3)
	}
	b.SetBytes(2 * size)
	b.ReportMetric(float64(without)/float64(with), "of-without")
}
