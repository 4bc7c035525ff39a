package acphost

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"
)

// orderWait bounds how long a release waits for the updates that came before
// it. It is reached only if one of them never gets to SessionUpdate, because
// the SDK could not decode it.
const orderWait = time.Second

// Reader returns r, which is what the connection reads from the agent, with a
// guarantee that the SDK does not give: a terminal/release is handled after the
// updates that were sent before it. The SDK handles notifications one after
// the other and requests at once, so that a release can overtake the very
// update that embeds the terminal, which is then an error. A Host has one
// Reader.
//
//	acp.NewClientSideConnection(client, stdin, host.Reader(stdout))
func (h *Host) Reader(r io.Reader) io.Reader {
	return &orderedReader{in: bufio.NewReader(r), handled: &h.handled}
}

// orderedReader hands out lines one by one, and a terminal/release only once
// the updates before it were handled.
type orderedReader struct {
	in      *bufio.Reader
	handled *counter
	passed  int    // updates that were handed out
	rest    []byte // of the line that is being handed out
	err     error  // after it
}

func (r *orderedReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.rest, r.err = r.line()
		var line struct {
			Method string `json:"method"`
		}
		json.Unmarshal(r.rest, &line) // what is no JSON is for the SDK to report
		switch line.Method {
		case acp.ClientMethodSessionUpdate:
			r.passed++
		case acp.ClientMethodTerminalRelease:
			r.passed = r.handled.wait(r.passed, orderWait)
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	if n == 0 && len(p) > 0 {
		return 0, r.err
	}
	return n, nil
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

// wait returns the count once it has reached n, or after d.
func (c *counter) wait(n int, d time.Duration) int {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		c.mu.Lock()
		now := c.n
		if now >= n {
			c.mu.Unlock()
			return now
		}
		if c.wake == nil {
			c.wake = make(chan struct{})
		}
		wake := c.wake
		c.mu.Unlock()
		select {
		case <-wake:
		case <-timer.C:
			return now
		}
	}
}
