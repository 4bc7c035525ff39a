package ctl_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A screen is a terminal of tmux: a person's, as far as a program can tell.
type screen struct {
	*testing.T
	server string
}

// newScreen runs a command on a terminal of 100 columns and 30 rows.
func (r *rig) newScreen(name, command string) *screen {
	r.Helper()
	has(r.T, "tmux")
	r.program()
	s := &screen{r.T, r.dir + "/" + name}
	r.Cleanup(func() { exec.Command("tmux", "-S", s.server, "kill-server").Run() })
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", command)
	s.tmux("set-option", "-g", "remain-on-exit", "on")
	return s
}

func (s *screen) tmux(args ...string) string {
	s.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", s.server}, args...)...).CombinedOutput()
	if err != nil {
		s.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *screen) text() string { s.Helper(); return s.tmux("capture-pane", "-p") }

func (s *screen) shows(want string) { s.Helper(); until(s.T, want, s.text) }

func (s *screen) keys(keys ...string) { s.Helper(); s.tmux(append([]string{"send-keys"}, keys...)...) }

func TestAttach(t *testing.T) {
	// A person types into a session, resizes it, watches it from a second terminal,
	// and leaves it as it was.
	r := newRig(t)
	r.must("new", "--name", "web", "--", "PS1='ready> '")
	r.must("wait", "web", "--state", "idle")
	writer := r.newScreen("w", "sh -c 'termbridge ctl attach -w web; echo status $?; stty -a | grep -o -- -icanon; echo end; exec sleep 1000'")
	writer.shows("ready> ")
	writer.keys("echo $((6*7)) times", "Enter")
	writer.shows("42 times")
	writer.keys("stty size", "Enter")
	writer.shows("30 100")

	viewer := r.newScreen("v", "sh -c 'termbridge ctl attach web; exec sleep 1000'")
	viewer.shows("42 times") // at once, though it was printed before
	viewer.keys("x")
	viewer.shows("watched only")
	writer.tmux("resize-window", "-x", "90", "-y", "20")
	until(t, "20 90", func() string {
		writer.keys("stty size", "Enter")
		return writer.text()
	})
	writer.keys("echo to both", "Enter")
	viewer.shows("to both")

	// Ctrl-C is the session's.
	writer.keys("sleep 1000", "Enter")
	r.must("wait", "web", "--state", "working")
	until(t, "idle", func() string { // one that comes before the shell has started sleep ends nothing
		writer.keys("C-c")
		_, stderr, status := run(t, "", "wait", "web", "--state", "idle", "--timeout", "2s")
		if status == 0 {
			return "idle"
		}
		return stderr
	})

	writer.keys(`C-\`)
	writer.shows("left web, which goes on")
	writer.shows("status 0")
	writer.shows("end")
	if strings.Contains(writer.text(), "-icanon") {
		t.Errorf("the terminal is not as it was:\n%s", writer.text())
	}
	r.must("send", "web", "--enter", "exit 3")
	viewer.shows("web has ended: exit code 3")
}

func TestAttachToAFullScreenProgram(t *testing.T) {
	// Vim is drawn at once, also for whoever comes later, and whoever leaves has the
	// screen back.
	has(t, "vim")
	r := newRig(t)
	r.must("new", "--name", "edit", "--cwd", t.TempDir(), "--", "vim -u NONE -N -c 'set laststatus=2' file")
	r.must("wait", "edit", "--state", "blocked")
	s := r.newScreen("w", "sh -c 'echo before; termbridge ctl attach --write --detach-key ctrl-a edit; exec sleep 1000'")
	s.shows("file")
	s.keys("i", "hello from here", "Escape")
	s.shows("hello from here")
	later := r.newScreen("v", "sh -c 'termbridge ctl attach edit; exec sleep 1000'")
	later.shows("hello from here")
	later.shows("~\n~")
	s.keys("C-a")
	s.shows("left edit")
}

func TestAttachIsInterrupted(t *testing.T) {
	// However the program ends, the terminal is as it was.
	r := newRig(t)
	r.must("new", "--name", "web")
	r.must("wait", "web", "--state", "idle")
	s := r.newScreen("w", "sh -c 'termbridge ctl attach -w web; stty -a | grep -o -- -icanon; echo end; exec sleep 1000'")
	until(t, "web", s.text)
	until(t, "raw", func() string {
		tty := strings.TrimSpace(s.tmux("display-message", "-p", "#{pane_tty}"))
		out, _ := exec.Command("stty", "-F", tty, "-a").CombinedOutput()
		return strings.ReplaceAll(string(out), "-icanon", "raw")
	})
	if out, err := exec.Command("pkill", "-TERM", "-f", "ctl attach -w web$").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.shows("end")
	s.shows("interrupted")
	if strings.Contains(s.text(), "-icanon") {
		t.Errorf("the terminal is not as it was:\n%s", s.text())
	}
}

func TestFollow(t *testing.T) {
	// Without a terminal the output is copied, to the end.
	r := newRig(t)
	r.must("new", "--name", "web", "--", "echo one; exit 0")
	out, stderr, status := run(t, "", "attach", "web")
	if status != 0 || !strings.Contains(out, "one") {
		t.Errorf("status %d, %q, %s", status, out, stderr)
	}
}
