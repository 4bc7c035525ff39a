package execenv_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

// lease makes those wait who open a file, until the returned function is called, or
// the system takes the lease back (/proc/sys/fs/lease-break-time).
func lease(t *testing.T, path string) (giveBack func()) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 500 { // a child of another test may still hold it open
		if _, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); !errors.Is(err, unix.EAGAIN) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Skipf("no lease can be had here: %v", err)
	}
	return func() {
		// The process that waits may have the file, too, from its fork.
		unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		f.Close()
	}
}

func copyFile(t *testing.T, from, to string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, change(data), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func same(b []byte) []byte { return b }

// While another process keeps a program, or what interprets it, from being opened, a
// Start waits: until that gives it back, until ctx ends, or until Close.
func TestProgramThatIsKept(t *testing.T) {
	dir := t.TempDir()
	prog, script := filepath.Join(dir, "prog"), filepath.Join(dir, "script")
	copyFile(t, "/bin/sleep", prog, same)
	copyFile(t, "/dev/null", script, func([]byte) []byte { return []byte("#!" + prog + "\n") })
	for _, path := range []string{prog, script} {
		for _, end := range []string{"given back", "ctx", "Close"} {
			t.Run(filepath.Base(path)+" "+end, func(t *testing.T) {
				giveBack := lease(t, prog)
				defer giveBack()
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				l := newLocal(t, nil)
				started := make(chan error, 1)
				p := l.Command(ctx, execenv.Spec{Path: path, Args: []string{"60"}, Group: true}).(execenv.Session)
				go func() { started <- p.Start() }()
				select {
				case err := <-started:
					t.Fatalf("it did not wait: %v", err)
				case <-time.After(50 * time.Millisecond):
				}
				var want error
				switch end {
				case "given back":
					giveBack()
				case "ctx":
					want = errors.New("enough")
					cancel(want)
				case "Close":
					want = terminal.ErrClosed
					if err := l.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				}
				select {
				case err := <-started:
					if !errors.Is(err, want) {
						t.Errorf("got %v, want %v", err, want)
					}
				case <-time.After(20 * time.Second):
					t.Fatal("it waits on")
				}
				if want == nil {
					p.StopTree(0)
					p.Wait()
				}
			})
		}
	}
}

// kernelHolds returns a program and its loader. While somebody has a lease on that, the
// kernel holds who starts the program.
func kernelHolds(t *testing.T, program string) (prog, loader string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// A copy whose loader has another path, of the same length at most.
	prog, loader = filepath.Join(dir, "p"), filepath.Join(dir, "l")
	var old []byte
	copyFile(t, program, prog, func(b []byte) []byte {
		i := bytes.Index(b, []byte("/lib"))
		if i < 0 || i > 4096 {
			t.Skipf("%s has no loader that could be held", program)
		}
		n := bytes.IndexByte(b[i:], 0)
		if old = bytes.Clone(b[i : i+n]); len(loader) > n {
			t.Skipf("%s is longer than %s", loader, old)
		}
		copy(b[i:i+n], loader+strings.Repeat("\x00", n))
		return b
	})
	copyFile(t, string(old), loader, same)
	// The thread of the start is the kernel's. The garbage collector would wait for it.
	procs, percent := runtime.GOMAXPROCS(4), debug.SetGCPercent(-1)
	timeout := execenv.SetHeldTimeout(250 * time.Millisecond) // however early it is over, the Start is still held
	t.Cleanup(func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
		execenv.SetHeldTimeout(timeout)
	})
	return prog, loader
}

// While the kernel holds the start of the watchdog, Starts wait for it in a way that
// their ctx and Close end, and not for long; and Close names it. When it comes back it
// ends, and nothing of it stays.
func TestKernelHoldsTheWatchdog(t *testing.T) {
	need(t, "/proc/self/stat")
	shell, loader := kernelHolds(t, "/bin/sh")
	l0 := execenv.NewLocal(nil) // so that what the runtime opens once is open
	l0.Command(t.Context(), sh("true")).Run()
	l0.Close()
	defer execenv.SetWatchdogShell(execenv.SetWatchdogShell(shell))
	for _, given := range []string{"Starts", "Close"} {
		t.Run(given, func(t *testing.T) {
			before, goroutines := held(t), runtime.NumGoroutine()
			giveBack := lease(t, loader)
			l := execenv.NewLocal(nil)
			command := func(ctx context.Context) (execenv.Session, <-chan error) {
				p := l.Command(ctx, execenv.Spec{Path: "sleep", Args: []string{"60"}, Group: true}).(execenv.Session)
				started := make(chan error, 1)
				go func() { started <- p.Start() }()
				return p, started
			}
			returns := func(what string, started <-chan error, want error) {
				t.Helper()
				select {
				case err := <-started:
					if !errors.Is(err, want) {
						t.Errorf("%s: %v, want %v", what, err, want)
					}
				case <-time.After(30 * time.Second):
					t.Fatalf("%s: it waits on", what)
				}
			}
			first, started := command(context.Background())
			eventually(t, func() error {
				return errorf(len(children()) > before.children, "the watchdog is not being started")
			})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, second := command(ctx)
			returns("a Start whose ctx ends", second, context.DeadlineExceeded)
			if given == "Starts" {
				returns("a Start", started, nil)
				_, third := command(context.Background())
				returns("another", third, nil)
			}
			closed := make(chan error, 1)
			go func() { closed <- l.Close() }()
			if given == "Close" {
				returns("a Start while Close", started, terminal.ErrClosed)
			}
			select {
			case err := <-closed:
				if leak, ok := errors.AsType[*terminal.LeakError](err); !ok || len(leak.Leaks) != 1 || !strings.Contains(err.Error(), shell) {
					t.Errorf("Close: %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("Close waits for it")
			}
			if given == "Starts" {
				if got := exitOf(first.Wait()); got != "SIGTERM" {
					t.Errorf("the command: %s", got)
				}
			}
			giveBack()
			eventually(t, func() error {
				now, n := held(t), runtime.NumGoroutine()
				return errorf(now == before && n <= goroutines, "%+v and %d goroutines, before %+v and %d", now, n, before, goroutines)
			})
		})
	}
}

// Close does not wait for a Start that the kernel holds. It names it, and when the
// Start comes back, its process ends at once, and nothing of it stays.
func TestCloseWhileTheKernelHoldsAStart(t *testing.T) {
	need(t, "/proc/self/stat")
	prog, loader := kernelHolds(t, "/bin/sleep")
	for way, opts := range bothWays {
		t.Run(way, func(t *testing.T) {
			l0 := execenv.NewLocal(nil) // so that what the runtime opens once is open
			l0.Command(t.Context(), sh("true")).Run()
			l0.Close()
			before, goroutines := held(t), runtime.NumGoroutine()

			giveBack := lease(t, loader)
			l := execenv.NewLocal(opts)
			started := make(chan error, 1)
			other := l.Command(t.Context(), execenv.Spec{Path: "sleep", Args: []string{"60"}, Group: true})
			if err := other.Start(); err != nil { // Close ends what it can
				t.Error(err)
			}
			p := l.Command(context.Background(), execenv.Spec{Path: prog, Args: []string{"60"}, Group: true})
			p.StdoutPipe()
			go func() { started <- p.Start() }()
			select {
			case err := <-started:
				t.Fatalf("it did not wait: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			closed := make(chan error, 1)
			go func() { closed <- l.Close() }()
			select {
			case err := <-closed:
				var leak *terminal.LeakError
				if !errors.As(err, &leak) || !strings.Contains(err.Error(), prog) {
					t.Errorf("Close: %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Error("Close waits for it")
			}
			if got := exitOf(other.Wait()); got != "SIGTERM" {
				t.Errorf("the other command: %s", got)
			}
			giveBack()
			select {
			case err := <-started:
				if !errors.Is(err, terminal.ErrClosed) {
					t.Errorf("Start: %v", err)
				}
			case <-time.After(60 * time.Second):
				t.Fatal("Start does not return")
			}
			if got := alive(prog + " 60"); len(got) > 0 {
				t.Errorf("it lives: %q", got)
			}
			eventually(t, func() error {
				now, n := held(t), runtime.NumGoroutine()
				return errorf(now == before && n <= goroutines, "%+v and %d goroutines, before %+v and %d", now, n, before, goroutines)
			})
		})
	}
}
