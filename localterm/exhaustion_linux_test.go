package localterm_test

import (
	"errors"
	"os"
	"testing"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// With each pipe that cannot be opened any more the reason is known, and nothing
// of the others stays.
func TestOutOfDescriptorsForPipes(t *testing.T) {
	local := execenv.NewLocal(&execenv.LocalOptions{Cgroup: execenv.NoCgroup}) // it keeps those it made
	defer local.Close()
	m := newManager(t, &localterm.Options{Executors: map[string]execenv.Executor{"local": local}})
	wait(t, start(t, m, terminal.Command{Line: "true"}))
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	need(t, "/proc/self/fd")
	open := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	for _, stdin := range []bool{false, true} {
		failed := 0
		for n := uint64(3); ; n++ {
			before := open()
			unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: limit.Max})
			term, err := m.Start(t.Context(), terminal.Command{Line: "true", Stdin: stdin})
			unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
			if err == nil {
				wait(t, term)
				break
			}
			failed++
			_, typed := errors.AsType[*execenv.StartError](err)
			if after := open(); after != before || !typed || !errors.Is(err, execenv.ErrNoResources) {
				t.Errorf("stdin %v, limit %d: %d descriptors and then %d: %v", stdin, n, before, after, err)
			}
		}
		if failed < 6 {
			t.Errorf("stdin %v: only %d starts failed", stdin, failed)
		}
	}
}
