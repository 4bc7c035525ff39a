//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/launcher"
	"github.com/termbridge/termbridge/terminal"
)

func TestStopEndsNothingOfOthers(t *testing.T) {
	t.Parallel()
	// The tag of the first command is no prefix, and no pattern, of the tenth's.
	e := newExecutor(t, launcher.Command("env"), nil)
	var all []execenv.Session
	for range 12 {
		p := e.Command(context.Background(), sh("exec sleep 300")).(execenv.Session)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	all[0].StopTree(0)
	for i, p := range all[1:] {
		select {
		case <-p.Exited():
			t.Errorf("command %d has ended, too: %v", i+2, p.Exit())
		default:
		}
	}
}

func TestHeartbeatsGoOn(t *testing.T) {
	// Whatever the supervisor was asked, heartbeats reach it, and nothing else.
	t.Parallel()
	e := newExecutor(t, launcher.Command("env"), &launcher.Options{LostAfter: time.Second})
	p := e.Command(context.Background(), sh("exec sleep 300")).(execenv.Session)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{p.SignalGroup(syscall.SIGCONT), p.Signal(syscall.SIGCONT)} {
		if err != nil {
			t.Error(err)
		}
	}
	p.Survivors()
	select {
	case <-p.Exited():
		t.Fatalf("it has ended: %v", p.Exit())
	case <-time.After(4 * time.Second):
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	select {
	case <-p.Exited():
	case <-time.After(30 * time.Second):
		t.Fatal("it runs on")
	}
	if p.Exit().Signal != "SIGTERM" {
		t.Errorf("got %v", p.Exit())
	}
}

func TestArgumentsThatAreTooLarge(t *testing.T) {
	// Words that the kernel of the place does not take are a start error, as here.
	t.Parallel()
	e := newExecutor(t, launcher.Command("env"), nil)
	spec := sh("echo $#", strings.Repeat("x", 200_000))
	if err := e.Command(t.Context(), spec).Run(); !errors.Is(err, terminal.ErrTooLarge) {
		t.Errorf("one word of 200 kB: %v, want ErrTooLarge", err)
	}
	spec = sh("echo $#", slices.Repeat([]string{strings.Repeat("é'", 1000)}, 60)...)
	if out, err := e.Command(t.Context(), spec).Output(); string(out) != "60\n" || err != nil {
		t.Errorf("180 kB in words of 3 kB: %s, %v", show(out), err)
	}
}

func TestSilentPlace(t *testing.T) {
	// A place that prints, and never runs anything, is named with what it printed.
	t.Parallel()
	e := newExecutor(t, launcher.Command("sh", "-c", "echo '1. menu'; exec sleep 300"), &launcher.Options{StartTimeout: time.Second})
	err := e.Command(t.Context(), sh("true")).Run()
	if !errors.Is(err, launcher.ErrUnreachable) || !strings.Contains(err.Error(), "no answer for 1s") || !strings.Contains(err.Error(), "1. menu") || !strings.Contains(err.Error(), e.String()) {
		t.Errorf("got %v", err)
	}
}

func TestInputIsTheCallersAtOnce(t *testing.T) {
	// StdinPipe may be written to as soon as Start has returned.
	t.Parallel()
	e := newExecutor(t, launcher.Command("env"), nil)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			p := e.Command(t.Context(), sh("read -r x; exit $x"))
			in, err := p.StdinPipe()
			if err == nil {
				err = p.Start()
			}
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := in.Write([]byte("7\n")); err != nil {
				t.Error(err)
			}
			in.Close()
			if e, ok := errors.AsType[*execenv.ExitError](p.Wait()); !ok || e.ExitCode() != 7 {
				t.Errorf("got %v", e)
			}
		})
	}
	all.Wait()
}

func TestSSHWithItsUsersConfiguration(t *testing.T) {
	// What ssh's configuration has for people (a command, a log on the standard error)
	// is not in the way, and neither is a long TMPDIR.
	l := ssh(t, "sh", func(o *launcher.SSHOptions) {
		o.Config = filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(o.Config, []byte("Host *\nRemoteCommand echo no\nLogLevel DEBUG3\nRequestTTY force\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	e := newExecutor(t, l, nil)
	if out, err := e.Command(t.Context(), sh("echo out; echo err >&2")).CombinedOutput(); len(out) != len("out\nerr\n") || err != nil {
		t.Errorf("got %s, %v", show(out), err)
	}
}

func TestASizeIsToldAgain(t *testing.T) {
	// Of two sizes that come at once podman passes on the first only: its program is
	// told again, and reads the size again.
	t.Parallel()
	told := filepath.Join(t.TempDir(), "told")
	line := `trap "echo >>` + told + `" WINCH; exec 3<&0; "$0" "$@" <&3 & while kill -0 $! 2>/dev/null; do wait $!; done`
	e := newExecutor(t, launcher.Command("sh", "-c", line), nil)
	spec := sh("sleep 100")
	spec.TTY = &execenv.TTY{Size: terminal.Size{}.OrDefault()}
	p := e.Command(t.Context(), spec).(execenv.Session)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	screen, _ := p.Terminal()
	if err := screen.Resize(terminal.Size{Rows: 10, Cols: 20}); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		b, _ := os.ReadFile(told)
		if len(b) >= 4 { // by the kernel, and three times by us
			break
		}
		if time.Since(start) > 30*time.Second {
			t.Fatalf("told %d times, want 4", len(b))
		}
	}
	p.StopTree(0)
	_ = p.Wait()
}

// What a command leaves on its terminal is named, also when the terminal and the
// launcher have ended with the command, and is ended with its tree.
func TestSurvivorsOfATerminal(t *testing.T) {
	e := newExecutor(t, ssh(t, "sh", nil), nil)
	spec := sh("trap '' HUP; sleep 321 & echo left")
	spec.TTY = &execenv.TTY{}
	p := e.Command(t.Context(), spec).(execenv.Session)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	tty, _ := p.Terminal()
	if _, err := io.Copy(io.Discard, tty); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Logf("the terminal's end: %v", err)
	}
	<-p.Exited()
	time.Sleep(time.Second) // the launcher has ended by then
	if left := p.Survivors(); len(left) != 1 || !strings.Contains(left[0].Command, "sleep 321") {
		t.Errorf("left: %#v", left)
	}
	if left := p.StopTree(0); left == nil || len(left) > 0 {
		t.Errorf("after the stop: %#v", left)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}
