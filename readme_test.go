package termbridge_test

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadme keeps the README's quick start what the compiled example is.
func TestReadme(t *testing.T) {
	readme, example := read(t, "README.md"), read(t, "examples/quickstart/main.go")
	_, rest, found := strings.Cut(readme, "```go\n")
	snippet, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("README.md has no Go snippet")
	}
	if example != snippet {
		t.Errorf("the quick start of README.md is not examples/quickstart/main.go; copy it from there:\n%s", snippet)
	}
}

// Every other piece of Go in the documents is a part of a compiled example, but for its
// indentation.
func TestSnippets(t *testing.T) {
	var examples strings.Builder
	for _, file := range goFiles(t) {
		if strings.HasPrefix(file, "examples/") || strings.Contains(path.Base(file), "example") {
			examples.WriteString(flat(read(t, file)))
		}
	}
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, doc := range append(docs, "README.md") {
		for i, part := range strings.Split(read(t, doc), "```go\n")[1:] {
			snippet, _, _ := strings.Cut(part, "```")
			if n++; !strings.Contains(examples.String(), "\n"+flat(snippet)) {
				t.Errorf("%s: no example has snippet %d:\n%s", doc, i+1, snippet)
			}
		}
	}
	if n < 10 {
		t.Errorf("%d snippets: they are not read any more", n)
	}
}

// flat returns code without indentation.
func flat(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// TestClaims finds the test of each claim that the first screen of the README makes.
func TestClaims(t *testing.T) {
	readme, tests := strings.Join(strings.Fields(read(t, "README.md")), " "), testSources(t)
	for _, c := range []struct{ claim, where, test string }{
		{"in the editor's live terminal if it has one, else in a local pseudo-terminal", "bridge", "TestRouting"},
		{"with one contract for both", "bridge", "TestManagers"},
		{"in a terminal if the editor shows one", "bridge", "TestFirstVisibleByte"},
		{"else as text that grows once a second", "bridge", "TestExecFor"},
		{"and measures that nothing was left behind", "acp-demo-agent", "TestDemoOnATerminal"},
		{"a command that runs twice", "fakeconn", "TestFaultMatrix"},
		{"a terminal that leaks after a cancel", "bridge", "TestStress"},
		{"a hung `kill` that hangs the agent", "fakeconn", "TestFaultMatrix"},
		{"a signal death that looks like success", "terminal", "TestExit"},
		{"output that is lost or shown twice", "bridge", "TestStress"},
		{"one large output that kills the connection", "bridge", "TestFirehose"},
	} {
		if !strings.Contains(readme, c.claim) {
			t.Errorf("the README does not claim any more: %s", c.claim)
		}
		if !strings.Contains(tests[c.where], "func "+c.test+"(") {
			t.Errorf("%q: there is no %s in %s", c.claim, c.test, c.where)
		}
	}
}

func read(t *testing.T, file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
