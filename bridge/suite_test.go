package bridge_test

import (
	"testing"
	"testing/synctest"

	acp "github.com/coder/acp-go-sdk"
	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/bridge"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/terminaltest"
)

// managed returns a Manager of a Bridge between a fake client and memterm.
func managed(t terminaltest.T, o bridge.Options, l terminaltest.Limits, of func(*bridge.Bridge, *bridge.State) terminal.Manager) terminal.Manager {
	c := fakeconn.New(&fakeconn.Options{
		NoTerminal: o.Policy == bridge.Local,
		Programs:   terminaltest.Programs(),
		Memterm:    &memterm.Options{MaxTerminals: 1000},
	})
	o.MaxTerminals = l.MaxTerminals
	o.Host = acpterm.NoHost
	o.Local = func(acp.SessionId) terminal.Manager {
		return memterm.New(&memterm.Options{
			Programs:     terminaltest.Programs(),
			MaxTerminals: l.MaxTerminals,
			OutputLimit:  l.OutputLimit,
			ManagerBytes: l.ManagerBytes,
		})
	}
	b := bridge.New(c.Conn(), c.Init(), &o)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("the bridge: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("the client: %v\n%s", err, c.Transcript())
		}
	})
	id, err := c.NewSession(t.Context(), "/")
	if err != nil {
		t.Fatalf("new session: %v", err)
	}
	s, err := b.Session(id, "/")
	if err != nil {
		t.Fatalf("session: %v", err)
	}
	return of(b, s)
}

func TestManagers(t *testing.T) {
	t.Parallel()
	ofState := func(_ *bridge.Bridge, s *bridge.State) terminal.Manager { return s.Manager() }
	ofBridge := func(b *bridge.Bridge, _ *bridge.State) terminal.Manager { return b.Manager() }
	for _, route := range []struct {
		name  string
		opts  bridge.Options
		local bool
		of    func(*bridge.Bridge, *bridge.State) terminal.Manager
	}{
		{"client", bridge.Options{Policy: bridge.Require}, false, ofState},
		{"local", bridge.Options{Policy: bridge.Local}, true, ofState},
		{"bridge", bridge.Options{}, true, ofBridge}, // input goes to the local route
	} {
		t.Run(route.name, func(t *testing.T) {
			exact := route.opts.Policy == bridge.Local
			terminaltest.Test(t, terminaltest.Config{
				New: func(t terminaltest.T) terminal.Manager {
					return managed(t, route.opts, terminaltest.Limits{}, route.of)
				},
				Limited: func(t terminaltest.T, l terminaltest.Limits) terminal.Manager {
					if l.WaitForSlot {
						return nil // the model is told, and decides
					}
					if !exact && (l.OutputLimit != 0 || l.ManagerBytes != 0) {
						return nil // those are the client's, and of acpterm's own suite
					}
					return managed(t, route.opts, l, route.of)
				},
				Input: route.local, TTY: exact, Tree: exact, Signal: exact, Exact: exact,
				Bubble: synctest.Test,
			})
		})
	}
}
