// Package wirelog writes what goes over a connection into a file that people read and
// programs play back: a txtar archive with a file for each line. It is redacted: the
// values of variables that look like secrets, and what looks like one in any text.
//
//	l := wirelog.New(file, "acp-demo-agent v1.2.3")
//	serve(l.Reader(os.Stdin), l.Writer(os.Stdout))
//	err := l.Err()
//
// A Log belongs to one connection, ends with it and closes nothing. Its Reader and its
// Writer may be used at the same time, each by one goroutine.
package wirelog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/termbridge/termbridge/internal/secrets"
)

// The sides of a connection.
const (
	Client = "client"
	Agent  = "agent"
)

// MaxLine is how many bytes of a line are written; of a longer one its head.
const MaxLine = 12 << 20

// A Log writes lines as they come. What cannot be written is left out: a connection
// does not end since a disk is full.
type Log struct {
	start time.Time

	mu sync.Mutex
	// guards following
	w   io.Writer
	err error
}

// New returns a Log that writes to w, which begins with a line about the program.
func New(w io.Writer, about string) *Log {
	l := &Log{start: time.Now(), w: w}
	l.write(fmt.Sprintf("%s\n%s\nSecrets are redacted, output of commands is not: read it before you send it.\n\n",
		about, l.start.UTC().Format(time.RFC3339)))
	return l
}

// Err returns why the log is not complete, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Log) write(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		_, l.err = io.WriteString(l.w, s)
	}
}

// line writes a line of one side.
func (l *Log) line(from string, line []byte) {
	at := time.Since(l.start)
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return
	}
	text, ok := redacted(line)
	if !ok { // no JSON: as a Go string, which holds no line that looks like a file
		from, text = from+" garbage", fmt.Sprintf("%q", secrets.Redact(string(line)))
	}
	l.write(fmt.Sprintf("-- %.3fs %s --\n%s\n", at.Seconds(), from, text))
}

// Reader returns in, whose lines are the client's.
func (l *Log) Reader(in io.Reader) io.Reader { return &reader{in, lines{l: l, from: Client}} }

// Writer returns out, whose lines are the agent's.
func (l *Log) Writer(out io.Writer) io.Writer { return &writer{out, lines{l: l, from: Agent}} }

// lines cuts a stream into lines.
type lines struct {
	l    *Log
	from string
	rest []byte
}

func (s *lines) add(p []byte) {
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		s.rest = append(s.rest, line[:min(len(line), MaxLine-len(s.rest))]...)
		if whole {
			s.l.line(s.from, s.rest)
			s.rest = s.rest[:0]
		}
		p = rest
	}
}

type reader struct {
	in io.Reader
	lines
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	r.add(p[:n])
	return n, err
}

type writer struct {
	out io.Writer
	lines
}

func (w *writer) Write(p []byte) (int, error) {
	w.add(p)
	return w.out.Write(p)
}

// SyscallConn implements [syscall.Conn] for an output with a descriptor.
func (w *writer) SyscallConn() (syscall.RawConn, error) {
	if conn, ok := w.out.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// redacted returns a line of JSON without secrets; false if it is none.
func redacted(line []byte) (string, bool) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.InputOffset() != int64(len(line)) {
		return "", false
	}
	changed := false
	v = redact("", v, &changed)
	if !changed {
		return string(line), true
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", false
	}
	return strings.TrimSpace(b.String()), true
}

// redact returns a value without secrets; name is that of its member.
func redact(name string, v any, changed *bool) any {
	switch v := v.(type) {
	case string:
		s := secrets.Redact(v)
		if name != "" && secrets.Looks(name, v) {
			s = secrets.Mark
		}
		*changed = *changed || s != v
		return s
	case []any:
		for i := range v {
			v[i] = redact(name, v[i], changed)
		}
	case map[string]any:
		variable, _ := v["name"].(string) // of an environment
		for member := range v {
			if member == "value" && variable != "" {
				v[member] = redact(variable, v[member], changed)
			} else {
				v[member] = redact(member, v[member], changed)
			}
		}
	}
	return v
}

// An Entry is one line of a log.
type Entry struct {
	At   time.Duration // since the beginning
	From string        // Client or Agent
	Line string        // JSON, but for garbage
}

// Parse reads what a Log has written.
func Parse(data []byte) (about string, entries []Entry, err error) {
	archive := txtar.Parse(data)
	for _, f := range archive.Files {
		at, from, _ := strings.Cut(f.Name, " ")
		from, _, garbage := strings.Cut(from, " ")
		e := Entry{From: from, Line: strings.TrimSpace(string(f.Data))}
		if e.At, err = time.ParseDuration(at); err != nil || from != Client && from != Agent {
			return "", nil, fmt.Errorf("wirelog: %q is no line of a connection", f.Name)
		}
		if garbage {
			if _, err := fmt.Sscanf(e.Line, "%q", &e.Line); err != nil {
				return "", nil, fmt.Errorf("wirelog: %s: %w", f.Name, err)
			}
		}
		entries = append(entries, e)
	}
	if entries == nil {
		return "", nil, errors.New("wirelog: no line of a connection is in it")
	}
	return strings.TrimSpace(string(archive.Comment)), entries, nil
}
