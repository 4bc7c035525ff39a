package launcher

import (
	"bytes"
	"io"
)

// A record is a line of the wrapper's in the output of a command.
type record struct {
	kind byte   // 'H', 'P', 'E' or 'X'
	body string // without the ';' that ends it
}

// maxRecord bounds what a record may have: a longer one is output.
const maxRecord = 4 << 10

// A splitter separates the records of the wrapper from the output of its
// command. What comes before the first record is noise of login files and of
// the launcher.
type splitter struct {
	nonce   []byte
	output  io.Writer    // gets the output
	record  func(record) // is called with each record
	started bool         // a record was seen
	noise   tailText
	held    []byte // the start of what may be a record
}

// Write takes the next bytes of the stream. It always takes all of them.
func (s *splitter) Write(p []byte) (int, error) {
	n := len(p)
	if len(s.held) > 0 {
		p = append(s.held, p...)
		s.held = nil
	}
	for len(p) > 0 {
		i := bytes.Index(p, s.nonce)
		if i < 0 {
			i = len(p) - overlap(p, s.nonce)
			s.emit(p[:i])
			s.held = bytes.Clone(p[i:])
			return n, nil
		}
		s.emit(p[:i])
		p = p[i:]
		end := bytes.IndexByte(p, '\n')
		switch {
		case end < 0 && len(p) < maxRecord:
			s.held = bytes.Clone(p)
			return n, nil
		case end < 0, end > maxRecord:
			s.emit(p[:len(s.nonce)]) // the command has found the nonce: it is its output
			p = p[len(s.nonce):]
			continue
		}
		s.take(p[len(s.nonce):end])
		p = p[end+1:]
	}
	return n, nil
}

// flush ends the stream: what is held was no record.
func (s *splitter) flush() {
	s.emit(s.held)
	s.held = nil
}

func (s *splitter) emit(p []byte) {
	switch {
	case len(p) == 0:
	case s.started:
		_, _ = s.output.Write(p)
	default:
		_, _ = s.noise.Write(p)
	}
}

// take reads " KIND BODY;".
func (s *splitter) take(line []byte) {
	line = bytes.TrimRight(line, "\r")
	body, ok := bytes.CutSuffix(line, []byte{';'})
	if !ok || len(body) < 3 || body[0] != ' ' || body[2] != ' ' {
		return
	}
	s.started = s.started || body[1] != 'H' // what follows an H is noise, too
	s.record(record{body[1], string(body[3:])})
}

// overlap returns how many of p's last bytes are the start of nonce.
func overlap(p, nonce []byte) int {
	for n := min(len(p), len(nonce)-1); n > 0; n-- {
		if bytes.HasPrefix(nonce, p[len(p)-n:]) {
			return n
		}
	}
	return 0
}

// A tailText keeps the end of what is written to it.
type tailText struct{ b []byte }

const maxTailText = 4 << 10

func (t *tailText) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - maxTailText; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tailText) String() string { return string(bytes.ToValidUTF8(t.b, []byte("?"))) }
