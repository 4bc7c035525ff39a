package updates_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/terminal"
)

// A peer is a connection whose client reads when it may.
type peer struct {
	lost chan struct{}
	open chan struct{} // closed: the client reads

	mu  sync.Mutex
	got []acp.SessionUpdate
}

func newPeer() *peer { return &peer{lost: make(chan struct{}), open: make(chan struct{})} }

func (p *peer) send(_ context.Context, n acp.SessionNotification) error {
	<-p.open
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, n.Update)
	return nil
}

// titles are those of the cards that were written, and the messages.
func (p *peer) titles() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, u := range p.got {
		if u.ToolCallUpdate != nil {
			all = append(all, *u.ToolCallUpdate.Title)
		} else {
			all = append(all, u.AgentMessageChunk.Content.Text.Text)
		}
	}
	return strings.Join(all, " ")
}

func cardOf(title string, content ...acp.ToolCallContent) acp.SessionUpdate {
	return acp.SessionUpdate{ToolCallUpdate: &acp.SessionToolCallUpdate{ToolCallId: "1", Title: &title, Content: content}}
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// A message whose time is up is taken back; an update of a card is not, since
// later ones build on it; and what is being written is neither.
func TestWhatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		s := updates.NewQueue(p.send, p.lost).Stream("s")
		first := s.Put(acp.UpdateAgentMessageText("first"))
		synctest.Wait()
		card := s.PutCard(cardOf("card"))
		message := s.Put(acp.UpdateAgentMessageText("message"))
		for _, u := range []*updates.Update{first, card, message} {
			if err := u.Within(time.Second); !errors.Is(err, updates.ErrUnread) {
				t.Errorf("Within: %v", err)
			}
		}
		expect(t, "the message failed", message.Failed(), true)
		expect(t, "the card failed", card.Failed(), false)
		last := s.PutCard(cardOf("last"))
		close(p.open)
		if err := last.Within(time.Second); err != nil {
			t.Error(err)
		}
		expect(t, "what was written", p.titles(), "first card last")
	})
}

// Unembed waits for the updates that embed a terminal. At its bound it takes the
// terminal out of those that are still queued, and nothing else of them.
func TestUnembed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		s := updates.NewQueue(p.send, p.lost).Stream("s")
		s.Put(acp.UpdateAgentMessageText("blocks"))
		synctest.Wait()
		text := acp.ToolContent(acp.TextBlock("text"))
		content := []acp.ToolCallContent{text, acp.ToolTerminalRef("a"), acp.ToolTerminalRef("b")}
		u := s.PutCard(cardOf("both", content...), "a", "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		expect(t, "it had to", s.Unembed(ctx, "a"), true)
		expect(t, "that took", time.Since(start), time.Second)
		expect(t, "a is embedded", u.Embeds("a"), false)
		expect(t, "b is embedded", u.Embeds("b"), true)
		expect(t, "it had to again", s.Unembed(ctx, "a"), false)

		waited := make(chan bool)
		go func() { waited <- s.Unembed(context.Background(), "b") }()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("Unembed does not wait")
		default:
		}
		close(p.open)
		expect(t, "it had to", <-waited, false)
		expect(t, "b is embedded", u.Embeds("b"), true)
		got := p.got[1].ToolCallUpdate.Content
		if len(got) != 2 || got[0].Content == nil || got[1].Terminal.TerminalId != "b" {
			t.Errorf("the content is %+v", got)
		}
		if len(content) != 3 || content[1].Terminal.TerminalId != "a" {
			t.Error("the caller's content was changed")
		}
	})
}

// SetContent changes what is still queued, and nothing that is being written.
func TestSetContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		s := updates.NewQueue(p.send, p.lost).Stream("s")
		writing := s.PutCard(cardOf("writing"))
		synctest.Wait()
		queued := s.PutCard(cardOf("queued", acp.ToolTerminalRef("a")), "a")
		text := []acp.ToolCallContent{acp.ToolContent(acp.TextBlock("text"))}
		expect(t, "what is being written was changed", writing.SetContent(text), false)
		expect(t, "what is queued was changed", queued.SetContent(text), true)
		expect(t, "a is embedded", queued.Embeds("a"), false)
		close(p.open)
		if err := queued.Within(time.Second); err != nil {
			t.Error(err)
		}
		expect(t, "what was written is changed", queued.SetContent(nil), false)
		if got := p.got[1].ToolCallUpdate.Content; len(got) != 1 || got[0].Content == nil {
			t.Errorf("the content is %+v", got)
		}
		expect(t, "the other's content", len(p.got[0].ToolCallUpdate.Content), 0)
	})
}

// After End nothing more of a session is written; other sessions go on.
func TestEndOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		q := updates.NewQueue(p.send, p.lost)
		one, other := q.Stream("one"), q.Stream("other")
		one.PutCard(cardOf("written"))
		synctest.Wait()
		rest := one.PutCard(cardOf("rest"))
		other.PutCard(cardOf("other"))
		start := time.Now()
		one.End(time.Second)
		expect(t, "End took", time.Since(start), time.Second)
		expect(t, "the rest failed", rest.Failed(), true)
		if err := one.PutCard(cardOf("late")).Within(time.Second); !errors.Is(err, terminal.ErrClosed) {
			t.Errorf("a late update: %v", err)
		}
		close(p.open)
		start = time.Now()
		other.End(time.Second)
		expect(t, "End took", time.Since(start), time.Duration(0))
		expect(t, "what was written", p.titles(), "written other")
	})
}

// Whatever a connection does is the error of one update: the next is written.
func TestAWriteThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan struct{})
		n := 0
		s := updates.NewQueue(func(context.Context, acp.SessionNotification) error {
			switch n++; n {
			case 1:
				panic("a connection of my own")
			case 2:
				return errors.New("no")
			}
			return nil
		}, lost).Stream("s")
		for i, want := range []string{"bridge: session/update panicked: a connection of my own", "no", "<nil>"} {
			expect(t, "the error", fmt.Sprint(s.Put(acp.UpdateAgentMessageText(fmt.Sprint(i))).Within(time.Second)), want)
		}
		// What cannot be marshalled, since it was not frozen, is an error, too.
		if err := s.PutCard(acp.SessionUpdate{ToolCall: &acp.SessionUpdateToolCall{RawInput: panics{}}}).Within(time.Second); err == nil {
			t.Error("an update whose JSON panics was written")
		}
		close(lost)
		if err := s.Put(acp.UpdateAgentMessageText("late")).Within(time.Second); !errors.Is(err, terminal.ErrConnectionLost) {
			t.Errorf("on a lost connection: %v", err)
		}
		expect(t, "writes", n, 3)
	})
}

// A Limiter gives so many places a second, and its wait ends with its context.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := updates.NewLimiter(50)
		start := time.Now()
		for range 101 {
			if err := l.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, "101 places took", time.Since(start), 2*time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("why")
		cancel(cause)
		if err := l.Wait(ctx); err != cause {
			t.Errorf("Wait: %v", err)
		}
	})
}
