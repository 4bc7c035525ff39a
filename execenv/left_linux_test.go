package execenv_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

func init() {
	programs["rooted"] = rooted
	programs["headless"] = headless
	if name := os.Getenv("EXECENV_TEST_PROGRAM"); name == "headless" || name == "rooted" {
		runtime.LockOSThread() // the first thread
	}
}

// rooted becomes root altogether, if it is a set-user-id program of root, and
// sleeps, or computes.
func rooted(args []string) {
	if err := syscall.Setresuid(0, 0, 0); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	if len(args) == 1 { // by the system's sleep: ours has threads that wake
		err := syscall.Exec("/bin/sleep", []string{"rooted sleep", args[0]}, os.Environ())
		fmt.Println(err)
		os.Exit(1)
	}
	d, _ := time.ParseDuration(args[0])
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// headless has no first thread any more.
func headless([]string) {
	go func() {
		for fmt.Println("ready"); ; {
			time.Sleep(time.Second)
		}
	}()
	time.Sleep(10 * time.Millisecond)
	unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0) // of this thread
}

// nobody runs the test that calls it as another user, who can run the returned
// set-user-id program of root, and reports whether this is that process.
func nobody(t *testing.T) (rooted string, is bool) {
	t.Helper()
	if rooted := os.Getenv("EXECENV_TEST_ROOTED"); rooted != "" {
		return rooted, alone(t, syscall.SysProcAttr{})
	}
	if os.Getuid() != 0 {
		t.Skip("only root can run a test as another user")
	}
	dir, err := os.MkdirTemp("", "rooted") // that of the test is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	rooted = filepath.Join(dir, "rooted")
	if err := errors.Join(os.Chmod(dir, 0o755), copySelf(rooted), os.Chmod(rooted, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("EXECENV_TEST_ROOTED", rooted)
	return rooted, alone(t, syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
}

// A process whose environment cannot be read is found all the same: ssh-agent,
// which protects itself. Stop and Close end it.
func TestStopTreeOfSSHAgent(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "ssh-agent")
	if _, is := nobody(t); !is {
		return
	}
	for _, end := range []string{"stop", "close"} {
		l := execenv.NewLocal(nil)
		r := start(t, l, sh("eval $(ssh-agent -s); echo agent $SSH_AGENT_PID; exec sleep 1000"))
		pid := 0
		eventually(t, func() error {
			_, text, _ := strings.Cut(r.seen(), "\nagent ")
			number, _, whole := strings.Cut(text, "\n")
			pid, _ = strconv.Atoi(number)
			return errorf(whole, "got %q", r.seen())
		})
		if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); !errors.Is(err, os.ErrPermission) {
			t.Errorf("it does not protect itself: %v", err)
		}
		// On a busy machine the shell may have started it before it has its tag.
		// Then it is not known whose it is.
		unknown := false
		if end == "stop" {
			left := r.StopTree(time.Second)
			if unknown = left == nil; len(left) > 0 {
				t.Errorf("left %#v", left)
			}
		} else {
			r.Kill()
			wait(t, r.Exited(), "the exit")
			left := r.Survivors()
			if unknown = left == nil; !unknown && (len(left) != 1 || left[0].PID != pid) {
				t.Errorf("survivors %v, want %d", left, pid)
			}
		}
		err := l.Close()
		if unknown {
			t.Log(err)
			if err == nil || !strings.Contains(err.Error(), "cannot tell") || !strings.Contains(err.Error(), "ssh-agent") {
				t.Errorf("Close: %v", err)
			}
			syscall.Kill(pid, syscall.SIGKILL)
			continue
		}
		if err != nil {
			t.Error(err)
		}
		if data := stat(pid); data != "" && !strings.Contains(data, ") Z ") {
			t.Errorf("%s: it lives: %s", end, data)
		}
	}
}

// A daemon that another user's rights protect cannot be ended. It is named: at the
// natural end, by a stop and by Close.
func TestDaemonOfAnotherUser(t *testing.T) {
	need(t, "/proc/self/stat")
	long(t)
	need(t, "setsid")
	rooted, is := nobody(t)
	if !is {
		return
	}
	for _, how := range []string{"a daemon", "the command"} {
		l := execenv.NewLocal(nil)
		spec := sh("EXECENV_TEST_PROGRAM=rooted setsid " + rooted + " 4s </dev/null >/dev/null 2>&1 & echo over")
		if how == "the command" {
			spec = execenv.Spec{Path: rooted, Args: []string{"4s"}, Env: execenv.Env{}.With(map[string]string{"EXECENV_TEST_PROGRAM": "rooted"})}
		}
		r := start(t, l, spec)
		if how == "a daemon" {
			wait(t, r.Exited(), "the exit")
			eventually(t, func() error { // it becomes root
				left := r.Survivors()
				if left == nil { // see TestStopTreeOfSSHAgent
					time.Sleep(100 * time.Millisecond)
					return nil
				}
				if len(left) != 1 || !strings.Contains(left[0].Command, "rooted") {
					return fmt.Errorf("survivors %#v", left)
				}
				data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", left[0].PID))
				return errorf(bytes.Contains(data, []byte("\nUid:\t0\t0\t")), "it has not become root: %s", data)
			})
		} else {
			r.until(t, "ready")
		}
		began := time.Now()
		left := r.StopTree(100 * time.Millisecond)
		unknown := how == "a daemon" && left == nil // see TestStopTreeOfSSHAgent
		if !unknown && (len(left) != 1 || !strings.Contains(left[0].Command, "rooted")) || time.Since(began) > 5*time.Second {
			t.Errorf("%s: left %#v after %v", how, left, time.Since(began))
		}
		err := l.Close()
		leak, ok := errors.AsType[*terminal.LeakError](err)
		if !ok || len(leak.Leaks) != 1 || !unknown && len(leak.Leaks[0].Procs) != 1 || !strings.Contains(err.Error(), "rooted") {
			t.Errorf("%s: Close: %v", how, err)
		}
	}
}

// After a Close that could not end everything, nothing stays once that is gone: no
// goroutine, descriptor, zombie or cgroup.
func TestNothingStaysAfterALeak(t *testing.T) {
	need(t, "/proc/self/stat")
	long(t)
	rooted, is := nobody(t)
	if !is {
		return
	}
	l0 := execenv.NewLocal(nil) // so that what the runtime opens once is open
	l0.Command(t.Context(), sh("true")).Run()
	l0.Close()
	before, goroutines := held(t), runtime.NumGoroutine()
	l := execenv.NewLocal(&execenv.LocalOptions{Grace: 50 * time.Millisecond})
	var sessions []execenv.Session
	for _, tty := range []*execenv.TTY{nil, {}} {
		s := l.Command(t.Context(), execenv.Spec{
			Path: rooted, Args: []string{"5s"}, Group: true, TTY: tty,
			Env: execenv.Env{}.With(map[string]string{"EXECENV_TEST_PROGRAM": "rooted"}),
		}).(execenv.Session)
		if tty == nil {
			s.StdoutPipe()
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	for _, s := range sessions {
		eventually(t, func() error {
			data, _ := os.ReadFile("/proc/" + s.ID() + "/status")
			return errorf(bytes.Contains(data, []byte("\nUid:\t0\t0\t")), "it has not become root: %s", data)
		})
	}
	var leak *terminal.LeakError
	if err := l.Close(); !errors.As(err, &leak) || len(leak.Leaks[0].Procs) != 2 {
		t.Errorf("Close: %v", err)
	}
	for _, s := range sessions {
		wait(t, s.Exited(), "the exit")
		if err := s.Wait(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, func() error {
		now, n := held(t), runtime.NumGoroutine()
		return errorf(now == before && n <= goroutines, "%+v and %d goroutines, before %+v and %d", now, n, before, goroutines)
	})
}

// What cannot be killed keeps its cgroup, which goes with it.
func TestCgroupGoesAfterALeak(t *testing.T) {
	need(t, "/proc/self/stat")
	long(t)
	const freezer = "/sys/fs/cgroup/freezer"
	if !hasCgroups(t) {
		t.Skip("no cgroup can be had here")
	}
	dir := filepath.Join(freezer, fmt.Sprintf("termbridge-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("nothing here makes a process immortal for a while: %v", err)
	}
	state := func(s string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "freezer.state"), []byte(s), 0); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Remove(dir)
	goroutines := runtime.NumGoroutine()
	l := execenv.NewLocal(&execenv.LocalOptions{Grace: 50 * time.Millisecond})
	spec := sh("cat /proc/self/cgroup; exec sleep 60")
	spec.Group = true
	s := l.Command(t.Context(), spec).(execenv.Session)
	out, _ := s.StdoutPipe()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, _ := out.Read(buf)
	_, path, _ := strings.Cut(string(buf[:n]), "0::")
	group := filepath.Join("/sys/fs/cgroup/unified", strings.TrimSpace(path))
	if _, err := os.Stat(group); err != nil {
		t.Skipf("not mounted where this test expects it: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(s.ID()), 0); err != nil {
		t.Fatal(err)
	}
	state("FROZEN")
	left := s.StopTree(0)
	var leak *terminal.LeakError
	err := l.Close()
	if len(left) != 1 || !errors.As(err, &leak) || len(leak.Leaks[0].Procs) != 1 {
		t.Errorf("left %v, Close: %v", left, err)
	}
	if _, err := os.Stat(group); err != nil {
		t.Errorf("while it lives: %v", err)
	}
	state("THAWED")
	wait(t, s.Exited(), "the exit")
	s.Wait()
	eventually(t, func() error {
		_, err := os.Stat(filepath.Dir(group))
		n := runtime.NumGoroutine()
		return errorf(errors.Is(err, os.ErrNotExist) && n <= goroutines, "%v, %d goroutines, before %d", err, n, goroutines)
	})
}

// The cgroup of a command is given back by its stop, and when what outlived it has
// ended.
func TestCgroupsAreGivenBack(t *testing.T) {
	need(t, "/proc/self/stat")
	if !hasCgroups(t) {
		t.Skip("no cgroup can be had here")
	}
	l := newLocal(t, nil)
	r := start(t, l, sh("cat /proc/self/cgroup"))
	_, path, _ := strings.Cut(r.rest(t), "0::")
	dir := filepath.Join("/sys/fs/cgroup/unified", filepath.Dir(strings.TrimSpace(path)))
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("not mounted where this test expects it: %v", err)
	}
	groups := func() int {
		n := 0
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() {
				n++
			}
		}
		return n
	}
	files := held(t).files
	for range 30 {
		r := start(t, l, sh("sleep 60"))
		r.StopTree(0)
		r.Wait()
	}
	for range 30 {
		r := start(t, l, sh("sleep .3 & exit"))
		wait(t, r.Exited(), "the exit")
		r.Wait()
	}
	const most = 10 // that are kept to be used again
	eventually(t, func() error {
		n, now := groups(), held(t).files
		return errorf(n <= most && now <= files+2*most, "%d cgroups, %d descriptors, before %d", n, now, files)
	})
}

// A /proc that shows another namespace has the numbers of others: a stop must not
// take them for those of its own.
func TestNoUnrelatedProcessIsKilled(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid")
	if !alone(t, syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}) {
		return
	}
	if os.Getpid() != 1 {
		t.Fatalf("process %d", os.Getpid())
	}
	for way, opts := range bothWays {
		t.Run(way, func(t *testing.T) {
			for range 20 {
				if noUnrelatedProcessIsKilled(t, opts) {
					return
				}
			}
			t.Error("20 times it was not known what is left, or a thread had the number")
		})
	}
}

// noUnrelatedProcessIsKilled stops a command whose daemon has outside the number of
// an unrelated process. It returns false if that cannot be had, or if the stop says that it does
// not know what is left: see TestForkedAtTheInstantOfATag.
func noUnrelatedProcessIsKilled(t *testing.T, opts *execenv.LocalOptions) bool {
	nap := nap()
	l := execenv.NewLocal(opts)
	defer l.Close()
	r := start(t, l, sh("(setsid "+nap+" </dev/null >/dev/null 2>&1 &); echo ready; exec sleep 99"))
	r.until(t, "ready")
	untilAlive(t, nap, 1) // alive sees the numbers of /proc
	outer, _, _ := strings.Cut(alive(nap)[0], " ")
	number, _ := strconv.Atoi(outer)
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(number-1)), 0); err != nil {
		t.Skipf("the next process cannot be given a number: %v", err)
	}
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	killed := func() bool { // before the signal that is sent here
		other.Process.Signal(syscall.SIGUSR1)
		state, err := other.Process.Wait()
		return err != nil || state.Exited() || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGUSR1
	}
	if other.Process.Pid != number { // a new thread of this program has it
		killed()
		return false
	}
	left := r.StopTree(100 * time.Millisecond)
	naps := alive(nap)
	err := l.Close()
	switch {
	case killed():
		t.Error("the unrelated process was killed")
	case left == nil && err != nil:
		t.Log(err)
		return false
	case left == nil || len(left) > 0 || len(naps) > 0 || err != nil:
		t.Errorf("left %#v, alive %q, Close: %v", left, naps, err)
	}
	return true
}

func stat(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return string(data)
}

// A process lives on without its first thread, which looks like a zombie.
func TestStopTreeOfAProcessWithoutItsFirstThread(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for way, opts := range bothWays {
		r := start(t, newLocal(t, opts), sh("EXECENV_TEST_PROGRAM=headless setsid "+exe+" & echo $!; wait"))
		text := r.until(t, "ready")
		pid, _ := strconv.Atoi(text[:strings.Index(text, "\n")])
		eventually(t, func() error { return errorf(strings.Contains(stat(pid), ") Z "), "no zombie: %s", stat(pid)) })
		if left := r.StopTree(10 * time.Second); left == nil || len(left) > 0 {
			t.Errorf("%s: left %#v", way, left)
		}
		if tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)); err == nil && len(tasks) > 1 {
			t.Errorf("%s: it lives: %s", way, stat(pid))
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func pidOf(s execenv.Session) int { pid, _ := strconv.Atoi(s.ID()); return pid }

// Processes that have nothing to do with a command do not slow its stop: neither
// those that show nothing of themselves, nor those that come and go.
func TestUnrelatedProcessesDoNotSlowAStop(t *testing.T) {
	for name, script := range map[string]string{
		"without an environment": "while :; do env -i sleep 0.15; done",
		"short-lived":            "while :; do /bin/true; done",
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() }()
			l := newLocal(t, &execenv.LocalOptions{Cgroup: execenv.NoCgroup})
			var worst time.Duration
			for range 10 {
				r := start(t, l, sh("sleep 60 & sleep 60"))
				time.Sleep(20 * time.Millisecond)
				began := time.Now()
				if left := r.StopTree(20 * time.Second); len(left) > 0 {
					t.Errorf("left %v", left)
				}
				worst = max(worst, time.Since(began))
				r.Wait()
			}
			if t.Logf("the slowest of 10 stops: %v", worst); worst > 2*time.Second {
				t.Errorf("a stop took %v", worst)
			}
		})
	}
}

// The tags stand first in an environment, however long that is.
func TestLongEnvironment(t *testing.T) {
	need(t, "/proc/self/stat")
	vars := map[string]string{}
	for i := range 60 {
		vars[fmt.Sprintf("A%d", i)] = strings.Repeat("x", 10<<10)
	}
	l := newLocal(t, nil)
	spec := sh("head -c 13 /proc/$$/environ; sleep 60; exit") // in an exec there is none for a moment
	spec.Env = execenv.Env{}.With(vars).With(map[string]string{"TERMBRIDGE_ID": "other"})
	r := start(t, l, spec)
	r.until(t, "TERMBRIDGE_ID")
	env, err := os.ReadFile("/proc/" + r.ID() + "/environ")
	if err != nil || bytes.Count(env, []byte("TERMBRIDGE_ID=")) != 1 {
		t.Errorf("%v: %d tags", err, bytes.Count(env, []byte("TERMBRIDGE_ID=")))
	}
}

// A command's exit is its Local's, and the exits of all other children of the agent
// are whose they were, also of those that lead sessions.
func TestExitsAreTheirOwners(t *testing.T) {
	need(t, "/proc/self/stat")
	if !alone(t, syscall.SysProcAttr{}) {
		return
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	rounds := 10
	if *full {
		rounds = 100
	}
	for _, opts := range []*execenv.LocalOptions{{}, {Cgroup: execenv.NoCgroup}, {Cgroup: execenv.NoCgroup, Subreaper: true}} {
		for i := range rounds {
			l := execenv.NewLocal(opts)
			var wg sync.WaitGroup
			for _, sid := range []bool{false, true} {
				wg.Go(func() { // os/exec
					cmd := exec.Command("sh", "-c", "exit 7")
					cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: sid}
					if err := cmd.Run(); err == nil || err.Error() != "exit status 7" {
						t.Errorf("os/exec: %v", err)
					}
				})
				wg.Go(func() { // a process without a group, that makes a session
					p := l.Command(t.Context(), execenv.Spec{Path: "setsid", Args: []string{"sleep", "60"}})
					if err := p.Start(); err != nil {
						if !errors.Is(err, terminal.ErrClosed) {
							t.Error(err)
						}
						return
					}
					if got := exitOf(p.Wait()); got != "SIGTERM" && got != "SIGKILL" {
						t.Errorf("the exit of a process without a group: %s", got)
					}
				})
			}
			s := l.Command(t.Context(), execenv.Spec{Path: "sh", Args: []string{"-c", "sleep 60 & wait"}, Group: true}).(execenv.Session)
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				s.StopTree(time.Second)
			}
			time.Sleep(time.Duration(i%5) * time.Millisecond)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if got := exitOf(s.Wait()); got != "SIGTERM" && got != "SIGKILL" {
				t.Errorf("the exit of a session: %s", got)
			}
			wg.Wait()
		}
	}
	// A zombie that nobody has waited for yet.
	cmd := exec.Command("sh", "-c", "exit 7")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		return errorf(strings.Contains(stat(cmd.Process.Pid), ") Z "), "not yet")
	})
	l := newLocal(t, &execenv.LocalOptions{Cgroup: execenv.NoCgroup, Subreaper: true})
	r := start(t, l, sh("sleep 60 & wait"))
	r.StopTree(time.Second)
	l.Close()
	if err := cmd.Wait(); err == nil || err.Error() != "exit status 7" {
		t.Errorf("os/exec: %v", err)
	}
}

// untilTagged makes a shell wait for its limit tag, which comes behind its start: what
// it forks before has none, and then nobody can tell. The tag is in the lower of the two
// values, that of the agent in both.
const untilTagged = `i=0; while [ $i -lt 3000 ]; do i=$((i+1))
	while read -r a b c soft hard d; do [ "$a$b$c $soft" != "Maxfilelocks $hard" ] || continue 2; done </proc/$$/limits
	break; done; `

// With Subreaper orphans become children of the agent, which a stop and Close end
// and reap; and Close takes the attribute back.
func TestSubreaper(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid")
	if !alone(t, syscall.SysProcAttr{}) {
		return
	}
	before := held(t)
	l := execenv.NewLocal(&execenv.LocalOptions{Cgroup: execenv.NoCgroup, Subreaper: true})
	nap := nap()
	r := start(t, l, sh(untilTagged+"(setsid env -i "+nap+" </dev/null >/dev/null 2>&1 &); (setsid true &); exec sleep 60"))
	untilAlive(t, nap, 1)
	eventually(t, func() error {
		return errorf(len(children()) == before.children+4, "children %q, want the watchdog, the shell, the daemon and a zombie", children())
	})
	if left := r.StopTree(time.Second); left == nil || len(left) > 0 || len(alive(nap)) > 0 {
		t.Errorf("left %#v, alive %q", left, alive(nap))
	}
	r.Wait()
	eventually(t, func() error {
		return errorf(len(children()) == before.children+1, "children %q, want the watchdog", children())
	})
	// What ends by itself is reaped when the command does.
	r = start(t, l, sh(untilTagged+"(setsid true &); sleep .1"))
	wait(t, r.Exited(), "the exit")
	eventually(t, func() error { // the other one may be slower
		left := r.Survivors()
		return errorf(left != nil && len(left) == 0, "survivors %#v", left)
	})
	r.Wait()
	wait(t, r.done, "the end of the output")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	before.until(t, "Close")
	if out, err := exec.Command("sh", "-c", "(sleep .1 &)").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	time.Sleep(50 * time.Millisecond)
	if got := children(); len(got) != before.children {
		t.Errorf("after Close the agent adopts: %q", got)
	}
}

// While a stop needs the number of an exited leader, nobody else is given it.
func TestHeldLeaderIsNotReaped(t *testing.T) {
	need(t, "/proc/self/stat")
	l := newLocal(t, &execenv.LocalOptions{Cgroup: execenv.NoCgroup})
	r := start(t, l, sh("(trap '' TERM; echo ready; while :; do sleep .05; done) & wait"))
	r.until(t, "ready")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.StopTree(700 * time.Millisecond)
	}()
	wait(t, r.Exited(), "the leader ends at SIGTERM")
	for range 20 { // while the other one has its grace
		if data := stat(pidOf(r)); !strings.Contains(data, ") Z ") {
			select {
			case <-stopped:
				t.Skip("this machine was too slow to look")
			default:
				t.Fatalf("it is reaped: %q", data)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	wait(t, stopped, "the stop")
	eventually(t, func() error { return errorf(stat(pidOf(r)) == "", "not reaped") })
}

func init() { programs["missed"] = missed }

// missed starts a daemon, as one that was forked at the instant at which its parent
// was tagged: with the limit args[0] of the agent, and an environment of args[1].
func missed(args []string) {
	limit, _ := strconv.ParseUint(args[0], 10, 64)
	if err := syscall.Setrlimit(unix.RLIMIT_LOCKS, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	null, _ := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Env = strings.Fields(args[1])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("pid", cmd.Process.Pid, "of", os.Getpid(), "ready")
}

// What is forked at the very instant at which its parent is tagged has the limit of
// the agent, and not that of the command. Whose it is cannot be known, and is not
// said to be: neither by a stop, nor at the natural end, nor by Close.
func TestForkedAtTheInstantOfATag(t *testing.T) {
	need(t, "/proc/self/stat")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	field := func(pid, i int) int { // of /proc/PID/stat, from the state on
		line := stat(pid)
		n, _ := strconv.Atoi(strings.Fields(line[strings.LastIndex(line, ")")+1:])[i])
		return n
	}
	begin := func(pid int) int { return field(pid, 19) }
	for _, env := range []string{"", "PATH=/usr/bin:/bin"} {
		for _, end := range []string{"stop", "natural"} {
			t.Run(env+end, func(t *testing.T) {
				for range 20 {
					l := execenv.NewLocal(&execenv.LocalOptions{Cgroup: execenv.NoCgroup})
					if err := l.Command(t.Context(), sh("true")).Run(); err != nil {
						t.Fatal(err)
					}
					var limit syscall.Rlimit
					if err := syscall.Getrlimit(unix.RLIMIT_LOCKS, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY {
						t.Skipf("the agent can have no limit here: %v", err)
					}
					last := "exec sleep 99"
					if end == "natural" {
						last = "read x"
					}
					spec := sh(fmt.Sprintf("EXECENV_TEST_PROGRAM=missed %s %d '%s' sleep 61; %s", exe, limit.Cur, env, last))
					pr, pw, _ := os.Pipe()
					spec.Stdin = pr
					r := start(t, l, spec)
					pr.Close()
					text := r.until(t, "ready")
					var pid, parent int
					if _, err := fmt.Sscanf(text, "pid %d of %d ready", &pid, &parent); err != nil {
						t.Fatal(err)
					}
					defer syscall.Kill(pid, syscall.SIGKILL)
					eventually(t, func() error { // until then it is known by that
						return errorf(field(pid, 1) != parent, "it has its parent")
					})
					late := begin(pid) > begin(pidOf(r))+100 // seconds/100
					var its unix.Rlimit
					if err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &its); err != nil {
						t.Fatal(err)
					}
					pw.Close()
					left := []terminal.Proc(nil)
					if end == "stop" {
						left = r.StopTree(time.Second)
					} else {
						wait(t, r.Exited(), "the exit")
						left = r.Survivors()
					}
					err := l.Close()
					if late {
						t.Log("this machine was too slow: it was forked long after the start")
						continue
					}
					if its.Cur != limit.Cur {
						t.Log("it was forked before its parent was tagged, and has been given the tag")
						continue
					}
					if len(left) == 1 && strings.Contains(left[0].Command, "sleep 61") {
						t.Log("somebody looked while it had its parent, so that is known")
						continue
					}
					if left != nil {
						t.Errorf("left %#v, want that it is not known", left)
					}
					if err == nil || !strings.Contains(err.Error(), "cannot tell") || !strings.Contains(err.Error(), "sleep 61") {
						t.Errorf("Close: %v", err)
					}
					if stat(pid) == "" || strings.Contains(stat(pid), ") Z ") {
						t.Error("what is not known to be the command's was killed")
					}
					return
				}
				t.Error("it was never forked in time")
			})
		}
	}
}

// What the agent starts by other means has the limit of the agent, too, and is
// neither ended nor taken for what a command may have left: a child in a session of
// its own, what that starts, and what it leaves behind in the agent's session.
func TestOthersChildrenAreLeftAlone(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid")
	l := newLocal(t, &execenv.LocalOptions{Cgroup: execenv.NoCgroup})
	if err := l.Command(t.Context(), sh("true")).Run(); err != nil {
		t.Fatal(err)
	}
	r := start(t, l, sh("exec sleep 99"))
	var others []int
	for _, script := range []string{
		"env -i setsid sleep 64 </dev/null >/dev/null 2>&1 & echo $!; wait",
		"env -i sleep 64 </dev/null >/dev/null 2>&1 & echo $!",
	} {
		cmd := exec.Command("sh", "-c", script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		if _, err := fmt.Fscan(out, &pid); err != nil {
			t.Fatal(err)
		}
		defer func() { syscall.Kill(pid, syscall.SIGKILL); cmd.Wait() }()
		others = append(others, pid)
	}
	if left := r.StopTree(time.Second); left == nil || len(left) > 0 {
		t.Errorf("left %#v", left)
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, pid := range others {
		if s := stat(pid); s == "" || strings.Contains(s, ") Z ") {
			t.Errorf("it was killed: %q", s)
		}
	}
}
