package localterm_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/failure-modes.md and docs/clients.md name exist where they
// say: in the last cell of a row, behind the name of their package's folder.
func TestFailureModesAreTested(t *testing.T) {
	sources := testSources(t)
	for file, least := range map[string]int{"failure-modes.md": 40, "clients.md": 1} {
		doc, err := os.ReadFile("../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile("(?:([a-z]+) )?`([^`]+)`")
		rows := 0
		tests := false // the table has a column of tests
		for line := range strings.Lines(string(doc)) {
			cells := strings.Split(line, "|")
			if len(cells) < 3 {
				tests = false
				continue
			}
			last := strings.TrimSpace(cells[len(cells)-2])
			switch {
			case last == "Test":
				tests = true
				continue
			case !tests, strings.HasPrefix(line, "|---"):
				continue
			}
			rows++
			where := ""
			for _, found := range named.FindAllStringSubmatch(last, -1) {
				if found[1] != "" {
					where = found[1]
				}
				want := "func " + found[2] + "("
				if _, test, ok := strings.Cut(found[2], "/"); ok {
					want = `name: "` + test + `"`
				}
				if !strings.Contains(sources[where], want) {
					t.Errorf("%s: no %s in %q", file, found[2], where)
				}
			}
		}
		if rows < least {
			t.Errorf("%s: %d rows: the table is not read any more", file, rows)
		}
	}
}

// testSources returns the source of every package, by its folder's name; that of
// terminaltest is "suite".
func testSources(t *testing.T) map[string]string {
	sources := make(map[string]string)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules":
			return fs.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		folder := filepath.Base(filepath.Dir(path))
		if folder == ".." {
			return err // the module's own
		}
		if folder == "terminaltest" {
			folder = "suite"
		}
		sources[folder] += string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}
