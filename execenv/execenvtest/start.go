package execenvtest

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

var startCases = []testCase{
	{"start/arguments", "arguments, variables and the directory arrive unchanged", caseArguments},
	{"start/environment", "what Env.With sets is set, and replaces what is there", caseEnvironment},
	{"start/errors", "what cannot be started is a *StartError with its reason", caseStartErrors},
	{"start/once", "Start, Wait and the pipe methods may be called once, and in their order", caseOnce},
	{"start/cancelled", "a context that has ended starts nothing", caseCancelled},
	{"start/concurrent", "any number of processes run at one time", caseConcurrent},
}

// odd are arguments that a shell, or a program on the way, may change.
var odd = []string{"a b", "$HOME", "*", "'", `"`, `\`, "!", "!!", "a\nb", "", "ä€😀", "\xff\x01\x1b", "`id`", "{a,b}", "~", "-n", "%s", `\n`, "#", "a=b", " ", "\t", ";", "&"}

func caseArguments(h *harness) {
	dir := h.dir() + "/a 'b' \\c! \nd"
	h.must(sh(`mkdir -p "$1"`, dir))
	value := "x'\\\n!$(id)\xfe"
	spec := sh(`printf '%s\0' "$(pwd)" "$V" "$@"`, odd...)
	spec.Dir, spec.Env = dir, execenv.Env{}.With(map[string]string{"V": value})
	want := strings.Join(append([]string{dir, value}, odd...), "\x00") + "\x00"
	if out := h.must(spec); !strings.HasSuffix(out, want) {
		h.Errorf("got %s\nwant %s", show(out), show(want))
	}
	if h.c.NoTerminal {
		return
	}
	// A terminal changes what is shown; so the place compares.
	spec.Args = append([]string{"-c", `[ "$V" = "$W" ] && [ "$1" = "a b" ] && [ "$9" = "a
b" ] && [ $# = "$N" ] && echo same`, "sh"}, odd...)
	spec.Env = execenv.Env{}.With(map[string]string{"V": value, "W": value, "N": itoa(len(odd))})
	spec.TTY = &execenv.TTY{Size: terminal.Size{}.OrDefault()}
	if out := h.start(spec).rest(); out != "same\n" {
		h.Errorf("on a terminal: %s", show(out))
	}
}

func caseEnvironment(h *harness) {
	spec := sh("env")
	spec.Env = execenv.Env{}.With(map[string]string{"EXECENVTEST": "a", "LANG": "tlh", "with.dot": "b"})
	out := "\n" + h.must(spec)
	for _, want := range []string{"EXECENVTEST=a", "LANG=tlh", "PATH="} {
		if !strings.Contains(out, "\n"+want) {
			h.Errorf("no %s in the environment %s", want, show(out))
		}
	}
	if out := h.must(sh("env")); strings.Contains(out, "EXECENVTEST") {
		h.Errorf("the environment of one process has the variables of another: %s", show(out))
	}
}

func caseStartErrors(h *harness) {
	dir := h.dir()
	h.must(sh(`echo text >"$1/text"; chmod 644 "$1/text"`, dir))
	for _, c := range []struct {
		name string
		spec execenv.Spec
		want error
	}{
		{"a missing directory", execenv.Spec{Path: "true", Dir: dir + "/none"}, execenv.ErrNoDir},
		{"a file for a directory", execenv.Spec{Path: "true", Dir: dir + "/text"}, execenv.ErrNoDir},
		{"no such command", execenv.Spec{Path: "no-such-command-x"}, execenv.ErrNoCommand},
		{"no such file", execenv.Spec{Path: dir + "/none"}, execenv.ErrNoCommand},
		{"no program", execenv.Spec{}, execenv.ErrNoCommand},
		{"not executable", execenv.Spec{Path: dir + "/text"}, execenv.ErrNotExecutable},
		{"a directory", execenv.Spec{Path: dir}, execenv.ErrIsDirectory},
		{"a NUL byte", execenv.Spec{Path: "true", Args: []string{"a\x00b"}}, syscall.EINVAL},
		{"a bad variable", execenv.Spec{Path: "true", Env: execenv.Env{}.With(map[string]string{"A=B": ""})}, syscall.EINVAL},
		{"a terminal and Stdout", execenv.Spec{Path: "true", TTY: &execenv.TTY{}, Stdout: io.Discard}, syscall.EINVAL},
	} {
		p := h.c.Executor.Command(h.Context(), c.spec)
		var err error
		h.within("Start", func() { err = p.Start() })
		e, ok := errors.AsType[*execenv.StartError](err)
		if !ok || !errors.Is(err, c.want) || e.Path != c.spec.Path || e.Dir != c.spec.Dir {
			h.Errorf("%s: %v (%T), want a *StartError that is %q", c.name, err, err, c.want)
		}
		if err := p.Kill(); err != nil {
			h.Errorf("%s: Kill after a failed start: %v", c.name, err)
		}
		if err := p.Wait(); err == nil {
			h.Errorf("%s: Wait after a failed start: no error", c.name)
		}
	}
}

func caseOnce(h *harness) {
	p := h.command(sh("read line; exit 0"))
	if p.ID() != "" || p.Exit().Known() {
		h.Errorf("before Start: ID %q, exit %v", p.ID(), p.Exit())
	}
	if left := p.StopTree(0); left != nil {
		h.Errorf("StopTree before Start: %v, want nil", left)
	}
	if _, ok := p.Terminal(); ok {
		h.Errorf("a terminal without Spec.TTY")
	}
	if err := p.Kill(); err != nil {
		h.Errorf("Kill before Start: %v", err)
	}
	if err := p.Signal(syscall.SIGTERM); err == nil {
		h.Errorf("Signal before Start: no error")
	}
	if err := p.Wait(); err == nil {
		h.Errorf("Wait before Start: no error")
	}
	in, err := p.StdinPipe()
	if err != nil {
		h.Fatalf("StdinPipe: %v", err)
	}
	if _, err := p.StdinPipe(); err == nil {
		h.Errorf("a second StdinPipe: no error")
	}
	h.within("Start", func() { err = p.Start() })
	if err != nil {
		h.Fatalf("Start: %v", err)
	}
	if p.ID() == "" {
		h.Errorf("no ID after Start")
	}
	if err := p.Start(); err == nil {
		h.Errorf("a second Start: no error")
	}
	if _, err := p.StdoutPipe(); err == nil {
		h.Errorf("StdoutPipe after Start: no error")
	}
	in.Close()
	h.within("Wait", func() { err = p.Wait() })
	if err != nil {
		h.Errorf("Wait: %v", err)
	}
	if err := p.Wait(); err == nil {
		h.Errorf("a second Wait: no error")
	}
	if h.c.NoTerminal {
		return
	}
	p = h.command(execenv.Spec{Path: "true", TTY: &execenv.TTY{}})
	if _, err := p.StdoutPipe(); err == nil {
		h.Errorf("StdoutPipe of a process with a terminal: no error")
	}
}

func caseCancelled(h *harness) {
	dir := h.dir()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(h.Context())
	cancel(cause)
	var err error
	h.within("Run", func() { err = h.c.Executor.Command(ctx, sh(`touch "$1/ran"`, dir)).Run() })
	if _, ok := errors.AsType[*execenv.StartError](err); !ok || !errors.Is(err, cause) {
		h.Errorf("%v, want a *StartError with the Cause of the context", err)
	}
	if out := h.must(sh(`ls "$1"`, dir)); out != "" {
		h.Errorf("it ran")
	}
}

func caseConcurrent(h *harness) {
	results := make(chan error)
	const n = 12
	for i := range n {
		go func() { // joined below
			out, err := h.c.Executor.Command(h.Context(), sh("echo $1; exit $1", itoa(i))).Output()
			if code := exitOf(err).Code; code == nil || *code != i || string(out) != itoa(i)+"\n" {
				results <- errors.New(itoa(i) + ": " + show(string(out)) + ", " + exitOf(err).String())
				return
			}
			results <- nil
		}()
	}
	h.within("all of them", func() {
		for range n {
			if err := <-results; err != nil {
				h.Errorf("%v", err)
			}
		}
	})
}
