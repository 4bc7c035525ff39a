package termbridge_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/termbridge/termbridge"

// A rule says what packages must not import, directly or through packages of
// this module, and why.
type rule struct {
	packages []string // folders of this module
	deny     func(imported string) bool
	reason   string
}

func under(prefixes ...string) func(string) bool {
	return func(imported string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool {
			return imported == p || strings.HasPrefix(imported, p+"/")
		})
	}
}

func local(folders ...string) func(string) bool {
	for i, f := range folders {
		folders[i] = path.Join(module, f)
	}
	return under(folders...)
}

func either(deny ...func(string) bool) func(string) bool {
	return func(imported string) bool {
		return slices.ContainsFunc(deny, func(d func(string) bool) bool { return d(imported) })
	}
}

func outside(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return strings.Contains(first, ".") && !under(module)(imported)
}

var (
	acp = under("github.com/coder/acp-go-sdk")
	// above are the packages over the managers.
	above = local("bridge", "fakeconn", "acphost", "cmd")
)

var rules = []rule{
	{
		packages: []string{"terminal", "terminal/memterm", "internal/limits", "internal/text", "internal/tail", "internal/registry", "internal/await", "internal/signals", "internal/lineedit", "internal/shellwords", "internal/secrets", "internal/vt", "internal/logqueue"},
		deny:     outside,
		reason:   "the contract and its reference need only the standard library, so that anybody can implement them",
	},
	{
		packages: []string{"terminal"},
		deny:     local("terminal/memterm", "terminal/terminaltest", "execenv", "localterm", "acpterm", "view", "bridge", "acphost", "fakeconn", "cmd"),
		reason:   "arrows point down only: the contract knows no implementation",
	},
	{
		packages: []string{"execenv", "localterm", "view"},
		deny:     either(acp, local("acpterm"), above),
		reason:   "the local side serves agents that do not speak ACP, too",
	},
	{
		packages: []string{"control"},
		deny:     either(acp, local("acpterm", "localterm", "execenv"), above),
		reason:   "it serves the terminals of any Manager, through the contract and its optional interfaces only",
	},
	{
		packages: []string{"internal/vt"},
		deny:     local("terminal", "view", "localterm", "execenv", "acpterm", "bridge", "acphost", "fakeconn", "cmd"),
		reason:   "a screen knows bytes only",
	},
	{
		packages: []string{"acpterm"},
		deny:     either(under("github.com/creack/pty", "os/exec"), local("execenv", "localterm"), above),
		reason:   "an agent that only delegates carries no code that starts processes",
	},
	{
		packages: []string{"acpwire"},
		deny:     either(local("execenv", "localterm", "acpterm", "view"), above),
		reason:   "the wire knows nothing of terminals, so that every agent can use it",
	},
	{
		packages: []string{"probe"},
		deny:     either(local("execenv", "localterm", "view"), above),
		reason:   "a probe speaks to a client, and to nothing else",
	},
	{
		packages: []string{"acphost", "fakeconn", "fakeconn/emulate"},
		deny:     either(under("testing"), local("bridge", "cmd")),
		reason:   "editors and demos run them outside tests, and they show a bridge from the outside",
	},
	{
		packages: []string{"fakeconn"},
		deny:     local("fakeconn/emulate"),
		reason:   "the client knows no other client: those by name are options of it",
	},
	{
		packages: []string{"bridge"},
		deny:     local("acphost", "fakeconn", "cmd"),
		reason:   "arrows point down only",
	},
	{
		packages: []string{"bridge", "acphost", "acpterm", "localterm", "execenv", "view", "control", "probe", "terminal/terminaltest", "cmd/acp-demo-agent", "cmd/termbridge"},
		deny:     under("mvdan.cc/sh"),
		reason:   "the shell of memshell is for tests: no agent, editor or suite of another Manager carries it",
	},
	{
		packages: []string{"bridge/internal/updates"},
		deny:     local("bridge", "acpterm", "execenv", "localterm", "view", "acphost", "fakeconn", "cmd"),
		reason:   "updates know neither commands nor tool calls",
	},
	{
		packages: []string{"execenv"},
		deny:     local("localterm", "terminal/memterm", "view"),
		reason:   "arrows point down only",
	},
	{
		packages: []string{"internal/registry"},
		deny:     either(acp, local("acpterm", "execenv", "localterm"), above),
		reason:   "it keeps terminals, wherever their commands run",
	},
}

// TestImports keeps the arrows between the packages pointing down, as
// docs/architecture.md draws them.
func TestImports(t *testing.T) {
	direct := imports(t)
	for _, r := range rules {
		for _, folder := range r.packages {
			pkg := path.Join(module, folder)
			if len(direct[pkg]) == 0 {
				t.Errorf("%s: no such package; is the rule out of date?", folder)
			}
			for imported, way := range reach(direct, pkg) {
				if r.deny(imported) {
					t.Errorf("%s must not import %s: %s\n\t%s", folder, imported, r.reason, strings.Join(way, " → "))
				}
			}
		}
	}
}

// TestCardsKnowNoSessions keeps the middle layer of bridge, the card of a tool call,
// from knowing the one above it: turns, calls, and who owns a command.
func TestCardsKnowNoSessions(t *testing.T) {
	cards := []string{"card.go", "present.go", "display.go", "text.go", "read.go"}
	above := map[string]string{} // what the other files declare, and where
	files := map[string]*ast.File{}
	entries, err := os.ReadDir("bridge")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("bridge", name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if files[name] = file; slices.Contains(cards, name) {
			continue
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					above[d.Name.Name] = name
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						above[spec.Name.Name] = name
					case *ast.ValueSpec:
						for _, n := range spec.Names {
							above[n.Name] = name
						}
					}
				}
			}
		}
	}
	for _, name := range cards {
		if files[name] == nil {
			t.Errorf("bridge/%s: no such file; is the list out of date?", name)
			continue
		}
		uses := map[string]bool{}
		ast.Inspect(files[name], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				ast.Inspect(n.X, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						uses[id.Name] = true
					}
					return true
				})
				return false
			case *ast.Ident:
				uses[n.Name] = true
			}
			return true
		})
		for used := range uses {
			if where := above[used]; where != "" && used != "_" {
				t.Errorf("bridge/%s uses %s of %s: a card knows nothing of the session above it", name, used, where)
			}
		}
	}
}

// TestProcessesStartInOnePlace keeps every way to start a process inside
// execenv. The one exception is the suite: there it plays the program that
// starts children of its own, which is what a Manager has to deal with.
func TestProcessesStartInOnePlace(t *testing.T) {
	allowed := local("execenv", "terminal/terminaltest")
	for pkg, imported := range imports(t) {
		if !allowed(pkg) && slices.Contains(imported, "os/exec") {
			t.Errorf("%s imports os/exec: processes are started through an execenv.Executor only, so that none escapes", pkg)
		}
	}
	starters := []string{"os.StartProcess", "syscall.StartProcess", "syscall.ForkExec", "syscall.Exec", "unix.Exec"}
	sources(t, 0, func(pkg string, file *ast.File) {
		if allowed(pkg) {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(starters, x.Name+"."+sel.Sel.Name) {
					t.Errorf("%s calls %s.%s: processes are started through an execenv.Executor only", pkg, x.Name, sel.Sel.Name)
				}
			}
			return true
		})
	})
}

// sources calls f with each source file of the module, tests not counted.
func sources(t *testing.T, mode parser.Mode, f func(pkg string, file *ast.File)) {
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, mode)
		if err != nil {
			t.Fatal(err)
		}
		f(path.Join(module, path.Dir(file)), parsed)
	}
}

// goFiles returns the Go files of the module, with slashes.
func goFiles(t *testing.T) (files []string) {
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "tools", "node_modules"}, d.Name())):
			return filepath.SkipDir
		case strings.HasSuffix(file, ".go"):
			files = append(files, filepath.ToSlash(file))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// imports returns the direct imports of every package of the module, tests not
// counted, by import path.
func imports(t *testing.T) map[string][]string {
	direct := map[string][]string{}
	sources(t, parser.ImportsOnly, func(pkg string, file *ast.File) {
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(direct[pkg], imported) {
				direct[pkg] = append(direct[pkg], imported)
			}
		}
	})
	if len(direct) == 0 {
		t.Fatal("no packages found: the test does not run in the module's root")
	}
	return direct
}

// reach returns all that pkg imports through packages of this module, each with
// the way that leads there.
func reach(direct map[string][]string, pkg string) map[string][]string {
	found := map[string][]string{}
	var walk func(pkg string, way []string)
	walk = func(pkg string, way []string) {
		for _, imported := range direct[pkg] {
			if _, seen := found[imported]; seen {
				continue
			}
			found[imported] = append(slices.Clone(way), imported)
			walk(imported, found[imported])
		}
	}
	walk(pkg, []string{pkg})
	maps.DeleteFunc(found, func(imported string, _ []string) bool { return imported == pkg })
	return found
}

// An optional interface of a terminal is found behind a wrapper, too: by terminal.As,
// and by no type assertion.
func TestOptionalInterfaces(t *testing.T) {
	optional := []string{"ActivityReader", "InputCloser", "StreamReader", "LineCounter"}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if a, ok := n.(*ast.TypeAssertExpr); ok {
				if of, ok := a.Type.(*ast.SelectorExpr); ok && slices.Contains(optional, of.Sel.Name) {
					t.Errorf("%s asserts %s: use terminal.As", set.Position(a.Pos()), of.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
