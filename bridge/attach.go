package bridge

import (
	"cmp"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/terminal"
)

// A Card is what the tool_call of an attached Call must carry.
type Card struct {
	// Presentation is how the command will be shown. A client that turns out to
	// have no terminals gets text.
	Presentation Presentation

	// Status is the status, Content follows the agent's own content, and Meta
	// is added to its _meta. Nil where there is nothing to carry.
	Status  acp.ToolCallStatus
	Content []acp.ToolCallContent
	Meta    map[string]any
}

// Attach begins a tool call whose card the agent sends itself, for agents that
// have their own way to tell the client of tool calls. cmd is the command that
// will be run first: it decides how the card shows it.
//
//	call, card := t.Attach("call-1", cmd)
//	// send the tool_call with card.Status, card.Content and card.Meta
//	r, err := call.Exec(ctx, cmd)
//	end := call.End("", err)
//	// send a tool_call_update with end.Status, end.Content, end.RawOutput and end.Meta
//
// The tool_call must be sent before the first method of the Call is called. Then
// the Call sends what shows its commands, and embeds the client's terminals: the
// agent's own updates leave content out (see [Call.Update] for how to change
// it), and the last one is what [Call.End] returns, sent before the turn is
// answered. If the turn ends first and a method of the Call was ever called, the
// Call sends the last update, too; End then returns it with Sent set.
//
// What is wrong with cmd is the error of Exec and StartBackground. On a turn
// that has ended, and for an id that is open or empty, the Call's methods fail.
func (t *Turn) Attach(id acp.ToolCallId, cmd terminal.Command) (*Call, Card) {
	s := t.s
	c := t.newCall(acp.SessionUpdateToolCall{ToolCallId: id, Status: acp.ToolCallStatusInProgress}, true)
	card := Card{Presentation: PresentText, Status: acp.ToolCallStatusInProgress}
	r, err := s.b.route(cmd)
	switch {
	case c.dead != nil || err != nil:
	case r.client:
		card.Presentation = PresentClient
	case s.b.display:
		shown := c.card.attached(cmp.Or(cmd.Dir, s.cwd))
		card.Presentation, card.Content, card.Meta = PresentDisplay, shown.Content, shown.Meta
	}
	return c, card
}
