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

// A client whose outputs were complete at the exit of three commands is not asked
// again after later ones: a command then takes no time of ours, through a Manager
// and a State without a profile. What a silent command shows is no evidence, and one
// output that was late takes the trust away for good.
func TestOutputsThatAreCompleteAtTheExit(t *testing.T) {
	const again = 50 * time.Millisecond // of a second read
	type step struct {
		line  string
		takes time.Duration
	}
	for name, steps := range map[string][]step{
		"three are enough": {{"say x 0", again}, {"say x 1", again}, {"say x 0", again}, {"say x 0", 0}, {"say y 3", 0}},
		"silent commands": {
			{"true", again}, {"true", again}, {"true", again}, {"true", again},
			{"say x 0", again}, {"say x 0", again}, {"say x 0", again}, {"say x 0", 0}, {"true", again},
		},
		"one that is late": {
			{"say x 0", again}, {"say x 0", again}, {"say x 0", again}, {"say x 0", 0},
			{"late", again}, {"say x 0", again}, {"say x 0", again}, {"say x 0", again}, {"say x 0", again},
		},
		"one that is late first": {{"late", again}, {"say x 0", again}, {"say x 0", again}, {"say x 0", again}, {"say x 0", again}},
		"outputs without a line's end, and long": {
			{"spam 8192", again}, {"spam 8192", again}, {"spam 8192", again}, {"spam 8192", 0}, {"say " + strings.Repeat("x", 5000) + " 0", again},
		},
	} {
		check := func(f *fixture, exec func(line string) string) {
			for i, s := range steps {
				line := s.line
				var fault *fakeconn.Injected
				if line == "late" { // the first read after the exit shows nothing yet
					line = "say x 0"
					fault = f.c.Inject(fakeconn.Fault{Method: output, Reply: true, N: 1, Edit: fakeconn.Set("result.output", "")})
				}
				start, before := time.Now(), f.c.Count(output)
				got := exec(line)
				if took := time.Since(start); took != s.takes {
					f.Errorf("command %d, %s: it took %v, want %v", i+1, s.line, took, s.takes)
				}
				want := map[bool]int{false: 1, true: 2}[s.takes == again]
				if n := f.c.Count(output) - before; n != want {
					f.Errorf("command %d, %s: %d outputs were read, want %d", i+1, s.line, n, want)
				}
				if s.line != "true" && got == "" {
					f.Errorf("command %d, %s: its output is lost", i+1, s.line)
				}
				if fault != nil {
					fault.Remove()
				}
				synctest.Wait()
			}
		}
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				check(f, func(line string) string {
					term := f.start(line)
					f.end(term)
					return f.text(term)
				})
			})
		})
		t.Run(name+", State", func(t *testing.T) {
			runState(t, func(f *fixture, s *acpterm.State) {
				check(f, func(line string) string {
					got, err := s.Exec(f.Context(), f.c.Conn(), string(f.session), "call 1", line, "/work", 0)
					if err != nil {
						f.Fatal(err)
					}
					return got.Output
				})
			})
		})
	}
}

// A client that shows an output a little after the exit is never believed to be
// prompt: nothing is lost, however many commands were silent, or wrote long before
// their exit.
func TestOutputsThatAreLateLoseNothing(t *testing.T) {
	for _, name := range []string{"acpx", "obsidian"} {
		synctest.Test(t, func(t *testing.T) {
			c := fakeconn.New(emulate.Client(name, nil))
			defer c.Close()
			id, err := c.NewSession(t.Context(), "/work")
			if err != nil {
				t.Fatal(err)
			}
			m := acpterm.New(c.Conn(), id, nil)
			defer m.Close()
			for i := range 20 {
				line := []string{"true", "lines 3 10ms; sleep 300ms", "echo x", "lines 3 10ms"}[i%4]
				term, err := m.Start(t.Context(), terminal.Command{Line: line})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := terminal.Wait(t.Context(), term); err != nil {
					t.Fatal(err)
				}
				out, err := term.ReadOutput(t.Context(), 0, 0)
				want := []string{"", "line 1\nline 2\nline 3\n", "x\n", "line 1\nline 2\nline 3\n"}[i%4]
				if out.Text != want || err != nil {
					t.Errorf("%s, command %d, %s: %q, %v; want %q", name, i+1, line, out.Text, err, want)
				}
			}
		})
	}
}

// What a command costs, over a client that answers at once, in turns with the helper
// that agents write by hand: create, wait, read, release. The ratio is that of the
// medians. Without a profile the first three commands take 50 ms more.
func BenchmarkExec(b *testing.B) {
	c := fakeconn.New(&fakeconn.Options{Keep: -1})
	defer c.Close()
	ctx := context.Background()
	id, err := c.NewSession(ctx, "/work")
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Conn().SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.StartToolCall("call", "a command")}); err != nil {
		b.Fatal(err)
	}
	m := acpterm.New(c.Conn(), id, &acpterm.Options{MaxTerminals: 4})
	defer m.Close()
	state := func(s *acpterm.State) func() (string, error) {
		return func() (string, error) {
			r, err := s.Exec(ctx, c.Conn(), string(id), "call", "echo x", "/work", 0)
			if err != nil {
				return "", err
			}
			return r.Output, nil
		}
	}
	for _, v := range []struct {
		name string
		exec func() (string, error)
	}{
		{"State", state(acpterm.NewState())},
		{"State of a known client", state(acpterm.StateOptions{Profile: acpterm.Profile{CompleteAtExit: true}}.NewState())},
		{"Manager", func() (string, error) {
			t, err := m.Start(ctx, terminal.Command{Line: "echo x"})
			if err != nil {
				return "", err
			}
			if _, err := terminal.Wait(ctx, t); err != nil {
				return "", err
			}
			out, err := t.ReadOutput(ctx, 0, 0)
			return out.Text, err
		}},
	} {
		b.Run(v.name, func(b *testing.B) {
			for range 4 {
				if _, err := v.exec(); err != nil {
					b.Fatal(err)
				}
			}
			var base, ours []time.Duration
			timed := func(times *[]time.Duration, exec func() (string, error)) {
				start := time.Now()
				if text, err := exec(); err != nil || text != "x\n" {
					b.Fatalf("%q, %v", text, err)
				}
				*times = append(*times, time.Since(start))
			}
			for b.Loop() {
				timed(&base, func() (string, error) { return byHand(ctx, c.Conn(), id) })
				timed(&ours, v.exec)
			}
			middle := func(times []time.Duration) float64 {
				slices.Sort(times)
				return float64(times[len(times)/2].Nanoseconds()) / 1e3
			}
			b.ReportMetric(middle(base), "base-µs")
			b.ReportMetric(middle(ours), "µs")
			b.ReportMetric(middle(ours)/middle(base), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// byHand runs a command in the client as agents do without this package.
func byHand(ctx context.Context, c acpterm.Conn, id acp.SessionId) (string, error) {
	t, err := c.CreateTerminal(ctx, acp.CreateTerminalRequest{SessionId: id, Command: "/bin/sh", Args: []string{"-c", "echo x"}})
	if err != nil {
		return "", err
	}
	if err := c.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.UpdateToolCall("call",
		acp.WithUpdateContent([]acp.ToolCallContent{acp.ToolTerminalRef(t.TerminalId)}))}); err != nil {
		return "", err
	}
	if _, err := c.WaitForTerminalExit(ctx, acp.WaitForTerminalExitRequest{SessionId: id, TerminalId: t.TerminalId}); err != nil {
		return "", err
	}
	out, err := c.TerminalOutput(ctx, acp.TerminalOutputRequest{SessionId: id, TerminalId: t.TerminalId})
	if err != nil {
		return "", err
	}
	_, err = c.ReleaseTerminal(ctx, acp.ReleaseTerminalRequest{SessionId: id, TerminalId: t.TerminalId})
	return out.Output, err
}
