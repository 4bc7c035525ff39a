package bridge

import (
	"context"
	"maps"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
)

// A displayTerminal is a terminal of the client that only shows what the agent
// sends. There is no specification; this is what Zed reads, and claude-agent-acp
// and codex-acp write: _meta.terminal_info on the tool_call (and nowhere else),
// _meta.terminal_output, an appended piece, and _meta.terminal_exit on
// tool_call_updates (and nowhere else). A tool call has one, whose id is its own.
//
// The card's mu guards it.
type displayTerminal struct {
	used   bool          // a command was shown in it
	live   int           // commands that are being shown in it
	exit   terminal.Exit // of the last that was
	exited bool          // terminal_exit was sent
}

// addTerminal makes card embed its display terminal.
func addTerminal(card *acp.SessionUpdateToolCall, cwd string) {
	id := string(card.ToolCallId)
	card.Content = append(card.Content[:len(card.Content):len(card.Content)], acp.ToolTerminalRef(id))
	card.Meta = maps.Clone(card.Meta)
	if card.Meta == nil {
		card.Meta = make(map[string]any)
	}
	info := map[string]any{"terminal_id": id}
	if cwd != "" && text.JSONLen(cwd) <= updates.MaxID { // a part of it would be another directory
		info["cwd"] = cwd
	}
	card.Meta["terminal_info"] = info
}

// end adds the exit to the final update, unless something is still shown.
func (d *displayTerminal) end(u *acp.SessionToolCallUpdate, id acp.ToolCallId) {
	if d.live > 0 || d.exited {
		return
	}
	d.exited = true
	exit := map[string]any{"terminal_id": string(id), "exit_code": nil, "signal": nil}
	if d.exit.Code != nil {
		exit["exit_code"] = *d.exit.Code
	}
	if d.exit.Signal != "" {
		exit["signal"] = updates.Middle(d.exit.Signal, 64, updates.CutMark)
	}
	u.Meta = map[string]any{"terminal_exit": exit}
}

// A displayPresenter shows a local command in the display terminal of its Call.
// It goes on when the Call has ended.
type displayPresenter struct {
	*card
	t terminal.Terminal
}

// failed shows why there is no more to see.
func (p displayPresenter) failed(words string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines vt.Newlines
	p.send(&excerpt{head: lines.Convert("\n" + words + "\n")}, p.room())
}

// done notes that all is shown. The last command that is shown says how it ended.
func (p displayPresenter) done() {
	var exit terminal.Exit
	defer func() { p.exit(exit) }() // whatever the terminal does
	exit = p.t.Info().Exit
}

func (p displayPresenter) exit(exit terminal.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.terminal
	d.live--
	d.exit = exit
	if p.stage == over && d.live == 0 && !d.exited {
		var u acp.SessionToolCallUpdate
		d.end(&u, p.id)
		p.put(u)
	}
}

// follow sends the output until its end. What is too much for a line is left out of
// the middle, and can be read by cursor as ever.
func (p displayPresenter) follow(ctx context.Context) {
	p.stream(ctx, p.t, &displaySink{displayPresenter: p, room: p.room()}, limits.DisplayInterval)
}

// A displaySink sends what is new.
type displaySink struct {
	displayPresenter
	room  int
	lines vt.Newlines
	new   excerpt
}

func (s *displaySink) pause(ctx context.Context, next time.Time) error {
	if err := await.Sleep(ctx, time.Until(next)); err != nil {
		return err
	}
	return s.limiter.Wait(ctx)
}

func (s *displaySink) add(text string) { s.new.add(s.lines.Convert(text)) }

func (s *displaySink) show(int64) *updates.Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.send(&s.new, s.room)
	s.new = excerpt{}
	return u
}

// send queues a piece of output. Called with the card's mu held.
func (p displayPresenter) send(e *excerpt, room int) *updates.Update {
	p.last = time.Now()
	p.latest = p.out.Put(acp.SessionUpdate{ToolCallUpdate: displayOutput(p.id, e.cut(room))})
	return p.latest
}

// room returns how many bytes of JSON of data fit an update.
func (p displayPresenter) room() int {
	return int(updates.Rest(p.empty + updates.Size(displayOutput(p.id, "").Meta)))
}

// displayOutput appends data to the display terminal of a tool call.
func displayOutput(id acp.ToolCallId, data string) *acp.SessionToolCallUpdate {
	return &acp.SessionToolCallUpdate{ToolCallId: id, Meta: map[string]any{
		"terminal_output": map[string]any{"terminal_id": string(id), "data": data},
	}}
}

// displayMark stands in a display terminal for bytes that were left out. It ends
// whatever attributes were on.
const displayMark = "\x1b[0m\r\n[... %d bytes skipped ...]\r\n"

// An excerpt is the start and the end of a piece of output: what it holds is
// bounded however much is added.
type excerpt struct {
	head, tail string
	skipped    int // bytes between them
}

// excerptPart bounds both parts: no line of the wire holds more.
const excerptPart = limits.MaxUpdateLine

// cut returns the excerpt in at most limit bytes of JSON.
func (e *excerpt) cut(limit int) string {
	if e.skipped == 0 {
		return updates.Middle(e.head+e.tail, limit, displayMark)
	}
	return updates.Cut(e.head, e.tail, e.skipped, limit, displayMark)
}

func (e *excerpt) add(s string) {
	if e.tail == "" && e.skipped == 0 && len(e.head)+len(s) <= excerptPart {
		e.head += s
		return
	}
	e.tail += s
	if over := len(e.tail) - 2*excerptPart; over > 0 {
		kept := vt.From(e.tail, len(e.tail)-len(text.Tail(e.tail, excerptPart)))
		e.skipped += len(e.tail) - len(kept)
		e.tail = kept
	}
}
