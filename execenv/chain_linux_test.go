package execenv_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// In a chain of forks each process lives for a moment only, in a session of its
// own: no walk over the processes sees the one that is forked behind it. A stop
// ends it all the same, and in time.
func TestStopTreeOfAChain(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid")
	rounds := 1
	if *full {
		rounds = 3
	}
	for way, opts := range bothWays {
		for _, pause := range []string{":", "sleep 0.002", "sleep 0.03"} {
			t.Run(way+"/"+pause, func(t *testing.T) {
				l := newLocal(t, opts)
				for range rounds {
					dir := t.TempDir()
					link, log, stop := filepath.Join(dir, "link"), filepath.Join(dir, "log"), filepath.Join(dir, "stop")
					script := "trap '' TERM\n" + pause + "\necho x >>" + log + "\n[ -e " + stop + " ] || setsid sh " + link + " &\n"
					if err := os.WriteFile(link, []byte(script), 0o600); err != nil {
						t.Fatal(err)
					}
					defer os.WriteFile(stop, nil, 0o600)
					links := func() int64 {
						info, err := os.Stat(log)
						if err != nil {
							return 0
						}
						return info.Size()
					}
					r := start(t, l, sh("sh "+link+" >/dev/null 2>&1; sleep 60"))
					eventually(t, func() error { return errorf(links() > 10, "the chain has not begun") })
					began := time.Now()
					left := r.StopTree(300 * time.Millisecond)
					took := time.Since(began)
					if left == nil || len(left) > 0 || took > 5*time.Second {
						t.Errorf("left %v after %v", left, took)
					}
					before := links()
					time.Sleep(100 * time.Millisecond)
					if after := links(); after != before {
						t.Errorf("it goes on: %d links, and then %d", before, after)
					}
				}
			})
		}
	}
}

// What was needed for many at once is given back when few run.
func TestDescriptorsOfMany(t *testing.T) {
	need(t, "/proc/self/stat")
	l := newLocal(t, nil)
	run := func(n int) {
		var all []*running
		for range n {
			all = append(all, start(t, l, sh("sleep .3")))
		}
		for _, r := range all {
			r.Wait()
		}
	}
	count := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	run(1)
	before := count()
	run(40)
	const most = 16 // of the cgroups that are kept to be used again
	eventually(t, func() error {
		after := count()
		return errorf(after <= before+most, "%d descriptors, and then %d", before, after)
	})
}
