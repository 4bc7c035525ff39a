package emulate

import (
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A group is the processes of one command of a client that is like a real one.
// It runs inside one program of memterm, so that the Host has the terminal, and
// knows more than that would: who holds the output, who gets a signal.
type group struct {
	programs map[string]memterm.Program
	counted  func(name string) // is called with every start
	argv     []string          // of the leader; nil if it cannot be started
	report   string            // its output then
	pipe     int               // bytes that nobody has read are held by writers; 0 is no bound
	open     bool              // the input never ends

	base   *memterm.Process // of memterm's program, set by run
	leader *process
	wg     sync.WaitGroup
	exited chan struct{} // closed when the leader has ended: exit and exitAt are valid
	closed chan struct{} // closed when nobody holds the output
	exit   terminal.Exit
	exitAt time.Time

	mu sync.Mutex
	// guards following
	writes  []chunk
	size    int // of writes
	taken   int // bytes that were read destructively, or by a reader that waits for the end
	readers int // that take everything
	drained chan struct{}
	running map[*process]bool
}

// A chunk is one write.
type chunk struct {
	text []byte
	at   time.Time
}

func newGroup() *group {
	g := &group{
		exited:  make(chan struct{}),
		closed:  make(chan struct{}),
		drained: make(chan struct{}),
		running: map[*process]bool{},
	}
	g.leader = g.add(nil) // a signal may come before run
	return g
}

// A process is a leader, a child, or a shell.
type process struct {
	group   *group
	stopped chan struct{} // as memterm's
	killed  chan struct{}
	signals chan os.Signal
	done    chan struct{} // closed when it has ended: exit is valid
	exit    terminal.Exit

	// group.mu guards following
	death   string // the signal that closed stopped
	ignored []string
}

// ignore makes the process, and what it forks from now on, ignore signals, by their
// names without SIG.
func (p *process) ignore(names []string) {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	for _, name := range names {
		p.ignored = append(p.ignored, "SIG"+name)
	}
}

// run is the program of memterm. It returns when every process has ended.
func (g *group) run(base *memterm.Process) terminal.Exit {
	g.base = base
	if g.argv == nil {
		io.WriteString(g.leader, g.report)
	}
	g.start(g.leader, func(p *process) terminal.Exit {
		if g.argv == nil {
			return terminal.Exit{}
		}
		prog, _ := g.program(g.argv) // it was looked up before
		return prog(p.process(g.argv, base.Env, nil))
	})
	ended := make(chan struct{})
	go func() { // it ends with the last process
		g.wg.Wait()
		close(ended)
	}()
	stopped, killed := base.Stopped, base.Killed
	for {
		select {
		case <-ended:
			close(g.closed)
			return g.exit
		case <-stopped:
			stopped = nil
			g.signal(base.Death().Signal, true)
		case <-killed:
			killed = nil
			g.signal("SIGKILL", true)
		}
	}
}

// program finds what runs words, and counts its starts.
func (g *group) program(words []string) (memterm.Program, bool) {
	prog, ok := g.programs[words[0]]
	if !ok && len(words) > 2 && words[1] == "-c" && (path.Base(words[0]) == "sh" || path.Base(words[0]) == "bash") {
		return func(p *memterm.Process) terminal.Exit {
			sh := shell{p: p.Stdout.(*process), env: maps.Clone(p.Env), stdin: p.Stdin}
			return sh.run(p.Args[2])
		}, true
	}
	return func(p *memterm.Process) terminal.Exit {
		g.counted(p.Args[0])
		return prog(p)
	}, ok
}

// add adds a process with the signals that its parent, if it has one, ignores.
func (g *group) add(parent *process) *process {
	p := &process{
		group:   g,
		stopped: make(chan struct{}),
		killed:  make(chan struct{}),
		signals: make(chan os.Signal, 4),
		done:    make(chan struct{}),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[p] = true
	if parent != nil {
		p.ignored = slices.Clone(parent.ignored)
	}
	return p
}

// fork starts a child that is run.
func (p *process) fork(run func(*process) terminal.Exit) *process {
	child := p.group.add(p)
	p.group.start(child, run)
	return child
}

func (g *group) start(p *process, run func(*process) terminal.Exit) {
	g.wg.Go(func() {
		exit := run(p)
		select {
		case <-p.killed:
			exit = memterm.Signal("SIGKILL") // whatever it still says
		default:
		}
		g.mu.Lock()
		delete(g.running, p)
		g.mu.Unlock()
		p.exit = exit
		if p == g.leader {
			g.exit, g.exitAt = exit, time.Now()
			close(g.exited)
		}
		close(p.done)
	})
}

// signal sends a signal to the leader, or to all.
func (g *group) signal(name string, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.running {
		if !all && p != g.leader || slices.Contains(p.ignored, name) {
			continue
		}
		if p.death == "" {
			p.death = name
			close(p.stopped)
		}
		if name == "SIGKILL" && !over(p.killed) {
			close(p.killed)
		}
	}
}

// process is p as its program has it.
func (p *process) process(args []string, env map[string]string, stdin io.Reader) *memterm.Process {
	q := *p.group.base
	q.Args = slices.Clone(args)
	q.Env = maps.Clone(env)
	switch {
	case stdin != nil:
		q.Stdin = stdin
	case p.group.open:
		q.Stdin = endless{p}
	}
	q.Stdout, q.Stderr = p, p
	q.Signals, q.Stopped, q.Killed = p.signals, p.stopped, p.killed
	q.Death = p.deathNow
	q.Spawn = func(args ...string) (terminal.Proc, error) {
		prog, ok := p.group.program(args)
		if !ok {
			return terminal.Proc{}, errors.New("no such program: " + args[0])
		}
		p.fork(func(child *process) terminal.Exit { return prog(child.process(args, env, strings.NewReader(""))) })
		return terminal.Proc{Command: strings.Join(args, " ")}, nil
	}
	return &q
}

func (p *process) deathNow() terminal.Exit {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	if p.death == "" {
		return memterm.Signal("SIGTERM")
	}
	return memterm.Signal(p.death)
}

// endless is an input to which nobody writes, and which nobody closes.
type endless struct{ p *process }

func (r endless) Read([]byte) (int, error) {
	<-r.p.stopped
	return 0, memterm.ErrStopped
}

// Write writes to the output. Where the client holds no more than a pipe does,
// it waits until somebody reads.
func (p *process) Write(b []byte) (int, error) {
	g := p.group
	for {
		g.mu.Lock()
		if over(p.killed) {
			g.mu.Unlock()
			return 0, io.ErrClosedPipe
		}
		if g.pipe == 0 || g.readers > 0 || g.size-g.taken < g.pipe {
			g.writes = append(g.writes, chunk{slices.Clone(b), time.Now()})
			g.size += len(b)
			g.base.Stdout.Write(b) // what the Host shows; once all is killed it takes no more
			g.mu.Unlock()
			return len(b), nil
		}
		drained := g.drained
		g.mu.Unlock()
		select {
		case <-drained:
		case <-p.stopped:
			return 0, io.ErrClosedPipe
		}
	}
}

// take lets writers write on until done is called.
func (g *group) take() (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readers++
	close(g.drained)
	g.drained = make(chan struct{})
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.readers--
		g.taken = g.size
	}
}

// signalNumber returns the number of a signal.
func signalNumber(name string) int {
	for n, s := range map[int]string{1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"} {
		if s == name {
			return n
		}
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "SIG"))
	return n
}
