package acpwire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/caught"
	"github.com/termbridge/termbridge/internal/limits"
)

// Prompts and their cancels are not left to SDK 0.13, whose bookkeeping is wrong: a
// cancel hits the prompt that is handled then, whatever the
// client had sent before it, and of overlapping prompts every second one. What
// follows can go with an SDK that keeps the order of the wire, as 0.14 does.

// A session is what is known of the prompts of a session.
type session struct {
	open    []*prompt       // not answered, in the order in which they came
	cancels <-chan struct{} // closed when each Cancel so far has returned; nil if none is under way
	again   bool            // a Cancel is about to be called for all that has come
}

// A prompt is a session/prompt that is not answered.
type prompt struct {
	key    string // of its id
	cancel context.CancelCauseFunc
}

// The causes of the end of a prompt's context.
var (
	errCancelled  = fmt.Errorf("the client cancelled the prompt: %w", context.Canceled)
	errSuperseded = fmt.Errorf("the client sent a newer prompt: %w", context.Canceled)
)

// session returns what is known of a session. Called with mu held.
func (g *guard) session(id string) *session {
	s := g.sessions[id]
	if s == nil {
		s = new(session)
		g.sessions[id] = s
	}
	return s
}

// tidy forgets a session with nothing open. Called with mu held.
func (g *guard) tidy(id string) {
	if s := g.sessions[id]; s != nil && len(s.open) == 0 && s.cancels == nil {
		delete(g.sessions, id)
	}
}

// sessionOf returns the session that the params of a message name; "" stands
// for those that name none, which the agent is asked about.
func sessionOf(params []byte) (id string) {
	if raw := memberOf(params, "sessionId"); raw != nil {
		_ = json.Unmarshal(raw, &id)
	}
	return id
}

// idKey returns what equal ids have in common.
func idKey(id []byte) string {
	if len(id) > 0 && id[0] == '"' {
		return `"` + unquote(id)
	}
	return string(id)
}

// receivePrompt begins a prompt. It cancels those of its session that are not
// answered yet: the newest wins.
func (g *guard) receivePrompt(m *message) {
	if !m.has(m.id) {
		g.logger.Warn("acpwire: a session/prompt without an id was dropped: it cannot be answered")
		return
	}
	id, params := bytes.Clone(m.text(m.id)), bytes.Clone(m.text(m.params))
	name := sessionOf(params)
	ctx, cancel := context.WithCancelCause(g.ctx)
	p := &prompt{idKey(id), cancel}

	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.session(name)
	for _, older := range s.open {
		older.cancel(errSuperseded)
	}
	s.open = append(s.open, p)
	s.again = false
	g.prompts[p.key] = p
	before := s.cancels
	go func() {
		defer cancel(nil)
		g.await(before)
		answer, err := g.prompt(ctx, params)
		g.mu.Lock()
		s.open = slices.DeleteFunc(s.open, func(o *prompt) bool { return o == p })
		if g.prompts[p.key] == p {
			delete(g.prompts, p.key)
		}
		g.tidy(name)
		g.mu.Unlock()
		_ = g.write(reply(id, answer, err)) // whoever made out sees the error
	}()
}

// await waits for the Cancels that came before a prompt, so that what they
// cancel is what there was before it. An agent whose Cancel does not return is
// given up after a while.
func (g *guard) await(cancels <-chan struct{}) {
	if cancels == nil {
		return
	}
	select {
	case <-cancels:
	case <-g.ctx.Done():
	case <-time.After(limits.SettleTimeout):
		g.logger.Error("acpwire: the agent's Cancel does not return; the next prompt of the session begins")
	}
}

// prompt calls the agent with a prompt.
func (g *guard) prompt(ctx context.Context, params []byte) (acp.PromptResponse, *acp.RequestError) {
	var req acp.PromptRequest
	err := json.Unmarshal(params, &req)
	if err == nil {
		err = req.Validate()
	}
	if err != nil {
		return acp.PromptResponse{}, acp.NewInvalidParams(map[string]any{"error": err.Error()})
	}
	var answer acp.PromptResponse
	err = g.call(acp.AgentMethodSessionPrompt, func() (err error) { answer, err = g.agent.Prompt(ctx, req); return err })
	return answer, requestError(err)
}

// call calls code of the agent. A panic of it is its error.
func (g *guard) call(what string, f func() error) (err error) {
	if failure := caught.Call(func() { err = f() }); failure != nil {
		g.logger.Error("acpwire: the agent panicked", "in", what, "panic", failure.Value, "stack", failure.Stack)
		return failure
	}
	return err
}

// requestError returns an error of the agent as the SDK sends it.
func requestError(err error) *acp.RequestError {
	if err == nil {
		return nil
	}
	if refusal, ok := err.(*acp.RequestError); ok {
		return refusal
	}
	data := map[string]any{"error": err.Error()}
	if errors.Is(err, context.Canceled) {
		return acp.NewRequestCancelled(data)
	}
	return acp.NewInternalError(data)
}

// receiveCancel cancels the prompts of a session that are not answered, and
// calls the agent's Cancel. Some clients send session/cancel as a request; they
// get an answer.
func (g *guard) receiveCancel(m *message) {
	id, params := bytes.Clone(m.text(m.id)), bytes.Clone(m.text(m.params))
	name := sessionOf(params)

	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.session(name)
	for _, p := range s.open {
		p.cancel(errCancelled)
	}
	if s.again && len(id) == 0 {
		return // the one that is about to be called stands for this one
	}
	before, done := s.cancels, make(chan struct{})
	s.cancels, s.again = done, true
	go func() {
		g.await(before)
		g.mu.Lock()
		if s.cancels == done {
			s.again = false
		}
		g.mu.Unlock()
		err := g.cancel(params)
		close(done)
		g.mu.Lock()
		if s.cancels == done {
			s.cancels = nil
		}
		g.tidy(name)
		g.mu.Unlock()
		switch {
		case len(id) > 0:
			_ = g.write(reply(id, nil, err))
		case err != nil:
			g.logger.Warn("acpwire: session/cancel", "session", name, "err", err)
		}
	}()
}

// cancel calls the agent with a cancel.
func (g *guard) cancel(params []byte) *acp.RequestError {
	var n acp.CancelNotification
	if err := json.Unmarshal(params, &n); err != nil {
		return acp.NewInvalidParams(map[string]any{"error": err.Error()})
	}
	return requestError(g.call(acp.AgentMethodSessionCancel, func() error { return g.agent.Cancel(g.ctx, n) }))
}

// cancelPrompt cancels the prompt with this id, and reports whether there is
// one.
func (g *guard) cancelPrompt(id []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.prompts[idKey(id)]
	if p != nil {
		p.cancel(errCancelled)
	}
	return p != nil
}
