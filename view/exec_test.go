package view_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/view"
)

// One call, as with os/exec; and what came of a command that failed.
func ExampleExec() {
	m := manager() // localterm.New(nil) runs processes
	defer m.Close()
	out, err := view.Exec(context.Background(), m, terminal.Command{Line: "lines 3", OutputLimit: 16})
	fmt.Printf("%q %v %v\n", out.Text, out.Truncated, err)
	_, err = view.Exec(context.Background(), m, terminal.Command{Line: "exit 3"})
	failed, ok := errors.AsType[*view.ExitError](err)
	if !ok {
		log.Fatal(err)
	}
	fmt.Println(failed.Info.Outcome, failed.Info.Exit)
	// Output:
	// "0000001\n0000002\n" true <nil>
	// exited exit code 3
}

func TestExec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		programs := memterm.Standard()
		programs["red"] = func(p *memterm.Process) terminal.Exit {
			io.WriteString(p.Stdout, "\x1b[31mred\x1b[0m\r\n")
			p.Sleep(time.Second)
			io.WriteString(p.Stderr, "and more\n")
			return memterm.Code(0)
		}
		m := memterm.New(&memterm.Options{Programs: programs, MaxTerminals: 1})
		defer m.Close()
		run := func(ctx context.Context, cmd terminal.Command) (view.Text, error) {
			start := time.Now()
			out, err := view.Exec(ctx, m, cmd)
			if m.Busy() {
				t.Errorf("%v is done and runs", cmd)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("%v took %v", cmd, took)
			}
			return out, err
		}
		out, err := run(t.Context(), terminal.Command{Line: "red"})
		if err != nil || out.Text != "red\nand more\n" || out.Truncated || !out.Info.Exit.Success() {
			t.Errorf("%+v, %v", out, err)
		}
		// However it ended, the error says so and is of one type.
		for line, want := range map[string]string{"exit 3": "exited with code 3 after 0s", "sleep 1h": "reached its timeout and was stopped after 1s"} {
			out, err := run(t.Context(), terminal.Command{Line: line, Timeout: time.Second})
			failed, ok := errors.AsType[*view.ExitError](err)
			if !ok || !strings.Contains(err.Error(), line+" "+want) || failed.Info.ID != out.Info.ID {
				t.Errorf("%s: %+v, %v; want an ExitError that says %q", line, out, err, want)
			}
		}
		// The end of ctx stops the command.
		because := errors.New("because")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, because)
		defer cancel()
		out, err = run(ctx, terminal.Command{Line: "sleep 1h"})
		if _, ok := errors.AsType[*view.ExitError](err); !ok || !errors.Is(err, because) || out.Info.Outcome != terminal.Stopped {
			t.Errorf("a ctx that ends: %+v, %v", out, err)
		}
		if out, err := run(ctx, terminal.Command{Line: "red"}); !errors.Is(err, because) || out.Info.ID != "" {
			t.Errorf("a ctx that has ended: %+v, %v", out, err)
		}
		if out, err := run(t.Context(), terminal.Command{}); !errors.Is(err, terminal.ErrBadCommand) || out.Info.ID != "" {
			t.Errorf("no command: %+v, %v", out, err)
		}
	})
}

// What ReadAll returns ends at its Cursor, and is the tail.
func TestReadAll(t *testing.T) {
	bubble(t, 1<<20, func(t *testing.T, s *script) {
		s.write("one\r\n\x1b[1mtwo\x1b[0m\r\n")
		all, err := view.ReadAll(t.Context(), s, 100, 0)
		if err != nil || all.Text != "one\ntwo\n" || all.Truncated || all.Info.Outcome != terminal.Running {
			t.Errorf("%+v, %v", all, err)
		}
		go func() { time.Sleep(time.Second); s.write("three\n") }()
		if all, err = view.ReadAll(t.Context(), s, 8, time.Minute); err != nil || all.Text != "o\nthree\n" || !all.Truncated {
			t.Errorf("%+v, %v", all, err)
		}
		s.write("four\n")
		if out, err := s.ReadOutput(t.Context(), all.Cursor, 0); err != nil || out.Text != "four\n" {
			t.Errorf("the next read: %+v, %v", out, err)
		}
		s.exit()
	})
}

// A Pager may begin at a cursor, or at the end; the numbers are those of all lines.
func TestPagerFrom(t *testing.T) {
	bubble(t, 1<<20, func(t *testing.T, s *script) {
		var ends []int64 // cursors behind each line
		for i := range 600 {
			s.write(fmt.Sprintf("line %d \xff%s\n", i+1, strings.Repeat("x", i)))
			out, err := s.ReadOutput(t.Context(), terminal.End, 0)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, out.NextCursor)
		}
		check := func(name string, from, want int64) {
			t.Helper()
			page, err := view.NewPager(s, &view.PagerOptions{From: from}).Read(t.Context(), 0, 1)
			if err != nil || page.From != want || page.Total != 600 {
				t.Errorf("%s: begins with line %d of %d, %v; want line %d", name, page.From, page.Total, err, want)
			}
			if want <= 600 && (len(page.Lines) != 1 || !strings.HasPrefix(page.Lines[0], fmt.Sprintf("line %d ", want))) {
				t.Errorf("%s: %q", name, page.Lines)
			}
		}
		check("the start", 0, 1)
		check("inside the first line", 3, 1)
		for _, n := range []int{1, 2, 300, 599, 600} {
			check(fmt.Sprintf("behind line %d", n), ends[n-1], int64(n+1))
			check(fmt.Sprintf("before the end of line %d", n), ends[n-1]-1, int64(n))
		}
		check("the end", terminal.End, 601)
		p := view.NewPager(s, &view.PagerOptions{From: terminal.End})
		if unread, err := p.Unread(t.Context()); unread || err != nil {
			t.Errorf("unread at the end: %v, %v", unread, err)
		}
		s.write("one ")
		s.write("more\n")
		if page, err := p.Read(t.Context(), 0, 0); err != nil || len(page.Lines) != 1 || page.Lines[0] != "one more" || page.From != 601 {
			t.Errorf("what comes next: %+v, %v", page, err)
		}
		s.exit()
	})
}
