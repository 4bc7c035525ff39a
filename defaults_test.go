package termbridge_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
)

// defaults are the names of what the table of docs/architecture.md shows, by row, and
// for each number of the row.
var defaults = map[string][]string{
	"output kept of a command, locally / in a result and of a client's (4 bytes more are asked of it)": {"DefaultOutputLimit", "DefaultResultLimit"},
	"output kept by one manager": {"DefaultManagerBytes"},
	"text of one read":           {"MaxText"},
	"terminals kept of a session, live and ended / live in the background": {"DefaultMaxTerminals", "MaxBackground"},
	"grace between SIGTERM and SIGKILL":                                    {"StopGrace"},
	"bound of create / with a permission that may be open":                 {"CreateTimeout", "PermitTimeout"},
	"bound of kill, release / output / settle and close":                   {"KillTimeout ReleaseTimeout", "OutputTimeout", "SettleTimeout"},
	"drain after exit: quiet / at most":                                    {"DrainQuiet", "DrainLimit"},
	"poll of a client's output while read / while nobody reads":            {"PollMin", "PollMax", "PollIdle"},
	"keep-alive of a quiet card":                                           {"KeepAlive"},
	"size of a terminal":                                                   {"DefaultRows", "DefaultCols"},
	"display updates: of a terminal / of a connection":                     {"DisplayInterval", "DisplayRate"},
	"text updates of a terminal: one per / at most":                        {"TextInterval", "TextLimit"},
	"a session/update line":                                                {"MaxUpdateLine"},
	"a command sent to a client / a word of a local command":               {"MaxCreate", "MaxWord"},
}

// defaultValues are the values behind those names: a time.Duration, or an int.
var defaultValues = map[string][]any{
	"DefaultOutputLimit": {limits.DefaultOutputLimit}, "DefaultResultLimit": {limits.DefaultResultLimit},
	"DefaultManagerBytes": {limits.DefaultManagerBytes}, "MaxText": {limits.MaxText},
	"DefaultMaxTerminals": {limits.DefaultMaxTerminals}, "MaxBackground": {limits.MaxBackground},
	"StopGrace": {limits.StopGrace}, "CreateTimeout": {limits.CreateTimeout}, "PermitTimeout": {limits.PermitTimeout},
	"KillTimeout": {limits.KillTimeout}, "ReleaseTimeout": {limits.ReleaseTimeout}, "OutputTimeout": {limits.OutputTimeout},
	"SettleTimeout": {limits.SettleTimeout}, "DrainQuiet": {limits.DrainQuiet}, "DrainLimit": {limits.DrainLimit},
	"PollMin": {limits.PollMin}, "PollMax": {limits.PollMax}, "PollIdle": {limits.PollIdle}, "KeepAlive": {limits.KeepAlive},
	"DefaultRows": {limits.DefaultRows}, "DefaultCols": {limits.DefaultCols},
	"DisplayInterval": {limits.DisplayInterval}, "DisplayRate": {limits.DisplayRate}, "TextInterval": {limits.TextInterval},
	"TextLimit": {limits.TextLimit}, "MaxUpdateLine": {limits.MaxUpdateLine}, "MaxCreate": {limits.MaxCreate}, "MaxWord": {limits.MaxWord},
}

// TestDefaults holds the table of docs/architecture.md to the constants: it has each of
// them, with its value, and each is used by the code.
func TestDefaults(t *testing.T) {
	doc, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Defaults\n")
	section, _, _ = strings.Cut(section, "\n## ")
	shown := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]*\d[^|]*) \|$`).FindAllStringSubmatch(section, -1) {
		names := defaults[row[1]]
		if names == nil {
			t.Errorf("row %q is not known to this test", row[1])
			continue
		}
		shown[row[1]] = true
		numbers := regexp.MustCompile(`\d+( (ms|s|min|KiB|MiB)\b)?`).FindAllString(row[2], -1)
		if len(numbers) != len(names) {
			t.Errorf("row %q: %q for %q", row[1], numbers, names)
			continue
		}
		for i, number := range numbers {
			for name := range strings.FieldsSeq(names[i]) {
				values := defaultValues[name]
				if value := values[min(i, len(values)-1)]; fmt.Sprint(value) != fmt.Sprint(parseDefault(number)) {
					t.Errorf("row %q: %s is %v, and the table has %s", row[1], name, value, number)
				}
			}
		}
	}
	for row := range defaults {
		if !shown[row] {
			t.Errorf("the table has no row %q", row)
		}
	}

	declared := map[string]bool{} // and whether it is used
	tree, err := parser.ParseFile(token.NewFileSet(), "internal/limits/limits.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tree.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				for _, n := range spec.(*ast.ValueSpec).Names {
					declared[n.Name] = false
				}
			}
		}
	}
	inTable := strings.Fields(strings.Join(slices.Concat(slices.Collect(func(yield func([]string) bool) {
		for _, names := range defaults {
			if !yield(names) {
				return
			}
		}
	})...), " "))
	for name := range declared {
		if !slices.Contains(inTable, name) {
			t.Errorf("%s is a default, and not in the table", name)
		}
	}
	sources(t, 0, func(_ string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "limits" {
					if _, is := declared[sel.Sel.Name]; is {
						declared[sel.Sel.Name] = true
					}
				}
			}
			return true
		})
	})
	for name, used := range declared {
		if !used {
			t.Errorf("%s is a default that nothing uses", name)
		}
	}
}

// parseDefault is the value of a number of the table.
func parseDefault(s string) any {
	number, unit, _ := strings.Cut(s, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	switch unit {
	case "ms":
		return time.Duration(n) * time.Millisecond
	case "s":
		return time.Duration(n) * time.Second
	case "min":
		return time.Duration(n) * time.Minute
	case "KiB":
		return n << 10
	case "MiB":
		return n << 20
	}
	return n
}
