package execenv_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

func TestExitCode(t *testing.T) {
	l := newLocal(t, nil)
	for line, want := range map[string]int{"exit 3": 3, "kill -9 $$": -1} {
		err := l.Command(t.Context(), sh(line)).Run()
		e, ok := errors.AsType[*execenv.ExitError](err)
		if !ok || e.ExitCode() != want {
			t.Errorf("%s: %v, want the code %d", line, err, want)
		}
	}
	if got := (&execenv.ExitError{}).ExitCode(); got != -1 {
		t.Errorf("unknown: %d", got)
	}
	if got := (&execenv.ExitError{Exit: terminal.Exit{Code: new(0), Signal: "SIGTERM"}}).ExitCode(); got != -1 {
		t.Errorf("a code beside a signal: %d", got)
	}
}

// PWD is absolute even if Dir is not: a shell would take a relative one from its
// own directory, and not believe it.
func TestPWD(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	l := newLocal(t, nil)
	for _, rel := range []string{"a/b", "./a/b/", "a/../a/b", filepath.Join(dir, "a/b")} {
		out, err := l.Command(t.Context(), execenv.Spec{Path: "env", Dir: rel}).Output()
		if want := "PWD=" + dir + "/a/b\n"; err != nil || !strings.Contains(string(out), want) {
			t.Errorf("Dir %q: %q, %v; want %q", rel, out, err, want)
		}
	}
}

// A process that left a child in its group, which holds the output, is over and
// Wait is not; what the process offers ends both.
func TestSignalAfterTheExit(t *testing.T) {
	for name, end := range map[string]func(p execenv.Process) error{
		"SignalGroup": func(p execenv.Process) error { return p.SignalGroup(syscall.SIGTERM) },
		"Kill":        execenv.Process.Kill,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocal(t, nil)
			var out bytes.Buffer
			spec := sh("sleep 77 & echo $!; exit 3")
			spec.Group, spec.Stdout = true, &out
			p := l.Command(context.Background(), spec)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			wait(t, p.(execenv.Session).Exited(), "exit")
			waited := make(chan error, 1)
			go func() { waited <- p.Wait() }()
			select {
			case err := <-waited:
				t.Fatalf("Wait did not wait for the child: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("Signal to the process: %v", err)
			}
			if err := end(p); err != nil {
				t.Error(err)
			}
			if got := exitOf(<-waited); got != "exit code 3" {
				t.Errorf("Wait: %s", got)
			}
			eventually(t, func() error { // its files are closed a moment before it is dead
				left, err := p.(execenv.Session).Survivors(), p.SignalGroup(syscall.SIGTERM)
				return errorf(len(left) == 0 && errors.Is(err, os.ErrProcessDone), "left %v; SignalGroup when nobody is: %v", left, err)
			})
		})
	}

	// After Wait, Kill is for a defer: what was left behind on purpose lives.
	l := newLocal(t, nil)
	spec := sh("sleep 78 >/dev/null 2>&1 & exit 0")
	spec.Group = true
	p := l.Command(t.Context(), spec)
	if err := p.Run(); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if left := p.(execenv.Session).Survivors(); len(left) != 1 {
		t.Errorf("after Wait and Kill: %v", left)
	}
	if err := p.SignalGroup(syscall.SIGKILL); err != nil {
		t.Errorf("SignalGroup: %v", err)
	}
}

// Kill frees a Wait for an output that is held by a process which no group
// reaches.
func TestKillEndsWait(t *testing.T) {
	need(t, "setsid")
	for _, group := range []bool{true, false} {
		l := newLocal(t, nil)
		var out bytes.Buffer
		spec := sh("echo first; setsid sh -c 'touch in; exec sleep 79' & while [ ! -e in ]; do sleep .01; done")
		spec.Dir = t.TempDir()
		spec.Group, spec.Stdout = group, &out
		p := l.Command(context.Background(), spec)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- p.Wait() }()
		eventually(t, func() error { return errorf(errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone), "it runs") })
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		select {
		case err := <-waited:
			if err == nil || !strings.Contains(err.Error(), "held open") || out.String() != "first\n" {
				t.Errorf("group: %v: Wait = %v, output %q", group, err, out.String())
			}
		case <-time.After(20 * time.Second):
			t.Fatal("Wait hangs")
		}
	}
}
