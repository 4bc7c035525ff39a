package clients_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/probe"
)

// The probe finds what the official SDK's client does differently in each of its
// modes, and nothing else.
func TestProbe(t *testing.T) {
	answer := func(method, member string, value any) habits {
		return habits{Answers: map[string]map[string]any{method: {member: value}}}
	}
	modes := map[string]struct {
		habits
		deviates map[string]string // values by the name of the finding
		unknown  []string
	}{
		"none":            {},
		"openInput":       {habits{OpenInput: true}, map[string]string{"input": "open"}, nil},
		"cuts":            {habits{Cuts: true}, map[string]string{"characters": "cut", "limit": "exceeded"}, nil},
		"drained":         {habits{Drained: true}, map[string]string{"buffer": "drained"}, nil},
		"noExit":          {habits{NoExit: true}, map[string]string{"exit-status": "never"}, nil},
		"sameIds":         {habits{SameIDs: true}, map[string]string{"ids": "come again"}, nil},
		"numberIds":       {habits{NumberIDs: true}, map[string]string{"ids": "a number"}, nil},
		"shellOnly":       {habits{ShellOnly: "SIGTERM"}, map[string]string{"kill-children": "live on", "kill-stubborn": "lives on"}, nil},
		"noKill":          {habits{NoKill: true}, map[string]string{"kill": "refused", "kill-children": "live on", "kill-stubborn": "lives on"}, []string{"signal", "after-kill"}},
		"no truncated":    {answer("terminal/output", "truncated", false), map[string]string{"truncated": "missing"}, nil},
		"null exit codes": {answer("terminal/wait_for_exit", "exitCode", nil), map[string]string{"exit-code": "wrong"}, nil},
		"signal 0":        {answer("terminal/wait_for_exit", "signal", "0"), map[string]string{"exit-code": "beside a signal", "signal": "code"}, nil},
		"refused":         {deviates: map[string]string{}, unknown: probe.Names()[2:]},
		"no terminals":    {deviates: map[string]string{}, unknown: probe.Names()[2:]},
	}
	each(t, func(k kind) bool { return !k.raw && k.acpx == "" }, func(t *testing.T, k kind) {
		for _, name := range slices.Sorted(maps.Keys(modes)) {
			m := modes[name]
			if !*full && name != "none" && name != "drained" && name != "shellOnly" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := scene{habits: m.habits, refuse: name == "refused", bare: name == "no terminals", early: true}
				r := k.open(t, s)
				r.order(order{Prompt: "probe"})
				check(t, "answers", r.answered(1), []string{"end_turn"})
				cards, _ := r.cards()
				var report agent.ProbeReport
				if err := json.Unmarshal(cards[0].raw, &report); err != nil {
					t.Fatal(err)
				}
				// Node may hear of an exit before it has read the output.
				if f := report.Finding("output-at-exit"); f.Value == "late" {
					report.Findings = slices.DeleteFunc(report.Findings, func(o probe.Finding) bool { return o == f })
				}
				deviates, unknown := map[string]string{}, []string{}
				for _, f := range report.Findings {
					switch f.Verdict {
					case probe.Deviates:
						deviates[f.Name] = f.Value
					case probe.Unknown:
						unknown = append(unknown, f.Name)
					}
				}
				want := m.deviates
				if want == nil {
					want = map[string]string{}
				}
				check(t, "what deviates", deviates, want)
				check(t, "what is unknown", unknown, append([]string{}, m.unknown...))
				if t.Failed() {
					t.Logf("%s\n%s", report.Summary(), report.Table())
				}
				r.order(order{Prompt: "!echo on"})
				check(t, "answers", r.answered(2), []string{"end_turn", "end_turn"})
				r.stdin.Close()
				<-r.exited
				r.mu.Lock()
				r.faults = slices.DeleteFunc(r.faults, func(fault string) bool { // the probe names what is not there
					return strings.Contains(fault, "termbridge-probe-no-such") || strings.HasPrefix(fault, "terminal/output names") ||
						strings.HasPrefix(fault, "terminal/release names")
				})
				r.mu.Unlock()
				r.exits()
				r.nothingWith(r.mark)
			})
		}
	})
}
