package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/terminal"
)

// How long [Call] waits for an answer: for one that needs no process, for one that
// does (a kill has its grace), and behind the time of a wait.
const (
	callTimeout   = 3 * time.Second
	actTimeout    = 15 * time.Second
	waitAllowance = 5 * time.Second
)

// bound is how long an answer may take.
func (r Request) bound() time.Duration {
	switch r.Verb {
	case VerbWait:
		return r.waitTimeout() + waitAllowance
	case VerbList, VerbRename, VerbGroup, VerbAttach:
		return callTimeout
	}
	return actTimeout
}

// waitTimeout is what Timeout means: always positive.
func (r Request) waitTimeout() time.Duration {
	const longest = 365 * 24 * time.Hour
	switch {
	case r.Timeout <= 0:
		return DefaultWaitTimeout
	case r.Timeout > int(longest/time.Second):
		return longest
	}
	return time.Duration(r.Timeout) * time.Second
}

// Call sends one request to the server at path and returns its answer, in which OK
// and Error say what came of it. The error is that there was none: nobody serves
// path, ctx has ended (its Cause), or it took longer than 3 s, 15 s for what starts,
// ends or types, and for a wait its own timeout and 5 s.
func Call(ctx context.Context, path string, req Request) (Response, error) {
	var r Response
	if req.Verb == VerbAttach {
		return r, fmt.Errorf("control: %w: Attach attaches, Call does not", ErrBad)
	}
	l, err := dial(ctx, path)
	if err != nil {
		return r, err
	}
	defer l.Close()
	r, err = l.ask(ctx, req)
	if err != nil {
		return r, fmt.Errorf("control: %s: %w", req.Verb, err)
	}
	return r, nil
}

// IsLive reports whether a server answers at path.
func IsLive(path string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	l, err := dial(ctx, path)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// queuePause is between attempts to connect to a server whose queue is full.
const queuePause = 5 * time.Millisecond

func dial(ctx context.Context, path string) (*lines, error) {
	if err := checkLength(path); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	for errors.Is(err, syscall.EAGAIN) && ctx.Err() == nil { // more connect than the server can queue
		_ = await.Sleep(ctx, queuePause)
		conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
	}
	switch {
	case err == nil:
		return newLines(conn.(*net.UnixConn), MaxResponse), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("control: connect to %s: %w", path, context.Cause(ctx))
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("control: nothing serves %s: there is no such socket: %w", path, fs.ErrNotExist)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("control: nothing serves %s any more: %w", path, syscall.ECONNREFUSED)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return nil, fmt.Errorf("control: connect to %s: %w", path, err)
}

// ask sends a request and reads its answer.
func (l *lines) ask(ctx context.Context, req Request) (r Response, err error) {
	within := req.bound()
	ctx, cancel := context.WithTimeoutCause(ctx, within, errNoAnswer{within})
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.SetDeadline(past) })
	defer stop()
	data, err := json.Marshal(req)
	if err != nil {
		return r, err
	}
	if len(data) > MaxRequest {
		return r, fmt.Errorf("%w: a request of %d bytes, of at most %d", ErrTooLarge, len(data), MaxRequest)
	}
	// A server that refuses answers before it has read: its answer counts.
	_, writeErr := l.Write(append(data, '\n'))
	line, err := l.next()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return r, cmp.Or(writeErr, errors.New("the server closed the connection without an answer"))
	default:
		return r, err
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("the answer is not of this protocol: %w", err)
	}
	return r, nil
}

// errNoAnswer is why a call was over.
type errNoAnswer struct{ within time.Duration }

func (e errNoAnswer) Error() string { return fmt.Sprintf("no answer within %v", e.within) }
func (errNoAnswer) Unwrap() error   { return context.DeadlineExceeded }

// A Conn is the viewer's end of an attached session; see [Attach]. Recv is for one
// goroutine, the other methods for any.
type Conn struct {
	// Session is the session as it was when the view began, and ReadOnly why nothing
	// can be typed into it, or "".
	Session  SessionInfo
	ReadOnly string

	l  *lines
	mu sync.Mutex // one line is written at a time
}

// Attach begins to follow the session that req names: ID, Write, Rows and Cols
// count. The error is an [*Error] if the server refuses; ctx bounds only the start.
//
//	conn, err := control.Attach(ctx, path, control.Request{ID: "web", Write: true, Rows: 40, Cols: 120})
//	for {
//		frame, err := conn.Recv()
//		if err != nil {
//			return err
//		}
//		os.Stdout.Write(frame.Data)
//		if frame.End != nil {
//			return nil
//		}
//	}
//
// A viewer that does not read holds up nobody: what it misses is left out, and when
// it reads again the whole screen is drawn (Frame.Repaint).
func Attach(ctx context.Context, path string, req Request) (*Conn, error) {
	l, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	req.Verb = VerbAttach
	r, err := l.ask(ctx, req)
	if err == nil {
		err = r.Err()
	}
	if err == nil && len(r.Sessions) == 0 {
		err = errors.New("the answer names no session")
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("control: attach: %w", err)
	}
	return &Conn{Session: r.Sessions[0], ReadOnly: r.ReadOnly, l: l}, nil
}

// Recv waits for the next frame. Behind the one that has End, and when the server is
// gone, the error is [io.EOF].
func (c *Conn) Recv() (Frame, error) {
	var f Frame
	line, err := c.l.next()
	switch {
	case errors.Is(err, net.ErrClosed):
		return f, net.ErrClosed
	case errors.Is(err, syscall.ECONNRESET):
		return f, io.EOF
	case err != nil:
		return f, err
	}
	if err := json.Unmarshal(line, &f); err != nil {
		return f, fmt.Errorf("control: a frame: %w", err)
	}
	return f, nil
}

// Write types p, as it is. What is refused is told by a Frame with an Error.
func (c *Conn) Write(p []byte) (int, error) {
	const most = 64 << 10 // base64 and JSON stay below MaxRequest
	n := 0
	for len(p) > 0 {
		part := p[:min(len(p), most)]
		if err := c.put(Frame{Input: part}); err != nil {
			return n, err
		}
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}

// Resize sets the size of the session's terminal.
func (c *Conn) Resize(size terminal.Size) error {
	return c.put(Frame{Resize: &Size{size.Rows, size.Cols}})
}

func (c *Conn) put(f Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if _, err := c.l.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	return nil
}

// Close ends the view, also a Recv that waits. The session goes on.
func (c *Conn) Close() error { return c.l.Close() }
