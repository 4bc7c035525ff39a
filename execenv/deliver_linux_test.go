package execenv_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/termbridge/termbridge/execenv"
)

func init() {
	programs["numbers"] = numbers
	programs["traced"] = traced
}

// numbers writes numbered lines, args[0] of them, to each of its outputs, in
// bytes, lines and bursts, and exits in the middle of a burst.
func numbers(args []string) {
	count, _ := strconv.Atoi(args[0])
	var wg sync.WaitGroup
	for i, name := range args[1:] {
		f := []*os.File{os.Stdout, os.Stderr}[i]
		wg.Go(func() {
			text := numbered(name, count)
			for len(text) > 0 {
				n := 1
				switch rand.IntN(8) {
				case 0, 1, 2:
					n = strings.IndexByte(text, '\n') + 1
				case 3:
					n = rand.IntN(100 << 10)
				}
				n = min(n, len(text))
				io.WriteString(f, text[:n])
				text = text[n:]
				if pause := rand.IntN(20); pause < 5 {
					time.Sleep(time.Duration(pause) * 100 * time.Microsecond)
				}
			}
		})
	}
	wg.Wait()
}

func numbered(name string, count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "%s %d\n", name, i)
	}
	return b.String()
}

// A deliverer is an output of a Local.
type deliverer interface {
	io.Closer
	Deliver(w io.Writer, ended func(error))
}

// A delivered collects what is delivered, and how it ended.
type delivered struct {
	deliverer
	inside atomic.Bool
	ends   atomic.Int32
	err    error         // valid after done
	done   chan struct{} // closed by the first end

	mu   sync.Mutex
	text []byte
}

func deliver(t *testing.T, out any) *delivered {
	t.Helper()
	d := &delivered{deliverer: out.(deliverer), done: make(chan struct{})}
	d.Deliver(d, func(err error) {
		if d.inside.Load() {
			t.Error("the end was called during a write")
		}
		if d.ends.Add(1) > 1 {
			t.Error("the end was called twice")
			return
		}
		d.err = err
		close(d.done)
	})
	return d
}

func (d *delivered) Write(p []byte) (int, error) {
	if d.inside.Swap(true) {
		panic("two writes at one time")
	}
	defer d.inside.Store(false)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text = append(d.text, p...)
	return len(p), nil
}

func (d *delivered) seen() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.text)
}

// session starts spec and delivers its outputs: that of the terminal, or of both
// pipes.
func session(t *testing.T, l *execenv.Local, spec execenv.Spec) (execenv.Session, []*delivered) {
	t.Helper()
	spec.Group = true
	s := l.Command(t.Context(), spec).(execenv.Session)
	var outs []any
	if spec.TTY == nil {
		stdout, err := s.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		stderr, err := s.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		outs = []any{stdout, stderr}
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if spec.TTY != nil {
		term, _ := s.Terminal()
		outs = []any{term}
	}
	var list []*delivered
	for _, out := range outs {
		list = append(list, deliver(t, out))
	}
	return s, list
}

// difference shows where two texts begin to differ.
func difference(got, want string) string {
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	near := func(s string) string { return s[max(0, n-20):min(len(s), n+20)] }
	return fmt.Sprintf("%d bytes, want %d; from byte %d: %q, want %q", len(got), len(want), n, near(got), near(want))
}

// Every byte is delivered once and in order, and then the end.
func TestDeliver(t *testing.T) {
	l := newLocal(t, nil)
	before := runtime.NumGoroutine()
	for _, c := range []struct {
		tty   *execenv.TTY
		names []string
	}{{nil, []string{"out", "err"}}, {&execenv.TTY{}, []string{"tty"}}} {
		const lines = 30000
		spec := program("numbers", append([]string{strconv.Itoa(lines)}, c.names...)...)
		spec.TTY = c.tty
		s, outs := session(t, l, spec)
		for i, d := range outs {
			wait(t, d.done, "the end of "+c.names[i])
			if got, want := d.seen(), numbered(c.names[i], lines); got != want || d.err != nil {
				t.Errorf("%s: %v, %s", c.names[i], d.err, difference(got, want))
			}
		}
		if err := s.Wait(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, func() error {
		return errorf(runtime.NumGoroutine() <= before+2, "%d goroutines, before %d", runtime.NumGoroutine(), before)
	})
}

// A delivery ends with the output and with Close, before the first output and
// after it, at once and later, and with nothing delivered after the end.
func TestDeliveryEnds(t *testing.T) {
	l := newLocal(t, nil)
	for _, tty := range []*execenv.TTY{nil, {Input: true}} {
		for _, first := range []string{"", "ready\n"} {
			for _, c := range []struct {
				name string
				end  func(s execenv.Session, d *delivered)
				err  error
			}{
				{"exit", func(s execenv.Session, d *delivered) { s.Kill() }, nil},
				{"close", func(s execenv.Session, d *delivered) { d.Close() }, os.ErrClosed},
			} {
				for _, late := range []bool{false, true} {
					name := fmt.Sprintf("%s after %q, terminal %v, late %v", c.name, first, tty != nil, late)
					script := "exec sleep 60"
					if first != "" {
						script = "echo ready; " + script
					}
					spec := sh(script)
					spec.TTY = tty
					s, outs := session(t, l, spec)
					d := outs[0]
					eventually(t, func() error { return errorf(d.seen() == first, "%s: got %q", name, d.seen()) })
					if late {
						time.Sleep(5 * time.Millisecond)
					}
					c.end(s, d)
					wait(t, d.done, name)
					if !errors.Is(d.err, c.err) || d.seen() != first {
						t.Errorf("%s: ended with %v after %q, want %v", name, d.err, d.seen(), c.err)
					}
					s.StopTree(0)
					s.Wait()
					for _, d := range outs {
						wait(t, d.done, name+": an end after Wait")
					}
				}
			}
		}
	}
}

// A silent command needs no goroutine.
func TestSilentNeedsNoGoroutine(t *testing.T) {
	l := newLocal(t, nil)
	s, _ := session(t, l, sh("exit")) // the poller and the watchdog run
	s.Wait()
	before := runtime.NumGoroutine()
	for range 20 {
		session(t, l, sh("exec sleep 60"))
	}
	eventually(t, func() error {
		return errorf(runtime.NumGoroutine() <= before+2, "%d goroutines, before %d", runtime.NumGoroutine(), before)
	})
}

// Wait ends every delivery, with a background process that holds the output, and
// that is not killed by it.
func TestDeliverWithASurvivor(t *testing.T) {
	l := newLocal(t, nil)
	for _, tty := range []*execenv.TTY{nil, {}} {
		spec := sh("(while echo x; do sleep .01; done) & echo $!")
		spec.TTY = tty
		s, outs := session(t, l, spec)
		wait(t, s.Exited(), "the exit")
		pid := 0
		eventually(t, func() error {
			for line := range strings.Lines(outs[0].seen()) {
				if n, err := strconv.Atoi(strings.TrimSuffix(line, "\n")); err == nil && strings.HasSuffix(line, "\n") {
					pid = n
				}
			}
			return errorf(pid > 0, "no process id in %q", outs[0].seen())
		})
		if err := s.Wait(); err != nil {
			t.Error(err)
		}
		for _, d := range outs {
			wait(t, d.done, "the end by Wait")
			if !errors.Is(d.err, os.ErrClosed) {
				t.Errorf("ended with %v", d.err)
			}
		}
		time.Sleep(30 * time.Millisecond)
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("the survivor: %v", err)
		}
		s.StopTree(0)
	}
}

// Who reads sees the end as soon as the process closes its output, though it
// lives; also by a Read that began before the start. After a failed start that
// returns.
func TestReadSeesTheEndBeforeTheExit(t *testing.T) {
	l := newLocal(t, nil)
	for _, early := range []bool{false, true} {
		for _, how := range []string{"Read", "WriteTo"} {
			spec := sh("echo text; exec >&- 2>&-; sleep 60")
			spec.Group = true
			s := l.Command(t.Context(), spec).(execenv.Session)
			out, err := s.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			var text strings.Builder
			read := func() {
				go func() {
					defer close(done)
					if how == "Read" {
						_, err = io.Copy(&text, onlyReader{out})
					} else {
						_, err = out.(io.WriterTo).WriteTo(&text)
					}
				}()
			}
			if early {
				read()
				time.Sleep(5 * time.Millisecond)
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			if !early {
				read()
			}
			wait(t, done, "the end")
			if err != nil || text.String() != "text\n" {
				t.Errorf("%s: %q, %v", how, text.String(), err)
			}
			select {
			case <-s.Exited():
				t.Error("it has exited")
			default:
			}
			s.StopTree(0)
			s.Wait()
		}
	}
	p := l.Command(t.Context(), execenv.Spec{Path: "/nowhere"})
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _, err = out.Read(make([]byte, 1)) }()
	time.Sleep(5 * time.Millisecond)
	if err := p.Start(); err == nil {
		t.Fatal("it has started")
	}
	wait(t, done, "the Read of a failed start")
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("after a failed start: %v", err)
	}
}

// traced is a debugger that holds its child's exit back until it is told.
func traced(args []string) {
	runtime.LockOSThread()
	pid, _ := strconv.Atoi(args[0])
	if err := unix.PtraceSeize(pid); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("traced")
	os.Stdin.Read(make([]byte, 1))
}

// A process that is stopped, or whose exit a debugger holds back, keeps nobody
// else's exit. Its own exit is seen as soon as it can be.
func TestExitsDoNotWaitForEachOther(t *testing.T) {
	l := newLocal(t, nil)
	stopped := start(t, l, sh("kill -STOP $$"))
	held := start(t, l, sh("sleep 60"))
	spec := program("traced", held.ID())
	tracer := l.Command(t.Context(), spec)
	in, _ := tracer.StdinPipe()
	out, _ := tracer.StdoutPipe()
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 64)
	n, _ := out.Read(answer)
	if string(answer[:n]) != "traced\n" {
		if os.Getenv("TERMBRIDGE_REAL") != "" {
			t.Fatalf("a process cannot be traced: %s", answer[:n])
		}
		t.Logf("a process cannot be traced: %s", answer[:n])
	}
	held.Kill()
	for range 20 {
		r := start(t, l, sh("echo text"))
		wait(t, r.Exited(), "the exit of another")
		if got := r.rest(t); got != "text\n" {
			t.Errorf("got %q", got)
		}
	}
	if string(answer[:n]) == "traced\n" {
		select {
		case <-held.Exited():
			t.Error("the debugger did not hold the exit back")
		default:
		}
	}
	in.Close()
	tracer.Wait()
	wait(t, held.Exited(), "the exit that was held back")
	if got := held.Exit().String(); got != "SIGKILL" {
		t.Errorf("the exit: %s", got)
	}
	stopped.Kill()
	wait(t, stopped.Exited(), "the exit of the stopped")
}

// AfterExit calls once, with Exited closed, and never after it has returned false.
func TestAfterExit(t *testing.T) {
	l := newLocal(t, nil)
	for i := range 100 {
		s, outs := session(t, l, sh("exit 3"))
		if i%2 == 1 {
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		}
		var calls atomic.Int32
		called := make(chan bool, 2)
		took := s.(interface{ AfterExit(func(bool)) bool }).AfterExit(func(bool) {
			calls.Add(1)
			select {
			case <-s.Exited():
				called <- s.Exit().String() == "exit code 3"
			default:
				called <- false
			}
		})
		wait(t, s.Exited(), "the exit")
		for _, d := range outs {
			wait(t, d.done, "the end of the output")
		}
		if took {
			select {
			case ok := <-called:
				if !ok {
					t.Error("it was called before the exit")
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it was not called")
			}
		}
		if s.Wait(); calls.Load() > 1 || (calls.Load() == 1) != took {
			t.Fatalf("%d calls, and AfterExit returned %v", calls.Load(), took)
		}
	}
}
