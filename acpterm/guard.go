package acpterm

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync"
)

// maxLine is the longest line that the SDK reads, with its end: it closes the
// connection at one that fills its 10 MiB buffer.
const maxLine = 10<<20 - 1

// A Guard stands between the client's output and the SDK. Make one with
// [GuardReader].
type Guard struct {
	r    *bufio.Reader
	open chan struct{} // closed by Open
	once sync.Once

	logger *slog.Logger
	line   []byte // the line that is being read, reused
	rest   []byte // what of it Read has not returned
	err    error  // what ended the input; given out after rest
}

// GuardReader returns a reader that hands out what r has, line by line, with two
// differences.
//
// A line that is longer than the SDK takes, which would end the connection and
// every command with it, is replaced: a reply becomes an error reply with the
// same id, so that only the request that asked for too much fails; anything else
// is dropped.
//
// Nothing is handed out before Open is called. The SDK starts to read as soon as
// a connection is made, and so may call the agent before the agent has stored
// its new connection:
//
//	in := acpterm.GuardReader(os.Stdin)
//	agent.conn = acp.NewAgentSideConnection(agent, os.Stdout, in)
//	in.Open()
func GuardReader(r io.Reader) *Guard {
	return &Guard{
		r:      bufio.NewReaderSize(r, 64<<10),
		open:   make(chan struct{}),
		logger: slog.New(slog.DiscardHandler),
	}
}

// SetLogger makes the Guard report what it replaces or drops. Call it before
// Open; without it nothing is reported.
func (g *Guard) SetLogger(l *slog.Logger) { g.logger = l }

// Open lets Read begin. It may be called more than once.
func (g *Guard) Open() { g.once.Do(func() { close(g.open) }) }

// Read implements [io.Reader]. It waits for Open.
func (g *Guard) Read(p []byte) (int, error) {
	<-g.open
	for len(g.rest) == 0 {
		if g.err != nil {
			return 0, g.err
		}
		g.next()
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// next makes rest the next line, or what stands for it.
func (g *Guard) next() {
	if cap(g.line) > 1<<20 {
		g.line = nil
	}
	g.line = g.line[:0]
	for {
		part, err := g.r.ReadSlice('\n')
		g.line = append(g.line, part...)
		if err == bufio.ErrBufferFull {
			if len(g.line) >= maxLine {
				g.tooLong()
				return
			}
			continue
		}
		g.err = err
		if len(g.line) > maxLine {
			g.tooLong()
			return
		}
		g.rest = g.line
		return
	}
}

// tooLong reads a line to its end, keeps no more of it, and sets rest to what
// stands for it.
func (g *Guard) tooLong() {
	var e envelope
	e.scan(g.line)
	size := len(g.line)
	for !bytes.HasSuffix(g.line, []byte{'\n'}) && g.err == nil {
		part, err := g.r.ReadSlice('\n')
		e.scan(part)
		size += len(part)
		g.line = append(g.line[:0], part...)
		if err != bufio.ErrBufferFull {
			g.err = err
		}
	}
	if e.method || len(e.id) == 0 || !e.reply {
		g.logger.Error("acpterm: a line that is too long was dropped", "bytes", size)
		return
	}
	g.logger.Error("acpterm: a reply that is too long was replaced by an error", "bytes", size, "id", string(e.id))
	g.rest = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"the reply has %d bytes, more than the connection carries"}}`+"\n", e.id, size)
}

// An envelope finds the members of a JSON-RPC message without keeping the
// message: the state of a scanner that takes it in pieces.
type envelope struct {
	depth  int
	quoted bool   // in a string
	escape bool   // behind a backslash in it
	key    []byte // the member of the outermost object that is being read
	inKey  bool
	inID   bool // in the value of "id"

	id     []byte // the value of "id"
	method bool   // there is a "method"
	reply  bool   // there is a "result" or an "error"
}

// maxID is far more than an id has.
const maxID = 1 << 10

// scan takes the next piece of the message.
func (e *envelope) scan(piece []byte) {
	for _, c := range piece {
		if e.inID && e.depth == 1 && c != ',' && c != '}' || e.inID && e.quoted {
			if c > ' ' || e.quoted {
				e.id = append(e.id, c)
			}
			if len(e.id) > maxID {
				e.id, e.inID = nil, false
			}
		}
		if e.quoted {
			switch {
			case e.escape:
				e.escape = false
			case c == '\\':
				e.escape = true
			case c == '"':
				e.quoted = false
				continue
			}
			if e.inKey && len(e.key) < len(`"jsonrpc"`) {
				e.key = append(e.key, c)
			}
			continue
		}
		switch c {
		case '"':
			e.quoted = true
		case '{', '[':
			e.depth++
			e.inKey = e.depth == 1
			e.key = e.key[:0]
		case '}', ']':
			e.depth--
			e.inID = false
		case ',':
			if e.depth == 1 {
				e.inKey, e.inID = true, false
				e.key = e.key[:0]
			}
		case ':':
			if e.depth == 1 && e.inKey {
				e.inKey = false
				e.member(string(e.key))
			}
		}
	}
}

// member notes that a member of the message begins.
func (e *envelope) member(name string) {
	switch name {
	case "id":
		e.inID, e.id = true, nil
	case "method":
		e.method = true
	case "result", "error":
		e.reply = true
	}
}
