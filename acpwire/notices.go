package acpwire

import (
	"bytes"
	"fmt"
)

// Notifications are not left to SDK 0.13, which closes the connection when 1,024 of
// them wait for the agent. The agent gets them in their order, one at a time, and
// nothing else waits for them.

// A notification is one that waits for the agent.
type notification struct {
	method string
	params []byte
	handle handler
}

// maxBacklog is how many bytes of notifications wait at most. What comes then is
// lost: if it were not read, neither would be a cancel behind it.
const maxBacklog = 64 << 20

// noID is the id of a request that the client has sent without one. Its answer is
// dropped.
const noID = `"a request without an id"`

// receiveNotification is receive for what has no id.
func (g *guard) receiveNotification(m *message) []byte {
	handle := g.handler(m.method)
	switch {
	case handle != nil:
		g.notify(notification{m.method, bytes.Clone(m.text(m.params)), handle})
	case params[m.method] != nil && notifications[m.method] == nil:
		// The SDK would handle it in its queue of notifications.
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`+"\n", noID, m.method, orNull(m.text(m.params)))
	default:
		g.tellOnce(m.method, "acpwire: a notification that the agent does not know was dropped", "method", m.method)
	}
	return nil
}

// orNull returns the text of a member that may be absent.
func orNull(text []byte) []byte {
	if len(text) == 0 {
		return []byte("null")
	}
	return text
}

// notify has the agent handle a notification when it has handled those before.
func (g *guard) notify(n notification) {
	size := len(n.method) + len(n.params)
	g.mu.Lock()
	fits := g.backlog+size <= maxBacklog
	start := fits && !g.handling
	if fits {
		g.waiting = append(g.waiting, n)
		g.backlog += size
		g.handling = true
	}
	g.mu.Unlock()
	if !fits {
		g.tellOnce(n.method+" lost", "acpwire: notifications are lost, since the agent does not handle those before", "method", n.method)
	}
	if start {
		go g.handleNotifications() // ends when none waits
	}
}

func (g *guard) handleNotifications() {
	for {
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.waiting, g.handling = nil, false
			g.mu.Unlock()
			return
		}
		n := g.waiting[0]
		g.waiting[0] = notification{}
		g.waiting = g.waiting[1:]
		g.backlog -= len(n.method) + len(n.params)
		g.mu.Unlock()
		if err := g.call(n.method, func() error { return n.handle(g.ctx, n.params) }); err != nil {
			g.tellOnce(n.method+" failed", "acpwire: the agent has failed to handle a notification", "method", n.method, "err", err)
		}
	}
}
