package lineedit

import (
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var lines = flag.Int("lines", 2000, "how many random inputs the kernel gets")

// What the kernel makes of what is typed is what this package makes of it.
func TestAsTheKernel(t *testing.T) {
	master, slave := terminal(t)
	keys := []string{
		"a", "b", "c", " ", ",", "_", "é", "→", "😀", "\xa9", "\xff", "\x00", "\t",
		"\n", "\r", "\x7f", "\x17", "\x15", "\x16", "\x12", "\x04", "\x03", "\x1a", "\x1c", "\x11",
	}
	seed := uint64(os.Getpid())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range *lines {
		var b strings.Builder
		for range 1 + random.IntN(24) {
			b.WriteString(keys[random.IntN(len(keys))])
		}
		// A literal key may be pending, and a line: both end so that the next begins
		// afresh, and what was read is known to be all.
		text := b.String()
		l, _ := new(Line).Check(text, &Default)
		if l.literal {
			text += "x"
		}
		text += "end\n"
		want, rest := typed(text, &Default)
		if rest != "" {
			t.Fatalf("%q: %q is left", text, rest)
		}
		if _, err := unix.Write(master, []byte(text)); err != nil {
			t.Fatal(err)
		}
		// Once it is echoed the kernel is through with it: a signal takes away what
		// is not read yet.
		var echo []byte
		for buf := make([]byte, 4096); !strings.HasSuffix(string(echo), "end\r\n"); {
			n, err := unix.Read(master, buf)
			if err != nil {
				t.Fatal(err)
			}
			echo = append(echo, buf[:n]...)
		}
		if got := readLines(t, slave, len(want)); !slices.Equal(got, want) {
			t.Fatalf("%q: the kernel has %q, and this package %q", text, got, want)
		}
	}
}

// The longest line that the kernel does not cut is Max.
func TestMaxIsTheKernels(t *testing.T) {
	master, slave := terminal(t)
	modes, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	modes.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(slave, unix.TCSETS, modes); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ n, want int }{{Max, Max}, {Max + 100, Max}} {
		for text := []byte(strings.Repeat("x", c.n) + "\n"); len(text) > 0; {
			n, err := unix.Write(master, text)
			if err != nil {
				t.Fatal(err)
			}
			text = text[n:]
		}
		if got := readLines(t, slave, 1); len(got[0]) != c.want+1 {
			t.Errorf("of %d bytes the kernel kept %d", c.n, len(got[0])-1)
		}
	}
}

// terminal returns both sides of a pseudo-terminal.
func terminal(t *testing.T) (master, slave int) {
	t.Helper()
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { unix.Close(master) })
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Skipf("no TIOCGPTPEER: %v", errno)
	}
	slave = int(fd)
	t.Cleanup(func() { unix.Close(slave) })
	modes, err := unix.IoctlGetTermios(slave, unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	modes.Iflag |= unix.IUTF8
	if err := unix.IoctlSetTermios(slave, unix.TCSETS, modes); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// readLines reads n times, and then all that is there.
func readLines(t *testing.T, slave, n int) (lines []string) {
	t.Helper()
	buf := make([]byte, 2*Max)
	for {
		timeout := 0
		if len(lines) < n {
			timeout = 10_000
		}
		fds := []unix.PollFd{{Fd: int32(slave), Events: unix.POLLIN}}
		if m, err := unix.Poll(fds, timeout); m == 0 || err != nil {
			return lines
		}
		n, err := unix.Read(slave, buf)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(buf[:n]))
	}
}
