package launcher_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/launcher"
	"github.com/termbridge/termbridge/terminal/terminaltest"
)

// TestMain runs more tests at one time than there are processors: most of them
// sleep, or wait for another machine's part of the work.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "16") // a flag of the command line replaces it
	terminaltest.Main(m)
}

// keepOpen are what the servers of the tests run for: the test binary's ends of
// their standard inputs.
var keepOpen []io.Closer

// need fails or skips a test that needs a program that is not there.
func need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("TERMBRIDGE_REAL") != "" {
			t.Fatalf("%s is missing", name)
		}
		t.Skipf("%s is missing", name)
	}
}

// An sshd is a real OpenSSH server on the loopback interface. It has one port for
// each login shell.
type sshd struct {
	dir   string
	ports map[string]string // by the name of the shell
}

var loginShells = []string{"sh", "bash", "zsh", "fish", "tcsh"}

var server = sync.OnceValues(startSSHD)

// startSSHD starts the server, once for all tests; it ends with the test binary.
// A forced command stands for the login shell: sshd gives it what the client asked
// for, and the shell parses that as a login shell does.
func startSSHD() (*sshd, error) {
	dir, err := os.MkdirTemp("", "sshd")
	if err != nil {
		return nil, err
	}
	s := &sshd{dir: dir, ports: make(map[string]string)}
	for _, key := range []string{"host", "user", "other"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	os.MkdirAll("/run/sshd", 0o755)
	var config, known bytes.Buffer
	host, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		return nil, err
	}
	var match bytes.Buffer
	for _, shell := range loginShells {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		l.Close()
		s.ports[shell] = port
		fmt.Fprintf(&config, "Port %s\n", port)
		fmt.Fprintf(&match, "Match LocalPort %s\nForceCommand exec %s -c \"$SSH_ORIGINAL_COMMAND\"\n", port, path)
		fmt.Fprintf(&known, "[127.0.0.1]:%s %s", port, host)
	}
	fmt.Fprintf(&config, `ListenAddress 127.0.0.1
HostKey %[1]s/host
AuthorizedKeysFile %[1]s/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
LogLevel ERROR
SetEnv HOME=%[1]s
MaxStartups 100
%[2]s`, dir, match.String())
	for name, data := range map[string][]byte{"sshd_config": config.Bytes(), "known_hosts": known.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	path, err := exec.LookPath("sshd")
	if err != nil {
		path = "/usr/sbin/sshd"
	}
	// It ends with its standard input: that of a shell which waits for ours.
	cmd := exec.Command("/bin/sh", "-c", `dir=$1; shift; "$@" & read -r x; kill $!; rm -rf "$dir"`, "sh", dir, path, "-D", "-e", "-f", filepath.Join(dir, "sshd_config"))
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	keepOpen = append(keepOpen, alive)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for _, port := range s.ports {
		for try := 0; ; try++ {
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err == nil {
				c.Close()
				break
			}
			if try == 100 {
				said, _ := os.ReadFile(log.Name())
				return nil, fmt.Errorf("sshd does not listen: %s", said)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return s, nil
}

// ssh returns the launcher for a login shell, or skips the test.
func ssh(t testing.TB, shell string, change func(*launcher.SSHOptions)) launcher.Launcher {
	t.Helper()
	need(t, "ssh", "ssh-keygen", shell)
	if _, err := os.Stat("/usr/sbin/sshd"); err != nil {
		need(t, "sshd")
	}
	s, err := server()
	if err != nil {
		t.Fatal(err)
	}
	opts := launcher.SSHOptions{
		Port: s.ports[shell], KeyFile: filepath.Join(s.dir, "user"), KnownHosts: filepath.Join(s.dir, "known_hosts"), Config: "none",
	}
	if change != nil {
		change(&opts)
	}
	return launcher.SSH("127.0.0.1", &opts)
}

// A place is one that the tests run at.
type place struct {
	name string
	get  func(t testing.TB) launcher.Launcher
}

func places() []place {
	all := []place{{"command", func(testing.TB) launcher.Launcher { return launcher.Command("env") }}}
	for _, shell := range loginShells {
		all = append(all, place{"ssh-" + shell, func(t testing.TB) launcher.Launcher { return ssh(t, shell, nil) }})
	}
	return append(all, extraPlaces...)
}

// extraPlaces are those of one operating system.
var extraPlaces []place

func newExecutor(t testing.TB, l launcher.Launcher, opts *launcher.Options) *launcher.Executor {
	t.Helper()
	e := launcher.New(l, opts)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

// sh returns a Spec that runs a line.
func sh(line string, args ...string) execenv.Spec {
	return execenv.Spec{Path: "/bin/sh", Args: append([]string{"-c", line, "sh"}, args...), Group: true}
}

// show makes the output of a process short enough for a failure's text.
func show(b []byte) string {
	return strconv.Quote(strings.ToValidUTF8(string(b[:min(len(b), 500)]), "?"))
}
