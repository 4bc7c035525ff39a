package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/internal/vt"
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
// 16 KiB bytes of output; for one that is open it waits until it
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
	face := c.card.given()
	r := Record{
		ToolCallID: c.id, Title: face.Title, Kind: face.Kind, Status: c.result.Status, Locations: face.Locations,
		RawInput: face.RawInput, RawOutput: c.result.RawOutput, Content: face.Content,
		Text: c.verdict.words, Error: c.verdict.reason, Dir: c.s.cwd,
	}
	for i, k := range c.all() {
		v := c.s.view(k)
		if i == 0 && v.cmd.Dir != "" {
			r.Dir = v.cmd.Dir
		}
		if v.done == nil {
			continue
		}
		r.Ran = true
		info := v.info()
		out := c.card.kept(v.pane)
		if v.term != nil {
			all, err := readPlain(v.term, limits.TextLimit, 0)
			if err != nil {
				return r, fmt.Errorf("bridge: the output of %s: %w", info.ID, err)
			}
			out = all.Text
		}
		r.Output = text.Tail(r.Output+out, limits.TextLimit)
		r.ExitCode, r.Signal = info.Exit.Code, info.Exit.Signal
	}
	return r, nil
}

// all returns the commands of the Call.
func (c *Call) all() []*command {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return slices.Clone(c.commands)
}

// replayBurst is how many updates of records are sent as fast as the client
// reads: one built on SDK 0.13 queues no more than 1,024.
const replayBurst = 512

// Replay sends the card of a tool call of an earlier connection, for
// session/load: with a display terminal if the client shows them, else as text,
// cut to fit lines of the wire. Records are sent in the order of the calls. It
// returns when all is written, when ctx ends (its Cause), and after
// 5 s if the client does not read ([ErrUnread]): then the
// client gets the card, and its end, when it reads again. A Record whose tool call is
// open or being replayed, or that has no id or no final status, is an error.
func (s *State) Replay(ctx context.Context, r Record) error {
	if r.ToolCallID == "" || r.Status != acp.ToolCallStatusCompleted && r.Status != acp.ToolCallStatusFailed {
		return fmt.Errorf("bridge: no record of a tool call that is over: %q, %q", r.ToolCallID, r.Status)
	}
	all, err := s.replay(r)
	if err == nil {
		err = s.claimReplay(r.ToolCallID)
	}
	if err != nil {
		return fmt.Errorf("bridge: replay of tool call %q: %w", r.ToolCallID, err)
	}
	defer s.endReplay(r.ToolCallID)
	ctx, cancel := context.WithTimeoutCause(ctx, limits.SettleTimeout, updates.ErrUnread)
	defer cancel()
	for range all {
		if s.noteReplayed() <= replayBurst {
			continue
		}
		if err := s.b.limiter.Wait(ctx); err != nil {
			return err
		}
	}
	return s.out.PutCards(all).Wait(ctx)
}

// claimReplay notes that a record is being sent: no other may be, and no tool call
// with its id may begin.
func (s *State) claimReplay(id acp.ToolCallId) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.b.gone():
		return terminal.ErrConnectionLost
	case s.closed:
		return terminal.ErrClosed
	case s.cards[id] != nil:
		return errors.New("it is open")
	case s.replays[id]:
		return errors.New("it is being replayed")
	}
	s.replays[id] = true
	return nil
}

func (s *State) endReplay(id acp.ToolCallId) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.replays, id)
}

// noteReplayed counts the updates of records.
func (s *State) noteReplayed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replayed++
	return s.replayed
}

// replay returns the updates that show a record.
func (s *State) replay(r Record) ([]acp.SessionUpdate, error) {
	if err := updates.CheckID(string(r.ToolCallID)); err != nil {
		return nil, err
	}
	card, err := updates.FreezeCall(acp.SessionUpdateToolCall{
		ToolCallId: r.ToolCallID, Title: r.Title, Kind: r.Kind, Status: acp.ToolCallStatusInProgress,
		Locations: r.Locations, RawInput: r.RawInput, Content: r.Content,
	})
	if err != nil {
		return nil, err
	}
	last, err := updates.FreezeUpdate(acp.SessionToolCallUpdate{ToolCallId: r.ToolCallID, Status: &r.Status, RawOutput: r.RawOutput})
	if err != nil {
		return nil, err
	}
	if !r.Ran || !s.b.display {
		card.Content = append(card.Content, r.texts()...)
		return []acp.SessionUpdate{{ToolCall: &card}, {ToolCallUpdate: &last}}, nil
	}
	// The terminal has the id of the tool call, as those of live ones do.
	addTerminal(&card, r.Dir)
	d := displayTerminal{exit: terminal.Exit{Code: r.ExitCode, Signal: r.Signal}}
	all := []acp.SessionUpdate{{ToolCall: &card}}
	var lines vt.Newlines // of a display terminal, as the output of a live command is sent
	out := updates.Middle(lines.Convert(r.Output), forRecord, displayMark)
	for _, data := range updates.Split(out, updates.Line/2) {
		if data != "" {
			all = append(all, acp.SessionUpdate{ToolCallUpdate: displayOutput(r.ToolCallID, data)})
		}
	}
	d.end(&last, r.ToolCallID)
	return append(all, acp.SessionUpdate{ToolCallUpdate: &last}), nil
}

// texts returns what a record says.
func (r Record) texts() (content []acp.ToolCallContent) {
	add := func(s string) {
		if s != "" {
			content = append(content, acp.ToolContent(acp.TextBlock(updates.Message(s))))
		}
	}
	room := updates.Room(updates.Line / 2)
	if block, ok := room.Output(r.Output, 1); ok && r.Output != "" {
		content = append(content, block)
	}
	add(cmp.Or(r.Text, r.Error))
	return content
}

// forRecord is more JSON than the output of a record takes.
const forRecord = 12 * limits.TextLimit
