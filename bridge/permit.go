package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge/internal/updates"
	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/jsonrpc"
)

// ErrDenied is wrapped by the error of a [Call.Permit] that the user refused.
var ErrDenied = errors.New("the user did not allow it")

// A permitter is a connection that can ask the user.
type permitter interface {
	RequestPermission(context.Context, acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error)
}

// The options that a user has. The ids mean nothing in the protocol, but some
// clients answer with these, whatever they were offered.
const (
	allowOnce   acp.PermissionOptionId = "allow"
	allowAlways acp.PermissionOptionId = "allow_always"
	rejectOnce  acp.PermissionOptionId = "reject"
)

// answerGrace is how long a question that nobody waits for any more stays open
// for the client to close it: "it MUST respond to all pending
// session/request_permission requests with this Cancelled outcome" (ACP v1,
// prompt turn, cancellation). Then the request is cancelled.
const answerGrace = time.Second

// closedGrace is how far a session/cancel may be behind the closing of the
// turn's questions.
const closedGrace = 100 * time.Millisecond

// Permit asks the user whether the command that the card shows may run, by
// session/request_permission, and returns nil if it may. The user sees the title and
// the rawInput of the card and decides by them, so both must show all that changes
// what runs: rawInput the command line, or the words and that no shell runs them,
// the shell, the directory, the environment, whether it runs in the background and
// takes input, its timeout, and where it runs; and the title what is unusual of
// that, before the command, whose end a client may cut off. Control and
// bidirectional characters in both are spelled out, and a cut is marked.
//
// The user can allow it once, allow it always, or reject it. Allowed always are, until the session
// closes, all Calls that ask with the same key, which are not asked again; "" is
// no key, and that option is not offered.
//
// A refusal is [ErrDenied]. Where nobody can be asked, since the connection or
// the client does not know the method, the error is [errors.ErrUnsupported], and
// it is the caller's to decide. When ctx, the turn or the Call ends first, the
// error is the Cause, and the question is closed before the turn is answered.
// After an error the final status of the Call is failed, and its card says why
// unless End does. Permit starts nothing and holds nothing back: the caller runs
// the command or does not.
func (c *Call) Permit(ctx context.Context, key string) (err error) {
	q, err := c.ask(ctx, key)
	if err != nil || q == nil {
		return err
	}
	defer func() { c.asked(q, err) }()
	if q.shown != nil {
		err = q.shown.Wait(q.ctx)
	}
	if err == nil {
		err = q.put(c, key)
	}
	return err
}

// A question is a Permit under way.
type question struct {
	face   acp.SessionUpdateToolCall // what it is about
	shown  *updates.Update           // the card that it is about; nil if it is shown already
	ctx    context.Context           // of the wait for the answer
	cancel context.CancelCauseFunc
}

// ask prepares the question, nil if it need not be asked. If there is one,
// asked must be called.
func (c *Call) ask(ctx context.Context, key string) (*question, error) {
	s := c.s
	local := s.b.routesLocally()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.usable(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, s.failure(ctx, nil)
	}
	if key != "" && s.allowed[key] {
		return nil, nil
	}
	q := &question{}
	var err error
	runs := slices.ContainsFunc(c.commands, (*command).live)
	if q.shown, q.face, err = c.card.ask(!runs, local); err != nil {
		c.failed = true
		return nil, err
	}
	q.ctx, q.cancel = context.WithCancelCause(ctx)
	c.questions = append(c.questions, q)
	c.enter()
	return q, nil
}

// request makes the request. It is no session/update, but what it says of the
// card is bounded as if it were, and hides nothing.
func (q *question) request(c *Call, always bool) (acp.RequestPermissionRequest, error) {
	u := &acp.SessionToolCallUpdate{
		ToolCallId: c.id, Status: &q.face.Status, Locations: q.face.Locations, RawInput: updates.VisibleRaw(q.face.RawInput),
	}
	if q.face.Title != "" {
		u.Title = &q.face.Title
	}
	if q.face.Kind != "" {
		u.Kind = &q.face.Kind
	}
	n, err := updates.Force(c.card.out.Notification(acp.SessionUpdate{ToolCallUpdate: u}))
	if err != nil {
		return acp.RequestPermissionRequest{}, err
	}
	u = n.Update.ToolCallUpdate
	options := []acp.PermissionOption{
		{OptionId: allowOnce, Kind: acp.PermissionOptionKindAllowOnce, Name: "Allow"},
		{OptionId: allowAlways, Kind: acp.PermissionOptionKindAllowAlways, Name: "Always allow this in this session"},
		{OptionId: rejectOnce, Kind: acp.PermissionOptionKindRejectOnce, Name: "Reject"},
	}
	if !always {
		options = slices.Delete(options, 1, 2)
	}
	return acp.RequestPermissionRequest{SessionId: c.s.id, Options: options, ToolCall: acp.ToolCallUpdate{
		ToolCallId: c.id, Status: u.Status, Title: u.Title, Kind: u.Kind, Locations: u.Locations, RawInput: u.RawInput,
	}}, nil
}

// put asks, and returns what the answer means.
func (q *question) put(c *Call, key string) error {
	s := c.s
	conn, ok := s.b.conn.(permitter)
	if !ok {
		return fmt.Errorf("bridge: the user cannot be asked: %w", errors.ErrUnsupported)
	}
	request, err := q.request(c, key != "")
	if err != nil {
		return err
	}
	// The request outlives the wait: the client may be about to close it itself.
	// A write to a client that does not read returns when the connection ends.
	ctx, cancel := context.WithCancel(context.WithoutCancel(q.ctx))
	defer cancel()
	var r acp.RequestPermissionResponse
	answered := make(chan struct{}) // closed when r and err are valid
	go func() {                     // it ends with the answer, or with the connection
		defer close(answered)
		if failure := caught.Call(func() { r, err = conn.RequestPermission(ctx, request) }); failure != nil {
			err = failure
		}
	}()
	select {
	case <-answered:
	case <-s.b.lost:
	case <-q.ctx.Done():
		timer := time.NewTimer(answerGrace)
		defer timer.Stop()
		select {
		case <-answered:
		case <-s.b.lost:
		case <-timer.C:
		}
	}
	if q.ctx.Err() != nil || s.b.gone() {
		return s.failure(q.ctx, nil)
	}
	switch {
	case err != nil:
		if refusal, ok := errors.AsType[*acp.RequestError](err); ok && refusal.Code == jsonrpc.MethodNotFound {
			return fmt.Errorf("bridge: the user cannot be asked: %w: %w", errors.ErrUnsupported, err)
		}
		return fmt.Errorf("bridge: the user was not asked: %w", err)
	case r.Outcome.Cancelled != nil && r.Outcome.Cancelled.Outcome == outcomeCancelled:
		// The session/cancel that this goes with may come a moment later.
		_ = await.Sleep(q.ctx, closedGrace)
		return s.failure(q.ctx, fmt.Errorf("bridge: the client closed the question: %w", context.Canceled))
	case r.Outcome.Selected == nil:
		return fmt.Errorf("bridge: %w: no outcome of a question", acpterm.ErrBadReply)
	}
	id := r.Outcome.Selected.OptionId
	// Some clients answer with the kind of an option. There is one of each.
	i := slices.IndexFunc(request.Options, func(o acp.PermissionOption) bool {
		return o.OptionId == id || string(o.Kind) == string(id)
	})
	if i < 0 {
		return fmt.Errorf("bridge: %w: option %q, which there was not", acpterm.ErrBadReply, id)
	}
	switch request.Options[i].OptionId {
	case allowAlways:
		s.allow(key)
	case rejectOnce:
		return fmt.Errorf("bridge: %w", ErrDenied)
	}
	return nil
}

// outcomeCancelled is the outcome of a question that the client has closed. The SDK
// takes every outcome that it does not know for one of these.
const outcomeCancelled = "cancelled"

// allow notes that the user has allowed always what asks with key.
func (s *State) allow(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed[key] = true
}

// asked ends what ask has begun.
func (c *Call) asked(q *question, err error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	q.cancel(nil)
	c.questions = slices.DeleteFunc(c.questions, func(o *question) bool { return o == q })
	if err != nil && !c.ending {
		c.failed = true
		c.denied = err
	}
	c.exit()
}

// cancelPermits ends the wait for every answer. Called with mu held.
func (c *Call) cancelPermits(cause error) {
	for _, q := range c.questions {
		q.cancel(cause)
	}
}
