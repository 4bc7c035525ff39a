package acpterm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/jsonrpc"
	"github.com/termbridge/termbridge/terminal"
)

// A peer is one session at the other end of a connection.
type peer struct {
	conn    Conn
	session acp.SessionId
	gone    <-chan struct{} // closed when the connection has ended; nil if that is never known
	client  *Client         // what is known of it
}

func newPeer(conn Conn, session acp.SessionId, client *Client) peer {
	p := peer{conn: conn, session: session, client: client}
	if c, ok := conn.(interface{ Done() <-chan struct{} }); ok {
		p.gone = c.Done()
	}
	return p
}

func (p peer) lost() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// A reply is what a request came to.
type reply[T any] struct {
	value T
	err   error
}

// call makes a request about a terminal of the client in a goroutine of the
// connection's own: a write to a peer that stopped reading ignores every context.
// What comes of it can be received once.
func call[Q, R any](p peer, r *release, method func(context.Context, Q) (R, error), request Q) chan reply[R] {
	ch := make(chan reply[R], 1)
	callTo(ch, p, r, method, request)
	return ch
}

// callTo is call for a channel that has room for the reply. When its goroutine
// runs the terminal may have been dropped, or the connection have ended: then
// nothing is sent.
func callTo[Q, R any](ch chan<- reply[R], p peer, r *release, method func(context.Context, Q) (R, error), request Q) {
	r.calls.Go(func() {
		var answer reply[R]
		switch {
		case p.lost():
			answer.err = terminal.ErrConnectionLost
		case r.ctx.Err() != nil:
			answer.err = context.Cause(r.ctx)
		default:
			answer.value, answer.err = method(r.ctx, request)
		}
		ch <- answer
	})
}

// errNoAnswer is the reason when the client did not answer within the bound.
var errNoAnswer = errors.New("the client does not answer")

// receive returns what comes of a call within limit.
func receive[R any](p peer, ch chan reply[R], limit time.Duration) reply[R] {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	err := errNoAnswer
	select {
	case r := <-ch:
		return r
	case <-p.gone:
		err = terminal.ErrConnectionLost
	case <-timer.C:
	}
	select {
	case r := <-ch: // it counts, also if the time was up just then
		return r
	default:
		return reply[R]{err: err}
	}
}

// failure translates the error of a request. The end of the connection comes
// first, since SDK 0.13 then cancels the contexts of its handlers too; then the
// caller's own ctx, which the SDK hides in an error of its own; then what the
// client said.
func (p peer) failure(ctx context.Context, method string, err error) error {
	var refusal *acp.RequestError
	switch {
	case err == nil:
		return nil
	case p.lost():
		return fmt.Errorf("acpterm: %s: %w", method, terminal.ErrConnectionLost)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &refusal):
		return &refused{method, refusal}
	}
	return fmt.Errorf("acpterm: %s: %w", method, err)
}

// refused is a request that the client answered with an error.
type refused struct {
	method string
	err    *acp.RequestError
}

// Error returns the client's words.
func (e *refused) Error() string {
	says := []string{e.err.Message}
	switch data := e.err.Data.(type) {
	case string:
		says = append(says, data)
	case map[string]any:
		for _, key := range []string{"details", "error", "message"} {
			if text, ok := data[key].(string); ok {
				says = append(says, text)
				break
			}
		}
	}
	return fmt.Sprintf("acpterm: %s: the client says: %s (code %d)", e.method, strings.Join(says, ": "), e.err.Code)
}

// Unwrap makes errors.As find the *acp.RequestError, and errors.Is
// [errors.ErrUnsupported] if the client has not got the method.
func (e *refused) Unwrap() []error {
	if e.err.Code == jsonrpc.MethodNotFound {
		return []error{e.err, errors.ErrUnsupported}
	}
	return []error{e.err}
}
