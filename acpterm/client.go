package acpterm

import (
	"cmp"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/signals"
)

// A Client is what the Managers of one connection share: what their commands have
// shown of how the client treats terminals, and the rate at which outputs are read
// that nobody waits for. The zero value is ready.
type Client struct {
	mu sync.Mutex
	// guards following
	next    time.Time // the next idle read
	carries bool      // an output had an exit status
	runs    bool      // a command certainly ran, and its last output had none
	buffer  buffer    // what it does with an output that it has given out
	prompt  int       // commands whose output was complete at the exit; negative: of one it was not
	unseen  int       // commands that it ran, and that were not seen on this host; negative: one was
	part    kept      // the part of an output over the limit that it keeps
	signals string    // how it reports a signal: names, texts, or not known
}

// A kept is the part of an output over the limit that a client keeps.
type kept int

const (
	unknownPart kept = iota
	keptHead
	keptTail // ever: ACP asks for it, and it is never unlearned
)

// idleRate is how many reads of outputs that nobody waits for are made in a
// second at most. It is above what 1,000 terminals need at one read in PollIdle
// each.
const idleRate = 36

// turn returns how long such a read has to wait for its turn.
func (c *Client) turn() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.next.Before(now) {
		c.next = now
	}
	wait := c.next.Sub(now)
	c.next = c.next.Add(time.Second / idleRate)
	return wait
}

// learn takes what the client has said of a command that has ended.
func (c *Client) learn(e *evidence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.shown != noStatus:
		c.carries = true
	case e.exit.Known() && e.outErr == nil && (e.output || !e.exit.Success()):
		c.runs = true
	}
}

// carriesStatus reports whether an output has ever told that its command had
// ended.
func (c *Client) carriesStatus() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.carries
}

// silent reports whether the client is known to run commands, and to leave the
// exit status out of every output: then a command without an output has nothing
// to prove that it ran.
func (c *Client) silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs && !c.carries
}

// learnBuffer takes what the client does with an output that it has given out.
func (c *Client) learnBuffer(b buffer) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buffer = b
}

// outputs returns what the client does with an output that it has given out.
func (c *Client) outputs() buffer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buffer
}

// learnPart takes the part of an output over the limit that it was seen to keep.
func (c *Client) learnPart(k kept) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.part = max(c.part, k)
}

// learnSignal takes how a command has ended.
func (c *Client) learnSignal(signal *string) {
	if signal == nil {
		return
	}
	way := SignalsUnknown
	switch name := signals.Parse(*signal); {
	case name == *signal && signals.Number(name) != 0:
		way = SignalNames
	case signals.Described(*signal) != "":
		way = SignalTexts
	default:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signals = way
}

// profile returns p with what the client has shown, where p does not tell.
func (c *Client) profile(p Profile) Profile {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.KeepsHead = p.KeepsHead || c.part == keptHead
	p.Signals = cmp.Or(p.Signals, c.signals)
	return p
}

// promptEnough is how many commands must have shown their whole output at the exit
// before the client is believed to do so always.
const promptEnough = 3

// confirmed takes what a second read of an output has brought, a little after the
// exit. That it brought nothing is evidence only where the first brought all that
// there is: of a silent command, and of one that wrote long before its exit, a
// client that is late shows the same.
func (c *Client) confirmed(whole, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case late:
		c.prompt = -1
	case whole && c.prompt >= 0:
		c.prompt++
	}
}

// completeAtExit reports whether an output that was read after the exit has all that
// the command has written, if the read has brought something, and not a part of a
// write.
func (c *Client) completeAtExit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prompt >= promptEnough
}

// saw notes whether a command that the client was running was seen on this host, and
// returns the same.
func (c *Client) saw(seen bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case seen:
		c.unseen = -1
	case c.unseen >= 0:
		c.unseen++
	}
	return seen
}

// elsewhere reports whether the client's commands run on another host, as far as can
// be seen.
func (c *Client) elsewhere() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unseen >= maxUnseen
}
