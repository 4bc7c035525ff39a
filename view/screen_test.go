package view_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/view"
)

// drawn is a menu as dialog draws one: what is chosen differs by its background.
const drawn = "\x1b]0;Pick\a\x1b[?1049h\x1b[?1h\x1b[44m\x1b[H\x1b[2J\x1b[47m\x1b[30m" +
	"\x1b[2;3H one    \x1b[3;3H\x1b[44m\x1b[37m 二 two \x1b[47m\x1b[30m \x1b[4;3H three  \x1b[3;4H"

func TestScreen(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		screen := view.NewScreen(s)
		s.write("$ menu\n" + drawn)
		if got := screen.Lines()[0]; got != "" {
			t.Errorf("before the first read: %q", got)
		}
		if err := screen.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := screen.Lines()[:5], []string{"", "   one", "   二 two", "   three", ""}; !cmp.Equal(got, want) {
			t.Errorf("lines %q, want %q", got, want)
		}
		if row, col, shown := screen.Cursor(); row != 2 || col != 3 || !shown {
			t.Errorf("cursor at %d, %d, shown %v", row, col, shown)
		}
		if screen.Title() != "Pick" || !screen.Alternate() || !screen.AppCursor() || screen.Partial() || screen.Size() != (terminal.Size{}).OrDefault() {
			t.Errorf("title %q, alternate %v, app cursor %v, partial %v, size %v", screen.Title(), screen.Alternate(), screen.AppCursor(), screen.Partial(), screen.Size())
		}
		want := "[screen of 40 rows × 120 columns, full-screen program, title \"Pick\", cursor ▮, highlighted ⟦⟧]\n\n   one\n   ⟦▮二 two⟧\n   three"
		if got := screen.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}

		s.write("\x1b[?1049l\x1b[?25l")
		if err := screen.Read(t.Context()); err != nil || screen.Alternate() {
			t.Errorf("after it was left: %v", err)
		}
		if got, want := screen.String(), "[screen of 40 rows × 120 columns, title \"Pick\", no cursor]\n$ menu"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// Where the cursor is can be seen wherever it is, and so can what stands out.
func TestScreenMarks(t *testing.T) {
	for _, tt := range []struct{ output, want string }{
		{"", "▮"},
		{"abc", "abc▮"},
		{"abc\r", "▮abc"},
		{"abc\x1b[1;8H", "abc    ▮"},
		{"abc\x1b[3;2H", "abc\n\n ▮"},
		{"\x1b[7mabc\x1b[m def ghi jkl", "⟦abc⟧ def ghi jkl▮"},
		{"one two \x1b[7mabc\x1b[m\b\b", "one two ⟦a▮bc⟧"},
		{"one two \x1b[7mabc\x1b[m", "one two ⟦abc⟧▮"},
		{"one two \x1b[7mabc\x1b[m\x1b[3D", "one two ⟦▮abc⟧"},
		{"one two \x1b[7m  abc  \x1b[31mx\x1b[m", "one two   ⟦abc⟧  ⟦x⟧▮"},
		{"one two \x1b[7m   \x1b[m", "one two    ▮"},
		{"日本\x1b[1;3H", "日▮本"},
		{strings.Repeat("x", 120), strings.Repeat("x", 119) + "▮x"},
		{"a\x1b[48;5;236mb\x1b[48;2;1;2;3mc\x1b[mdef", "a⟦b⟧⟦c⟧def▮"},
		{"\x1b[1;31;4mbold\x1b[m plain", "bold plain▮"},
	} {
		bubble(t, 0, func(t *testing.T, s *script) {
			screen := view.NewScreen(s)
			s.write(tt.output)
			if err := screen.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, got, _ := strings.Cut(screen.String(), "]\n"); got != tt.want {
				t.Errorf("%q: %q, want %q", tt.output, got, tt.want)
			}
		})
	}
}

// A wait sees what stands on the screen: now, or when it is drawn, and whole.
func TestScreenWaitFor(t *testing.T) {
	const sec = time.Second
	re := regexp.MustCompile
	for _, tt := range []struct {
		name   string
		before string
		steps  []step
		exit   bool
		until  view.Until
		want   string
		after  time.Duration
		match  string
		line   string // the first, then
	}{
		{name: "a text that is there", before: "one two", until: view.Until{Literal: "two"}, want: view.ByMatch, match: "two", line: "one two"},
		{name: "a text that comes", steps: []step{{sec, "one"}, {sec, "\rtwo"}}, until: view.Until{Literal: "two"}, want: view.ByMatch, after: 2 * sec, match: "two", line: "two"},
		{name: "a text that is drawn in pieces", steps: []step{{sec, "\x1b[1;4Hdef"}, {sec, "\x1b[Habc"}}, until: view.Until{Literal: "abcdef"}, want: view.ByMatch, after: 2 * sec, match: "abcdef", line: "abcdef"},
		{name: "not a text that was there", before: "one\r\x1b[K", steps: []step{{sec, "two"}}, exit: true, until: view.Until{Literal: "one"}, want: view.ByEnd, after: sec, line: "two"},
		{name: "a text that wraps", before: strings.Repeat("x", 118) + "ready", until: view.Until{Literal: "xready"}, want: view.ByMatch, match: "xready", line: strings.Repeat("x", 118) + "re"},
		{name: "a regexp over rows", before: "one\nport 80\n", until: view.Until{Regexp: re(`(?m)^port (\d+)$`)}, want: view.ByMatch, match: "port 80", line: "one"},
		{name: "an update counts when it is over", steps: []step{{sec, "\x1b[?2026hready"}, {sec, "\rnot yet"}, {sec, "\rready\x1b[K\x1b[?2026l"}}, until: view.Until{Literal: "ready"}, want: view.ByMatch, after: 3 * sec, match: "ready", line: "ready"},
		{name: "quiet", steps: []step{{sec, "a"}, {sec, "b"}, {9 * sec, "c"}}, until: view.Until{Quiet: 3 * sec}, want: view.ByQuiet, after: 5 * sec, line: "ab"},
		{name: "output that was not read", before: "a", until: view.Until{Output: true}, want: view.ByOutput, line: "a"},
		{name: "the end", before: "a", steps: []step{{sec, "b"}}, exit: true, want: view.ByEnd, after: sec, line: "ab"},
		{name: "the timeout", before: "a", until: view.Until{Literal: "b", Timeout: sec}, want: view.ByTimeout, after: sec, line: "a"},
		{name: "no wait", before: "a", steps: []step{{sec, "b"}}, until: view.Until{Literal: "b", Timeout: -1}, want: view.ByTimeout, line: "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 0, func(t *testing.T, s *script) {
				screen := view.NewScreen(s)
				s.write(tt.before)
				playing := play(s, tt.exit, tt.steps...)
				began := time.Now()
				ev, err := screen.WaitFor(t.Context(), tt.until)
				if d := time.Since(began); err != nil || ev.Reason != tt.want || d != tt.after || ev.Match != tt.match {
					t.Errorf("%q %q after %v, %v; want %q %q after %v", ev.Reason, ev.Match, d, err, tt.want, tt.match, tt.after)
				}
				if got := screen.Lines()[0]; got != tt.line {
					t.Errorf("the first row is %q, want %q", got, tt.line)
				}
				playing.Wait()
			})
		})
	}
	t.Run("an ended context", func(t *testing.T) {
		bubble(t, 0, func(t *testing.T, s *script) {
			ctx, cancel := context.WithCancelCause(t.Context())
			screen := view.NewScreen(s)
			time.AfterFunc(time.Second, func() { cancel(errors.New("enough")) })
			if _, err := screen.WaitFor(ctx, view.Until{Literal: "x"}); err == nil || err.Error() != "enough" {
				t.Errorf("%v", err)
			}
			if err := screen.Read(t.Context()); err != nil {
				t.Errorf("a read after it: %v", err)
			}
		})
	})
}

// A read waits for the end of an update, but not for ever.
func TestScreenReadsWholeUpdates(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		screen := view.NewScreen(s)
		s.write("old\x1b[?2026h\rnew")
		playing := play(s, false, step{300 * time.Millisecond, " and whole\x1b[?2026l"})
		began := time.Now()
		if err := screen.Read(t.Context()); err != nil || screen.Lines()[0] != "new and whole" || time.Since(began) != 300*time.Millisecond {
			t.Errorf("%q after %v, %v", screen.Lines()[0], time.Since(began), err)
		}
		playing.Wait()
		s.write("\x1b[?2026h\rtorn")
		began = time.Now()
		if err := screen.Read(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("an update without end: after %v, %v", time.Since(began), err)
		}
	})
}

// A Screen that has missed output says so, until the program has cleared it.
func TestScreenSaysWhatItDoesNotKnow(t *testing.T) {
	bubble(t, 100, func(t *testing.T, s *script) {
		screen := view.NewScreen(s)
		read := func(want bool) {
			t.Helper()
			if err := screen.Read(t.Context()); err != nil || screen.Partial() != want || strings.Contains(screen.String(), "not known") != want {
				t.Errorf("partial %v, want %v; %v\n%s", screen.Partial(), want, err, screen)
			}
		}
		s.write("all of it")
		read(false)
		s.write(strings.Repeat("\x1b[31mtoo much\x1b[m", 20))
		read(true)
		s.write("\x1b[H\x1b[J")
		read(true)
		s.write("\x1b[2J")
		read(false)
		s.write(strings.Repeat("too much", 20))
		read(true)
		s.write("\x1b[?1049h")
		read(false)
		s.write("\x1b[?1049l")
		read(true)
		s.write("\x1bc")
		read(false)
	})
}

// The size of the terminal and of the screen are one, and what a terminal cannot
// do changes nothing.
func TestScreenResize(t *testing.T) {
	onEach(t, func(t *testing.T, m terminal.Manager, program func(name string, args ...string) terminal.Command) {
		cmd := program("lines", "3")
		cmd.TTY, cmd.Size = true, terminal.Size{Rows: 5, Cols: 20}
		term := start(t, m, cmd)
		screen := view.NewScreen(term)
		if _, err := screen.WaitFor(t.Context(), view.Until{}); err != nil {
			t.Fatal(err)
		}
		if got, want := screen.Lines(), []string{"0000000", "0000001", "0000002", "", ""}; !cmp.Equal(got, want) {
			t.Errorf("lines %q, want %q", got, want)
		}
		size := terminal.Size{Rows: 2, Cols: 30}
		switch err := screen.Resize(t.Context(), size); {
		case errors.Is(err, errors.ErrUnsupported):
			size = cmd.Size
		case err != nil:
			t.Fatal(err)
		}
		if got := screen.Size(); got != size {
			t.Errorf("size %v, want %v", got, size)
		}
	})
}

func TestScreenKeys(t *testing.T) {
	bubble(t, 0, func(t *testing.T, s *script) {
		screen := view.NewScreen(s)
		check := func(name, want string) {
			t.Helper()
			if got, err := screen.Keys(name); err != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", name, got, err, want)
			}
		}
		for name, want := range map[string]string{
			"a": "a", "Q": "Q", "日": "日", ":": ":", "-": "-", "+": "+", "^": "^", " ": " ", "C-": "", "c-": "",
			"Enter": "\r", "return": "\r", "TAB": "\t", "Space": " ", "Esc": "\x1b", "Escape": "\x1b", "Backspace": "\x7f", "BSpace": "\x7f",
			"C-c": "\x03", "C-C": "\x03", "^C": "\x03", "Ctrl-c": "\x03", "Ctrl+C": "\x03", "ctrl-z": "\x1a", "C-Space": "\x00", "C-[": "\x1b", "C-\\": "\x1c", "C-_": "\x1f", "C-?": "\x7f", "C--": "",
			"M-x": "\x1bx", "A-x": "\x1bx", "Alt+x": "\x1bx", "M-C-c": "\x1b\x03", "M-Enter": "\x1b\r", "S-a": "A", "M-é": "\x1bé",
			"Up": "\x1b[A", "Down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "Home": "\x1b[H", "End": "\x1b[F",
			"C-Up": "\x1b[1;5A", "S-Left": "\x1b[1;2D", "M-C-Right": "\x1b[1;7C", "Shift+End": "\x1b[1;2F",
			"PageUp": "\x1b[5~", "PgDn": "\x1b[6~", "Insert": "\x1b[2~", "Delete": "\x1b[3~", "DC": "\x1b[3~", "C-Delete": "\x1b[3;5~",
			"F1": "\x1bOP", "F4": "\x1bOS", "F5": "\x1b[15~", "F12": "\x1b[24~", "S-F1": "\x1b[1;2P", "C-F5": "\x1b[15;5~",
			"S-Tab": "\x1b[Z", "BTab": "\x1b[Z", "M-Tab": "\x1b\t",
		} {
			if want == "" {
				if keys, err := screen.Keys(name); err == nil {
					t.Errorf("%s: %q, want an error", name, keys)
				}
				continue
			}
			check(name, want)
		}
		for _, name := range []string{"", "Foo", "ab", "C-é", "C-1", "S-Enter", "C-Enter", "F13", "Hyper-x", "\x1b", "\xff"} {
			if keys, err := screen.Keys("x", name); err == nil || keys != "" || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
				t.Errorf("%q: %q, %v; want an error that names it", name, keys, err)
			}
		}
		s.write("\x1b[?1h")
		if err := screen.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("Up", "\x1bOA")
		check("Home", "\x1bOH")
		check("C-Up", "\x1b[1;5A")
		check("PageUp", "\x1b[5~")
		if keys, err := screen.Keys("Down", "Down", "Enter"); err != nil || keys != "\x1bOB\x1bOB\r" {
			t.Errorf("several: %q, %v", keys, err)
		}
	})
}

// real skips the test if a program is not installed, and fails it where all have
// to be.
func real(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	lacks(t, program)
}

// A user is somebody who reads a screen and presses keys.
type user struct {
	*testing.T
	term   terminal.Terminal
	screen *view.Screen
}

// sit starts a program on a small terminal.
func sit(t *testing.T, args ...string) user {
	t.Helper()
	t.Parallel()
	real(t, args[0])
	m := localterm.New(nil)
	t.Cleanup(func() { m.Close() })
	term := start(t, m, terminal.Command{
		Args: args, TTY: true, Stdin: true, Size: terminal.Size{Rows: 12, Cols: 60},
		Env: map[string]string{"LESS": "", "VIMINIT": "set nocompatible | set noswapfile", "TERM": "xterm-256color"},
	})
	return user{t, term, view.NewScreen(term)}
}

// sees waits until the screen has a text, and then for a moment of quiet.
func (u user) sees(pattern string) {
	u.Helper()
	until := view.Until{Regexp: regexp.MustCompile("(?m)" + pattern), Timeout: 20 * time.Second}
	if ev, err := u.screen.WaitFor(u.Context(), until); err != nil || ev.Reason != view.ByMatch {
		u.Fatalf("%q was not seen: %q, %v\n%s", pattern, ev.Reason, err, u.screen)
	}
	if _, err := u.screen.WaitFor(u.Context(), view.Until{Quiet: 100 * time.Millisecond, Timeout: 5 * time.Second}); err != nil {
		u.Fatal(err)
	}
}

func (u user) presses(names ...string) {
	u.Helper()
	keys, err := u.screen.Keys(names...)
	if err != nil {
		u.Fatal(err)
	}
	if _, err := u.term.WriteInput(u.Context(), keys); err != nil { // also the last key of a program is written whole
		u.Fatal(err)
	}
}

// ends waits for the end, with code 0.
func (u user) ends() {
	u.Helper()
	if _, err := u.screen.WaitFor(u.Context(), view.Until{Timeout: 20 * time.Second}); err != nil {
		u.Fatal(err)
	}
	if info := wait(u.T, u.term); !info.Exit.Success() {
		u.Errorf("%v %v\n%s", info.Outcome, info.Exit, u.screen)
	}
}

// highlighted waits until a text stands out.
func (u user) highlighted(text string) {
	u.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		if strings.Contains(strings.ReplaceAll(u.screen.String(), "▮", ""), "⟦"+text) {
			return
		}
		if time.Now().After(end) {
			u.Fatalf("%q is not highlighted\n%s", text, u.screen)
		}
		if _, err := u.screen.WaitFor(u.Context(), view.Until{Output: true, Timeout: time.Second}); err != nil {
			u.Fatal(err)
		}
	}
}

// lines writes a file of numbered lines and returns its name.
func lines(t *testing.T, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d of the file\n", i+1)
	}
	name := t.TempDir() + "/lines.txt"
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestScreenOfLess(t *testing.T) {
	u := sit(t, "less", lines(t, 100))
	u.sees(`^line 11 of the file`)
	if !u.screen.Alternate() {
		u.Error("not on the alternate screen")
	}
	u.presses("Down", "Down")
	u.sees(`\Aline 3 of`)
	u.presses("PageDown")
	u.sees(`\Aline 14 of`)
	u.presses("/", "4", "2", "Enter")
	u.sees(`\Aline 42 of`)
	u.highlighted("42")
	if err := u.screen.Resize(u.Context(), terminal.Size{Rows: 6, Cols: 40}); err != nil {
		u.Fatal(err)
	}
	u.sees(`\A(line \d+ of the file\n){5}:`)
	u.presses("G")
	u.sees(`line 100 of the file\n.*END`)
	u.presses("q")
	u.ends()
	if u.screen.Alternate() {
		u.Error("still on the alternate screen")
	}
}

func TestScreenOfVim(t *testing.T) {
	name := lines(t, 3)
	u := sit(t, "vim", "-u", "NONE", "-N", name)
	u.sees(`\Aline 1 of the file\nline 2`)
	u.presses("Down", "A", "!", "Esc")
	u.sees(`^line 2 of the file!\n[^-]*\z`) // not in insert mode any more
	if row, col, shown := u.screen.Cursor(); row != 1 || col != len("line 2 of the file") || !shown {
		u.Errorf("the cursor is at %d, %d, shown %v\n%s", row, col, shown, u.screen)
	}
	if s := u.screen.String(); !strings.Contains(s, "line 2 of the file▮!") {
		u.Errorf("the cursor is not marked:\n%s", s)
	}
	u.presses("V")
	u.sees(`VISUAL LINE`)
	u.highlighted("line 2 of the file") // and the cursor on the rest
	u.presses("Esc", ":", "w", "q", "Enter")
	u.ends()
	if b, err := os.ReadFile(name); err != nil || !strings.Contains(string(b), "line 2 of the file!\n") {
		u.Errorf("%q, %v", b, err)
	}
}

func TestScreenOfTop(t *testing.T) {
	if _, err := os.Stat("/proc/self"); err != nil {
		lacks(t, "/proc, which top shows")
	}
	u := sit(t, "top", "-d", "60")
	u.sees(`^ *PID +USER`)
	u.highlighted("PID")
	u.presses("q")
	u.ends()
}

func TestScreenOfDialog(t *testing.T) {
	real(t, "dialog")
	chosen := t.TempDir() + "/chosen"
	u := sit(t, "sh", "-c", `exec dialog --menu "What shall it be?" 11 50 3 1 "The first" 2 "The second" 3 "The third" 2>"$1"`, "sh", chosen)
	u.sees(`The third`)
	u.highlighted("The first")
	u.presses("Down", "Down")
	u.highlighted("The third")
	u.presses("Enter")
	u.ends()
	if b, err := os.ReadFile(chosen); err != nil || string(b) != "3" {
		t.Errorf("%q was chosen, %v", b, err)
	}
}
