package terminaltest

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// marker is the first argument of a test binary that is to be a program.
const marker = "terminaltest.program"

// lifetime is how long a real process of the suite lives at most, so that a
// broken Manager does not leave processes on the machine for good.
const lifetime = 2 * time.Minute

// Main is for the TestMain of a package whose Manager runs real processes:
//
//	func TestMain(m *testing.M) { terminaltest.Main(m) }
//
// It runs the tests, unless this process was started by a command of
// [ReexecProgram]: then it is that program. It does not return. Tests that wait
// leave the processors to others, so eight run at once where -parallel is not set.
func Main(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == marker {
		os.Exit(be(os.Args[2:]))
	}
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set("8") // the command line is parsed later
	}
	os.Exit(m.Run())
}

// ReexecProgram is a Config.Program for Managers that run real processes: the
// command is this test binary, which [Main] turns into the program.
func ReexecProgram(name string, args ...string) terminal.Command {
	return terminal.Command{Args: reexec(name, args...)}
}

func reexec(name string, args ...string) []string {
	self, err := os.Executable()
	if err != nil && filepath.IsAbs(os.Args[0]) {
		self, err = os.Args[0], nil // without /proc
	}
	if err != nil {
		panic(fmt.Sprintf("terminaltest: this program does not know where it is: %v", err))
	}
	return append([]string{self, marker, name}, args...)
}

// be runs a program as this process and returns its exit code; an exit by
// signal does not return.
func be(args []string) int {
	program, ok := Programs()[args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "terminaltest: no program %q\n", args[0])
		return 127
	}
	time.AfterFunc(lifetime, func() { os.Exit(125) })

	var death atomic.Value // the name of the signal that closed stopped
	stopped := make(chan struct{})
	seen := make(chan os.Signal, 16)
	forward := make(chan os.Signal, 16)
	signal.Notify(seen, handled...)
	go func() { // ends with the process
		for sig := range seen {
			select {
			case forward <- sig:
			default:
			}
			if memterm.SignalName(sig) != "SIGWINCH" && death.CompareAndSwap(nil, memterm.SignalName(sig)) {
				close(stopped)
			}
		}
	}()

	env := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	dir, _ := os.Getwd()
	_, tty := winsize(os.Stdout)
	exit := program(&memterm.Process{
		Args: args, Dir: dir, Env: env,
		Stdin: &input{file: os.Stdin, stopped: stopped}, Stdout: os.Stdout, Stderr: os.Stderr,
		TTY:     tty,
		Size:    func() terminal.Size { s, _ := winsize(os.Stdout); return s },
		Signals: forward,
		Stopped: stopped,
		Killed:  make(chan struct{}), // SIGKILL tells nobody
		Death: func() terminal.Exit {
			name, _ := death.Load().(string)
			if name == "" {
				name = "SIGTERM"
			}
			return memterm.Signal(name)
		},
		Spawn: func(args ...string) (terminal.Proc, error) {
			words := reexec(args[0], args[1:]...)
			cmd := exec.Command(words[0], words[1:]...)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if err := cmd.Start(); err != nil {
				return terminal.Proc{}, err
			}
			return terminal.Proc{PID: cmd.Process.Pid, Command: strings.Join(args, " ")}, nil
		},
	})
	switch {
	case exit.Signal != "":
		raise(exit.Signal)
		return 126
	case exit.Code != nil:
		return *exit.Code
	}
	return 1 // a real process always says how it exited
}

// handled are the signals that a program is told of.
var handled = append([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, moreHandled...)

// An input is standard input whose blocked Read ends with memterm.ErrStopped
// once the process is asked to end. It reads no more than it is asked for, so
// that writers feel whether the program reads.
type input struct {
	file    *os.File
	stopped <-chan struct{}
}

func (in *input) Read(b []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	buf := make([]byte, len(b)) // b is the caller's again when stopped ends the wait
	done := make(chan result, 1)
	go func() { // ends with its read, or with the process
		n, err := in.file.Read(buf)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		copy(b, buf[:r.n])
		return r.n, r.err
	case <-in.stopped:
		return 0, memterm.ErrStopped
	}
}

var _ io.Reader = (*input)(nil)
