package execenv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
	"golang.org/x/sys/unix"
)

// A nap is a sleep that can be told from all others.
func nap() string { return fmt.Sprintf("sleep 88%d", naps.Add(1)) }

var naps atomic.Int64

func init() { naps.Store(time.Now().UnixNano() % 1e6) }

// alive returns the live processes with this command line.
func alive(command string) (procs []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file)
		text := strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		if text == command {
			stat, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
			if i := bytes.LastIndexByte(stat, ')'); i > 0 && stat[i+2] != 'Z' {
				procs = append(procs, filepath.Base(filepath.Dir(file))+" "+text)
			}
		}
	}
	return procs
}

func untilAlive(t *testing.T, command string, n int) {
	t.Helper()
	eventually(t, func() error {
		got := alive(command)
		return errorf(len(got) == n, "%d of %q run, want %d: %q", len(got), command, n, got)
	})
}

var bothWays = map[string]*execenv.LocalOptions{
	"cgroup":    nil,
	"no cgroup": {Cgroup: execenv.NoCgroup},
}

func hasCgroups(t *testing.T) bool {
	l := newLocal(t, nil)
	r := start(t, l, sh("cat /proc/self/cgroup"))
	return strings.Contains(r.rest(t), "/termbridge-")
}

// kill kills a process that alive has found.
func kill(found string) {
	pid, _, _ := strings.Cut(found, " ")
	n, _ := strconv.Atoi(pid)
	syscall.Kill(n, syscall.SIGKILL)
}

// Whatever a process does to get away, StopTree ends it.
func TestStopTree(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid", "nohup", "bash")
	for way, opts := range bothWays {
		t.Run(way, func(t *testing.T) {
			for _, c := range []struct {
				name, script string
				tty          *execenv.TTY
				naps         int
				kill         bool // needs SIGKILL
			}{
				{"a child", "NAP", nil, 1, false},
				{"grandchildren", "sh -c 'NAP & NAP & wait' & NAP; :", nil, 3, false},
				{"background of a shell", "NAP & NAP", nil, 2, false},
				{"nohup", "nohup NAP >/dev/null 2>&1 & wait", nil, 1, false},
				{"ignores TERM, HUP and INT", "trap '' TERM HUP INT; NAP & wait", nil, 1, true},
				{"a session of its own", "setsid NAP & wait", nil, 1, false},
				{"a daemon", "(setsid sh -c 'NAP & :' </dev/null >/dev/null 2>&1 &); wait; exec sleep 99", nil, 1, false},
				{"a daemon that ignores SIGTERM", "trap '' TERM; (setsid sh -c 'NAP & :' </dev/null >/dev/null 2>&1 &); while :; do sleep .1; done", nil, 1, true},
				{"a job of an interactive shell", "bash -ic 'NAP & NAP'", &execenv.TTY{Input: true}, 2, false},
				{"a terminal without input", "NAP & NAP", &execenv.TTY{}, 2, false},
				{"stopped", "NAP & sleep .1; kill -STOP $!; kill -STOP $$", nil, 1, false},
				{"without an environment, in the session", "env -i NAP & wait", nil, 1, false},
				{"without an environment, a child in another session", "env -i setsid NAP & wait", nil, 1, false},
			} {
				t.Run(c.name, func(t *testing.T) {
					l := newLocal(t, opts)
					nap := nap()
					spec := sh(strings.ReplaceAll(c.script, "NAP", nap))
					spec.TTY = c.tty
					r := start(t, l, spec)
					untilAlive(t, nap, c.naps)
					if strings.Contains(c.name, "stopped") {
						eventually(t, func() error {
							stat, _ := os.ReadFile("/proc/" + r.ID() + "/stat")
							return errorf(bytes.Contains(stat, []byte(") T ")), "not stopped: %s", stat)
						})
					}
					grace := 20 * time.Second
					if c.kill {
						grace = 200 * time.Millisecond
					}
					began := time.Now()
					left := r.StopTree(grace)
					if left == nil || len(left) > 0 {
						t.Errorf("left: %v, want none, and known", left)
					}
					if took := time.Since(began); c.kill != (r.Exit().Signal == "SIGKILL") || !c.kill && took > 10*time.Second {
						t.Errorf("took %v: %v", took, r.Exit())
					}
					if got := alive(nap); len(got) > 0 {
						t.Errorf("still alive: %q", got)
					}
					if left := r.StopTree(0); left == nil || len(left) > 0 {
						t.Errorf("once more: left %v", left)
					}
					if left := r.Survivors(); left == nil || len(left) > 0 {
						t.Errorf("survivors: %v", left)
					}
				})
			}
		})
	}
}

// What leaves the session, the environment and the family behind is found by its
// cgroup, or by its limit tag.
func TestStopTreeOfADaemonWithoutEnvironment(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid")
	for way, opts := range bothWays {
		for _, out := range []string{"", ">/dev/null 2>&1"} {
			t.Run(way+out, func(t *testing.T) {
				for range 20 {
					nap := nap()
					l := execenv.NewLocal(opts)
					r := start(t, l, sh("(setsid env -i "+nap+" </dev/null "+out+" &); echo ready; exec sleep 99"))
					r.until(t, "ready")
					untilAlive(t, nap, 1)
					left, naps := r.StopTree(time.Second), alive(nap)
					err := l.Close()
					if err == nil && left != nil && len(left)+len(naps) == 0 {
						return
					}
					// The kernel may have forked it at the instant of the tag: then that
					// is not known, and said.
					if way == "cgroup" && hasCgroups(t) || len(naps) != 1 || err == nil || !strings.Contains(err.Error(), "cannot tell") {
						t.Fatalf("left: %#v, alive: %q, Close: %v", left, naps, err)
					}
					kill(naps[0])
					t.Log(err)
				}
				t.Error("20 times it was not known whose the daemon was")
			})
		}
	}
}

// Processes that are made faster than anybody can count them end too.
func TestStopTreeOfForkLoops(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid")
	dir := t.TempDir()
	chain := filepath.Join(dir, "chain")
	if err := os.WriteFile(chain, []byte("#!/bin/sh\nsetsid \"$0\" </dev/null >/dev/null 2>&1 &\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for way, opts := range bothWays {
		t.Run(way, func(t *testing.T) {
			l := newLocal(t, opts)
			nap := nap()
			r := start(t, l, sh("trap '' TERM; while :; do (setsid "+nap+" &); sleep .01; done"))
			eventually(t, func() error { return errorf(len(alive(nap)) > 5, "not yet") })
			if left := r.StopTree(50 * time.Millisecond); len(left) > 0 || len(alive(nap)) > 0 {
				t.Errorf("a loop of daemons: left %v, alive %q", left, alive(nap))
			}
			r = start(t, l, execenv.Spec{Path: chain})
			time.Sleep(100 * time.Millisecond)
			r.StopTree(0)
			time.Sleep(50 * time.Millisecond)
			if got := alive("/bin/sh " + chain); len(got) > 0 {
				t.Errorf("a chain of sessions: alive %q", got)
			}
		})
	}
}

// What a command leaves behind at its natural end runs on and can write on, is
// named, and ends with the Local.
func TestSurvivors(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid", "bash")
	for way, opts := range bothWays {
		t.Run(way, func(t *testing.T) {
			for _, c := range []struct {
				name, script string
				tty          *execenv.TTY
			}{
				{"in the group, with the output", "NAP & echo over", nil},
				{"in the group, without the output", "NAP >/dev/null 2>&1 & echo over", nil},
				{"without an environment", "env -i NAP >/dev/null 2>&1 & echo over", nil},
				{"in a session, with the output", "setsid NAP & echo over", nil},
				{"a daemon", "(setsid NAP </dev/null >/dev/null 2>&1 &); sleep .1; echo over", nil},
				{"a daemon without an environment", "(setsid env -i NAP </dev/null >/dev/null 2>&1 &); sleep .1; echo over", nil},
				{"on a terminal without input", "NAP & echo over", &execenv.TTY{}},
				{"a job, on a terminal", "bash -ic 'set -m; trap \"\" HUP; NAP & echo over'", &execenv.TTY{Input: true}},
			} {
				t.Run(c.name, func(t *testing.T) {
					l := execenv.NewLocal(opts)
					nap := nap()
					spec := sh(strings.ReplaceAll(c.script, "NAP", nap))
					spec.TTY = c.tty
					r := start(t, l, spec)
					r.until(t, "over")
					wait(t, r.Exited(), "the exit does not wait for survivors")
					mayMiss := c.name == "a daemon without an environment" && !(way == "cgroup" && hasCgroups(t))
					unknown := false
					eventually(t, func() error {
						got := r.Survivors()
						unknown = got == nil && mayMiss // it was forked at the instant of the tag
						return errorf(unknown || len(got) == 1 && got[0].Command == nap, "survivors: %#v, want %q", got, nap)
					})
					if unknown {
						if err := l.Close(); err == nil || !strings.Contains(err.Error(), "cannot tell") {
							t.Errorf("Close: %v", err)
						}
						kill(alive(nap)[0])
						return
					}
					if err := r.Wait(); err != nil {
						t.Errorf("Wait: %v", err)
					}
					time.Sleep(20 * time.Millisecond)
					if got := alive(nap); len(got) != 1 {
						t.Errorf("after Wait: %q: Wait must not end them", got)
					}
					if err := l.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
					if got := alive(nap); len(got) > 0 {
						t.Errorf("after Close: %q", got)
					}
				})
			}
			t.Run("ended by StopTree", func(t *testing.T) {
				nap := nap()
				r := start(t, newLocal(t, opts), sh(nap+" & echo over"))
				wait(t, r.Exited(), "exit")
				untilAlive(t, nap, 1)
				if left := r.StopTree(5 * time.Second); len(left) > 0 || len(alive(nap)) > 0 {
					t.Errorf("left %v, alive %q", left, alive(nap))
				}
				if got := r.Survivors(); got == nil || len(got) > 0 {
					t.Errorf("survivors: %v", got)
				}
			})
			t.Run("none", func(t *testing.T) {
				r := start(t, newLocal(t, opts), sh("echo over"))
				if got := r.Survivors(); len(got) > 0 {
					t.Errorf("while it runs: %v", got)
				}
				wait(t, r.Exited(), "exit")
				if got := r.Survivors(); got == nil || len(got) > 0 {
					t.Errorf("survivors: %v, want none, and known", got)
				}
			})
		})
	}
}

// A server that outlives its starter goes on to write into a pipe, or a
// terminal, that nobody reads any more. That must not kill it.
func TestSurvivorsMayWriteOn(t *testing.T) {
	for _, tty := range []*execenv.TTY{nil, {}} {
		l := newLocal(t, nil)
		file := filepath.Join(t.TempDir(), "log")
		spec := sh("(while :; do echo word; echo word >> " + file + "; sleep .01; done) & echo over")
		spec.TTY = tty
		r := start(t, l, spec)
		r.until(t, "over")
		wait(t, r.Exited(), "exit")
		if err := r.Wait(); err != nil {
			t.Error(err)
		}
		wait(t, r.done, "Wait ends the reads")
		if !errors.Is(r.err, os.ErrClosed) {
			t.Errorf("Read after Wait: %v", r.err)
		}
		size := func() int64 {
			info, err := os.Stat(file)
			if err != nil {
				return 0
			}
			return info.Size()
		}
		n := size()
		eventually(t, func() error { return errorf(size() > n+50, "it does not write any more") })
	}
}

// The agent's death is the death of all it has started.
func TestWatchdog(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "setsid", "nohup")
	for _, how := range []string{"killed", "panics", "exits"} {
		for _, cgroup := range []string{"", execenv.NoCgroup} {
			t.Run(how+" "+cgroup, func(t *testing.T) {
				t.Parallel()
				nap := nap()
				spec := program("agent", how,
					nap+" & wait", "setsid "+nap+" & wait", "nohup "+nap+" >/dev/null 2>&1 & wait",
					"(setsid sh -c '"+nap+" & :' </dev/null >/dev/null 2>&1 &); exec sleep 99",
					"trap '' TERM HUP INT; "+nap+" & wait", "exec env -i "+nap)
				spec.Env = spec.Env.With(map[string]string{"AGENT_CGROUP": cgroup})
				l := newLocal(t, &execenv.LocalOptions{Cgroup: execenv.NoCgroup})
				p := l.Command(t.Context(), spec)
				in, err := p.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				out, err := p.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				// Nobody but the agent holds its standard output.
				if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
					t.Fatal(err)
				}
				untilAlive(t, nap, 18)
				if how == "killed" {
					p.Kill()
				} else {
					io.WriteString(in, "\n")
				}
				if rest, err := io.ReadAll(out); len(rest) > 0 || err != nil {
					t.Errorf("output: %q, %v", rest, err)
				}
				began := time.Now()
				p.Wait()
				untilAlive(t, nap, 0)
				t.Logf("all gone after %v", time.Since(began))
			})
		}
	}
}

func TestTerminalSetup(t *testing.T) {
	need(t, "/proc/self/stat")
	l := newLocal(t, nil)
	spec := sh("stty -a; stty size; tty; test -t 1 && test -t 2 && echo isatty; (: </dev/tty) 2>&1; ps -o tty= -p $$; cat")
	spec.TTY = &execenv.TTY{Size: terminal.Size{Rows: 7, Cols: 33}, Input: true}
	r := start(t, l, spec)
	r.until(t, "isatty\npts/")
	io.WriteString(r.term, "hi\n\x04")
	out := r.rest(t)
	for _, want := range []string{"-onlcr", "iutf8", "\n7 33\n", "\n/dev/pts/", "\nisatty\npts/"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}

	if strings.Contains(out, "-iutf8") || strings.Count(out, "hi\n") != 2 {
		t.Errorf("no UTF-8, or no echo:\n%s", out)
	}

	// Without input there is no controlling terminal, and nothing to read.
	spec = sh("test -t 1 && test -t 2 && echo isatty; stty size <&1; tty; (: </dev/tty) 2>&1; cat; cat <&2; ps -o tty= -p $$")
	spec.TTY = &execenv.TTY{}
	out = start(t, l, spec).rest(t)
	if !regexp.MustCompile(`^isatty\n40 120\nnot a tty\n.*/dev/tty.*No such device or address\n\?\s*$`).MatchString(out) {
		t.Errorf("without input: %q", out)
	}
}

// Programs that ask on the terminal, read from it, or poll it for a key, end when
// there is no input, whoever runs them.
func TestTerminalWithoutInputNeverWaits(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/exe"); err == nil && os.Getuid() == 0 {
		t.Run("nobody", func(t *testing.T) { asNobody(t, "TestTerminalWithoutInputNeverWaits") })
	}
	l := newLocal(t, nil)
	waiting := make(map[string]*running)
	const repo = "git init -q . && git config user.email a@b && git config user.name a && echo x >f && git add f && "
	for _, c := range []struct{ program, line string }{
		{"less", "seq 1000 > seq; less seq"},
		{"less", "seq 1000 | less"},
		{"more", "seq 1000 | more"},
		{"more", "seq 1000 >seq; more seq"},
		{"busybox", "seq 1000 >seq; busybox less seq"},
		{"busybox", "seq 1000 | busybox less"},
		{"git", repo + "EDITOR=vim git commit -a"},
		{"git", repo + "git commit -qm x && GIT_SEQUENCE_EDITOR=vim git rebase -i --root"},
		{"git", repo + "git commit -qm x && git -c core.pager='less -+F' log"},
		{"vim", "vim f"},
		{"vim", "view /etc/passwd"},
		{"vim", "vimdiff /etc/passwd /etc/group"},
		{"vim", "vim f & wait"},
		{"vim", "trap '' HUP; vim f"},
		{"setsid", "setsid -w less /etc/passwd"},
		{"ssh-keygen", "ssh-keygen -q -N secret -f key; ssh-keygen -y -f key"},
		{"bash", "bash -c 'read -p name: x'"},
		{"bash", "bash -c 'read -p name: x <&2'"},
		{"bash", "bash -c 'read x <&2; read x <&2'"},
		{"bash", "sleep 1; bash -c 'read x <&2; read x <&2'"}, // and no output
		{"python3", "python3 -c 'input()'"},
		{"python3", "python3 -c 'import getpass; getpass.getpass()'"},
		{"python3", "python3 -c 'import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.read(2, 1); os.read(2, 1)'"},
	} {
		if _, err := exec.LookPath(c.program); err != nil {
			t.Run(c.line, func(t *testing.T) { need(t, c.program) })
			continue
		}
		spec := sh(c.line + "; echo over")
		spec.Dir, spec.TTY = t.TempDir(), &execenv.TTY{}
		spec.Env = execenv.Env{}.With(map[string]string{"HOME": spec.Dir})
		waiting[c.line] = start(t, l, spec) // they mostly sleep
	}
	for line, r := range waiting {
		out := strings.ReplaceAll(r.rest(t), "\r\n", "\n") // a pager may leave it so
		if !strings.HasSuffix(out, "over\n") {
			t.Errorf("%s: %q", line, out)
		}
	}
}

// Whoever does not wait for a key is left alone, however quiet it is.
func TestTerminalWithoutInputLeavesAlone(t *testing.T) {
	needTable(t)
	t.Parallel()
	need(t, "vim", "python3")
	l := newLocal(t, nil)
	quiet := make(map[string]*running)
	for _, line := range []string{
		"sleep 2",
		"(exec >/dev/null; sleep 2)",
		"cat && cat <&2 && sleep 2", // where it can be read
		"stty raw; sleep 2",
		"tail -f /dev/null & p=$!; sleep 2; kill $p",
		"python3 -c 'import select, time; select.select([], [], [], 2)'",
		"vim -u NONE -es -c 'sleep 2' -c 'qa!' f",
	} {
		if _, err := os.ReadFile("/proc/self/syscall"); err != nil && strings.HasPrefix(line, "cat") {
			continue
		}
		spec := sh(line + "; echo exit $?")
		spec.Dir, spec.TTY = t.TempDir(), &execenv.TTY{}
		quiet[line] = start(t, l, spec)
	}
	for line, r := range quiet {
		if out := r.rest(t); !strings.HasSuffix(out, "exit 0\n") {
			t.Errorf("%s: %q", line, out)
		}
	}
}

// copySelf copies the test binary. Another process does it: a file that this one
// writes may still be open in what another test is starting, and cannot be run then.
func copySelf(to string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if out, err := exec.Command("cp", exe, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return os.Chmod(to, 0o755)
}

// asNobody runs the test that calls it once more, as a user without rights.
func asNobody(t *testing.T, test string) {
	dir, err := os.MkdirTemp("/tmp", "execenv")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "test")
	if err := errors.Join(os.Chmod(dir, 0o755), copySelf(path)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-test.run=^"+test+"$", "-test.v")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "TMPDIR=/tmp", "GOCOVERDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Error(err)
	}
}

func TestTerminalInput(t *testing.T) {
	l := newLocal(t, nil)
	spec := sh("echo ready; sleep 60")
	spec.TTY = &execenv.TTY{Input: true}
	r := start(t, l, spec)
	r.until(t, "ready")
	if got := r.term.CanonicalLimit(); got != 4095 {
		t.Errorf("CanonicalLimit: got %d", got)
	}
	// Nobody reads: the kernel takes some, and the rest waits until it is told
	// not to.
	r.term.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	n, err := r.term.Write(bytes.Repeat([]byte("x\n"), 1<<19))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n >= 1<<20 {
		t.Errorf("got %d, %v", n, err)
	}
	r.StopTree(0)
	r.term.SetWriteDeadline(time.Time{})
	if _, err := r.term.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("nobody is there: got %v", err)
	}

	// What is read late arrives whole.
	spec = sh("stty raw -echo; echo ready; sleep .2; head -c 1048576 | cksum; stty -a")
	spec.TTY = &execenv.TTY{Input: true}
	r = start(t, l, spec)
	r.until(t, "ready")
	if got := r.term.CanonicalLimit(); got != 0 {
		t.Errorf("CanonicalLimit of a raw terminal: got %d", got)
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if n, err := r.term.Write(text); n != len(text) || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	sum, err := l.Command(t.Context(), sh("cksum <"+file)).Output()
	if err != nil {
		t.Fatal(err)
	}
	r.until(t, strings.TrimSpace(string(sum)))
}

// Close ends a blocked Read and a blocked Write.
func TestTerminalClose(t *testing.T) {
	l := newLocal(t, nil)
	spec := sh("sleep 60")
	spec.TTY = &execenv.TTY{Input: true}
	r := start(t, l, spec)
	written := make(chan error)
	go func() {
		_, err := r.term.Write(make([]byte, 1<<20))
		written <- err
	}()
	time.Sleep(20 * time.Millisecond)
	r.term.Close()
	wait(t, r.done, "Close ends a Read")
	if err := <-written; !errors.Is(err, os.ErrClosed) || !errors.Is(r.err, os.ErrClosed) {
		t.Errorf("got %v and %v", err, r.err)
	}
}

// A signal to the group of a process with a keyboard goes where Ctrl-C would.
func TestSignalGroupIsTheForeground(t *testing.T) {
	need(t, "/proc/self/stat")
	need(t, "bash")
	l := newLocal(t, nil)
	nap := nap()
	r := start(t, l, execenv.Spec{Path: "bash", Args: []string{"--norc", "-i"}, TTY: &execenv.TTY{Input: true}})
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		io.WriteString(r.term, nap+"; echo code $?\n")
		untilAlive(t, nap, 1)
		if err := r.SignalGroup(sig); err != nil {
			t.Error(err)
		}
		// A shell forgets the rest of a line that was interrupted.
		if sig == syscall.SIGKILL {
			r.until(t, "code 137")
		}
		untilAlive(t, nap, 0)
	}
	select {
	case <-r.Exited():
		t.Error("the shell was reached")
	default:
	}
}

// The last byte that was written before the exit is delivered.
func TestNoOutputIsLost(t *testing.T) {
	needTable(t)
	t.Parallel()
	l := newLocal(t, nil)
	n := 50
	if *full {
		n = 170
	}
	for _, tty := range []*execenv.TTY{nil, {}, {Input: true}} {
		for i := range n {
			spec := sh("head -c 20480 /dev/zero")
			spec.TTY = tty
			r := start(t, l, spec)
			if i%10 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			if got := r.rest(t); len(got) != 20480 || r.err != nil {
				t.Fatalf("run %d: %d bytes, %v", i, len(got), r.err)
			}
			if err := r.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestWriteTo(t *testing.T) {
	l := newLocal(t, nil)
	for _, tty := range []*execenv.TTY{nil, {}} {
		spec := sh("head -c 1000000 /dev/zero; sleep .05; head -c 1000000 /dev/zero")
		spec.TTY, spec.Group = tty, true
		p := l.Command(t.Context(), spec)
		var out io.Reader
		if tty == nil {
			out, _ = p.StdoutPipe()
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if tty != nil {
			out, _ = p.(execenv.Session).Terminal()
		}
		var n counter
		if m, err := out.(io.WriterTo).WriteTo(&n); m != 2000000 || int(n) != 2000000 || err != nil {
			t.Errorf("got %d, %d, %v", m, n, err)
		}
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// No process of the agent holds a descriptor that it has no business with.
func TestNoDescriptorLeaks(t *testing.T) {
	need(t, "/proc/self/stat")
	l := newLocal(t, nil)
	careless, err := syscall.Dup(1) // no O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(careless)
	others := start(t, l, sh("sleep 60")) // pipes of another process
	defer others.Kill()
	for _, tty := range []*execenv.TTY{nil, {}, {Input: true}} {
		spec := sh("ls /proc/$$/fd")
		spec.TTY = tty
		got := strings.Fields(start(t, l, spec).rest(t))
		got = slices.DeleteFunc(got, func(fd string) bool { n, _ := strconv.Atoi(fd); return n == 10 }) // a shell's own
		if want := []string{"0", "1", "2"}; !slices.Equal(got, want) {
			t.Errorf("TTY %v: got %q, want %q", tty, got, want)
		}
	}
}

// Nothing is left of processes that ended, nor of those that never started.
func TestNothingIsLeft(t *testing.T) {
	need(t, "/proc/self/stat")
	state := func() string {
		fds, _ := os.ReadDir("/proc/self/fd")
		text := []string{fmt.Sprintf("%d descriptors, %d children", len(fds), len(children()))}
		for _, pid := range children() {
			stat, _ := os.ReadFile("/proc/" + pid + "/stat")
			text = append(text, fmt.Sprintf("%.60s", stat))
		}
		return strings.Join(text, "; ")
	}
	l0 := execenv.NewLocal(nil) // so that what the runtime opens once is open
	l0.Command(t.Context(), sh("true")).Run()
	l0.Close()
	before, goroutines := "", runtime.NumGoroutine() // at most: one of another test may just end
	eventually(t, func() error {
		before = state()
		return errorf(strings.HasSuffix(before, " 0 children"), "%s", before)
	})

	l := execenv.NewLocal(nil)
	for i := range 100 {
		for _, tty := range []*execenv.TTY{nil, {}, {Input: true}} {
			spec := sh("echo hi")
			switch i % 5 {
			case 1:
				spec.Path = "/no/such/program"
			case 2:
				spec.Dir = "/no/such/directory"
			case 3:
				spec.Path = "/"
			}
			spec.TTY, spec.Group = tty, true
			p := l.Command(t.Context(), spec)
			if tty == nil {
				p.StdinPipe()
				p.StdoutPipe()
				p.StderrPipe()
			}
			if err := p.Start(); err != nil {
				continue
			}
			p.Wait()
		}
	}
	for range 20 {
		s := l.Command(t.Context(), execenv.Spec{Path: "sleep", Args: []string{"60"}, TTY: &execenv.TTY{}}).(execenv.Session)
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		s.StopTree(0)
		s.Wait()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, func() error {
		after, now := state(), runtime.NumGoroutine()
		return errorf(after == before && now <= goroutines, "before: %s, %d goroutines; after: %s, %d", before, goroutines, after, now)
	})
}

// children returns the children of the agent, zombies included.
func children() (pids []string) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range tasks {
		data, _ := os.ReadFile(file)
		pids = append(pids, strings.Fields(string(data))...)
	}
	return pids
}

// Close returns as soon as all has ended, and reaps the watchdog, also while the
// exits of many commands, which their context has just killed, are being noted.
func TestCloseReapsTheWatchdog(t *testing.T) {
	need(t, "/proc/self/stat")
	rounds := 6
	if *full {
		rounds = 30
	}
	for range rounds {
		l := execenv.NewLocal(nil)
		ctx, cancel := context.WithCancel(t.Context())
		for range 20 {
			spec := sh("exec sleep 60")
			spec.Group = true
			p := l.Command(ctx, spec)
			out, err := p.StdoutPipe()
			if err == nil {
				err = p.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			deliver(t, out)
		}
		cancel()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if pids := children(); len(pids) > 0 {
			t.Fatalf("Close has left the children %q", pids)
		}
	}
}

// Waiting for processes costs no threads.
func TestThreads(t *testing.T) {
	need(t, "/proc/self/stat")
	threads := func() int {
		status, _ := os.ReadFile("/proc/self/status")
		_, rest, _ := strings.Cut(string(status), "Threads:")
		n, _ := strconv.Atoi(strings.Fields(rest)[0])
		return n
	}
	l := newLocal(t, nil)
	start(t, l, sh("exec sleep 60"))
	before := threads()
	for range 100 {
		spec := sh("exec sleep 60")
		spec.TTY = &execenv.TTY{Input: true}
		start(t, l, spec)
	}
	if after := threads(); after > before+10 {
		t.Errorf("%d threads before 100 processes, %d with them", before, after)
	}
}

// Many starts at once, from many goroutines.
func TestStartsAtOnce(t *testing.T) {
	l := newLocal(t, nil)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			spec := sh("echo " + strconv.Itoa(i))
			spec.Group = i%2 == 0
			out, err := l.Command(context.Background(), spec).Output()
			if string(out) != strconv.Itoa(i)+"\n" || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
	wg.Wait()
}

// limitFor returns the RLIMIT_NOFILE that leaves spare numbers for new descriptors.
func limitFor(spare int) uint64 {
	used := make(map[string]bool)
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if _, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil { // not that of ReadDir
			used[fd.Name()] = true
		}
	}
	limit := 0
	for ; spare > 0 || used[strconv.Itoa(limit)]; limit++ {
		if !used[strconv.Itoa(limit)] {
			spare--
		}
	}
	return uint64(limit)
}

// No more descriptors or terminals is a reason of its own, and leaves nothing.
func TestNoResources(t *testing.T) {
	need(t, "/proc/self/stat")
	l := newLocal(t, &execenv.LocalOptions{Cgroup: execenv.NoCgroup}) // which are kept, with descriptors
	if err := l.Command(t.Context(), sh("true")).Run(); err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	for spare := range 8 {
		lim := old
		lim.Cur = limitFor(spare)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			t.Fatal(err)
		}
		var errs []error
		for _, tty := range []*execenv.TTY{nil, {Input: true}} {
			spec := sh("true")
			spec.TTY, spec.Group = tty, true
			p := l.Command(t.Context(), spec)
			err := p.Start()
			if err == nil {
				p.Wait()
			}
			errs = append(errs, err)
		}
		unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
		for i, err := range errs {
			if err != nil && !errors.Is(err, execenv.ErrNoResources) || err == nil && spare == 0 {
				t.Errorf("%d descriptors to spare, case %d: %v", spare, i, err)
			}
		}
		eventually(t, func() error { // a watcher may still look around
			after, _ := os.ReadDir("/proc/self/fd")
			return errorf(len(after) == len(fds), "%d descriptors before, %d after", len(fds), len(after))
		})
	}
}

// The watchdog holds nothing of the agent, and is replaced if somebody ends it.
func TestWatchdogItself(t *testing.T) {
	need(t, "/proc/self/stat")
	l := newLocal(t, nil)
	watchdog := func() string {
		t.Helper()
		start(t, l, sh("exit 0"))
		pid := ""
		for _, child := range children() {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if bytes.Contains(line, []byte("termbridge-watchdog")) {
				pid = child
			}
		}
		if pid == "" {
			t.Fatal("no watchdog")
		}
		return pid
	}
	first := watchdog()
	if again := watchdog(); again != first {
		t.Errorf("a second watchdog: %s and %s", first, again)
	}
	var files []string
	fds, _ := os.ReadDir("/proc/" + first + "/fd")
	for _, fd := range fds {
		link, _ := os.Readlink("/proc/" + first + "/fd/" + fd.Name())
		files = append(files, regexp.MustCompile(`:.*`).ReplaceAllString(fd.Name()+" "+link, ""))
	}
	if want := []string{"0 pipe", "1 /dev/null", "2 /dev/null", "3 /memfd"}; !slices.Equal(files, want) {
		t.Errorf("it holds %q, want %q", files, want)
	}
	if env, _ := os.ReadFile("/proc/" + first + "/environ"); !bytes.HasPrefix(env, []byte("PATH=")) || bytes.Count(env, []byte{0}) != 1 {
		t.Errorf("its environment: %q", env)
	}
	if dir, _ := os.Readlink("/proc/" + first + "/cwd"); dir != "/" {
		t.Errorf("it keeps %s busy", dir)
	}
	pid, _ := strconv.Atoi(first)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return errorf(!slices.Contains(children(), first), "not reaped") })
	if second := watchdog(); second == first {
		t.Error("no new one")
	}
}

// A cgroup is a help, not a condition.
func TestCgroups(t *testing.T) {
	need(t, "/proc/self/stat")
	for _, dir := range []string{t.TempDir(), "/no/such/directory", "/proc"} {
		if out, err := newLocal(t, &execenv.LocalOptions{Cgroup: dir}).Command(t.Context(), sh("echo hi")).Output(); string(out) != "hi\n" || err != nil {
			t.Errorf("%s: got %q, %v", dir, out, err)
		}
	}
	if !hasCgroups(t) {
		t.Skip("no cgroup can be had here")
	}
	l := execenv.NewLocal(nil)
	group := func() string {
		r := start(t, l, sh("cat /proc/self/cgroup"))
		_, path, _ := strings.Cut(r.rest(t), "0::")
		r.Wait()
		r.Survivors() // the watcher has looked
		return filepath.Join("/sys/fs/cgroup/unified", strings.TrimSpace(path))
	}
	first := group()
	if _, err := os.Stat(first); err != nil {
		t.Skipf("not mounted where this test expects it: %v", err)
	}
	if again := group(); again != first {
		t.Errorf("not used again: %s, then %s", first, again)
	}
	// Somebody removes it.
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if got := group(); strings.Contains(got, "termbridge") {
		t.Errorf("got %s, want the agent's own", got)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(first)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
}
