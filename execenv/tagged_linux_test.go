package execenv_test

import (
	"crypto/rand"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
)

// What carries a tag is found and ended with all that it has started, wherever that
// went; what carries another is left alone.
func TestTagged(t *testing.T) {
	need(t, "/proc/self/stat")
	var host execenv.Tagged
	start := func(tag, line string) *exec.Cmd {
		t.Helper()
		name, value := host.Env(tag)
		cmd := exec.Command("/bin/sh", "-c", line)
		cmd.Env = append(os.Environ(), name+"="+value)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		return cmd
	}
	mine, other := rand.Text()+".1,", rand.Text()+".1,"
	// A shell that dies first, a child that ignores SIGTERM, and one in a session of
	// its own without an environment.
	start(mine, `sh -c 'trap "" TERM; while :; do sleep 0.1; done' & env -i setsid sleep 61 & sleep 62`)
	bystander := start(other, "exec sleep 63")
	await := func(tag string, n int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; {
			procs := host.Find(tag)
			if len(procs) >= n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("found %v, want %d", procs, n)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	await(mine, 4)
	await(other, 1)

	found, left := host.End(mine, time.Now().Add(300*time.Millisecond))
	var names strings.Builder
	for _, p := range found {
		names.WriteString(p.String() + "\n")
	}
	for _, want := range []string{"sleep 61", "sleep 62", "trap"} {
		if !strings.Contains(names.String(), want) {
			t.Errorf("%q is not found:\n%s", want, &names)
		}
	}
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if again := host.Find(mine); len(again) > 0 {
		t.Errorf("after the end: %v", again)
	}
	if found, _ := host.End(mine, time.Now()); len(found) > 0 {
		t.Errorf("ended again: %v", found)
	}
	if procs := host.Find(other); len(procs) != 1 || procs[0].PID != bystander.Process.Pid {
		t.Errorf("of the other tag: %v, want %d", procs, bystander.Process.Pid)
	}
}
