package main

import (
	"os"
	"path/filepath"
	"testing"
)

// writeModule makes a module with one package and one test.
func writeModule(t *testing.T, code, test string) module {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module example.test/m\n\ngo 1.26\n",
		"p/p.go":      code,
		"p/p_test.go": test,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return module{dir: dir, tmp: t.TempDir()}
}

func TestTry(t *testing.T) {
	// A mutant that a test notices is killed, one that no test notices survives,
	// one that never ends is killed, and one that is no Go is not counted.
	m := writeModule(t, `package p

func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Loop(n int) (sum int) {
	for i := 0; i < n; i++ {
		sum = sum + i
	}
	return sum
}

func Unused(a int) int {
	b := a
	b = a + 1
	return b
}
`, `package p

import "testing"

func TestMax(t *testing.T) {
	if Max(1, 2) != 2 || Max(2, 1) != 2 || Loop(3) != 3 {
		t.Fatal("wrong")
	}
}
`)
	all, err := m.tests(t.Context(), "./p", []string{"./p"})
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := m.mutants(t.Context(), "./p", "")
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]result)
	for _, mu := range mutants {
		r, _ := m.try(t.Context(), 0, mu, all)
		got[mu.String()] = r
	}
	for what, want := range map[string]result{
		"p/p.go:4: > becomes >=":          survived, // the same for every input
		"p/p.go:4: > becomes <=":          killed,
		"p/p.go:4: negate a > b":          killed,
		"p/p.go:11: < becomes <=":         killed,
		"p/p.go:12: + becomes -":          killed,
		"p/p.go:12: remove sum = sum + i": killed,
		"p/p.go:19: + becomes -":          survived, // nothing tests it
		"p/p.go:19: remove b = a + 1":     survived,
	} {
		if got[what] != want {
			t.Errorf("%s: got %q, want %q", what, got[what], want)
		}
	}
}
