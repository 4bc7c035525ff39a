package launcher

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// An Executor runs processes at a place. Make it with [New]. It may be used from
// any number of goroutines.
type Executor struct {
	launcher Launcher
	opts     Options
	local    *execenv.Local // runs the launcher itself

	background sync.WaitGroup // goroutines that Close joins
	close      sync.Once
	closeErr   error

	mu sync.Mutex
	// guards following
	closed      bool
	failed      error // of the last connection; nil if it could be made
	connections []*connection
	live        map[*process]struct{}
}

// Close ends every process of the Executor at the place, and every connection.
// The error is a [*terminal.LeakError] if something is left here, or is not
// known to have ended there. Later calls return the same.
func (e *Executor) Close() error {
	e.close.Do(func() { e.closeErr = e.shutdown() })
	return e.closeErr
}

func (e *Executor) shutdown() error {
	e.mu.Lock()
	e.closed = true
	connections := e.connections
	live := make([]*process, 0, len(e.live))
	for p := range e.live {
		live = append(live, p)
	}
	e.mu.Unlock()

	var stops sync.WaitGroup
	for _, p := range live {
		stops.Go(func() { p.StopTree(limits.StopGrace) })
	}
	stops.Wait()
	var leaks []terminal.Leak
	var mu sync.Mutex
	for _, c := range connections {
		stops.Go(func() {
			if err := c.end(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				leaks = append(leaks, terminal.Leak{What: "processes at " + e.launcher.Name, Err: err})
			}
		})
	}
	stops.Wait()
	err := e.local.Close()
	e.background.Wait()
	if leak, ok := errors.AsType[*terminal.LeakError](err); ok {
		leaks = append(leaks, leak.Leaks...)
	}
	if leaks != nil {
		return &terminal.LeakError{Leaks: leaks}
	}
	return err
}

// A State is what an Executor knows of its place.
type State struct {
	Connections int   // that are open, or are being made
	Processes   int   // that run there
	Err         error // why the last connection could not be made; nil if it could
}

// String says it for people: "not connected", "2 processes over 1 connection".
func (s State) String() string {
	switch {
	case s.Connections == 0 && s.Err != nil:
		return s.Err.Error()
	case s.Connections == 0:
		return "not connected"
	}
	return count(s.Processes, "process", "processes") + " over " + count(s.Connections, "connection", "connections")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// State returns what is known of the place now; it asks nobody.
func (e *Executor) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := State{Connections: len(e.connections), Processes: len(e.live), Err: e.failed}
	if errors.Is(s.Err, terminal.ErrClosed) {
		s.Err = nil
	}
	return s
}

// String returns the Launcher's Name.
func (e *Executor) String() string { return e.launcher.Name }

// register counts a start, for which Close waits.
func (e *Executor) register() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return terminal.ErrClosed
	}
	e.background.Add(1)
	return nil
}

// A connection is one supervisor at the place, and the way there that its
// commands may share.
type connection struct {
	e     *Executor
	dir   string // its own, on this machine
	tag   string
	begin context.Context         // bounds the start
	abort context.CancelCauseFunc // ends it
	ready chan struct{}           // closed when it can be used, or err is valid
	lost  chan struct{}           // closed when the supervisor is gone

	// valid once ready is closed
	err   error
	blind bool // there is no /proc at the place
	sup   execenv.Session
	in    io.WriteCloser

	users int // commands that hold a place; guarded by Executor.mu

	writing sync.Mutex // held while a request is written

	mu sync.Mutex
	// guards following
	count int // commands so far, for their numbers
	asked map[string][]chan string
}

// connect returns a connection with a place for one more command.
func (e *Executor) connect(ctx context.Context) (*connection, error) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, terminal.ErrClosed
	}
	var c *connection
	for _, o := range e.connections {
		if !await.Closed(o.lost) && (e.launcher.Sessions <= 0 || o.users < e.launcher.Sessions) {
			c = o
			break
		}
	}
	if c == nil {
		c = &connection{
			e:     e,
			tag:   rand.Text(),
			ready: make(chan struct{}),
			lost:  make(chan struct{}),
			asked: make(map[string][]chan string),
		}
		c.begin, c.abort = context.WithCancelCause(context.Background())
		e.connections = append(e.connections, c)
		e.background.Go(c.run)
	}
	c.users++
	e.mu.Unlock()

	select {
	case <-c.ready:
	case <-ctx.Done():
		c.leave()
		if !errors.Is(context.Cause(ctx), ErrUnreachable) {
			return nil, context.Cause(ctx)
		}
		select { // the connection's own time is over as well: it knows more
		case <-c.ready:
			if c.err != nil {
				return nil, c.err
			}
		case <-time.After(request):
		}
		return nil, context.Cause(ctx)
	}
	if c.err != nil {
		c.leave()
		return nil, c.err
	}
	return c, nil
}

// leave gives the place of a command back.
func (c *connection) leave() {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.users--
}

// run starts the supervisor and reads its answers until it ends.
func (c *connection) run() {
	lines, text, err := c.start()
	if err == nil {
		err = c.greet(lines, text)
	}
	c.e.mu.Lock()
	c.e.failed = err
	c.e.mu.Unlock()
	if err != nil {
		c.err = err
		close(c.ready)
		c.forget()
		return
	}
	close(c.ready)
	beats := make(chan struct{})
	go func() { // joined below
		defer close(beats)
		c.beat()
	}()
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		c.answer(strings.TrimRight(line, "\r\n"))
	}
	c.forget()
	<-beats
}

// forget ends the connection.
func (c *connection) forget() {
	c.e.mu.Lock()
	for i, o := range c.e.connections {
		if o == c {
			c.e.connections = append(c.e.connections[:i:i], c.e.connections[i+1:]...)
			break
		}
	}
	c.e.mu.Unlock()
	if c.sup != nil {
		if c.in != nil {
			c.in.Close()
		}
		c.sup.StopTree(limits.SettleTimeout) // where it runs here, it ends what it has started
		_ = c.sup.Wait()
	}
	os.RemoveAll(c.dir)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.lost)
	for _, waiters := range c.asked {
		for _, w := range waiters {
			close(w)
		}
	}
	c.asked = nil
}

// shortTemp returns where the directory of a connection is made: the path of a
// socket in it may have 90 bytes or so.
func shortTemp() string {
	if len(os.TempDir()) > 50 && runtime.GOOS != "windows" {
		return "/tmp"
	}
	return ""
}

// start starts the supervisor.
func (c *connection) start() (*bufio.Reader, *tailText, error) {
	dir, err := os.MkdirTemp(shortTemp(), "tb")
	if err != nil {
		return nil, nil, err
	}
	c.dir = dir
	run := Run{
		Argv:       []string{"/bin/sh", "-c", supervisor, "tb", c.tag, strconv.Itoa(int((c.e.opts.LostAfter+time.Second-1)/time.Second) + 1)},
		Supervisor: true,
		Dir:        dir,
	}
	var argv []string
	if c.e.launcher.Here {
		argv = run.Argv
	} else {
		argv = c.e.argv(run)
	}
	text := new(tailText)
	c.sup = c.e.local.Command(context.Background(), execenv.Spec{
		Path: argv[0], Args: argv[1:], Env: *c.e.opts.Env, Group: true, Stderr: text,
	}).(execenv.Session)
	if c.in, err = c.sup.StdinPipe(); err != nil {
		return nil, nil, err
	}
	out, err := c.sup.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := c.sup.Start(); err != nil {
		c.sup = nil
		if errors.Is(err, execenv.ErrNoCommand) {
			return nil, nil, fmt.Errorf("%w: %w", ErrNotInstalled, err)
		}
		return nil, nil, err
	}
	return bufio.NewReader(out), text, nil
}

// greet waits until the supervisor answers. What comes before is noise of login
// files.
func (c *connection) greet(lines *bufio.Reader, text *tailText) error {
	timeout := time.AfterFunc(c.e.opts.StartTimeout, func() {
		c.abort(c.e.late())
	})
	defer timeout.Stop()
	stopped := make(chan struct{})
	stop := context.AfterFunc(c.begin, func() {
		defer close(stopped)
		c.sup.StopTree(0)
	})
	noise := new(tailText)
	for {
		line, err := lines.ReadString('\n')
		if i := strings.Index(line, "READY "); i >= 0 && err == nil {
			if !stop() {
				<-stopped
				return context.Cause(c.begin)
			}
			c.blind = strings.HasPrefix(line[i:], "READY -")
			return nil
		}
		io.WriteString(noise, line)
		if err != nil {
			late := !stop()
			if late {
				<-stopped
			}
			<-c.sup.Exited()
			_ = c.sup.Wait() // the standard error is complete
			why := c.sup.Exit().String()
			c.sup = nil
			if errors.Is(context.Cause(c.begin), terminal.ErrClosed) {
				return terminal.ErrClosed
			}
			if said := text.String() + noise.String(); late && strings.TrimSpace(said) != "" {
				return fmt.Errorf("%w; what it wrote ends in %q", context.Cause(c.begin), lastLine(said))
			} else if late {
				return context.Cause(c.begin)
			}
			return c.e.explain(text, noise, why)
		}
	}
}

// argv returns the command line of a run.
func (e *Executor) argv(r Run) []string {
	if e.launcher.LoginShell {
		r.Argv = []string{loginLine(r.Argv)}
	}
	return e.launcher.Argv(r)
}

// explain returns why the launcher could not start something: the reason that it
// gave, and its own last words.
func (e *Executor) explain(text, noise *tailText, why string) error {
	said := text.String()
	if strings.TrimSpace(said) == "" {
		said = noise.String()
	}
	last := lastLine(said)
	if last == "" {
		last = why
	}
	reason := ErrUnreachable
	if e.launcher.Explain != nil {
		if r := e.launcher.Explain(text.String()); r != nil {
			reason = r
		}
	}
	return fmt.Errorf("%s: %w: %s", e.launcher.Name, reason, last)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// beat sends heartbeats, and ends the connection if they are not answered.
func (c *connection) beat() {
	every := min(5*time.Second, max(200*time.Millisecond, c.e.opts.LostAfter/8))
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-c.lost:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.e.opts.LostAfter)
		_, err := c.ask(ctx, "P", "beat")
		cancel()
		if err != nil {
			c.in.Close()
			c.sup.StopTree(limits.StopGrace) // its output ends
			return
		}
	}
}

// ask sends a request and returns what follows its operation and id in the
// answer. The error is the Cause of ctx, or ErrLost.
func (c *connection) ask(ctx context.Context, op, id string, args ...string) (string, error) {
	answer := make(chan string, 1)
	key := op + " " + id
	c.mu.Lock()
	if c.asked == nil {
		c.mu.Unlock()
		return "", ErrLost
	}
	c.asked[key] = append(c.asked[key], answer)
	c.mu.Unlock()
	go func() { // ends with the write, or with the connection
		c.writing.Lock()
		defer c.writing.Unlock()
		_, _ = io.WriteString(c.in, strings.Join(append([]string{op, id}, args...), " ")+"\n")
	}()
	select {
	case line, ok := <-answer:
		if !ok {
			return "", ErrLost
		}
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// whileAlive returns a context that ends after d: a busy place has as long again, and
// again, as its supervisor answers.
func (c *connection) whileAlive(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with ctx
		for range 5 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(d):
			}
			ping, done := context.WithTimeout(ctx, request)
			_, err := c.ask(ping, "P", "alive")
			done()
			if err != nil {
				break
			}
		}
		cancel()
	}()
	return ctx, cancel
}

// answer hands an answer to the one that asked first.
func (c *connection) answer(line string) {
	op, rest, _ := strings.Cut(line, " ")
	id, rest, _ := strings.Cut(rest, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	key := op + " " + id
	if waiters := c.asked[key]; len(waiters) > 0 {
		waiters[0] <- rest
		if c.asked[key] = waiters[1:]; len(waiters) == 1 {
			delete(c.asked, key)
		}
	}
}

// next returns the tag of the connection's next command.
func (c *connection) next() (tag, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	id = strconv.Itoa(c.count) + "."
	return c.tag + "." + id, id
}

// end ends the connection in an orderly way: the supervisor kills what is left.
func (c *connection) end() error {
	c.abort(terminal.ErrClosed) // a start that is under way
	<-c.ready
	if c.err != nil || await.Closed(c.lost) {
		return nil
	}
	c.writing.Lock()
	c.in.Close()
	c.writing.Unlock()
	select {
	case <-c.lost:
		return nil
	case <-time.After(limits.SettleTimeout):
		c.sup.StopTree(0)
		<-c.lost
		return fmt.Errorf("%w: the supervisor did not confirm the end", ErrLost)
	}
}

// procs parses "PID:WORDS …".
func procs(list string) []terminal.Proc {
	all := []terminal.Proc{}
	for word := range strings.FieldsSeq(list) {
		pid, words, _ := strings.Cut(word, ":")
		text, _ := hex.DecodeString(words)
		if n, err := strconv.Atoi(pid); err == nil {
			all = append(all, terminal.Proc{PID: n, Command: strings.TrimSpace(string(text[:min(len(text), maxProcText)]))})
		}
	}
	return all
}

// maxProcText is how much of a process's words is kept.
const maxProcText = 200
