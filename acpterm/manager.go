package acpterm

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/registry"
	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/terminal"
)

// A Manager is a [terminal.Manager] whose commands run in the terminals of one
// session of an ACP client. Make one with [New].
type Manager struct {
	peer     peer
	options  Options
	releases releases // the client's terminals that are not released
	tags     string   // the tags of all commands begin with it
	tagged   atomic.Int64

	registry *registry.Registry[*term] // its Starts are calls of Start
	expired  chan struct{}             // closed when Close or Stop waits no longer

	mu sync.Mutex
	// guards following
	creating map[*creation]struct{} // terminal/create without an answer
	live     map[*term]struct{}     // not over, kept or not
}

var _ terminal.Manager = (*Manager)(nil)

func newManager(p peer, o Options) *Manager {
	o = o.withDefaults()
	m := &Manager{
		peer:     p,
		options:  o,
		tags:     rand.Text() + ".",
		creating: make(map[*creation]struct{}),
		live:     make(map[*term]struct{}),
		expired:  make(chan struct{}),
	}
	m.registry = registry.New(registry.Options[*term]{
		MaxTerminals: o.MaxTerminals,
		WaitForSlot:  o.WaitForSlot,
		ManagerBytes: o.ManagerBytes,
		Shrink:       func(t *term, size int) int { return t.output.Shrink(size) },
		NewID:        o.NewID,
		Prefix:       "t",
		Logger:       o.Logger,
	})
	return m
}

// Start implements [terminal.Manager]: it has the client create a terminal. TTY
// and Size are requests that ACP cannot carry. A Stdin is refused with
// [terminal.ErrNoInput], a command over 1 MiB with
// [terminal.ErrTooLarge].
//
// If ctx has ended already nothing is sent. An error that wraps
// [errors.ErrUnsupported] says that the client has no terminals, and is the only
// one after which the command may be started elsewhere: every other may stand
// for a user's refusal, or for a command that ran. What the client answered is
// found by errors.As as an *acp.RequestError. A reply that no honest client
// gives is [ErrBadReply], the end of the connection [terminal.ErrConnectionLost].
func (m *Manager) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	t, err := m.start(ctx, m.peer, cmd, Hooks{})
	if err != nil {
		return nil, err // a nil *term would be no nil Terminal
	}
	return t, nil
}

// Hooks are called while one command starts and is released. Each may be nil.
type Hooks struct {
	// Sent is called right before terminal/create is sent, which goes on whatever
	// becomes of the ctx of the start. It must not block.
	Sent func()

	// Created is called with the new terminal after the client has made it and
	// before the start returns, so that the caller can show it to the user; the
	// client's terminal is not released before Created has returned. Its ctx has
	// the values of the start's ctx and a bound of its own. The start does not
	// wait for a Created that outlasts this bound or the start's ctx.
	Created func(ctx context.Context, t terminal.Terminal)

	// Releasing is called before terminal/release is sent, and so delays it, for
	// half of 2 s at most. It is called for a terminal that
	// came too late, too.
	Releasing func(ctx context.Context)

	// Done is called once after Sent, when nothing of the command is left in
	// the client as far as that will ever be known: create was refused, or the
	// terminal is released, or the connection has ended. It must not block.
	Done func()
}

// guarded returns hooks whose panics are logged, and cost nothing else.
func (m *Manager) guarded(h Hooks) Hooks {
	guard := func(name string, f func()) {
		if failure := caught.Call(f); failure != nil {
			m.options.Logger.Error("acpterm: a hook panicked", "hook", name, "panic", failure.Value, "stack", failure.Stack)
		}
	}
	if f := h.Sent; f != nil {
		h.Sent = func() { guard("Sent", f) }
	}
	if f := h.Created; f != nil {
		h.Created = func(ctx context.Context, t terminal.Terminal) { guard("Created", func() { f(ctx, t) }) }
	}
	if f := h.Releasing; f != nil {
		h.Releasing = func(ctx context.Context) { guard("Releasing", func() { f(ctx) }) }
	}
	if f := h.Done; f != nil {
		h.Done = func() { guard("Done", f) }
	}
	return h
}

// StartWith is Start with hooks.
func (m *Manager) StartWith(ctx context.Context, cmd terminal.Command, hooks Hooks) (terminal.Terminal, error) {
	t, err := m.start(ctx, m.peer, cmd, hooks)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// start starts a command in the client of p.
func (m *Manager) start(ctx context.Context, p peer, cmd terminal.Command, hooks Hooks) (*term, error) {
	if ctx.Err() != nil {
		return nil, p.failure(ctx, acp.ClientMethodTerminalCreate, errStopWaiting)
	}
	cmd = cmd.Clone()
	id, err := m.registry.NextID() // now: if it panics nothing is lost
	if err != nil {
		return nil, fmt.Errorf("acpterm: %w", err)
	}
	if m.options.IDEnv != "" {
		cmd = cmd.WithEnv(m.options.IDEnv, id)
	}
	hooks = m.guarded(hooks)
	tag := m.nextTag()
	req, err := m.request(p, cmd, tag)
	if err != nil {
		return nil, err
	}
	if err := m.registry.Reserve(ctx, p.gone); err != nil {
		return nil, fmt.Errorf("acpterm: %w", err)
	}
	r, err := m.create(ctx, p, req, tag, hooks)
	if err != nil {
		m.registry.Unreserve()
		return nil, err
	}
	t := m.adopt(p, id, cmd, r, *req.OutputByteLimit, tag)
	m.show(ctx, t, hooks.Created)
	return t, nil
}

// A creation is a terminal/create that the client has not answered.
type creation struct {
	peer   peer
	tag    string // of its processes on this host, or ""
	hooks  Hooks
	sent   time.Time
	answer chan created  // buffered: what came, if somebody still waits
	over   chan struct{} // closed when the client has answered and all is done

	// guarded by Manager.mu:
	givenUp bool // nobody waits: what comes is killed and released
}

type created struct {
	release *release
	err     error
}

// create sends one terminal/create and waits for the answer within bounds. The
// request itself cannot be taken back: SDK 0.13 forgets a request whose ctx has
// ended, drops the late reply, and the terminal is lost.
func (m *Manager) create(ctx context.Context, p peer, req acp.CreateTerminalRequest, tag string, hooks Hooks) (*release, error) {
	c := &creation{peer: p, tag: tag, hooks: hooks, sent: time.Now(), answer: make(chan created, 1), over: make(chan struct{})}
	if !m.creates(c) {
		return nil, fmt.Errorf("acpterm: %w", terminal.ErrClosed)
	}
	if hooks.Sent != nil {
		hooks.Sent()
	}

	detached := context.WithoutCancel(ctx)
	go func() { // owned by the connection
		resp, err := p.conn.CreateTerminal(detached, req)
		m.answered(c, resp, err)
	}()

	var bound <-chan time.Time
	if limit := m.options.CreateTimeout; limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		bound = timer.C
	}
	var err error
	select {
	case r := <-c.answer:
		return r.release, p.failure(ctx, acp.ClientMethodTerminalCreate, r.err)
	case <-p.gone:
		err = terminal.ErrConnectionLost
	case <-ctx.Done():
		err = errStopWaiting
	case <-m.registry.Closing:
		err = terminal.ErrClosed
	case <-bound:
		err = fmt.Errorf("%w for %v: if it asks its user first, allow more (Options.CreateTimeout, or asks in its profile)", errNoAnswer, m.options.CreateTimeout)
	}
	m.mu.Lock()
	c.givenUp = true
	m.mu.Unlock()
	select {
	case r := <-c.answer: // it came first
		return r.release, p.failure(ctx, acp.ClientMethodTerminalCreate, r.err)
	default:
	}
	return nil, p.failure(ctx, acp.ClientMethodTerminalCreate, err)
}

// creates enters c, unless the Manager is closing.
func (m *Manager) creates(c *creation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if await.Closed(m.registry.Closing) {
		return false
	}
	m.creating[c] = struct{}{}
	return true
}

// errStopWaiting stands for the end of the caller's ctx until failure puts its
// cause in place.
var errStopWaiting = context.Canceled

// answered takes the client's answer to c. It runs in the goroutine of the
// request.
func (m *Manager) answered(c *creation, resp acp.CreateTerminalResponse, err error) {
	var r *release
	if err == nil {
		r, err = m.track(c, resp.TerminalId)
	}
	m.mu.Lock()
	late := c.givenUp
	if !late {
		c.answer <- created{r, err}
		m.forget(c)
	}
	m.mu.Unlock()
	if late && r != nil {
		p := c.peer
		m.options.Logger.Info("acpterm: a terminal came too late and is released", "terminal", r.id, "after", time.Since(c.sent))
		killed := call(p, r, p.conn.KillTerminal, acp.KillTerminalRequest{SessionId: p.session, TerminalId: r.id})
		receive(p, killed, limits.KillTimeout)
		if c.tag != "" {
			m.sweep(c.tag, limits.StopGrace)
		}
		m.release(p, r, false, m.expired) // maybe the kill could not be sent
	} else if r == nil && c.hooks.Done != nil {
		c.hooks.Done()
	}
	if late {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.forget(c)
	}
}

// forget ends c. Called with mu held.
func (m *Manager) forget(c *creation) {
	delete(m.creating, c)
	close(c.over)
}

// track takes on a terminal that the client says it created, until its release.
func (m *Manager) track(c *creation, id string) (*release, error) {
	if id == "" {
		return nil, fmt.Errorf("%w: a terminal without an id", ErrBadReply)
	}
	r, ok := m.releases.track(c.peer.session, id, c.hooks)
	if !ok {
		// Which of the two commands the id stands for, nobody can say, so
		// neither is killed.
		return nil, fmt.Errorf("%w: terminal %q lives already", ErrBadReply, id)
	}
	return r, nil
}

// adopt makes a terminal of what the client created and starts watching it. If
// the Manager was closed meanwhile the terminal is stopped at once.
func (m *Manager) adopt(p peer, id string, cmd terminal.Command, r *release, asked int, tag string) *term {
	t := &term{
		manager:   m,
		release:   r,
		tag:       tag,
		output:    tail.New(m.limit(cmd)),
		stream:    p.client.profile(m.options.Profile).stream(asked, p.client),
		wake:      make(chan struct{}, 1),
		refreshes: make(chan chan<- seen),
		stopping:  make(chan struct{}),
		done:      make(chan struct{}),
		shown:     make(chan struct{}),
		over:      make(chan struct{}),
		peer:      p,
		info: terminal.Info{
			ID:          id,
			Environment: Environment,
			Command:     cmd,
			Dir:         cmp.Or(cmd.Dir, m.options.Dir),
			Outcome:     terminal.Running,
			Started:     time.Now(),
		},
	}
	t.output.Reserve = func(n int) int { return m.registry.Grow(t, n) }
	r.own(t.info.ID)
	m.mu.Lock()
	m.live[t] = struct{}{}
	m.mu.Unlock()
	if m.registry.Put(t.info.ID, t) != nil {
		t.requestStop()
	}
	m.registry.Starts.Done()
	go t.run() // joined by Close, by t.over
	return t
}

// show runs Hooks.Created.
func (m *Manager) show(ctx context.Context, t *term, created func(context.Context, terminal.Terminal)) {
	if created == nil {
		close(t.shown)
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limits.SettleTimeout)
	go func() { // it ends with Created; the release of t waits for it
		defer close(t.shown)
		defer cancel()
		created(bounded, t)
	}()
	select {
	case <-t.shown:
	case <-bounded.Done():
	case <-ctx.Done():
	}
}

// Get implements [terminal.Manager].
func (m *Manager) Get(id string) (terminal.Terminal, error) {
	t, err := m.registry.Get(id)
	if err != nil {
		return nil, fmt.Errorf("acpterm: %w", err)
	}
	return t, nil
}

// List implements [terminal.Manager].
func (m *Manager) List() []terminal.Terminal { return m.registry.List() }

// Busy implements [terminal.Manager].
func (m *Manager) Busy() bool { return m.registry.Busy() }

// OnEvict has f called with each terminal that is kept no longer, right after that.
// F may read the terminal; it must neither wait nor call the Manager.
func (m *Manager) OnEvict(f func(terminal.Terminal)) { m.registry.OnEvict(f) }

// Close implements [terminal.Manager]: it stops every command, releases every
// terminal, and reports as a [*terminal.LeakError] what the client did not
// answer: a terminal/release, sent twice, or a terminal/create, which may still
// start a command.
//
// After the end of the connection nothing is reported, and Close takes at most
// 200 ms more: a client that has only closed our input, and still reads, is told
// to kill and release what it runs for us.
func (m *Manager) Close() error { return m.registry.Close(m.shut) }

func (m *Manager) shut([]*term) error {
	m.registry.Starts.Wait() // at once: closing ends their wait for the client
	m.mu.Lock()
	live := slices.Collect(maps.Keys(m.live))
	creating := slices.Collect(maps.Keys(m.creating))
	m.mu.Unlock()
	for _, t := range live {
		t.requestStop()
	}
	limit := time.AfterFunc(limits.SettleTimeout, func() { close(m.expired) })
	defer limit.Stop()
	for _, t := range live {
		<-t.over
	}
	for _, c := range creating {
		select {
		case <-c.over:
		case <-m.peer.gone:
		case <-m.expired:
		}
	}
	var again sync.WaitGroup
	for _, r := range m.releases.open() {
		again.Go(func() { m.releaseAgain(m.peer, r) })
	}
	again.Wait()
	if m.peer.lost() {
		m.sweep(m.tags, farewell)
		return nil
	}
	return m.leaks(m.sweep(m.tags, limits.StopGrace))
}

// leaks returns what is not settled as a *terminal.LeakError, or nil.
func (m *Manager) leaks(left []terminal.Proc) error {
	var leaks []terminal.Leak
	if len(left) > 0 {
		leaks = append(leaks, terminal.Leak{What: "process", Procs: left})
	}
	for _, r := range m.releases.open() {
		owner, sent := r.of()
		leak := terminal.Leak{ID: owner, What: acp.ClientMethodTerminalRelease, Err: errNoAnswer}
		if sent.IsZero() {
			leak.Err = errors.New("not sent: Hooks.Created has not returned")
		}
		leaks = append(leaks, leak)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.creating {
		leaks = append(leaks, terminal.Leak{
			What: acp.ClientMethodTerminalCreate,
			Err:  fmt.Errorf("%w for %v: a command may run", errNoAnswer, time.Since(c.sent).Round(time.Millisecond)),
		})
	}
	if leaks == nil {
		return nil
	}
	return &terminal.LeakError{Leaks: leaks}
}

// over is called when nothing more is to be done about t but for an answer to its
// release.
func (m *Manager) over(t *term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, t)
}
