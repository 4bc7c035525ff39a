package acpterm_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/fakeconn/emulate"
	"github.com/termbridge/termbridge/terminal"
)

// What commands show anyway of a client of which nothing is known, is learned, for
// each client that is known by name; and nothing of it is wrong.
func TestWhatIsLearned(t *testing.T) {
	commands := []terminal.Command{
		{Line: "lines 300 20ms", OutputLimit: 1000},
		{Args: []string{"signal", "SIGTERM"}},
		{Line: "sleep 1h", Timeout: time.Second},
	}
	for range 8 { // a read that was under way at the exit may have brought its output, and tells nothing
		commands = append(commands, terminal.Command{Line: "echo x"})
	}
	learned := map[string]acpterm.Profile{}
	for _, b := range emulate.Behaviours() {
		t.Run(b.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := fakeconn.New(b.Client(nil))
				defer c.Close()
				id, err := c.NewSession(t.Context(), "/work")
				if err != nil {
					t.Fatal(err)
				}
				var client acpterm.Client
				m := acpterm.New(c.Conn(), id, &acpterm.Options{Client: &client, CreateTimeout: 5 * time.Minute})
				defer m.Close()
				for _, cmd := range commands {
					term, err := m.Start(t.Context(), cmd)
					if err != nil {
						t.Logf("%s: %v", cmd.Line, err) // some refuse
						continue
					}
					follow(t.Context(), term)
				}
				learned[b.Name] = client.Learned()
				known := acpterm.DefaultProfiles().Find(c.Init().ClientInfo)
				switch got := client.Learned(); {
				case got.KeepsHead && b.Truncate == nil,
					got.CompleteAtExit && (b.Lag > 0 || b.LosesTail),
					got.Signals != acpterm.SignalsUnknown && known.Signals != acpterm.SignalsUnknown && got.Signals != known.Signals:
					t.Errorf("wrong: %+v, but it is %+v", got, known)
				}
			})
		})
	}
	for name, want := range map[string]acpterm.Profile{
		"zed":     {KeepsHead: true, Signals: acpterm.SignalTexts, CompleteAtExit: true},
		"jupyter": {Signals: acpterm.SignalNames, CompleteAtExit: true},

		"acpx":     {Signals: acpterm.SignalNames}, // outputs come late
		"obsidian": {Signals: acpterm.SignalNames},
		"toad":     {CompleteAtExit: true}, // a code tells nothing of signals
		"deepchat": {},
	} {
		if got := learned[name]; got.KeepsHead != want.KeepsHead || got.Signals != want.Signals || got.CompleteAtExit != want.CompleteAtExit {
			t.Errorf("%s: learned %+v, want %+v", name, got, want)
		}
	}
	names := []string{}
	for name, p := range learned {
		names = append(names, name)
		t.Logf("%s: head %v, signals %q, complete at the exit %v", name, p.KeepsHead, p.Signals, p.CompleteAtExit)
	}
	if len(names) < 10 || slices.Contains(names, "") {
		t.Errorf("only %q", names)
	}
}

// follow reads a terminal to its end, as somebody does who is shown it.
func follow(ctx context.Context, t terminal.Terminal) {
	for cursor := int64(0); ; {
		out, err := t.ReadOutput(ctx, cursor, time.Second)
		cursor = out.NextCursor
		if err != nil || out.Info.Outcome.Ended() && !out.More {
			return
		}
	}
}

// What is learned of one command counts for the next: where the client's outputs are
// cut, and that an exit code below zero is no signal.
func TestWhatIsLearnedCounts(t *testing.T) {
	for _, taught := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := emulate.Behaviours()[slices.IndexFunc(emulate.Behaviours(), func(b emulate.Behaviour) bool { return b.Name == "zed" })]
			c := fakeconn.New(b.Client(nil))
			defer c.Close()
			id, err := c.NewSession(t.Context(), "/work")
			if err != nil {
				t.Fatal(err)
			}
			m := acpterm.New(c.Conn(), id, nil)
			defer m.Close()
			run := func(cmd terminal.Command) (terminal.Info, string) {
				term, err := m.Start(t.Context(), cmd)
				if err != nil {
					t.Fatal(err)
				}
				follow(t.Context(), term)
				out, _ := term.ReadOutput(t.Context(), 0, 0)
				return term.Info(), out.Text
			}
			if taught {
				run(terminal.Command{Line: "lines 300 20ms", OutputLimit: 1000})
				run(terminal.Command{Line: "sleep 1h", Timeout: time.Second})
			}
			_, text := run(terminal.Command{Args: []string{"print", strings.Repeat("all at once\\n", 300)}, OutputLimit: 1000})
			if strings.HasSuffix(text, terminal.GapMark) != taught {
				t.Errorf("taught %v: it ends in %q", taught, text[len(text)-40:])
			}
			c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalWaitForExit, Reply: true, Edit: fakeconn.Set("result", map[string]any{"exitCode": -2})})
			c.Inject(fakeconn.Fault{Method: acp.ClientMethodTerminalOutput, Reply: true, Edit: fakeconn.Set("result.exitStatus", nil)})
			if info, _ := run(terminal.Command{Line: "echo x"}); (info.Outcome == terminal.Signalled) == taught {
				t.Errorf("taught %v: code -2 is %s, %v", taught, info.Outcome, info.Exit)
			}
		})
	}
}
