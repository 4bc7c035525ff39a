package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// A model is what must be true of a session, whatever was done and in which
// order.
type model struct {
	*world
	kind kind

	mu sync.Mutex
	// guards following
	rand   *rand.Rand
	issued int                     // commands that were asked for
	calls  int                     // tool calls so far
	cards  map[acp.ToolCallId]bool // of this turn, that the client was told of
}

func (m *model) n(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.IntN(n)
}

func (m *model) chance(percent int) bool { return m.n(100) < percent }

func (m *model) pause(most time.Duration) time.Duration {
	return time.Duration(m.n(int(most/time.Millisecond)+1)) * time.Millisecond
}

// command returns a command, short or long, good or bad.
func (m *model) command() terminal.Command {
	lines := []string{"echo x", "fail no", "signal SIGSEGV", "sleep 700ms", "lines 5 300ms", "sleep 1h", "ignore-term y", "spam 100000", "nonsense"}
	cmd := terminal.Command{Line: lines[m.n(len(lines))]}
	if m.chance(50) {
		cmd.Timeout = 500*time.Millisecond + m.pause(2*time.Second)
	}
	if m.chance(10) {
		cmd.Environment = bridge.EnvironmentLocal
	}
	return cmd
}

// misbehave makes the client slow, or refuse, for a while.
func (m *model) misbehave() {
	methods := []string{
		acp.ClientMethodTerminalCreate, acp.ClientMethodTerminalOutput, acp.ClientMethodTerminalWaitForExit,
		acp.ClientMethodTerminalKill, acp.ClientMethodTerminalRelease,
	}
	method := methods[m.n(len(methods))]
	f := fakeconn.Fault{Method: method, N: 1 + m.n(3), Reply: m.chance(50), Delay: m.pause(1500 * time.Millisecond)}
	if method == acp.ClientMethodTerminalCreate && m.chance(30) {
		f.Reply, f.Error = false, &acp.RequestError{Code: -32603, Message: "not now"}
	}
	m.c.Inject(f)
}

// call plays one tool call.
func (m *model) call(ctx context.Context, t *bridge.Turn) {
	m.mu.Lock()
	m.calls++
	id := acp.ToolCallId(fmt.Sprint("call-", m.calls))
	m.mu.Unlock()
	call := t.ToolCall(card(id))
	var all sync.WaitGroup
	for range 1 + m.n(2) {
		all.Go(func() { m.run(ctx, call) })
	}
	ends := m.chance(80)
	early := m.chance(30)
	if !early {
		all.Wait()
	} else {
		time.Sleep(m.pause(time.Second))
	}
	if m.chance(30) {
		call.Update(acp.SessionToolCallUpdate{Title: new("changed"), RawOutput: "out"})
	}
	if ends {
		end := call.End("", nil)
		if end.Status != acp.ToolCallStatusCompleted && end.Status != acp.ToolCallStatusFailed {
			m.Errorf("%s ended with the status %q", id, end.Status)
		}
	}
	all.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cards[id] = true
}

// run runs one command, and judges what comes back.
func (m *model) run(ctx context.Context, call *bridge.Call) {
	m.mu.Lock()
	m.issued++
	m.mu.Unlock()
	cmd := m.command()
	if m.chance(20) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.pause(2*time.Second))
		defer cancel()
	}
	if m.chance(40) {
		term, err := call.StartBackground(ctx, cmd)
		if (term == nil) != (err != nil) {
			m.Errorf("StartBackground: %v, %v", term, err)
		}
		return
	}
	if cmd.Timeout == 0 {
		cmd.Timeout = 3 * time.Second // some never end by themselves
	}
	r, err := call.Exec(ctx, cmd)
	switch {
	case r == nil && err == nil:
		m.Errorf("%+v: neither a result nor an error", cmd)
	case r == nil:
	case r.Outcome == terminal.Running && err != nil:
		m.Errorf("%+v was promoted, and %v", cmd, err)
	case r.Outcome == terminal.Cancelled && err == nil:
		m.Errorf("%+v was cancelled, and there is no error", cmd)
	case r.Outcome == terminal.Exited && !r.Exit.Known():
		m.Errorf("%+v exited, and nothing is known of that", cmd)
	}
}

// turn plays a prompt, and compares what is there when it is answered.
func (m *model) turn() {
	m.mu.Lock()
	m.cards = make(map[acp.ToolCallId]bool)
	m.mu.Unlock()
	for range m.n(3) {
		if m.kind.presentation == bridge.PresentClient {
			m.misbehave()
		}
	}
	if m.chance(50) {
		// It may come when the turn is over.
		m.later(m.pause(3*time.Second), func() { _ = m.c.Cancel(context.Background(), m.id) })
	}
	before := m.lives()
	_, err := m.prompt(func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
		var all sync.WaitGroup
		for range 1 + m.n(4) {
			all.Go(func() { m.call(ctx, t) })
		}
		if m.chance(30) {
			time.Sleep(m.pause(time.Second))
			for _, t := range m.s.List() {
				if _, err := m.s.Kill(t.Info().ID); err != nil && !errors.Is(err, terminal.ErrNotFound) {
					m.Errorf("kill: %v", err)
				}
			}
		}
		all.Wait()
		return done, nil
	})
	if err != nil {
		m.Errorf("the prompt is answered %v", err)
	}
	for id := range m.cards {
		// None is left open, and none that ended by its turn left anything.
		if s := m.c.Card(id).Status; s != "" && s != acp.ToolCallStatusCompleted && s != acp.ToolCallStatusFailed {
			m.Errorf("%s has the status %q when the turn is answered", id, s)
		}
	}
	time.Sleep(10 * time.Second) // a client may take its time, and say that it has killed before a stubborn program is dead
	known := 0
	for _, t := range m.s.List() {
		if !t.Info().Outcome.Ended() {
			known++
		}
	}
	if got := m.lives(); got > known {
		m.Errorf("%d commands live (%d before the turn), and the session knows %d", got, before, known)
	}
}

// Whatever is done, in whatever order, and however the client takes its time:
// every card is final when its turn is answered, no command runs that the session
// does not know, none ran twice, and nothing is left in the end.
func TestModel(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 5
	}
	for _, k := range kinds {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", k.presentation, seed), func(t *testing.T) {
				in(t, k, nil, func(w *world) {
					m := &model{world: w, kind: k, rand: rand.New(rand.NewPCG(uint64(seed), 1))}
					for range 4 {
						m.turn()
					}
					starts := 0
					for name := range fakeconn.Programs() {
						starts += w.starts(name)
					}
					if starts > m.issued {
						w.Errorf("%d programs were started by %d commands", starts, m.issued)
					}
					if err := w.s.Close(); err != nil {
						w.Error(err)
					}
					time.Sleep(10 * time.Second)
					check(w, "commands that live", w.lives(), 0)
				})
			})
		}
	}
}
