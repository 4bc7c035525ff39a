package view_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// A step is what a script does after a pause.
type step struct {
	pause time.Duration
	text  string
}

// play has s write its steps and, if exit is set, end. The caller waits for it.
func play(s *script, exit bool, steps ...step) *sync.WaitGroup {
	var playing sync.WaitGroup
	playing.Go(func() {
		for _, st := range steps {
			time.Sleep(st.pause)
			s.write(st.text)
		}
		if exit {
			s.exit()
		}
	})
	return &playing
}

func TestWaitFor(t *testing.T) {
	const sec = time.Second
	re := regexp.MustCompile
	for _, c := range []struct {
		name   string
		steps  []step
		exit   bool
		until  view.Until
		want   string
		after  time.Duration
		match  string
		groups []string
		rest   string // the output behind the cursor in the end
	}{
		{name: "output", steps: []step{{sec, "a"}, {sec, "b"}}, until: view.Until{Output: true}, want: view.ByOutput, after: sec, rest: "b"},
		{name: "output that is there", steps: []step{{0, "a"}, {5 * sec, "b"}}, until: view.Until{Output: true, Quiet: sec}, want: view.ByOutput, rest: "b"},
		{name: "quiet from the start", until: view.Until{Quiet: 3 * sec}, want: view.ByQuiet, after: 3 * sec},
		{name: "quiet after output", steps: []step{{sec, "a"}, {sec, "b"}, {sec, "c"}, {4 * sec, "d"}}, until: view.Until{Quiet: 2 * sec}, want: view.ByQuiet, after: 5 * sec, rest: "d"},
		{name: "a literal", steps: []step{{sec, "no"}, {sec, "ready now"}}, until: view.Until{Literal: "ready"}, want: view.ByMatch, after: 2 * sec, match: "ready", rest: " now"},
		{name: "a literal in pieces", steps: []step{{sec, "are you re"}, {sec, "a"}, {sec, "dy?"}}, until: view.Until{Literal: "ready"}, want: view.ByMatch, after: 3 * sec, match: "ready", rest: "?"},
		{name: "a literal over a line end that is CRLF", steps: []step{{sec, "a\r"}, {sec, "\nb"}}, until: view.Until{Literal: "a\nb"}, want: view.ByMatch, after: 2 * sec, match: "a\nb"},
		{name: "a literal in colours", steps: []step{{sec, "\x1b[1mre\x1b[3"}, {sec, "2mady\x1b[0m go"}}, until: view.Until{Literal: "ready"}, want: view.ByMatch, after: 2 * sec, match: "ready", rest: "\x1b[0m go"},
		{name: "not in a title", steps: []step{{sec, "\x1b]0;ready ✳ ready\a"}, {sec, "\x1b_ready\x1b\\"}, {sec, "x"}}, exit: true, until: view.Until{Literal: "ready"}, want: view.ByEnd, after: 3 * sec},
		{name: "a regexp", steps: []step{{sec, "port: "}, {sec, "8080\nmore"}}, until: view.Until{Regexp: re(`port: (\d+)(x)?\n`)}, want: view.ByMatch, after: 2 * sec, match: "port: 8080\n", groups: []string{"8080", ""}, rest: "more"},
		{name: "a prompt", steps: []step{{sec, ">>> 1\r\n"}, {sec, "1\r\n>>> "}}, until: view.Until{Regexp: re(`(?m)^>>> $`)}, want: view.ByMatch, after: 2 * sec, match: ">>> "},
		{name: "^ is the cursor", steps: []step{{sec, "xab"}, {sec, "ab"}}, exit: true, until: view.Until{Regexp: re(`^ab`)}, want: view.ByEnd, after: 2 * sec},
		{name: "^ is not where long output is cut", steps: []step{{sec, strings.Repeat("b", 20<<10)}, {sec, "b"}, {sec, "b"}}, exit: true, until: view.Until{Regexp: re(`(?m)^b{3}c|\Ab{2}$`)}, want: view.ByEnd, after: 3 * sec},
		{name: "a regexp whose end was there before", steps: []step{{sec, "foo"}, {sec, "x"}}, until: view.Until{Regexp: re(`foo\B`)}, want: view.ByMatch, after: 2 * sec, match: "foo", rest: "x"},
		{name: "behind a lot of output", steps: []step{{0, strings.Repeat("some line\n", 50_000) + "ready!\n"}}, until: view.Until{Literal: "ready"}, want: view.ByMatch, match: "ready", rest: "!\n"},
		{name: "a regexp behind a lot of output", steps: []step{{0, strings.Repeat("some line\n", 50_000) + "ready!\n"}}, until: view.Until{Regexp: re("r.ady"), Quiet: sec}, want: view.ByMatch, match: "ready", rest: "!\n"},
		{name: "in bytes that are no UTF-8", steps: []step{{0, "\xff\xffready\xfe\xfe!"}}, until: view.Until{Literal: "ready"}, want: view.ByMatch, match: "ready", rest: "\ufffd\ufffd!"},
		{name: "since the cursor only", steps: []step{{0, "a"}, {sec, "b"}}, exit: true, until: view.Until{Cursor: 1, Literal: "ab"}, want: view.ByEnd, after: sec},
		{name: "the end", steps: []step{{sec, "a"}}, exit: true, until: view.Until{}, want: view.ByEnd, after: sec},
		{name: "a match in the last output goes before the end", steps: []step{{sec, "ready"}}, exit: true, until: view.Until{Literal: "ready"}, want: view.ByMatch, after: sec, match: "ready"},
		{name: "the timeout", steps: []step{{sec, "a"}}, until: view.Until{Literal: "b", Timeout: 4 * sec}, want: view.ByTimeout, after: 4 * sec},
		{name: "the ceiling, which is lower", until: view.Until{Timeout: time.Hour, Ceiling: 9 * sec}, want: view.ByCeiling, after: 9 * sec},
		{name: "the ceiling, which is higher", until: view.Until{Timeout: sec, Ceiling: 9 * sec}, want: view.ByTimeout, after: sec},
		{name: "the default ceiling", until: view.Until{Timeout: time.Hour}, want: view.ByCeiling, after: view.DefaultCeiling},
		{name: "no ceiling", until: view.Until{Timeout: time.Hour, Ceiling: -1}, want: view.ByTimeout, after: time.Hour},
		{name: "no wait, nothing there", steps: []step{{sec, "a"}}, until: view.Until{Output: true, Timeout: -1}, want: view.ByTimeout, rest: "a"},
		{name: "no wait, all is looked at", steps: []step{{0, strings.Repeat("x", 200<<10) + "ready"}}, until: view.Until{Literal: "ready", Timeout: -1}, want: view.ByMatch, match: "ready"},
		{name: "a trickle does not outlast the timeout", steps: []step{{sec, "a"}, {sec, "a"}, {sec, "a"}, {sec, "a"}}, until: view.Until{Quiet: 2 * sec, Timeout: 2500 * time.Millisecond}, want: view.ByTimeout, after: 2500 * time.Millisecond, rest: "aa"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 0, func(t *testing.T, s *script) {
				steps := c.steps
				for len(steps) > 0 && steps[0].pause == 0 {
					s.write(steps[0].text)
					steps = steps[1:]
				}
				playing := play(s, c.exit, steps...)
				start := time.Now()
				ev, err := view.WaitFor(t.Context(), s, c.until)
				if err != nil {
					t.Fatal(err)
				}
				if got := time.Since(start); ev.Reason != c.want || got != c.after {
					t.Errorf("%q after %v, want %q after %v", ev.Reason, got, c.want, c.after)
				}
				if ev.Match != c.match || !cmp.Equal(ev.Groups, c.groups) {
					t.Errorf("match %q %q, want %q %q", ev.Match, ev.Groups, c.match, c.groups)
				}
				if ended := ev.Info.Outcome.Ended(); c.want == view.ByEnd && !ended || !c.exit && ended {
					t.Errorf("the Info says %q", ev.Info.Outcome)
				}
				playing.Wait()
				out, err := s.ReadOutput(t.Context(), ev.Cursor, 0)
				if err != nil || out.Text != c.rest {
					t.Errorf("behind the cursor: %q, %v, want %q", out.Text, err, c.rest)
				}
			})
		})
	}
}

func TestWaitForGoesOnBehindAMatch(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		s.write("\x1b[32mok\x1b[0m 1\r\nok 2\r\nok 3")
		until := view.Until{Literal: "ok", Timeout: time.Second}
		for i := range 3 {
			ev, err := view.WaitFor(t.Context(), s, until)
			if err != nil || ev.Reason != view.ByMatch {
				t.Fatalf("match %d: %q, %v", i, ev.Reason, err)
			}
			until.Cursor = ev.Cursor
		}
		if ev, err := view.WaitFor(t.Context(), s, until); err != nil || ev.Reason != view.ByTimeout {
			t.Errorf("a fourth match: %q, %v", ev.Reason, err)
		}
	})
}

func TestWaitForContextEndsTheWaitOnly(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		s.write("a")
		why := errors.New("the caller went home")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		ev, err := view.WaitFor(ctx, s, view.Until{Literal: "b"})
		if !errors.Is(err, why) || ev.Reason != "" || ev.Info.Outcome != terminal.Running {
			t.Errorf("%q, %v, %q; want no reason, the cause, running", ev.Reason, err, ev.Info.Outcome)
		}
		if ev.Cursor == 0 {
			t.Error("the event does not say how far the wait had got")
		}
		s.write("b") // it still runs
	})
}

func TestWaitForMarksWhatWasEvicted(t *testing.T) {
	bubble(t, 100, func(t *testing.T, s *script) {
		s.write(strings.Repeat("ready", 100))
		s.write(strings.Repeat("x", 100))
		ev, err := view.WaitFor(t.Context(), s, view.Until{Literal: "ready", Quiet: time.Second})
		if err != nil || ev.Reason != view.ByQuiet || !ev.Truncated {
			t.Errorf("%q, truncated %v, %v; want quiet, true", ev.Reason, ev.Truncated, err)
		}
		s.write("ready!")
		ev, err = view.WaitFor(t.Context(), s, view.Until{Literal: "xready", Regexp: regexp.MustCompile("y!")})
		if err != nil || ev.Match != "xready" {
			t.Errorf("match %q, %v", ev.Match, err)
		}
		out, err := s.ReadOutput(t.Context(), ev.Cursor, 0)
		if err != nil || out.Text != "!" {
			t.Errorf("behind the match: %q, %v", out.Text, err)
		}
	})
}

// prompting is a terminal that can tell that its command waits for input.
type prompting struct {
	terminal.Terminal
	mu    sync.Mutex
	state terminal.Activity
	reads int
	err   error
}

func (p *prompting) set(s terminal.Activity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
}

func (p *prompting) ReadActivity(ctx context.Context, cursor int64) (terminal.Activity, terminal.Evidence, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	return p.state, terminal.Evidence{Certainty: terminal.Certain, Reason: fmt.Sprint("since ", cursor)}, p.err
}

func (p *prompting) WaitActivity(ctx context.Context, state terminal.Activity, cursor int64) (terminal.Activity, terminal.Evidence, error) {
	for {
		if s, ev, err := p.ReadActivity(ctx, cursor); s == state || err != nil {
			return s, ev, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return "", terminal.Evidence{}, context.Cause(ctx)
		}
	}
}

func TestWaitForInput(t *testing.T) {

	t.Run("it waits for input", func(t *testing.T) {
		bubble(t, 0, func(t *testing.T, s *script) {
			p := &prompting{Terminal: s.Terminal, state: terminal.Working}
			playing := play(s, false, step{time.Second, "name? "})
			playing.Go(func() { time.Sleep(1020*time.Millisecond + 500*time.Microsecond); p.set(terminal.Waiting) })
			start, after := time.Now(), 1021*time.Millisecond
			ev, err := view.WaitFor(t.Context(), p, view.Until{Input: true, Quiet: time.Minute})
			if err != nil || ev.Reason != view.ByInput || time.Since(start) != after {
				t.Errorf("%q, %v after %v, want input after %v", ev.Reason, err, time.Since(start), after)
			}
			if ev.Evidence.Reason != "since 0" {
				t.Errorf("evidence %+v", ev.Evidence)
			}
			if out, err := s.ReadOutput(t.Context(), ev.Cursor, 0); err != nil || out.Text != "" {
				t.Errorf("behind the cursor: %q, %v, want nothing", out.Text, err)
			}
			playing.Wait()
		})
	})
	t.Run("a match in what it wrote goes before", func(t *testing.T) {
		bubble(t, 0, func(t *testing.T, s *script) {
			s.write("Password: ")
			p := &prompting{Terminal: s.Terminal, state: terminal.Waiting}
			ev, err := view.WaitFor(t.Context(), p, view.Until{Input: true, Literal: "Password"})
			if err != nil || ev.Reason != view.ByMatch {
				t.Errorf("%q, %v, want match", ev.Reason, err)
			}
		})
	})
	t.Run("something else comes first", func(t *testing.T) {
		bubble(t, 0, func(t *testing.T, s *script) {
			p := &prompting{Terminal: s.Terminal, state: terminal.Working}
			playing := play(s, true, step{time.Second, "x"})
			ev, err := view.WaitFor(t.Context(), p, view.Until{Input: true})
			if err != nil || ev.Reason != view.ByEnd {
				t.Errorf("%q, %v, want end", ev.Reason, err)
			}
			playing.Wait()
		})
	})
	t.Run("nobody can tell", func(t *testing.T) {
		bubble(t, 0, func(t *testing.T, s *script) {
			broken := errors.New("no permission")
			p := &prompting{Terminal: s.Terminal, state: terminal.Working, err: broken}
			if _, err := view.WaitFor(t.Context(), p, view.Until{Input: true}); !errors.Is(err, broken) {
				t.Errorf("input only: %v, want the error", err)
			}
			ev, err := view.WaitFor(t.Context(), p, view.Until{Input: true, Quiet: time.Second})
			if err != nil || ev.Reason != view.ByQuiet {
				t.Errorf("or quiet: %q, %v, want quiet", ev.Reason, err)
			}
		})
	})
	t.Run("a terminal that never can tell", func(t *testing.T) {
		bubble(t, 0, func(t *testing.T, s *script) {
			if ev, err := view.WaitFor(t.Context(), s, view.Until{Input: true}); !errors.Is(err, errors.ErrUnsupported) || ev.Info.ID == "" {
				t.Errorf("input only: %v, want unsupported, and the Info", err)
			}
			ev, err := view.WaitFor(t.Context(), s, view.Until{Input: true, Quiet: time.Second})
			if err != nil || ev.Reason != view.ByQuiet {
				t.Errorf("or quiet: %q, %v, want quiet", ev.Reason, err)
			}
		})
	})
}

// Matches are found wherever the output is cut in pieces.
func FuzzWaitFor(f *testing.F) {
	f.Add("\x1b[1mfoo\x1b[0m bar\r\nbaz", "o b", 1)
	f.Add("a\xff\xfebc\x1b]0;t✳\abcd", "bc", 2)
	f.Add(strings.Repeat("x", 40<<10)+"\r\ny", "x\ny", 9000)
	f.Fuzz(func(t *testing.T, output, literal string, size int) {
		size = max(size, 1+len(output)/20)
		until := view.Until{Literal: literal}
		bubble(t, 0, func(t *testing.T, s *script) {
			for rest := output; rest != ""; {
				n := min(size, len(rest))
				s.write(rest[:n])
				rest = rest[n:]
			}
			s.exit()
			whole, err := view.WaitFor(t.Context(), s, until)
			if err != nil {
				t.Fatal(err)
			}
			pieces, err := view.WaitFor(t.Context(), &inBytes{s.Terminal, size}, until)
			if err != nil {
				t.Fatal(err)
			}
			if whole.Reason != pieces.Reason || whole.Match != pieces.Match {
				t.Errorf("%q in %q: %q as a whole, %q in pieces of %d", literal, output, whole.Reason, pieces.Reason, size)
			}
			if whole.Reason == view.ByMatch && whole.Match != literal {
				t.Errorf("matched %q, want %q", whole.Match, literal)
			}
		})
	})
}

// inBytes is a terminal whose reads return pieces.
type inBytes struct {
	terminal.Terminal
	size int
}

func (b *inBytes) ReadOutput(ctx context.Context, cursor int64, wait time.Duration) (terminal.Output, error) {
	out, err := b.Terminal.ReadOutput(ctx, cursor, wait)
	for i := range out.Text {
		if i >= b.size && !strings.Contains(out.Text, "\ufffd") {
			out.NextCursor -= int64(len(out.Text) - i)
			out.Text, out.More = out.Text[:i], true
			break
		}
	}
	return out, err
}

func TestWaitForOnEachManager(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, m terminal.Manager, program func(string, ...string) terminal.Command) {
		term := start(t, m, program("drip", "300ms", "one", "two", "three"))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		ev, err := view.WaitFor(ctx, term, view.Until{Regexp: regexp.MustCompile(`(?m)^tw.$`)})
		if err != nil || ev.Reason != view.ByMatch || ev.Match != "two" {
			t.Fatalf("%q, %q, %v; want a match of two", ev.Reason, ev.Match, err)
		}
		ev, err = view.WaitFor(ctx, term, view.Until{Cursor: ev.Cursor, Literal: "one"})
		if err != nil || ev.Reason != view.ByEnd || !ev.Info.Exit.Success() {
			t.Errorf("%q, %v, %v; want the end, since one lies before the cursor", ev.Reason, ev.Info.Exit, err)
		}

		term = start(t, m, program("hold"))
		if ev, err = view.WaitFor(ctx, term, view.Until{Quiet: 200 * time.Millisecond}); err != nil || ev.Reason != view.ByQuiet {
			t.Errorf("%q, %v, want quiet", ev.Reason, err)
		}
		if ev, err = view.WaitFor(ctx, term, view.Until{Cursor: ev.Cursor, Ceiling: 50 * time.Millisecond}); err != nil || ev.Reason != view.ByCeiling {
			t.Errorf("%q, %v, want the ceiling", ev.Reason, err)
		}
	})
}

func BenchmarkWaitForLiteral(b *testing.B) {
	benchmarkWaitFor(b, view.Until{Literal: "not there"})
}

func BenchmarkWaitForRegexp(b *testing.B) {
	benchmarkWaitFor(b, view.Until{Regexp: regexp.MustCompile(`(?m)^not (there)`)})
}

func benchmarkWaitFor(b *testing.B, until view.Until) {
	text := strings.Repeat("ok  \tgithub.com/termbridge/termbridge/view\t0.123s\n", 1<<20/48)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if ev, err := view.WaitFor(b.Context(), static{text: text}, until); err != nil || ev.Reason != view.ByEnd {
			b.Fatal(ev.Reason, err)
		}
	}
}
