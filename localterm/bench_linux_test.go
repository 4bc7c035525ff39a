package localterm_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// The baseline of each benchmark is the fastest plain loop for its kind of
// descriptor: a non-blocking pseudo-terminal with the same modes, or a pipe,
// read through the runtime's poller, and os/exec. Baseline and Manager take
// turns, and "ratio" is that of their medians: the Manager's speed in units of
// the baseline's. "cpu-ratio" is the same for the processor time that this
// process takes, and less of a lottery on a busy machine.

// rawTerminal returns both sides of a terminal without any package of ours.
func rawTerminal(b *testing.B) (master, slave *os.File) {
	b.Helper()
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	check(err)
	check(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		b.Fatal(errno)
	}
	modes, err := unix.IoctlGetTermios(int(peer), unix.TCGETS)
	check(err)
	modes.Oflag &^= unix.ONLCR
	check(unix.IoctlSetTermios(int(peer), unix.TCSETS, modes))
	return os.NewFile(uintptr(fd), "master"), os.NewFile(peer, "slave")
}

// raw runs line with its output in a terminal or a pipe, reads all of it, and
// returns how much that was.
func raw(b *testing.B, line string, tty bool, size int) (n int64) {
	b.Helper()
	var ours, theirs *os.File
	if tty {
		ours, theirs = rawTerminal(b)
	} else {
		var err error
		if ours, theirs, err = os.Pipe(); err != nil {
			b.Fatal(err)
		}
	}
	defer ours.Close()
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Stdout, cmd.Stderr = theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	theirs.Close()
	buf := make([]byte, size)
	for {
		m, err := ours.Read(buf)
		n += int64(m)
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
	return n
}

// ratio runs both in turns, each after a pause, and reports how they compare,
// for n bytes each.
func ratio(b *testing.B, n int64, pause time.Duration, baseline, manager func()) {
	b.Helper()
	baseline()
	manager()
	type sample struct{ wall, cpu []time.Duration }
	var base, ours sample
	measure := func(s *sample, f func()) {
		time.Sleep(pause)
		start, cpu := time.Now(), cpuTime(b)
		f()
		s.wall = append(s.wall, time.Since(start))
		s.cpu = append(s.cpu, cpuTime(b)-cpu)
	}
	for b.Loop() {
		measure(&base, baseline)
		measure(&ours, manager)
	}
	x, y := median(base.wall), median(ours.wall)
	b.ReportMetric(x.Seconds()/y.Seconds(), "ratio")
	if cpu := median(ours.cpu); cpu > 0 {
		b.ReportMetric(median(base.cpu).Seconds()/cpu.Seconds(), "cpu-ratio")
	}
	b.ReportMetric(0, "ns/op")
	if n > 0 {
		b.ReportMetric(float64(n)/1e6/x.Seconds(), "base-MB/s")
		b.ReportMetric(float64(n)/1e6/y.Seconds(), "MB/s")
	} else {
		b.ReportMetric(float64(x.Nanoseconds())/1e3, "base-µs")
		b.ReportMetric(float64(y.Nanoseconds())/1e3, "µs")
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkIngest: 1 MiB is kept. Idle: nobody reads before the end, and then
// the tail. Follow: one reader follows; what it missed is reported.
func BenchmarkIngest(b *testing.B) {
	const mega = 1 << 20
	for _, source := range []struct {
		name, line string
		tty, pipe  int64
	}{
		{"zero", "head -c %d /dev/zero", 48 * mega, 512 * mega},
		{"yes", "yes | head -c %d", 24 * mega, 128 * mega},
		{"lines", "yes $(printf %%079d 0) | head -c %d", 32 * mega, 128 * mega},
	} {
		for _, kind := range []string{"tty", "pipe"} {
			n, size := source.tty, 8<<10
			if kind == "pipe" {
				n, size = source.pipe, 64<<10
			}
			line := fmt.Sprintf(source.line, n)
			for _, reader := range []string{"idle", "follow"} {
				b.Run(source.name+"/"+kind+"/"+reader, func(b *testing.B) {
					m := localterm.New(nil)
					defer m.Close()
					var missed, runs int64
					ratio(b, n, 0, func() {
						if got := raw(b, line, kind == "tty", size); got != n {
							b.Fatalf("read %d bytes of %d", got, n)
						}
					}, func() {
						t, err := m.Start(b.Context(), terminal.Command{Line: line, TTY: kind == "tty"})
						if err != nil {
							b.Fatal(err)
						}
						if reader == "idle" {
							<-t.Done()
						}
						var got, end int64
						for out, err := range terminal.Follow(b.Context(), t, 0) {
							if err != nil {
								b.Fatal(err)
							}
							got, end = got+int64(len(out.Text)), out.NextCursor
						}
						if end != n {
							b.Fatalf("read up to %d of %d", end, n)
						}
						missed, runs = missed+n-got, runs+1
					})
					if reader == "follow" {
						b.ReportMetric(100*float64(missed)/float64(runs*n), "%missed")
					}
				})
			}
		}
	}
}

// BenchmarkStart is from the start to the end of a command that does nothing.
// Cancelable is with a context that may end, for which both sides need another
// goroutine. Session gives the plain command a session of its own, too, which the
// kernel takes its time for.
func BenchmarkStart(b *testing.B) {
	for _, kind := range []string{"tty", "pipe", "pipe/cancelable", "pipe/session"} {
		b.Run(kind, func(b *testing.B) {
			m := localterm.New(nil)
			defer m.Close()
			ctx := context.Background()
			if kind == "pipe/cancelable" {
				ctx = b.Context()
			}
			ratio(b, 0, 0, func() { rawStart(b, ctx, kind == "tty", kind == "pipe/session") }, func() {
				t, err := m.Start(ctx, terminal.Command{Args: []string{"/bin/true"}, TTY: kind == "tty"})
				if err != nil {
					b.Fatal(err)
				}
				<-t.Done()
			})
		})
	}
}

func rawStart(b *testing.B, ctx context.Context, tty, session bool) {
	cmd := exec.Command("/bin/true")
	if ctx.Done() != nil {
		cmd = exec.CommandContext(ctx, "/bin/true")
	}
	if !tty {
		var stdout, stderr bytes.Buffer
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		return
	}
	master, slave := rawTerminal(b)
	defer master.Close()
	cmd.Stdout, cmd.Stderr = slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	slave.Close()
	io.Copy(io.Discard, master) // ends with EIO
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkWake is from a write in the program to the return of the read that
// waits for it.
func BenchmarkWake(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range []string{"tty", "pipe"} {
		b.Run(kind, func(b *testing.B) {
			in, out, stop := rawClock(b, exe, kind == "tty")
			defer stop()
			m := localterm.New(nil)
			defer m.Close()
			t, err := m.Start(b.Context(), terminal.Command{Args: []string{exe}, Env: map[string]string{clockEnv: "1"},
				TTY: kind == "tty", Stdin: true})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cursor := context.Background(), int64(0)
			read := func() string {
				o, err := t.ReadOutput(ctx, cursor, time.Minute)
				if err != nil {
					b.Fatal(err)
				}
				cursor = o.NextCursor
				return o.Text
			}
			buf := make([]byte, 64<<10)
			rawRead := func() string {
				n, err := out.Read(buf)
				if err != nil {
					b.Fatal(err)
				}
				return string(buf[:n])
			}
			for _, read := range []func() string{read, rawRead} {
				if got := read(); got != "ready\n" {
					b.Fatalf("read %q", got)
				}
			}
			var base, ours []time.Duration
			for b.Loop() {
				io.WriteString(in, "x")
				base = append(base, since(b, rawRead()))
				if _, err := t.WriteInput(ctx, "x"); err != nil {
					b.Fatal(err)
				}
				ours = append(ours, since(b, read()))
			}
			x, y := median(base), median(ours)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(x.Nanoseconds())/1e3, "base-µs")
			b.ReportMetric(float64(y.Nanoseconds())/1e3, "µs")
		})
	}
}

// clockEnv makes the test program a clock: for each byte of input it writes, after
// a while, what time it is.
const clockEnv = "LOCALTERM_CLOCK"

func init() {
	if os.Getenv(clockEnv) == "" {
		return
	}
	if modes, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
		modes.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG
		modes.Oflag &^= unix.OPOST
		unix.IoctlSetTermios(0, unix.TCSETS, modes)
	}
	os.Stdout.WriteString("ready\n")
	var x [1]byte
	for {
		if n, err := os.Stdin.Read(x[:]); n == 0 || err != nil {
			os.Exit(0)
		}
		time.Sleep(500 * time.Microsecond) // the reader waits by now
		unix.Write(1, fmt.Appendln(nil, monotonic()))
	}
}

// monotonic returns nanoseconds of a clock that all processes share.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

func since(b *testing.B, clock string) time.Duration {
	now := monotonic()
	then, err := strconv.ParseInt(strings.TrimSpace(clock), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(now - then)
}

// rawClock starts a clock without any package of ours.
func rawClock(b *testing.B, exe string, tty bool) (in io.Writer, out io.Reader, stop func()) {
	b.Helper()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), clockEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var ours, theirs []*os.File
	if tty {
		master, slave := rawTerminal(b)
		cmd.Stdin, cmd.Stdout = slave, slave
		ours, theirs = []*os.File{master, master}, []*os.File{slave}
	} else {
		r, stdin, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		stdout, w, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		cmd.Stdin, cmd.Stdout = r, w
		ours, theirs = []*os.File{stdin, stdout}, []*os.File{r, w}
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	for _, f := range theirs {
		f.Close()
	}
	return ours[0], ours[1], func() {
		cmd.Process.Kill()
		cmd.Wait()
		for _, f := range ours {
			f.Close()
		}
	}
}
