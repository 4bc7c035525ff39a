package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// A Record is a tool call that is over, as it is kept for session/load: in JSON,
// and without the id of any terminal, since none of them lives any longer.
type Record struct {
	ToolCallID acp.ToolCallId         `json:"toolCallId"`
	Title      string                 `json:"title,omitempty"`
	Kind       acp.ToolKind           `json:"kind,omitempty"`
	Status     acp.ToolCallStatus     `json:"status"` // completed, or failed
	Locations  []acp.ToolCallLocation `json:"locations,omitempty"`
	RawInput   any                    `json:"rawInput,omitempty"`
	RawOutput  any                    `json:"rawOutput,omitempty"`

	// Content is the agent's own content, Text what End was told to say, and
	// Error why the tool call failed.
	Content []acp.ToolCallContent `json:"content,omitempty"`
	Text    string                `json:"text,omitempty"`
	Error   string                `json:"error,omitempty"`

	// Ran reports that the tool call ran something: in Dir, with the end of the
	// output as plain text, and an exit code or a signal if they are known. Of
	// several commands the outputs follow each other, and the last exit counts.
	Ran      bool   `json:"ran,omitempty"`
	Dir      string `json:"dir,omitempty"`
	Output   string `json:"output,omitempty"`
	ExitCode *int   `json:"exitCode,omitempty"`
	Signal   string `json:"signal,omitempty"`
}

// Record returns what is to be kept of a Call that has ended, with at most
// [terminal.TextLimit] bytes of output; for one that is open it waits until it
// ends or ctx does, whose Cause it returns then. A Call that never began has none.
func (c *Call) Record(ctx context.Context) (Record, error) {
	if c.dead != nil {
		return Record{}, c.dead
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		return Record{}, context.Cause(ctx)
	}
	s := c.s
	s.mu.Lock()
	commands := slices.Clone(c.commands)
	r := Record{
		ToolCallID: c.id, Title: c.card.Title, Kind: c.card.Kind, Status: c.result.Status,
		Locations: c.card.Locations, RawInput: c.card.RawInput, RawOutput: c.result.RawOutput,
		Content: c.content, Text: c.words, Error: c.reason, Dir: s.cwd,
	}
	s.mu.Unlock()
	for i, k := range commands {
		s.mu.Lock()
		term := k.term
		s.mu.Unlock()
		if i == 0 && k.cmd.Dir != "" {
			r.Dir = k.cmd.Dir
		}
		if term == nil {
			continue
		}
		r.Ran = true
		out, _, err := readPlain(term, terminal.TextLimit, 0)
		if err != nil {
			return r, fmt.Errorf("bridge: the output of %s: %w", term.Info().ID, err)
		}
		r.Output = text.Tail(r.Output+out, terminal.TextLimit)
		exit := term.Info().Exit
		r.ExitCode, r.Signal = exit.Code, exit.Signal
	}
	return r, nil
}

// replayBurst is how many updates of records are sent as fast as the client
// reads: one built on the SDK queues no more than 1,024.
const replayBurst = 512

// Replay sends the card of a tool call of an earlier connection, for
// session/load: with a display terminal if the client shows them, else as text,
// cut to fit lines of the wire. Records are sent in the order of the calls. It
// returns when all is written, when ctx ends (its Cause), and after
// [terminal.SettleTimeout] if the client does not read. A Record whose tool call
// is open, or that has no id or no final status, is an error.
func (s *State) Replay(ctx context.Context, r Record) error {
	if r.ToolCallID == "" || r.Status != acp.ToolCallStatusCompleted && r.Status != acp.ToolCallStatusFailed {
		return fmt.Errorf("bridge: no record of a tool call that is over: %q, %q", r.ToolCallID, r.Status)
	}
	bound, cancel := context.WithTimeoutCause(ctx, terminal.SettleTimeout, errWithdrawn)
	defer cancel()
	for _, u := range s.replay(r) {
		if err := s.replayOne(bound, r.ToolCallID, u); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) replayOne(ctx context.Context, id acp.ToolCallId, u acp.SessionUpdate) error {
	n, err := fit(acp.SessionNotification{SessionId: s.id, Update: u}, true)
	if err != nil {
		return err
	}
	s.mu.Lock()
	switch {
	case s.b.gone():
		err = terminal.ErrConnectionLost
	case s.closed:
		err = terminal.ErrClosed
	case s.cards[id] != nil:
		err = errors.New("it is open")
	}
	s.replayed++
	wait := s.replayed > replayBurst
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("bridge: replay of tool call %q: %w", id, err)
	}
	if wait {
		if err := s.b.pace.wait(ctx); err != nil {
			return err
		}
	}
	return s.b.wire.wait(ctx, s.b.wire.put(n))
}

// replay returns the updates that show a record.
func (s *State) replay(r Record) []acp.SessionUpdate {
	card := acp.SessionUpdateToolCall{
		ToolCallId: r.ToolCallID, Title: r.Title, Kind: r.Kind, Status: acp.ToolCallStatusInProgress,
		Locations: r.Locations, RawInput: r.RawInput, Content: r.Content,
	}
	last := acp.SessionToolCallUpdate{ToolCallId: r.ToolCallID, Status: &r.Status, RawOutput: r.RawOutput}
	if !r.Ran || !s.b.display {
		content := slices.Clone(card.Content)
		add := func(s string) {
			if s != "" {
				content = append(content, acp.ToolContent(acp.TextBlock(s)))
			}
		}
		if add(r.Text); r.Text == "" {
			if r.Output != "" {
				content = append(content, textContent(r.Output, terminal.MaxUpdateLine/2))
			}
			add(r.Error)
		}
		card.Content = content
		return []acp.SessionUpdate{{ToolCall: &card}, {ToolCallUpdate: &last}}
	}
	// The terminal has the id of the tool call, as those of live ones do.
	addTerminal(&card, r.Dir)
	d := displayTerminal{exit: terminal.Exit{Code: r.ExitCode, Signal: r.Signal}}
	updates := []acp.SessionUpdate{{ToolCall: &card}}
	for _, data := range split(d.crlf(&excerpt{head: r.Output}, forRecord), terminal.MaxUpdateLine/2) {
		if data != "" {
			updates = append(updates, acp.SessionUpdate{ToolCallUpdate: displayOutput(r.ToolCallID, data)})
		}
	}
	d.end(&last, r.ToolCallID)
	return append(updates, acp.SessionUpdate{ToolCallUpdate: &last})
}

// forRecord is more JSON than the output of a record takes.
const forRecord = 12 * terminal.TextLimit
