package view_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/terminaltest"
)

func TestMain(m *testing.M) { terminaltest.Main(m) }

// onEach runs f as a subtest on each Manager that there is. Commands are made
// by program and run one of terminaltest's Programs.
func onEach(t *testing.T, f func(t *testing.T, m terminal.Manager, program func(name string, args ...string) terminal.Command)) {
	words := func(name string, args ...string) terminal.Command {
		return terminal.Command{Args: append([]string{name}, args...)}
	}
	closed := func(t *testing.T, m terminal.Manager) {
		_, shown := os.Stat("/proc/self/syscall")
		switch err := m.Close(); {
		case err != nil && shown != nil && strings.Contains(err.Error(), "cannot tell"):
			t.Logf("close: %v", err) // which is true there
		case err != nil:
			t.Errorf("close: %v", err)
		}
	}
	t.Run("memterm", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := memterm.New(&memterm.Options{Programs: terminaltest.Programs()})
			defer closed(t, m)
			f(t, m, words)
		})
	})
	t.Run("acpterm", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := fakeconn.New(&fakeconn.Options{Programs: terminaltest.Programs()})
			defer func() {
				if err := c.Close(); err != nil {
					t.Errorf("the client: %v\n%s", err, c.Transcript())
				}
			}()
			id, err := c.NewSession(t.Context(), "/")
			if err != nil {
				t.Fatalf("new session: %v", err)
			}
			m := acpterm.New(c.Conn(), id, nil)
			defer closed(t, m)
			f(t, m, words)
		})
	})
	t.Run("localterm", func(t *testing.T) {
		m := localterm.New(nil)
		defer closed(t, m)
		f(t, m, terminaltest.ReexecProgram)
	})
}

// start starts cmd.
func start(t *testing.T, m terminal.Manager, cmd terminal.Command) terminal.Terminal {
	t.Helper()
	term, err := m.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if cmd.TTY && !term.Info().Command.TTY {
		lacks(t, "/dev/ptmx that is one")
	}
	return term
}

// lacks fails or skips a test that needs what is not here.
func lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("TERMBRIDGE_REAL") != "" {
		t.Fatalf("there is no %s", what)
	}
	t.Skipf("there is no %s", what)
}

// wait waits for the end of a command, for long enough.
func wait(t *testing.T, term terminal.Terminal) terminal.Info {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	info, err := terminal.Wait(ctx, term)
	if err != nil {
		t.Fatalf("waiting for the end: %v", err)
	}
	return info
}

// A script is a command that writes what it is told to.
type script struct {
	terminal.Terminal
	lines chan string
	wrote chan struct{}
}

// bubble runs f in fake time with a script that keeps limit bytes of output. It
// ends the script.
func bubble(t *testing.T, limit int, f func(t *testing.T, s *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{lines: make(chan string), wrote: make(chan struct{})}
		m := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{
			"script": func(p *memterm.Process) terminal.Exit {
				for {
					select {
					case text, ok := <-s.lines:
						if !ok {
							return memterm.Code(3)
						}
						io.WriteString(p.Stdout, text)
						s.wrote <- struct{}{}
					case <-p.Stopped:
						return p.Death()
					}
				}
			},
		}})
		defer m.Close()
		s.Terminal = start(t, m, terminal.Command{Args: []string{"script"}, OutputLimit: limit})
		f(t, s)
	})
}

// write returns once text is in the output.
func (s *script) write(text string) {
	s.lines <- text
	<-s.wrote
}

// exit ends the script with code 3.
func (s *script) exit() {
	close(s.lines)
	<-s.Done()
}

// Unwrap shows what the terminal can do besides.
func (s *script) Unwrap() terminal.Terminal { return s.Terminal }

// uncounted is a terminal that is no LineCounter.
type uncounted struct{ terminal.Terminal }
