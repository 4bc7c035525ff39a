package acpterm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/ledger"
	"github.com/termbridge/termbridge/internal/shelf"
	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/terminal"
)

// A Manager is a [terminal.Manager] whose commands run in the terminals of one
// session of an ACP client. Make one with [New].
type Manager struct {
	peer    peer
	options Options
	duties  ledger.Releases // the client's terminals that are not released

	mu sync.Mutex
	// guards following
	closed   bool
	kept     *shelf.Shelf[*term]
	creating map[*creation]struct{} // terminal/create without an answer
	live     []*term                // not settled, kept or not

	starts   sync.WaitGroup // added to while closed is not set
	closing  chan struct{}  // closed when closed is set
	expired  chan struct{}  // closed when Close waits no longer
	gone     chan struct{}  // closed by the first Close, last: closeErr is set
	closeErr error          // valid once gone is closed
}

var _ terminal.Manager = (*Manager)(nil)

func newManager(conn Conn, session acp.SessionId, o Options) *Manager {
	m := &Manager{
		peer:     newPeer(conn, session),
		options:  o,
		kept:     shelf.New(o.MaxTerminals, func(*term) {}),
		creating: make(map[*creation]struct{}),
		closing:  make(chan struct{}),
		expired:  make(chan struct{}),
		gone:     make(chan struct{}),
	}
	return m
}

// Start implements [terminal.Manager]: it has the client create a terminal. TTY
// and Size are requests that ACP cannot carry. A Stdin is refused with
// [terminal.ErrNoInput], a command over [terminal.MaxCreate] with
// [terminal.ErrTooLarge].
//
// If ctx has ended already nothing is sent. An error that wraps
// [errors.ErrUnsupported] says that the client has no terminals, and is the only
// one after which the command may be started elsewhere: every other may stand
// for a user's refusal, or for a command that ran. What the client answered is
// found by errors.As as an *acp.RequestError. A reply that no honest client
// gives is [ErrBadReply], the end of the connection [terminal.ErrConnectionLost].
func (m *Manager) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	if ctx.Err() != nil {
		return nil, m.peer.failure(ctx, acp.ClientMethodTerminalCreate, errStopWaiting)
	}
	cmd = cmd.Clone()
	req, err := m.request(cmd)
	if err != nil {
		return nil, err
	}
	if err := m.reserve(); err != nil {
		return nil, err
	}
	duty, err := m.create(ctx, req)
	if err != nil {
		m.unreserve()
		return nil, err
	}
	t := m.adopt(cmd, duty, *req.OutputByteLimit)
	m.show(ctx, t)
	return t, nil
}

// reserve takes a slot for a command that is about to start.
func (m *Manager) reserve() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return fmt.Errorf("acpterm: %w", terminal.ErrClosed)
	case m.peer.lost():
		return fmt.Errorf("acpterm: %w", terminal.ErrConnectionLost)
	}
	if err := m.kept.Reserve(); err != nil {
		return fmt.Errorf("acpterm: %w", err)
	}
	m.starts.Add(1)
	return nil
}

func (m *Manager) unreserve() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept.Unreserve()
	m.starts.Done()
}

// A creation is a terminal/create that the client has not answered.
type creation struct {
	sent   time.Time
	answer chan created  // buffered: what came, if somebody still waits
	over   chan struct{} // closed when the client has answered and all is done

	// guarded by Manager.mu:
	givenUp bool // nobody waits: what comes is killed and released
}

type created struct {
	duty *ledger.Release
	err  error
}

// create sends one terminal/create and waits for the answer within bounds. The
// request itself cannot be taken back: the SDK forgets a request whose ctx has
// ended, drops the late reply, and the terminal is lost.
func (m *Manager) create(ctx context.Context, req acp.CreateTerminalRequest) (*ledger.Release, error) {
	c := &creation{sent: time.Now(), answer: make(chan created, 1), over: make(chan struct{})}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, fmt.Errorf("acpterm: %w", terminal.ErrClosed)
	}
	m.creating[c] = struct{}{}
	m.mu.Unlock()
	if m.options.Creating != nil {
		m.options.Creating(ctx)
	}

	detached := context.WithoutCancel(ctx)
	go func() { // owned by the connection
		resp, err := m.peer.conn.CreateTerminal(detached, req)
		m.answered(c, resp, err)
	}()

	timer := time.NewTimer(m.options.CreateTimeout)
	defer timer.Stop()
	var err error
	select {
	case r := <-c.answer:
		return r.duty, m.peer.failure(ctx, acp.ClientMethodTerminalCreate, r.err)
	case <-m.peer.gone:
		err = terminal.ErrConnectionLost
	case <-ctx.Done():
		err = errStopWaiting
	case <-m.closing:
		err = terminal.ErrClosed
	case <-timer.C:
		err = fmt.Errorf("%w for %v", errNoAnswer, m.options.CreateTimeout)
	}
	m.mu.Lock()
	c.givenUp = true
	m.mu.Unlock()
	select {
	case r := <-c.answer: // it came first
		return r.duty, m.peer.failure(ctx, acp.ClientMethodTerminalCreate, r.err)
	default:
	}
	return nil, m.peer.failure(ctx, acp.ClientMethodTerminalCreate, err)
}

// errStopWaiting stands for the end of the caller's ctx until failure puts its
// cause in place.
var errStopWaiting = context.Canceled

// answered takes the client's answer to c. It runs in the goroutine of the
// request.
func (m *Manager) answered(c *creation, resp acp.CreateTerminalResponse, err error) {
	var duty *ledger.Release
	if err == nil {
		duty, err = m.hold(resp.TerminalId)
	}
	m.mu.Lock()
	late := c.givenUp
	if !late {
		c.answer <- created{duty, err}
		m.forget(c)
	}
	m.mu.Unlock()
	if !late {
		return
	}
	if duty != nil {
		m.options.Logger.Info("acpterm: a terminal came too late and is released", "terminal", duty.ID, "after", time.Since(c.sent))
		killed := call(context.Background(), m.peer.conn.KillTerminal, acp.KillTerminalRequest{SessionId: m.peer.session, TerminalId: duty.ID})
		await(m.peer, killed, terminal.KillTimeout)
		m.release(duty, m.expired)
	}
	m.mu.Lock()
	m.forget(c)
	m.mu.Unlock()
}

// forget ends c. Called with mu held.
func (m *Manager) forget(c *creation) {
	delete(m.creating, c)
	close(c.over)
}

// hold takes the duty to release a terminal that the client says it created.
func (m *Manager) hold(id string) (*ledger.Release, error) {
	if id == "" {
		return nil, fmt.Errorf("%w: a terminal without an id", ErrBadReply)
	}
	duty, ok := m.duties.Hold(id)
	if !ok && !duty.Sent().IsZero() && m.settled(duty, terminal.ReleaseTimeout, nil) {
		// An id may come again once it is released, and its create may overtake
		// the answer to the release.
		duty, ok = m.duties.Hold(id)
	}
	if !ok {
		// Which of the two commands the id stands for, nobody can say, so
		// neither is killed.
		return nil, fmt.Errorf("%w: terminal %q lives already", ErrBadReply, id)
	}
	return duty, nil
}

// adopt makes a terminal of what the client created and starts watching it. If
// the Manager was closed meanwhile the terminal is stopped at once.
func (m *Manager) adopt(cmd terminal.Command, duty *ledger.Release, asked int) *term {
	t := &term{
		manager:   m,
		duty:      duty,
		output:    tail.New(m.limit(cmd)),
		stream:    stream{limit: asked, keepsHead: m.options.Profile.KeepsHead, unsure: m.options.Profile.TruncatedUnsure},
		wake:      make(chan struct{}, 1),
		refreshes: make(chan chan<- error),
		stop:      make(chan struct{}),
		done:      make(chan struct{}),
		shown:     make(chan struct{}),
		over:      make(chan struct{}),
		info: terminal.Info{
			ID:          m.options.NewID(),
			Environment: Environment,
			Command:     cmd,
			Outcome:     terminal.Running,
			Started:     time.Now(),
		},
	}
	m.mu.Lock()
	m.kept.Put(t.info.ID, t)
	m.live = append(m.live, t)
	closed := m.closed
	m.starts.Done()
	m.mu.Unlock()
	if closed {
		t.requestStop()
	}
	go t.run() // joined by Close, by t.over
	return t
}

// show runs Options.Created.
func (m *Manager) show(ctx context.Context, t *term) {
	if m.options.Created == nil {
		close(t.shown)
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), terminal.SettleTimeout)
	go func() { // it ends with Created; the release of t waits for it
		defer close(t.shown)
		defer cancel()
		m.options.Created(bounded, t)
	}()
	select {
	case <-t.shown:
	case <-bounded.Done():
	case <-ctx.Done():
	}
}

// release tells the client to release a terminal, and waits for the answer until
// its bound or giveUp. An answer of any kind settles it, also one that comes later.
func (m *Manager) release(duty *ledger.Release, giveUp <-chan struct{}) {
	if m.peer.lost() {
		m.abandon(duty, true)
		return
	}
	duty.Send()
	go func() { // owned by the connection
		_, err := m.peer.conn.ReleaseTerminal(context.Background(), acp.ReleaseTerminalRequest{SessionId: m.peer.session, TerminalId: duty.ID})
		if err != nil {
			m.options.Logger.Debug("acpterm: terminal/release", "terminal", duty.ID, "err", err)
		}
		duty.Settle()
	}()
	if !m.settled(duty, terminal.ReleaseTimeout, giveUp) {
		m.options.Logger.Warn("acpterm: terminal/release is not answered", "terminal", duty.ID)
	}
}

// farewell bounds what is still written when the connection has ended.
const farewell = 200 * time.Millisecond

// abandon kills, unless the command has ended, and releases a terminal after the
// end of the connection. No answer can come, but a client that has only closed
// our input still reads, and may live on with its commands. It returns when both
// requests are written, or after the bound.
func (m *Manager) abandon(duty *ledger.Release, ended bool) {
	duty.Send()
	written := make(chan struct{})
	go func() { // owned by the connection
		defer close(written)
		ctx, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		if !ended {
			half, cancel := context.WithTimeout(ctx, farewell/2)
			defer cancel()
			m.peer.conn.KillTerminal(half, acp.KillTerminalRequest{SessionId: m.peer.session, TerminalId: duty.ID})
		}
		m.peer.conn.ReleaseTerminal(ctx, acp.ReleaseTerminalRequest{SessionId: m.peer.session, TerminalId: duty.ID})
	}()
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
	}
	duty.Settle()
}

// releaseAgain is the last try for a terminal whose release is not answered. The
// first one gets the time that it has left.
func (m *Manager) releaseAgain(duty *ledger.Release) {
	sent := duty.Sent()
	if sent.IsZero() || m.settled(duty, time.Until(sent.Add(terminal.ReleaseTimeout)), nil) {
		return
	}
	m.release(duty, nil)
}

// settled waits within limit until a release is answered, and reports whether it
// was. With the connection, what the client held for us has ended.
func (m *Manager) settled(duty *ledger.Release, limit time.Duration, giveUp <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-duty.Settled():
	case <-m.peer.gone:
		duty.Settle()
	case <-giveUp:
		return false
	case <-timer.C:
		return false
	}
	return true
}

// Get implements [terminal.Manager].
func (m *Manager) Get(id string) (terminal.Terminal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t, ok := m.kept.Get(id); ok {
		return t, nil
	}
	return nil, fmt.Errorf("acpterm: %w: %q", terminal.ErrNotFound, id)
}

// List implements [terminal.Manager].
func (m *Manager) List() []terminal.Terminal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept.List()
}

// Busy implements [terminal.Manager].
func (m *Manager) Busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept.Busy()
}

// Close implements [terminal.Manager]: it stops every command, releases every
// terminal, and reports as a [*terminal.LeakError] what the client did not
// answer: a terminal/release, sent twice, or a terminal/create, which may still
// start a command.
//
// After the end of the connection nothing is reported, and Close takes at most
// 200 ms more: a client that has only closed our input, and still reads, is told
// to kill and release what it runs for us.
func (m *Manager) Close() error {
	m.mu.Lock()
	first := !m.closed
	if first {
		m.closed = true
		close(m.closing)
	}
	m.mu.Unlock()
	if first {
		m.closeErr = m.settleAll()
		close(m.gone)
	}
	<-m.gone
	return m.closeErr
}

func (m *Manager) settleAll() error {
	m.starts.Wait() // at once: closing ends their wait for the client
	m.mu.Lock()
	live := slices.Clone(m.live)
	var creating []*creation
	for c := range m.creating {
		creating = append(creating, c)
	}
	m.mu.Unlock()
	for _, t := range live {
		t.requestStop()
	}
	limit := time.AfterFunc(terminal.SettleTimeout, func() { close(m.expired) })
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
	for _, duty := range m.duties.Open() {
		again.Go(func() { m.releaseAgain(duty) })
	}
	again.Wait()
	if m.peer.lost() {
		return nil
	}
	return m.leaks(live)
}

// leaks returns what is not settled as a *terminal.LeakError, or nil.
func (m *Manager) leaks(live []*term) error {
	var leaks []terminal.Leak
	for _, duty := range m.duties.Open() {
		leak := terminal.Leak{What: acp.ClientMethodTerminalRelease, Err: errNoAnswer}
		if duty.Sent().IsZero() {
			leak.Err = errors.New("not sent: Options.Created has not returned")
		}
		for _, t := range live {
			if t.duty == duty {
				leak.ID = t.info.ID
			}
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

// ended gives back the slot of t and publishes its end. Before, it makes room for
// its output: of those that have ended, the oldest are forgotten.
func (m *Manager) ended(t *term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	total := 0
	for _, kept := range m.kept.List() {
		total += kept.(*term).output.Size()
	}
	m.kept.Evict(func(old *term) bool {
		over := total > m.options.ManagerBytes
		total -= old.output.Size()
		return over
	})
	m.kept.End(t)
	close(t.done)
}

// over is called when nothing more is to be done about t. One whose release is
// not answered stays, for Close to report.
func (m *Manager) over(t *term) {
	select {
	case <-t.duty.Settled():
	default:
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live = slices.DeleteFunc(m.live, func(other *term) bool { return other == t })
}
