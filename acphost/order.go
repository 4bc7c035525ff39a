package acphost

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpwire"
)

// orderWait bounds how long a request waits for the updates that came before it.
// It is reached only if the client takes longer for one of them.
const orderWait = time.Second

// Reader returns r, which is what the connection reads from the agent, with a
// guarantee that SDK 0.13 does not give: a terminal/release and a
// session/request_permission are handled after the updates that were sent before
// them, or a second later if the client takes longer for these. The SDK handles
// notifications one after the other and requests at once, so that a release can
// overtake the very update that embeds the terminal, which is then an error, and a
// permission request the card that it is about.
//
// Reader also opens the sessions that the agent makes, see [Host.OpenSession], and
// has optional members of the wrong type count as absent, of which one costs the
// whole message in the SDK. A Host has one Reader.
//
//	acp.NewClientSideConnection(client, stdin, host.Reader(stdout))
func (h *Host) Reader(r io.Reader) io.Reader {
	return &orderedReader{in: bufio.NewReader(r), host: h}
}

// orderedReader hands out lines one by one, and a request that concerns a card
// only once the updates before it were handled.
type orderedReader struct {
	in     *bufio.Reader
	host   *Host
	passed int    // updates that were handed out and will be handled
	waited int    // how many of them a request has waited for
	rest   []byte // of the line that is being handed out
	err    error  // after it
}

func (r *orderedReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.rest, r.err = r.line()
		r.rest = acpwire.ForClient(r.rest)
		r.pass(r.rest)
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	if n == 0 && len(p) > 0 {
		return 0, r.err
	}
	return n, nil
}

// pass returns when a line may be handed out.
func (r *orderedReader) pass(raw []byte) {
	var line struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Result struct {
			SessionID acp.SessionId `json:"sessionId"`
		} `json:"result"`
	}
	json.Unmarshal(raw, &line) // what is no JSON is for the SDK to report
	switch line.Method {
	case "":
		if id := line.Result.SessionID; id != "" {
			r.host.OpenSession(id) // only answers to session/new and its like have one
		}
	case acp.ClientMethodSessionUpdate:
		// The SDK drops what it cannot decode.
		var n acp.SessionNotification
		if json.Unmarshal(line.Params, &n) == nil && n.Validate() == nil {
			r.passed++
		}
	case acp.ClientMethodTerminalRelease, acp.ClientMethodSessionRequestPermission:
		if r.waited < r.passed {
			r.host.handled.wait(r.passed, orderWait)
			r.waited = r.passed
		}
	}
}

// maxLine is the length of a line at which the SDK gives the connection up.
const maxLine = 10 << 20

// line reads a line, or maxLine bytes of one that is too long.
func (r *orderedReader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err != bufio.ErrBufferFull:
			return line, err
		case len(line) >= maxLine:
			return line, nil
		}
	}
}

// A counter counts, and waits for a count.
type counter struct {
	mu sync.Mutex
	// guards following
	n    int
	wake chan struct{} // closed at the next add; nil while nobody waits
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
}

// wait returns once the count has reached n, or after d.
func (c *counter) wait(n int, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		c.mu.Lock()
		if c.n >= n {
			c.mu.Unlock()
			return
		}
		if c.wake == nil {
			c.wake = make(chan struct{})
		}
		wake := c.wake
		c.mu.Unlock()
		select {
		case <-wake:
		case <-timer.C:
			return
		}
	}
}
