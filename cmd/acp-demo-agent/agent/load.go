package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/coder/acp-go-sdk"
)

var _ acp.AgentLoader = (*Agent)(nil)

// LoadSession implements [acp.AgentLoader]: it shows what was kept of a session,
// whose commands have all ended, and goes on with it.
func (a *Agent) LoadSession(ctx context.Context, req acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	if a.opts.StateDir == "" {
		return acp.LoadSessionResponse{}, acp.NewMethodNotFound(acp.AgentMethodSessionLoad)
	}
	if err := checkDir(req.Cwd); err != nil {
		return acp.LoadSessionResponse{}, requestError(codeInvalidParams, "cwd "+err.Error())
	}
	h, entries, err := loadHistory(a.opts.StateDir, req.SessionId)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return acp.LoadSessionResponse{}, requestError(codeNotFound, fmt.Sprintf("nothing is kept of session %q", req.SessionId))
	case err != nil:
		return acp.LoadSessionResponse{}, requestError(codeInternal, err.Error())
	}
	for _, e := range entries {
		if e.Call != nil {
			a.skipCall(e.Call.ToolCallID)
		}
	}
	h.file.Cwd = req.Cwd
	s, err := a.open(req.SessionId, req.Cwd, h)
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

// skipCall keeps the numbers of new tool calls above those of a loaded session.
func (a *Agent) skipCall(id acp.ToolCallId) {
	n, err := strconv.ParseInt(strings.TrimPrefix(string(id), callPrefix), 10, 64)
	for err == nil {
		if last := a.calls.Load(); last >= n || a.calls.CompareAndSwap(last, n) {
			return
		}
	}
}
