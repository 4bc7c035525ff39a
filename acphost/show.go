package acphost

import (
	"fmt"
	"sync"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
)

// A Show is the kind of an Event.
type Show string

// The kinds.
const (
	ShowCard    Show = "card"    // a tool call was announced, or it changed: Card
	ShowOutput  Show = "output"  // Text was added to Terminal, which ToolCall shows
	ShowEnd     Show = "end"     // the command of Terminal has ended: Exit
	ShowMessage Show = "message" // the agent said Text
)

// An Event is something that a user should see.
type Event struct {
	Kind     Show
	Session  acp.SessionId
	ToolCall acp.ToolCallId
	// Card is the tool call after the change, without the output of its
	// terminals, which comes as events of its own.
	Card     Card
	Terminal string
	Text     string
	Exit     terminal.Exit
}

// shows hands events to Options.Show in order. Its queue has no limit, since
// the SDK ends a connection whose updates are not taken in time; it stays
// short, since the terminals of the client are read only as fast as they are
// shown.
type shows struct {
	show func(Event)
	done chan struct{} // closed by run when it has returned: failure is valid
	wake chan struct{} // holds one value while there is something to do

	failure error // the first panic of show

	mu sync.Mutex
	// guards following
	queue  []queued
	closed bool
}

type queued struct {
	Event
	shown chan struct{} // closed by run after the event was shown; may be nil
}

func newShows(show func(Event)) *shows {
	s := &shows{show: show, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go s.run() // joined by close
	return s
}

func (s *shows) run() {
	defer close(s.done)
	for {
		s.mu.Lock()
		queue, closed := s.queue, s.closed
		s.queue = nil
		s.mu.Unlock()
		for _, q := range queue {
			if failure := caught.Call(func() { s.show(q.Event) }); failure != nil && s.failure == nil {
				s.failure = fmt.Errorf("acphost: Options.Show %w\n%s", failure, failure.Stack)
			}
			if q.shown != nil {
				close(q.shown)
			}
		}
		if len(queue) == 0 {
			if closed {
				return
			}
			<-s.wake
		}
	}
}

// push queues an event. After close it is dropped, and counts as shown.
func (s *shows) push(e Event, shown chan struct{}) {
	s.mu.Lock()
	if s.closed {
		if shown != nil {
			close(shown)
		}
	} else {
		s.queue = append(s.queue, queued{e, shown})
	}
	s.mu.Unlock()
	s.poke()
}

// poke wakes run.
func (s *shows) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// close returns when everything that was pushed has been shown, with the first panic.
func (s *shows) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.poke()
	<-s.done
	return s.failure
}

// show queues an event for Options.Show.
func (h *Host) show(e Event) {
	if h.shows != nil {
		h.shows.push(e, nil)
	}
}

// showCard queues an event for a card that has changed. Called with mu held.
func (h *Host) showCard(c *card) {
	if h.shows != nil {
		h.show(Event{Kind: ShowCard, Session: c.Session, ToolCall: c.ID, Card: c.brief()})
	}
}

// follow shows the output of the client's terminals among sources as it comes, from the
// moment that a card has them, and behind that card. Called with mu held; Close joins
// the goroutines.
func (h *Host) follow(c *card, sources []*source) {
	if h.shows == nil || h.closed {
		return
	}
	for _, x := range sources {
		if x.t != nil {
			h.followOne(c.Session, c.ID, x)
		}
	}
}

func (h *Host) followOne(session acp.SessionId, call acp.ToolCallId, x *source) {
	h.readers.Go(func() {
		for out, err := range terminal.Follow(h.reads, x.t, 0) {
			if err != nil {
				return
			}
			if text := out.Text; text != "" {
				if out.Truncated {
					text = vt.Resume(terminal.GapMark, text)
				}
				shown := make(chan struct{})
				h.shows.push(Event{Kind: ShowOutput, Session: session, ToolCall: call, Terminal: x.id, Text: text}, shown)
				<-shown
			}
			if out.EOF() {
				h.shows.push(Event{Kind: ShowEnd, Session: session, ToolCall: call, Terminal: x.id, Exit: out.Info.Exit}, nil)
			}
		}
	})
}
