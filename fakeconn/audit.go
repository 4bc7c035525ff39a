package fakeconn

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/limits"
)

// A Rule is what an agent must keep to on the wire.
type Rule string

// The rules. Released and Final are judged in part by [Client.Close], once
// nothing can follow.
const (
	// terminal/* needs clientCapabilities.terminal, and terminal_info needs
	// clientCapabilities._meta.terminal_output.
	RuleCapability Rule = "nothing that the client did not advertise"
	// Requests and content name terminals that exist.
	RuleUnknown Rule = "no terminal that the client does not know"
	// After terminal/release was sent, nothing names the terminal; only a
	// release that had no answer may be repeated.
	RuleReleased Rule = "nothing of a terminal after its release"
	// Every terminal whose id reached the agent is released.
	RuleRelease Rule = "every terminal is released exactly once"
	// A session/update line has at most 32 KiB bytes.
	RuleSize Rule = "a session/update line is at most 32 KiB"
	// Every tool call of a turn is completed or failed, once.
	RuleFinal Rule = "exactly one final status per tool call"
	// While no prompt of a session is open, it gets no update of a turn, but
	// for output and exits of display-only terminals.
	RuleTurn Rule = "nothing of a turn after its answer"
	// A tool_call_update follows a tool_call.
	RuleAnnounced Rule = "no update of a tool call that was never announced"
	// terminal_info is on a tool_call; terminal_output and then one
	// terminal_exit are on tool_call_updates.
	RuleDisplay Rule = "display terminals: info on a tool_call, output, one exit"
	// The queues of the wire stay below Options.MaxQueue.
	RuleQueue Rule = "nobody floods the connection"
)

// A Finding is a violation of a rule.
type Finding struct {
	Rule Rule
	Line int // Line.N, or 0 where something is missing
	Text string
}

func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.Rule, f.Text)
	}
	return fmt.Sprintf("%s: line %d: %s", f.Rule, f.Line, f.Text)
}

// An AuditError lists violations of the rules of the wire.
type AuditError struct{ Findings []Finding }

func (e *AuditError) Error() string {
	texts := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		texts[i] = f.String()
	}
	return "fakeconn: the wire: " + strings.Join(texts, "; ")
}

// audit judges an agent by the lines that it sent, and by those that reached
// it. The filter guards it.
type audit struct {
	terminal, display bool // what the client can
	allow             map[Rule]bool
	lost              bool // the connection ended without the agent's doing

	findings  []Finding
	turns     map[acp.SessionId]*turns
	terminals map[terminalKey]*wireTerminal // the newest of each id
	releases  map[string]*wireTerminal      // by the id of the terminal/release
	calls     map[callKey]*wireCall
}

type (
	terminalKey struct {
		session acp.SessionId
		id      string
	}
	callKey struct {
		session acp.SessionId
		id      acp.ToolCallId
	}

	// turns are the prompts of a session.
	turns struct {
		seen bool // there was one
		open int
	}
	// wireTerminal is a terminal that the agent knows of.
	wireTerminal struct {
		display  bool
		released bool // terminal/release was sent
		settled  bool // and answered
		exited   bool // terminal_exit was sent
	}
	wireCall struct {
		turn   bool // a prompt was open when it was announced
		finals int
	}
)

func newAudit(opts Options) audit {
	a := audit{
		terminal:  !opts.NoTerminal,
		display:   opts.Display,
		allow:     map[Rule]bool{},
		turns:     map[acp.SessionId]*turns{},
		terminals: map[terminalKey]*wireTerminal{},
		releases:  map[string]*wireTerminal{},
		calls:     map[callKey]*wireCall{},
	}
	for _, r := range opts.Allow {
		a.allow[r] = true
	}
	return a
}

func (a *audit) found(r Rule, l *Line, format string, args ...any) {
	if a.allow[r] {
		return
	}
	f := Finding{Rule: r, Text: fmt.Sprintf(format, args...)}
	if l != nil {
		f.Line = l.N
	}
	a.findings = append(a.findings, f)
}

// err returns the findings so far as an error.
func (a *audit) err() error {
	if len(a.findings) == 0 {
		return nil
	}
	return &AuditError{slices.Clone(a.findings)}
}

func (a *audit) turn(id acp.SessionId) *turns {
	t := a.turns[id]
	if t == nil {
		t = &turns{}
		a.turns[id] = t
	}
	return t
}

// maxLine is the length of a line at which the SDK gives the connection up.
const maxLine = 10 << 20

// delivered looks at a line of the client's that reaches the agent.
func (a *audit) delivered(l *Line) {
	if len(l.Raw) >= maxLine {
		return // an agent cannot read it
	}
	switch {
	case l.Kind == Request && l.Method == acp.AgentMethodSessionPrompt:
		t := a.turn(l.Session)
		t.seen = true
		t.open++
	case l.Kind == Reply && l.Method == acp.ClientMethodTerminalCreate:
		var result target
		json.Unmarshal(l.message.Result, &result) // an error reply has none
		if result.TerminalID == "" {
			return
		}
		key := terminalKey{l.Session, result.TerminalID}
		if x := a.terminals[key]; x == nil || x.released {
			a.terminals[key] = &wireTerminal{}
		}
	case l.Kind == Reply && l.Method == acp.ClientMethodTerminalRelease:
		if x := a.releases[l.ID]; x != nil { // whose id may be another terminal's by now
			x.settled = true
			delete(a.releases, l.ID)
		}
	}
}

// sent looks at a line of the agent's.
func (a *audit) sent(l *Line) {
	switch {
	case l.Kind == Request && strings.HasPrefix(l.Method, "terminal/"):
		a.request(l)
	case l.Kind == Notification && l.Method == acp.ClientMethodSessionUpdate:
		a.update(l)
	case l.Kind == Reply && l.Method == acp.AgentMethodSessionPrompt:
		a.turn(l.Session).open--
	}
}

// request judges a terminal/* request.
func (a *audit) request(l *Line) {
	if !a.terminal {
		a.found(RuleCapability, l, "%s, and the client has no terminals", l.Method)
		return
	}
	if l.Method == acp.ClientMethodTerminalCreate {
		return
	}
	x := a.terminals[terminalKey{l.Session, l.Terminal}]
	release := l.Method == acp.ClientMethodTerminalRelease
	switch {
	case x == nil || x.display:
		a.found(RuleUnknown, l, "%s of %q, which the client never gave out", l.Method, l.Terminal)
	case release && x.settled:
		a.found(RuleRelease, l, "%q was released, and that was answered", l.Terminal)
	case release:
		x.released = true
		a.releases[l.ID] = x
	case x.released:
		a.found(RuleReleased, l, "%s of %q, which was released", l.Method, l.Terminal)
	}
}

// wireUpdate is what the audit reads of a session/update.
type wireUpdate struct {
	SessionUpdate string         `json:"sessionUpdate"`
	ToolCallID    acp.ToolCallId `json:"toolCallId"`
	Status        string         `json:"status"`
	Content       json.RawMessage
	Meta          map[string]json.RawMessage `json:"_meta"`
}

// metaTerminal is the value of a terminal_info, terminal_output, terminal_exit.
type metaTerminal struct {
	TerminalID string `json:"terminal_id"`
}

// update judges a session/update.
func (a *audit) update(l *Line) {
	if n := len(l.Raw) + 1; n > limits.MaxUpdateLine {
		a.found(RuleSize, l, "%d bytes", n)
	}
	var params struct {
		Update json.RawMessage `json:"update"`
	}
	var u wireUpdate
	json.Unmarshal(l.message.Params, &params)
	if err := json.Unmarshal(params.Update, &u); err != nil {
		return // no shape that the rules speak of
	}
	t := a.turn(l.Session)
	card := a.calls[callKey{l.Session, u.ToolCallID}]
	if t.seen && t.open <= 0 && ofTurn(u, params.Update, card != nil && card.finals > 0) {
		a.found(RuleTurn, l, "%s %s", u.SessionUpdate, u.ToolCallID)
	}
	switch u.SessionUpdate {
	case "tool_call":
		key := callKey{l.Session, u.ToolCallID}
		if a.calls[key] == nil {
			a.calls[key] = &wireCall{turn: t.open > 0}
		}
		a.info(l, u)
	case "tool_call_update":
		if a.calls[callKey{l.Session, u.ToolCallID}] == nil {
			a.found(RuleAnnounced, l, "%s", u.ToolCallID)
		}
		a.output(l, u)
	default:
		return
	}
	if c := a.calls[callKey{l.Session, u.ToolCallID}]; c != nil && final(u.Status) {
		if c.finals++; c.finals > 1 {
			a.found(RuleFinal, l, "%s has a second one, %s", u.ToolCallID, u.Status)
		}
	}
	a.embeds(l, u)
}

func final(status string) bool {
	return status == string(acp.ToolCallStatusCompleted) || status == string(acp.ToolCallStatusFailed)
}

// ofTurn reports whether an update belongs to a turn: not what an agent may
// say of the session at any time, and not the output of a background command, which
// may be in the content of a card that is over.
func ofTurn(u wireUpdate, raw json.RawMessage, over bool) bool {
	switch u.SessionUpdate {
	case "tool_call", "plan", "user_message_chunk", "agent_message_chunk", "agent_thought_chunk":
		return true
	case "tool_call_update":
	default:
		return false
	}
	var members map[string]json.RawMessage
	json.Unmarshal(raw, &members)
	delete(members, "sessionUpdate")
	delete(members, "toolCallId")
	delete(members, "_meta")
	if over && members["content"] != nil && u.Meta == nil {
		return len(members) > 1
	}
	for name := range u.Meta {
		if name != "terminal_output" && name != "terminal_exit" {
			return true
		}
	}
	return len(members) > 0 || len(u.Meta) == 0
}

// info judges the _meta of a tool_call.
func (a *audit) info(l *Line, u wireUpdate) {
	for _, name := range []string{"terminal_output", "terminal_exit"} {
		if u.Meta[name] != nil {
			a.found(RuleDisplay, l, "%s on a tool_call", name)
		}
	}
	m := u.Meta["terminal_info"]
	if m == nil {
		return
	}
	if !a.display {
		a.found(RuleCapability, l, "terminal_info, and the client does not show terminals of agents")
		return
	}
	var info metaTerminal
	json.Unmarshal(m, &info)
	key := terminalKey{l.Session, info.TerminalID}
	switch {
	case info.TerminalID == "":
		a.found(RuleDisplay, l, "terminal_info without a terminal_id")
	case a.terminals[key] == nil:
		a.terminals[key] = &wireTerminal{display: true}
	}
}

// output judges the _meta of a tool_call_update.
func (a *audit) output(l *Line, u wireUpdate) {
	if u.Meta["terminal_info"] != nil {
		a.found(RuleDisplay, l, "terminal_info on a tool_call_update")
	}
	for _, name := range []string{"terminal_output", "terminal_exit"} {
		m := u.Meta[name]
		if m == nil {
			continue
		}
		var of metaTerminal
		json.Unmarshal(m, &of)
		x := a.terminals[terminalKey{l.Session, of.TerminalID}]
		switch {
		case x == nil || !x.display:
			a.found(RuleUnknown, l, "%s of %q, for which there was no terminal_info", name, of.TerminalID)
		case x.exited:
			a.found(RuleDisplay, l, "%s of %q after its terminal_exit", name, of.TerminalID)
		case name == "terminal_exit":
			x.exited = true
		}
	}
}

// embeds judges the terminals in the content of an update.
func (a *audit) embeds(l *Line, u wireUpdate) {
	var content []struct {
		Type       string `json:"type"`
		TerminalID string `json:"terminalId"`
	}
	json.Unmarshal(u.Content, &content)
	for _, c := range content {
		if c.Type != "terminal" {
			continue
		}
		switch x := a.terminals[terminalKey{l.Session, c.TerminalID}]; {
		case x == nil:
			a.found(RuleUnknown, l, "%s of %s embeds %q", u.SessionUpdate, u.ToolCallID, c.TerminalID)
		case x.released:
			a.found(RuleReleased, l, "%s of %s embeds %q, which was released", u.SessionUpdate, u.ToolCallID, c.TerminalID)
		}
	}
}

// end judges what is missing when the client is about to close the connection.
// An agent whose connection was lost owes nothing.
func (a *audit) end() {
	if a.lost {
		return
	}
	for _, key := range slices.SortedFunc(maps.Keys(a.terminals), func(x, y terminalKey) int {
		return strings.Compare(string(x.session)+x.id, string(y.session)+y.id)
	}) {
		if x := a.terminals[key]; !x.display && !x.released {
			a.found(RuleRelease, nil, "%q of session %s never was", key.id, key.session)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(a.calls), func(x, y callKey) int {
		return strings.Compare(string(x.session)+string(x.id), string(y.session)+string(y.id))
	}) {
		if c := a.calls[key]; c.turn && c.finals == 0 && a.turn(key.session).open <= 0 {
			a.found(RuleFinal, nil, "%s of session %s has none", key.id, key.session)
		}
	}
}
