package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/internal/ledger"
	"github.com/termbridge/termbridge/terminal"
)

// A State is the set of a session's terminals. [Bridge.Session] makes it.
type State struct {
	b      *Bridge
	id     acp.SessionId
	cwd    string
	client *acpterm.Manager
	ledger *ledger.Ledger[*Call] // every command; the nil Call is the State itself
	close  once
	shows  sync.WaitGroup // one goroutine per command that is shown

	// mu is taken before the locks of the ledger and the wire; it guards the
	// Turns, Calls and commands of the session, too.
	mu sync.Mutex
	// guards following
	local    terminal.Manager         // nil until the first local command
	turns    []*Turn                  // open, in the order of their starts
	cards    map[acp.ToolCallId]*Call // open
	commands map[string]*command      // by id, those that the ledger has
	showing  map[*command]bool        // those with a goroutine in shows
	stats    Stats                    // of what has started, and of what was forgotten
	replayed int                      // updates of records
	allowed  map[string]bool          // keys that the user has allowed always
	early    time.Time                // a turn that begins before this is cancelled
	excess   time.Time                // a cancel before this belongs to a turn that is over
	closed   bool
}

func newState(b *Bridge, id acp.SessionId, cwd string) *State {
	s := &State{
		b: b, id: id, cwd: cwd,
		close:    newOnce(),
		ledger:   ledger.New[*Call](b.opts.MaxBackground),
		cards:    make(map[acp.ToolCallId]*Call),
		commands: make(map[string]*command),
		showing:  make(map[*command]bool),
		allowed:  make(map[string]bool),
	}
	s.ledger.Limit(b.opts.MaxTerminals)
	s.client = acpterm.New(b.conn, id, &acpterm.Options{
		Dir:          cwd,
		MaxTerminals: b.opts.MaxTerminals,
		OutputLimit:  b.opts.ResultLimit,
		Profile:      b.profile,
		Client:       &b.client,
		NewID:        b.opts.NewID,
		Logger:       b.opts.Logger,
	})
	return s
}

// A command is what a State knows of one command beyond its terminal. The State's
// mu guards it, but for what is set before it is shared.
type command struct {
	call       *Call // that started it; nil for one of a Manager
	cmd        terminal.Command
	background bool
	entry      *ledger.Entry[*Call]
	cancel     context.CancelCauseFunc // ends the wait of Exec or StartBackground

	route    route
	term     terminal.Terminal // nil until it has started
	show     presenter         // nil while nothing shows it
	shown    chan struct{}     // closed when show has shown all; nil before the start
	hush     func()            // ends show
	stopping bool              // it was stopped on purpose

	clientID string        // the client's id, once create was answered
	created  chan struct{} // closed when an unanswered create is settled; nil if none was sent
	released bool          // no update may embed it any more
	embedded bool          // an update that embeds it was written
	final    *string       // its whole output as plain text, once somebody has read it
}

// live reports whether the command is running.
func (k *command) live() bool { return k.term != nil && !closed(k.term.Done()) }

// ID returns the session's id.
func (s *State) ID() acp.SessionId { return s.id }

// Get returns a terminal of the session by its id, live or ended, or an error
// that wraps [terminal.ErrNotFound].
func (s *State) Get(id string) (terminal.Terminal, error) {
	s.prune()
	e, err := s.ledger.Find(id)
	if err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}
	return e.Terminal(), nil
}

// List returns the terminals that are kept, in the order of their starts.
func (s *State) List() []terminal.Terminal {
	s.prune()
	return s.ledger.All()
}

// prune forgets the ended commands that the managers underneath, which have
// limits of their own, or the ledger have forgotten.
func (s *State) prune() {
	s.mu.Lock()
	known := maps.Clone(s.commands)
	managers := []terminal.Manager{s.client}
	if s.local != nil {
		managers = append(managers, s.local)
	}
	s.mu.Unlock()
	kept := make(map[string]bool)
	for _, m := range managers {
		for _, t := range m.List() {
			kept[t.Info().ID] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range known {
		if k.live() {
			continue // neither forgets it
		}
		e, err := s.ledger.Find(id)
		if err == nil && !kept[id] {
			e.Forget()
		}
		if (err != nil || !kept[id]) && s.commands[id] == k {
			s.stats.count(k.term.Info().Outcome)
			delete(s.commands, id)
		}
	}
}

// Kill stops the command with this id and returns its final Info; on an ended
// one it only does that. It waits no longer than [terminal.SettleTimeout].
func (s *State) Kill(id string) (terminal.Info, error) {
	t, err := s.Get(id)
	if err != nil {
		return terminal.Info{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), terminal.SettleTimeout)
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
	k := s.commands[id]
	if k == nil {
		return "", ""
	}
	if k.show != nil {
		how = k.show.presentation()
	}
	return how, k.clientID
}

// Update sends a session/update that is no tool call of a Turn: a message, a
// plan. A line on the wire is kept at [terminal.MaxUpdateLine]: message chunks
// are split, other updates over that are a [terminal.ErrTooLarge]. It returns
// when the update is written, when ctx ends (its Cause), and after
// [terminal.SettleTimeout] if the client does not read.
func (s *State) Update(ctx context.Context, u acp.SessionUpdate) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	parts, err := chunks(s.id, u)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, terminal.SettleTimeout, errWithdrawn)
	defer cancel()
	for _, n := range parts {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return fmt.Errorf("bridge: %w", terminal.ErrClosed)
		}
		w := s.b.wire.put(n)
		s.mu.Unlock()
		if err := s.b.wire.wait(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// put queues an update of a card, cut to fit a line; nil if it cannot be sent.
// Called with mu held.
func (s *State) put(c *Call, u acp.SessionToolCallUpdate, embeds ...string) *update {
	n, err := s.fitCard(c, u)
	if err != nil {
		s.b.opts.Logger.Warn("bridge: an update of a tool call cannot be sent", "toolCall", c.id, "err", err)
		return nil
	}
	c.last = time.Now()
	c.latest = s.b.wire.put(n, embeds...)
	return c.latest
}

// fitCard returns an update of a card as it may be sent.
func (s *State) fitCard(c *Call, u acp.SessionToolCallUpdate) (acp.SessionNotification, error) {
	u.ToolCallId = c.id
	return fit(acp.SessionNotification{SessionId: s.id, Update: acp.SessionUpdate{ToolCallUpdate: &u}}, true)
}

// enter gives the command of k a place. Called with mu held.
func (s *State) enter(k *command) error {
	switch {
	case s.b.gone():
		return fmt.Errorf("bridge: %w", terminal.ErrConnectionLost)
	case s.closed:
		return fmt.Errorf("bridge: %w", terminal.ErrClosed)
	}
	e, err := s.ledger.Reserve(k.call, k.background)
	if err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	k.entry = e
	return nil
}

// start starts the command of k, which has its place, and enters its terminal.
// What started although nobody waits for it any more is stopped.
func (s *State) start(ctx context.Context, k *command) error {
	t, err := s.launch(ctx, k)
	if err != nil {
		k.entry.Forget()
		return s.failure(ctx, err)
	}
	s.noteStart(k, t)
	if err := s.register(ctx, k, t); err != nil {
		stop(t)
		k.entry.Forget()
		return err
	}
	s.prune()
	return nil
}

// noteStart counts a start.
func (s *State) noteStart(k *command, t terminal.Terminal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Started++
	if k.route.client {
		s.stats.Delegated++
	} else {
		s.stats.Local++
	}
	s.b.opts.Logger.Debug("bridge: a command has started", "session", s.id, "id", t.Info().ID, "client", k.route.client)
}

// register enters the terminal of k unless its owner is gone.
func (s *State) register(ctx context.Context, k *command, t terminal.Terminal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := t.Info().ID
	switch _, err := s.ledger.Find(id); {
	case err == nil:
		return fmt.Errorf("bridge: the terminal id %q is in use: Options.Local and Options.NewID make the same ids", id)
	case s.closed:
		return s.failure(ctx, fmt.Errorf("bridge: %w", terminal.ErrClosed))
	case k.call != nil:
		if err := k.call.usable(); err != nil {
			return s.failure(ctx, err)
		}
	}
	k.term = t
	k.entry.Started(t)
	s.commands[id] = k
	if k.call != nil {
		s.present(k)
	}
	return nil
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
	ctx, cancel := context.WithTimeout(context.Background(), terminal.SettleTimeout)
	defer cancel()
	_, _ = t.Stop(ctx)
}

func (s *State) busy() bool { return s.ledger.Busy() }

// Close cancels the session's turns, stops every command with its whole tree,
// releases what the client holds, and returns when all of that has settled,
// bounded; what has not is listed in a [*terminal.LeakError]. It waits for the
// functions of open turns to return, too, so that nothing of the session is sent
// afterwards: do not call it in one. Later calls return the result of the first.
// Terminals stay readable.
func (s *State) Close() error { return s.close.do(s.shut) }

func (s *State) shut() error {
	s.mu.Lock()
	s.closed = true
	turns := append([]*Turn(nil), s.turns...)
	local := s.local
	s.mu.Unlock()

	deadline := time.Now().Add(terminal.SettleTimeout)
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
		both.Go(func() { errs[1] = local.Close() })
	}
	both.Wait()
	s.endTurns(turns, max(lastWords, time.Until(deadline)))
	s.endShows(max(lastWords, time.Until(deadline)))
	err := leaks(errs[:]...)
	s.mu.Lock()
	s.stats.Leaked = leaked(err)
	s.mu.Unlock()
	s.b.forget(s)
	return err
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
	s.mu.Lock()
	for k := range s.showing {
		k.hush()
	}
	s.mu.Unlock()
	<-done
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
	k := &command{cmd: cmd.Clone(), route: r}
	s.mu.Lock()
	err = s.enter(k)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx, k); err != nil {
		return nil, err
	}
	return k.term, nil
}

// errUnknown is the error of a command of which nobody can say how it ended.
var errUnknown = errors.New("bridge: it is not known how the command ended")
