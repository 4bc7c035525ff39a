package termbridge_test

import (
	"os"
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

func read(t *testing.T, file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
