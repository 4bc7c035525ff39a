package execenv

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// A process is a Process of a Local.
//
// Its exit is two steps. First the kernel reports it; the process is then a
// zombie, which keeps its process id, and with it the ids of its group and
// session, from being given to an unrelated process. Then it is reaped: at once if it
// ended by itself, else when the stop that holds it is through. Signals to the
// group are sent between the start and the first step only.
type process struct {
	*Front
	local   *Local
	ctx     context.Context // of Command, as in exec.CommandContext
	session *session        // of a group; nil without

	// Set by Start and the pipe methods, before anything runs at the same time.
	child *child
	term  *ptmx // the agent's side of the terminal; nil without one
	stdio
	lineage
	keepAlive func() bool   // takes back the kill by ctx
	killed    chan struct{} // closed after that kill
	cause     error         // why ctx killed; valid after killed

	mu sync.Mutex
	// guards following
	phase phase
	exit  terminal.Exit
	holds int // stops that need the process unreaped
	after func(alone bool)

	done bool // Wait has returned

	kill   chan struct{} // closed by Kill, with mu held
	exited chan struct{} // closed by over, exit is valid then
	reaped chan struct{} // closed when the process id may be an unrelated process's
}

// A lineage tells the processes that a process has started from all others.
type lineage struct {
	since   uint64    // none of them is older
	limit   limitTags // their one
	limited bool      // they all have it
	forked  window    // when those began that may have missed it
	escaped []ident   // could not be given it
}

type phase int

const (
	ready phase = iota // or starting
	failed
	running
	zombie // exited, not reaped
	gone
)

// ID returns the process id.
func (p *process) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase < running {
		return ""
	}
	return strconv.Itoa(p.child.pid)
}

func (p *process) Start() error {
	if err := p.Begin(); err != nil {
		return err
	}
	err := p.start()
	p.closeTheirs()
	if err == nil {
		p.Started()
		return nil
	}
	return p.fail(err)
}

// fail ends a process that cannot be started: nothing of it stays open.
func (p *process) fail(err error) error {
	_ = p.Begin() // a pipe method may have failed: nothing is to start it then
	p.closeAll()
	p.mu.Lock()
	p.phase = failed
	p.mu.Unlock()
	return &StartError{Path: p.spec.Path, Dir: p.spec.Dir, Err: err}
}

// start does the work of Start, which cleans up.
func (p *process) start() error {
	if err := p.spec.Check(); err != nil {
		return err
	}
	if err := starts.Acquire(p.ctx, 1); err != nil || p.ctx.Err() != nil {
		if err == nil {
			starts.Release(1)
		}
		return context.Cause(p.ctx)
	}
	defer starts.Release(1)
	n, err := p.local.enter(p)
	if err != nil {
		return err
	}
	defer p.local.leave(p)
	tag := p.local.tag + "." + strconv.Itoa(n) + ","
	p.limit = p.local.limits.of(n)
	if err := p.launch(tag); err != nil {
		return err
	}
	if !p.local.arrived(p) {
		p.child.abandon()
		return terminal.ErrClosed
	}
	p.limited = p.tagLimit(tag)
	p.begin()
	return nil
}

// launch has the kernel start the program, with the tag in its environment.
func (p *process) launch(tag string) error {
	l, err := p.plan(tag)
	if err != nil {
		return err
	}
	if err := p.awaitProgram(l.path, l.dir); err != nil {
		return err
	}
	files, err := p.open()
	if err != nil {
		return explain(err, "", "")
	}
	var group *cgroup
	if p.session != nil {
		p.session.tag = tag
		group = p.local.groups.get()
	}
	p.since = now()
	if p.child, err = l.start(files[:], group); err != nil {
		group.put()
		return explain(err, l.path, l.dir)
	}
	if p.session != nil {
		if p.session.group = p.child.group; p.session.group == nil {
			group.put()
		}
	}
	return nil
}

// plan finds the program and the environment.
func (p *process) plan(tag string) (l launch, err error) {
	dir := p.spec.Dir
	if dir != "" {
		if dir, err = filepath.Abs(dir); err != nil {
			return l, because(ErrNoDir, err)
		}
	}
	l = launch{
		dir:     dir,
		argv:    append([]string{p.spec.Path}, p.spec.Args...),
		env:     environ(&p.spec, dir, tag),
		session: p.session != nil,
		control: p.spec.TTY != nil && p.spec.TTY.Input,
	}
	if l.path, err = lookPath(p.spec.Path, getenv(l.env, "PATH")); err != nil {
		return l, explain(err, p.spec.Path, l.dir)
	}
	return l, nil
}

// begin does what runs beside a process, once the kernel has started it.
func (p *process) begin() {
	p.passed() // before anybody looks who else holds the outputs
	p.copy()
	p.mu.Lock()
	p.phase = running
	p.mu.Unlock()
	if p.term != nil {
		p.term.watch(p.session)
	}
	p.local.run(p)
	if p.ctx.Done() != nil {
		p.killed = make(chan struct{})
		p.keepAlive = context.AfterFunc(p.ctx, p.killByContext)
	}
}

// awaitProgram waits until a program can be opened, in a way that ctx and Close end:
// in an exec the kernel would hold a thread of the agent, which stops the whole agent
// when the garbage collector wants all of them.
func (p *process) awaitProgram(path, dir string) error {
	for pause := time.Millisecond; busy(path, dir); pause = min(2*pause, 20*time.Millisecond) {
		select {
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		case <-p.local.ending:
			return terminal.ErrClosed
		case <-time.After(pause):
		}
	}
	return nil
}

// open opens what the process gets as standard input, output and error.
func (p *process) open() (files [3]*os.File, err error) {
	tty := p.spec.TTY
	if tty == nil {
		return p.openFiles(&p.spec)
	}
	var side *os.File
	if p.term, side, err = p.local.openTerminal(*tty); err != nil {
		return files, err
	}
	p.term.theirs = side
	p.streams = append(p.streams, p.term.stream)
	files = [3]*os.File{side, side, side}
	if !tty.Input {
		files[0], err = p.openInput(p.spec.Stdin)
	}
	return files, err
}

func (p *process) StdinPipe() (io.WriteCloser, error) {
	if err := p.Pipe(0); err != nil {
		return nil, err
	}
	w, err := p.inputPipe()
	if err != nil {
		return nil, p.fail(explain(err, "", ""))
	}
	return w, nil
}

func (p *process) StdoutPipe() (io.ReadCloser, error) { return p.readPipe(1) }
func (p *process) StderrPipe() (io.ReadCloser, error) { return p.readPipe(2) }

func (p *process) readPipe(n int) (io.ReadCloser, error) {
	if err := p.Pipe(n); err != nil {
		return nil, err
	}
	s, err := p.outputPipe(n)
	if err != nil {
		return nil, p.fail(explain(err, "", ""))
	}
	return s, nil
}

// over is called once, when the process has exited. It does not wait for
// anybody, so that others' exits do not wait for it.
func (p *process) over(exit terminal.Exit) {
	p.mu.Lock()
	p.exit, p.phase = exit, zombie
	natural := p.reap()
	p.mu.Unlock()
	for _, s := range p.streams {
		s.closeChild()
		s.check()
	}
	alone := false
	if p.session != nil {
		alone = p.session.look(natural)
	} else if p.alone() {
		p.local.nothingLeft(p)
	}

	p.mu.Lock()
	close(p.exited)
	after := p.after
	p.mu.Unlock()
	if after != nil {
		after(alone)
	}
	if p.term != nil {
		p.term.leave()
	}
}

// AfterExit has f called right after Exited was closed, and returns false,
// without a call, if it is closed already. It is called once. Alone says that
// the process ended by itself and that nothing hints at others which outlived
// it, so that Survivors and Wait return at once. F must not block.
func (p *process) AfterExit(f func(alone bool)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.exited:
		return false
	default:
		p.after = f
		return true
	}
}

// reap gives the process id back, unless a stop needs it. Called with mu held.
func (p *process) reap() bool {
	if p.phase != zombie || p.holds > 0 {
		return false
	}
	p.local.forget(p)
	p.child.reap()
	p.phase = gone
	close(p.reaped)
	return true
}

func (p *process) killByContext() {
	defer close(p.killed)
	select {
	case <-p.exited:
		return
	default:
	}
	p.cause = context.Cause(p.ctx)
	if p.session != nil {
		p.session.StopTree(0)
	} else {
		p.Kill()
	}
}

func (p *process) Wait() error {
	if err := p.BeginWait(); err != nil {
		return err
	}
	<-p.exited
	<-p.reaped
	err := p.joinCopiers(p.ctx, p.kill)
	if p.keepAlive != nil && !p.keepAlive() {
		<-p.killed
	}
	p.abandon()
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	if exit := p.exit; !exit.Success() {
		return &ExitError{Exit: exit, Err: p.cause}
	}
	return err
}

func (p *process) Signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.signalable(); err != nil {
		return err
	}
	return p.child.signal(sig)
}

// SignalGroup reaches the processes in the foreground of the terminal if it is
// the process's controlling terminal, as its keys do; else the process's own
// group, also what is left of it after the exit of the process.
func (p *process) SignalGroup(sig os.Signal) error {
	p.mu.Lock()
	switch err := p.signalable(); {
	case err == nil:
		defer p.mu.Unlock()
	case err == os.ErrProcessDone && p.session != nil:
		return p.signalRest(sig)
	default:
		p.mu.Unlock()
		return err
	}
	if p.session == nil {
		return p.child.signal(sig)
	}
	if p.spec.TTY != nil && p.spec.TTY.Input {
		if done, err := p.term.signal(sig); done {
			return err
		}
	}
	return p.child.signalGroup(sig)
}

// signalRest signals what is left of the group after the exit. It unlocks mu.
func (p *process) signalRest(sig os.Signal) error {
	held := p.phase < gone
	p.mu.Unlock()
	return p.session.signalRest(sig, held)
}

// signalable is called with mu held.
func (p *process) signalable() error {
	switch {
	case p.phase < running:
		return errors.New("execenv: not started")
	case p.phase > running:
		return os.ErrProcessDone
	}
	return nil
}

func (p *process) Kill() (err error) {
	p.mu.Lock()
	if p.phase < running || p.done {
		p.mu.Unlock()
		return nil
	}
	select {
	case <-p.kill:
	default:
		close(p.kill) // so that Wait ends
	}
	switch {
	case p.phase == running:
		err = p.child.signal(os.Kill)
		p.mu.Unlock()
	case p.session != nil:
		err = p.signalRest(os.Kill)
	default:
		p.mu.Unlock()
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
