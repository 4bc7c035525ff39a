package clients_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/terminal"
)

// typed returns the lines to type of docs/troubleshooting.md, by symptom.
func typed(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("../../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string][]string{}
	box := regexp.MustCompile("(?ms)^```text\n(.*?)^```$")
	for _, section := range strings.Split(string(b), "\n## ")[1:] {
		symptom, _, _ := strings.Cut(section, "\n")
		if found := box.FindStringSubmatch(section); found != nil {
			lines[symptom] = strings.Split(strings.TrimSpace(found[1]), "\n")
		}
	}
	return lines
}

// What the page says to type shows what it says, in a client that has the habit
// in question.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	symptoms := typed(t)
	for _, c := range []struct {
		symptom string
		scene   scene
		// stop is text that the first command writes before the user presses Stop.
		stop string
		see  func(r *rig, cards []*card)
	}{
		{symptom: "A command is not found, though it exists", see: func(r *rig, cards []*card) {
			for _, want := range []string{"/ls\n", os.Getenv("PATH"), r.dir} {
				if !strings.Contains(cards[0].report.Output, want) {
					r.Errorf("no %q in %q", want, cards[0].report.Output)
				}
			}
			check(r.T, "words", cards[1].report.Output, `<a b><$HOME><*>`)
		}},
		{symptom: "Output is missing, or comes twice", scene: scene{habits: habits{Cuts: true}}, see: func(r *rig, cards []*card) {
			for _, c := range cards[:2] {
				if !strings.HasSuffix(c.report.Output, "\n19999\n20000\n") || !c.report.Truncated {
					r.Errorf("%s: truncated: %v, %q", c.title, c.report.Truncated, c.report.Output[max(0, len(c.report.Output)-60):])
				}
			}
			check(r.T, "steps", cards[2].report.Output, "step 1\nstep 2\nstep 3\n")
		}},
		{symptom: "The card is empty, or folds up", scene: scene{bare: true}, see: func(r *rig, cards []*card) {
			check(r.T, "output", cards[0].report.Output, "hello\ndone\n")
			check(r.T, "presentation", cards[0].report.Presentation, bridge.PresentText)
		}},
		{symptom: "Terminal not found", scene: scene{habits: habits{SameIDs: true, Lag: 200}}, see: func(r *rig, cards []*card) {
			check(r.T, "of jobs", cards[3].status, "completed")
		}},
		{symptom: "A cancel hangs", scene: scene{habits: habits{ShellOnly: "SIGTERM"}}, stop: "stubborn", see: func(r *rig, cards []*card) {
			check(r.T, "outcome", cards[0].report.Outcome, terminal.Cancelled)
		}},
		{symptom: "The next message is swallowed", see: func(r *rig, cards []*card) {
			check(r.T, "outcome", cards[0].report.Outcome, terminal.Cancelled)
			check(r.T, "output", cards[1].report.Output, "next\n")
		}},
		{symptom: "The connection closes on a large output", see: func(r *rig, cards []*card) {
			check(r.T, "exit code", cards[0].report.ExitCode, new(0))
			check(r.T, "output", cards[1].report.Output, "alive\n")
		}},
		{symptom: "`cat` hangs", scene: scene{habits: habits{OpenInput: true}}, see: func(r *rig, cards []*card) {
			check(r.T, "without input", cards[0].report.Outcome, terminal.Exited)
			check(r.T, "exit code", cards[0].report.ExitCode, new(0))
			check(r.T, "with input", cards[1].report.Outcome, terminal.TimedOut)
		}},
		{symptom: `"Not known to have ended"`, scene: scene{habits: habits{ShellOnly: "SIGTERM"}}, see: func(r *rig, cards []*card) {
			check(r.T, "outcome", cards[0].report.Outcome, terminal.Cancelled)
		}},
	} {
		lines := symptoms[c.symptom]
		delete(symptoms, c.symptom)
		t.Run(c.symptom, func(t *testing.T) {
			t.Parallel()
			if len(lines) == 0 {
				t.Fatal("the page has no line to type")
			}
			raw := kind{name: "raw", raw: true, tree: true}
			r := raw.open(t, c.scene)
			for i, line := range lines {
				r.order(order{Prompt: line})
				if i == 0 && strings.Contains(line, "sleep 300") {
					r.running(r.mark, "sleep 30")
					r.order(order{Cancel: true})
				} else if i == 0 && c.stop != "" {
					r.until("it writes", func(wire []message) bool {
						return slices.ContainsFunc(wire, func(m message) bool { return strings.Contains(m.raw, `"output":"`+c.stop) })
					})
					r.order(order{Cancel: true})
				}
				r.answered(i + 1)
			}
			cards, _ := r.cards()
			if len(cards) != len(lines) {
				t.Fatalf("%d tool calls for %q", len(cards), lines)
			}
			c.see(r, cards)
			r.shut(c.scene)
		})
	}
	for symptom := range symptoms {
		t.Errorf("no test types the lines of %q", symptom)
	}
}
