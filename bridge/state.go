package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

// A State is the set of a session's terminals. [Bridge.Session] makes it.
type State struct {
	b      *Bridge
	id     acp.SessionId
	cwd    string
	client *acpterm.Manager
	out    *updates.Stream
	close  once
	shows  sync.WaitGroup // one goroutine per command that is shown

	// mu is taken before the locks of the cards and of the updates; it guards the Turns, Calls and commands of the session, too. No code of others
	// runs under it: no terminal's, no manager's, no logger's, no MarshalJSON.
	mu sync.Mutex
	// guards following
	local    terminal.Manager         // nil until the first local command
	making   chan struct{}            // not nil while Options.Local runs: closed then
	turns    []*Turn                  // open, in the order of their starts
	cards    map[acp.ToolCallId]*Call // open
	commands []*command               // that start, run or are kept, in the order in which they were asked for
	showing  map[*command]bool        // those with a goroutine in shows
	replays  map[acp.ToolCallId]bool  // records that are being sent
	stats    Stats                    // of what has started, and of what was forgotten
	replayed int                      // updates of records
	allowed  map[string]bool          // keys that the user has allowed always
	closed   bool
}

func newState(b *Bridge, id acp.SessionId, cwd string) *State {
	s := &State{
		b: b, id: id, cwd: cwd,
		out:     b.queue.Stream(id),
		close:   newOnce(),
		cards:   make(map[acp.ToolCallId]*Call),
		showing: make(map[*command]bool),
		replays: make(map[acp.ToolCallId]bool),
		allowed: make(map[string]bool),
	}
	s.client = acpterm.New(b.conn, id, &acpterm.Options{
		Dir:          cwd,
		MaxTerminals: b.opts.MaxTerminals,
		OutputLimit:  b.opts.ResultLimit,
		Profile:      b.profile,
		Client:       &b.client,
		Host:         b.opts.Host,
		NewID:        b.opts.NewID,
		IDEnv:        b.idEnv(),
		Logger:       b.opts.Logger,
	})
	s.hear(s.client)
	return s
}

// surface is where the session's cards are shown.
func (s *State) surface() surface {
	return surface{out: s.out, limiter: s.b.limiter, log: s.b.opts.Logger, cwd: s.cwd, display: s.b.display}
}

// A command is what a State knows of one command beyond its terminal. The State's
// mu guards it, but for what is set before it is shared.
type command struct {
	call       *Call // whose card shows it; nil for one of a Manager
	owner      *Call // whose end, by End or with its turn, ends it; nil is the State
	cmd        terminal.Command
	background bool
	cancel     context.CancelCauseFunc // ends the wait of Exec or StartBackground

	route         route
	id            string            // the terminal's
	term          terminal.Terminal // nil until it has started, and when it is no longer kept
	done          <-chan struct{}   // the terminal's; nil until it has started
	last          terminal.Info     // of a terminal that is no longer kept
	pane          *pane             // nil while no card shows it
	shown         chan struct{}     // closed when the card has shown all; nil before the start
	cancelDisplay func()            // ends that

	clientID string        // the client's id, once create was answered
	created  chan struct{} // closed when an unanswered create is settled; nil if none was sent
	released bool          // no update may embed it any more
	stopping bool          // it was stopped on purpose
}

// live reports whether the command is running. Called with mu held, or on a view.
func (k *command) live() bool { return k.done != nil && !await.Closed(k.done) }

// starting reports whether the command, one of a State's, has not started yet. Called
// with mu held.
func (k *command) starting() bool { return k.done == nil }

// ended reports whether the command has run. Called with mu held, or on a view.
func (k *command) ended() bool { return await.Closed(k.done) }

// unwanted reports whether nobody wants the command any more, but its turn waits
// for it: it was given up before the client answered, or is being stopped. Called
// with mu held.
func (k *command) unwanted() bool {
	if k.done == nil {
		return k.created != nil && !await.Closed(k.created)
	}
	return k.stopping
}

// info returns what is known of the command of a view.
func (k *command) info() terminal.Info {
	if k.term == nil {
		return k.last
	}
	return k.term.Info()
}

// view returns the command of k as it is now.
func (s *State) view(k *command) *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := *k
	return &v
}

// stopping notes that the command of k is stopped on purpose.
func (s *State) stopping(k *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.stopping = true
}

// ID returns the session's id.
func (s *State) ID() acp.SessionId { return s.id }

// Get returns a terminal of the session by its id, live or ended, or an error
// that wraps [terminal.ErrNotFound].
func (s *State) Get(id string) (terminal.Terminal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.find(id); k != nil {
		return k.term, nil
	}
	return nil, fmt.Errorf("bridge: %w: %q", terminal.ErrNotFound, id)
}

// find returns the command whose terminal has this id, or nil. Called with mu held.
func (s *State) find(id string) *command {
	for _, k := range s.commands {
		if k.term != nil && k.id == id {
			return k
		}
	}
	return nil
}

// List returns the terminals that are kept, in the order of their starts.
func (s *State) List() []terminal.Terminal {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []terminal.Terminal
	for _, k := range s.commands {
		if k.term != nil {
			all = append(all, k.term)
		}
	}
	return all
}

// evicted is told by a manager underneath that it keeps a terminal no longer.
func (s *State) evicted(t terminal.Terminal) {
	if k := s.holding(t); k != nil {
		s.evict(k)
	}
}

// holding returns the command of a terminal, or nil.
func (s *State) holding(t terminal.Terminal) *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.commands {
		if k.term == t {
			return k
		}
	}
	return nil
}

// trim evicts what both managers together keep over Options.MaxTerminals, earliest
// end first.
func (s *State) trim() {
	ended := func(v *command) time.Time { return v.info().Ended }
	for over := s.over(); len(over) > 0; over = s.over() {
		first := slices.MinFunc(over, func(a, b *command) int { return ended(a).Compare(ended(b)) })
		s.evict(first)
	}
}

// over returns the ended commands, if more are kept than Options.MaxTerminals.
func (s *State) over() (ended []*command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := 0
	for _, k := range s.commands {
		if k.term == nil {
			continue
		}
		if kept++; k.ended() {
			ended = append(ended, k)
		}
	}
	if kept <= s.b.opts.MaxTerminals {
		return nil
	}
	return ended
}

// evict lets an ended command go; its card keeps the end of its text.
func (s *State) evict(k *command) {
	v := s.view(k)
	if v.term == nil {
		return // another was faster
	}
	info := v.info()
	if v.pane != nil {
		v.call.card.forget(v.pane, v.term)
	}
	s.forget(k, info)
}

// forget lets the terminal of an ended command go, of which only the last Info is
// kept for its Call.
func (s *State) forget(k *command, info terminal.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leave(k) {
		return // another was faster
	}
	s.stats.count(info.Outcome)
	info.Command = terminal.Command{}
	k.last, k.term = info, nil
	k.cmd = terminal.Command{Dir: k.cmd.Dir}
}

// Stop stops the command with this id and returns its final Info; on an ended
// one it only does that. It waits no longer than 5 s.
func (s *State) Stop(id string) (terminal.Info, error) {
	t, err := s.Get(id)
	if err != nil {
		return terminal.Info{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limits.SettleTimeout)
	defer cancel()
	info, err := t.Stop(ctx)
	if err != nil {
		return info, fmt.Errorf("bridge: kill %s: %w", id, err)
	}
	return info, nil
}

// Presentation returns how the user sees the command with this id, and the
// client's id of its terminal; "" for one that no card shows, and for one that
// runs locally.
func (s *State) Presentation(id string) (how Presentation, clientID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.find(id)
	if k == nil {
		return "", ""
	}
	if k.pane != nil {
		how = k.pane.how
	}
	return how, k.clientID
}

// Update sends a session/update that is no tool call of a Turn: a message, a
// plan. A line on the wire is kept at 32 KiB: message chunks
// are split, other updates over that are a [terminal.ErrTooLarge]. Control and
// bidirectional characters in messages and titles are spelled out. It returns when
// the update is written, when ctx ends (its Cause), and after
// 5 s if the client does not read.
func (s *State) Update(ctx context.Context, u acp.SessionUpdate) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	parts, err := s.out.Chunks(u)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limits.SettleTimeout, updates.ErrUnread)
	defer cancel()
	for _, part := range parts {
		w, err := s.put(part)
		if err != nil {
			return err
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// put queues an update that fits a line, unless the session is closed.
func (s *State) put(u acp.SessionUpdate) (*updates.Update, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("bridge: %w", terminal.ErrClosed)
	}
	return s.out.Put(u), nil
}

// enter makes k one of the State's commands, which is about to start. The caller
// starts it, or calls leave. Called with mu held.
func (s *State) enter(k *command) error {
	switch {
	case s.b.gone():
		return fmt.Errorf("bridge: %w", terminal.ErrConnectionLost)
	case s.closed:
		return fmt.Errorf("bridge: %w", terminal.ErrClosed)
	}
	if k.background {
		if err := s.slot(); err != nil {
			return fmt.Errorf("bridge: %w", err)
		}
	}
	live := 0
	for _, k := range s.commands {
		if k.starting() || k.live() {
			live++
		}
	}
	if live >= s.b.opts.MaxTerminals {
		return fmt.Errorf("bridge: %w: %d run already", terminal.ErrTooMany, live)
	}
	s.commands = append(s.commands, k)
	return nil
}

// slot returns nil if one more command may go on in the background. Called with mu
// held.
func (s *State) slot() error {
	taken := 0
	for _, k := range s.commands {
		if k.background && (k.starting() || k.live()) {
			taken++
		}
	}
	if taken >= s.b.opts.MaxBackground {
		return fmt.Errorf("%w: %d of %d run already", terminal.ErrTooMany, taken, s.b.opts.MaxBackground)
	}
	return nil
}

// leave removes k from the State's commands; false if it is none of them. Called with
// mu held.
func (s *State) leave(k *command) bool {
	i := slices.Index(s.commands, k)
	if i >= 0 {
		s.commands = slices.Delete(s.commands, i, i+1)
	}
	return i >= 0
}

// start starts the command of k, which was entered. What started although nobody
// waits for it any more is stopped.
func (s *State) start(ctx context.Context, k *command) (terminal.Terminal, error) {
	t, err := s.launch(ctx, k)
	if err != nil {
		s.withdraw(k)
		return nil, s.failure(ctx, err)
	}
	id := t.Info().ID
	s.noteStart(k, id)
	if err := s.register(ctx, k, t, id); err != nil {
		s.withdraw(k)
		stop(t)
		return nil, err
	}
	s.trim()
	return t, nil
}

// withdraw removes a command that has not started.
func (s *State) withdraw(k *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(k)
}

// noteStart counts a start.
func (s *State) noteStart(k *command, id string) {
	s.b.opts.Logger.Debug("bridge: a command has started", "session", s.id, "id", id, "client", k.route.client)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Started++
	if k.route.client {
		s.stats.Delegated++
	} else {
		s.stats.Local++
	}
}

// register enters the terminal of k unless its owner is gone.
func (s *State) register(ctx context.Context, k *command, t terminal.Terminal, id string) error {
	done := t.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.find(id) != nil:
		return fmt.Errorf("bridge: the terminal id %q is in use: Options.Local and Options.NewID make the same ids", id)
	case s.closed:
		return s.failure(ctx, fmt.Errorf("bridge: %w", terminal.ErrClosed))
	case k.call != nil:
		if err := k.call.usable(); err != nil {
			return s.failure(ctx, err)
		}
	}
	k.id, k.term, k.done = id, t, done
	if k.call != nil {
		s.present(k)
	}
	return nil
}

// present begins to show the command of k, which has started. Called with mu
// held.
func (s *State) present(k *command) {
	c, t := k.call.card, k.term
	if k.pane == nil {
		k.pane = c.add(t, !k.route.client)
	} else {
		c.set(k.pane, t)
	}
	c.begins()
	p := k.pane
	ctx, cancel := context.WithCancel(context.Background())
	k.cancelDisplay = cancel
	k.shown = make(chan struct{})
	s.showing[k] = true
	s.shows.Go(func() {
		defer s.unshow(k)
		defer cancel()
		c.show(ctx, p, t)
	})
}

// unshow notes that nothing more is shown of the command of k.
func (s *State) unshow(k *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(k.shown)
	delete(s.showing, k)
}

// failure translates the error of a start: the end of the connection comes
// first, then the caller's own ctx, then what the route said.
func (s *State) failure(ctx context.Context, err error) error {
	switch {
	case s.b.gone():
		return fmt.Errorf("bridge: %w", terminal.ErrConnectionLost)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// stop ends a command, and waits for that within bounds.
func stop(t terminal.Terminal) {
	ctx, cancel := context.WithTimeout(context.Background(), limits.SettleTimeout)
	defer cancel()
	_ = caught.Call(func() { _, _ = t.Stop(ctx) })
}

func (s *State) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.commands, func(k *command) bool { return k.starting() || k.live() })
}

// Close cancels the session's turns, stops every command with its whole tree,
// releases what the client holds, and returns when all of that has settled,
// bounded; what has not is listed in a [*terminal.LeakError]. It waits for the
// functions of open turns to return, too, so that nothing of the session is sent
// afterwards: do not call it in one. Later calls return the result of the first.
// Terminals stay readable.
func (s *State) Close() error { return s.close.do(s.shut) }

func (s *State) shut() error {
	turns, local := s.refuse()
	deadline := time.Now().Add(limits.SettleTimeout)
	cause := terminal.ErrClosed
	if s.b.gone() {
		cause = terminal.ErrConnectionLost
	}
	for _, t := range turns {
		t.cancel(cause)
	}
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() { errs[0] = s.client.Close() })
	if local != nil {
		both.Go(func() { errs[1] = closeLocal(local) })
	}
	both.Wait()
	s.endTurns(turns, max(lastWords, time.Until(deadline)))
	s.endShows(max(lastWords, time.Until(deadline)))
	s.out.End(max(lastWords, time.Until(deadline)))
	err := leaks(errs[:]...)
	s.noteLeaks(leaked(err))
	s.b.forget(s)
	return err
}

// refuse lets nothing more begin, and returns what is open.
func (s *State) refuse() ([]*Turn, terminal.Manager) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return slices.Clone(s.turns), s.local
}

// closeLocal closes the Manager of the local commands.
func closeLocal(m terminal.Manager) (err error) {
	if failure := caught.Call(func() { err = m.Close() }); failure != nil {
		return fmt.Errorf("bridge: closing the local commands: %w", failure)
	}
	return err
}

func (s *State) noteLeaks(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Leaked = n
}

// endTurns waits until the turns are answered, for a client that is there and no
// longer than d.
func (s *State) endTurns(turns []*Turn, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for _, t := range turns {
		select {
		case <-t.over:
		case <-s.b.lost:
			return
		case <-timer.C:
			return
		}
	}
}

// endShows waits until what is shown of ended commands is shown, for a client
// that reads and no longer than d, and joins the goroutines that show it.
func (s *State) endShows(d time.Duration) {
	done := make(chan struct{})
	go func() {
		s.shows.Wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-s.b.lost:
	case <-timer.C:
	}
	s.cancelDisplays()
	<-done
}

// cancelDisplays ends what is being shown.
func (s *State) cancelDisplays() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.showing {
		k.cancelDisplay()
	}
}

// Manager returns a [terminal.Manager] over both routes for code that knows
// nothing of turns and tool calls. Its commands belong to the session from the
// start, and no card shows them. Its terminals are those of the managers
// underneath, with all that they can do. Close closes the State.
func (s *State) Manager() terminal.Manager { return manager{s} }

// manager is the Manager of a State.
type manager struct{ *State }

func (m manager) Busy() bool { return m.busy() }

func (m manager) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	s := m.State
	if err := cmd.Check(); err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r, err := s.b.route(cmd)
	if err != nil {
		return nil, err
	}
	k := &command{cmd: s.b.withShell(cmd.Clone()), route: r}
	if err := s.reserve(k); err != nil {
		return nil, err
	}
	return s.start(ctx, k)
}

func (s *State) reserve(k *command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enter(k)
}

// ErrUnread is the error of an update that was not written in time.
var ErrUnread = updates.ErrUnread

// errUnknown is the error of a command of which nobody can say how it ended.
var errUnknown = errors.New("bridge: it is not known how the command ended")
