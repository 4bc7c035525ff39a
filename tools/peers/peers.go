package main

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// A peer is one way to run commands.
type peer struct {
	name    string
	missing func(modules string) string // why it cannot be measured
	measure func(size sizes, modules string) (result, error)
}

var peers = []peer{
	{"os/exec", here, native(execRunner{})},
	{"localterm, pipes", here, native(localRunner{tty: false})},
	{"localterm, terminal", here, native(localRunner{tty: true})},
	{"creack/pty", here, native(ptyRunner{})},
	{"node-pty", noNode, measureNode},
	{"tmux", noTmux, measureTmux},
}

// The commands that all of them run. tree's three children are one in a session of
// its own, one that ignores SIGTERM and SIGHUP, and one by nohup.
const (
	nothing = "/bin/true"
	idle    = "sleep 1000"
	tree    = `setsid sleep 1000 & (trap "" TERM HUP; exec sleep 1000) & nohup sleep 1000 >/dev/null 2>&1 & echo up; wait`
)

func flood(mb int) string { return fmt.Sprintf("yes | head -c %d", mb<<20) }

// A runner runs shell lines within this process.
type runner interface {
	// run runs a program to its end. flood runs a line that writes much, and keeps
	// what this runner keeps of it: localterm the end, the others all.
	run(program string) error
	flood(line string) (bytes int64, err error)
	// start starts a line with an environment variable more, and returns once it
	// has written something if that is awaited. stop ends it.
	start(line, env string, await bool) (stop func() error, err error)
}

func here(string) string { return "" }

// native measures a runner.
func native(r runner) func(sizes, string) (result, error) {
	return func(size sizes, _ string) (m result, err error) {
		if err = r.run(nothing); err != nil { // warm
			return m, err
		}
		if m.Start, err = timed(size.Starts, func() error { return r.run(nothing) }); err != nil {
			return m, err
		}
		begun := time.Now()
		n, err := r.flood(flood(size.FloodMB))
		if err != nil || n < int64(size.FloodMB)<<20 {
			return m, fmt.Errorf("%d bytes of %d MB, %w", n, size.FloodMB, err)
		}
		m.Flood = float64(n) / 1e6 / time.Since(begun).Seconds()

		token := newToken()
		defer killAll(token)
		kb, threads := memory(os.Getpid())
		for range size.Idle {
			if _, err := r.start(idle, token, false); err != nil {
				return m, err
			}
		}
		time.Sleep(300 * time.Millisecond)
		kb2, threads2 := memory(os.Getpid())
		m.Idle, m.Thread = (kb2-kb)/float64(size.Idle), threads2-threads

		token2 := newToken()
		stop, err := r.start(tree, token2, true)
		if err != nil {
			return m, err
		}
		return m, stopped(&m, token2, stop)
	}
}

// stopped measures a stop of the tree with this token, and ends what is left of it.
func stopped(m *result, token string, stop func() error) error {
	defer killAll(token)
	for end := time.Now().Add(30 * time.Second); len(with(token)) < 4; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the tree has %d processes", len(with(token)))
		}
	}
	begun := time.Now()
	if err := stop(); err != nil {
		return err
	}
	m.Stop = time.Since(begun).Seconds()
	time.Sleep(200 * time.Millisecond) // what still dies
	m.Left = float64(len(with(token)))
	return nil
}

// execRunner is os/exec as its documentation shows it.
type execRunner struct{}

func (execRunner) run(program string) error {
	_, err := exec.Command(program).CombinedOutput()
	return err
}

func (execRunner) flood(line string) (int64, error) {
	out, err := exec.Command("/bin/sh", "-c", line).CombinedOutput()
	return int64(len(out)), err
}

func (execRunner) start(line, env string, await bool) (func() error, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), env), time.Second
	out := &awaited{first: make(chan struct{})}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan struct{})
	go func() { // ends with the command
		_ = cmd.Wait()
		close(ended)
	}()
	if await {
		<-out.first
	}
	return func() error { cancel(); <-ended; return nil }, nil
}

// An awaited is a writer whose first bytes are awaited.
type awaited struct {
	first chan struct{}
	some  bool
}

func (a *awaited) Write(p []byte) (int, error) {
	if !a.some {
		a.some = true
		close(a.first)
	}
	return len(p), nil
}

// ptyRunner is creack/pty as its documentation shows it.
type ptyRunner struct{}

func (ptyRunner) run(program string) error {
	_, err := ptyRunner{}.copy(exec.Command(program), io.Discard)
	return err
}

func (ptyRunner) copy(cmd *exec.Cmd, to io.Writer) (int64, error) {
	f, err := pty.Start(cmd)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, _ := io.Copy(to, f) // EIO is the end
	return n, cmd.Wait()
}

func (p ptyRunner) flood(line string) (int64, error) {
	return p.copy(exec.Command("/bin/sh", "-c", line), &bytes.Buffer{})
}

func (ptyRunner) start(line, env string, await bool) (func() error, error) {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Env = append(os.Environ(), env)
	f, err := pty.Start(cmd)
	if err != nil {
		return nil, err
	}
	out := &awaited{first: make(chan struct{})}
	go io.Copy(out, f) // ends when f is closed
	if await {
		<-out.first
	}
	return func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // killed
		return errors.Join(err, f.Close())
	}, nil
}

// localRunner is localterm.
type localRunner struct{ tty bool }

var manager = localterm.New(&localterm.Options{MaxTerminals: 1000})

func (r localRunner) run(program string) error {
	t, err := manager.Start(context.Background(), terminal.Command{Args: []string{program}, TTY: r.tty})
	if err == nil {
		_, err = terminal.Wait(context.Background(), t)
	}
	return err
}

func (r localRunner) flood(line string) (int64, error) {
	t, err := manager.Start(context.Background(), terminal.Command{Line: line, TTY: r.tty})
	if err != nil {
		return 0, err
	}
	if _, err := terminal.Wait(context.Background(), t); err != nil {
		return 0, err
	}
	out, err := t.ReadOutput(context.Background(), terminal.End, 0)
	return out.NextCursor, err
}

func (r localRunner) start(line, env string, await bool) (func() error, error) {
	name, value, _ := strings.Cut(env, "=")
	t, err := manager.Start(context.Background(), terminal.Command{Line: line, TTY: r.tty, Env: map[string]string{name: value}})
	if err == nil && await {
		_, err = t.ReadOutput(context.Background(), 0, 30*time.Second)
	}
	return func() error {
		_, err := t.Stop(context.Background())
		return err
	}, err
}

//go:embed node.cjs
var nodeScript string

func noNode(modules string) string {
	if _, err := exec.LookPath("node"); err != nil {
		return "no node"
	}
	if _, err := os.Stat(filepath.Join(modules, "node_modules", "@lydell", "node-pty")); err != nil {
		return "no @lydell/node-pty in " + filepath.Join(modules, "node_modules")
	}
	return ""
}

// measureNode has node.cjs measure all but the stop, whose tree is looked at here.
func measureNode(size sizes, modules string) (m result, err error) {
	token, token2 := newToken(), newToken()
	defer killAll(token)
	cmd := exec.Command("node", "-", strconv.Itoa(size.Starts), flood(size.FloodMB), strconv.Itoa(size.Idle), idle, token, tree, token2)
	cmd.Dir, cmd.Stderr = modules, os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return m, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := io.WriteString(in, nodeScript); err != nil {
		return m, err
	}
	in.Close()
	lines := json.NewDecoder(out)
	if err := lines.Decode(&m); err != nil {
		return m, err
	}
	m.Flood = float64(size.FloodMB<<20) / 1e6 / m.Flood
	err = stopped(&m, token2, func() error {
		if err := cmd.Process.Signal(syscall.SIGUSR2); err != nil {
			return err
		}
		return lines.Decode(&struct{}{}) // it has ended
	})
	return m, err
}

func noTmux(string) string {
	if _, err := exec.LookPath("tmux"); err != nil {
		return "no tmux"
	}
	return ""
}

// measureTmux measures a server of its own. Each command is a window, as agents use
// it, and its end is waited for by wait-for.
func measureTmux(size sizes, _ string) (m result, err error) {
	socket := "peers-" + strconv.Itoa(os.Getpid())
	tmux := func(args ...string) (string, error) {
		out, err := exec.Command("tmux", append([]string{"-L", socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("tmux %v: %w, %s", args, err, out)
		}
		return strings.TrimSpace(string(out)), err
	}
	if _, err := tmux("new-session", "-d", "-s", "peers", idle); err != nil {
		return m, err
	}
	defer tmux("kill-server")
	number := 0
	run := func(line string) error {
		number++
		channel := fmt.Sprint("end", number)
		_, err := tmux("new-window", "-d", fmt.Sprintf("%s; tmux -L %s wait-for -S %s", line, socket, channel))
		if err == nil {
			_, err = tmux("wait-for", channel)
		}
		return err
	}
	if m.Start, err = timed(max(size.Starts/5, 1), func() error { return run(nothing) }); err != nil {
		return m, err
	}
	begun, mb := time.Now(), max(size.FloodMB/8, 1) // it draws all of it
	if err := run(flood(mb)); err != nil {
		return m, err
	}
	m.Flood = float64(mb<<20) / 1e6 / time.Since(begun).Seconds()

	text, err := tmux("display-message", "-p", "#{pid}")
	if err != nil {
		return m, err
	}
	server, err := strconv.Atoi(text)
	if err != nil {
		return m, err
	}
	token, token2 := newToken(), newToken()
	defer killAll(token)
	kb, threads := memory(server)
	for range size.Idle {
		if _, err := tmux("new-window", "-d", "-e", token, idle); err != nil {
			return m, err
		}
	}
	time.Sleep(300 * time.Millisecond)
	kb2, threads2 := memory(server)
	m.Idle, m.Thread = (kb2-kb)/float64(size.Idle), threads2-threads
	if _, err := tmux("new-window", "-d", "-n", "tree", "-e", token2, tree); err != nil {
		return m, err
	}
	err = stopped(&m, token2, func() error { _, err := tmux("kill-window", "-t", "peers:tree"); return err })
	return m, err
}

func newToken() string { return "TERMBRIDGE_PEERS=" + rand.Text() }

// with returns the processes that have a token in their environment.
func with(token string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+token+"\x00")) {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// killAll ends what a peer has left.
func killAll(token string) {
	for range 3 {
		for _, pid := range with(token) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
