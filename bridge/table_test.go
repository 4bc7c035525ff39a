package bridge_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/google/go-cmp/cmp"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// The states of a command under a Call: the columns of the table in
// docs/architecture.md.
const (
	starting = iota
	foreground
	background
	endedOpen
	endedEnded
	states
)

var columns = [states]string{
	"starting (create unanswered)", "running, foreground", "running, background", "ended, Call open", "ended, Call ended",
}

// A cell is what an event makes of a command in a state.
type cell struct {
	text string // in the documentation; "–" where the event cannot come

	outcome terminal.Outcome   // of Exec's result, or of the terminal; "" without a result
	err     error              // of Exec
	lives   bool               // the command runs on after the event
	status  acp.ToolCallStatus // of the card, after the turn; "" is failed
	answer  acp.StopReason     // of the turn; "" is end_turn
	lost    bool               // the turn is answered with ErrConnectionLost
	check   func(s *subject)
}

// A row is an event.
type row struct {
	event      string
	clientOnly bool             // only a client can do that
	command    terminal.Command // the zero one sleeps for long
	refusal    *acp.RequestError
	result     any // of create
	happen     func(s *subject)
	cells      [states]cell
}

var none = cell{text: "–"}

var errOwn = errors.New("the caller's own reason")

const completed = acp.ToolCallStatusCompleted

// rows is the table in docs/architecture.md.
var rows = []row{
	{
		event: "started, Call open", happen: func(s *subject) { s.release() },
		cells: [states]cell{{text: "running; embed (client) or live output (local) begins", lives: true, outcome: terminal.Stopped, err: terminal.ErrEnded, check: shown}, none, none, none, none},
	},
	{
		event: "started, Call or turn over", happen: func(s *subject) { s.call.End("", nil); s.release() },
		cells: [states]cell{{text: "stopped at once, Exec: ErrEnded or the cause", err: terminal.ErrEnded}, none, none, none, none},
	},
	{
		event: "method not found", clientOnly: true, command: line("echo x"),
		refusal: acp.NewMethodNotFound(acp.ClientMethodTerminalCreate), happen: func(s *subject) { s.release() },
		cells: [states]cell{{text: "the same command, locally, once, as text; the client is asked no more", outcome: terminal.Exited, check: fellBack}, none, none, none, none},
	},
	{
		event: "create refused", refusal: &acp.RequestError{Code: -32603, Message: "not allowed here"}, happen: func(s *subject) { s.release() },
		cells: [states]cell{{text: "Exec: the client's words; nothing runs", err: errRefused, check: nothingRan}, none, none, none, none},
	},
	{
		event: "bad reply", clientOnly: true, result: map[string]any{}, happen: func(s *subject) { s.release() },
		cells: [states]cell{{text: "Exec: ErrBadReply; the next command runs locally", err: acpterm.ErrBadReply, check: nextIsLocal}, none, none, none, none},
	},
	{
		event: "it ends by itself", command: line("sleep 2s"), happen: func(*subject) { time.Sleep(2 * time.Second) },
		cells: [states]cell{none, {text: "Exec: result, nil", outcome: terminal.Exited}, {text: "ended", outcome: terminal.Exited}, none, none},
	},
	{
		event: "its timeout", command: terminal.Command{Line: "sleep 1h", Timeout: 2 * time.Second}, happen: func(*subject) { time.Sleep(2 * time.Second) },
		cells: [states]cell{none, {text: "stopped; Exec: result timed_out, nil", outcome: terminal.TimedOut}, {text: "stopped", outcome: terminal.TimedOut}, none, none},
	},
	{
		event: "Exec's own ctx ends", happen: func(s *subject) { s.cancel(errOwn) },
		cells: [states]cell{
			{text: "wait ends, late id reaped; Exec: the cause", err: errOwn},
			{text: "stopped; Exec: result stopped, cause", outcome: terminal.Stopped, err: errOwn}, none, none, none,
		},
	},
	{
		event: "Kill, Stop", happen: func(s *subject) {
			if _, err := s.w.s.Stop(s.call.Terminals()[0].Info().ID); err != nil {
				s.w.Error(err)
			}
		},
		cells: [states]cell{
			none, {text: "stopped; Exec: result stopped, nil", outcome: terminal.Stopped}, {text: "stopped", outcome: terminal.Stopped},
			{text: "final Info", outcome: terminal.Exited}, {text: "final Info", outcome: terminal.Exited, status: completed},
		},
	},
	{
		event: "End", happen: func(s *subject) { s.end = s.call.End("", nil) },
		cells: [states]cell{
			{text: "wait ends, late id reaped; Exec: ErrEnded; status failed", err: terminal.ErrEnded},
			{text: "promoted; Exec: result running, nil; status completed", outcome: terminal.Running, lives: true, status: completed, check: outlives},
			{text: "the State's; status completed", outcome: terminal.Running, lives: true, status: completed, check: outlives},
			{text: "status: completed for exit 0 of each foreground command, else failed", outcome: terminal.Exited, status: completed},
			{text: "what the first End did", outcome: terminal.Exited, status: completed, check: func(s *subject) {
				check(s.w, "what the second End returns", s.end.Status, completed)
			}},
		},
	},
	{
		event: "the turn is cancelled", happen: func(s *subject) { s.w.cancel() },
		cells: [states]cell{
			{text: "wait ends, late id reaped and waited for; Exec: the cause", err: context.Canceled, answer: acp.StopReasonCancelled},
			{text: "stopped; Exec: result cancelled, cause", outcome: terminal.Cancelled, err: context.Canceled, answer: acp.StopReasonCancelled},
			{text: "Call open: stopped; Call ended: goes on", outcome: terminal.Stopped, answer: acp.StopReasonCancelled}, none, none,
		},
	},
	{
		event: "f returns", happen: func(s *subject) { close(s.leave) },
		cells: [states]cell{
			{text: "as End, with status failed", err: terminal.ErrEnded},
			{text: "stopped, status failed", outcome: terminal.Stopped, err: terminal.ErrEnded},
			{text: "Call open: stopped, failed; Call ended: goes on", outcome: terminal.Stopped},
			{text: "Call open: status failed", outcome: terminal.Exited}, none,
		},
	},
	{
		event: "State closes", happen: func(s *subject) {
			if err := s.w.s.Close(); err != nil {
				s.w.Error(err)
			}
		},
		cells: [states]cell{
			{text: "wait ends, late id reaped", err: terminal.ErrClosed, answer: acp.StopReasonCancelled},
			{text: "stopped", outcome: terminal.Cancelled, err: terminal.ErrClosed, answer: acp.StopReasonCancelled},
			{text: "stopped", outcome: terminal.Stopped, answer: acp.StopReasonCancelled}, none, none,
		},
	},
	{
		event: "connection gone", happen: func(s *subject) { s.w.c.Disconnect() },
		cells: [states]cell{
			{text: "Exec: ErrConnectionLost", err: terminal.ErrConnectionLost, lost: true},
			{text: "Exec at once: result connection_lost, ErrConnectionLost; a local command is stopped", outcome: terminal.ConnectionLost, err: terminal.ErrConnectionLost, lost: true},
			{text: "stopped, or the client's own from now on", outcome: terminal.Stopped, lost: true}, none, none,
		},
	},
}

// A subject is a command in a state.
type subject struct {
	w       *world
	kind    kind
	state   int
	call    *bridge.Call
	cancel  context.CancelCauseFunc // of Exec's own ctx
	release func()                  // lets the client, or the local side, answer the start
	leave   chan struct{}           // closed: f returns
	end     bridge.End

	executed chan struct{} // closed when Exec has returned
	result   *bridge.Result
	err      error
}

var errRefused = errors.New("refused")

func shown(s *subject) {
	if s.kind.presentation != bridge.PresentText {
		check(s.w, "terminals in the card", len(s.w.c.Card("1").Terminals), 1)
	}
}

func nothingRan(s *subject) {
	check(s.w, "starts", s.w.starts("sleep"), 0)
	if s.kind.presentation == bridge.PresentClient {
		contains(s.w, "the error", s.err.Error(), "not allowed here")
	}
}

func fellBack(s *subject) {
	check(s.w, "the presentation", s.result.Presentation, bridge.PresentText)
	check(s.w, "starts", s.w.starts("echo"), 1)
	nextIsLocal(s)
}

func nextIsLocal(s *subject) {
	r, _, err := s.w.run("next", line("echo y"))
	if err != nil || r.TerminalID != "" {
		s.w.Errorf("the next command: %+v, %v", r, err)
	}
	check(s.w, "creates", s.w.c.Count(acp.ClientMethodTerminalCreate), 1)
}

func outlives(s *subject) {
	time.Sleep(time.Minute)
	check(s.w, "the command lives", s.w.lives(), 1)
}

// lives counts the commands that run, wherever.
func (w *world) lives() int {
	n := len(live(w.local.List()))
	if w.c.Memterm() != nil {
		n += len(live(w.c.Memterm().List()))
	}
	return n
}

// Every cell of the table in docs/architecture.md is as it says, on every route.
func TestStateMachine(t *testing.T) {
	t.Parallel()
	for _, r := range rows {
		for state, c := range r.cells {
			if c.text == none.text {
				continue
			}
			for _, k := range kinds {
				if r.clientOnly && k.presentation != bridge.PresentClient {
					continue
				}
				t.Run(r.event+"/"+columns[state]+"/"+string(k.presentation), func(t *testing.T) { play(t, r, state, k) })
			}
		}
	}
}

// play brings a command into a state, lets the event happen, and compares.
func play(t *testing.T, r row, state int, k kind) {
	// The local side holds a start back as the client holds the answer to create.
	// A channel of the bubble must be made in it.
	held := &heldManager{refused: r.refusal != nil && !r.clientOnly}
	o := &bridge.Options{Local: func(acp.SessionId) terminal.Manager { return held }}
	in(t, k, o, func(w *world) {
		want := r.cells[state]
		s := &subject{w: w, kind: k, state: state, leave: make(chan struct{}), executed: make(chan struct{})}
		hold := make(chan struct{})
		s.release = sync.OnceFunc(func() { close(hold) })
		held.Manager = w.local
		if state == starting {
			if !r.clientOnly {
				held.hold = hold
			}
			f := fakeconn.Fault{Method: acp.ClientMethodTerminalCreate, N: 1, Until: hold, Error: r.refusal, Result: r.result}
			f.Reply = r.refusal == nil && r.result == nil
			w.c.Inject(f)
		}
		ready, answered := make(chan struct{}), make(chan struct{})
		var answer acp.PromptResponse
		var answerErr error
		go func() {
			defer close(answered)
			answer, answerErr = w.prompt(func(ctx context.Context, t *bridge.Turn) (acp.PromptResponse, error) {
				s.begin(ctx, t, r.command)
				close(ready)
				select {
				case <-s.leave:
				case <-ctx.Done():
				}
				return done, nil
			})
		}()
		<-ready
		if state == starting {
			w.later(time.Second, s.release) // whatever comes then comes late
		}
		r.happen(s)
		time.Sleep(5 * time.Second)
		if !want.lost || k.presentation != bridge.PresentClient { // a client that is gone keeps what it has
			check(w, "the command lives", w.lives() > 0, want.lives)
		}
		select {
		case <-s.leave:
		default:
			close(s.leave)
		}
		<-answered
		<-s.executed
		s.compare(want)
		if want.lost {
			if answerErr == nil {
				w.Errorf("the turn is answered %v", answer)
			}
			return
		}
		if want.answer == "" {
			want.answer = acp.StopReasonEndTurn
		}
		if want.status == "" {
			want.status = acp.ToolCallStatusFailed
		}
		if answerErr != nil {
			w.Error(answerErr)
		}
		check(w, "the answer", answer.StopReason, want.answer)
		check(w, "the status", w.c.Card("1").Status, want.status)
		if want.check != nil {
			want.check(s)
		}
	})
}

// begin brings the command into its state.
func (s *subject) begin(ctx context.Context, t *bridge.Turn, cmd terminal.Command) {
	if cmd.Line == "" {
		cmd.Line = "sleep 1h"
	}
	s.call = t.ToolCall(card("1"))
	ctx, s.cancel = context.WithCancelCause(ctx)
	exec := func(cmd terminal.Command) {
		go func() {
			defer close(s.executed)
			s.result, s.err = s.call.Exec(ctx, cmd)
		}()
	}
	switch s.state {
	case starting:
		exec(cmd)
		time.Sleep(100 * time.Millisecond)
	case foreground:
		exec(cmd)
		for len(s.call.Terminals()) == 0 {
			time.Sleep(time.Millisecond)
		}
	case background:
		defer close(s.executed)
		if _, err := s.call.StartBackground(ctx, cmd); err != nil {
			s.w.Error(err)
		}
	case endedOpen, endedEnded:
		exec(line("echo x"))
		<-s.executed
		if s.state == endedEnded {
			s.call.End("", nil)
		}
	}
}

// compare compares what Exec returned, or what the terminal says.
func (s *subject) compare(want cell) {
	s.w.Helper()
	if s.state == background {
		got := s.call.Terminals()[0].Info().Outcome
		if want.lost && s.kind.presentation == bridge.PresentClient {
			want.outcome = terminal.ConnectionLost
		}
		check(s.w, "the outcome", got, want.outcome)
		return
	}
	var outcome terminal.Outcome
	if s.result != nil {
		outcome = s.result.Outcome
	}
	check(s.w, "the outcome", outcome, want.outcome)
	ok := errors.Is(s.err, want.err)
	if _, refused := errors.AsType[*acp.RequestError](s.err); want.err == errRefused && refused {
		ok = true
	}
	if !ok {
		s.w.Errorf("Exec: %v, want %v", s.err, want.err)
	}
}

// A heldManager answers a Start when hold is closed, and refuses it if it is told
// to. An end of ctx ends the wait, and then nothing was started.
type heldManager struct {
	terminal.Manager
	hold    chan struct{} // nil: nothing is held
	refused bool
}

func (m *heldManager) Start(ctx context.Context, cmd terminal.Command) (terminal.Terminal, error) {
	if m.hold != nil {
		select {
		case <-m.hold:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if m.refused {
			return nil, errRefused
		}
	}
	return m.Manager.Start(ctx, cmd)
}

// The table of the documentation is the one that is tested.
func TestStateMachineIsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(doc), "\n### A command under a Call\n")
	if !ok {
		t.Fatal("there is no such section")
	}
	var got, want []string
	for l := range strings.Lines(section) {
		if strings.HasPrefix(l, "### ") {
			break
		}
		if strings.HasPrefix(l, "|") && !strings.HasPrefix(l, "|---") {
			got = append(got, strings.TrimSpace(l))
		}
	}
	want = append(want, "| Event ↓ / State → | "+strings.Join(columns[:], " | ")+" |")
	for _, r := range rows {
		texts := []string{r.event}
		for _, c := range r.cells {
			texts = append(texts, c.text)
		}
		want = append(want, "| "+strings.Join(texts, " | ")+" |")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the table of docs/architecture.md (-tested +documented):\n%s", diff)
	}
}
