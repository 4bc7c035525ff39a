package execenvtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

var signalCases = []testCase{
	{"signal/process", "Signal reaches the process, and os.ErrProcessDone says that it has exited", caseSignal},
	{"signal/handled", "a process may handle a signal", caseHandled},
	{"signal/group", "SignalGroup reaches the children of the process", caseGroup},
	{"signal/kill", "Kill ends the process by force, as often as it is called", caseKill},
}

func caseSignal(h *harness) {
	r := h.start(sh("echo ready; exec sleep 300"))
	r.until("ready")
	if err := r.Signal(syscall.SIGTERM); err != nil {
		h.Errorf("Signal: %v", err)
	}
	h.checkExit("SIGTERM", r.exited(), 143, "SIGTERM")
	for _, err := range []error{r.Signal(syscall.SIGTERM), r.SignalGroup(syscall.SIGTERM)} {
		if !errors.Is(err, os.ErrProcessDone) {
			h.Errorf("after the exit: %v, want os.ErrProcessDone", err)
		}
	}
}

func caseHandled(h *harness) {
	r := h.start(sh(`trap 'echo caught; exit 7' HUP; echo ready; while :; do sleep 0.05; done`))
	r.until("ready")
	if err := r.Signal(syscall.SIGHUP); err != nil {
		h.Errorf("Signal: %v", err)
	}
	h.checkExit("a handler", r.exited(), 7, "")
	if out := r.rest(); out != "ready\ncaught\n" {
		h.Errorf("got %s", show(out))
	}
}

func caseGroup(h *harness) {
	r := h.start(sh(`trap : TERM; sh -c 'trap "echo child; exit" TERM; echo ready; while :; do sleep 0.05; done'; echo over`))
	r.until("ready")
	if err := r.SignalGroup(syscall.SIGTERM); err != nil {
		h.Errorf("SignalGroup: %v", err)
	}
	if out := r.rest(); !strings.HasSuffix(out, "child\nover\n") {
		h.Errorf("the child was not reached: %s", show(out))
	}
}

func caseKill(h *harness) {
	r := h.start(sh("trap '' TERM INT HUP; echo ready; while :; do sleep 0.1; done"))
	r.until("ready")
	for range 3 {
		if err := r.Kill(); err != nil {
			h.Errorf("Kill: %v", err)
		}
	}
	h.checkExit("Kill", r.exited(), 137, "SIGKILL")
	if err := r.Kill(); err != nil {
		h.Errorf("Kill after the exit: %v", err)
	}
	h.within("Wait", func() { _ = r.Wait() })
	if err := r.Kill(); err != nil {
		h.Errorf("Kill after Wait: %v", err)
	}
}

var treeCases = []testCase{
	{"tree/grace", "StopTree asks first, and waits", caseGrace},
	{"tree/force", "StopTree kills what ignores it, with all that it started", caseForce},
	{"tree/session", "StopTree ends what has left the session", caseLeftSession},
	{"tree/at once", "many calls of StopTree end together", caseAtOnce},
	{"tree/late", "StopTree after a natural exit ends what was left", caseLate},
	{"tree/survivors", "Survivors names what runs on after the exit, and Wait does not end it", caseSurvivors},
}

func caseGrace(h *harness) {
	r := h.start(sh(`trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.05; done`))
	r.until("ready")
	var left []terminal.Proc
	h.within("StopTree", func() { left = r.StopTree(20 * time.Second) })
	h.checkExit("a handler", r.exited(), 7, "")
	h.checkLeft(left)
	if out := r.rest(); !strings.HasSuffix(out, "asked\n") {
		h.Errorf("got %s", show(out))
	}
	h.within("StopTree", func() { left = r.StopTree(0) })
	h.checkLeft(left)
}

// checkLeft fails the case unless nothing is left, and that is known.
func (h *harness) checkLeft(left []terminal.Proc) {
	h.Helper()
	if len(left) > 0 || left == nil && !h.c.Blind {
		h.Errorf("left: %#v, want nothing, and known", left)
	}
}

// beating is a line that appends to a file as long as it lives, and prints
// nothing.
const beating = `while :; do echo x >>"$1/beat"; sleep 0.05; done`

// checkDead fails the case while something writes to the file of beating.
func (h *harness) checkDead(dir string) {
	h.Helper()
	h.eventually(func() error {
		out := h.must(sh(`wc -c <"$1/beat"; sleep 0.5; wc -c <"$1/beat"`, dir))
		if f := strings.Fields(out); len(f) != 2 || f[0] != f[1] {
			return fmt.Errorf("it lives: its file grows: %q", f)
		}
		return nil
	})
}

// beats waits until the file of beating is there.
func (h *harness) beats(dir string) {
	h.Helper()
	h.must(sh(`i=0; while [ $i -lt 300 ]; do [ -s "$1/beat" ] && exit 0; sleep 0.1; i=$((i+1)); done; exit 1`, dir))
}

func caseForce(h *harness) {
	dir := h.dir()
	r := h.start(sh(`trap '' TERM INT HUP; (`+beating+`) & while :; do sleep 0.1; done`, dir))
	h.beats(dir)
	var left []terminal.Proc
	h.within("StopTree", func() { left = r.StopTree(200 * time.Millisecond) })
	h.checkLeft(left)
	if !h.c.Blind {
		h.checkExit("StopTree", r.exited(), 137, "SIGKILL")
	}
	h.checkDead(dir)
}

func caseLeftSession(h *harness) {
	if h.c.Blind {
		h.Skipf("the place cannot say what it runs")
	}
	h.has("setsid")
	dir := h.dir()
	r := h.start(sh(`(setsid sh -c '`+beating+`' sh "$1" </dev/null >/dev/null 2>&1 &); sleep 300`, dir))
	h.beats(dir)
	var left []terminal.Proc
	h.within("StopTree", func() { left = r.StopTree(time.Second) })
	h.checkLeft(left)
	h.checkDead(dir)
}

func caseAtOnce(h *harness) {
	r := h.start(sh("trap '' TERM; echo ready; while :; do sleep 0.1; done"))
	r.until("ready")
	h.within("all of them", func() {
		var calls sync.WaitGroup
		for i := range 4 {
			calls.Go(func() {
				grace := 300 * time.Millisecond
				if i == 1 {
					grace = 100 * time.Millisecond
				}
				left := r.StopTree(grace)
				if len(left) > 0 {
					h.Errorf("left: %v", left)
				}
				select {
				case <-r.Exited():
				default:
					h.Errorf("StopTree has returned before the exit")
				}
			})
		}
		calls.Wait()
	})
}

func caseLate(h *harness) {
	if h.c.Alone || h.c.Blind {
		h.Skipf("what is left ends with the process, or is not known")
	}
	dir := h.dir()
	r := h.start(sh(`(`+beating+`) & echo over`, dir))
	h.checkExit("the process", r.exited(), 0, "")
	h.beats(dir)
	var left []terminal.Proc
	h.within("StopTree", func() { left = r.StopTree(5 * time.Second) })
	h.checkLeft(left)
	h.checkDead(dir)
}

func caseSurvivors(h *harness) {
	r := h.start(sh(`echo over`))
	r.exited()
	if got := r.Survivors(); len(got) > 0 {
		h.Errorf("a process that left nothing: %v", got)
	}
	dir := h.dir()
	r = h.start(sh(`(`+beating+`) & while [ ! -s "$1/beat" ]; do sleep 0.01; done; echo over`, dir))
	h.checkExit("the process", r.exited(), 0, "")
	switch {
	case h.c.Alone:
		h.checkDead(dir)
		return
	case !h.c.Blind:
		var got []terminal.Proc
		h.within("Survivors", func() { got = r.Survivors() })
		if len(got) == 0 || got[0].PID == 0 || got[0].Command == "" {
			h.Errorf("survivors: %+v, want them by name", got)
		}
	}
	h.within("Wait", func() {
		if err := r.Wait(); err != nil {
			h.Errorf("Wait: %v", err)
		}
	})
	if f := strings.Fields(h.must(sh(`wc -c <"$1/beat"; sleep 1; wc -c <"$1/beat"`, dir))); len(f) != 2 || f[0] == f[1] {
		h.Errorf("after Wait it does not run any more: %q", f)
	}
	h.within("StopTree", func() { r.StopTree(0) })
	if !h.c.Blind {
		h.checkDead(dir)
	}
}

var terminalCases = []testCase{
	{"terminal/size", "a terminal has the size of the Spec, and Resize tells the process, also of the last of three at once", caseSize},
	{"terminal/input", "a terminal with input echoes, edits lines and ends input by Ctrl-D", caseTerminalInput},
	{"terminal/keys", "every key reaches the process as it is typed, whatever the launcher's own keys are", caseKeys},
	{"terminal/interrupt", "Ctrl-C and SignalGroup reach the foreground", caseInterrupt},
	{"terminal/no input", "a terminal without input is an output only, and reading it meets the end", caseNoInput},
	{"terminal/output", "all that is written to a terminal is read, with LF at the ends of lines", caseTerminalOutput},
	{"terminal/close", "Close ends a Read, and a write deadline a Write", caseTerminalClose},
	{"terminal/stop", "StopTree ends what runs on a terminal", caseTerminalStop},
	{"terminal/state", "InputState of a process that has exited is Finished", caseState},
}

// tty is sh on a terminal.
func (h *harness) tty(line string, input bool, args ...string) *running {
	h.Helper()
	if h.c.NoTerminal {
		h.Skipf("the place has no terminals")
	}
	spec := sh(line, args...)
	spec.TTY = &execenv.TTY{Size: terminal.Size{Rows: 7, Cols: 33}, Input: input}
	return h.start(spec)
}

func caseSize(h *harness) {
	h.has("stty")
	for _, input := range []bool{true, false} {
		r := h.tty(`trap 'stty size <&1' WINCH; [ -t 1 ] && [ -t 2 ] && stty size <&1; echo ready; i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done`, input)
		r.until("7 33\nready")
		for _, size := range []terminal.Size{{Rows: 9, Cols: 40}, {Rows: 10, Cols: 42}, {Rows: 11, Cols: 44}} {
			if err := r.term.Resize(size); err != nil {
				h.Errorf("Resize: %v", err)
			}
		}
		r.until("11 44")
		h.within("StopTree", func() { r.StopTree(0) })
	}
}

func caseTerminalInput(h *harness) {
	r := h.tty(`[ -t 0 ] && echo tty; cat; echo end`, true)
	r.until("tty\n")
	io.WriteString(r.term, "hé\x7fi\n") // a whole character is erased
	r.until("hi\nhi\n"[3:])             // what cat writes
	io.WriteString(r.term, "\x04")
	if out := r.rest(); !strings.HasSuffix(out, "hi\nend\n") {
		h.Errorf("got %s", show(out))
	}
	h.checkExit("the process", r.exited(), 0, "")
	if limit := r.term.CanonicalLimit(); limit < 0 {
		h.Errorf("CanonicalLimit: %d", limit)
	}
}

func caseKeys(h *harness) {
	h.has("stty", "dd", "od")
	r := h.tty(`stty raw -echo; echo ready; i=0; while [ $i -lt 7 ]; do dd bs=1 count=1 2>/dev/null | od -An -tx1; i=$((i+1)); done`, true)
	r.until("ready")
	// Those of docker to detach, of telnet and of ssh to leave, of a terminal to stop.
	for _, key := range []string{"\x10", "\x11", "\x1d", "\r", "~", ".", "\x13"} {
		io.WriteString(r.term, key)
		r.until(fmt.Sprintf(" %02x", key))
	}
	h.checkExit("the process", r.exited(), 0, "")
}

func caseInterrupt(h *harness) {
	for _, how := range []string{"key", "SignalGroup"} {
		r := h.tty(`sh -c 'trap "echo caught; exit 5" INT; echo ready; while :; do sleep 0.05; done'; echo child $?`, true)
		r.until("ready")
		if how == "key" {
			io.WriteString(r.term, "\x03")
		} else if err := r.SignalGroup(syscall.SIGINT); err != nil {
			h.Errorf("SignalGroup: %v", err)
		}
		r.until("caught")
		r.exited()
	}
}

func caseNoInput(h *harness) {
	r := h.tty(`[ -t 1 ] && echo out; [ -t 0 ] || echo no input; cat; echo end`, false)
	if out := r.rest(); out != "out\nno input\nend\n" {
		h.Errorf("got %s", show(out))
	}
	h.checkExit("the process", r.exited(), 0, "")
}

func caseTerminalOutput(h *harness) {
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&want, "%d aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", i)
	}
	r := h.tty(`i=0; while [ $i -lt 1000 ]; do echo "$i aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; i=$((i+1)); done`, false)
	if out := r.rest(); out != want.String() {
		h.Errorf("%d bytes of %d, or others; the end: %s", len(out), want.Len(), show(out[max(0, len(out)-100):]))
	}
	if r.err != nil {
		h.Errorf("the end of the output: %v, want io.EOF", r.err)
	}
}

func caseTerminalClose(h *harness) {
	r := h.tty("echo ready; sleep 300", true)
	r.until("ready")
	if err := r.term.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
		h.Errorf("SetWriteDeadline: %v", err)
	}
	if _, err := io.WriteString(r.term, strings.Repeat("x\n", 1<<16)); !errors.Is(err, os.ErrDeadlineExceeded) {
		h.Errorf("a write after its deadline: %v", err)
	}
	if err := r.term.Close(); err != nil {
		h.Errorf("Close: %v", err)
	}
	h.within("Read", func() { <-r.done })
	if !errors.Is(r.err, os.ErrClosed) {
		h.Errorf("a read after Close: %v, want os.ErrClosed", r.err)
	}
}

func caseTerminalStop(h *harness) {
	for _, input := range []bool{true, false} {
		dir := h.dir()
		r := h.tty(`(`+beating+`) & trap '' TERM HUP; while :; do sleep 0.1; done`, input, dir)
		h.beats(dir)
		var left []terminal.Proc
		h.within("StopTree", func() { left = r.StopTree(200 * time.Millisecond) })
		h.checkLeft(left)
		h.checkDead(dir)
	}
}

func caseState(h *harness) {
	r := h.start(sh("echo over"))
	if state, _ := r.InputState(); state == terminal.Finished && !r.Exit().Known() {
		h.Errorf("finished before the exit")
	}
	r.exited()
	if state, evidence := r.InputState(); state != terminal.Finished || evidence.Certainty != terminal.Certain {
		h.Errorf("%v, %+v; want finished, for certain", state, evidence)
	}
}
