package launcher_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

func TestExits(t *testing.T) {
	// The exit is the command's own: a code as it is, and a signal by name where
	// the shell of the place tells it from the code.
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			e := newExecutor(t, p.get(t), nil)
			for _, tc := range []struct {
				line string
				want terminal.Exit
			}{
				{"true", terminal.Exit{Code: new(0)}},
				{"exit 3", terminal.Exit{Code: new(3)}},
				{"exit 255", terminal.Exit{Code: new(255)}},
				{"exit 130", terminal.Exit{Code: new(130)}},
				{"exit 143", terminal.Exit{Code: new(143)}},
				{"kill -TERM $$", terminal.Exit{Signal: "SIGTERM"}},
				{"kill -KILL $$", terminal.Exit{Signal: "SIGKILL"}},
				{"kill -SEGV $$", terminal.Exit{Signal: "SIGSEGV"}},
			} {
				_, err := e.Command(t.Context(), sh(tc.line)).CombinedOutput()
				got := terminal.Exit{Code: new(0)}
				if exit, ok := errors.AsType[*execenv.ExitError](err); ok {
					got = exit.Exit
				} else if err != nil {
					t.Fatalf("%s: %v", tc.line, err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.line, diff)
				}
			}
		})
	}
}

func TestWords(t *testing.T) {
	// Words, variables and the directory arrive unchanged, whatever the login
	// shell thinks of them.
	words := []string{"a b", "$HOME", "*", "'", `"`, `\`, "!", "!!", "a\nb", "", "ä€😀", "\xff\x01\x1b", "`id`", "{a,b}", "~", "-n", "%s", `\n`}
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			e := newExecutor(t, p.get(t), nil)
			dir := t.TempDir() + "/a 'b' \\c! \nd"
			spec := sh(`printf '%s\0' "$PWD" "$V" "$@"`, words...)
			if _, err := e.Command(t.Context(), sh(`mkdir -p "$1"`, dir)).CombinedOutput(); err != nil {
				t.Fatal(err)
			}
			spec.Dir = dir
			value := "x'\\\n!$(id)\xfe"
			spec.Env = execenv.Env{}.With(map[string]string{"V": value})
			var want strings.Builder
			want.WriteString(dir + "\x00" + value + "\x00")
			for _, w := range words {
				want.WriteString(w + "\x00")
			}
			out, err := e.Command(t.Context(), spec).CombinedOutput()
			if err != nil || string(out) != want.String() {
				t.Errorf("pipes: got %s, %v\nwant %s", show(out), err, show([]byte(want.String())))
			}
			spec.Args[1] = `for w; do printf '%s' "$w" | od -An -tx1; done; test "$1" = "a b" && test "$V" = "$(printf 'x\047\134\n!$(id)\376')" && echo same`
			_, out = onTerminal(t, e, spec)
			if !bytesHasSuffix(out, "same\n") {
				t.Errorf("terminal: got %s", show(out))
			}
		})
	}
}

// onTerminal runs a process on a terminal.
func onTerminal(t *testing.T, e execenv.Executor, spec execenv.Spec) (terminal.Exit, []byte) {
	t.Helper()
	spec.TTY = &execenv.TTY{Size: terminal.Size{Rows: 24, Cols: 80}}
	p := e.Command(context.WithoutCancel(t.Context()), spec).(execenv.Session)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	tty, _ := p.Terminal()
	var out []byte
	buf := make([]byte, 4096)
	for {
		n, err := tty.Read(buf)
		out = append(out, buf[:n]...)
		if err != nil {
			break
		}
	}
	_ = p.Wait()
	return p.Exit(), out
}

func bytesHasSuffix(b []byte, suffix string) bool {
	return len(b) >= len(suffix) && string(b[len(b)-len(suffix):]) == suffix
}
