//go:build unix

package launcher_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/launcher"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// A link is a proxy before a server, which can stop forwarding: then nothing comes
// through, and nobody is told.
type link struct {
	port string
	cut  atomic.Bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := new(link)
	_, k.port, _ = net.SplitHostPort(l.Addr().String())
	var pumps sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		pumps.Wait()
	})
	pumps.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", "127.0.0.1:"+to)
			if err != nil {
				in.Close()
				continue
			}
			mu.Lock()
			open = append(open, in, out)
			mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				pumps.Go(func() {
					defer func() {
						if !k.cut.Load() {
							pair[1].Close()
						}
					}()
					buf := make([]byte, 32<<10)
					for {
						n, err := pair[0].Read(buf)
						if k.cut.Load() {
							if err != nil {
								return
							}
							continue // it is lost
						}
						if _, werr := pair[1].Write(buf[:n]); err != nil || werr != nil {
							return
						}
					}
				})
			}
		}
	})
	return k
}

// throughLink returns ssh over a link.
func throughLink(t *testing.T) (launcher.Launcher, *link) {
	t.Helper()
	_ = ssh(t, "sh", nil) // or skip
	s, err := server()
	if err != nil {
		t.Fatal(err)
	}
	k := newLink(t, s.ports["sh"])
	host, err := os.ReadFile(filepath.Join(s.dir, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(known, []byte("[127.0.0.1]:"+k.port+" "+string(host)), 0o600); err != nil {
		t.Fatal(err)
	}
	return ssh(t, "sh", func(o *launcher.SSHOptions) { o.Port, o.KnownHosts = k.port, known }), k
}

// beating writes to the file $1 as long as it lives, in a child as well.
const beating = `trap '' HUP; (trap '' HUP TERM; while :; do echo c >>"$1"; sleep 0.05; done) & while :; do echo p >>"$1"; sleep 0.05; done`

// quiet waits until nothing writes to a file any more.
func quiet(t *testing.T, file string) {
	t.Helper()
	size := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	start := time.Now()
	last, before := start, size()
	for time.Since(last) < 500*time.Millisecond {
		time.Sleep(20 * time.Millisecond)
		if now := size(); now != before {
			last, before = time.Now(), now
		}
		if time.Since(start) > 60*time.Second {
			t.Fatal("something writes on at the place")
		}
	}
	t.Logf("the last write at the place came after %v", last.Sub(start).Round(10*time.Millisecond))
}

// appears waits for a file.
func appears(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nothing writes %s", file)
		}
	}
}

func returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { // joined, or the test has failed
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	// A link that stops forwarding, at whatever moment, hangs nothing, is never a
	// success, and leaves nothing at the place.
	opts := &launcher.Options{LostAfter: 3 * time.Second, StartTimeout: 4 * time.Second}
	for _, phase := range []string{"before the start", "running", "while stopping"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			l, k := throughLink(t)
			e := launcher.New(l, opts)
			file := filepath.Join(t.TempDir(), "beat")
			if phase == "before the start" {
				k.cut.Store(true)
				var err error
				returns(t, "Run", func() { err = e.Command(context.Background(), sh(beating, file)).Run() })
				if _, ok := errors.AsType[*execenv.StartError](err); !ok || !errors.Is(err, launcher.ErrUnreachable) {
					t.Errorf("%v, want a *StartError that is ErrUnreachable", err)
				}
				returns(t, "Close", func() { _ = e.Close() })
				if _, err := os.Stat(file); err == nil {
					t.Error("it ran")
				}
				return
			}
			p := e.Command(context.Background(), sh(beating, file)).(execenv.Session)
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			appears(t, file)
			stopped := make(chan []terminal.Proc, 1)
			if phase == "while stopping" {
				go func() { stopped <- p.StopTree(30 * time.Second) }() // joined below
				time.Sleep(200 * time.Millisecond)
			}
			k.cut.Store(true)
			var err error
			returns(t, "Wait", func() { err = p.Wait() })
			exit, ok := errors.AsType[*execenv.ExitError](err)
			if !ok || exit.Exit.Success() || !exit.Exit.Known() && !errors.Is(err, launcher.ErrLost) {
				t.Errorf("Wait: %v, want no success, and ErrLost if it is not known", err)
			}
			if phase == "while stopping" {
				returns(t, "StopTree", func() {
					if left := <-stopped; left != nil && len(left) == 0 {
						t.Errorf("StopTree says that nothing is left, and cannot know: %v", left)
					}
				})
			}
			quiet(t, file)
			// New commands connect again.
			k.cut.Store(false)
			var out []byte
			returns(t, "the next command", func() { out, err = e.Command(context.Background(), sh("echo again")).Output() })
			if string(out) != "again\n" || err != nil {
				t.Errorf("the next command: %q, %v", out, err)
			}
			returns(t, "Close", func() { _ = e.Close() })
		})
	}
}

func TestCutOfOneEnvironment(t *testing.T) {
	t.Parallel()
	// The command of a cut link is unknown, with a reason; another environment's is
	// untouched.
	l, k := throughLink(t)
	far := launcher.New(l, &launcher.Options{LostAfter: 2 * time.Second})
	near := newExecutor(t, launcher.Command("env"), nil)
	m := localterm.New(&localterm.Options{Executors: map[string]execenv.Executor{"far": far, "near": near}, Grace: time.Second})
	defer func() {
		returns(t, "Close", func() { _ = m.Close(); _ = far.Close() })
	}()
	start := func(where string) terminal.Terminal {
		t.Helper()
		term, err := m.Start(t.Context(), terminal.Command{Line: "echo begun; sleep 300", Environment: where})
		if err != nil {
			t.Fatal(err)
		}
		return term
	}
	cut, other := start("far"), start("near")
	k.cut.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	info, err := terminal.Wait(ctx, cut)
	if err != nil || info.Outcome != terminal.Unknown || !errors.Is(info.Err, launcher.ErrLost) {
		t.Errorf("%v, %v, %v; want unknown, with ErrLost", info.Outcome, info.Err, err)
	}
	if got := other.Info().Outcome; got != terminal.Running {
		t.Errorf("the other one: %v", got)
	}
}

func TestAgentKilled(t *testing.T) {
	t.Parallel()
	// An agent that is killed leaves nothing at the place.
	if os.Getenv("LAUNCHER_TEST_AGENT") != "" {
		return
	}
	l := ssh(t, "sh", nil)
	file := filepath.Join(t.TempDir(), "beat")
	// The agent is a shell that runs the supervisor's and the command's launchers as
	// an Executor does: a process of this test binary.
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(exe, "-test.run=^TestAgentItself$", "-test.v")
	agent.Env = append(os.Environ(), "LAUNCHER_TEST_AGENT="+file, "LAUNCHER_TEST_ARGV="+strings.Join(l.Argv(launcher.Run{Argv: []string{"RUN"}, Dir: "DIR", Supervisor: true}), "\x1f"))
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer agent.Wait()
	defer agent.Process.Kill()
	appears(t, file)
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	quiet(t, file)
}

// TestAgentItself is the agent that TestAgentKilled kills.
func TestAgentItself(t *testing.T) {
	file := os.Getenv("LAUNCHER_TEST_AGENT")
	if file == "" {
		t.Skip("it is a part of TestAgentKilled")
	}
	argv := strings.Split(os.Getenv("LAUNCHER_TEST_ARGV"), "\x1f")
	l := launcher.Launcher{
		Name: "ssh", LoginShell: true,
		Argv: func(r launcher.Run) []string {
			words := make([]string, 0, len(argv))
			for _, word := range argv {
				switch word = strings.ReplaceAll(word, "DIR/", r.Dir+"/"); {
				case word == "RUN":
					word = r.Argv[0]
				case !r.Supervisor:
					word = strings.Replace(word, "ControlMaster=yes", "ControlMaster=no", 1)
				}
				words = append(words, word)
			}
			return words
		},
	}
	e := launcher.New(l, &launcher.Options{LostAfter: 3 * time.Second})
	p := e.Command(context.Background(), sh(beating, file))
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
}

func TestManyTerminals(t *testing.T) {
	t.Parallel()
	// Fifty terminals at once run over a few connections, each with its own output.
	n := 12
	if *everywhere {
		n = 50
	}
	e := newExecutor(t, ssh(t, "sh", nil), nil)
	var all sync.WaitGroup
	go0 := make(chan struct{})
	for i := range n {
		all.Go(func() {
			spec := sh(`echo "ready $1"; read -r line; echo "got $line"; exit 7`, string(rune('a'+i%26)))
			spec.TTY = &execenv.TTY{Size: terminal.Size{}.OrDefault(), Input: true}
			p := e.Command(context.Background(), spec).(execenv.Session)
			if err := p.Start(); err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			tty, _ := p.Terminal()
			read := make(chan string, 1)
			go func() { // joined below
				out, _ := io.ReadAll(tty)
				read <- string(out)
			}()
			<-go0
			if _, err := io.WriteString(tty, "word\n"); err != nil {
				t.Errorf("%d: %v", i, err)
			}
			out := <-read
			_ = p.Wait()
			if code := p.Exit().Code; code == nil || *code != 7 || !strings.HasSuffix(out, "got word\n") || !strings.Contains(out, "ready "+string(rune('a'+i%26))+"\n") {
				t.Errorf("%d: %v, %s", i, p.Exit(), show([]byte(out)))
			}
		})
	}
	for end := time.Now().Add(60 * time.Second); e.State().Processes < n && time.Now().Before(end) && !t.Failed(); {
		time.Sleep(10 * time.Millisecond)
	}
	if s := e.State(); s.Processes != n || s.Connections > (n+5)/6 {
		t.Errorf("%v; want %d processes at once, over at most %d connections", s, n, (n+5)/6)
	}
	close(go0)
	returns(t, "all of them", all.Wait)
}

func TestCloseDuringAStart(t *testing.T) {
	t.Parallel()
	// A place that does not answer holds up no Close, and is no leak.
	e := launcher.New(launcher.Command("sh", "-c", "exec sleep 300"), nil)
	m := localterm.New(&localterm.Options{Executors: map[string]execenv.Executor{"slow": e}, Grace: 100 * time.Millisecond})
	started := make(chan error, 1)
	go func() { // joined below
		_, err := m.Start(context.Background(), terminal.Command{Line: "true"})
		started <- err
	}()
	for e.State().Connections == 0 {
		time.Sleep(time.Millisecond)
	}
	returns(t, "Close", func() {
		if err := m.Close(); err != nil {
			t.Errorf("Manager.Close: %v", err)
		}
		if err := e.Close(); err != nil {
			t.Errorf("Executor.Close: %v", err)
		}
		if err := <-started; !errors.Is(err, terminal.ErrClosed) {
			t.Errorf("Start: %v, want ErrClosed", err)
		}
	})
	// The Executor's own Close ends a start as well.
	e = launcher.New(launcher.Command("sh", "-c", "exec sleep 300"), nil)
	go func() { started <- e.Command(context.Background(), sh("true")).Run() }() // joined below
	for e.State().Connections == 0 {
		time.Sleep(time.Millisecond)
	}
	returns(t, "Close", func() {
		if err := e.Close(); err != nil {
			t.Errorf("Executor.Close: %v", err)
		}
		if err := <-started; !errors.Is(err, terminal.ErrClosed) {
			t.Errorf("Start: %v, want ErrClosed", err)
		}
	})
}

func TestStartIsAbandoned(t *testing.T) {
	t.Parallel()
	// A start whose context ends, at whatever moment on its way to the command, returns
	// then, and leaves nothing at the place.
	slow := launcher.Launcher{Name: "slow", Argv: func(r launcher.Run) []string {
		if r.Supervisor {
			return r.Argv
		}
		return append([]string{"sh", "-c", `exec 3<&0; (sleep 0.2; exec "$@" <&3)`, "sh"}, r.Argv...)
	}}
	for _, l := range []launcher.Launcher{launcher.Command("env"), slow} {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			e := newExecutor(t, l, nil)
			if err := e.Command(t.Context(), sh("true")).Run(); err != nil {
				t.Fatal(err) // the connection is there
			}
			file := filepath.Join(t.TempDir(), "beat")
			var all sync.WaitGroup
			for i := range 12 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*3*time.Millisecond)
					defer cancel()
					if err := e.Command(ctx, sh(beating, file)).Run(); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v, want DeadlineExceeded", err)
					}
				})
			}
			returns(t, "a start that is abandoned", all.Wait)
			for start := time.Now(); e.State().Processes != 0; time.Sleep(10 * time.Millisecond) {
				if time.Since(start) > 30*time.Second { // the launcher of one that ran may end later
					t.Fatalf("%d processes are left", e.State().Processes)
				}
			}
			quiet(t, file)
		})
	}
}
