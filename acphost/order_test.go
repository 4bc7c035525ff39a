package acphost_test

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/acphost"
	"github.com/termbridge/termbridge/fakeconn"
	"github.com/termbridge/termbridge/terminal"
)

// A release that comes right behind the update that embeds its terminal must
// not overtake it, however busy the client is.
func TestAReleaseDoesNotOvertakeUpdates(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			c := fakeconn.New(nil)
			x, err := c.Conn().CreateTerminal(t.Context(), acp.CreateTerminalRequest{SessionId: "s", Command: "echo", Args: []string{"hello"}})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, call := range []acp.ToolCallId{"a", "b", "c", "d", "e"} {
				c.Conn().SessionUpdate(t.Context(), notification(acp.StartToolCall(call, "title", acp.WithStartContent(refs(x.TerminalId)))))
			}
			c.Conn().ReleaseTerminal(t.Context(), acp.ReleaseTerminalRequest{SessionId: "s", TerminalId: x.TerminalId})
			if n := len(c.Cards()); n != 5 {
				t.Errorf("%d cards of 5", n)
			}
			for _, card := range c.Cards() {
				if card.Visible() != "hello\n" {
					t.Errorf("card %s shows %q", card.ID, card.Visible())
				}
			}
			if err := c.Close(); err != nil {
				t.Errorf("%v\n%s", err, c.Transcript())
			}
		})
	}
}

func TestReader(t *testing.T) {
	const update = `{"method":"session/update"}` + "\n"
	const release = `{"method":"terminal/release"}` + "\n"
	tests := []struct {
		name, in string
		wait     time.Duration // nobody handles the updates
	}{
		{"nothing", "", 0},
		{"a line", update, 0},
		{"no line end", update + "half", 0},
		{"a release behind nothing", release + update, 0},
		{"a release behind updates that nobody handles", update + update + release, time.Second},
		{"a second release does not wait for the same updates", update + release + release, time.Second},
		{"no JSON", "{\n\n[]\nnull\n" + release, 0},
		{"a line without an end", strings.Repeat("x", 11<<20), 0},
		{"a long update", update[:1] + strings.Repeat(" ", 1<<20) + update[1:] + release, time.Second},
		{"a long line", strings.Repeat("x", 1<<20) + "\n" + release, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := acphost.New(func(acp.SessionId) terminal.Manager { return nil }, nil)
				start := time.Now()
				got, err := io.ReadAll(h.Reader(strings.NewReader(test.in)))
				if err != nil || string(got) != test.in {
					t.Errorf("read %.40q, %v", got, err)
				}
				if took := time.Since(start); took != test.wait {
					t.Errorf("took %v, want %v", took, test.wait)
				}
				if err := h.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestReaderPassesErrorsOn(t *testing.T) {
	h := acphost.New(func(acp.SessionId) terminal.Manager { return nil }, nil)
	if _, err := io.ReadAll(h.Reader(iotest.ErrReader(io.ErrNoProgress))); err != io.ErrNoProgress {
		t.Errorf("ReadAll returned %v", err)
	}
	h.Close()
}
