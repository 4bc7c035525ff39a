package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// past is a deadline that ends a blocked read or write.
var past = time.Unix(1, 0)

// A lines is a connection that carries JSON objects in lines.
type lines struct {
	*net.UnixConn
	r   *bufio.Reader
	max int // bytes of a line that is read
}

func newLines(conn *net.UnixConn, most int) *lines {
	return &lines{UnixConn: conn, r: bufio.NewReader(conn), max: most}
}

// next returns the next line that is not empty, without its end. One that is longer
// than max is read to its end, and the error wraps [ErrTooLarge]. A last line
// without an end counts.
func (l *lines) next() ([]byte, error) {
	for {
		line, err := l.line()
		if line = bytes.TrimSpace(line); len(line) > 0 || err != nil {
			return line, err
		}
	}
}

func (l *lines) line() ([]byte, error) {
	var line []byte
	for n := 0; ; {
		part, err := l.r.ReadSlice('\n')
		if n += len(part); n <= l.max+1 { // the end of the line does not count
			line = append(line, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
		case errors.Is(err, io.EOF) && n > 0, err == nil:
			if n > l.max+1 || n == l.max+1 && line[l.max] != '\n' {
				return nil, fmt.Errorf("%w: a line of %d bytes, of at most %d", ErrTooLarge, n, l.max)
			}
			return line, nil
		default:
			return nil, err
		}
	}
}

// put writes v in a line, within the given time.
func (l *lines) put(v any, within time.Duration) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return l.write(data, within)
}

func (l *lines) write(data []byte, within time.Duration) error {
	l.SetWriteDeadline(time.Now().Add(within))
	defer l.SetWriteDeadline(time.Time{}) // or hungUp could not tell
	_, err := l.Write(append(data, '\n'))
	return err
}

// hungUp reports whether nobody is at the other end any more. A peer that has only
// ended its own side still reads, and has not hung up: an empty write tells the two
// apart.
func (l *lines) hungUp() bool {
	_, err := l.Write(nil)
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}
