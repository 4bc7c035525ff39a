package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/probe"
)

// A ProbeReport is the rawOutput of probe.
type ProbeReport struct {
	probe.Report
	// Saved is the file of the profile, Error why there is none.
	Saved string `json:"saved,omitempty"`
	Error string `json:"error,omitempty"`
}

// probeArguments reads [--save FILE].
func (r *request) probeArguments(rest string) error {
	_, dashes, err := flags{
		value: map[string]func(string) error{"--save": func(v string) error {
			if v == "" {
				return errors.New("it is a file")
			}
			r.file = v
			return nil
		}},
		word: func(w string) error { return fmt.Errorf("%q is one thing too many", w) },
	}.take(rest)
	if err == nil && dashes {
		err = errors.New("-- goes with run and bg only")
	}
	return err
}

// errNoWire is the error of probe where the agent does not have the connection.
var errNoWire = errors.New("this agent was not started by Serve, so it cannot see what the client sends")

// probe examines the client.
func (t *turn) probe(ctx context.Context, call *bridge.Call, req request) {
	if t.agent.wire == nil {
		t.fail(ctx, call, req, errNoWire)
		return
	}
	if err := t.permit(ctx, call, req); err != nil {
		t.fail(ctx, call, req, err)
		return
	}
	t.agent.mu.Lock()
	init := t.agent.init
	t.agent.mu.Unlock()
	r := ProbeReport{Report: probe.Run(ctx, t.agent.wire, probe.Options{Init: init, Session: t.session.id, Dir: t.session.cwd})}
	message := r.Summary() + ".\n"
	var err error
	if ctx.Err() != nil {
		err = errTurnCancelled
	} else if req.file != "" {
		file := req.file
		if !filepath.IsAbs(file) {
			file = filepath.Join(t.session.cwd, file)
		}
		if err = r.Save(file); err == nil {
			r.Saved = file
			message += fmt.Sprintf("Its profile is in %s: start the agent with `--profiles` and that file.\n", code(file))
		}
	}
	if err != nil {
		r.Error = err.Error()
		message += r.Error + ".\n"
	}
	table := text.JSONHead(r.Table(), outputTextBudget)
	t.end(ctx, call, r, table, err, table+"\n"+message)
}
