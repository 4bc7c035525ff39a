package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/execenv/launcher"
	"github.com/termbridge/termbridge/internal/text"
)

// An EnvironmentReport is one of the environments that env lists.
type EnvironmentReport struct {
	Name  string `json:"name"`
	Kind  string `json:"kind,omitempty"` // what runs commands there
	State string `json:"state"`
	Jobs  int    `json:"running"` // commands of this session that run there
}

// An EnvironmentsReport is the rawOutput of env.
type EnvironmentsReport struct {
	Environments []EnvironmentReport `json:"environments"`
}

// elsewhere reports whether the command runs neither on this machine nor in the
// client.
func (r *request) elsewhere() bool { return named(r.cmd.Environment) != "" }

// named returns the name of an environment of --env, "" for others.
func named(environment string) string {
	switch environment {
	case bridge.EnvironmentClient, bridge.EnvironmentLocal:
		return ""
	}
	return environment
}

// errNoEnvironment is the error of --on with a name that is not known.
var errNoEnvironment = errors.New("no such environment")

// place checks the environment of a request.
func (t *turn) place(req *request) error {
	name := named(req.cmd.Environment)
	if name == "" || t.agent.opts.Executors[name] != nil {
		return nil
	}
	known := slices.Sorted(maps.Keys(t.agent.opts.Executors))
	return fmt.Errorf("%s: --on: %w %q: there are %s", req.verb, errNoEnvironment, name,
		strings.Join(append([]string{bridge.EnvironmentLocal, bridge.EnvironmentClient}, known...), ", "))
}

// environments lists where commands can run.
func (t *turn) environments(ctx context.Context, call *bridge.Call) {
	running := make(map[string]int)
	for _, term := range t.session.state.List() {
		if info := term.Info(); !info.Outcome.Ended() {
			running[info.Environment]++
		}
	}
	r := EnvironmentsReport{Environments: []EnvironmentReport{{Name: bridge.EnvironmentLocal, State: "ready"}}}
	for _, name := range slices.Sorted(maps.Keys(t.agent.opts.Executors)) {
		e := EnvironmentReport{Name: name, State: "ready"}
		executor := t.agent.opts.Executors[name]
		if s, ok := executor.(fmt.Stringer); ok {
			e.Kind = s.String()
		}
		if s, ok := executor.(interface{ State() launcher.State }); ok {
			e.State = s.State().String()
		}
		r.Environments = append(r.Environments, e)
	}
	var list strings.Builder
	for i := range r.Environments {
		e := &r.Environments[i]
		e.State = text.JSONHead(e.State, errorBudget)
		e.Jobs = running[e.Name]
		fmt.Fprintf(&list, "- %s", code(e.Name))
		if e.Kind != "" {
			fmt.Fprintf(&list, " (%s)", e.Kind)
		}
		fmt.Fprintf(&list, ": %s, %s running\n", e.State, count(e.Jobs, "command"))
	}
	t.end(ctx, call, r, text.JSONHead(list.String(), jobsTextBudget), nil, list.String())
}
