package acpterm_test

import (
	"testing"
	"testing/synctest"

	"github.com/termbridge/termbridge/acpterm"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/terminaltest"
)

func TestManager(t *testing.T) {
	manager := func(t terminaltest.T, o *acpterm.Options) terminal.Manager {
		c := fakeconn.New(&fakeconn.Options{Programs: terminaltest.Programs(), Memterm: &memterm.Options{MaxTerminals: 1000}})
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("the client: %v\n%s", err, c.Transcript())
			}
		})
		id, err := c.NewSession(t.Context(), "/")
		if err != nil {
			t.Fatalf("new session: %v", err)
		}
		return acpterm.New(c.Conn(), id, o)
	}
	terminaltest.Test(t, terminaltest.Config{
		New: func(t terminaltest.T) terminal.Manager { return manager(t, nil) },
		Limited: func(t terminaltest.T, l terminaltest.Limits) terminal.Manager {
			return manager(t, &acpterm.Options{
				MaxTerminals: l.MaxTerminals,
				OutputLimit:  l.OutputLimit,
				ManagerBytes: l.ManagerBytes,
				WaitForSlot:  l.WaitForSlot,
			})
		},
		Bubble: synctest.Test,
	})
}
