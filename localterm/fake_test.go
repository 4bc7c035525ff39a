package localterm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// A fake is an executor whose processes do what no real one does on demand, in
// fake time. It runs one kind of process, which writes "out" and goes on until
// it is stopped.
type fake struct {
	starting time.Duration   // how long a start takes
	left     []terminal.Proc // what no stop can end
	dies     time.Duration   // when the process exits by itself; 0: never
	immortal bool            // no stop ends the process itself
	exit     terminal.Exit   // of a stopped process
	text     string          // that it writes; "": out
	late     []string        // what those of left write, each lateEvery after the last
	last     *fakeProcess    // the last that was made
	waitErr  error
	unknown  bool           // nobody knows what is left
	likely   bool           // it seems to wait for input
	started  sync.WaitGroup // processes that have not exited
}

func (f *fake) Command(ctx context.Context, spec execenv.Spec) execenv.Process {
	p := &fakeProcess{fake: f, exited: make(chan struct{})}
	p.out, p.outEnd = io.Pipe()
	p.err, p.errEnd = io.Pipe()
	f.last = p
	return p
}

// lateEvery is less than the quiet that ends an output.
const lateEvery = limits.DrainQuiet * 6 / 10

type fakeProcess struct {
	execenv.Process // nil: what a terminal does not use
	*fake
	out, err       *io.PipeReader
	outEnd, errEnd *io.PipeWriter
	once           sync.Once
	exited         chan struct{}
}

func (p *fakeProcess) Start() error {
	time.Sleep(p.starting)
	p.started.Add(1)
	text := p.fake.text
	if text == "" {
		text = "out"
	}
	go io.WriteString(p.outEnd, text)
	if p.dies > 0 {
		time.AfterFunc(p.dies, func() { p.once.Do(p.die) })
	}
	return nil
}

func (p *fakeProcess) StdoutPipe() (io.ReadCloser, error) { return p.out, nil }
func (p *fakeProcess) StderrPipe() (io.ReadCloser, error) { return p.err, nil }
func (p *fakeProcess) StdinPipe() (io.WriteCloser, error) { return p.outEnd, nil }

func (p *fakeProcess) StopTree(grace time.Duration) []terminal.Proc {
	time.Sleep(grace)
	if !p.immortal {
		p.once.Do(p.die)
	}
	if p.unknown {
		return nil
	}
	return append([]terminal.Proc{}, p.left...)
}

func (p *fakeProcess) die() {
	close(p.exited)
	p.started.Done()
	go func() { // ends with the pipe
		for _, text := range p.late {
			time.Sleep(lateEvery)
			if _, err := io.WriteString(p.outEnd, text); err != nil {
				return
			}
		}
	}()
	if len(p.left) == 0 { // else they hold the output
		p.outEnd.Close()
		p.errEnd.Close()
	}
}

func (p *fakeProcess) Wait() error {
	<-p.exited
	p.out.CloseWithError(os.ErrClosed)
	p.err.CloseWithError(os.ErrClosed)
	return p.waitErr
}

func (p *fakeProcess) Survivors() []terminal.Proc         { return p.left }
func (p *fakeProcess) Terminal() (execenv.Terminal, bool) { return nil, false }
func (p *fakeProcess) Exited() <-chan struct{}            { return p.exited }
func (p *fakeProcess) Exit() terminal.Exit                { return p.exit }
func (p *fakeProcess) InputState() (terminal.Activity, terminal.Evidence) {
	if p.likely {
		return terminal.Waiting, terminal.Evidence{Certainty: terminal.Likely, Reason: "fake"}
	}
	return terminal.Working, terminal.Evidence{}
}

func newFake(f *fake) *localterm.Manager {
	return localterm.New(&localterm.Options{Executors: map[string]execenv.Executor{"fake": f}, MaxTerminals: 2})
}

func leaks(err error) []terminal.Leak {
	if e, ok := errors.AsType[*terminal.LeakError](err); ok {
		return e.Leaks
	}
	return nil
}

// What a stop cannot end is named, and again by Close; the end is bounded all
// the same.
func TestUnstoppableChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		child := []terminal.Proc{{PID: 7, Command: "mule"}}
		m := newFake(&fake{left: child, exit: terminal.Exit{Signal: "SIGTERM"}})
		term := start(t, m, terminal.Command{Line: "x"})
		began := time.Now()
		info, err := term.Stop(t.Context())
		if err != nil || info.Outcome != terminal.Stopped || !cmp.Equal(info.Survivors, child) {
			t.Errorf("Stop: %+v, %v", info, err)
		}
		if took, want := time.Since(began), limits.StopGrace+limits.DrainQuiet; took != want {
			t.Errorf("it took %v, want the grace and the quiet: %v", took, want)
		}
		if got := output(t, term); got != "out" {
			t.Errorf("output %q", got)
		}
		want := []terminal.Leak{{ID: info.ID, What: "process", Procs: child}}
		if err := m.Close(); !cmp.Equal(leaks(err), want) {
			t.Errorf("Close: %v, want %v", err, want)
		}
	})
}

// Output that goes on after the exit is waited for as long as it is not quiet, and
// no longer than the limit.
func TestDrainIsQuietSinceTheLastOutput(t *testing.T) {
	for name, c := range map[string]struct {
		late []string
		want string
		took time.Duration
	}{
		"silence":        {nil, "out", limits.DrainQuiet},
		"a few words":    {[]string{"1", "2", "3"}, "out123", 3*lateEvery + limits.DrainQuiet},
		"without an end": {strings.Split(strings.Repeat("x", 100), ""), "out" + strings.Repeat("x", int(limits.DrainLimit/lateEvery)), limits.DrainLimit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newFake(&fake{left: []terminal.Proc{{PID: 7, Command: "mule"}}, dies: time.Second, late: c.late, exit: terminal.Exit{Code: new(0)}})
				term := start(t, m, terminal.Command{Line: "x"})
				info := wait(t, term)
				const step = limits.DrainQuiet / 4 // it is looked at so often
				if took := info.RunTime() - time.Second; took < c.took-step || took > c.took+step {
					t.Errorf("the end came %v after the exit, want %v", took, c.took)
				}
				if got := output(t, term); got != c.want {
					t.Errorf("output %q, want %q", got, c.want)
				}
				m.Close()
				time.Sleep(time.Second) // the writer has seen that
			})
		})
	}
}

// A command that had exited when its Manager began to close ended by itself, even
// if nobody had noticed yet.
func TestExitJustBeforeClose(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{exit: terminal.Exit{Code: new(0)}}
			m := newFake(f)
			term := start(t, m, terminal.Command{Line: "x"})
			time.Sleep(time.Second)
			f.last.once.Do(f.last.die)
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if info := term.Info(); info.Outcome != terminal.Exited {
				t.Fatalf("ended as %s", info.Outcome)
			}
		})
	}
}

// Each ended command is kept for KeepEnded, also those that ended after the first.
func TestKeepEndedOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{dies: time.Second, exit: terminal.Exit{Code: new(0)}}
		m := localterm.New(&localterm.Options{Executors: map[string]execenv.Executor{"fake": f}, KeepEnded: 10 * time.Second})
		defer m.Close()
		var terms []terminal.Terminal
		for range 3 {
			terms = append(terms, start(t, m, terminal.Command{Line: "x"}))
			time.Sleep(4 * time.Second)
		}
		// They end after 1, 5 and 9 seconds, and are over 10 seconds later.
		for i, want := range []int{2, 1, 0} { // after 12, 16 and 20 seconds
			if got := len(m.List()); got != want {
				t.Errorf("after %d seconds %d are kept, want %d", 12+4*i, got, want)
			}
			time.Sleep(4 * time.Second)
		}
		for _, term := range terms {
			if !term.Info().Outcome.Ended() {
				t.Error("one has not ended")
			}
		}
	})
}

// A process that nothing can kill fails, in bounded time.
func TestUnstoppableProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self := []terminal.Proc{{PID: 8, Command: "ghost"}}
		f := &fake{left: self, immortal: true}
		m := newFake(f)
		term := start(t, m, terminal.Command{Line: "x", Timeout: time.Second})
		info := wait(t, term)
		if info.Outcome != terminal.Failed || info.Err == nil || info.Exit.Known() || !cmp.Equal(info.Survivors, self) {
			t.Errorf("ended as %+v", info)
		}
		if err := m.Close(); len(leaks(err)) == 0 {
			t.Errorf("Close: %v, want the leak", err)
		}
	})
}

// An exit that nobody knows is unknown, and the reason is given.
func TestUnknownExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("lost")
		f := &fake{waitErr: lost, dies: time.Second}
		m := newFake(f)
		defer m.Close()
		info := wait(t, start(t, m, terminal.Command{Line: "x"}))
		if info.Outcome != terminal.Unknown || !errors.Is(info.Err, lost) || info.Exit.Known() {
			t.Errorf("ended as %+v", info)
		}
	})
}

// The context ends the wait for a start, and what starts too late is stopped.
// Until then it holds its slot.
func TestLateStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{starting: time.Minute}
		m := newFake(f)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		began := time.Now()
		if term, err := m.Start(ctx, terminal.Command{Line: "x"}); term != nil || !errors.Is(err, cause) || time.Since(began) != time.Second {
			t.Errorf("Start = %v, %v after %v", term, err, time.Since(began))
		}
		if !m.Busy() || len(m.List()) != 0 {
			t.Errorf("busy: %v, list: %v; want a slot that is held, and no terminal", m.Busy(), m.List())
		}
		time.Sleep(2 * time.Minute)
		f.started.Wait()
		if m.Busy() {
			t.Error("the late start was not stopped")
		}
		if _, err := m.Start(ctx, terminal.Command{Line: "x"}); !errors.Is(err, cause) {
			t.Errorf("an ended context: %v", err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

// What a start that came too late wrote is given back to the Manager.
func TestLateStartsKeepNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 64 << 10
		f := &fake{starting: time.Minute, text: strings.Repeat("x", limit)}
		m := localterm.New(&localterm.Options{Executors: map[string]execenv.Executor{"fake": f}, ManagerBytes: limit})
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := m.Start(ctx, terminal.Command{Line: "x"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Start = %v", err)
			}
			cancel()
			time.Sleep(2 * time.Minute)
		}
		synctest.Wait() // the last is over
		f.starting = 0
		term := start(t, m, terminal.Command{Line: "x"})
		if _, err := term.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := output(t, term); got != f.text {
			t.Errorf("%d bytes are kept, want all %d", len(got), limit)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Input that cannot be interrupted would hang its writers: it is refused.
func TestInputWithoutDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFake(&fake{})
		defer m.Close()
		_, err := m.Start(t.Context(), terminal.Command{Line: "x", Stdin: true})
		if !errors.Is(err, terminal.ErrNoInput) || !strings.Contains(err.Error(), "fake") {
			t.Errorf("Start = %v", err)
		}
	})
}

// An executor that has no terminal after all ends what it started.
func TestNoTerminalAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		m := newFake(f)
		if _, err := m.Start(t.Context(), terminal.Command{Line: "x", TTY: true}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Start = %v", err)
		}
		f.started.Wait()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
}

type noSession struct{}

func (noSession) Command(context.Context, execenv.Spec) execenv.Process { return nil }

func TestExecutorWithoutSessions(t *testing.T) {
	m := newManager(t, &localterm.Options{Executors: map[string]execenv.Executor{"plain": noSession{}}})
	if _, err := m.Start(t.Context(), terminal.Command{Line: "x"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Start = %v", err)
	}
}

// A withoutTerminals is a machine on which terminals cannot be opened.
type withoutTerminals struct {
	*execenv.Local
	err error
}

func (w withoutTerminals) Command(ctx context.Context, spec execenv.Spec) execenv.Process {
	p := w.Local.Command(ctx, spec)
	if spec.TTY == nil {
		return p
	}
	return notStarting{p.(execenv.Session), w.err}
}

type notStarting struct {
	execenv.Session
	err error
}

func (p notStarting) Start() error { return &execenv.StartError{Path: "x", Err: p.err} }

// Where there are no terminals pipes serve, and the Info says so. Where they
// have only run out the start fails, with what helps.
func TestWithoutTerminals(t *testing.T) {
	local := execenv.NewLocal(nil)
	defer local.Close()
	for _, c := range []struct {
		err    error
		served bool
	}{
		{fmt.Errorf("%w (%w)", execenv.ErrNoTerminal, os.ErrNotExist), true},
		{fmt.Errorf("%w (%w)", execenv.ErrNoTerminal, os.ErrPermission), true},
		{fmt.Errorf("%w (%w)", execenv.ErrNoTerminal, syscall.ENOSPC), false},
		{fmt.Errorf("%w (%w)", execenv.ErrNoResources, execenv.ErrNoTerminal), false},
		{execenv.ErrNoCommand, false},
	} {
		m := localterm.New(&localterm.Options{Executors: map[string]execenv.Executor{"here": withoutTerminals{local, c.err}}})
		term, err := m.Start(t.Context(), terminal.Command{Line: "read x; echo $x; echo err >&2", TTY: true, Stdin: true})
		if !c.served {
			if !errors.Is(err, c.err) {
				t.Errorf("%v: the start: %v", c.err, err)
			}
			m.Close()
			continue
		}
		if err != nil {
			t.Fatalf("%v: %v", c.err, err)
		}
		if term.Info().Command.TTY {
			t.Error("the Info tells of a terminal")
		}
		if err := term.Resize(terminal.Size{Rows: 10, Cols: 10}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Resize: %v", err)
		}
		if _, err := term.WriteInput(t.Context(), "in\n"); err != nil {
			t.Error(err)
		}
		info := wait(t, term)
		stdout, _ := term.(terminal.StreamReader).ReadStream(t.Context(), terminal.Stdout, 0, 0)
		if info.Outcome != terminal.Exited || stdout.Text != "in\n" {
			t.Errorf("%v: %+v, %q", c.err, info, stdout.Text)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Where nobody knows what is left, Close says that it cannot tell.
func TestUnknownIsNotNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFake(&fake{unknown: true, exit: terminal.Exit{Signal: "SIGTERM"}})
		term := start(t, m, terminal.Command{Line: "x"})
		err := m.Close()
		info := wait(t, term)
		if list := leaks(err); info.Survivors != nil || len(list) != 1 || list[0].ID != info.ID || !strings.Contains(err.Error(), "cannot tell") {
			t.Errorf("left %#v, Close: %v", info.Survivors, err)
		}
	})
}

// Likely evidence counts once the output is quiet, and not at once.
func TestLikelyEvidenceNeedsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFake(&fake{likely: true})
		defer m.Close()
		term := start(t, m, terminal.Command{Line: "x"})
		read(t, term, "out")
		wrote := time.Now()
		for {
			state, e, err := term.(terminal.ActivityReader).ReadActivity(t.Context(), 0)
			quiet := time.Since(wrote)
			if err != nil {
				t.Fatal(err)
			}
			if want := quiet >= 150*time.Millisecond; (state == terminal.Waiting) != want {
				t.Fatalf("after %v of quiet: %v, %+v", quiet, state, e)
			}
			if state == terminal.Waiting {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A panicking executor panics in one of its functions.
type panicking struct {
	*fake
	where string
}

func (p *panicking) Command(ctx context.Context, spec execenv.Spec) execenv.Process {
	if p.where == "Command" {
		panic("Command")
	}
	return &panickingProcess{p.fake.Command(ctx, spec).(*fakeProcess), p.where}
}

type panickingProcess struct {
	*fakeProcess
	where string
}

func (p *panickingProcess) Start() error {
	if p.where == "Start" {
		panic("Start")
	}
	return p.fakeProcess.Start()
}

func TestCallbacksThatPanic(t *testing.T) {
	// Whatever of the caller's panics in a start, it is that start's error, and its
	// slot comes back.
	for _, where := range []string{"NewID", "Command", "Start"} {
		for _, bound := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, with a ctx that may end: %v", where, bound), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := &panicking{new(fake), where}
					ids := 0
					m := localterm.New(&localterm.Options{
						Executors: map[string]execenv.Executor{"fake": e}, MaxTerminals: 1,
						NewID: func() string {
							if e.where == "NewID" {
								panic("NewID")
							}
							ids++
							return fmt.Sprint("id", ids)
						},
					})
					ctx := context.Background()
					if bound {
						ctx = t.Context()
					}
					for range 3 {
						term, err := m.Start(ctx, terminal.Command{Line: "x"})
						if term != nil || err == nil || !strings.Contains(err.Error(), "panicked: "+where) {
							t.Fatalf("got %v, %v", term, err)
						}
					}
					e.where = ""
					term, err := m.Start(ctx, terminal.Command{Line: "x"})
					if err != nil {
						t.Fatal(err)
					}
					if id := term.Info().ID; !strings.HasPrefix(id, "id") {
						t.Errorf("its id is %q", id)
					}
					if err := m.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
