package execenv

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Where the kernel has no pidfds, the exit is still seen before it is reaped.
func TestChildWithoutPidfd(t *testing.T) {
	for script, want := range map[string]string{"exit 3": "exit code 3", "kill -9 $$": "SIGKILL"} {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &child{pid: pid, pidfd: -1}
		if exit, _ := c.exit(0); exit.String() != want {
			t.Errorf("%s: got %s, want %s", script, exit, want)
		}
		if p, ok := readProc(pid); !ok || !p.dead {
			t.Errorf("%s: not a zombie: %+v, %v", script, p, ok)
		}
		c.reap()
		if _, ok := readProc(pid); ok {
			t.Errorf("%s: not reaped", script)
		}
		if err := c.signal(os.Kill); err != os.ErrProcessDone {
			t.Errorf("%s: signal after the end: %v", script, err)
		}
	}
}

// An exit that somebody else has taken is unknown, and no success.
func TestExitTakenByOthers(t *testing.T) {
	c, err := startChild("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(c.pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	if exit, _ := c.exit(0); exit.Known() || exit.Success() {
		t.Errorf("got %v", exit)
	}
	c.reap()
}

// A process id that was given to another process is not signalled.
func TestSignalNeverHitsAStranger(t *testing.T) {
	me, ok := readProc(os.Getpid())
	if !ok {
		t.Fatal("not in the process table")
	}
	if !me.alive() || me.signal(0) != nil {
		t.Errorf("not alive: %+v", me)
	}
	before := ident{pid: me.pid, start: me.start - 1} // who had the number before
	if before.alive() {
		t.Error("it is taken for the one before")
	}
	if err := before.signal(syscall.SIGKILL); err != os.ErrProcessDone {
		t.Errorf("got %v", err)
	}
	for _, pgid := range []int{-1, 0, 1, syscall.Getpgrp()} {
		if err := signalGroup(pgid, 0); err != syscall.EPERM {
			t.Errorf("group %d: got %v", pgid, err)
		}
	}
}

func TestParseSyscall(t *testing.T) {
	for _, c := range []struct {
		line string
		call uint64
		args [6]uint64
		ok   bool
	}{
		{"0 0x3 0x7ffd 0x400 0x0 0x0 0x0 0x7ffd1 0x7f2\n", 0, [6]uint64{3, 0x7ffd, 0x400}, true},
		{"running\n", 0, [6]uint64{}, false},
		{"-1 0x7ffd1 0x7f2\n", 0, [6]uint64{}, false}, // sleeps, but in no system call
		{"", 0, [6]uint64{}, false},
	} {
		call, args, ok := parseSyscall(c.line)
		if ok != c.ok || ok && (call != c.call || args != c.args) {
			t.Errorf("%q: got %d, %v, %v", c.line, call, args, ok)
		}
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prog"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, c := range []struct{ name, path, want string }{
		{"prog", "/nowhere:" + dir, dir + "/prog"},
		{"prog", ".:" + dir[:0] + ":bin", ""}, // relative directories do not count
		{"./prog", "", "./prog"},
		{"sub/prog", dir, "sub/prog"}, // the kernel's business
	} {
		got, err := lookPath(c.name, c.path)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s in %q: got %q, %v", c.name, c.path, got, err)
		}
	}
}

func TestRoll(t *testing.T) {
	f, err := nameless()
	if err != nil {
		t.Fatal(err)
	}
	r := &roll{file: f}
	defer r.close()
	a, b := r.add(123), r.add(4567890)
	r.drop(a)
	c := r.add(5)
	r.add(6)
	r.drop(b)
	text := make([]byte, 3*rollLine)
	if _, err := f.ReadAt(text, 0); err != nil || a != c {
		t.Errorf("%v; place %d is used again: got %d", err, a, c)
	}
	if diff := cmp.Diff("5          \n           \n6          \n", string(text)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Where nobody can see who waits for a key, the terminal cannot be read, and is
// always ready for it: that ends whoever polls it.
func TestUnreadableTerminal(t *testing.T) {
	sees := seesInput
	seesInput = func() bool { return false }
	defer func() { seesInput = sees }()
	l := NewLocal(nil)
	defer l.Close()
	for line, want := range map[string]string{
		"view /etc/passwd":            "view",
		"cat <&2 || echo cannot read": "cannot read",
		"python3 -c 'import select, sys; print(select.select([2], [], []))'": "([2]",
	} {
		program, _, _ := strings.Cut(line, " ")
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("TERMBRIDGE_REAL") != "" {
				t.Errorf("%s is missing", program)
			}
			t.Logf("%s is missing: %s is not tried", program, line)
			continue
		}
		p := l.Command(t.Context(), Spec{Path: "sh", Args: []string{"-c", line + "; echo over"}, TTY: &TTY{}})
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		term, _ := p.(Session).Terminal()
		timeout := time.AfterFunc(20*time.Second, func() { p.(Session).StopTree(0) })
		out, err := io.ReadAll(term)
		if timeout.Stop(); err != nil || !strings.HasSuffix(string(out), "over\n") || want != "view" && !strings.Contains(string(out), want) {
			t.Errorf("%s: %q, %v", line, out, err)
		}
		p.Wait()
	}
}
