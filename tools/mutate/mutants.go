package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A module is the module whose packages are changed.
type module struct {
	dir string // absolute
	tmp string // for test binaries and overlays
}

// A mutant is one change: the bytes from..to of a file become text.
type mutant struct {
	file     string // relative to the module
	line     int
	from, to int // byte offsets
	text     string
	what     string // the change, for people
}

func (m mutant) String() string { return fmt.Sprintf("%s:%d: %s", m.file, m.line, m.what) }

// mutants returns every mutant of a package, in the order of its files.
func (m module) mutants(ctx context.Context, pkg, files string) ([]mutant, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=Dir,GoFiles", pkg)
	cmd.Dir = m.dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pkg, err)
	}
	var p struct {
		Dir     string
		GoFiles []string
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return nil, err
	}
	var all []mutant
	for _, name := range p.GoFiles {
		if !strings.Contains(name, files) {
			continue
		}
		ms, err := m.file(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		all = append(all, ms...)
	}
	return all, nil
}

// file returns the mutants of one file.
func (m module) file(path string) ([]mutant, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(m.dir, path)
	if err != nil {
		return nil, err
	}
	v := visitor{src: src, fset: fset, rel: rel}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			ast.Inspect(fn.Body, v.visit)
		}
	}
	return v.found, nil
}

// A visitor collects the mutants of a function body.
type visitor struct {
	src   []byte
	fset  *token.FileSet
	rel   string
	found []mutant
}

// swaps are the operators that stand for each other.
var swaps = map[token.Token][]token.Token{
	token.EQL:  {token.NEQ},
	token.NEQ:  {token.EQL},
	token.LSS:  {token.LEQ, token.GEQ},
	token.LEQ:  {token.LSS, token.GTR},
	token.GTR:  {token.GEQ, token.LEQ},
	token.GEQ:  {token.GTR, token.LSS},
	token.LAND: {token.LOR},
	token.LOR:  {token.LAND},
	token.ADD:  {token.SUB},
	token.SUB:  {token.ADD},
	token.MUL:  {token.QUO},
	token.QUO:  {token.MUL},
}

func (v *visitor) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		for _, op := range swaps[n.Op] {
			v.replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), op.String(), n.Op.String()+" becomes "+op.String())
		}
	case *ast.IfStmt:
		v.replace(n.Cond.Pos(), n.Cond.End(), "!("+v.text(n.Cond)+")", "negate "+v.brief(n.Cond))
	case *ast.ExprStmt:
		if logs(n.X) {
			return false
		}
		v.remove(n)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			v.remove(n)
		}
	case *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		v.remove(n)
	case *ast.BranchStmt:
		if n.Label == nil && (n.Tok == token.CONTINUE || n.Tok == token.BREAK) {
			v.remove(n)
		}
	case *ast.CaseClause:
		if len(n.Body) > 0 && n.List != nil {
			v.replace(n.Body[0].Pos(), n.Body[len(n.Body)-1].End(), "", "empty the case "+v.brief(n.List[0]))
		}
	case *ast.Ident:
		switch n.Name {
		case "true":
			v.replace(n.Pos(), n.End(), "false", "true becomes false")
		case "false":
			v.replace(n.Pos(), n.End(), "true", "false becomes true")
		}
	}
	return true
}

// logs reports whether e is a call of a logger, which no test need notice.
func logs(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && strings.Contains(strings.ToLower(id.Name), "log") {
			found = true
		}
		return !found
	})
	return found
}

func (v *visitor) remove(n ast.Node) {
	v.replace(n.Pos(), n.End(), "", "remove "+v.brief(n))
}

func (v *visitor) replace(from, to token.Pos, text, what string) {
	start, end := v.fset.Position(from), v.fset.Position(to)
	v.found = append(v.found, mutant{
		file: v.rel, line: start.Line, from: start.Offset, to: end.Offset, text: text, what: what,
	})
}

func (v *visitor) text(n ast.Node) string {
	return string(v.src[v.fset.Position(n.Pos()).Offset:v.fset.Position(n.End()).Offset])
}

// brief is the text of a node on one short line.
func (v *visitor) brief(n ast.Node) string {
	s := strings.Join(strings.Fields(v.text(n)), " ")
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return s
}
