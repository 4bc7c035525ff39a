package control_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A stage is a Manager whose terminals are in the state that the test says.
type stage struct {
	terminal.Manager
	mu     sync.Mutex
	actors map[string]*actor
}

// An actor is a terminal, and what it does.
type actor struct {
	terminal.Terminal
	mu    sync.Mutex
	state terminal.Activity
	shell bool // it is the shell that waits
}

func newStage(t *testing.T) (*stage, *control.Control) {
	s := &stage{Manager: memterm.New(nil), actors: make(map[string]*actor)}
	t.Cleanup(func() { s.Close() })
	c := control.New(s, nil)
	t.Cleanup(func() { c.Close() })
	return s, c
}

// start starts a session that goes on until it is told to end.
func (s *stage) start(t *testing.T, name, group string) *actor {
	t.Helper()
	term, err := s.Start(t.Context(), terminal.Command{Line: "sleep 1000000", Labels: map[string]string{control.NameLabel: name, control.GroupLabel: group}})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &actor{Terminal: term, state: terminal.Working}
	s.actors[term.Info().ID] = a
	return a
}

func (s *stage) List() []terminal.Terminal {
	all := s.Manager.List()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range all {
		if a := s.actors[t.Info().ID]; a != nil {
			all[i] = a
		}
	}
	return all
}

func (a *actor) is(state terminal.Activity, shell bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state, a.shell = state, shell
}

func (a *actor) ReadActivity(context.Context, int64) (terminal.Activity, terminal.Evidence, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state, terminal.Evidence{Certainty: terminal.Certain, Reason: "the test says so", Prompt: a.shell}, nil
}

// WaitActivity returns early: the wait looks again.
func (a *actor) WaitActivity(ctx context.Context, _ terminal.Activity, _ int64) (terminal.Activity, terminal.Evidence, error) {
	return a.ReadActivity(ctx, 0)
}

// TestWait pins when a wait ends, and with what.
func TestWait(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, s *stage, c *control.Control){
		"at once when it is there": func(t *testing.T, s *stage, c *control.Control) {
			s.start(t, "web", "").is(terminal.Waiting, true)
			info, took, err := wait(c, "web", "", "idle", time.Minute)
			if err != nil || info.Name != "web" || info.AgentState != control.Idle || info.Evidence != "the test says so" || took > 0 {
				t.Errorf("%+v, %v, %v", info, took, err)
			}
		},
		"a program that waits is blocked and not idle": func(t *testing.T, s *stage, c *control.Control) {
			s.start(t, "web", "").is(terminal.Waiting, false)
			if _, _, err := wait(c, "web", "", "blocked", time.Minute); err != nil {
				t.Error(err)
			}
			if _, took, err := wait(c, "web", "", "idle", time.Minute); !errors.Is(err, control.ErrTimeout) || took != time.Minute {
				t.Errorf("%v after %v", err, took)
			}
		},
		"on the change": func(t *testing.T, s *stage, c *control.Control) {
			a := s.start(t, "web", "")
			time.AfterFunc(10*time.Second, func() { a.is(terminal.Waiting, true) })
			if _, took, err := wait(c, "web", "", "idle", time.Minute); err != nil || took < 10*time.Second || took > 11*time.Second {
				t.Errorf("%v after %v", err, took)
			}
		},
		"working, on the change": func(t *testing.T, s *stage, c *control.Control) {
			a := s.start(t, "web", "")
			a.is(terminal.Waiting, true)
			time.AfterFunc(10*time.Second, func() { a.is(terminal.Working, false) })
			if _, took, err := wait(c, "web", "", "working", time.Minute); err != nil || took < 10*time.Second || took > 11*time.Second {
				t.Errorf("%v after %v", err, took)
			}
		},
		"done is the end": func(t *testing.T, s *stage, c *control.Control) {
			a := s.start(t, "web", "")
			time.AfterFunc(10*time.Second, func() { a.Stop(context.Background()) })
			info, took, err := wait(c, "web", "", "done", time.Minute)
			if err != nil || info.Status != control.Exited || info.ExitCode == nil || *info.ExitCode != -1 || info.Signal == "" || info.Outcome != terminal.Stopped || took < 10*time.Second {
				t.Errorf("%+v, %v, %v", info, took, err)
			}
		},
		"it ends without": func(t *testing.T, s *stage, c *control.Control) {
			a := s.start(t, "web", "")
			time.AfterFunc(10*time.Second, func() { a.Stop(context.Background()) })
			if _, took, err := wait(c, "web", "", "idle", time.Minute); !errors.Is(err, control.ErrExited) || took > 20*time.Second {
				t.Errorf("%v after %v", err, took)
			}
		},
		"the caller goes away": func(t *testing.T, s *stage, c *control.Control) {
			s.start(t, "web", "dev")
			for _, group := range []string{"", "dev"} {
				id := "web"
				if group != "" {
					id = ""
				}
				gone := errors.New("gone")
				ctx, cancel := context.WithCancelCause(context.Background())
				time.AfterFunc(time.Second, func() { cancel(gone) })
				begin := time.Now()
				if _, err := c.Wait(ctx, id, group, "idle", time.Minute); !errors.Is(err, gone) || time.Since(begin) != time.Second {
					t.Errorf("group %q: %v after %v", group, err, time.Since(begin))
				}
			}
		},
		"the id wins over the group": func(t *testing.T, s *stage, c *control.Control) {
			s.start(t, "web", "")
			s.start(t, "other", "dev").is(terminal.Waiting, true)
			if _, _, err := wait(c, "web", "dev", "idle", time.Second); !errors.Is(err, control.ErrTimeout) {
				t.Error(err)
			}
		},
		"of a group the first in the order of starts": func(t *testing.T, s *stage, c *control.Control) {
			s.start(t, "a", "dev")
			b, second := s.start(t, "b", "dev"), s.start(t, "c", "dev")
			time.AfterFunc(10*time.Second, func() { second.is(terminal.Waiting, true); b.is(terminal.Waiting, true) })
			if info, _, err := wait(c, "", " dev ", "idle", time.Minute); err != nil || info.Name != "b" {
				t.Errorf("%+v, %v", info, err)
			}
		},
		"one that joins the group counts, one that leaves does not": func(t *testing.T, s *stage, c *control.Control) {
			s.start(t, "a", "dev")
			leaves, joins := s.start(t, "b", "dev"), s.start(t, "c", "")
			time.AfterFunc(10*time.Second, func() {
				c.SetGroup(context.Background(), "b", "")
				leaves.is(terminal.Waiting, true)
			})
			time.AfterFunc(20*time.Second, func() {
				joins.is(terminal.Waiting, true)
				c.SetGroup(context.Background(), "c", "dev")
			})
			if info, took, err := wait(c, "", "dev", "idle", time.Minute); err != nil || info.Name != "c" || info.Group != "dev" || took < 20*time.Second || took > 21*time.Second {
				t.Errorf("%+v, %v, %v", info, took, err)
			}
		},
		"one that leaves the group and comes back counts": func(t *testing.T, s *stage, c *control.Control) {
			s.start(t, "a", "dev")
			b := s.start(t, "b", "dev")
			time.AfterFunc(10*time.Second, func() {
				c.SetGroup(context.Background(), "b", "")
				b.is(terminal.Waiting, true)
			})
			time.AfterFunc(20*time.Second, func() { c.SetGroup(context.Background(), "b", "dev") })
			if info, took, err := wait(c, "", "dev", "idle", time.Minute); err != nil || info.Name != "b" || took < 20*time.Second || took > 21*time.Second {
				t.Errorf("%+v, %v, %v", info, took, err)
			}
		},
		"a group ends when every one has": func(t *testing.T, s *stage, c *control.Control) {
			a, b := s.start(t, "a", "dev"), s.start(t, "b", "dev")
			time.AfterFunc(10*time.Second, func() { a.Stop(context.Background()) })
			time.AfterFunc(20*time.Second, func() { b.Stop(context.Background()) })
			if _, took, err := wait(c, "", "dev", "idle", time.Minute); !errors.Is(err, control.ErrExited) || took < 20*time.Second || took > 30*time.Second {
				t.Errorf("%v after %v", err, took)
			}
		},
		"a group's time": func(t *testing.T, s *stage, c *control.Control) {
			s.start(t, "a", "dev")
			if _, took, err := wait(c, "", "dev", "idle", 7*time.Second); !errors.Is(err, control.ErrTimeout) || took != 7*time.Second {
				t.Errorf("%v after %v", err, took)
			}
			if _, took, err := wait(c, "", "dev", "idle", 0); !errors.Is(err, control.ErrTimeout) || took != control.DefaultWaitTimeout {
				t.Errorf("%v after %v", err, took)
			}
		},
		"the first of two with one name, and an id before a name": func(t *testing.T, s *stage, c *control.Control) {
			first, second := s.start(t, "same", ""), s.start(t, "same", "")
			third := s.start(t, second.Info().ID, "")
			for _, f := range []struct {
				name string
				want *actor
			}{{"same", first}, {second.Info().ID, second}, {third.Info().ID, third}} {
				f.want.is(terminal.Waiting, true)
				if info, _, err := wait(c, f.name, "", "idle", time.Second); err != nil || info.ID != f.want.Info().ID {
					t.Errorf("%s: %+v, %v", f.name, info, err)
				}
				f.want.is(terminal.Working, false)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := newStage(t)
				f(t, s, c)
			})
		})
	}
}

func wait(c *control.Control, id, group, state string, timeout time.Duration) (control.SessionInfo, time.Duration, error) {
	begin := time.Now()
	info, err := c.Wait(context.Background(), id, group, state, timeout)
	return info, time.Since(begin), err
}

// TestGuess pins what is believed of a terminal that does not tell, by what it shows.
func TestGuess(t *testing.T) {
	for text, want := range map[string]control.State{
		"user@host:~$ ":            control.Idle,
		"# ":                       control.Idle,
		"compiling":                control.Working,
		"Continue? [y/N] ":         control.Blocked,
		"Password: ":               control.Blocked,
		">>> ":                     control.Blocked,
		"\x1b[1mContinue?\x1b[0m ": control.Blocked,
		"done: 100%\n":             control.Working,
	} {
		synctest.Test(t, func(t *testing.T) {
			m := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{"show": func(p *memterm.Process) terminal.Exit {
				p.Stdout.Write([]byte(text))
				p.Sleep(time.Hour)
				return memterm.Code(0)
			}}})
			defer m.Close()
			c := control.New(plainly{m}, nil)
			defer c.Close()
			if _, err := m.Start(t.Context(), terminal.Command{Args: []string{"show"}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond)
			if now, err := c.List(t.Context(), ""); err != nil || now[0].AgentState != control.Working {
				t.Errorf("%q, just now: %+v, %v", text, now, err)
			}
			time.Sleep(time.Minute)
			later, err := c.List(t.Context(), "")
			if err != nil || later[0].AgentState != want || later[0].Evidence == "" {
				t.Errorf("%q: %+v, %v, want %s", text, later, err, want)
			}
		})
	}
}

// plainly is a Manager whose terminals do no more than they must.
type plainly struct{ terminal.Manager }

func (m plainly) List() []terminal.Terminal {
	all := m.Manager.List()
	for i, t := range all {
		all[i] = struct{ terminal.Terminal }{t}
	}
	return all
}

// TestSendComesBehindTheCommand pins that what is sent while the shell of New is not
// ready yet is typed behind the command.
func TestSendComesBehindTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{"slow": func(p *memterm.Process) terminal.Exit {
			for range 50 { // as long as it writes it is at no prompt
				p.Stdout.Write([]byte("."))
				p.Sleep(100 * time.Millisecond)
			}
			p.Sleep(time.Hour)
			return memterm.Code(0)
		}}})
		defer m.Close()
		c := control.New(m, &control.Options{Shell: "slow"})
		defer c.Close()
		begin := time.Now()
		id, err := c.New(t.Context(), control.NewSpec{Command: "first"})
		if err != nil || time.Since(begin) != 2*time.Second {
			t.Fatalf("New: %v after %v", err, time.Since(begin))
		}
		if all, err := c.List(t.Context(), ""); err != nil || all[0].AgentState != control.Working || all[0].Command != "first" {
			t.Errorf("while its command is typed: %+v, %v", all, err)
		}
		if err := c.Send(t.Context(), id, "second\r"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		out, err := c.Read(t.Context(), id, 0)
		if first, second := strings.Index(out, "first"), strings.Index(out, "second"); err != nil || first < 0 || second < first {
			t.Errorf("typed: %q, %v", out, err)
		}
	})
}

// A late Manager enters what it has started a little later, as one does whose commands
// run before it is told so.
type late struct {
	terminal.Manager
	after time.Duration
}

func (m late) List() (entered []terminal.Terminal) {
	for _, t := range m.Manager.List() {
		if time.Since(t.Info().Started) >= m.after {
			entered = append(entered, t)
		}
	}
	return entered
}

// A command that names itself at once is found, also where it runs before it is
// entered. What does not exist is an error within half a second, and at once where
// nothing runs.
func TestACommandThatNamesItselfAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memterm.New(nil)
		defer m.Close()
		c := control.New(late{m, 100 * time.Millisecond}, nil)
		defer c.Close()
		fails := func(within time.Duration) {
			t.Helper()
			start := time.Now()
			if _, err := c.Read(t.Context(), "nobody", 0); !errors.Is(err, control.ErrUnknown) || time.Since(start) > within {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		}
		fails(0)
		term, err := m.Start(t.Context(), terminal.Command{Args: []string{"sleep", "1h"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Rename(t.Context(), term.Info().ID, "myself"); err != nil {
			t.Error(err)
		}
		fails(time.Second / 2)
	})
}
