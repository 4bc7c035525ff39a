package launcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/signals"
	"github.com/termbridge/termbridge/terminal"
)

// A process is one command at the place: the launcher here, and what the wrapper
// there reports.
type process struct {
	*execenv.Front
	e    *Executor
	ctx  context.Context
	spec *execenv.Spec // the Front's

	// set before Start
	stdin          *stdin // of StdinPipe; nil without
	stdout, stderr output

	// set by Start
	*attempt
	watch func() bool // ends the watch over ctx

	resized resize

	kill   chan struct{} // closed by Kill, with mu held
	begun  chan struct{} // closed by the first record; refused is valid
	exited chan struct{} // closed when the exit is known, or never will be

	mu sync.Mutex
	// guards following
	phase   phase
	pid     int   // at the place; 0 is unknown
	refused error // why it could not be started
	exit    terminal.Exit
	cause   error // of the context that ended it
	forced  bool  // the launcher was ended by force
}

// An attempt is one launcher. Start makes another if that may help.
type attempt struct {
	conn     *connection
	tag, id  string
	inner    execenv.Session  // the launcher
	tty      execenv.Terminal // the launcher's; nil for pipes
	input    inputPipe        // the launcher's standard input; nil on a terminal
	complain tailText         // the launcher's standard error before the start
	feeding  sync.WaitGroup   // copies Spec.Stdin
	reading  sync.WaitGroup   // the pumps
	over     chan struct{}    // closed when the launcher was waited for
}

type phase int

const (
	ready phase = iota
	failed
	running
)

var (
	_ execenv.Session = (*process)(nil)
)

func newProcess(ctx context.Context, e *Executor, spec execenv.Spec) *process {
	p := &process{
		e: e, ctx: ctx,
		attempt: &attempt{over: make(chan struct{})},
		kill:    make(chan struct{}),
		begun:   make(chan struct{}),
		exited:  make(chan struct{}),
	}
	p.Front = execenv.NewFront(p, spec)
	p.spec = p.Spec()
	return p
}

// An output is where an output of the command goes.
type output struct {
	pipe   *io.PipeWriter // of a pipe method
	reader *io.PipeReader
	w      io.Writer

	mu sync.Mutex // held while w is written to
	// guards following
	dropped bool // nobody reads any more
}

// Write writes to wherever the output goes. It never fails: what nobody takes is
// dropped, since a command must not be killed by that.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.dropped && o.w != nil {
		if _, err := o.w.Write(p); err != nil {
			o.dropped = true
		}
	}
	return len(p), nil
}

// end lets a reader of the pipe see its end.
func (o *output) end() {
	if o.pipe != nil {
		o.pipe.Close()
	}
}

// drop ends a write to a pipe, and waits for one to a writer: after it the writer
// is the caller's again.
func (o *output) drop() {
	if o.reader != nil {
		o.reader.Close()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped = true
}

func (p *process) StdinPipe() (io.WriteCloser, error) {
	if err := p.Pipe(0); err != nil {
		return nil, err
	}
	p.stdin = &stdin{p: p}
	return p.stdin, nil
}

// An inputPipe is what an [execenv.Local] returns for a standard input.
type inputPipe interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

// stdin is the caller's end of the standard input: the launcher's, once the
// header is through, as it is when Start returns.
type stdin struct {
	p *process

	mu sync.Mutex
	// guards following
	open   bool // it is the caller's now
	closed bool
}

func (s *stdin) Write(b []byte) (int, error) {
	s.mu.Lock()
	open, closed := s.open, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return 0, os.ErrClosed
	case !open:
		return 0, errors.New("launcher: a write to StdinPipe before Start")
	}
	return s.p.input.Write(b)
}

func (s *stdin) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		return nil
	}
	return s.p.input.SetWriteDeadline(t)
}

func (s *stdin) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return os.ErrClosed
	}
	s.closed = true
	if s.open {
		return s.p.input.Close()
	}
	return nil
}

// begin gives the input to the caller.
func (s *stdin) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
	if s.closed {
		s.p.input.Close()
	}
}

func (p *process) StdoutPipe() (io.ReadCloser, error) { return p.outputPipe(1, &p.stdout) }
func (p *process) StderrPipe() (io.ReadCloser, error) { return p.outputPipe(2, &p.stderr) }

func (p *process) outputPipe(n int, o *output) (io.ReadCloser, error) {
	if err := p.Pipe(n); err != nil {
		return nil, err
	}
	o.reader, o.pipe = io.Pipe()
	o.w = o.pipe
	return &outputReader{o.reader}, nil
}

// An outputReader returns os.ErrClosed after Close, as a file does.
type outputReader struct{ *io.PipeReader }

func (r *outputReader) Read(b []byte) (int, error) {
	n, err := r.PipeReader.Read(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = os.ErrClosed
	}
	return n, err
}

func (p *process) Start() error {
	if err := p.Begin(); err != nil {
		return err
	}
	if err := p.start(); err != nil {
		p.stdout.end()
		p.stderr.end()
		p.know(terminal.Exit{})
		p.mu.Lock()
		p.phase = failed
		p.mu.Unlock()
		return &execenv.StartError{Path: p.spec.Path, Dir: p.spec.Dir, Err: err}
	}
	p.Started()
	return nil
}

// tries is how often a launcher is started whose failure says [Launcher.Again]; the
// pause before the next start doubles from firstPause.
const (
	tries      = 8
	firstPause = 5 * time.Millisecond
)

// start connects and starts the launcher, again if that helps.
func (p *process) start() error {
	if err := p.spec.Check(); err != nil {
		return err
	}
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	if err := p.e.register(); err != nil {
		return err
	}
	defer p.e.background.Done()
	ctx, cancel := context.WithTimeoutCause(p.ctx, p.e.opts.StartTimeout, p.e.late())
	defer cancel()
	for try := 0; ; try++ {
		again, err := p.try(ctx)
		if !again || try == tries-1 {
			return err
		}
		select {
		case <-time.After(firstPause << try):
		case <-ctx.Done():
			return err
		}
	}
}

// try starts the launcher, and waits for the wrapper's first record. Another try may
// succeed if it returns true.
func (p *process) try(ctx context.Context) (again bool, err error) {
	conn, err := p.e.connect(ctx)
	if err != nil {
		return false, err
	}
	p.attempt = &attempt{conn: conn, over: make(chan struct{})}
	if err := p.launch(); err != nil {
		p.conn.leave()
		return false, err
	}
	if err := p.e.enter(p); err != nil {
		p.abandon()
		return false, err
	}
	select {
	case <-p.begun:
	case <-p.over:
	case <-ctx.Done():
		p.abandon()
		return false, context.Cause(ctx)
	}
	switch {
	case !await.Closed(p.begun) && await.Closed(p.conn.lost):
		return false, fmt.Errorf("%s: %w", p.e.launcher.Name, ErrLost)
	case !await.Closed(p.begun):
		p.feeding.Wait() // so that it takes nothing from the next try
		text := p.complaint()
		again = p.e.launcher.Again != nil && p.e.launcher.Again(text.String())
		return again, p.e.explain(text, &tailText{}, p.inner.Exit().String())
	case p.refused != nil:
		return false, p.refused
	}
	if p.stdin != nil {
		p.feeding.Wait() // the header is through: now the input is the caller's
		p.stdin.begin()
	}
	p.mu.Lock()
	p.phase = running
	p.mu.Unlock()
	if p.ctx.Done() != nil {
		p.watch = context.AfterFunc(p.ctx, p.killByContext)
	}
	return false, nil
}

// late is the error of a start that takes too long.
func (e *Executor) late() error {
	return fmt.Errorf("%s: %w: no answer for %v", e.launcher.Name, ErrUnreachable, e.opts.StartTimeout)
}

// abandon ends a process whose Start fails, and waits for its end. The outputs are
// read to nowhere, since nobody has them yet. The wrapper may be anywhere on its way
// to the command: so the supervisor is asked more than once.
func (p *process) abandon() {
	p.drop()
	if p.input != nil {
		p.input.Close() // without a header the wrapper runs nothing
	}
	if p.stopUntil(p.over, time.Second) {
		return
	}
	p.force(0)
	<-p.over
	p.e.background.Go(func() { p.stopUntil(p.conn.begin.Done(), request) })
}

// stopUntil stops what runs there, again and again, until a channel is closed, and
// returns whether it was in that time. A connection that ends kills all.
func (p *process) stopUntil(done <-chan struct{}, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		if p.conn.blind {
			<-ctx.Done()
		}
		_, _ = p.conn.ask(ctx, "S", p.id, "0")
		select {
		case <-done:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// drop ends both outputs.
func (p *process) drop() {
	p.stdout.drop()
	p.stderr.drop()
}

// complaint returns what the launcher wrote to its standard error. On a terminal
// that is in a file.
func (p *process) complaint() *tailText {
	if p.tty != nil {
		if b, err := os.ReadFile(p.complaints()); err == nil {
			_, _ = p.complain.Write(b)
		}
	}
	return &p.complain
}

func (p *process) complaints() string { return p.conn.dir + "/" + p.id + "err" }

// launch starts the launcher with the wrapper.
func (p *process) launch() error {
	a := p.attempt
	a.tag, a.id = a.conn.next()
	nonce := rand.Text()
	spec, head := p.plan(nonce)
	a.inner = p.e.local.Command(context.Background(), spec).(execenv.Session)
	pumps, err := p.connectOutputs(nonce)
	if err != nil {
		return err
	}
	if err := a.inner.Start(); err != nil {
		if errors.Is(err, execenv.ErrNoCommand) {
			return fmt.Errorf("%w: %w", ErrNotInstalled, err)
		}
		return err
	}
	if p.spec.TTY != nil {
		a.tty, _ = a.inner.Terminal()
		pumps[0].from = a.tty
	} else {
		a.feeding.Go(func() { p.write(a, head) }) // ends with the launcher
	}
	for _, pump := range pumps {
		a.reading.Go(func() { p.carry(pump) }) // joined by awaitEnd
	}
	p.e.background.Go(func() { p.awaitEnd(a) })
	return nil
}

// plan returns the launcher with the wrapper, and the header that the wrapper reads.
func (p *process) plan(nonce string) (spec execenv.Spec, head string) {
	dir := p.spec.Dir
	if dir == "" {
		dir = p.e.opts.Dir
	}
	head = header(dir, p.spec.TTY, p.tag, p.spec.Env.Explicit(), append([]string{p.spec.Path}, p.spec.Args...))
	half := len(nonce) / 2
	argv := []string{"/bin/sh", "-c", wrapper, "tb", nonce[:half], nonce[half:]}
	wait := ""
	if p.e.launcher.SetsModes {
		wait = "w"
	}
	switch tty := p.spec.TTY; {
	case tty == nil:
		argv = append(argv, "p")
	case tty.Input:
		argv = append(argv, "t"+wait, head)
	default:
		argv = append(argv, "o"+wait, head)
	}
	argv = p.e.argv(Run{Argv: argv, TTY: p.spec.TTY != nil, Dir: p.conn.dir})
	spec = execenv.Spec{Env: *p.e.opts.Env, Group: true}
	if p.spec.TTY != nil {
		// The launcher's own messages stay out of the terminal.
		argv = append([]string{"/bin/sh", "-c", `exec "$@" 2>"$0"`, p.complaints()}, argv...)
		spec.TTY = &execenv.TTY{Size: p.spec.TTY.Size, Input: true}
	}
	spec.Path, spec.Args = argv[0], argv[1:]
	return spec, head
}

// connectOutputs connects the launcher's pipes, and returns the pump of each output.
// That of a terminal, which exists once the launcher has started, has no source yet.
func (p *process) connectOutputs(nonce string) ([]pump, error) {
	if p.spec.TTY != nil {
		p.stdout.reader, p.stdout.pipe = io.Pipe()
		p.stdout.w = p.stdout.pipe
		return []pump{p.newPump(nil, nonce, &p.stdout)}, nil
	}
	out, err := p.inner.StdoutPipe()
	if err != nil {
		return nil, err
	}
	errOut, err := p.inner.StderrPipe()
	if err != nil {
		return nil, err
	}
	in, err := p.inner.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.input = in.(inputPipe)
	stdout := p.spec.Stdout
	if p.spec.SameOutput() {
		stdout = &lockedWriter{w: stdout}
		p.spec.Stdout, p.spec.Stderr = stdout, stdout
	}
	p.open(&p.stdout, stdout)
	p.open(&p.stderr, p.spec.Stderr)
	return []pump{p.newPump(out, nonce, &p.stdout), p.newPump(errOut, nonce, &p.stderr)}, nil
}

// A pump carries one output of the launcher through its splitter.
type pump struct {
	from  io.Reader
	split *splitter
	to    *output
}

func (p *process) newPump(from io.Reader, nonce string, to *output) pump {
	return pump{from, &splitter{nonce: []byte(nonce), record: p.take, output: to}, to}
}

// carry runs a pump until the end of its source.
func (p *process) carry(u pump) {
	_, _ = io.CopyBuffer(u.split, struct{ io.Reader }{u.from}, make([]byte, 64<<10))
	u.split.flush()
	p.keepNoise(&u.split.noise)
	if await.Closed(p.begun) {
		u.to.end()
	}
}

// keepNoise keeps what was written before the first record, for the error of a
// start that fails.
func (p *process) keepNoise(noise *tailText) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !await.Closed(p.begun) {
		_, _ = p.complain.Write(noise.b)
	}
}

// open makes w the end of an output that has no pipe.
func (p *process) open(o *output, w io.Writer) {
	if o.pipe == nil {
		o.w = w
	}
}

// write writes the header and Spec.Stdin. Where the launcher may be started again
// that waits for the wrapper: a launcher that fails takes nothing of it. Podman, which
// is not, loses the output of a command that ends while its input is written.
func (p *process) write(a *attempt, head string) {
	_, err := io.WriteString(a.input, head+"\n")
	if p.stdin != nil {
		return
	}
	if err == nil && p.e.launcher.Again != nil {
		select {
		case <-p.begun:
		case <-a.over:
			err = os.ErrClosed
		}
	}
	if err == nil && p.spec.Stdin != nil {
		_, _ = io.Copy(a.input, p.spec.Stdin)
	}
	a.input.Close()
}

// enter notes a process that runs.
func (e *Executor) enter(p *process) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return terminal.ErrClosed
	}
	if e.live == nil {
		e.live = make(map[*process]struct{})
	}
	e.live[p] = struct{}{}
	return nil
}

// awaitEnd waits for the launcher, and for its outputs, and closes over.
func (p *process) awaitEnd(a *attempt) {
	<-a.inner.Exited()
	a.reading.Wait()
	_ = a.inner.Wait()
	if await.Closed(p.begun) { // else Start decides
		p.stdout.end()
		p.stderr.end()
		p.know(terminal.Exit{})
	}
	p.e.mu.Lock()
	delete(p.e.live, p)
	p.e.mu.Unlock()
	p.mu.Lock()
	forced := p.forced
	p.mu.Unlock()
	if !forced {
		a.conn.leave()
	}
	close(a.over)
}

// force ends the launcher itself. The far side of a connection may not notice, and
// count the session as open: so its slot is not given to another process.
func (p *process) force(grace time.Duration) {
	p.mu.Lock()
	p.forced = true
	p.mu.Unlock()
	p.inner.StopTree(grace)
}

// know makes exit the exit, unless it is known.
func (p *process) know(exit terminal.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !await.Closed(p.exited) {
		p.exit = exit
		close(p.exited)
	}
}

// take takes a record of the wrapper.
func (p *process) take(r record) {
	switch r.kind {
	case 'H':
		if p.tty != nil {
			_, _ = io.WriteString(p.tty, "\n")
		}
	case 'P', 'E':
		p.mu.Lock()
		defer p.mu.Unlock()
		if await.Closed(p.begun) {
			return
		}
		if r.kind == 'P' {
			p.pid, _ = strconv.Atoi(r.body)
		} else {
			p.refused = refusal(r.body)
		}
		close(p.begun)
	case 'X':
		p.know(parseExit(r.body))
	}
}

// refusal translates the reason of an E record.
func refusal(body string) error {
	code, what, _ := strings.Cut(body, " ")
	var errno error = map[string]error{
		"ENOENT": syscall.ENOENT, "EACCES": syscall.EACCES, "ENOTDIR": syscall.ENOTDIR, "EISDIR": syscall.EISDIR, "E2BIG": syscall.E2BIG,
	}[code]
	if errno == nil {
		errno = errors.New(code)
	}
	reason := error(execenv.ErrNoCommand)
	switch {
	case what == "dir":
		reason = execenv.ErrNoDir
	case code == "EACCES":
		reason = execenv.ErrNotExecutable
	case code == "EISDIR":
		reason = execenv.ErrIsDirectory
	case code == "E2BIG":
		reason = terminal.ErrTooLarge
	}
	return fmt.Errorf("%w (%w)", reason, errno)
}

// parseExit reads "CODE,TEXT,SIGNAL".
func parseExit(body string) terminal.Exit {
	fields := strings.SplitN(body, ",", 3)
	code, err := strconv.Atoi(fields[0])
	if err != nil || len(fields) != 3 {
		return terminal.Exit{}
	}
	signal := 0
	switch {
	case code > 256: // ksh
		signal = code - 256
	case code > 128 && (fields[1] != "" && fields[1] != "." || fields[2] != ""):
		signal = code - 128
	}
	if name := signals.Name(signal); name != "" {
		return terminal.Exit{Signal: name}
	}
	return terminal.Exit{Code: &code}
}

func (p *process) killByContext() {
	p.mu.Lock()
	if !await.Closed(p.exited) {
		p.cause = context.Cause(p.ctx)
	}
	p.mu.Unlock()
	p.StopTree(0)
}

func (p *process) Wait() error {
	if err := p.BeginWait(); err != nil {
		return err
	}
	<-p.exited
	err := p.joinCopies()
	if p.watch != nil {
		p.watch()
	}
	p.drop()
	if p.stdin != nil {
		p.stdin.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.exit.Success():
		return err
	case !p.exit.Known() && p.cause == nil:
		return &execenv.ExitError{Exit: p.exit, Err: fmt.Errorf("%s: %w", p.e.launcher.Name, ErrLost)}
	}
	return &execenv.ExitError{Exit: p.exit, Err: p.cause}
}

// errCut is why some of an output is missing.
var errCut = errors.New("launcher: killed, and its output was still held open")

// joinCopies waits for the copying to the writers of the Spec: without a bound, as
// os/exec does, or for 500 ms once the context has ended or Kill was
// called. What is written later goes to nowhere, as what is written to pipes does.
func (p *process) joinCopies() error {
	if p.spec.Stdout == nil && p.spec.Stderr == nil {
		return nil
	}
	var cut error
	select {
	case <-p.over:
		return nil
	case <-p.ctx.Done():
		cut = context.Cause(p.ctx)
	case <-p.kill:
		cut = errCut
	}
	select {
	case <-p.over:
		return nil
	case <-time.After(limits.DrainLimit):
		return cut
	}
}

// A lockedWriter is one writer for two outputs.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// ID names the process as PID@PLACE.
func (p *process) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase != running {
		return ""
	}
	return strconv.Itoa(p.pid) + "@" + p.e.launcher.Name
}

// request bounds one request to the supervisor.
const request = limits.KillTimeout

// silence is the error of a request that was not answered.
func (e *Executor) silence() error {
	return fmt.Errorf("%s: no answer for %v", e.launcher.Name, request)
}

func (p *process) Signal(sig os.Signal) error { return p.signal("N", sig) }

// SignalGroup signals the foreground group of the terminal, or the group of the
// process. SIGKILL, which would end the wrapper as well, reaches everything that
// has the tag of the process.
func (p *process) SignalGroup(sig os.Signal) error { return p.signal("G", sig) }

func (p *process) Kill() error {
	p.mu.Lock()
	if p.phase == running && !await.Closed(p.kill) {
		close(p.kill) // so that Wait ends
	}
	p.mu.Unlock()
	err := p.signal("K", syscall.SIGKILL)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase != running {
		return nil
	}
	return err
}

func (p *process) signal(op string, sig os.Signal) error {
	p.mu.Lock()
	phase, pid := p.phase, p.pid
	p.mu.Unlock()
	n, ok := sig.(syscall.Signal)
	switch {
	case phase != running:
		return errors.New("launcher: not started")
	case await.Closed(p.exited):
		return os.ErrProcessDone
	case !ok || signalWord(n) == "":
		return fmt.Errorf("launcher: signal %v: %w", sig, errors.ErrUnsupported)
	}
	if p.e.launcher.Here {
		pid = ownPID(p.tag, pid)
	}
	id := strconv.Itoa(pid)
	// The group of a sandbox's process is also that of the sandbox itself.
	if op == "G" && (n == syscall.SIGKILL || p.e.launcher.Here && p.tty == nil) || pid == 0 {
		op = "K"
	}
	if op == "K" {
		id = p.id
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), request, p.e.silence())
	defer cancel()
	answer, err := p.conn.ask(ctx, op, id, signalWord(n))
	if err == nil && answer == "-" {
		return os.ErrProcessDone
	}
	return err
}

// Terminal implements [execenv.Session].
func (p *process) Terminal() (execenv.Terminal, bool) {
	if p.tty == nil {
		return nil, false
	}
	return &tty{p}, true
}

func (p *process) Exited() <-chan struct{} { return p.exited }

func (p *process) Exit() terminal.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// StopTree implements [execenv.Session]. Without /proc at the place, and after
// the loss of the connection, the launcher is ended and what is left is not known.
func (p *process) StopTree(grace time.Duration) []terminal.Proc {
	p.mu.Lock()
	phase := p.phase
	p.mu.Unlock()
	if phase == ready || phase == failed {
		return nil
	}
	var left []terminal.Proc
	if !p.conn.blind {
		ctx, cancel := p.conn.whileAlive(grace + limits.SettleTimeout)
		answer, err := p.conn.ask(ctx, "S", p.id, strconv.Itoa(int((grace+49*time.Millisecond)/(50*time.Millisecond))))
		cancel()
		if err == nil {
			left = procs(answer)
		}
	}
	if left != nil {
		select { // the wrapper reports the exit
		case <-p.exited:
		case <-time.After(request):
		}
	}
	if !await.Closed(p.exited) || left == nil {
		p.force(grace)
		<-p.exited
	}
	return left
}

// Survivors implements [execenv.Session]. On pipes it asks only while something holds
// the launcher open: else it is not known whether something runs. A terminal ends with
// the command, whatever still runs on it, and tells nothing.
func (p *process) Survivors() []terminal.Proc {
	if p.spec.TTY == nil && await.Closed(p.over) || p.conn.blind {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), request)
	defer cancel()
	answer, err := p.conn.ask(ctx, "L", p.id)
	if err != nil {
		return nil
	}
	return procs(answer)
}

// InputState implements [execenv.Session]: what a process at the place waits for
// cannot be seen from here.
func (p *process) InputState() (terminal.Activity, terminal.Evidence) {
	if await.Closed(p.exited) {
		return terminal.Finished, terminal.Evidence{Certainty: terminal.Certain}
	}
	return terminal.Working, terminal.Evidence{Certainty: terminal.NoCertainty, Reason: "it runs at " + p.e.launcher.Name}
}

// A tty is the agent's side of a terminal at the place.
type tty struct{ p *process }

func (t *tty) Read(b []byte) (int, error) { return (&outputReader{t.p.stdout.reader}).Read(b) }

func (t *tty) Close() error {
	t.p.stdout.drop()
	return nil
}

func (t *tty) Write(b []byte) (int, error)           { return t.p.tty.Write(b) }
func (t *tty) SetWriteDeadline(when time.Time) error { return t.p.tty.SetWriteDeadline(when) }

// Resize resizes the launcher's terminal, whose new size it passes on. Without a
// controlling terminal the kernel tells the command nothing: the supervisor does,
// when the size has arrived.
func (t *tty) Resize(size terminal.Size) error {
	err := t.p.tty.Resize(size)
	if err == nil && !t.p.e.launcher.Here {
		t.p.resized.tell(t.p, resends)
	}
	if err != nil || t.p.spec.TTY.Input {
		return err
	}
	t.p.mu.Lock()
	pid := t.p.pid
	t.p.mu.Unlock()
	if t.p.e.launcher.Here || pid == 0 {
		return t.p.signal("K", windowChanged)
	}
	if await.Closed(t.p.exited) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), request, t.p.e.silence())
	defer cancel()
	_, err = t.p.conn.ask(ctx, "W", t.p.id, strconv.Itoa(pid), strconv.Itoa(int(size.Rows)), strconv.Itoa(int(size.Cols)))
	return err
}

// resends are the pauses after which a launcher is told of a new size again: of two
// that come at once, podman passes on the first only. One that it has passed on
// changes nothing.
var resends = []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second}

// A resize tells a launcher of its terminal's size again.
type resize struct {
	mu    sync.Mutex
	timer *time.Timer // of the next time, or nil; guarded by mu
}

// tell does it after each of the pauses, unless the size changes again.
func (r *resize) tell(p *process, pauses []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(pauses[0], func() {
		if await.Closed(p.exited) {
			return
		}
		_ = p.inner.SignalGroup(windowChanged)
		r.mu.Lock()
		defer r.mu.Unlock()
		if pauses = pauses[1:]; len(pauses) > 0 {
			r.timer.Reset(pauses[0])
		}
	})
}

// CanonicalLimit returns the limit of a Linux terminal that edits lines: whether
// the one at the place does cannot be seen from here.
func (t *tty) CanonicalLimit() int { return 4095 }
