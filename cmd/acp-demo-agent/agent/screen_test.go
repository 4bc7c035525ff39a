package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/cmd/acp-demo-agent/agent"
	"github.com/termbridge/termbridge/fakeconn"
)

// A model reads screens and presses keys, by the lines that it writes to the agent.
type model struct {
	*testing.T
	prompt func(line string) agent.Report
	id     string // of the program
}

// sees looks at the screen until it shows a text, or until that is highlighted.
func (m model) sees(text string) {
	m.Helper()
	var last string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		r := m.prompt(fmt.Sprintf("screen %s --until %q --wait 2s", m.id, strings.NewReplacer("⟦", "", "⟧", "", "▮", "").Replace(text)))
		if strings.Contains(r.Output, text) {
			return
		}
		last = r.Output + r.Error
		if r.Outcome.Ended() {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	m.Fatalf("%q was not seen:\n%s", text, last)
}

func (m model) presses(keys string) {
	m.Helper()
	if r := m.prompt("keys " + m.id + " " + keys); r.Error != "" && !strings.Contains(r.Error, "ended") {
		m.Fatalf("keys %s: %s", keys, r.Error)
	}
}

// What a model does with full-screen programs: it reads their screens, and drives
// them to their end.
var programs = []struct {
	name  string
	line  string // DIR is a directory with a.txt and b.txt
	drive func(m model, dir string)
}{
	{"less", "less DIR/a.txt", func(m model, dir string) {
		m.sees("line 11 of a")
		m.presses("G")
		m.sees("line 200 of a")
		m.presses("g / 4 2 Enter")
		m.sees("line ⟦42⟧")
		m.presses("q")
	}},
	{"vim", "vim -u NONE -N -n DIR/a.txt", func(m model, dir string) {
		m.sees("line 2 of a")
		m.presses("Down A ! Esc")
		m.sees("line 2 of a▮!")
		m.presses(": w q Enter")
	}},
	{"top", "top -d 60", func(m model, dir string) {
		m.sees("PID")
		m.presses("q")
	}},
	{"mc", "mc -d -u DIR", func(m model, dir string) {
		m.sees("b.txt")
		m.presses("Down Down") // ".." is first
		m.sees("⟦b.txt")
		m.presses("F3")
		m.sees("line 3 of b")
		m.presses("F10")
		m.sees("a.txt")
		m.presses("F10")
	}},
	{"dialog", `dialog --menu "What shall it be?" 11 50 3 1 "The first" 2 "The second" 3 "The third" 2>DIR/chosen`, func(m model, dir string) {
		m.sees("⟦The first")
		m.presses("Down Down")
		m.sees("⟦The third")
		m.presses("Enter")
	}},
}

func TestScreensThatAModelDrives(t *testing.T) {
	for name, o := range map[string]fakeconn.Options{"display": {NoTerminal: true, Display: true}, "text": {NoTerminal: true}} {
		for _, p := range programs {
			t.Run(name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				if _, err := exec.LookPath(p.name); err != nil {
					if os.Getenv("TERMBRIDGE_REAL") != "" {
						t.Fatal(err)
					}
					t.Skip(err)
				}
				dir := t.TempDir()
				for _, file := range []string{"a", "b"} {
					var b strings.Builder
					for i := range 200 {
						fmt.Fprintf(&b, "line %d of %s\n", i+1, file)
					}
					if err := os.WriteFile(filepath.Join(dir, file+".txt"), []byte(b.String()), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				o := o
				o.Serve = func(in io.Reader, out io.Writer) {
					if err := agent.Serve(context.Background(), in, out, nil); err != nil {
						t.Error(err)
					}
				}
				editor := fakeconn.New(&o)
				id, err := editor.NewSession(t.Context(), dir)
				if err != nil {
					t.Fatal(err)
				}
				m := model{T: t, prompt: func(line string) (r agent.Report) {
					t.Helper()
					if _, err := editor.Prompt(t.Context(), id, line); err != nil {
						t.Fatal(err)
					}
					cards := editor.Cards()
					raw, err := json.Marshal(cards[len(cards)-1].RawOutput)
					if err == nil {
						err = json.Unmarshal(raw, &r)
					}
					if err != nil {
						t.Fatal(err)
					}
					return r
				}}
				m.id = m.prompt("bg --input --env TERM=xterm-256color --env LESS= --env HOME=" + t.TempDir() + " -- exec " + strings.ReplaceAll(p.line, "DIR", dir)).ID
				p.drive(m, dir)
				if r := m.prompt("wait " + m.id + " --timeout 30s"); r.ExitCode == nil || *r.ExitCode != 0 {
					t.Errorf("it ended with %+v", r)
				}
				switch p.name {
				case "vim":
					checkFile(t, filepath.Join(dir, "a.txt"), "line 2 of a!\n")
				case "dialog":
					checkFile(t, filepath.Join(dir, "chosen"), "3")
				}
				if err := editor.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func checkFile(t *testing.T, name, want string) {
	t.Helper()
	if b, err := os.ReadFile(name); err != nil || !strings.Contains(string(b), want) {
		t.Errorf("%s is %q, %v; want %q", name, b, err, want)
	}
}

// Screens and keys of commands that have none of it, or are not there, are errors
// that say what to do.
func TestScreenErrors(t *testing.T) {
	with(t, kinds[1], nil, func(f *fixture) {
		_, bg := f.one("bg -- sleep 1h")
		_, cat := f.one("bg --input -- cat")
		for line, want := range map[string]string{
			"screen t9": "no command",
			"screen " + cat.ID + " --until x --wait 1": "does not show",
			"keys " + bg.ID + " Enter":                 "without --input",
			"keys " + cat.ID:                           "no key",
			"keys " + cat.ID + " Entr":                 "Entr",
			"screen":                                   "no ID",
		} {
			card, r := f.one(line)
			if card.Status != acp.ToolCallStatusFailed || !strings.Contains(card.Text, want) {
				t.Errorf("%s: %s, %+v; want %q", line, card.Text, r, want)
			}
		}
		if _, r := f.one("keys " + cat.ID + " x y Enter"); !strings.Contains(r.Output, "xy") {
			t.Errorf("%+v", r)
		}
	})
}
