package clients_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
)

// A page is docs/editors.md: the pieces of code of each client, by their language.
type page map[string]map[string][]string

// editors reads it; the log that it names is put into the home.
func (at *place) editors() page {
	at.Helper()
	b, err := os.ReadFile("../../../docs/editors.md")
	if err != nil {
		at.Fatal(err)
	}
	text := strings.ReplaceAll(string(b), "/tmp/acp-demo-agent.log", filepath.Join(at.home, "log"))
	p := page{}
	piece := regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	for _, section := range strings.Split(text, "\n## ")[1:] {
		client, _, _ := strings.Cut(section, "\n")
		p[client] = map[string][]string{}
		for _, found := range piece.FindAllStringSubmatch(section, -1) {
			p[client][found[1]] = append(p[client][found[1]], found[2])
		}
	}
	return p
}

// A place is where the page is followed: the agent is in the PATH, and a
// new user's home is empty.
type place struct {
	*testing.T
	home, dir string
	env       execenv.Env
	local     *execenv.Local
}

func newPlace(t *testing.T) *place {
	t.Helper()
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped: it is about other programs, and runs without -short")
	}
	path, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	p := &place{T: t, home: home(t), dir: t.TempDir(), local: execenv.NewLocal(nil)}
	p.env = execenv.Env{}.InheritSafe().With(map[string]string{
		"HOME": p.home, "XDG_STATE_HOME": "",
		"PATH": p.home + string(filepath.ListSeparator) + filepath.Dir(path) + string(filepath.ListSeparator) + os.Getenv("PATH"),
	})
	t.Cleanup(func() {
		if err := p.local.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// file writes a file into the home.
func (p *place) file(name, text string, mode os.FileMode) string {
	p.Helper()
	path := filepath.Join(p.home, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), mode)
	}
	if err != nil {
		p.Fatal(err)
	}
	return path
}

// run returns what a program prints, and why it failed.
func (p *place) run(program string, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(p.Context(), time.Minute)
	defer stop()
	out, err := p.local.Command(ctx, execenv.Spec{Path: program, Args: args, Dir: p.dir, Env: p.env, Group: true}).CombinedOutput()
	return string(out), err
}

// The settings of every client are ones that it can read, and start an agent that
// ends well with its input.
func TestEditorSettings(t *testing.T) {
	p, checked := newPlace(t), 0
	for client, pieces := range p.editors() {
		for _, text := range pieces["json"] {
			var settings map[string]map[string]struct {
				Command string            `json:"command"`
				Args    []string          `json:"args"`
				Env     map[string]string `json:"env"`
			}
			if err := json.Unmarshal([]byte(text), &settings); err != nil {
				t.Errorf("%s: %v in %s", client, err, text)
			}
			for _, agents := range settings {
				for _, a := range agents {
					checked++
					if out, err := p.run(a.Command, a.Args...); err != nil || out != "" {
						t.Errorf("%s: %s %q: %v, %s", client, a.Command, a.Args, err, out)
					}
				}
			}
		}
		// Of the other languages only the words are known here.
		for _, language := range []string{"lua", "elisp"} {
			for _, text := range pieces[language] {
				_, words, found := strings.Cut(text, `"acp-demo-agent"`)
				words, _, _ = strings.Cut(words, "}")
				words, _, _ = strings.Cut(words, ")")
				var args []string
				for _, word := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(words, -1) {
					args = append(args, word[1])
				}
				checked++
				if out, err := p.run("acp-demo-agent", args...); !found || err != nil || out != "" {
					t.Errorf("%s: %q: %v, %s", client, args, err, out)
				}
			}
		}
	}
	if checked < 8 {
		t.Errorf("%d settings: the page is not read any more", checked)
	}
}

// A new user who follows the page with acpx sees the commands run there.
func TestEditorAcpx(t *testing.T) {
	node, cli := installed(t, nodePath), installed(t, filepath.Join("acpx", "dist", "cli.js"))
	p := newPlace(t)
	pieces := p.editors()["acpx"]
	p.file("acpx", "#!/bin/sh\nexec '"+node+"' '"+cli+"' \"$@\"\n", 0o700)
	p.file(".acpx/config.json", pieces["json"][0], 0o600)
	lines := 0
	for line := range strings.Lines(strings.Join(pieces["sh"], "")) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "acpx ") {
			continue
		}
		lines++
		out, err := p.run("sh", "-c", line)
		if err != nil || !strings.Contains(out, "hello") {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		if inClient := strings.Contains(out, "terminal/create"); inClient == strings.Contains(line, "--no-terminal") {
			t.Errorf("%s: a terminal of the client: %v\n%s", line, inClient, out)
		}
		if fails := strings.Contains(line, "exit 3"); fails != strings.Contains(out, "code 3") {
			t.Errorf("%s:\n%s", line, out)
		}
	}
	if lines != 3 {
		t.Errorf("%d command lines", lines)
	}
}

// The least client of the page runs on the SDK that it names.
func TestEditorOfYours(t *testing.T) {
	node := installed(t, nodePath)
	modules := filepath.Dir(filepath.Dir(installed(t, filepath.Join("@agentclientprotocol", "sdk"))))
	p := newPlace(t)
	pieces := p.editors()["A client of yours"]
	if err := os.Symlink(modules, filepath.Join(p.home, "node_modules")); err != nil {
		t.Fatal(err)
	}
	out, err := p.run(node, p.file("client.mjs", pieces["js"][0], 0o600))
	if err != nil || !strings.Contains(out, "output: hello\n") || !strings.HasSuffix(out, "end_turn\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Both pieces for Emacs are read, and start and ask the agent. Emacs is real; acp.el
// is where Emacs finds it, and a stand-in elsewhere.
func TestEditorEmacs(t *testing.T) {
	p := newPlace(t)
	pieces := p.editors()["Emacs"]["elisp"]
	if _, err := p.run("emacs", "--version"); err != nil {
		if os.Getenv("TERMBRIDGE_REAL") != "" {
			t.Fatal(err)
		}
		t.Skipf("skipped: no Emacs: %v", err)
	}
	standIn, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	if len(pieces) != 2 {
		t.Fatalf("%d pieces", len(pieces))
	}
	// What agent-shell does with its list: it makes a client, for a buffer.
	settings := p.file("settings.el", `(require 'acp)
(defvar agent-shell-agent-configs nil)
(cl-defun agent-shell-make-agent-config (&rest keys) keys)
(provide 'agent-shell)
`+pieces[0]+`
(let ((client (funcall (plist-get (car agent-shell-agent-configs) :client-maker) (current-buffer))))
  (message "answers: %S" (alist-get 'protocolVersion (acp-send-request
    :client client :sync t :request (acp-make-initialize-request :protocol-version 1))))
  (acp-shutdown :client client))
`, 0o600)
	alone := p.file("alone.el", pieces[1], 0o600)
	start := []string{"-Q", "--batch", "--eval", "(package-initialize)",
		"--eval", `(unless (locate-library "acp") (message "acp.el is not here: the stand-in") (push "` + standIn + `" load-path))`}
	for file, want := range map[string]string{settings: "answers: 1\n", alone: "output: hello\n"} {
		out, err := p.run("emacs", append(start, "--load", file)...)
		t.Logf("%s", out)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}
