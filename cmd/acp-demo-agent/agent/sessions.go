package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/internal/jsonrpc"
	"github.com/termbridge/termbridge/internal/text"
)

// Sessions that are kept: session/list, session/load and session/resume. Without
// Options.StateDir they are methods that there are not.

var _ acp.AgentLoader = (*Agent)(nil)

// ListSessions implements [acp.Agent]: the sessions that are kept, the one that
// was used last first, in one page.
func (a *Agent) ListSessions(_ context.Context, req acp.ListSessionsRequest) (acp.ListSessionsResponse, error) {
	none := acp.ListSessionsResponse{}
	switch {
	case a.opts.StateDir == "":
		return none, acp.NewMethodNotFound(acp.AgentMethodSessionList)
	case req.Cursor != nil && *req.Cursor != "":
		return none, requestError(jsonrpc.InvalidParams, fmt.Sprintf("no page begins at %q: all sessions are on one", *req.Cursor))
	case req.Cwd != nil && !filepath.IsAbs(*req.Cwd):
		return none, requestError(jsonrpc.InvalidParams, fmt.Sprintf("cwd %q is relative: give an absolute path", *req.Cwd))
	}
	kept, err := listHistories(a.opts.StateDir)
	if err != nil {
		return none, requestError(jsonrpc.Internal, err.Error())
	}
	resp := acp.ListSessionsResponse{Sessions: []acp.SessionInfo{}}
	for _, h := range kept {
		switch {
		case h.err != nil:
			a.opts.Logger.Warn("a session is not listed", "session", h.id, "err", h.err)
			continue
		case req.Cwd != nil && filepath.Clean(*req.Cwd) != filepath.Clean(h.cwd):
			continue
		}
		info := acp.SessionInfo{SessionId: h.id, Cwd: h.cwd, UpdatedAt: new(timestamp(h.updated))}
		if h.title != "" {
			info.Title = &h.title
		}
		resp.Sessions = append(resp.Sessions, info)
	}
	return resp, nil
}

// LoadSession implements [acp.AgentLoader]: it shows what was kept of a session,
// whose commands have all ended, and goes on with it.
func (a *Agent) LoadSession(ctx context.Context, req acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	s, entries, err := a.reopen(ctx, acp.AgentMethodSessionLoad, req.SessionId, req.Cwd)
	if err != nil {
		return acp.LoadSessionResponse{}, err
	}
	for _, e := range entries {
		switch {
		case e.Call != nil:
			err = s.state.Replay(ctx, *e.Call)
		case e.User != "":
			err = s.state.Update(ctx, acp.UpdateUserMessageText(e.User))
		case e.Agent != "":
			err = s.state.Update(ctx, acp.UpdateAgentMessageText(e.Agent))
		}
		if err != nil {
			return acp.LoadSessionResponse{}, errors.Join(err, a.forget(s))
		}
	}
	return acp.LoadSessionResponse{}, nil
}

// ResumeSession implements [acp.Agent]: it goes on with a session that was kept,
// and shows nothing of it.
func (a *Agent) ResumeSession(ctx context.Context, req acp.ResumeSessionRequest) (acp.ResumeSessionResponse, error) {
	_, _, err := a.reopen(ctx, acp.AgentMethodSessionResume, req.SessionId, req.Cwd)
	return acp.ResumeSessionResponse{}, err
}

// reopen opens a session that was kept and returns what was kept of it.
func (a *Agent) reopen(ctx context.Context, method string, id acp.SessionId, cwd string) (*session, []historyEntry, error) {
	if a.opts.StateDir == "" {
		return nil, nil, acp.NewMethodNotFound(method)
	}
	if err := checkDir(cwd); err != nil {
		return nil, nil, requestError(jsonrpc.InvalidParams, "cwd "+err.Error())
	}
	h, entries, err := loadHistory(a.opts.StateDir, id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, requestError(jsonrpc.NotFound, fmt.Sprintf("nothing is kept of session %q", id))
	case err != nil:
		return nil, nil, requestError(jsonrpc.Internal, err.Error())
	}
	for _, e := range entries {
		if e.Call != nil {
			a.skipCall(e.Call.ToolCallID)
		}
	}
	h.file.Cwd = cwd
	s, err := a.open(ctx, id, cwd, h)
	return s, entries, err
}

// skipCall keeps the numbers of new tool calls above those of a loaded session.
func (a *Agent) skipCall(id acp.ToolCallId) {
	n, err := strconv.ParseInt(strings.TrimPrefix(string(id), callPrefix), 10, 64)
	for err == nil {
		if last := a.calls.Load(); last >= n || a.calls.CompareAndSwap(last, n) {
			return
		}
	}
}

// announce tells the client what a line can begin with, when the request that
// opened the session is answered: before that the client does not know the
// session. The SDK ends the context of a request then.
func (s *session) announce(ctx context.Context) {
	update := acp.SessionUpdate{AvailableCommandsUpdate: &acp.SessionAvailableCommandsUpdate{}}
	for _, v := range verbs {
		c := acp.AvailableCommand{Name: string(v.verb), Description: v.does}
		if hint := strings.TrimPrefix(v.form, string(v.verb)); hint != "" {
			c.Input = &acp.AvailableCommandInput{Unstructured: &acp.UnstructuredCommandInput{Hint: hint[1:]}}
		}
		update.AvailableCommandsUpdate.AvailableCommands = append(update.AvailableCommandsUpdate.AvailableCommands, c)
	}
	context.AfterFunc(ctx, func() {
		_ = s.state.Update(context.Background(), update) // ends with the session at the latest
	})
}

// maxSessionTitle is the most of a prompt that becomes the title of its session,
// in bytes.
const maxSessionTitle = 80

// titled gives a session that has no title the first line of its first prompt.
func (t *turn) titled(ctx context.Context, prompt string) {
	title, _, _ := strings.Cut(strings.TrimSpace(prompt), "\n")
	title = text.Visible(strings.TrimSpace(title), "")
	if short := text.Head(title, maxSessionTitle); short != title {
		title = short + "…"
	}
	if title == "" || !t.session.titled.CompareAndSwap(false, true) {
		return
	}
	t.session.history.setTitle(title)
	t.check("title", t.session.state.Update(ctx, acp.SessionUpdate{
		SessionInfoUpdate: &acp.SessionSessionInfoUpdate{Title: &title, UpdatedAt: new(timestamp(time.Now()))},
	}))
}

// timestamp is a time as ISO 8601 has it.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
