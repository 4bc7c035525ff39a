package launcher_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/launcher"
	"github.com/termbridge/termbridge/terminal"
)

// bubblewrap returns the launcher, or skips the test.
func bubblewrap(t testing.TB, p launcher.Policy) launcher.Launcher {
	t.Helper()
	bubblewrapWorks(t)
	return launcher.Bubblewrap(p)
}

// bubblewrapWorks skips the test where the kernel allows no sandbox.
func bubblewrapWorks(t testing.TB) {
	t.Helper()
	need(t, "bwrap")
	e := launcher.New(launcher.Bubblewrap(launcher.Policy{}), nil)
	defer e.Close()
	if err := e.Command(context.Background(), sh("true")).Run(); err != nil {
		if os.Getenv("TERMBRIDGE_REAL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func TestSandboxEscapes(t *testing.T) {
	// Nothing that a command tries gets it out: each line must not print ESCAPED.
	home, outside, inside := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("AGENT_SECRET", "ESCAPED")
	if err := os.Mkdir(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(home, ".ssh/id"), filepath.Join(home, ".netrc"), filepath.Join(outside, "hidden")} {
		if err := os.WriteFile(name, []byte("ESCAPED\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(outside, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	for _, l := range []net.Listener{l, tcp} {
		go func() { // ends with the listener
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprintln(c, "ESCAPED")
				c.Close()
			}
		}()
	}
	other := exec.Command("sleep", "100")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()

	need(t, "python3", "bash")
	// The home directory and what is outside lie below /tmp: show them read-only.
	policy := launcher.Policy{Read: []string{home}, Write: []string{inside}, Hide: []string{filepath.Join(home, ".ssh"), filepath.Join(home, ".netrc")}}
	e := newExecutor(t, bubblewrap(t, policy), nil)
	var all sync.WaitGroup
	for _, line := range []string{
		"echo x >/etc/escaped && echo ESCAPED",
		"echo x >" + outside + "/x && echo ESCAPED",
		"echo x >" + home + "/x && echo ESCAPED",
		"cat " + home + "/.ssh/id",
		"cat " + home + "/.netrc",
		"cat " + outside + "/hidden",
		"ls -d " + outside + " && echo ESCAPED",
		`printf '%s\n' "$AGENT_SECRET"; env | grep ESCAPED`,
		"bash -c 'cat </dev/tcp/127.0.0.1/" + fmt.Sprint(tcp.Addr().(*net.TCPAddr).Port) + "'",
		"python3 -c \"import socket; s=socket.socket(socket.AF_UNIX); s.connect('" + filepath.Join(outside, "socket") + "'); print(s.recv(99))\"",
		fmt.Sprintf("kill -0 %d && echo ESCAPED", other.Process.Pid),
		fmt.Sprintf("test -d /proc/%d && echo ESCAPED", other.Process.Pid),
		"mount -t tmpfs x /mnt && echo ESCAPED",
		"mount -o remount,rw / && echo ESCAPED",
		"umount " + home + " && echo ESCAPED",
		"unshare -U true && echo ESCAPED",
		"chroot / true && echo ESCAPED",
		"mknod " + inside + "/disk b 254 0 && echo ESCAPED",
		"cat /dev/vda >/dev/null && echo ESCAPED",
		"exec 3>/proc/sys/kernel/core_pattern && echo ESCAPED",
		"exec 3>/proc/sysrq-trigger && echo ESCAPED",
		"exec 3>/sys/kernel/uevent_helper && echo ESCAPED",
	} {
		all.Go(func() {
			out, _ := e.Command(t.Context(), sh(line)).CombinedOutput()
			if strings.Contains(string(out), "ESCAPED") {
				t.Errorf("%s: %s", line, show(out))
			}
		})
	}
	all.Wait()
	out, err := e.Command(t.Context(), sh("echo x >"+inside+"/x && cat "+inside+"/x && echo y >/tmp/y")).CombinedOutput()
	if err != nil || string(out) != "x\n" {
		t.Errorf("what is allowed: %s, %v", show(out), err)
	}
}

func TestSandboxEndsTheTree(t *testing.T) {
	t.Parallel()
	// What a command starts cannot outlive its end, nor a stop, whatever it does.
	for _, how := range []string{"stop", "natural"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			e := newExecutor(t, bubblewrap(t, launcher.Policy{Write: []string{dir}}), nil)
			beat := filepath.Join(dir, "beat")
			line := `(env -i setsid sh -c 'trap "" TERM HUP INT; while :; do date +%s%N >` + beat + `; sleep 0.05; done' >/dev/null 2>&1 &); sleep 0.5`
			if how == "stop" {
				line += "; sleep 100"
			}
			p := e.Command(context.Background(), sh(line)).(execenv.Session)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			if how == "stop" {
				time.Sleep(time.Second)
				p.StopTree(200 * time.Millisecond)
			}
			_ = p.Wait()
			time.Sleep(500 * time.Millisecond)
			before, err := os.ReadFile(beat)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond)
			if after, _ := os.ReadFile(beat); string(after) != string(before) {
				t.Error("a process of the command lives on")
			}
		})
	}
}

func TestSandboxOfLinks(t *testing.T) {
	// A directory that is named by a symbolic link can be written, under both names;
	// one in a hidden directory stays hidden.
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for _, name := range []string{"real", ".ssh/work"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	policy := launcher.Policy{Write: []string{link, filepath.Join(dir, ".ssh/work")}}
	e := newExecutor(t, bubblewrap(t, policy), &launcher.Options{Dir: link})
	out, err := e.Command(t.Context(), sh(`echo x >"$1/link/a" && echo y >"$1/real/b" && cat a b; { echo z >"$1/.ssh/work/c"; } 2>/dev/null`, dir)).CombinedOutput()
	if !strings.HasPrefix(string(out), "x\ny\n") {
		t.Errorf("got %s, %v", show(out), err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".ssh/work/c")); err == nil {
		t.Error("it has written into a hidden directory")
	}
}

func TestSandboxHidesEachHome(t *testing.T) {
	// Secrets are those of the user's home directory, also where HOME is another one,
	// or is not set.
	u, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	var secret string
	for _, name := range launcher.Secrets {
		if real, err := filepath.EvalSymlinks(filepath.Join(u.HomeDir, name)); err == nil {
			secret = real
			break
		}
	}
	if secret == "" {
		t.Skipf("%s holds no secrets", u.HomeDir)
	}
	for _, home := range []string{"", t.TempDir()} {
		t.Setenv("HOME", home)
		argv := launcher.Bubblewrap(launcher.Policy{}).Argv(launcher.Run{Argv: []string{"true"}})
		if !slices.Contains(argv, secret) {
			t.Errorf("with HOME=%s %s is shown", home, secret)
		}
	}
}

func TestNoSandbox(t *testing.T) {
	// Where the sandbox cannot be set up nothing runs.
	need(t, "bwrap")
	mark := filepath.Join(t.TempDir(), "mark")
	e := newExecutor(t, launcher.Bubblewrap(launcher.Policy{Write: []string{"/no/such/directory"}}), nil)
	err := e.Command(t.Context(), sh("touch "+mark)).Run()
	if !errors.Is(err, launcher.ErrNoSandbox) {
		t.Errorf("got %v, want ErrNoSandbox", err)
	}
	if _, err := os.Stat(mark); !errors.Is(err, syscall.ENOENT) {
		t.Error("the command ran outside of the sandbox")
	}
	t.Setenv("PATH", "/none")
	if err := e.Command(t.Context(), sh("true")).Run(); !errors.Is(err, launcher.ErrNotInstalled) {
		t.Errorf("without bwrap: %v, want ErrNotInstalled", err)
	}
}

func TestSandboxBesideContainers(t *testing.T) {
	// A mount that goes while the sandbox is made fails the sandbox, not the command:
	// it is made again, and the command runs once, with all of its input.
	const gone = `bwrap: Can't bind mount /oldroot/ on /newroot/: Unable to apply mount flags: remount "/newroot/run/runc/x": No such file or directory`
	for _, tt := range []struct {
		name   string
		text   string
		fails  int // so often
		starts int
		err    error
	}{
		{"once", gone, 1, 2, nil},
		{"often", gone, 7, 8, nil},
		{"always", gone, 100, 8, launcher.ErrNoSandbox},
		{"another reason", "bwrap: Can't find source path /x: No such file or directory", 1, 1, launcher.ErrNoSandbox},
	} {
		for _, tty := range []*execenv.TTY{nil, {Size: terminal.Size{}.OrDefault(), Input: true}} {
			t.Run(fmt.Sprint(tt.name, ", terminal ", tty != nil), func(t *testing.T) {
				dir := t.TempDir()
				starts := filepath.Join(dir, "starts")
				fake := fmt.Sprintf("#!/bin/sh\necho >>%[1]s\nif [ $(wc -l <%[1]s) -le %[2]d ]; then echo '%[3]s' >&2; exit 1; fi\n"+
					"while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"\n", starts, tt.fails, strings.ReplaceAll(tt.text, "'", `'\''`))
				if err := os.WriteFile(filepath.Join(dir, "bwrap"), []byte(fake), 0o700); err != nil {
					t.Fatal(err)
				}
				t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
				e := newExecutor(t, launcher.Bubblewrap(launcher.Policy{}), nil)
				var out bytes.Buffer
				spec := sh("exit 3")
				if spec.TTY = tty; tty == nil {
					spec = sh("cat; echo; exit 3")
					spec.Stdin, spec.Stdout, spec.Stderr = strings.NewReader(strings.Repeat("x", 100_000)), &out, &out
				}
				p := e.Command(t.Context(), spec).(execenv.Session)
				err := p.Start()
				if tty != nil && err == nil {
					screen, _ := p.Terminal()
					_, _ = io.Copy(&out, screen)
				}
				if err == nil {
					err = p.Wait()
				}
				var exit *execenv.ExitError
				if tt.err == nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) || tt.err != nil && !errors.Is(err, tt.err) {
					t.Errorf("error is %v", err)
				}
				if want := strings.Repeat("x", 100_000) + "\n"; tt.err == nil && tty == nil && out.String() != want {
					t.Errorf("output has %d bytes, want %d: %s", out.Len(), len(want), show(out.Bytes()[:min(200, out.Len())]))
				}
				if b, _ := os.ReadFile(starts); len(b) != tt.starts {
					t.Errorf("%d starts, want %d", len(b), tt.starts)
				}
			})
		}
	}
}

func init() {
	// The test binary lies where the sandbox shows nothing.
	sandbox := place{"bwrap", func(t testing.TB) launcher.Launcher {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		return bubblewrap(t, launcher.Policy{Read: []string{filepath.Dir(exe)}, Write: []string{os.TempDir()}})
	}}
	extraPlaces = append(extraPlaces, sandbox)
	plains["bwrap"] = func(b *testing.B) func(string) *exec.Cmd {
		l := sandbox.get(b)
		return func(line string) *exec.Cmd {
			argv := l.Argv(launcher.Run{Argv: []string{"/bin/sh", "-c", line}})
			return exec.Command(argv[0], argv[1:]...)
		}
	}
}
