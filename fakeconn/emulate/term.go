package emulate

import (
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/signals"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A term is a terminal of a client. Its command runs below one program of memterm, so
// that the Host has the terminal, and the client knows more than the Host: who holds the
// output, who gets a signal.
type term struct {
	session acp.SessionId
	argv    []string // of the leader; nil if it cannot be started
	report  string   // its output then
	host    string   // its id in the Host
	limit   int      // negative is none
	bad     bool
	pipe    int           // bytes that nobody has read are held by writers; 0 is no bound
	outputs chan struct{} // held by a terminal/output that blocks

	released time.Time // zero until then; the client's mu guards it

	base   *memterm.Process // of memterm's program; valid once started is closed
	leader *memterm.Child   // the same; nil if it cannot be started
	shell  memterm.Program

	started chan struct{} // closed by run
	exited  chan struct{} // closed when the leader has ended: exit and exitAt are valid
	closed  chan struct{} // closed when nobody holds the output
	exit    terminal.Exit
	exitAt  time.Time

	mu sync.Mutex
	// guards following
	writes  []chunk
	size    int // of writes
	taken   int // bytes that were read destructively, or by a reader that waits for the end
	readers int // that take everything
	drained chan struct{}
}

// A chunk is one write.
type chunk struct {
	text []byte
	at   time.Time
}

func newTerm(session acp.SessionId) *term {
	return &term{
		session: session,
		limit:   -1,
		outputs: make(chan struct{}, 1),
		started: make(chan struct{}),
		exited:  make(chan struct{}),
		closed:  make(chan struct{}),
		drained: make(chan struct{}),
	}
}

// run is the program of memterm. It returns when every process has ended.
func (x *term) run(base *memterm.Process) terminal.Exit {
	x.base = base
	if x.argv != nil {
		x.leader = x.start()
	} else {
		x.WriteUntil(nil, []byte(x.report))
	}
	close(x.started)
	if x.leader != nil {
		x.exit = x.leader.Exit()
	}
	x.exitAt = time.Now()
	close(x.exited)
	for others := base.Others(); len(others) > 0; others = base.Others() {
		<-others[0].Done()
	}
	close(x.closed)
	return x.exit
}

// start starts the leader; nil if everything has been killed.
func (x *term) start() *memterm.Child {
	prog := x.shell
	if _, err := x.base.Find(x.argv[0]); err == nil || !memterm.IsShell(x.argv) {
		prog, _ = x.base.Find(x.argv...) // it was looked up before
	}
	p := *x.base
	p.Args, p.Stdout, p.Stderr = x.argv, x, x
	leader, err := x.base.Fork(p, prog)
	if err != nil {
		x.exit = memterm.Signal("SIGKILL")
	}
	return leader
}

// signal sends a signal to the leader, or to all.
func (x *term) signal(name string, all bool) {
	<-x.started
	sig := syscall.Signal(signals.Number(name))
	switch {
	case all:
		for _, p := range x.base.Others() {
			p.Signal(sig)
		}
	case x.leader != nil:
		x.leader.Signal(sig)
	}
}

// Write writes as a process does that nothing stops.
func (x *term) Write(b []byte) (int, error) { return x.WriteUntil(nil, b) }

// WriteUntil writes to the output. Where the client holds no more than a pipe does,
// it waits until somebody reads.
func (x *term) WriteUntil(stopped <-chan struct{}, b []byte) (int, error) {
	for {
		x.mu.Lock()
		if x.pipe == 0 || x.readers > 0 || x.size-x.taken < x.pipe {
			x.writes = append(x.writes, chunk{slices.Clone(b), time.Now()})
			x.size += len(b)
			x.base.Stdout.Write(b) // what the Host shows; once all is killed it takes no more
			x.mu.Unlock()
			return len(b), nil
		}
		drained := x.drained
		x.mu.Unlock()
		select {
		case <-drained:
		case <-stopped:
			return 0, io.ErrClosedPipe
		}
	}
}

// take lets writers write on until done is called.
func (x *term) take() (done func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.readers++
	close(x.drained)
	x.drained = make(chan struct{})
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.readers--
		x.taken = x.size
	}
}
