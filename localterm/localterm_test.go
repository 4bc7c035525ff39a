package localterm_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// bound is how long a test waits for what must happen.
const bound = 30 * time.Second

// need fails or skips the test where a program is missing.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if _, err := os.Stat(program); err == nil && filepath.IsAbs(program) {
		return // a file
	}
	if os.Getenv("TERMBRIDGE_REAL") != "" {
		t.Fatalf("%s is missing", program)
	}
	t.Skipf("%s is missing", program)
}

func newManager(t *testing.T, opts *localterm.Options) *localterm.Manager {
	t.Helper()
	m := localterm.New(opts)
	t.Cleanup(func() { closes(t, m) })
	return m
}

// closes closes m, which leaves nothing.
func closes(t *testing.T, m *localterm.Manager) {
	t.Helper()
	switch err := m.Close(); {
	case err != nil && (lessThanLinux() || !proc()) && strings.Contains(err.Error(), "possibly a process"):
		t.Logf("Close: %v", err) // which is true there
	case err != nil:
		t.Errorf("Close: %v", err)
	}
}

// proc reports whether there is a /proc.
func proc() bool {
	_, err := os.Stat("/proc/self")
	return err == nil
}

// untilTagged makes a shell wait for its limit tag where nothing else shows what left
// its session: it gets that behind its start, and whose it is what it starts before
// cannot be told there.
func untilTagged() string {
	if proc() {
		return ""
	}
	return `limit() { ulimit -$1w 2>/dev/null || ulimit -$1x; }
		i=0; while [ $i -lt 500 ] && [ "$(limit S)" = "$(limit H)" ]; do i=$((i+1)); done; `
}

// lessThanLinux reports whether the kernel is none, but gVisor or something like it.
func lessThanLinux() bool {
	_, shown := os.Stat("/proc/self/stat")
	_, calls := os.Stat("/proc/self/syscall")
	return shown == nil && calls != nil
}

// needLinux skips a test of what only Linux itself does.
func needLinux(t *testing.T, what string) {
	t.Helper()
	if lessThanLinux() {
		t.Skipf("this kernel has no %s, as gVisor has none", what)
	}
}

func start(t *testing.T, m terminal.Manager, cmd terminal.Command) terminal.Terminal {
	t.Helper()
	term, err := m.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if cmd.TTY && !term.Info().Command.TTY {
		_, _ = term.Stop(t.Context()) // its directory goes before its Manager
		need(t, "/dev/ptmx that is one")
	}
	return term
}

func wait(t *testing.T, term terminal.Terminal) terminal.Info {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	info, err := terminal.Wait(ctx, term)
	if err != nil {
		t.Fatalf("%s has not ended: %v", term.Info().Command, err)
	}
	return info
}

func output(t *testing.T, term terminal.Terminal) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var b strings.Builder
	if _, err := terminal.Copy(ctx, &b, term, 0); err != nil {
		t.Fatalf("output of %s after %q: %v", term.Info().Command, b.String(), err)
	}
	return b.String()
}

// read waits until the output of term contains want, and returns it.
func read(t *testing.T, term terminal.Terminal, want string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var b strings.Builder
	for out, err := range terminal.Follow(ctx, term, 0) {
		if b.WriteString(out.Text); strings.Contains(b.String(), want) {
			return b.String()
		}
		if err != nil {
			t.Fatalf("%q in the output of %s: %v after %q", want, term.Info().Command, err, b.String())
		}
	}
	t.Fatalf("%q is not in the output of %s: %q", want, term.Info().Command, b.String())
	return ""
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		_, shown := os.Stat("/proc/self")
		p, err := os.FindProcess(pid)
		return shown != nil && err == nil && p.Signal(syscall.Signal(0)) == nil
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// gone waits until pid is gone: without a /proc one that nobody has reaped yet looks as
// if it ran.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(bound); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs", pid)
		}
	}
}

// pid waits for a line "NAME=PID" in the output.
func pid(t *testing.T, term terminal.Terminal, name string) int {
	t.Helper()
	for ctx, cursor, text := t.Context(), int64(0), ""; ; {
		out, err := term.ReadOutput(ctx, cursor, bound)
		if err != nil {
			t.Fatal(err)
		}
		text += out.Text
		cursor = out.NextCursor
		if _, rest, ok := strings.Cut(text, name+"="); ok {
			if digits, _, ok := strings.Cut(rest, "\n"); ok {
				n, err := strconv.Atoi(strings.TrimSpace(digits))
				if err != nil {
					t.Fatalf("%s in %q: %v", name, text, err)
				}
				return n
			}
		}
		if out.EOF() || out.Text == "" {
			t.Fatalf("no %s in %q", name, text)
		}
	}
}

func modes(t *testing.T, f func(t *testing.T, tty bool)) {
	t.Run("pipes", func(t *testing.T) { f(t, false) })
	t.Run("tty", func(t *testing.T) { f(t, true) })
}

// The last byte before the exit is delivered: fast exits, no final line end, a
// slow reader.
func TestLastBytes(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		want := strings.Repeat("x", 20479) + "."
		var wg sync.WaitGroup
		slots := make(chan struct{}, 4)
		for i := range 100 {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				term, err := m.Start(t.Context(), terminal.Command{
					Line: `printf '%020479d.' 0 | tr 0 x`, TTY: tty, // one write or many
				})
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					time.Sleep(20 * time.Millisecond)
				}
				if got := output(t, term); got != want {
					t.Errorf("run %d: %d bytes that end in %.5q, want %d", i, len(got), tail(got, 5), len(want))
				}
			})
		}
		wg.Wait()
	})
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// A rune that comes in two writes is read in one piece.
func TestSplitRune(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		term := start(t, m, terminal.Command{Line: `printf '\342'; sleep 0.2; printf '\202\254\n'`, TTY: tty})
		var b strings.Builder
		for cursor := int64(0); ; {
			out, err := term.ReadOutput(t.Context(), cursor, 20*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString(out.Text)
			cursor = out.NextCursor
			if out.EOF() {
				break
			}
		}
		if b.String() != "€\n" {
			t.Errorf("got %q, want %q", b.String(), "€\n")
		}
	})
}

// A terminal ends lines with LF only, and so does its program see it.
func TestLineEnds(t *testing.T) {
	m := newManager(t, nil)
	if got := output(t, start(t, m, terminal.Command{Line: `printf 'a\nb\r\nc'`, TTY: true})); got != "a\nb\r\nc" {
		t.Errorf("got %q: output is what the program wrote", got)
	}
}

// What a command leaves running is not ended by its exit, is named, delays the
// end by the drain only, may write on, and ends with the Manager.
func TestBackgroundSurvives(t *testing.T) {
	t.Parallel()
	lines := map[string]string{
		"quiet": `sleep 300 & echo pid=$!; exit 0`,
		"noisy": `(while :; do echo more; sleep 0.01; done) & echo pid=$!; exit 0`,
		"apart": `sleep 300 >/dev/null 2>&1 & echo pid=$!; exit 0`,
	}
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T, tty bool) {
				t.Parallel()
				m := localterm.New(nil)
				defer m.Close()
				term := start(t, m, terminal.Command{Line: line, TTY: tty})
				began := time.Now()
				info := wait(t, term)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("the end took %v", took)
				}
				p := pid(t, term, "pid")
				if info.Outcome != terminal.Exited || !info.Exit.Success() {
					t.Errorf("ended as %s, %s", info.Outcome, info.Exit)
				}
				named := false
				for _, left := range info.Survivors {
					_, err := os.Stat("/proc/self") // only that shows its name
					named = named || left.PID == p && (left.Command != "" || err != nil)
				}
				if !named {
					t.Errorf("Survivors is %v, want process %d", info.Survivors, p)
				}
				final, err := term.ReadOutput(t.Context(), 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(300 * time.Millisecond) // time to be killed by a closed pipe
				if !alive(p) {
					t.Errorf("process %d did not survive the end of its command", p)
				}
				if later, _ := term.ReadOutput(t.Context(), 0, 0); later.Text != final.Text {
					t.Errorf("the output of an ended command grew from %q to %q", final.Text, later.Text)
				}
				closes(t, m)
				gone(t, p)
			})
		})
	}
}

// Stop reaches what left the group and the session of the command.
func TestStopReachesEscaped(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, &localterm.Options{Grace: 200 * time.Millisecond})
		term := start(t, m, terminal.Command{
			Line: untilTagged() + `setsid sh -c 'trap "" TERM HUP INT; echo a=$$; while :; do sleep 1; done' &
				(setsid sh -c 'echo b=$$; exec sleep 300' &) 
				trap "" TERM; while :; do sleep 1; done`,
			TTY: tty,
		})
		a, b := pid(t, term, "a"), pid(t, term, "b")
		info, err := term.Stop(t.Context())
		if err != nil || info.Outcome != terminal.Stopped || len(info.Survivors) > 0 || info.Survivors == nil {
			t.Errorf("Stop: %+v, %v", info, err)
		}
		for _, p := range []int{a, b} {
			gone(t, p)
		}
	})
}

// A timeout stops the whole tree and keeps the output.
func TestTimeout(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		term := start(t, m, terminal.Command{
			Line:    `echo before; sleep 300 & echo pid=$!; wait; echo after`,
			TTY:     tty,
			Timeout: 300 * time.Millisecond,
		})
		info := wait(t, term)
		if info.Outcome != terminal.TimedOut || info.Exit.Success() || info.RunTime() < 300*time.Millisecond {
			t.Errorf("ended as %s, %s after %v", info.Outcome, info.Exit, info.RunTime())
		}
		if got := output(t, term); !strings.HasPrefix(got, "before\n") || strings.Contains(got, "after") {
			t.Errorf("output %q", got)
		}
		gone(t, pid(t, term, "pid"))
	})
}

// The output never starves the clock.
func TestTimeoutOfAFlood(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		t.Parallel()
		m := newManager(t, nil)
		term := start(t, m, terminal.Command{Line: "yes", TTY: tty, Timeout: time.Second})
		if info := wait(t, term); info.Outcome != terminal.TimedOut || info.RunTime() > 20*time.Second {
			t.Errorf("ended as %s after %v", info.Outcome, info.RunTime())
		}
	})
}

func TestStdoutAndStderr(t *testing.T) {
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{Line: `
		for i in 1 2 3; do echo out $i; read x; echo err $i >&2; read x; done`, Stdin: true})
	for i := range 3 { // the next comes when the one before was read
		read(t, term, fmt.Sprintf("out %d\n", i+1))
		write(t, term, "\n")
		read(t, term, fmt.Sprintf("err %d\n", i+1))
		write(t, term, "\n")
	}
	wait(t, term)
	r := term.(terminal.StreamReader)
	for stream, want := range map[terminal.Stream]string{
		terminal.Stdout: "out 1\nout 2\nout 3\n",
		terminal.Stderr: "err 1\nerr 2\nerr 3\n",
	} {
		out, err := r.ReadStream(t.Context(), stream, 0, 0)
		if err != nil || out.Text != want || !out.EOF() {
			t.Errorf("%s: %+v, %v; want %q", stream, out, err, want)
		}
	}
	if got, want := output(t, term), "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"; got != want {
		t.Errorf("both: %q, want %q", got, want)
	}

	tty := start(t, m, terminal.Command{Line: "true", TTY: true})
	if _, err := tty.(terminal.StreamReader).ReadStream(t.Context(), terminal.Stdout, 0, 0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a stream of a terminal: %v, want ErrUnsupported", err)
	}
}

// A read of one stream from the end on waits for what comes next, however long the
// output grows meanwhile.
func TestStreamFromTheEnd(t *testing.T) {
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{Line: "while :; do echo more; echo other >&2; sleep .05; done"})
	for range 3 {
		out, err := term.(terminal.StreamReader).ReadStream(t.Context(), terminal.Stdout, terminal.End, bound)
		if err != nil || !strings.HasPrefix(out.Text, "more\n") || strings.Contains(out.Text, "other") || out.Truncated {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	if _, err := term.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartErrors(t *testing.T) {
	m := newManager(t, nil)
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	busy := script("busy", "#!/bin/sh\n")
	writer, err := os.OpenFile(busy, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	word := strings.Repeat("x", limits.MaxWord)
	many := append([]string{"echo"}, slices.Repeat([]string{word[1:]}, 100)...)
	for name, test := range map[string]struct {
		cmd   terminal.Command
		want  error
		words string // of the error
	}{
		"empty":            {terminal.Command{}, terminal.ErrBadCommand, "empty"},
		"relative":         {terminal.Command{Line: "pwd", Dir: "src"}, terminal.ErrBadCommand, "src"},
		"missing dir":      {terminal.Command{Line: "pwd", Dir: dir + "/no"}, execenv.ErrNoDir, dir + "/no"},
		"dir is a file":    {terminal.Command{Line: "pwd", Dir: plain}, execenv.ErrNoDir, plain},
		"missing program":  {terminal.Command{Args: []string{"no-such-program"}}, execenv.ErrNoCommand, "no-such-program"},
		"missing path":     {terminal.Command{Args: []string{dir + "/no"}}, fs.ErrNotExist, dir + "/no"},
		"no permission":    {terminal.Command{Args: []string{plain}}, execenv.ErrNotExecutable, plain},
		"a directory":      {terminal.Command{Args: []string{dir}, TTY: true}, execenv.ErrIsDirectory, dir},
		"interpreter":      {terminal.Command{Args: []string{script("lost", "#!/no/such/sh\n")}}, execenv.ErrBadInterpreter, "/no/such/sh"},
		"exec format":      {terminal.Command{Args: []string{script("junk", "echo\n")}, TTY: true}, execenv.ErrExecFormat, "junk"},
		"text file busy":   {terminal.Command{Args: []string{busy}}, execenv.ErrTextBusy, busy},
		"missing shell":    {terminal.Command{Line: "pwd", Shell: dir + "/no"}, fs.ErrNotExist, dir + "/no"},
		"environment":      {terminal.Command{Line: "pwd", Environment: "mars"}, terminal.ErrBadCommand, `"mars"`},
		"line":             {terminal.Command{Line: word}, terminal.ErrTooLarge, strconv.Itoa(limits.MaxWord - 1)},
		"argument":         {terminal.Command{Args: []string{"echo", word}}, terminal.ErrTooLarge, "131072"},
		"all words":        {terminal.Command{Args: many}, terminal.ErrTooLarge, "too long"},
		"variable":         {terminal.Command{Line: "pwd", Env: map[string]string{"A": word[2:]}}, terminal.ErrTooLarge, "A="},
		"missing dir, tty": {terminal.Command{Line: "pwd", Dir: dir + "/no", TTY: true, Stdin: true}, execenv.ErrNoDir, dir + "/no"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.want == execenv.ErrTextBusy {
				needLinux(t, "text file busy")
			}
			term, err := m.Start(t.Context(), test.cmd)
			if term != nil || !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.words) {
				t.Fatalf("Start = %v, %v; want an error that is %q and says %q", term, err, test.want, test.words)
			}
			if len(err.Error()) > 2000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
	if m.Busy() || len(m.List()) > 0 {
		t.Errorf("failed starts left %v, busy: %v", m.List(), m.Busy())
	}
	longest := start(t, m, terminal.Command{Args: []string{"sh", "-c", `printf %s "$1" | wc -c`, "sh", word[1:]}})
	if got := strings.TrimSpace(output(t, longest)); got != strconv.Itoa(limits.MaxWord-1) {
		t.Errorf("the longest word arrived with %s bytes", got)
	}
}

// A line that looks like options is a line all the same.
func TestLineLikeAnOption(t *testing.T) {
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{Line: "-x 2>/dev/null || echo '+y'"})
	if got := output(t, term); got != "+y\n" {
		t.Errorf("output %q", got)
	}
}

func TestShellAndDir(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := newManager(t, &localterm.Options{Dir: dir})
	if got := output(t, start(t, m, terminal.Command{Line: "pwd"})); got != dir+"\n" {
		t.Errorf("Options.Dir: in %q, want %q", got, dir)
	}
	if got := output(t, start(t, m, terminal.Command{Line: "pwd", Dir: "/"})); got != "/\n" {
		t.Errorf("Command.Dir: in %q", got)
	}
	if got := output(t, start(t, m, terminal.Command{Line: "-n 'a b'", Shell: "/bin/echo"})); got != "-c  -n 'a b'\n" {
		t.Errorf("Command.Shell got %q, want -c and the line", got)
	}
}

// No secret of the agent reaches a command by default; the overlay does.
func TestEnv(t *testing.T) {
	t.Setenv("SOME_API_KEY", "secret")
	t.Setenv("SOME_SETTING", "plain")
	m := newManager(t, nil)
	got := output(t, start(t, m, terminal.Command{Line: "env", Env: map[string]string{"OVER": "laid"}}))
	if strings.Contains(got, "API_KEY") || !strings.Contains(got, "SOME_SETTING=plain\n") || !strings.Contains(got, "OVER=laid\n") {
		t.Errorf("the environment is %q", got)
	}
	m = newManager(t, &localterm.Options{Env: &execenv.Env{}})
	if got := output(t, start(t, m, terminal.Command{Line: "env"})); strings.Contains(got, "SOME_") {
		t.Errorf("a minimal environment is %q", got)
	}
}

func TestEnvironments(t *testing.T) {
	here, there := execenv.NewLocal(nil), execenv.NewLocal(nil)
	defer here.Close()
	defer there.Close()
	m := newManager(t, &localterm.Options{
		Executors: map[string]execenv.Executor{"here": here, "there": there},
		Default:   "there",
	})
	for environment, want := range map[string]string{"": "there", "here": "here", "there": "there"} {
		term := start(t, m, terminal.Command{Line: "true", Environment: environment})
		if info := wait(t, term); info.Environment != want || info.Outcome != terminal.Exited {
			t.Errorf("environment %q: ran in %q, %s", environment, info.Environment, info.Outcome)
		}
	}
	_, err := m.Start(t.Context(), terminal.Command{Line: "true", Environment: "mars"})
	if !errors.Is(err, terminal.ErrBadCommand) || !strings.Contains(err.Error(), `["here" "there"]`) {
		t.Errorf("an unknown environment: %v; want what there is", err)
	}
}

// A Manager with executors of its caller ends what its commands left behind,
// and leaves the executors open.
func TestCloseWithForeignExecutor(t *testing.T) {
	local := execenv.NewLocal(nil)
	defer local.Close()
	m := localterm.New(&localterm.Options{Executors: map[string]execenv.Executor{"only": local}})
	defer m.Close()
	term := start(t, m, terminal.Command{Line: "sleep 300 >/dev/null 2>&1 & echo pid=$!"})
	if info := wait(t, term); info.Environment != "only" || len(info.Survivors) != 1 {
		t.Errorf("ended as %+v", info)
	}
	p := pid(t, term, "pid")
	closes(t, m)
	gone(t, p)
	if err := local.Command(t.Context(), execenv.Spec{Path: "true"}).Run(); err != nil {
		t.Errorf("the executor after Close: %v", err)
	}
}

func fds(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	return len(entries)
}

// Commands, failed starts and survivors leave no descriptor and no goroutine.
func TestNothingLeaks(t *testing.T) {
	run := func(rounds int) {
		m := localterm.New(nil)
		for range rounds {
			for _, cmd := range []terminal.Command{
				{Line: "echo"},
				{Line: "echo", TTY: true},
				{Line: "cat", Stdin: true, Timeout: 20 * time.Millisecond},
				{Line: "cat", Stdin: true, TTY: true, Timeout: 20 * time.Millisecond},
				{Args: []string{"/no/such"}, TTY: true, Stdin: true},
				{Args: []string{"/no/such"}, Stdin: true},
				{Line: "sleep 300 &"},
			} {
				if term, err := m.Start(t.Context(), cmd); err == nil {
					wait(t, term)
				}
			}
		}
		closes(t, m)
	}
	run(1)
	files, goroutines := fds(t), runtime.NumGoroutine()
	run(5)
	for deadline := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) {
		if fds(t) <= files && runtime.NumGoroutine() <= goroutines {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors and %d goroutines, were %d and %d", fds(t), runtime.NumGoroutine(), files, goroutines)
		}
	}
}

// A command holds nothing open while it is only kept.
func TestEndedHoldsNoDescriptor(t *testing.T) {
	need(t, "/proc/self/fd")
	own := func() (n int) { // not what the executor keeps for the next command
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			link, _ := os.Readlink("/proc/self/fd/" + e.Name())
			if strings.HasPrefix(link, "pipe:") || strings.Contains(link, "pidfd") || strings.Contains(link, "ptmx") {
				n++
			}
		}
		return n
	}
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		wait(t, start(t, m, terminal.Command{Line: "true", TTY: tty, Stdin: true})) // starts the watchdog too
		before := own()
		for range 5 {
			wait(t, start(t, m, terminal.Command{Line: "true", TTY: tty, Stdin: true}))
		}
		if after := own(); after > before {
			t.Errorf("%d descriptors more for 5 ended commands", after-before)
		}
	})
}

// The bytes of all terminals together are bounded: ended ones give way, and
// live ones keep less than their limit.
func TestManagerBytes(t *testing.T) {
	m := newManager(t, &localterm.Options{ManagerBytes: 256 << 10, OutputLimit: 128 << 10})
	flood := terminal.Command{Line: "head -c 200000 /dev/zero | tr '\\0' x"}
	var ids []string
	for range 4 {
		term := start(t, m, flood)
		ids = append(ids, term.Info().ID)
		wait(t, term)
	}
	if _, err := m.Get(ids[0]); !errors.Is(err, terminal.ErrNotFound) {
		t.Errorf("the oldest: %v, want it evicted", err)
	}
	last, err := m.Get(ids[3])
	if err != nil {
		t.Fatal(err)
	}
	if got := len(output(t, last)) - len(terminal.GapMark); got != 128<<10 {
		t.Errorf("the last kept %d bytes, want its limit", got)
	}

	var live []terminal.Terminal
	for range 4 {
		term := start(t, m, terminal.Command{Line: flood.Line + "; echo; echo end; exec sleep 300"})
		read(t, term, "end\n")
		live = append(live, term)
	}
	kept := 0
	for _, term := range live {
		for cursor := int64(0); ; {
			out, err := term.ReadOutput(t.Context(), cursor, 0)
			if err != nil {
				t.Fatal(err)
			}
			kept += len(out.Text)
			if cursor = out.NextCursor; !out.More {
				break
			}
		}
	}
	if kept > 256<<10+4*4096 || kept < 128<<10 {
		t.Errorf("4 live commands keep %d bytes of 262144", kept)
	}
}

// Ended terminals are forgotten when their time is over, without any call.
func TestKeepEnded(t *testing.T) {
	m := newManager(t, &localterm.Options{KeepEnded: 200 * time.Millisecond})
	live := start(t, m, terminal.Command{Line: "sleep 300"})
	ended := start(t, m, terminal.Command{Line: "echo kept"})
	wait(t, ended)
	for deadline := time.Now().Add(bound); len(m.List()) > 1; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("an ended terminal is kept for ever")
		}
	}
	if _, err := m.Get(live.Info().ID); err != nil {
		t.Errorf("the live one: %v", err)
	}
	if got := output(t, ended); got != "kept\n" {
		t.Errorf("who holds it reads %q", got)
	}
}

func TestNewID(t *testing.T) {
	n := 0
	m := newManager(t, &localterm.Options{NewID: func() string { n++; return fmt.Sprint("mine-", n) }})
	if id := start(t, m, terminal.Command{Line: "true"}).Info().ID; id != "mine-1" {
		t.Errorf("id %q", id)
	}
}

// The size is there from the first moment, and Resize reaches the program.
func TestResize(t *testing.T) {
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{
		Line: `trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done`,
		TTY:  true, Stdin: true, Size: terminal.Size{Rows: 10, Cols: 20},
	})
	read(t, term, "10 20\n")
	if err := term.Resize(terminal.Size{Rows: 30, Cols: 100}); err != nil {
		t.Error(err)
	}
	read(t, term, "30 100\n")
	if err := term.Resize(terminal.Size{Rows: 1}); !errors.Is(err, terminal.ErrBadCommand) {
		t.Errorf("half a size: %v", err)
	}
	pipes := start(t, m, terminal.Command{Line: "true"})
	if err := pipes.Resize(terminal.Size{}.OrDefault()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a command without a terminal: %v", err)
	}
}

// Without Stdin nobody can wait for a password for ever.
func TestNoControllingTerminal(t *testing.T) {
	modes(t, func(t *testing.T, tty bool) {
		m := newManager(t, nil)
		term := start(t, m, terminal.Command{Line: `cat; (: </dev/tty) 2>/dev/null && echo open || echo none`, TTY: tty})
		if got := output(t, term); got != "none\n" {
			t.Errorf("output %q, want no terminal to ask on", got)
		}
	})
}

func TestSignalOutcome(t *testing.T) {
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{Line: "kill -9 $$"})
	if info := wait(t, term); info.Outcome != terminal.Signalled || info.Exit.Signal != "SIGKILL" || info.Exit.Code != nil {
		t.Errorf("ended as %s, %+v", info.Outcome, info.Exit)
	}
	term = start(t, m, terminal.Command{Line: "sh -c 'kill -9 $$'; exit $?"})
	if info := wait(t, term); info.Outcome != terminal.Exited || info.Exit.Code == nil || *info.Exit.Code != 137 {
		t.Errorf("a signal below the shell: %s, %+v", info.Outcome, info.Exit)
	}
	term = start(t, m, terminal.Command{Args: []string{"sleep", "300"}}) // a starting shell may lose it
	if err := term.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if info := wait(t, term); info.Outcome != terminal.Signalled || info.Exit.Signal != "SIGINT" {
		t.Errorf("after Signal: %s, %+v", info.Outcome, info.Exit)
	}
	if err := term.Signal(syscall.SIGINT); !errors.Is(err, terminal.ErrEnded) {
		t.Errorf("Signal after the end: %v", err)
	}
}

// Close during starts refuses them or ends what they started.
func TestCloseDuringStarts(t *testing.T) {
	m := localterm.New(nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			term, err := m.Start(t.Context(), terminal.Command{Line: "sleep 300"})
			if err != nil {
				if !errors.Is(err, terminal.ErrClosed) {
					t.Error(err)
				}
				return
			}
			if info := wait(t, term); info.Outcome != terminal.Stopped {
				t.Errorf("ended as %s", info.Outcome)
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	closes(t, m)
	if m.Busy() {
		t.Error("busy after Close")
	}
	wg.Wait()
}

func TestBinaryOutput(t *testing.T) {
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{Line: `printf '\377\000\200a'`})
	if got := output(t, term); got != "\ufffd\x00\ufffda" {
		t.Errorf("got %q", got)
	}
}
