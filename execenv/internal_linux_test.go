package execenv

import (
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// needProcfs skips a test that looks at processes.
func needProcfs(t *testing.T) {
	t.Helper()
	if err := ownProcfs(); err != nil {
		t.Skip(err)
	}
}

// Where the kernel has no pidfds, the exit is still seen before it is reaped.
func TestChildWithoutPidfd(t *testing.T) {
	needProcfs(t)
	for script, want := range map[string]string{"exit 3": "exit code 3", "kill -9 $$": "SIGKILL"} {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &child{pid: pid, pidfd: -1}
		if exit, _ := c.exit(0); exit.String() != want {
			t.Errorf("%s: got %s, want %s", script, exit, want)
		}
		if p, ok := readProc(pid); !ok || !p.dead {
			t.Errorf("%s: not a zombie: %+v, %v", script, p, ok)
		}
		c.reap()
		if _, ok := readProc(pid); ok {
			t.Errorf("%s: not reaped", script)
		}
		if err := c.signal(os.Kill); err != os.ErrProcessDone {
			t.Errorf("%s: signal after the end: %v", script, err)
		}
	}
}

// An exit that somebody else has taken is unknown, and no success.
func TestExitTakenByOthers(t *testing.T) {
	c, err := startChild("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(c.pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	if exit, _ := c.exit(0); exit.Known() || exit.Success() {
		t.Errorf("got %v", exit)
	}
	c.reap()
}

// A process id that was given to another process is not signalled.
func TestSignalNeverHitsAnUnrelatedProcess(t *testing.T) {
	needProcfs(t)
	me, ok := readProc(os.Getpid())
	if !ok {
		t.Fatal("not in the process table")
	}
	if !me.alive() || me.signal(0) != nil {
		t.Errorf("not alive: %+v", me)
	}
	before := ident{pid: me.pid, start: me.start - 1} // who had the number before
	if before.alive() {
		t.Error("it is taken for the one before")
	}
	if err := before.signal(syscall.SIGKILL); err != os.ErrProcessDone {
		t.Errorf("got %v", err)
	}
	for _, pgid := range []int{-1, 0, 1, syscall.Getpgrp()} {
		if err := signalGroup(pgid, 0); err != syscall.EPERM {
			t.Errorf("group %d: got %v", pgid, err)
		}
	}
}

func TestParseSyscall(t *testing.T) {
	for _, c := range []struct {
		line string
		call uint64
		args [6]uint64
		ok   bool
	}{
		{"0 0x3 0x7ffd 0x400 0x0 0x0 0x0 0x7ffd1 0x7f2\n", 0, [6]uint64{3, 0x7ffd, 0x400}, true},
		{"running\n", 0, [6]uint64{}, false},
		{"-1 0x7ffd1 0x7f2\n", 0, [6]uint64{}, false}, // sleeps, but in no system call
		{"", 0, [6]uint64{}, false},
	} {
		call, args, ok := parseSyscall(c.line)
		if ok != c.ok || ok && (call != c.call || args != c.args) {
			t.Errorf("%q: got %d, %v, %v", c.line, call, args, ok)
		}
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prog"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, c := range []struct{ name, path, want string }{
		{"prog", "/nowhere:" + dir, dir + "/prog"},
		{"prog", ".:" + dir[:0] + ":bin", ""}, // relative directories do not count
		{"./prog", "", "./prog"},
		{"sub/prog", dir, "sub/prog"}, // the kernel's business
	} {
		got, err := lookPath(c.name, c.path)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s in %q: got %q, %v", c.name, c.path, got, err)
		}
	}
}

func TestPgidFile(t *testing.T) {
	f, err := nameless()
	if err != nil {
		t.Fatal(err)
	}
	r := &pgidFile{file: f}
	defer r.close()
	a, b := r.add(123), r.add(4567890)
	r.drop(a)
	c := r.add(5)
	r.add(6)
	r.drop(b)
	text := make([]byte, 3*pgidLine)
	if _, err := f.ReadAt(text, 0); err != nil || a != c {
		t.Errorf("%v; place %d is used again: got %d", err, a, c)
	}
	if diff := cmp.Diff("5          \n           \n6          \n", string(text)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Where nobody can see who waits for a key, the terminal cannot be read, and is
// always ready for it: that ends whoever polls it.
func TestUnreadableTerminal(t *testing.T) {
	sees := seesInput
	seesInput = func() bool { return false }
	defer func() { seesInput = sees }()
	l := NewLocal(nil)
	defer l.Close()
	for line, want := range map[string]string{
		"view /etc/passwd":            "view",
		"cat <&2 || echo cannot read": "cannot read",
		"python3 -c 'import select, sys; print(select.select([2], [], []))'": "([2]",
	} {
		program, _, _ := strings.Cut(line, " ")
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("TERMBRIDGE_REAL") != "" {
				t.Errorf("%s is missing", program)
			}
			t.Logf("%s is missing: %s is not tried", program, line)
			continue
		}
		p := l.Command(t.Context(), Spec{Path: "sh", Args: []string{"-c", line + "; echo over"}, TTY: &TTY{}})
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		term, _ := p.(Session).Terminal()
		timeout := time.AfterFunc(20*time.Second, func() { p.(Session).StopTree(0) })
		out, err := io.ReadAll(term)
		if timeout.Stop(); err != nil || !strings.HasSuffix(string(out), "over\n") || want != "view" && !strings.Contains(string(out), want) {
			t.Errorf("%s: %q, %v", line, out, err)
		}
		p.Wait()
	}
}

// Those who ask while somebody walks share the next walk, which begins after they
// have asked.
func TestWalksAreShared(t *testing.T) {
	needProcfs(t)
	walks.walking.Lock() // somebody walks
	const n = 50
	got := make(chan *walk, n)
	var asking sync.WaitGroup
	for range n {
		asking.Add(1)
		go func() {
			asking.Done()
			got <- takeWalk()
		}()
	}
	asking.Wait()
	time.Sleep(20 * time.Millisecond)
	select {
	case <-got:
		t.Error("a walk that began before it was asked for")
	default:
	}
	cmd := exec.Command("sleep", "60") // seen by a walk that begins after this
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	walks.walking.Unlock()
	different := map[*walk]int{}
	for range n {
		w := <-got
		different[w]++
		if !slices.ContainsFunc(w.procs, func(p proc) bool { return p.pid == cmd.Process.Pid }) {
			t.Error("the walk began before it was asked for")
		}
	}
	if len(different) > 2 {
		t.Errorf("%d walks for %d who asked at one time", len(different), n)
	}
}

// What cannot be told to be complete is not: the ids that were given meanwhile.
func TestRescanCannotTell(t *testing.T) {
	needProcfs(t)
	seen := 0
	if rescan(lastPID()+100000, func(proc) { seen++ }) || rescan(0, func(proc) { seen++ }) || seen > 0 {
		t.Errorf("it can tell, of %d processes", seen)
	}
	procs, err := readProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		last  int
		knows bool
	}{{lastPID(), true}, {lastPID() + 100000, false}} {
		tr := &tree{leaders: map[int]bool{}, tag: []byte("nobody has this"), group: (*cgroup)(nil), known: map[ident]bool{}, limited: true, since: now()}
		for range 20 { // a busy machine may give a thousand ids in a moment
			last := c.last
			if c.knows {
				last = lastPID()
			}
			if tr.sift(&walk{last: last, procs: procs}, nil); tr.last.missed != c.knows {
				break
			}
		}
		if tr.last.missed == c.knows || (tr.unknown() == nil) != c.knows {
			t.Errorf("knows %v: missed %v, %v", c.knows, tr.last.missed, tr.unknown())
		}
	}
}

// Nothing that is older than a command belongs to it, whatever it shows.
func TestNothingOlderBelongs(t *testing.T) {
	needProcfs(t)
	tag := rand.Text() + ".1,"
	cmd := exec.Command("sleep", "60")
	cmd.Env = []string{tagName + "=" + tag}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	p, ok := readProc(cmd.Process.Pid)
	if !ok {
		t.Fatal("it does not run")
	}
	for since, want := range map[uint64]int{p.start: 1, p.start + 1: 0} {
		tr := &tree{leaders: map[int]bool{}, tag: []byte(tag), group: (*cgroup)(nil), known: map[ident]bool{}, since: since}
		if got := tr.search(); len(got) != want {
			t.Errorf("since %d, started at %d: members %+v, want %d", since, p.start, got, want)
		}
	}
}

// Tags are found wherever they stand, in an environment of any length; one that is
// empty, or another user's, shows none.
func TestTags(t *testing.T) {
	needProcfs(t)
	start := func(env ...string) proc {
		t.Helper()
		cmd := exec.Command("/bin/sleep", "60")
		cmd.Env = env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		p, ok := readProc(cmd.Process.Pid)
		if !ok {
			t.Fatal("it does not run")
		}
		return p
	}
	var long []string
	for i := range 12 {
		long = append(long, "A"+strconv.Itoa(i)+"="+strings.Repeat("x", 100<<10))
	}
	for name, c := range map[string]struct {
		env   []string
		tags  string
		state tagState
	}{
		"first":         {append([]string{tagName + "=X.1,"}, long...), "X.1,", tagsShown},
		"last":          {append(long, tagName+"=X.1,"), "X.1,", tagsShown},
		"in the middle": {[]string{"A=1", tagName + "=Y.2,X.1,", "B=2"}, "Y.2,X.1,", tagsShown},
		"none":          {[]string{"A=" + tagName + "=X.1,"}, "", tagsShown},
		"empty":         {[]string{}, "", tagsHidden},
	} {
		// Right after the exec the environment is not there yet.
		p := start(c.env...)
		tags, state := p.readTags()
		for range 500 {
			if string(tags) == c.tags && state == c.state {
				break
			}
			time.Sleep(10 * time.Millisecond)
			tags, state = p.readTags()
		}
		if string(tags) != c.tags || state != c.state {
			t.Errorf("%s: got %q, %v, want %q, %v", name, tags, state, c.tags, c.state)
		}
	}
}

// In the middle of an exec an environment has no end yet. That is not taken for one
// that is empty.
func TestEnvironmentInAnExec(t *testing.T) {
	needProcfs(t)
	line := func(endCode, env, envEnd string) []byte {
		fields := strings.Fields(strings.Repeat("1 ", 50))
		fields[0], fields[24], fields[47], fields[48] = "R", endCode, env, envEnd
		return []byte("7 (a) b) " + strings.Join(fields, " ") + "\n")
	}
	for _, c := range []struct {
		name string
		line []byte
		bare bool
	}{
		{"empty", line("500", "900", "900"), true},
		{"not empty", line("500", "900", "950"), false},
		{"before it is written", line("0", "0", "0"), false},
		{"while it is written", line("0", "900", "900"), false},
		{"hidden", line("1", "0", "0"), false},
	} {
		if p, err := parseStat(7, c.line); err != nil || p.bare != c.bare || p.ppid != 1 {
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
	}
	for range 20 { // and once it is through, it is
		cmd := exec.Command("sleep", "9")
		cmd.Env = []string{}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		bare := false
		for end := time.Now().Add(20 * time.Second); !bare && time.Now().Before(end); {
			p, _ := readProc(cmd.Process.Pid)
			bare = p.bare
		}
		cmd.Process.Kill()
		cmd.Wait()
		if !bare {
			t.Fatal("an empty environment is not known")
		}
	}
}

// A limit tag is passed on, also where an environment is not, and shown.
func TestLimitTags(t *testing.T) {
	needProcfs(t)
	l := newLimitTags()
	one := l.of(7)
	limit := unix.Rlimit{Cur: one.from, Max: unix.RLIM_INFINITY}
	if !l.has(limit) || one.from != one.to || !isLimitTag(limit) || l.of(maxLimitTags).set(os.Getpid()) || (limitTags{}).has(unix.Rlimit{}) {
		t.Errorf("%+v of %+v", one, l)
	}
	if got := strconv.FormatUint(one.from, 10); got != l.digits()+"000007" {
		t.Errorf("%s begins with %s", got, l.digits())
	}
	cmd := exec.Command("sh", "-c", "read x; exec env -i sh -c 'grep locks /proc/self/limits'")
	in, _ := cmd.StdinPipe()
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !one.set(cmd.Process.Pid) {
		t.Skip("a limit cannot be set here")
	}
	if limit, err := limitOf(cmd.Process.Pid); limit.Cur != one.from || err != nil {
		t.Errorf("got %d, %v", limit, err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), " "+l.digits()+"000007 ") {
		t.Errorf("%v: %s", err, out.String())
	}
	if _, err := limitOf(cmd.Process.Pid); err != syscall.ESRCH {
		t.Errorf("after the end: %v", err)
	}
}

// A child of a member belongs, whatever it shows: neither tag, limit, session nor
// cgroup is needed.
func TestChildrenOfMembersBelong(t *testing.T) {
	needProcfs(t)
	cmd := exec.Command("sh", "-c", "sleep 60; :")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	shell, ok := readProc(cmd.Process.Pid)
	if !ok {
		t.Fatal("it does not run")
	}
	tr := &tree{leaders: map[int]bool{}, own: map[int]bool{shell.pid: true}, tag: []byte(rand.Text()), group: (*cgroup)(nil), known: map[ident]bool{shell.ident: true}}
	var members []proc
	for end := time.Now().Add(30 * time.Second); len(members) < 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		members = tr.find(nil)
	}
	if len(members) != 2 {
		t.Errorf("members %+v, want the shell and its child", members)
	}
	for _, p := range members {
		p.signal(unix.SIGKILL)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// What a process shows decides whether it belongs to a tree. Who has the limit of the
// agent, and began with the command, may have missed its tag: that the environment
// shows none proves nothing then, whether or not all others have their tag.
func TestVerdicts(t *testing.T) {
	needProcfs(t)
	if agentLimit().Max == 0 {
		t.Skip("the agent can have no limit here")
	}
	ours, others := limitTags{firstLimitTag + 5, firstLimitTag + 5}, limitTags{firstLimitTag + 6, firstLimitTag + 6}
	const start = 100
	in, out := window{start - 1, start + 1}, window{start + 1, start + 2}
	for _, c := range []struct {
		name    string
		limit   limitTags // zero: the agent's
		tags    string
		state   tagState
		limited bool
		forked  window
		want    verdict
	}{
		{"by its environment", limitTags{}, "T.1,", tagsShown, true, out, member},
		{"by its limit", ours, "", tagsHidden, true, out, member},
		{"by its limit, and another tag", ours, "U.1,", tagsShown, false, out, member},
		{"of another Local", others, "", tagsHidden, false, in, unrelated},
		{"may have missed it", limitTags{}, "", tagsShown, true, in, undecided},
		{"may have missed it, and not all have it", limitTags{}, "", tagsShown, false, in, undecided},
		{"may have missed it, and hides", limitTags{}, "", tagsHidden, true, in, undecided},
		{"began later", limitTags{}, "", tagsHidden, true, out, unrelated},
		{"began later, and not all have it", limitTags{}, "", tagsShown, false, out, unrelated},
		{"hides, and not all have it", limitTags{}, "", tagsHidden, false, out, undecided},
		{"shows nothing for long", limitTags{}, "", tagsFleeting, false, out, undecided},
	} {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if c.limit != (limitTags{}) && !c.limit.set(cmd.Process.Pid) {
			t.Errorf("%s: the limit cannot be set", c.name)
		}
		tr := &tree{tag: []byte("T."), limits: ours, limited: c.limited, forked: []window{c.forked}}
		p := proc{ident: ident{cmd.Process.Pid, start}, seen: &sight{read: true, tags: []byte(c.tags), state: c.state}}
		if got := tr.judge(p, false); got != c.want {
			t.Errorf("%s: verdict %d, want %d", c.name, got, c.want)
		}
		p.start, p.seen = now()+60*ticks, &sight{read: true, state: tagsFleeting} // just now
		if got := tr.judge(p, false); c.want == undecided && !c.limited && got != fleeting {
			t.Errorf("%s, but in an exec: verdict %d, want %d", c.name, got, fleeting)
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// A write that was taken whole has no error, however soon the terminal is closed:
// the program that gets its last key ends before the write has returned.
func TestLastKeyIsWritten(t *testing.T) {
	l := NewLocal(nil)
	defer l.Close()
	term, side, err := l.openTerminal(TTY{Input: true})
	if err != nil {
		t.Skip(err)
	}
	defer term.f.Close()
	defer side.Close()
	term.closed.Store(true)
	if n, err := term.Write([]byte("q")); n != 1 || err != nil {
		t.Errorf("%d bytes were written, %v", n, err)
	}
}
