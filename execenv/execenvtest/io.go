package execenvtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/termbridge/termbridge/execenv"
)

func itoa(n int) string { return strconv.Itoa(n) }

var outputCases = []testCase{
	{"output/Output", "Output returns the standard output, and its error has the end of the standard error", caseOutput},
	{"output/CombinedOutput", "CombinedOutput returns both outputs", caseCombined},
	{"output/pipes", "StdoutPipe and StderrPipe are two streams, which Wait closes", casePipes},
	{"output/exclusion", "Output, CombinedOutput, Stdout, Stderr and the pipes exclude each other as those of os/exec do", caseExclusion},
	{"output/bytes", "all bytes arrive, unchanged", caseBytes},
	{"output/much", "nothing of much output is lost, on either stream", caseMuch},
}

func caseOutput(h *harness) {
	out, err := h.command(sh("echo out; echo why >&2; exit 3")).Output()
	e, ok := errors.AsType[*execenv.ExitError](err)
	if string(out) != "out\n" || !ok || e.ExitCode() != 3 || !strings.HasSuffix(string(e.Stderr), "why\n") {
		h.Errorf("got %q, %#v", out, err)
	}
	if out, err = h.command(sh("echo out; echo why >&2")).Output(); string(out) != "out\n" || err != nil {
		h.Errorf("got %q, %v", out, err)
	}
}

func caseCombined(h *harness) {
	out := h.must(sh("echo one; echo two >&2; echo three"))
	if out == "one\ntwo\nthree\n" || !h.c.Ordered && (out == "two\none\nthree\n" || out == "one\nthree\ntwo\n") {
		return
	}
	h.Errorf("got %s", show(out))
}

func casePipes(h *harness) {
	p := h.command(sh("read line; echo got $line; echo bad >&2"))
	in, err1 := p.StdinPipe()
	stdout, err2 := p.StdoutPipe()
	stderr, err3 := p.StderrPipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		h.Fatalf("pipes: %v", err)
	}
	h.within("Start", func() { err1 = p.Start() })
	if err1 != nil {
		h.Fatalf("Start: %v", err1)
	}
	if _, err := io.WriteString(in, "x\n"); err != nil {
		h.Errorf("Write: %v", err)
	}
	h.within("the process", func() {
		read := make(chan []byte)
		go func() { // joined below
			b, _ := io.ReadAll(stderr)
			read <- b
		}()
		out, err := io.ReadAll(stdout)
		bad := <-read
		if string(out) != "got x\n" || string(bad) != "bad\n" || err != nil {
			h.Errorf("got %q, %q, %v", out, bad, err)
		}
		if err := p.Wait(); err != nil {
			h.Errorf("Wait: %v", err)
		}
	})
	if _, err := in.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		h.Errorf("a write after Wait: %v, want os.ErrClosed", err)
	}
	if _, err := stdout.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		h.Errorf("a read after Wait: %v, want os.ErrClosed", err)
	}
}

func caseExclusion(h *harness) {
	type process interface {
		StdoutPipe() (io.ReadCloser, error)
		StderrPipe() (io.ReadCloser, error)
		Output() ([]byte, error)
		CombinedOutput() ([]byte, error)
	}
	for _, c := range []struct {
		name string
		use  func(p process) error
	}{
		{"StdoutPipe, Output", func(p process) error { p.StdoutPipe(); _, err := p.Output(); return err }},
		{"StdoutPipe, CombinedOutput", func(p process) error { p.StdoutPipe(); _, err := p.CombinedOutput(); return err }},
		{"StderrPipe, CombinedOutput", func(p process) error { p.StderrPipe(); _, err := p.CombinedOutput(); return err }},
		{"StderrPipe, Output", func(p process) error {
			stderr, err := p.StderrPipe()
			if err != nil {
				return err
			}
			go io.Copy(io.Discard, stderr) // ends with the process
			_, err = p.Output()
			return err
		}},
		{"Output", func(p process) error { _, err := p.Output(); return err }},
		{"CombinedOutput", func(p process) error { _, err := p.CombinedOutput(); return err }},
	} {
		want := c.use(exec.Command("sh", "-c", "echo; echo >&2"))
		got := c.use(h.command(sh("echo; echo >&2")))
		if (got == nil) != (want == nil) {
			h.Errorf("%s: %v; os/exec: %v", c.name, got, want)
		}
	}
	spec := sh("true")
	spec.Stdout = io.Discard
	if _, err := h.command(spec).StdoutPipe(); err == nil {
		h.Errorf("StdoutPipe with Spec.Stdout: no error")
	}
	// Nothing is lost by the error.
	p := h.command(sh("echo out"))
	stdout, _ := p.StdoutPipe()
	if _, err := p.Output(); err == nil || !strings.Contains(err.Error(), "after StdoutPipe") {
		h.Errorf("Output after StdoutPipe: %v", err)
	}
	h.within("the process", func() {
		if err := p.Start(); err != nil {
			h.Errorf("Start: %v", err)
			return
		}
		if out, err := io.ReadAll(stdout); string(out) != "out\n" || err != nil {
			h.Errorf("%q, %v", out, err)
		}
		_ = p.Wait()
	})
}

func caseBytes(h *harness) {
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	all = bytes.Repeat(all, 16)
	spec := sh("cat")
	spec.Stdin = bytes.NewReader(all)
	if out := h.must(spec); out != string(all) {
		h.Errorf("%d bytes of %d, or others: %s", len(out), len(all), show(out))
	}
	if out := h.must(sh("printf 'no line end'")); out != "no line end" {
		h.Errorf("an output without a line end: %s", show(out))
	}
}

func caseMuch(h *harness) {
	var out, bad bytes.Buffer
	spec := sh(`i=0; while [ $i -lt 2000 ]; do echo "$i aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; echo "$i b" >&2; i=$((i+1)); done`)
	spec.Stdout, spec.Stderr = &out, &bad
	var err error
	h.within("Run", func() { err = h.command(spec).Run() })
	if err != nil {
		h.Fatalf("Run: %v", err)
	}
	for name, b := range map[string]*bytes.Buffer{"stdout": &out, "stderr": &bad} {
		lines := strings.Split(b.String(), "\n")
		if len(lines) != 2001 || !strings.HasPrefix(lines[1999], "1999 ") {
			h.Errorf("%s: %d lines, the last %s", name, len(lines)-1, show(lines[max(0, len(lines)-2)]))
		}
	}
}

var inputCases = []testCase{
	{"input/Stdin", "Spec.Stdin is the standard input; without it there is none; nobody has to read it", caseStdin},
	{"input/StdinPipe", "what is written to StdinPipe arrives, and its Close is the end", caseStdinPipe},
}

func caseStdin(h *harness) {
	if out := h.must(sh("cat; echo end")); out != "end\n" {
		h.Errorf("without Stdin: %s", show(out))
	}
	spec := sh("cat")
	text := strings.Repeat("0123456789abcde\n", 20_000)
	spec.Stdin = strings.NewReader(text)
	if out := h.must(spec); out != text {
		h.Errorf("%d bytes arrived of %d", len(out), len(text))
	}
	spec = sh("exit 0")
	spec.Stdin = io.LimitReader(zeros{}, 1<<20)
	h.must(spec)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func caseStdinPipe(h *harness) {
	r := h.startWith(sh("while read -r line; do echo got $line; done; echo end"), true)
	for _, word := range []string{"one", "two"} {
		if _, err := io.WriteString(r.in, word+"\n"); err != nil {
			h.Fatalf("Write: %v", err)
		}
		r.until("got " + word + "\n")
	}
	if err := r.in.Close(); err != nil {
		h.Errorf("Close: %v", err)
	}
	if out := r.rest(); out != "got one\ngot two\nend\n" {
		h.Errorf("got %s", show(out))
	}
}

var exitCases = []testCase{
	{"exit/codes", "an exit code is the process's own", caseCodes},
	{"exit/signals", "a death by a signal has its name", caseSignals},
	{"exit/context", "a context that ends kills the tree, and is the reason", caseContext},
	{"exit/held", "Kill and a context end a Wait for an output that others hold open", caseHeld},
}

func caseCodes(h *harness) {
	for _, code := range []int{0, 1, 3, 125, 126, 127, 130, 137, 143, 255} {
		_, err := h.output(sh("exit " + itoa(code)))
		h.checkExit("exit "+itoa(code), exitOf(err), code, "")
	}
	_, err := h.output(sh("sh -c 'kill -9 $$'; exit $?"))
	h.checkExit("a shell's word for the signal of its child", exitOf(err), 137, "")
	if h.c.NoTerminal {
		return
	}
	for _, input := range []bool{true, false} {
		spec := sh("exit 143")
		spec.TTY = &execenv.TTY{Input: input}
		h.checkExit("exit 143 on a terminal", h.start(spec).exited(), 143, "")
	}
}

func caseSignals(h *harness) {
	for _, s := range []struct {
		name   string
		number int
	}{{"TERM", 15}, {"KILL", 9}, {"SEGV", 11}, {"USR1", 10}, {"HUP", 1}} {
		_, err := h.output(sh("kill -" + s.name + " $$"))
		h.checkExit("kill -"+s.name, exitOf(err), 128+s.number, "SIG"+s.name)
	}
}

func caseContext(h *harness) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(h.Context())
	p := h.c.Executor.Command(ctx, sh("sleep 300 & sleep 300"))
	var err error
	h.within("Start", func() { err = p.Start() })
	if err != nil {
		h.Fatalf("Start: %v", err)
	}
	cancel(cause)
	h.within("Wait", func() { err = p.Wait() })
	if exit := exitOf(err); !errors.Is(err, cause) || exit.Success() {
		h.Errorf("%v, want an exit by force, with the Cause of the context", err)
	}
	ctx, cancel = context.WithCancelCause(h.Context())
	h.within("Run", func() { err = h.c.Executor.Command(ctx, sh("exit 3")).Run() })
	cancel(cause)
	if errors.Is(err, cause) {
		h.Errorf("an exit of its own has the context's reason: %v", err)
	}
}

func caseHeld(h *harness) {
	for _, how := range []string{"Kill", "context"} {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(h.Context())
		spec := sh("sleep 300 & echo hi")
		var out bytes.Buffer
		spec.Stdout = &out
		p := h.c.Executor.Command(ctx, spec).(execenv.Session)
		var err error
		h.within("Start", func() { err = p.Start() })
		if err != nil {
			h.Fatalf("Start: %v", err)
		}
		h.within("the exit", func() { <-p.Exited() })
		if how == "Kill" {
			if err := p.Kill(); err != nil {
				h.Errorf("Kill: %v", err)
			}
		} else {
			cancel(cause)
		}
		h.within("Wait", func() { err = p.Wait() })
		if out.String() != "hi\n" {
			h.Errorf("%s: %q, %v", how, out.String(), err)
		}
		p.StopTree(0)
		cancel(nil)
	}
}
