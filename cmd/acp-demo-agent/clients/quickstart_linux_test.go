package clients_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// The agent of the README answers every method of the protocol, before initialize,
// in a session, in ones that there are not, and behind the end of one; and it runs
// commands all the same.
func TestQuickstart(t *testing.T) {
	each(t, ours, func(t *testing.T, k kind) {
		var all []order
		for _, method := range []string{
			"authenticate", "session/load", "session/resume", "session/list", "session/prompt", "session/close",
			"session/set_mode", "session/set_config_option", "session/set_model", "session/fork", "logout", "no/such",
		} {
			all = append(all, order{Method: method, Params: map[string]any{
				"sessionId": "none", "methodId": "x", "modeId": "x", "modelId": "x", "configId": "x", "value": "x",
				"mcpServers": []any{}, "prompt": []any{map[string]any{"type": "text", "text": "true"}},
			}})
		}
		newSession := order{Method: "session/new", Params: map[string]any{"cwd": "/", "mcpServers": []any{}}}
		orders := func(r *rig) {
			for _, o := range append(all, newSession, order{Method: "initialize", Params: map[string]any{"protocolVersion": 1}}) {
				r.order(o)
			}
			r.order(order{Notify: "x/none", Times: 3})
		}
		r := k.play(t, scene{
			agent:  "quickstart",
			early:  true, // a cancel may overtake the card
			habits: habits{First: append(all, newSession)},
			prompts: []string{
				"echo one; sleep 0.2; echo two",
				"echo three",
			},
			during: orders,
			last: func(r *rig) {
				r.order(order{Prompt: "sleep 100"})
				r.until("the third command", func(wire []message) bool { return strings.Count(fmt.Sprint(methods(wire)), "terminal/create") == 3 })
				r.order(order{Cancel: true})
				r.until("the answer to the third", func(wire []message) bool { return len(answers(wire)) == 3 })
				r.order(order{Cancel: true}) // of nothing
				r.order(order{Close: true})
				r.order(order{Close: true})
				orders(r)
				r.until("an answer to every request", func(wire []message) bool { return len(unanswered(wire)) == 0 })
			},
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.exit.Code == nil || *r.exit.Code != 0 {
			t.Errorf("the agent exited: %v", r.exit)
		}
		for _, m := range r.wire {
			var answer struct{ Error struct{ Code int } }
			if m.from == "agent" && json.Unmarshal([]byte(m.raw), &answer) == nil && answer.Error.Code == -32603 {
				t.Errorf("an internal error: %s", m.raw)
			}
		}
	})
}

// methods returns what the agent has called.
func methods(wire []message) (all []string) {
	for _, m := range wire {
		if m.from == "agent" && m.Method != "" {
			all = append(all, m.Method)
		}
	}
	return all
}

// unanswered returns the requests of the client that the agent has not answered.
func unanswered(wire []message) map[int64]string {
	open := map[int64]string{}
	for _, m := range wire {
		switch {
		case m.ID == nil:
		case m.from == "client" && m.Method != "":
			open[*m.ID] = m.Method
		case m.from == "agent" && m.Method == "":
			delete(open, *m.ID)
		}
	}
	return open
}
