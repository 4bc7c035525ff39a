package launcher_test

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv/launcher"
)

// A plain is the launcher's own program, as a user would call it.
type plain func(b *testing.B) func(line string) *exec.Cmd

// benchPlaces are those that are measured against their plain commands.
func benchPlaces() []struct {
	place
	plain plain
} {
	type both = struct {
		place
		plain plain
	}
	all := []both{{place{"ssh", func(t testing.TB) launcher.Launcher { return ssh(t, "sh", nil) }}, plainSSH}}
	for _, p := range extraPlaces {
		if f := plains[p.name]; f != nil {
			all = append(all, both{p, f})
		}
	}
	return all
}

var plains = map[string]plain{}

// plainSSH is ssh over a ControlMaster of its own.
func plainSSH(b *testing.B) func(string) *exec.Cmd {
	l := ssh(b, "sh", nil)
	dir, err := filepath.Abs(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	run := func(supervisor bool, line string) *exec.Cmd {
		argv := l.Argv(launcher.Run{Argv: []string{line}, Dir: dir, Supervisor: supervisor})
		return exec.Command(argv[0], argv[1:]...)
	}
	master := run(true, "echo ready; cat")
	in, err := master.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := master.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := master.Start(); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = master.Wait()
	})
	return func(line string) *exec.Cmd { return run(false, line) }
}

// BenchmarkStart measures start to exit of a short command, by turns with the plain
// command on the same connection: "ratio" is ours over plain, of the medians.
func BenchmarkStart(b *testing.B) {
	for _, p := range benchPlaces() {
		b.Run(p.name, func(b *testing.B) {
			e := newExecutor(b, p.get(b), nil)
			command := p.plain(b)
			ours := func() {
				if err := e.Command(context.Background(), sh("echo hi")).Run(); err != nil {
					b.Fatal(err)
				}
			}
			plain := func() {
				if err := command("echo hi").Run(); err != nil {
					b.Fatal(err)
				}
			}
			compare(b, ours, plain)
		})
	}
}

// BenchmarkThroughput measures the output of 64 MiB, by turns with the plain
// command: into a writer (Spec.Stdout, Cmd.Stdout), and out of a pipe, where it takes
// one more goroutine here.
func BenchmarkThroughput(b *testing.B) {
	const size = 64 << 20
	const line = "head -c 67108864 /dev/zero"
	buf := make([]byte, 64<<10)
	read := func(b *testing.B, out io.Reader, err error, start, wait func() error) {
		if err == nil {
			err = start()
		}
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, buf)
		if err != nil || n != size {
			b.Fatalf("%d bytes, %v", n, err)
		}
		if err := wait(); err != nil {
			b.Fatal(err)
		}
	}
	write := func(b *testing.B, n *counter, run func() error) {
		if err := run(); err != nil || *n != size {
			b.Fatalf("%d bytes, %v", *n, err)
		}
	}
	for _, p := range benchPlaces() {
		b.Run(p.name+"/writer", func(b *testing.B) {
			b.SetBytes(size)
			e := newExecutor(b, p.get(b), nil)
			command := p.plain(b)
			compare(b, func() {
				n, spec := new(counter), sh(line)
				spec.Stdout = n
				write(b, n, e.Command(context.Background(), spec).Run)
			}, func() {
				n, cmd := new(counter), command(line)
				cmd.Stdout = n
				write(b, n, cmd.Run)
			})
		})
		b.Run(p.name+"/pipe", func(b *testing.B) {
			b.SetBytes(size)
			e := newExecutor(b, p.get(b), nil)
			command := p.plain(b)
			compare(b, func() {
				p := e.Command(context.Background(), sh(line))
				out, err := p.StdoutPipe()
				read(b, out, err, p.Start, p.Wait)
			}, func() {
				cmd := command(line)
				out, err := cmd.StdoutPipe()
				read(b, out, err, cmd.Start, cmd.Wait)
			})
		})
	}
}

// A counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// compare runs two things by turns, and reports the medians' ratio.
func compare(b *testing.B, ours, plain func()) {
	ours() // the connection is warm
	plain()
	var took [2][]time.Duration
	for b.Loop() {
		for i, f := range []func(){ours, plain} {
			began := time.Now()
			f()
			took[i] = append(took[i], time.Since(began))
		}
	}
	mine, theirs := median(took[0]), median(took[1])
	b.ReportMetric(float64(mine)/float64(theirs), "ratio")
	b.ReportMetric(float64(mine)/1e6, "ms")
	b.ReportMetric(float64(theirs)/1e6, "plain-ms")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
