package execenv_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"golang.org/x/sys/unix"
)

// The tests here take from the agent what the kernel gives to processes. Each
// runs in a process of its own, whose limits and namespaces it may change.

// alone runs the test that calls it once more, in a process with attr, and
// reports whether this is that process.
func alone(t *testing.T, attr syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv("EXECENV_TEST_ALONE") != "" {
		return true
	}
	if attr.Cloneflags != 0 && os.Getuid() != 0 { // who may do that as root of a namespace
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m", fmt.Sprint("-full=", *full)) // another user may not find it by its path
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "EXECENV_TEST_ALONE=1", "TMPDIR=/tmp", "GOCOVERDIR=/tmp")
	cmd.SysProcAttr = &attr
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	switch {
	case err != nil && cmd.Process == nil:
		cannot(t, err)
	case err != nil:
		t.Error(err)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skip("for the reason above")
	}
	return false
}

// cannot ends a test that this machine, or this user, does not allow.
func cannot(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("TERMBRIDGE_REAL") != "" && os.Getuid() == 0 && os.Getenv("EXECENV_TEST_ALONE") == "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// withLimit calls f while a resource of this process is limited to n.
func withLimit(t *testing.T, resource, n int, f func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(resource, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: uint64(n), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	f()
	if err := unix.Setrlimit(resource, &old); err != nil {
		t.Fatal(err)
	}
}

// A holding is what this process holds of the kernel.
type holding struct{ files, children int }

func held(t *testing.T) holding {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return holding{len(fds), len(children())}
}

// until waits until this process has the children of h, and no more files: in h
// may be some that were just being closed.
func (h holding) until(t *testing.T, when string) {
	t.Helper()
	eventually(t, func() error {
		now := held(t)
		return errorf(now.files <= h.files && now.children == h.children, "%s: %+v, before it %+v", when, now, h)
	})
}

// ways returns all the ways to start a process.
func ways() map[string]execenv.Spec {
	return map[string]execenv.Spec{
		"pipes":               {Path: "true", Group: true, Stdout: new(strings.Builder), Stderr: new(strings.Builder)},
		"pipes with input":    {Path: "true", Group: true, Stdout: new(strings.Builder), Stdin: strings.NewReader("input")},
		"terminal":            {Path: "true", TTY: &execenv.TTY{}},
		"terminal with input": {Path: "true", TTY: &execenv.TTY{Input: true}},
	}
}

// exhaust starts a process in every way while a resource is limited to from,
// and to one more each time until it starts, so that in turn each step of a
// start is the one that fails: those of the first one, which starts the
// watchdog, and those of a later one. It wants a number of different errors.
func exhaust(t *testing.T, resource, from int, advice string, steps int) {
	for name, spec := range ways() {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			for n, first, later := from, false, false; !first || !later; n++ {
				before := held(t)
				l := execenv.NewLocal(&execenv.LocalOptions{Cgroup: execenv.NoCgroup}) // which are kept, with descriptors
				try := func() bool {
					p := l.Command(t.Context(), spec)
					var err error
					withLimit(t, resource, n, func() { err = p.Start() })
					if err == nil {
						if err := p.Wait(); err != nil {
							t.Error(err)
						}
						return true
					}
					seen[err.Error()] = true
					if _, ok := errors.AsType[*execenv.StartError](err); !ok || !errors.Is(err, execenv.ErrNoResources) || !strings.Contains(err.Error(), advice) {
						t.Errorf("limit %d: %v", n, err)
					}
					if p.ID() != "" {
						t.Errorf("limit %d: a failed start has the id %s", n, p.ID())
					}
					return false
				}
				first = try()
				switch guarded := len(children()) > before.children; {
				case !first && guarded:
					seen["after the start of the watchdog"] = true
				case !first:
					before.until(t, "the watchdog was not started")
				}
				if err := l.Command(t.Context(), spec).Run(); err != nil {
					t.Errorf("limit %d, the next start: %v", n, err)
				}
				guarded := held(t)
				later = try()
				guarded.until(t, "a failed start")
				if err := l.Command(t.Context(), spec).Run(); err != nil {
					t.Errorf("limit %d, the next start: %v", n, err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				before.until(t, "Close")
			}
			for text := range seen {
				t.Log(text)
			}
			if len(seen) < steps {
				t.Errorf("%d steps have failed, want %d", len(seen), steps)
			}
		})
	}
}

// Whatever a start opens last before there are no more descriptors: the error
// says so and what helps, nothing is left, and the next start works.
func TestOutOfDescriptors(t *testing.T) {
	need(t, "/proc/self/stat")
	if alone(t, syscall.SysProcAttr{}) {
		exhaust(t, unix.RLIMIT_NOFILE, 3, "(ulimit -n)", 5)
	}
}

// So it is where no process may be added, be it the watchdog or the command.
func TestOutOfProcesses(t *testing.T) {
	need(t, "/proc/self/stat")
	long(t)
	attr := syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER} // a count of its own
	if os.Getuid() == 0 {
		attr = syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 918273, Gid: 918273}} // root has no limit
	}
	if !alone(t, attr) {
		return
	}
	// A Go program that gets no thread dies. So have some, before the limit.
	var locked, over sync.WaitGroup
	locked.Add(32)
	for range 32 {
		over.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			locked.Done()
			locked.Wait()
		})
	}
	over.Wait()
	exhaust(t, unix.RLIMIT_NPROC, 1, "(ulimit -u)", 2)
}

// No more pseudo-terminals is an error of its own: pipes still work, and so
// does a terminal when another has ended.
func TestOutOfTerminals(t *testing.T) {
	need(t, "/proc/self/stat")
	if !alone(t, syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}) {
		return
	}
	if err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,max=2"),
		unix.Mount("/dev/pts/ptmx", "/dev/ptmx", "", unix.MS_BIND, ""),
	); err != nil {
		cannot(t, err)
	}
	l := newLocal(t, nil)
	ttys := []*execenv.TTY{{}, {Input: true}}
	nap := sh("exec sleep 60")
	nap.TTY = ttys[0]
	start(t, l, nap)
	nap.TTY = ttys[1]
	other := start(t, l, nap)
	if out, err := l.Command(t.Context(), execenv.Spec{Path: "echo", Args: []string{"hi"}, Group: true}).Output(); string(out) != "hi\n" || err != nil {
		t.Errorf("on pipes: %q, %v", out, err)
	}
	before := held(t)
	for _, nap.TTY = range ttys {
		err := l.Command(t.Context(), nap).Start()
		if !errors.Is(err, execenv.ErrNoTerminal) || errors.Is(err, execenv.ErrNoResources) || !strings.Contains(err.Error(), "end some terminals") {
			t.Errorf("got %v", err)
		}
		t.Log(err)
		before.until(t, "a failed start")
	}
	other.StopTree(0)
	other.Wait()
	for _, nap.TTY = range ttys {
		r := start(t, l, nap)
		r.StopTree(0)
		r.Wait()
	}
	if err := unix.Mount("/dev/null", "/dev/ptmx", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	before = held(t)
	if err := l.Command(t.Context(), nap).Start(); !errors.Is(err, execenv.ErrNoTerminal) {
		t.Errorf("without /dev/ptmx: %v", err)
	}
	before.until(t, "a failed start")
}

// Without descriptors the process table cannot be read. Then nobody can know
// what still runs, so StopTree does not say that nothing does: it kills whom it
// can reach, and once there are descriptors a second one ends the rest.
func TestStopWithoutDescriptors(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid")
	if !alone(t, syscall.SysProcAttr{}) {
		return
	}
	l := newLocal(t, &execenv.LocalOptions{Cgroup: execenv.NoCgroup})
	daemon, child := nap(), nap()
	r := start(t, l, sh("trap '' TERM; (setsid "+daemon+" </dev/null >/dev/null 2>&1 &); "+child+" & echo ready; wait; wait"))
	r.until(t, "ready")
	untilAlive(t, daemon, 1)
	withLimit(t, unix.RLIMIT_NOFILE, 3, func() {
		if left := r.StopTree(100 * time.Millisecond); left != nil {
			t.Errorf("left %v, want nil: it is not known", left)
		}
	})
	wait(t, r.Exited(), "the command was killed")
	untilAlive(t, child, 0)
	if left := r.StopTree(time.Second); left == nil || len(left) > 0 {
		t.Errorf("with descriptors: left %v", left)
	}
	if got := alive(daemon); len(got) > 0 {
		t.Errorf("still alive: %q", got)
	}
}

// An agent that is process 1 adopts what loses its parent. What a StopTree or a
// Close has ended it also reaps.
func TestAgentIsProcess1(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid")
	if !alone(t, syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}) {
		return
	}
	if err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
	); err != nil {
		cannot(t, err)
	}
	if os.Getpid() != 1 {
		t.Fatalf("process %d", os.Getpid())
	}
	for way, opts := range bothWays {
		for _, tty := range []*execenv.TTY{nil, {}, {Input: true}} {
			before := held(t)
			l := execenv.NewLocal(opts)
			for range 5 {
				nap := nap()
				spec := sh(strings.ReplaceAll("(setsid sh -c 'NAP & NAP & wait' </dev/null >/dev/null 2>&1 &); sh -c 'NAP & NAP & wait' & wait; exec sleep 60", "NAP", nap))
				spec.TTY = tty
				r := start(t, l, spec)
				untilAlive(t, nap, 4)
				if left := r.StopTree(time.Second); left == nil || len(left) > 0 {
					t.Errorf("%s: left %v", way, left)
				}
				r.Wait()
				wait(t, r.done, "the end of the output")
			}
			eventually(t, func() error {
				got := children()
				return errorf(len(got) == before.children+1, "%s: %d children, want the watchdog: %q", way, len(got), got)
			})

			// An orphan of a natural end runs on, and Close ends it.
			nap := nap()
			r := start(t, l, sh("(setsid "+nap+" &); exec sleep .1"))
			wait(t, r.Exited(), "the exit")
			if left := r.Survivors(); len(left) != 1 || left[0].Command != nap {
				t.Errorf("%s: survivors %v, want %q", way, left, nap)
			}
			r.Wait()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			wait(t, r.done, "the end of the output")
			before.until(t, way+": Close")
		}
	}
	if zombies, _ := filepath.Glob("/proc/[0-9]*"); len(zombies) != 1 {
		t.Errorf("processes: %q, want the agent", zombies)
	}
}
