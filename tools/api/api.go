// Command api compares what the module's packages export with the baseline in
// api/baseline.zip, and fails if a program that compiled with the baseline may
// not compile any more.
//
//	go -C tools run ./api           # compare; print every change with -all
//	go -C tools run ./api -write    # make the baseline what the module is now
//
// The baseline is the export data of each package that others can import, as
// golang.org/x/exp/apidiff reads it, without positions. It is in the repository,
// so that a clone without tags has it.
package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/gcexportdata"
	"golang.org/x/tools/go/packages"
)

// notExported matches packages that nobody outside of the module uses.
var notExported = regexp.MustCompile(`/(internal|examples|clients|testdata)(/|$)`)

func main() {
	log.SetFlags(0)
	log.SetPrefix("api: ")
	var (
		dir   = flag.String("module", "..", "the `directory` of the module")
		file  = flag.String("baseline", "api/baseline.zip", "the baseline's `file`")
		write = flag.Bool("write", false, "write the baseline")
		all   = flag.Bool("all", false, "print compatible changes, too")
	)
	flag.Parse()
	now, err := load(*dir)
	if err == nil && *write {
		err = save(*file, now)
	} else if err == nil {
		err = compare(*file, now, *all)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// load type-checks the packages of the module in dir, for Linux.
func load(dir string) (*apidiff.Module, error) {
	loaded, err := packages.Load(&packages.Config{
		Dir:  dir,
		Env:  append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0"),
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedModule | packages.NeedImports | packages.NeedDeps,
	}, "./...")
	if err != nil {
		return nil, err
	}
	m := &apidiff.Module{}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
		m.Path = p.Module.Path
		if p.Name != "main" && !notExported.MatchString(strings.TrimPrefix(p.PkgPath, m.Path)) {
			m.Packages = append(m.Packages, p.Types)
		}
	}
	if len(m.Packages) == 0 {
		return nil, fmt.Errorf("no packages in %s", dir)
	}
	slices.SortFunc(m.Packages, func(a, b *types.Package) int { return cmp.Compare(a.Path(), b.Path()) })
	return m, nil
}

// save writes the baseline: the same bytes for the same packages, wherever they are.
func save(file string, m *apidiff.Module) error {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	z.SetComment(m.Path)
	for _, p := range m.Packages {
		w, err := z.Create(p.Path())
		if err == nil {
			err = gcexportdata.Write(w, token.NewFileSet(), p)
		}
		if err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// compare prints what has changed, and returns an error if a change is incompatible.
func compare(file string, now *apidiff.Module, all bool) error {
	old, err := read(file)
	if err != nil {
		return err
	}
	report := apidiff.ModuleChanges(old, now)
	breaks := slices.ContainsFunc(report.Changes, func(c apidiff.Change) bool { return !c.Compatible })
	switch {
	case all:
		err = report.Text(os.Stdout)
	case breaks:
		err = report.TextIncompatible(os.Stdout, true)
	}
	if err == nil && breaks {
		err = errors.New("programs that use these packages may not compile any more; if that is meant, " +
			"say in CHANGELOG.md how they go on, and renew the baseline: go -C tools run ./api -write")
	}
	return err
}

// read returns the module of a baseline.
func read(file string) (*apidiff.Module, error) {
	z, err := zip.OpenReader(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	m := &apidiff.Module{Path: z.Comment}
	imports, set := map[string]*types.Package{}, token.NewFileSet()
	for _, entry := range z.File {
		r, err := entry.Open()
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		p, err := gcexportdata.Read(bytes.NewReader(b), set, imports, entry.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, entry.Name, err)
		}
		m.Packages = append(m.Packages, p)
	}
	return m, nil
}
