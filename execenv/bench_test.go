//go:build unix

package execenv_test

import (
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
)

// BenchmarkStart compares start to exit of /bin/true with bare os/exec, turn
// by turn, so that the noise of the machine cancels out in the ratio.
func BenchmarkStart(b *testing.B) {
	l := execenv.NewLocal(nil)
	defer l.Close()
	local := func(tty *execenv.TTY) func() error {
		return func() error {
			return l.Command(b.Context(), execenv.Spec{Path: "/bin/true", Group: true, TTY: tty}).Run()
		}
	}
	bare := func() error {
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return cmd.Run()
	}
	for name, run := range map[string]func() error{"pipes": local(nil), "terminal": local(&execenv.TTY{Input: true})} {
		b.Run(name, func(b *testing.B) {
			var ours, theirs []time.Duration
			for b.Loop() {
				for _, m := range []struct {
					run  func() error
					took *[]time.Duration
				}{{bare, &theirs}, {run, &ours}} {
					began := time.Now()
					if err := m.run(); err != nil {
						b.Fatal(err)
					}
					*m.took = append(*m.took, time.Since(began))
				}
			}
			b.ReportMetric(float64(median(ours))/float64(median(theirs)), "x-os/exec")
			b.ReportMetric(float64(median(ours).Microseconds()), "µs/start")
		})
	}
}

// BenchmarkStop measures StopTree of a shell with a child.
func BenchmarkStop(b *testing.B) {
	l := execenv.NewLocal(nil)
	defer l.Close()
	var took []time.Duration
	for b.Loop() {
		spec := sh("sleep 60 & wait")
		spec.Group = true
		s := l.Command(b.Context(), spec).(execenv.Session)
		if err := s.Start(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		if left := s.StopTree(time.Second); len(left) > 0 {
			b.Fatal(left)
		}
		took = append(took, time.Since(began))
		s.Wait()
	}
	b.ReportMetric(float64(median(took).Microseconds()), "µs/stop")
}

// BenchmarkStopsAtOnce is how long it takes until the last of 100 has stopped that
// are all stopped at one time.
func BenchmarkStopsAtOnce(b *testing.B) {
	for name, opts := range map[string]*execenv.LocalOptions{"cgroup": nil, "no cgroup": {Cgroup: execenv.NoCgroup}} {
		b.Run(name, func(b *testing.B) {
			l := execenv.NewLocal(opts)
			defer l.Close()
			var took []time.Duration
			for b.Loop() {
				var all []execenv.Session
				for range 100 {
					spec := sh("sleep 60 & wait")
					spec.Group = true
					s := l.Command(b.Context(), spec).(execenv.Session)
					if err := s.Start(); err != nil {
						b.Fatal(err)
					}
					all = append(all, s)
				}
				time.Sleep(50 * time.Millisecond)
				began := time.Now()
				var wg sync.WaitGroup
				for _, s := range all {
					wg.Go(func() {
						if left := s.StopTree(10 * time.Second); len(left) > 0 {
							b.Error(left)
						}
					})
				}
				wg.Wait()
				took = append(took, time.Since(began))
				for _, s := range all {
					s.Wait()
				}
			}
			b.ReportMetric(float64(median(took).Milliseconds()), "ms/100-stops")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
