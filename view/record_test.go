package view_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/terminaltest"
	"github.com/termbridge/termbridge/view"
)

// One call returns the output, the state and the times of one instant.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memterm.New(&memterm.Options{Programs: terminaltest.Programs()})
		defer m.Close()
		began := time.Now()
		reads := func(r *view.Record) (list []string) {
			for _, read := range r.Reads {
				list = append(list, fmt.Sprintf("%v %d %q%s", read.At.Sub(began), read.Bytes, read.Head, read.Stream))
			}
			return list
		}
		term := start(t, m, terminal.Command{Args: []string{"drip", "1s", "a", "b", "c"}})
		ev, err := view.WaitFor(t.Context(), term, view.Until{Timeout: 2500 * time.Millisecond, Record: true})
		if err != nil || ev.Reason != view.ByTimeout {
			t.Fatalf("%s, %v", ev.Reason, err)
		}
		r := ev.Record
		if r.Text != "a\nb\n" || r.Cursor != 4 || r.State != terminal.Working || !r.Began.Equal(began) || r.Ended.Sub(began) != 2500*time.Millisecond {
			t.Errorf("%+v", r)
		}
		if diff := cmp.Diff([]string{`1s 2 "a\n"`, `2s 2 "b\n"`}, reads(r)); diff != "" {
			t.Error(diff)
		}
		if info := ev.Info; info.FirstOutput.Sub(began) != time.Second || info.LastOutput.Sub(began) != 2*time.Second {
			t.Errorf("first output %v, last output %v", info.FirstOutput, info.LastOutput)
		}

		// The next wait goes on there, and ends with the command.
		ev, err = view.WaitFor(t.Context(), term, view.Until{Cursor: ev.Cursor, Record: true})
		if r = ev.Record; err != nil || ev.Reason != view.ByEnd || r.Text != "c\n" || r.State != terminal.Finished || r.Evidence.Reason != "exit code 0" {
			t.Errorf("%s, %v: %+v", ev.Reason, err, r)
		}
		if diff := cmp.Diff([]string{`3s 2 "c\n"`}, reads(r)); diff != "" {
			t.Error(diff)
		}

		// The output is all of that instant, also where it goes on behind a match.
		term = start(t, m, terminal.Command{Args: []string{"print", "one two three"}})
		ev, _ = view.WaitFor(t.Context(), term, view.Until{Regexp: regexp.MustCompile("t."), Record: true})
		if ev.Match != "tw" || ev.Cursor != 6 || ev.Record.Text != "one two three" || ev.Record.Cursor != 13 {
			t.Errorf("%+v, %+v", ev, ev.Record)
		}

		// Also of a wait whose context ends, which has seen what was there.
		term = start(t, m, terminal.Command{Args: []string{"hold"}})
		because := errors.New("because")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, because)
		defer cancel()
		ev, err = view.WaitFor(ctx, term, view.Until{Record: true})
		if !errors.Is(err, because) || ev.Record.Text != "ready\n" || ev.Record.State != terminal.Working {
			t.Errorf("%v: %+v", err, ev.Record)
		}

		// What is kept is the end, and bounded.
		term = start(t, m, terminal.Command{Args: []string{"lines", "400000"}, OutputLimit: 4 << 20})
		ev, _ = view.WaitFor(t.Context(), term, view.Until{Record: true})
		if text := ev.Record.Text; len(text) != 1<<20 || !strings.HasSuffix(text, "0399999\n") || len(ev.Record.Reads) > 1000 {
			t.Errorf("%d bytes, …%q, %d reads", len(text), text[len(text)-20:], len(ev.Record.Reads))
		}
		if ev, _ = view.WaitFor(t.Context(), term, view.Until{}); ev.Record != nil {
			t.Errorf("nobody has asked for a record")
		}
	})
}
