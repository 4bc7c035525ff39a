package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/logqueue"
	"github.com/termbridge/termbridge/terminal"
)

// ServerOptions configure a [Server]. The zero value is sensible.
type ServerOptions struct {
	// Logger gets, at Info, which process of which user asked for what; nil discards
	// it. What is typed is never logged.
	Logger *slog.Logger
}

// A Server answers the requests that come to its socket. Make it with [Listen].
type Server struct {
	h      Handler
	log    *slog.Logger
	end    *endpoint
	path   string
	cancel context.CancelCauseFunc // ends every request
	close  func() error            // the one Close
	wg     sync.WaitGroup          // the goroutine that accepts, and one for each connection

	mu sync.Mutex
	// guards following
	conns  map[*lines]struct{}
	closed bool
}

// Bounds of a connection.
const (
	maxConns     = 1024
	idleTimeout  = 10 * time.Minute // a connection without a request, or in the middle of one
	writeTimeout = 30 * time.Second // of an answer that is not read
	viewTimeout  = 10 * time.Minute // of a viewer that reads nothing
	lastWords    = time.Second      // for answers when the server closes
	hangupPoll   = 100 * time.Millisecond
)

// Listen serves h at a Unix socket. Its directory is made for this user alone if it
// is missing; one that belongs to another user, or in which others may write, is
// refused. Where a server lives the error wraps [ErrAlive]; what a dead one has left
// is replaced. A path that will not do is an [ErrPath]. Options may be nil.
//
// A file PATH.lock beside the socket says that the server lives; Close removes both.
func Listen(path string, h Handler, options *ServerOptions) (*Server, error) {
	end, err := open(path)
	if err != nil {
		return nil, err
	}
	s := &Server{h: h, end: end, path: path, conns: make(map[*lines]struct{})}
	if options != nil {
		s.log = options.Logger
	}
	s.log = logqueue.New(s.log)
	s.close = sync.OnceValue(s.shut)
	ctx, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	s.wg.Go(func() { s.accept(ctx) })
	s.log.Info("control: listening", "path", path)
	return s, nil
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// Close ends every request and every view, and removes the socket. The sessions go
// on. Later calls return the result of the first.
func (s *Server) Close() error { return s.close() }

func (s *Server) shut() error {
	s.cancel(fmt.Errorf("control: %w", terminal.ErrClosed))
	err := s.end.close()
	for _, l := range s.refuse() {
		l.SetReadDeadline(past)
		defer time.AfterFunc(lastWords, func() { l.Close() }).Stop()
	}
	s.wg.Wait()
	logqueue.Flush(s.log)
	return err
}

// refuse admits no more connections, and returns those that there are.
func (s *Server) refuse() []*lines {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return slices.Collect(maps.Keys(s.conns))
}

// accept takes connections until the listener closes.
func (s *Server) accept(ctx context.Context) {
	for {
		conn, err := s.end.AcceptUnix()
		switch {
		case err == nil:
			s.admit(ctx, newLines(conn, MaxRequest))
		case errors.Is(err, net.ErrClosed):
			return
		default: // there are no descriptors left: later there may be
			s.log.Warn("control: accept", "err", err)
			select {
			case <-time.After(hangupPoll):
			case <-ctx.Done():
				return
			}
		}
	}
}

// admit begins to serve a connection.
func (s *Server) admit(ctx context.Context, l *lines) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		l.Close()
	case len(s.conns) >= maxConns:
		_ = l.refuse(fmt.Errorf("%d clients are connected already", maxConns)) // its buffer is empty: this does not wait
		l.Close()
	default:
		s.conns[l] = struct{}{}
		s.wg.Go(func() {
			defer s.remove(l)
			s.serve(ctx, l)
		})
	}
}

func (s *Server) remove(l *lines) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, l)
	l.Close()
}

// refuse answers with an error.
func (l *lines) refuse(err error) error {
	return l.put(Response{Error: err.Error(), Code: codeOf(err)}, writeTimeout)
}

// serve answers the requests of one connection.
func (s *Server) serve(ctx context.Context, l *lines) {
	p, err := peerOf(l.UnixConn)
	if err == nil && p.uid != os.Geteuid() && p.uid != 0 {
		err = fmt.Errorf("%w: the socket answers uid %d, you are %d", ErrDenied, os.Geteuid(), p.uid)
	}
	log := s.log.With("uid", p.uid, "pid", p.pid)
	if err != nil {
		log.Warn("control: a connection was refused", "err", err)
		_ = l.refuse(err)
		return
	}
	for {
		l.SetReadDeadline(time.Now().Add(idleTimeout))
		if ctx.Err() != nil { // else Close comes later, and sets a deadline of its own
			return
		}
		line, err := l.next()
		var req Request
		switch {
		case errors.Is(err, ErrTooLarge):
		case err != nil:
			return
		default:
			if err = json.Unmarshal(line, &req); err != nil {
				err = fmt.Errorf("%w: it is no JSON object of this protocol: %w", ErrBad, err)
			}
		}
		if err != nil {
			log.Info("control: a bad request", "err", err)
			err = l.refuse(err)
		} else if req.Verb == VerbAttach {
			if err = s.attach(ctx, l, log, req); err == nil {
				return
			}
			err = l.refuse(err)
		} else {
			err = s.answer(ctx, l, log, req)
		}
		if err != nil {
			return
		}
	}
}

// answer answers one request.
func (s *Server) answer(ctx context.Context, l *lines, log *slog.Logger, req Request) error {
	begin := time.Now()
	working, done := l.watch(ctx)
	r, err := s.handle(working, req)
	done()
	if r.OK = err == nil; err != nil {
		r.Error, r.Code = err.Error(), codeOf(err)
	}
	log.Info("control: request", append(req.audit(), "ok", r.OK, "err", r.Error, "took", time.Since(begin))...)
	data, err := json.Marshal(r)
	if err == nil && len(data) > MaxResponse {
		err = fmt.Errorf("%w: an answer of %d bytes, of at most %d: ask for less, by tail or by group", ErrTooLarge, len(data), MaxResponse)
	}
	if err != nil {
		return l.refuse(err)
	}
	return l.write(data, writeTimeout)
}

// audit returns what the log says of a request: not what is typed.
func (r Request) audit() []any {
	attrs := []any{"verb", r.Verb}
	for _, a := range []struct{ name, value string }{
		{"id", r.ID}, {"name", r.Name}, {"group", r.Group}, {"cwd", r.Cwd}, {"command", r.Command}, {"state", r.State},
	} {
		if a.value != "" {
			attrs = append(attrs, a.name, a.value)
		}
	}
	if r.Text != "" {
		attrs = append(attrs, "bytes", len(r.Text))
	}
	if r.Write {
		attrs = append(attrs, "write", true)
	}
	return attrs
}

// errHungUp is why the ctx of a request ends when nobody waits for its answer.
var errHungUp = errors.New("control: the caller hung up")

// watch returns a ctx that ends when the peer hangs up, and what ends the watch.
func (l *lines) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(hangupPoll)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if l.hungUp() {
					cancel(errHungUp)
					return
				}
			}
		}
	})
	return ctx, func() { cancel(nil); watching.Wait() }
}

// handle has the Handler do what is asked. What it panics with is an error of the
// one request.
func (s *Server) handle(ctx context.Context, req Request) (r Response, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("control: a request panicked", "verb", req.Verb, "panic", v, "stack", string(debug.Stack()))
			r, err = Response{}, fmt.Errorf("the request panicked: %v", v)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, req.bound())
	defer cancel()
	one := func(info SessionInfo, err error) (Response, error) {
		if err != nil {
			return Response{}, err
		}
		return Response{Sessions: []SessionInfo{info}}, nil
	}
	switch req.Verb {
	case VerbList:
		r.Sessions, err = s.h.List(ctx, req.Group)
	case VerbRead:
		r.Output, err = s.h.Read(ctx, req.ID, req.Tail)
	case VerbNew:
		r.ID, err = s.h.New(ctx, NewSpec{Name: req.Name, Cwd: req.Cwd, Command: req.Command, Group: req.Group})
	case VerbSend:
		err = s.h.Send(ctx, req.ID, req.Text)
	case VerbKill:
		err = s.h.Kill(ctx, req.ID)
	case VerbRename:
		err = s.h.Rename(ctx, req.ID, req.Name)
	case VerbGroup:
		err = s.h.SetGroup(ctx, req.ID, req.Group)
	case VerbGroupSend:
		r.Count, err = s.h.GroupSend(ctx, req.Group, req.Text)
	case VerbGroupKill:
		r.Count, err = s.h.GroupKill(ctx, req.Group)
	case VerbWait:
		return one(s.h.Wait(ctx, req.ID, req.Group, req.State, req.waitTimeout()))
	default:
		err = fmt.Errorf("%w: unknown verb %q", ErrBad, req.Verb)
	}
	return r, err
}

// attach serves a view, to the end of the connection. The error is why there is none.
func (s *Server) attach(ctx context.Context, l *lines, log *slog.Logger, req Request) error {
	a, err := s.begin(ctx, req)
	if err != nil {
		log.Info("control: request", append(req.audit(), "ok", false, "err", err)...)
		return err
	}
	defer a.Close()
	begin := time.Now()
	log.Info("control: request", append(req.audit(), "ok", true)...)
	defer func() { log.Info("control: a view ends", "id", a.Session().ID, "took", time.Since(begin)) }()
	r := Response{OK: true, Sessions: []SessionInfo{a.Session()}, ReadOnly: a.ReadOnly()}
	if l.put(r, writeTimeout) != nil {
		return nil
	}
	l.SetReadDeadline(time.Time{})
	if ctx.Err() != nil {
		return nil
	}

	var writing sync.Mutex
	put := func(f Frame) error {
		writing.Lock()
		defer writing.Unlock()
		return l.put(f, viewTimeout)
	}
	var typing sync.WaitGroup
	defer typing.Wait()
	ctx, done := l.watch(ctx)
	defer done()
	defer l.SetReadDeadline(past)
	typing.Go(func() { l.typed(ctx, a, put) })
	for {
		f, err := a.Next(ctx)
		if err != nil {
			f = Frame{Error: err.Error()}
		}
		if put(f) != nil || err != nil || f.End != nil {
			return nil
		}
	}
}

func (s *Server) begin(ctx context.Context, req Request) (Attachment, error) {
	h, ok := s.h.(Attacher)
	if !ok {
		return nil, fmt.Errorf("attach: %w", errors.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(ctx, req.bound())
	defer cancel()
	return h.Attach(ctx, req.ID, AttachSpec{Write: req.Write, Rows: req.Rows, Cols: req.Cols})
}

// typed passes on what a viewer types.
func (l *lines) typed(ctx context.Context, a Attachment, put func(Frame) error) {
	for {
		line, err := l.next()
		if errors.Is(err, io.EOF) || err != nil && !errors.Is(err, ErrTooLarge) {
			return
		}
		var f Frame
		if err == nil {
			err = json.Unmarshal(line, &f)
		}
		if err == nil && f.Resize != nil {
			err = a.Resize(terminal.Size{Rows: f.Resize.Rows, Cols: f.Resize.Cols})
		}
		if err == nil && len(f.Input) > 0 {
			err = a.Write(ctx, string(f.Input))
		}
		if err != nil && (ctx.Err() != nil || put(Frame{Error: err.Error()}) != nil) {
			return
		}
	}
}
