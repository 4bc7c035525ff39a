package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

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

// An Examine is told what comes of the examination of a client. Each prompt is one,
// whatever its text; without one it begins soon after the first session is opened.
type Examine struct {
	// Seen is called with each step: "initialize", "session/new", "a prompt".
	Seen func(what string)
	// Report takes what was found.
	Report func(probe.Report) error

	begun sync.Once
	done  chan struct{} // made by begin, closed by report
}

// unprompted is how long after session/new an examination begins by itself.
const unprompted = 3 * time.Second

func (e *Examine) seen(what string) {
	if e != nil && e.Seen != nil {
		e.Seen(what)
	}
}

func (e *Examine) report(r probe.Report) {
	if e == nil {
		return
	}
	defer close(e.done)
	if err := e.Report(r); err != nil {
		e.seen("no place for the report: " + err.Error())
	}
}

// begin notes that an examination is under way, and reports whether it is the first.
func (e *Examine) begin() (first bool) {
	if e != nil {
		e.begun.Do(func() { first, e.done = true, make(chan struct{}) })
	}
	return first
}

// opened examines a client that asks for nothing.
func (e *Examine) opened(a *Agent, id acp.SessionId, cwd string) {
	e.seen(acp.AgentMethodSessionNew)
	if e == nil || a.wire == nil {
		return
	}
	go func() { // ends with Close, or soon after
		select {
		case <-time.After(unprompted):
		case <-a.ctx.Done():
			return
		}
		if !e.begin() {
			return
		}
		a.mu.Lock()
		init := a.init
		a.mu.Unlock()
		e.report(probe.Run(a.ctx, a.wire, probe.Options{Init: init, Session: id, Dir: cwd}))
	}()
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

// errExamined is what a later prompt hears of an agent with Examine.
var errExamined = errors.New("this client is examined once")

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
	if e := t.agent.opts.Examine; e != nil && !e.begin() {
		select { // one is enough
		case <-e.done:
		case <-ctx.Done():
		}
		t.end(ctx, call, ProbeReport{Error: errExamined.Error()}, errExamined.Error(), nil, errExamined.Error()+".\n")
		return
	}
	r := ProbeReport{Report: probe.Run(ctx, t.agent.wire, probe.Options{Init: init, Session: t.session.id, Dir: t.session.cwd})}
	t.agent.opts.Examine.report(r.Report)
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
