package localterm_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
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
// goroutine.
func BenchmarkStart(b *testing.B) {
	for _, kind := range []string{"tty", "pipe", "pipe/cancelable"} {
		b.Run(kind, func(b *testing.B) {
			m := localterm.New(nil)
			defer m.Close()
			ctx := context.Background()
			if kind == "pipe/cancelable" {
				ctx = b.Context()
			}
			ratio(b, 0, 0, func() { rawStart(b, ctx, kind == "tty") }, func() {
				t, err := m.Start(ctx, terminal.Command{Args: []string{"/bin/true"}, TTY: kind == "tty"})
				if err != nil {
					b.Fatal(err)
				}
				<-t.Done()
			})
		})
	}
}

func rawStart(b *testing.B, ctx context.Context, tty bool) {
	cmd := exec.Command("/bin/true")
	if ctx.Done() != nil {
		cmd = exec.CommandContext(ctx, "/bin/true")
	}
	if !tty {
		var stdout, stderr bytes.Buffer
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

// BenchmarkWake is from a byte of input to its echo by the program, with a
// reader that waits for it.
func BenchmarkWake(b *testing.B) {
	for _, kind := range []string{"tty", "pipe"} {
		b.Run(kind, func(b *testing.B) {
			in, out, stop := rawCat(b, kind == "tty")
			defer stop()
			m := localterm.New(nil)
			defer m.Close()
			line := "exec cat"
			if kind == "tty" {
				line = "stty raw -echo; echo; exec cat"
			}
			t, err := m.Start(b.Context(), terminal.Command{Line: line, TTY: kind == "tty", Stdin: true})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			cursor := int64(0)
			read := func() {
				o, err := t.ReadOutput(ctx, cursor, time.Minute)
				if err != nil || o.Text == "" {
					b.Fatalf("%+v, %v", o, err)
				}
				cursor = o.NextCursor
			}
			if kind == "tty" {
				read()
			}
			buf := make([]byte, 64<<10)
			ratio(b, 0, 500*time.Microsecond, func() {
				io.WriteString(in, "x")
				if _, err := out.Read(buf); err != nil {
					b.Fatal(err)
				}
			}, func() {
				if _, err := t.WriteInput(ctx, "x"); err != nil {
					b.Fatal(err)
				}
				read()
			})
		})
	}
}

// rawCat starts a cat without any package of ours.
func rawCat(b *testing.B, tty bool) (in io.Writer, out io.Reader, stop func()) {
	b.Helper()
	cmd := exec.Command("/bin/sh", "-c", "exec cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var ours, theirs []*os.File
	if tty {
		master, slave := rawTerminal(b)
		modes, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		if err != nil {
			b.Fatal(err)
		}
		modes.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG
		modes.Oflag &^= unix.OPOST
		if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, modes); err != nil {
			b.Fatal(err)
		}
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
