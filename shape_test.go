package termbridge_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// The bounds of what a reader can keep in mind at once.
const (
	maxFields = 25
	maxBools  = 4
	maxLines  = 80
)

// shapeExceptions are the options and tables that may be larger, and why: a reader
// needs one field, or one row, at a time.
var shapeExceptions = map[string]string{
	"acpterm/Profile":              "options: each field is one way in which clients differ",
	"acpterm/DefaultProfiles":      "a table: a row for each known client",
	"execenv/execenvtest/Config":   "options: what the suite's place offers",
	"terminal/terminaltest/Config": "options: what the suite's Manager offers",
	"fakeconn/Fault":               "a fault table: each field is one fault",
	"fakeconn/emulate/Behaviour":   "a fault table: each field is one way in which editors differ",
	"fakeconn/emulate/Behaviours":  "a table: a row for each known editor",
}

// TestShapes keeps structs and functions small. A struct with many fields has parts
// that want a type each, one with many bools hides a state machine, and a long
// function has steps that want names.
func TestShapes(t *testing.T) {
	used := map[string]bool{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for name, faults := range misshapen(t, file, nil) {
			name = path.Join(path.Dir(file), name)
			if used[name] = true; shapeExceptions[name] == "" {
				t.Errorf("%s: %s: %s", file, name, strings.Join(faults, "; "))
			}
		}
	}
	for name := range shapeExceptions {
		if !used[name] {
			t.Errorf("%s is within the bounds: take it out of the exceptions", name)
		}
	}
}

// misshapen returns what is too large in a file, by the name of the type or function.
func misshapen(t *testing.T, file string, src any) map[string][]string {
	t.Helper()
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	faults := map[string][]string{}
	bound := func(name, what string, n, most int) {
		if n > most {
			faults[name] = append(faults[name], fmt.Sprintf("%d %s, at most %d", n, what, most))
		}
	}
	name := "" // of the declaration that is visited
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			name = n.Name.Name
			bound(name, "lines", fset.Position(n.End()).Line-fset.Position(n.Pos()).Line+1, maxLines)
		case *ast.TypeSpec:
			name = n.Name.Name
		case *ast.ValueSpec:
			name = n.Names[0].Name
		case *ast.StructType:
			bools := 0
			for _, f := range n.Fields.List {
				if id, ok := f.Type.(*ast.Ident); ok && id.Name == "bool" {
					bools += max(1, len(f.Names))
				}
			}
			bound(name, "fields", n.Fields.NumFields(), maxFields)
			bound(name, "bools", bools, maxBools)
		}
		return true
	})
	return faults
}

// What is too large is found, also in a struct without a name and in a function of a
// function.
func TestMisshapen(t *testing.T) {
	long := strings.Repeat("\n", maxLines)
	for name, test := range map[string]struct{ src, want string }{
		"fits":      {"type a struct { b, c bool; d bool; e bool }", ""},
		"bools":     {"type a struct { b, c bool; d bool; e, f bool }", "a: 5 bools, at most 4"},
		"unnamed":   {"var v = struct { b, c bool; d bool; e, f bool }{}", "v: 5 bools, at most 4"},
		"inner":     {"func f() { type a struct { b, c, d, e, g bool } }", "a: 5 bools, at most 4"},
		"fields":    {"type a struct { x.Y\n" + strings.Repeat("_ int\n", 25) + "}", "a: 26 fields, at most 25"},
		"lines":     {"func f() {" + long + "}", "f: 81 lines, at most 80"},
		"lines fit": {"func f() {" + long[1:] + "}", ""},
	} {
		var got strings.Builder
		for name, faults := range misshapen(t, "a.go", "package p\n"+test.src) {
			got.WriteString(name + ": " + strings.Join(faults, "; "))
		}
		if got.String() != test.want {
			t.Errorf("%s: got %q, want %q", name, got.String(), test.want)
		}
	}
}
