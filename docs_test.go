package termbridge_test

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFailureModesAreTested finds each test that a table of docs/failure-modes.md,
// docs/clients.md and SECURITY.md names where it says: in the column Test, behind the name
// of its package's folder, or as a case of the suite.
func TestFailureModesAreTested(t *testing.T) {
	tests := testSources(t)
	named := regexp.MustCompile("(?:([a-z-]+) )?`([^`]+)`")
	for file, least := range map[string]int{"docs/failure-modes.md": 40, "docs/clients.md": 1, "SECURITY.md": 25} {
		rows := 0
		inColumn := false // the table has one
		for line := range strings.Lines(read(t, file)) {
			cells := strings.Split(line, "|")
			if len(cells) < 3 {
				inColumn = false
				continue
			}
			last := strings.TrimSpace(cells[len(cells)-2])
			switch {
			case last == "Test":
				inColumn = true
				continue
			case !inColumn, strings.HasPrefix(line, "|---"):
				continue
			}
			rows++
			where := ""
			for _, found := range named.FindAllStringSubmatch(last, -1) {
				if found[1] != "" {
					where = found[1]
				}
				want := "func " + found[2] + "("
				if _, name, ok := strings.Cut(found[2], "/"); ok {
					want = `name: "` + name + `"`
				}
				if !strings.Contains(tests[where], want) {
					t.Errorf("%s: no %s in %q", file, found[2], where)
				}
			}
		}
		if rows < least {
			t.Errorf("%s: %d rows: the table is not read any more", file, rows)
		}
	}
}

// TestDocsNameTests finds each test that any other document names, somewhere.
func TestDocsNameTests(t *testing.T) {
	var all strings.Builder
	for _, source := range testSources(t) {
		all.WriteString(source)
	}
	docs, err := filepath.Glob("docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("no documents, %v", err)
	}
	for _, doc := range append(docs, "README.md") {
		for _, name := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*)`").FindAllStringSubmatch(read(t, doc), -1) {
			if !strings.Contains(all.String(), "func "+name[1]+"(") {
				t.Errorf("%s names %s, which is no test", doc, name[1])
			}
		}
	}
}

// TestProtocol finds the files that docs/protocol.md names, and in its first table those
// whose comments say that they are there for the SDK in use, and no others.
func TestProtocol(t *testing.T) {
	page := read(t, "docs/protocol.md")
	_, rest, _ := strings.Cut(page, "## What is here because of the SDK in use")
	table, _, _ := strings.Cut(rest, "What 0.13 cannot send")
	var listed, marked []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(table, -1) {
		listed = append(listed, row[1])
	}
	for _, file := range goFiles(t) {
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(read(t, file), "SDK 0.13") {
			marked = append(marked, file)
		}
	}
	slices.Sort(listed)
	slices.Sort(marked)
	if !slices.Equal(listed, marked) {
		t.Errorf("docs/protocol.md lists %q; the comments of %q mark them", listed, marked)
	}
	for _, file := range regexp.MustCompile("`([a-z/-]+\\.go)`").FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(file[1]); err != nil {
			t.Error(err)
		}
	}
}

// TestCINamesTests finds each test that .ci/run chooses or skips by its name.
func TestCINamesTests(t *testing.T) {
	var all strings.Builder
	for _, source := range testSources(t) {
		all.WriteString(source)
	}
	lists := regexp.MustCompile(`Test\(([A-Za-z|]+)\)`).FindAllStringSubmatch(read(t, ".ci/run"), -1)
	if len(lists) < 3 {
		t.Errorf("%d lists of tests", len(lists))
	}
	for _, list := range lists {
		for name := range strings.SplitSeq(list[1], "|") {
			if !strings.Contains(all.String(), "func Test"+name+"(") {
				t.Errorf(".ci/run names Test%s, which is no test", name)
			}
		}
	}
}

// TestArchitectureNamesFiles finds each Go file that docs/architecture.md names by its path.
func TestArchitectureNamesFiles(t *testing.T) {
	named := regexp.MustCompile(`[a-z-]+(?:/[a-z0-9_-]+)*/[a-z0-9_]+\.go\b`).FindAllString(read(t, "docs/architecture.md"), -1)
	if len(named) < 15 {
		t.Errorf("%d files", len(named))
	}
	for _, file := range named {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// TestLinks follows each link from a document to another file of the repository, and to
// a heading in it.
func TestLinks(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	headings := func(file string) (anchors []string) {
		for line := range strings.Lines(read(t, file)) {
			if title, found := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); found && strings.HasPrefix(line, "#") {
				title = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
				anchors = append(anchors, strings.ReplaceAll(title, " ", "-"))
			}
		}
		return anchors
	}
	for _, doc := range append(docs, "README.md", "CHANGELOG.md", "SECURITY.md") {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(read(t, doc), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(link[1], "#")
			target := doc
			if file != "" {
				target = path.Join(path.Dir(doc), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", doc, err)
			} else if anchor != "" && !slices.Contains(headings(target), anchor) {
				t.Errorf("%s: no heading #%s in %s", doc, anchor, target)
			}
		}
	}
}

// TestPackageDocs holds the page of each package that others import to what a reader
// looks for: a purpose, code to copy, who owns what, and what may be called at once.
func TestPackageDocs(t *testing.T) {
	docs := map[string]string{}
	for _, file := range goFiles(t) {
		dir := path.Dir(file)
		if dir == "." || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "internal/") || strings.Contains(file, "examples/") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name.Name != "main" {
			docs[dir] += f.Doc.Text()
		}
	}
	if len(docs) < 14 {
		t.Errorf("%d packages", len(docs))
	}
	for dir, doc := range docs {
		for what, pattern := range map[string]string{
			"purpose":     `^Package ` + path.Base(dir) + ` `,
			"snippet":     `(?m)^\t\S`,
			"lifetime":    `(?i)\b(lifetime|closes?d?|owns?|lives|ends)\b`,
			"concurrency": `(?i)goroutine|at once|concurren|parallel`,
		} {
			if !regexp.MustCompile(pattern).MatchString(doc) {
				t.Errorf("%s: its page has no %s", dir, what)
			}
		}
	}
}

// testSources returns the tests of each package, and the suite's cases, by the
// last element of its path.
func testSources(t *testing.T) map[string]string {
	sources := map[string]string{}
	for _, file := range goFiles(t) {
		pkg := path.Base(path.Dir(file))
		if strings.HasSuffix(file, "_test.go") || pkg == "terminaltest" {
			sources[pkg] += read(t, file)
		}
	}
	sources["suite"] = sources["terminaltest"]
	return sources
}
