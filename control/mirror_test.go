package control_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// mirrored runs f with a Mirror of a program that writes what f tells it to.
func mirrored(t *testing.T, limit int, f func(t *testing.T, m *control.Mirror, write func(string))) {
	synctest.Test(t, func(t *testing.T) {
		texts := make(chan string)
		manager := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{"write": func(p *memterm.Process) terminal.Exit {
			for s := range texts {
				p.Stdout.Write([]byte(s))
			}
			return memterm.Code(0)
		}}})
		defer manager.Close()
		term, err := manager.Start(t.Context(), terminal.Command{Args: []string{"write"}, Size: terminal.Size{Rows: 5, Cols: 20}, OutputLimit: limit})
		if err != nil {
			t.Fatal(err)
		}
		f(t, control.NewMirror(term, terminal.Size{}), func(s string) { texts <- s; time.Sleep(time.Millisecond) })
		close(texts)
	})
}

// TestMirror pins that the screen comes first, then what follows: with the carriage
// returned where a line feed does that, and no sequence torn.
func TestMirror(t *testing.T) {
	mirrored(t, 0, func(t *testing.T, m *control.Mirror, write func(string)) {
		next := func(want string, painted bool) {
			t.Helper()
			shown, err := m.Next(t.Context())
			if err != nil || shown.Painted != painted || (painted && !strings.Contains(shown.Text, want)) || (!painted && shown.Text != want) {
				t.Errorf("%+v, %v, want %q", shown, err, want)
			}
		}
		write("one\ntwo \x1b[3")
		next("\x1b[1;1Hone\x1b[2;1Htwo", true)
		write("1mred\n")
		next("\x1b[31mred\r\n", false)
		write("returned\r\n\x1b[?1049h\nfull\n")
		next("returned\r\n\x1b[?1049h\nfull\n", false)
		write("\x1b[?1049lback\n")
		next("\x1b[?1049lback\r\n", false)
		m.Resize(terminal.Size{Rows: 3, Cols: 10})
		m.Repaint()
		next("back", true)
		if m.Partial() || m.Alternate() {
			t.Error("it is partial, or alternate")
		}
	})
}

// TestMirrorIsBehind pins that what was evicted unseen is not followed: the screen is
// painted, and known to be partial until it is cleared.
func TestMirrorIsBehind(t *testing.T) {
	mirrored(t, 1<<10, func(t *testing.T, m *control.Mirror, write func(string)) {
		write("first\n")
		if shown, err := m.Next(t.Context()); err != nil || !shown.Painted {
			t.Fatalf("%+v, %v", shown, err)
		}
		write(strings.Repeat("missed\n", 1000) + "last")
		if shown, err := m.Next(t.Context()); err != nil || !shown.Painted || !strings.Contains(shown.Text, "last") || len(shown.Text) > 1000 || !m.Partial() {
			t.Errorf("%+v, %v, partial: %v", shown, err, m.Partial())
		}
		write("\x1b[H\x1b[2J")
		if shown, err := m.Next(t.Context()); err != nil || shown.Painted || m.Partial() {
			t.Errorf("%+v, %v, partial: %v", shown, err, m.Partial())
		}
	})
}

// TestMirrorCatchesUp pins that of much that is kept not all is shown: a view that is
// far behind goes on with the screen as it is.
func TestMirrorCatchesUp(t *testing.T) {
	mirrored(t, 0, func(t *testing.T, m *control.Mirror, write func(string)) {
		write("first\n")
		if _, err := m.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		write(strings.Repeat("missed\n", 60_000) + "last")
		text, painted := "", false
		for !strings.Contains(text, "last") {
			shown, err := m.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			text += shown.Text
			painted = painted || shown.Painted
		}
		if !painted || len(text) > 300_000 || m.Partial() {
			t.Errorf("painted: %v, %d bytes, partial: %v", painted, len(text), m.Partial())
		}
	})
}

// TestMirrorWaitsForAnUpdate pins that no screen is painted in the middle of an update
// that the program announces, but not for long.
func TestMirrorWaitsForAnUpdate(t *testing.T) {
	mirrored(t, 0, func(t *testing.T, m *control.Mirror, write func(string)) {
		write("\x1b[?2026hhalf")
		time.AfterFunc(100*time.Millisecond, func() { write(" whole\x1b[?2026l") })
		if shown, err := m.Next(t.Context()); err != nil || !strings.Contains(shown.Text, "half whole") {
			t.Errorf("%+v, %v", shown, err)
		}
		write("\x1b[?2026hnever ends")
		m.Repaint()
		begin := time.Now()
		if shown, err := m.Next(t.Context()); err != nil || !strings.Contains(shown.Text, "never ends") || time.Since(begin) != time.Second {
			t.Errorf("%+v, %v after %v", shown, err, time.Since(begin))
		}
	})
}
