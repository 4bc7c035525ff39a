package localterm_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/failure-modes.md names exist where it says.
func TestFailureModesAreTested(t *testing.T) {
	doc, err := os.ReadFile("../docs/failure-modes.md")
	if err != nil {
		t.Fatal(err)
	}
	source := func(dir string) string {
		files, _ := filepath.Glob(dir + "/*.go")
		var all strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		return all.String()
	}
	sources := map[string]string{
		"localterm": source("."), "execenv": source("../execenv"), "view": source("../view"),
		"tail": source("../internal/tail"), "suite": source("../terminal/terminaltest"),
	}
	named := regexp.MustCompile("(?:([a-z]+) )?`([^`]+)`")
	rows := 0
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|---") {
			continue
		}
		rows++
		where := ""
		for _, found := range named.FindAllStringSubmatch(cells[3], -1) {
			if found[1] != "" {
				where = found[1]
			}
			want := "func " + found[2] + "("
			if _, test, ok := strings.Cut(found[2], "/"); ok {
				want = `name: "` + test + `"`
			}
			if !strings.Contains(sources[where], want) {
				t.Errorf("no %s in %q", found[2], where)
			}
		}
	}
	if rows < 40 {
		t.Errorf("%d rows: the table is not read any more", rows)
	}
}
