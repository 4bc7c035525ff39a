package localterm_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

func write(t *testing.T, term terminal.Terminal, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if n, err := term.WriteInput(ctx, text); n != len(text) || err != nil {
		t.Fatalf("WriteInput(%.20q) = %d, %v; want %d", text, n, err, len(text))
	}
}

func TestInput(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		term := start(t, m, terminal.Command{Line: `while read -r x; do echo "got $x"; done`, TTY: tty, Stdin: true})
		write(t, term, "")
		write(t, term, "one\ntw")
		write(t, term, "o\n")
		read(t, term, "got one\n")
		read(t, term, "got two\n")
		if _, err := term.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if n, err := term.WriteInput(t.Context(), "x\n"); n != 0 || !errors.Is(err, terminal.ErrEnded) {
			t.Errorf("after the end: %d, %v", n, err)
		}

		none := start(t, m, terminal.Command{Line: "cat", TTY: tty})
		if _, err := none.WriteInput(t.Context(), "x"); !errors.Is(err, terminal.ErrNoInput) {
			t.Errorf("without Stdin: %v", err)
		}
		if info := wait(t, none); !info.Exit.Success() {
			t.Errorf("cat without input: %s", info.Exit)
		}
	})
}

// Keys of the terminal do what they do in one.
func TestKeys(t *testing.T) {
	m := newManager(t, nil)
	cat := start(t, m, terminal.Command{Line: "echo ready; exec cat", TTY: true, Stdin: true})
	read(t, cat, "ready\n")
	write(t, cat, "line\n\x04")
	if info := wait(t, cat); !info.Exit.Success() {
		t.Errorf("Ctrl-D: ended as %s, %s", info.Outcome, info.Exit)
	}
	cat = start(t, m, terminal.Command{Line: "echo ready; exec cat", TTY: true, Stdin: true})
	read(t, cat, "ready\n")
	write(t, cat, "\x03")
	if info := wait(t, cat); info.Outcome != terminal.Signalled || info.Exit.Signal != "SIGINT" {
		t.Errorf("Ctrl-C: ended as %s, %s", info.Outcome, info.Exit)
	}
}

// A program that reads late gets every byte.
func TestInputToALateReader(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		file := filepath.Join(t.TempDir(), "in")
		text := strings.Repeat("0123456789abcdef", 64<<10-1) + "fifteen bytes..\n" // 1 MiB
		line := `stty raw -echo; echo ready; sleep 0.3; exec head -c 1048576 >"$0"`
		if !tty {
			line = strings.TrimPrefix(line, "stty raw -echo; ")
		}
		term := start(t, m, terminal.Command{Args: []string{"sh", "-c", line, file}, TTY: tty, Stdin: true})
		read(t, term, "ready")
		write(t, term, text)
		if info := wait(t, term); !info.Exit.Success() {
			t.Errorf("ended as %s: %q", info.Exit, output(t, term))
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != text {
			t.Errorf("%d bytes arrived of %d, %v", len(got), len(text), err)
		}
	})
}

// The context ends a blocked write at once, the count is what was taken, and
// the next write goes on behind it.
func TestInputBlocked(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		file := filepath.Join(t.TempDir(), "in")
		line := `stty raw -echo; echo ready; while ! [ -e "$0.go" ]; do sleep 0.02; done; exec cat >"$0"`
		if !tty {
			line = strings.TrimPrefix(line, "stty raw -echo; ")
		}
		term := start(t, m, terminal.Command{Args: []string{"sh", "-c", line, file}, TTY: tty, Stdin: true})
		read(t, term, "ready")
		big := strings.Repeat("0123456789abcdef", 64<<10)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
		taken, err := term.WriteInput(ctx, big)
		if !errors.Is(err, cause) || taken <= 0 || taken >= len(big) {
			t.Fatalf("a blocked write: %d, %v; want the Cause and a part", taken, err)
		}
		// While one write waits, a second queues, and its context ends only it.
		// A short write need not wait: the kernel may find room for more later.
		first := big + "first."
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			if n, err := term.WriteInput(ctx, first); n != len(first) || err != nil {
				t.Errorf("the write that waits: %d, %v", n, err)
			}
		})
		time.Sleep(50 * time.Millisecond)
		short, cancelShort := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancelShort()
		if n, err := term.WriteInput(short, "never"); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the write in the queue: %d, %v", n, err)
		}
		if err := os.WriteFile(file+".go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		write(t, term, "second.")
		want := big[:taken] + first + "second."
		var got []byte
		for deadline := time.Now().Add(bound); time.Now().Before(deadline) && len(got) < len(want); time.Sleep(20 * time.Millisecond) {
			got, _ = os.ReadFile(file)
		}
		if string(got) != want {
			t.Errorf("%d bytes arrived that end in %q, want %d that end in %q", len(got), tail(string(got), 30), len(want), tail(want, 30))
		}
	})
}

// startUnread starts a command that never reads its input, and waits until it is ready.
func startUnread(t *testing.T, m *localterm.Manager, tty bool) terminal.Terminal {
	t.Helper()
	line := "stty raw -echo; echo ready; exec sleep 300"
	if !tty {
		line = strings.TrimPrefix(line, "stty raw -echo; ")
	}
	term := start(t, m, terminal.Command{Line: line, TTY: tty, Stdin: true})
	read(t, term, "ready")
	return term
}

// The end of the command ends a blocked write.
func TestInputBlockedByTheEnd(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		term := startUnread(t, m, tty)
		done := make(chan error, 1)
		go func() {
			_, err := term.WriteInput(t.Context(), strings.Repeat("x", 1<<20))
			done <- err
		}()
		time.Sleep(50 * time.Millisecond)
		if _, err := term.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case err := <-done:
			if !errors.Is(err, terminal.ErrEnded) {
				t.Errorf("the write ended with %v, want ErrEnded", err)
			}
		case <-time.After(bound):
			t.Error("the write goes on after the end")
		}
	})
}

// The kernel would cut a long line silently, however many writes it comes in.
func TestInputLineTooLong(t *testing.T) {
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{Line: "stty -echo; echo ready; head -n1 | wc -c", TTY: true, Stdin: true})
	read(t, term, "ready")
	if n, err := term.WriteInput(t.Context(), strings.Repeat("x", 5000)+"\n"); n != 0 || !errors.Is(err, terminal.ErrLineTooLong) {
		t.Errorf("a long line: %d, %v", n, err)
	}
	write(t, term, strings.Repeat("x", 4000))
	if n, err := term.WriteInput(t.Context(), strings.Repeat("x", 96)); n != 0 || !errors.Is(err, terminal.ErrLineTooLong) {
		t.Errorf("a long line in two writes: %d, %v", n, err)
	}
	write(t, term, strings.Repeat("x", 95)+"\n")
	read(t, term, "4096")
}

// Two writers do not mix.
func TestInputOfTwo(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		line := "stty -echo; echo ready; exec cat"
		if !tty {
			line = strings.TrimPrefix(line, "stty -echo; ")
		}
		term := start(t, m, terminal.Command{Line: line, TTY: tty, Stdin: true})
		read(t, term, "ready\n")
		a, b := strings.Repeat("a", 3000)+"\n", strings.Repeat("b", 3000)+"\n"
		var wg sync.WaitGroup
		for _, s := range []string{a, b} {
			wg.Go(func() {
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), bound)
					if n, err := term.WriteInput(ctx, s); n != len(s) || err != nil {
						t.Errorf("WriteInput = %d, %v", n, err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		write(t, term, "end\n")
		got := strings.TrimSuffix(strings.TrimPrefix(read(t, term, "end\n"), "ready\n"), "end\n")
		if n := strings.Count(got, a) + strings.Count(got, b); n != 40 || len(got) != 40*len(a) {
			t.Errorf("%d whole writes in %d bytes, want 40", n, len(got))
		}
	})
}

// A program that closed its input says so, and it has not ended.
func TestInputClosedByTheProgram(t *testing.T) {
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{Line: "exec <&-; echo ready; exec sleep 300", Stdin: true})
	read(t, term, "ready")
	if _, err := term.WriteInput(t.Context(), "x"); err == nil || errors.Is(err, terminal.ErrEnded) {
		t.Errorf("WriteInput = %v, want that nobody reads", err)
	}
}
