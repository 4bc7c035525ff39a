package execenv_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

// What an agent needs of this package, tried in every kind of box: with one
// system call after the other denied, as another user, without /proc, without
// /dev, in an emulator and in gVisor. Each box is a process, the program "box",
// which prints a line for each column of the table.

func init() {
	programs["box"] = box
	programs["boxed agent"] = boxedAgent
	programs["filtered"] = filtered
	programs["beat"] = beat
	programs["beats"] = beats
}

var columns = []struct {
	name string
	try  func(dir string) (note string, err error)
}{
	{"start", tryStart},
	{"exit code", tryExit},
	{"stop", tryStop},
	{"watchdog", tryWatchdog},
	{"descriptors", tryDescriptors},
}

func box([]string) {
	if err := pass(2); err != nil {
		fmt.Println(err)
	}
	for _, c := range columns {
		dir, err := os.MkdirTemp("", "box")
		if err != nil {
			fmt.Printf("%s: %v\n", c.name, err)
			continue
		}
		note, err := c.try(dir)
		if leak, ok := errors.AsType[*terminal.LeakError](err); ok && err.Error() == leak.Error() && len(leak.Leaks[0].Procs) == 0 {
			note = "unknown"
			fmt.Println(err)
		} else if err != nil {
			note = "FAILED: " + strings.ReplaceAll(err.Error(), "\n", "; ")
		} else if note == "" {
			note = "ok"
		}
		fmt.Printf("%s: %s\n", c.name, note)
		os.RemoveAll(dir)
	}
}

// closing closes a Local, and returns why it could not.
func closing(l *execenv.Local) error {
	began := time.Now()
	err := l.Close()
	if took := time.Since(began); took > 10*time.Second {
		err = errors.Join(err, fmt.Errorf("Close took %v", took))
	}
	return err
}

var boxedTTYs = map[string]*execenv.TTY{"pipes": nil, "terminal": {}, "terminal with input": {Input: true}}

// output runs spec as a session and returns its output.
func output(l *execenv.Local, spec execenv.Spec) (string, error) {
	var out bytes.Buffer
	if spec.TTY == nil {
		spec.Group, spec.Stdout, spec.Stderr = true, &out, &out
		err := l.Command(context.Background(), spec).Run()
		return out.String(), err
	}
	s := l.Command(context.Background(), spec).(execenv.Session)
	if err := s.Start(); err != nil {
		return "", err
	}
	term, _ := s.Terminal()
	_, err := io.Copy(&out, term)
	return out.String(), errors.Join(err, s.Wait())
}

func tryStart(string) (note string, err error) {
	l := execenv.NewLocal(nil)
	for name, tty := range boxedTTYs {
		spec := sh("echo hi")
		spec.TTY = tty
		out, e := output(l, spec)
		switch {
		case tty != nil && errors.Is(e, execenv.ErrNoTerminal):
			note = "no terminal"
		case out != "hi\n" || e != nil:
			err = errors.Join(err, fmt.Errorf("%s: %q, %v", name, out, e))
		}
	}
	for range 3 { // without an output
		err = errors.Join(err, l.Command(context.Background(), sh("read x; echo lost; echo lost >&2")).Run())
	}
	return note, errors.Join(err, closing(l))
}

func tryExit(string) (string, error) {
	l := execenv.NewLocal(nil)
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for script, want := range map[string]string{
		"exit 7": "exit code 7", "exit 0": "<nil>", "kill -9 $$": "SIGKILL", "kill -TERM $$": "SIGTERM", "sleep .1; exit 3": "exit code 3",
	} {
		for _, tty := range boxedTTYs {
			wg.Go(func() {
				spec := sh(script)
				spec.TTY = tty
				if _, err := output(l, spec); exitOf(err) != want && !errors.Is(err, execenv.ErrNoTerminal) {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, fmt.Errorf("%s: %v, want %s", script, err, want))
				}
			})
		}
	}
	wg.Wait()
	return "", errors.Join(errors.Join(errs...), closing(l))
}

// beat writes to a file while it lives. It may be told to ignore SIGTERM, or be left
// behind as a daemon.
func beat(args []string) {
	switch args[1] {
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "fork", "fork bare":
		spawn(args[0], strings.Replace(args[1], "fork", "daemon", 1), true)
		return
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		f, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			os.Exit(0)
		}
		f.WriteString("x")
		f.Close()
	}
	os.Exit(0)
}

// spawn starts a beat. It needs no /dev/null.
func spawn(file, kind string, setsid bool) {
	self := append(itself(), file, kind)
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	if strings.HasPrefix(kind, "daemon") { // it holds nothing of ours
		r, w, _ := os.Pipe()
		files = []*os.File{r, w, w}
	}
	os.Setenv("EXECENV_TEST_PROGRAM", "beat")
	env := os.Environ()
	if kind == "daemon bare" {
		env, self[0] = []string{}, beatName
	}
	p, err := os.StartProcess(itself()[0], self, &os.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: setsid}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if strings.HasPrefix(kind, "fork") {
		p.Wait()
	}
}

// beatName is what a beat without an environment is called.
const beatName = "beat of execenv"

func init() {
	if os.Args[0] == beatName {
		beat(os.Args[1:])
	}
}

// kinds are those of the beats that a tree has.
var kinds = map[string]string{"child": "", "stubborn": "stubborn", "daemon": "fork", "bare": "fork bare"}

func beatFiles(dir string, names ...string) (files []string) {
	for _, name := range names {
		files = append(files, filepath.Join(dir, name))
	}
	return files
}

// beats has children, some of which are daemons.
func beats(args []string) {
	for name, kind := range kinds {
		if len(itself()) == 1 || name != "bare" { // an emulator is told by the environment
			spawn(filepath.Join(args[0], name), kind, false)
		}
	}
	forever()
}

// ourselves returns a Spec that runs one of programs, as a session.
func ourselves(program string, args ...string) execenv.Spec {
	self := append(itself(), args...)
	return execenv.Spec{Path: self[0], Args: self[1:], Group: true, Env: execenv.Env{}.Inherit().With(map[string]string{"EXECENV_TEST_PROGRAM": program})}
}

// beating waits until all files grow, and quiet until none does.
func beating(files ...string) error { return grows(true, files) }
func quiet(files ...string) error   { return grows(false, files) }

func grows(want bool, files []string) error {
	sizes := func() (list []int64) {
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				list = append(list, 0)
				continue
			}
			list = append(list, info.Size())
		}
		return list
	}
	for end := time.Now().Add(20 * time.Second); ; {
		before := sizes()
		time.Sleep(200 * time.Millisecond)
		var text strings.Builder
		for i, size := range sizes() {
			if (size > before[i]) != want {
				text.WriteString(" " + filepath.Base(files[i]))
			}
		}
		switch {
		case text.String() == "":
			return nil
		case time.Now().After(end):
			return fmt.Errorf("lives: %v, want %v:%s", !want, want, text.String())
		}
	}
}

// tryStop stops a tree with and without cgroups.
func tryStop(dir string) (note string, err error) {
	for i, opts := range []*execenv.LocalOptions{nil, {Cgroup: execenv.NoCgroup}} {
		sub := filepath.Join(dir, strconv.Itoa(i))
		os.Mkdir(sub, 0o755)
		n, e := tryStopWith(opts, sub)
		err = errors.Join(err, e)
		if n != "" {
			note = n
		}
	}
	return note, err
}

func tryStopWith(opts *execenv.LocalOptions, dir string) (note string, err error) {
	l := execenv.NewLocal(opts)
	s := l.Command(context.Background(), ourselves("beats", dir)).(execenv.Session)
	if err := s.Start(); err != nil {
		return "", err
	}
	all := slices.Sorted(maps.Keys(kinds))
	if len(itself()) > 1 {
		all = slices.DeleteFunc(all, func(name string) bool { return name == "bare" })
	}
	err = beating(beatFiles(dir, all...)...)
	began := time.Now()
	left := s.StopTree(200 * time.Millisecond)
	if took := time.Since(began); took > 3*time.Second {
		err = errors.Join(err, fmt.Errorf("it took %v", took))
	}
	err = errors.Join(err, quiet(beatFiles(dir, "child", "stubborn")...))
	s.Wait()
	rest := quiet(beatFiles(dir, all...)...)
	switch {
	case len(left) > 0:
		err = errors.Join(err, fmt.Errorf("left %v", left))
	case left != nil:
		err = errors.Join(err, rest)
	case rest != nil:
		note = "unknown, and left"
	default:
		note = "unknown"
		fmt.Println(l.Close())
	}
	began = time.Now()
	switch e := l.Close(); {
	case rest != nil && (e == nil || !strings.Contains(e.Error(), "cannot tell")):
		err = errors.Join(err, fmt.Errorf("something is left, and Close returned %v", e))
	case left != nil:
		err = errors.Join(err, e)
	}
	if took := time.Since(began); took > 3*time.Second {
		err = errors.Join(err, fmt.Errorf("Close took %v", took))
	}
	os.RemoveAll(dir) // by which beats end
	if note != "" || err != nil {
		return note, err
	}
	// A command that ends when it is asked.
	l = execenv.NewLocal(opts)
	s = l.Command(context.Background(), execenv.Spec{Path: "sleep", Args: []string{"60"}, Group: true}).(execenv.Session)
	if e := s.Start(); e != nil {
		return "", errors.Join(err, e)
	}
	began = time.Now()
	left = s.StopTree(20 * time.Second)
	if took := time.Since(began); len(left) > 0 || left == nil || took > 2*time.Second || s.Exit().Signal != "SIGTERM" {
		err = errors.Join(err, fmt.Errorf("after SIGTERM: left %v after %v, %v", left, took, s.Exit()))
	}
	s.Wait()
	// One that has ended, with nothing left.
	s = l.Command(context.Background(), execenv.Spec{Path: "true", Group: true}).(execenv.Session)
	if e := s.Run(); e != nil {
		err = errors.Join(err, e)
	}
	if left := s.Survivors(); left == nil || len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("survivors of true: %#v", left))
	}
	return "", errors.Join(err, closing(l))
}

// boxedAgent beats until it is killed.
func boxedAgent(args []string) {
	l := execenv.NewLocal(nil)
	if err := l.Command(context.Background(), ourselves("beats", args[0])).Start(); err != nil {
		fmt.Println(err)
	}
	fmt.Println("ready")
	forever()
}

func tryWatchdog(dir string) (note string, err error) {
	self := append(itself(), dir)
	cmd := exec.Command(self[0], self[1:]...) // not a Local, which would end what the watchdog is to
	cmd.Env = append(os.Environ(), "EXECENV_TEST_PROGRAM=boxed agent")
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return "", fmt.Errorf("the agent: %q, %v", line, err)
	}
	files := beatFiles(dir, "child", "stubborn", "daemon")
	err = beating(files...)
	cmd.Process.Kill()
	cmd.Wait()
	if err = errors.Join(err, quiet(files[:2]...)); err == nil && quiet(files...) != nil {
		note = "daemon left"
	}
	return note, err
}

// passed are descriptors that commands must not get, from before the first Local.
var passed []int

// pass opens n of passed, which a shell can name.
func pass(n int) error {
	for range n {
		fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
		if err != nil || fd > 9 {
			return fmt.Errorf("descriptor %d, %v", fd, err)
		}
		passed = append(passed, fd)
	}
	return nil
}

func tryDescriptors(string) (_ string, err error) {
	l := execenv.NewLocal(nil)
	for _, fd := range passed { // as one that is inherited, and as one of careless code, later
		unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
		for name, tty := range boxedTTYs {
			spec := sh("for n in 3 4 5 6 7 8 9; do (eval \": <&$n\") 2>/dev/null && echo $n; done; :")
			spec.TTY = tty
			if out, e := output(l, spec); (out != "" || e != nil) && !errors.Is(e, execenv.ErrNoTerminal) {
				err = errors.Join(err, fmt.Errorf("%s: got %q besides 0, 1 and 2, %v", name, out, e))
			}
		}
	}
	return "", errors.Join(err, closing(l))
}

// itself returns how a box runs its own program.
func itself() []string {
	if words := strings.Fields(os.Getenv("EXECENV_TEST_ITSELF")); len(words) > 0 {
		return words
	}
	return []string{"/proc/self/exe"}
}

// A denial is a system call that fails: if the bits of mask in an argument are
// those of value.
type denial struct {
	call        uint32
	arg         int
	mask, value uint32
	errno       syscall.Errno
}

// boxes are system call filters.
var filters = map[string][]denial{
	"clone without CLONE_PIDFD":         {{unix.SYS_CLONE, 0, unix.CLONE_PIDFD, unix.CLONE_PIDFD, unix.EINVAL}, always(unix.SYS_CLONE3, unix.ENOSYS)},
	"clone without CLONE_PIDFD, EPERM":  {{unix.SYS_CLONE, 0, unix.CLONE_PIDFD, unix.CLONE_PIDFD, unix.EPERM}, always(unix.SYS_CLONE3, unix.EPERM)},
	"no clone3":                         {always(unix.SYS_CLONE3, unix.ENOSYS)},
	"clone3 denied":                     {always(unix.SYS_CLONE3, unix.EPERM)},
	"no pidfd_open":                     {always(unix.SYS_PIDFD_OPEN, unix.ENOSYS)},
	"pidfd_open denied":                 {always(unix.SYS_PIDFD_OPEN, unix.EPERM)},
	"no pidfd_send_signal":              {always(unix.SYS_PIDFD_SEND_SIGNAL, unix.ENOSYS)},
	"pidfd_send_signal denied":          {always(unix.SYS_PIDFD_SEND_SIGNAL, unix.EPERM)},
	"waitid without P_PIDFD":            {{unix.SYS_WAITID, 0, ^uint32(0), unix.P_PIDFD, unix.EINVAL}},
	"no close_range":                    {always(unix.SYS_CLOSE_RANGE, unix.ENOSYS)},
	"close_range without CLOEXEC":       {{unix.SYS_CLOSE_RANGE, 2, unix.CLOSE_RANGE_CLOEXEC, unix.CLOSE_RANGE_CLOEXEC, unix.EINVAL}},
	"memfd_create denied":               {always(unix.SYS_MEMFD_CREATE, unix.EPERM)},
	"ioctl without TIOCGPTPEER":         {{unix.SYS_IOCTL, 1, ^uint32(0), unix.TIOCGPTPEER, unix.EINVAL}},
	"TIOCGPTPEER and TIOCSIG denied":    {{unix.SYS_IOCTL, 1, ^uint32(0), unix.TIOCGPTPEER, unix.EPERM}, {unix.SYS_IOCTL, 1, ^uint32(0), unix.TIOCSIG, unix.EPERM}},
	"prlimit denied":                    {always(unix.SYS_PRLIMIT64, unix.EPERM)},
	"Linux 5.3":                         before(unix.SYS_CLOSE_RANGE, denial{unix.SYS_WAITID, 0, ^uint32(0), unix.P_PIDFD, unix.EINVAL}),
	"Linux 4.19":                        before(unix.SYS_PIDFD_SEND_SIGNAL),
	"Docker before the end of 2020":     before(unix.SYS_PIDFD_SEND_SIGNAL, always(unix.SYS_PIDFD_SEND_SIGNAL, unix.EPERM)),
	"F_SETPIPE_SZ denied":               {{unix.SYS_FCNTL, 1, ^uint32(0), unix.F_SETPIPE_SZ, unix.EPERM}},
	"no clock of the time since boot":   {{unix.SYS_CLOCK_GETTIME, 0, ^uint32(0), unix.CLOCK_BOOTTIME, unix.EINVAL}},
	"no process_vm_readv, no fchmod":    {always(unix.SYS_PROCESS_VM_READV, unix.EPERM), always(unix.SYS_FCHMOD, unix.EPERM)},
	"no pidfds, close_range and memfds": {always(unix.SYS_PIDFD_OPEN, unix.EPERM), always(unix.SYS_CLOSE_RANGE, unix.EPERM), always(unix.SYS_MEMFD_CREATE, unix.EPERM)},
}

// usual are the boxes that are tried without -full.
var usual = []string{"as another user", "Docker before the end of 2020"}

// allow is what cannot be had under a filter.
var allow = map[string]map[string]string{
	"prlimit denied": {"stop": "unknown, and left"}, // the bare daemon, without a cgroup
}

func always(call uint32, errno syscall.Errno) denial { return denial{call: call, errno: errno} }

// before returns the filter of a kernel that is older than a system call: it has
// none with its number or a higher one.
func before(call uint32, more ...denial) []denial {
	for ; call < 480; call++ {
		more = append(more, always(call, unix.ENOSYS))
	}
	return more
}

// filtered runs args[1:] under the filter that is called args[0].
func filtered(args []string) {
	runtime.LockOSThread()
	const nr, arch, first = 0, 4, 16 // offsets in struct seccomp_data
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	var prog []unix.SockFilter
	for _, d := range filters[args[0]] {
		prog = append(prog, load(nr))
		deny := []unix.SockFilter{ret(unix.SECCOMP_RET_ERRNO | uint32(d.errno))}
		if d.mask != 0 {
			deny = []unix.SockFilter{
				load(first + 8*uint32(d.arg)), // little endian
				{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: d.mask},
				{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: d.value, Jf: 1},
				deny[0],
			}
		}
		prog = append(prog, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: d.call, Jf: uint8(len(deny))})
		prog = append(prog, deny...)
	}
	prog = append(prog, ret(unix.SECCOMP_RET_ALLOW))
	filter := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fmt.Println("no_new_privs:", err)
		os.Exit(1)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0); err != nil {
		fmt.Println("seccomp:", err)
		os.Exit(1)
	}
	os.Setenv("EXECENV_TEST_PROGRAM", "box")
	fmt.Println("exec:", syscall.Exec(args[1], args[1:], os.Environ()))
	os.Exit(1)
}

// A row is a box, and what of it is seen in the table.
type row struct {
	name    string
	wrap    []string // runs the rest of the words in the box
	exe     []string // instead of this test program
	program string
	args    []string
	allow   map[string]string // notes that are right here besides "ok"
}

func TestEverywhere(t *testing.T) {
	dir, err := os.MkdirTemp("", "everywhere") // that of the test is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "execenv.test")
	if err := copySelf(exe); err != nil {
		t.Fatal(err)
	}
	need(t, "bwrap", "unshare", "setpriv")
	bwrap := func(words ...string) []string {
		return append([]string{"bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev"}, words...)
	}
	// In a pid namespace of its own, since what is not decided must not be what
	// another box leaves.
	apart := []string{"unshare", "-r", "-p", "-f", "--mount-proc"}
	if os.Getuid() == 0 {
		apart = slices.Delete(apart, 1, 2)
	}
	noProc := map[string]string{"watchdog": "daemon left"} // the watchdog is a shell
	// Where the other boxes start hundreds of processes meanwhile, nobody can tell.
	shared := map[string]string{"watchdog": "daemon left", "stop": "unknown"}
	rows := []row{{name: "as it is", program: "box"}}
	if os.Getuid() == 0 {
		rows = append(rows, row{name: "as another user", program: "box", wrap: append(apart[:len(apart):len(apart)], "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")})
	}
	if os.Getuid() == 0 {
		user := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
		rows = append(rows,
			row{name: "another user, /proc with hidepid", program: "box",
				wrap: slices.Concat(apart, []string{"sh", "-c", `mount -o remount,hidepid=2 /proc && "$0" "$@"; exit $?`}, user)},
			row{name: "another user, an empty /proc", program: "box", wrap: slices.Concat(user, bwrap("--tmpfs", "/proc")), allow: shared})
	}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		rows = append(rows, row{name: name, program: "filtered", args: []string{name, exe}, wrap: apart, allow: allow[name]})
	}
	rows = append(rows,
		row{name: "no /dev", program: "box", wrap: bwrap("--tmpfs", "/dev"), allow: map[string]string{"start": "no terminal"}},
		row{name: "an empty /proc", program: "box", wrap: bwrap("--tmpfs", "/proc"), allow: shared},
		row{name: "an empty /proc, another pid namespace", program: "box", wrap: bwrap("--tmpfs", "/proc", "--unshare-pid"), allow: noProc},
		row{name: "no /proc, prlimit denied", program: "filtered", args: []string{"prlimit denied", exe}, wrap: bwrap("--tmpfs", "/proc", "--unshare-pid"),
			allow: map[string]string{"start": "unknown", "exit code": "unknown", "stop": "unknown, and left", "watchdog": "daemon left", "descriptors": "unknown"}},
		row{name: "the /proc of another pid namespace", program: "box", wrap: append(apart[:len(apart)-1:len(apart)-1], "sh", "-c", `"$0" "$@"; exit $?`)},
		row{name: "as process 1", program: "box", wrap: apart},
	)
	if runsc := os.Getenv("TERMBRIDGE_RUNSC"); runsc != "" {
		rows = append(rows, row{name: "gVisor", program: "box", wrap: []string{runsc, "--network=none", "--ignore-cgroups", "do"},
			allow: map[string]string{"stop": "unknown, and left"}}) // it keeps no limit that it does not know
	} else {
		t.Log("gVisor is not tried: TERMBRIDGE_RUNSC names no runsc")
	}
	if *full {
		need(t, "qemu-aarch64-static", "go")
		emulated := filepath.Join(dir, "execenv.arm64.test")
		cmd := exec.Command("go", "test", "-c", "-o", emulated, ".")
		cmd.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		qemu, err := exec.LookPath("qemu-aarch64-static")
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row{name: "emulated by qemu", program: "box", exe: []string{qemu, emulated}})
	}
	if !*full {
		rows = slices.DeleteFunc(rows, func(r row) bool { return !slices.Contains(usual, r.name) })
		t.Log("-full tries every box")
	}
	results := make([][]string, len(rows))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, r := range rows {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			results[i] = r.run(t, exe)
		})
	}
	wg.Wait()
	var table strings.Builder
	table.WriteString(fmt.Sprintf("%-38s", ""))
	for _, c := range columns {
		table.WriteString(fmt.Sprintf("  %-17s", c.name))
	}
	for i, r := range rows {
		table.WriteString(fmt.Sprintf("\n%-38s", r.name))
		for _, cell := range results[i] {
			table.WriteString(fmt.Sprintf("  %-17s", cell))
		}
	}
	t.Logf("\n%s", table.String())
}

// run returns the cells of a row.
func (r row) run(t *testing.T, exe string) []string {
	if len(r.wrap) > 0 {
		try := append(r.wrap[:len(r.wrap):len(r.wrap)], "true")
		if out, err := exec.Command(try[0], try[1:]...).CombinedOutput(); err != nil {
			if os.Getenv("TERMBRIDGE_REAL") != "" && os.Getuid() == 0 {
				t.Errorf("%s: %v: %s", r.name, err, out)
			}
			return []string{fmt.Sprintf("not to be had here: %v: %s", err, bytes.TrimSpace(out))}
		}
	}
	self := r.exe
	if self == nil {
		self = []string{exe}
	}
	words := slices.Concat(r.wrap, self, r.args)
	for tries := 5; ; tries-- {
		cells, unknown, bad := r.try(t, words, self)
		switch {
		case len(bad) > 0 || len(unknown) > 0 && tries == 1:
			for _, text := range append(bad, unknown...) {
				t.Errorf("%s, %s", r.name, text)
			}
			return cells
		case len(unknown) == 0:
			return cells
		}
		// On a busy machine a program may have forked before it gets its tag. Then that
		// it is not known is the right answer, for once.
		t.Logf("%s, once more: %s", r.name, strings.Join(unknown, "; "))
	}
}

// try returns the cells, and among them those which are not known and which are
// wrong where they should not be.
func (r row) try(t *testing.T, words, self []string) (cells, unknown, bad []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "EXECENV_TEST_PROGRAM="+r.program, "EXECENV_TEST_ITSELF="+strings.Join(self, " "), "TMPDIR=/tmp", "GOCOVERDIR=/tmp")
	out, err := cmd.CombinedOutput()
	if err != nil {
		bad = append(bad, fmt.Sprintf("%v: %s", err, out))
	}
	cells = make([]string, len(columns))
	for i, c := range columns {
		allowed := []string{"ok"}
		if note := r.allow[c.name]; note != "" {
			allowed = append(allowed, note)
		}
		for line := range strings.Lines(string(out)) {
			if note, ok := strings.CutPrefix(line, c.name+": "); ok {
				cells[i] = strings.TrimSpace(note)
			}
		}
		text := fmt.Sprintf("%s: %s, want %s", c.name, cells[i], strings.Join(allowed, " or "))
		switch {
		case slices.Contains(allowed, cells[i]):
		case strings.HasPrefix(cells[i], "unknown"):
			unknown = append(unknown, text)
		default:
			bad = append(bad, text)
		}
	}
	if len(bad)+len(unknown) > 0 {
		t.Logf("%s: %s", r.name, out)
	}
	return cells, unknown, bad
}
