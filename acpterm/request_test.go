package acpterm

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// Whatever a client makes of the portable form, with whatever shell, the command
// is run once, as it is, and its input is empty although the client leaves it open.
func TestPortableFormInRealShells(t *testing.T) {
	t.Parallel()
	for _, group := range []bool{false, true} {
		testForm(t, Profile{Group: group})
	}
}

func testForm(t *testing.T, p Profile) {
	for _, test := range []struct {
		name   string
		cmd    terminal.Command
		output string
		code   int
	}{
		{"a program that reads", terminal.Command{Line: "cat; echo end"}, "end\n", 0},
		{"words that read", terminal.Command{Args: []string{"cat", "-"}}, "", 0},
		{"words", terminal.Command{Args: []string{"printf", "<%s>", "a b", "$HOME", "*", `it's`, ""}}, `<a b><$HOME><*><it's><>`, 0},
		{"another shell", terminal.Command{Line: "cat; [[ a == a ]] && echo end", Shell: "bash"}, "end\n", 0},
		{"a code", terminal.Command{Line: "(exit 3)"}, "", 3},
		{"a pipe that reads", terminal.Command{Line: "echo a | cat"}, "a\n", 0},
		{"a here-document", terminal.Command{Line: "cat <<END\nin\nEND"}, "in\n", 0},
		{"an input of its own", terminal.Command{Line: "cat < /dev/null; printf x | { read y; echo $y; }"}, "x\n", 0},
		{"a comment", terminal.Command{Line: "echo a # b"}, "a\n", 0},
		{"input once more", terminal.Command{Line: "read x; echo $?"}, "1\n", 0},
	} {
		t.Run(fmt.Sprintf("%s, group %v", test.name, p.Group), func(t *testing.T) {
			command, args := p.words(test.cmd)
			pasted := strings.Join(append([]string{command}, args...), " ")
			for _, shell := range realShells(t) {
				for how, argv := range map[string][]string{
					"executed":                   append(append([]string{}, shell...), args...),
					"pasted":                     append(append([]string{}, shell...), "-c", pasted),
					"pasted in parentheses":      append(append([]string{}, shell...), "-c", "("+pasted+")"),
					"pasted with an empty input": append(append([]string{}, shell...), "-c", "("+pasted+") </dev/null"),
				} {
					output, code := runReal(t, argv)
					if output != test.output || code != test.code {
						t.Errorf("%s by %q: %q, code %d; want %q, %d", how, shell, output, code, test.output, test.code)
					}
				}
			}
		})
	}
}

// The SIGTERM of a client that knows the shell only reaches all of a line that is in
// a group of its own, and the shell exits when that has ended, as it did.
func TestGroupInRealShells(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		if os.Getenv("TERMBRIDGE_REAL") != "" {
			t.Fatal("TERMBRIDGE_REAL is set, and there is no setsid")
		}
		t.Skip("without setsid, which is not installed, a line has no group of its own")
	}
	command, args := Profile{Group: true}.words(terminal.Command{Line: "trap 'echo bye; exit 7' TERM; sh -c 'echo ready; sleep 60; echo late' & wait"})
	pasted := strings.Join(append([]string{command}, args...), " ")
	slowly := slices.Clone(args) // the signal comes before the shell knows whom it has started
	if last := &slowly[len(slowly)-1]; !strings.Contains(*last, "& p=$!;") {
		t.Fatalf("the words are %q", slowly)
	} else {
		*last = strings.Replace(*last, "& p=$!;", "& sleep 0.5;p=$!;", 1)
	}
	for _, shell := range realShells(t) {
		for how, argv := range map[string][]string{
			"executed": append(append([]string{}, shell...), args...),
			"pasted":   append(append([]string{}, shell...), "-c", pasted),
			"slowly":   append(append([]string{}, shell...), slowly...),
		} {
			cmd := exec.Command(argv[0], argv[1:]...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ready := make([]byte, len("ready\n"))
			if _, err := io.ReadFull(out, ready); err != nil {
				t.Fatalf("%s by %q: %v", how, shell, err)
			}
			hung := time.AfterFunc(20*time.Second, func() {
				t.Errorf("%s by %q: it does not end", how, shell)
				cmd.Process.Kill()
			})
			cmd.Process.Signal(syscall.SIGTERM)
			rest, _ := io.ReadAll(out) // to the end: nobody holds it any more
			cmd.Wait()
			hung.Stop()
			if string(rest) != "bye\n" || cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("%s by %q: %q, %v; want bye, and code 7", how, shell, rest, cmd.ProcessState)
			}
		}
	}
}

// realShells returns the shells of this machine, as argv.
func realShells(t *testing.T) [][]string {
	var found [][]string
	for _, shell := range []string{"sh", "dash", "bash", "zsh", "mksh"} {
		words := strings.Fields(shell)
		if _, err := exec.LookPath(words[0]); err == nil {
			found = append(found, words)
		} else if os.Getenv("TERMBRIDGE_REAL") != "" {
			t.Errorf("TERMBRIDGE_REAL is set, and there is no %s", words[0])
		} else {
			t.Logf("without %s, which is not installed", words[0])
		}
	}
	if found == nil {
		t.Skip("no POSIX shell is installed")
	}
	return found
}

// runReal runs a program whose input is open and silent.
func runReal(t *testing.T, argv []string) (output string, code int) {
	t.Helper()
	r, w := io.Pipe()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = r
	cmd.WaitDelay = time.Second
	var b strings.Builder
	cmd.Stdout, cmd.Stderr = &b, &b
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(20*time.Second, func() {
		t.Errorf("%q does not end", argv)
		cmd.Process.Kill()
	})
	state, err := cmd.Process.Wait()
	if err != nil {
		t.Fatal(err)
	}
	hung.Stop()
	w.Close()
	cmd.Wait()
	return b.String(), state.ExitCode()
}
