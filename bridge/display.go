package bridge

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// A displayTerminal is a terminal of the client that only shows what the agent
// sends. There is no specification; this is what Zed reads, and claude-agent-acp
// and codex-acp write: _meta.terminal_info on the tool_call (and nowhere else),
// _meta.terminal_output, an appended piece, and _meta.terminal_exit on
// tool_call_updates (and nowhere else). A tool call has one, whose id is its own.
//
// The State's mu guards it.
type displayTerminal struct {
	used   bool          // a command was shown in it
	live   int           // commands that are being shown in it
	exit   terminal.Exit // of the last that was
	exited bool          // terminal_exit was sent
	cr     bool          // what was sent ends with a carriage return
}

// addTerminal makes card embed its display terminal.
func addTerminal(card *acp.SessionUpdateToolCall, cwd string) {
	id := string(card.ToolCallId)
	card.Content = append(card.Content[:len(card.Content):len(card.Content)], acp.ToolTerminalRef(id))
	card.Meta = maps.Clone(card.Meta)
	if card.Meta == nil {
		card.Meta = make(map[string]any)
	}
	card.Meta["terminal_info"] = map[string]any{"terminal_id": id, "cwd": cwd}
}

// end adds the exit to the final update, unless something is still shown.
func (d *displayTerminal) end(u *acp.SessionToolCallUpdate, id acp.ToolCallId) {
	if d.live > 0 || d.exited {
		return
	}
	d.exited = true
	exit := map[string]any{"terminal_id": string(id), "exit_code": d.exit.Code, "signal": nil}
	if d.exit.Signal != "" {
		exit["signal"] = d.exit.Signal
	}
	u.Meta = map[string]any{"terminal_exit": exit}
}

// A displayPresenter shows a local command in the display terminal of its Call.
// It goes on when the Call has ended.
type displayPresenter struct{ k *command }

func (p *displayPresenter) presentation() Presentation { return PresentDisplay }
func (p *displayPresenter) embeds() string             { return "" } // the card has it from the start
func (p *displayPresenter) stands() string             { return "" }

func (p *displayPresenter) follow(ctx context.Context) {
	p.output(ctx)
	c, s := p.k.call, p.k.call.s
	s.mu.Lock()
	defer s.mu.Unlock()
	d := c.terminal
	d.live--
	d.exit = p.k.term.Info().Exit
	if c.over && d.live == 0 && !d.exited {
		var u acp.SessionToolCallUpdate
		d.end(&u, c.id)
		s.put(c, u)
	}
}

// output sends the output until its end. Sending waits for the client to read,
// and while it waits output adds up; what is too much for a line is left out of
// the middle, and can be read by cursor as ever.
func (p *displayPresenter) output(ctx context.Context) {
	c, s, t := p.k.call, p.k.call.s, p.k.term
	room := p.room()
	var cursor int64
	var next time.Time
	for {
		o, err := t.ReadOutput(ctx, cursor, c.quiet())
		switch {
		case err != nil:
			return
		case o.Text == "" && o.EOF():
			return
		case o.Text == "" && !o.Truncated:
			c.keepAlive()
			continue
		}
		if sleep(ctx, time.Until(next)) != nil || s.b.pace.wait(ctx) != nil {
			return
		}
		var e excerpt
		if cursor, err = e.read(ctx, t, cursor); err != nil {
			return
		}
		s.mu.Lock()
		u := s.put(c, *displayOutput(c.id, c.terminal.crlf(&e, room)))
		s.mu.Unlock()
		next = time.Now().Add(terminal.DisplayInterval)
		if u == nil || s.b.wire.wait(ctx, u) != nil {
			return
		}
	}
}

// displayOutput appends data to the display terminal of a tool call.
func displayOutput(id acp.ToolCallId, data string) *acp.SessionToolCallUpdate {
	return &acp.SessionToolCallUpdate{ToolCallId: id, Meta: map[string]any{
		"terminal_output": map[string]any{"terminal_id": string(id), "data": data},
	}}
}

// room returns how many bytes of JSON of data fit an update.
func (p *displayPresenter) room() int {
	c := p.k.call
	size, _ := lineSize(acp.SessionNotification{SessionId: c.s.id, Update: acp.SessionUpdate{ToolCallUpdate: displayOutput(c.id, "")}})
	return max(terminal.MaxUpdateLine-size, 256)
}

// displayMark stands in a display terminal for bytes that were left out. It ends
// whatever attributes were on.
const displayMark = "\x1b[0m\r\n[... %d bytes skipped ...]\r\n"

// crlf returns an excerpt as a terminal needs it, in at most max bytes of JSON: a
// line feed alone, as programs without a terminal write it, also returns the
// carriage.
func (d *displayTerminal) crlf(e *excerpt, max int) string {
	convert := func(s string) string {
		var b strings.Builder
		b.Grow(len(s) + len(s)/16)
		for {
			i := strings.IndexByte(s, '\n')
			if i < 0 {
				break
			}
			b.WriteString(s[:i])
			if !(i > 0 && s[i-1] == '\r' || i == 0 && d.cr) {
				b.WriteByte('\r')
			}
			b.WriteByte('\n')
			d.cr = false
			s = s[i+1:]
		}
		b.WriteString(s)
		if s != "" {
			d.cr = strings.HasSuffix(s, "\r")
		}
		return b.String()
	}
	if e.skipped == 0 {
		whole := convert(e.head + e.tail)
		if jsonLen(whole) <= max {
			return whole
		}
		return middle(whole, max, displayMark)
	}
	head := convert(e.head)
	d.cr = false
	return join(head, convert(e.tail), e.skipped, max, displayMark)
}

// An excerpt is the start and the end of a piece of output: what it holds is
// bounded however much is added.
type excerpt struct {
	head, tail string
	skipped    int // bytes between them
}

// excerptPart bounds both parts: no line of the wire holds more.
const excerptPart = terminal.MaxUpdateLine

func (e *excerpt) add(s string) {
	if e.tail == "" && e.skipped == 0 && len(e.head)+len(s) <= excerptPart {
		e.head += s
		return
	}
	e.tail += s
	if over := len(e.tail) - 2*excerptPart; over > 0 {
		kept := text.Tail(e.tail, excerptPart)
		e.skipped += len(e.tail) - len(kept)
		e.tail = kept
	}
}

// maxReads bounds how much is read for one update: a writer may be faster.
const maxReads = 64

// read adds the output of t from cursor on that is there, and returns the cursor
// behind it.
func (e *excerpt) read(ctx context.Context, t terminal.Terminal, cursor int64) (int64, error) {
	for range maxReads {
		o, err := t.ReadOutput(ctx, cursor, 0)
		if err != nil {
			return cursor, err
		}
		if o.Truncated {
			e.add(text.Cancel + terminal.GapMark)
		}
		e.add(o.Text)
		cursor = o.NextCursor
		if !o.More {
			break
		}
	}
	return cursor, nil
}

// join returns head and tail around a mark for the skipped bytes between them
// and what is cut of both, in at most max bytes of JSON.
func join(head, tail string, skipped, max int, mark string) string {
	room := max - jsonLen(fmt.Sprintf(mark, skipped+len(head)+len(tail)))
	h := jsonHead(head, room/3)
	if i := strings.LastIndexByte(h, '\n'); i >= len(h)/2 {
		h = h[:i+1]
	}
	t := jsonTail(tail, room-jsonLen(h))
	if i := strings.IndexByte(t, '\n'); i >= 0 && i < len(t)/2 {
		t = t[i+1:]
	}
	return h + fmt.Sprintf(mark, skipped+len(head)-len(h)+len(tail)-len(t)) + t
}
