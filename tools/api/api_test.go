package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A change that may break a program is an error, any other is none, and the
// baseline does not depend on where the module is.
func TestCompare(t *testing.T) {
	const was = "package lib\n\ntype T struct{ A int }\n\nfunc F(a int) {}\n\ntype I interface{ M() }\n"
	module := func(source string) (dir string) {
		dir = t.TempDir()
		for name, text := range map[string]string{
			"go.mod": "module example.com/lib\n\ngo 1.26\n", "lib.go": source,
			"internal/in/in.go": "package in\n\nfunc F" + filepath.Base(filepath.Dir(dir)) + "() {}\n",
		} {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	written := func(source string) string {
		m, err := load(module(source))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "baseline.zip")
		if err := save(file, m); err != nil {
			t.Fatal(err)
		}
		return file
	}
	baseline := written(was)
	one, err1 := os.ReadFile(baseline)
	two, err2 := os.ReadFile(written(was))
	if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
		t.Errorf("two baselines of one source differ: %v, %v", err1, err2)
	}
	for name, c := range map[string]struct {
		now    string
		breaks bool
	}{
		"the same":                       {was, false},
		"a function more":                {was + "func G() {}\n", false},
		"a function less":                {"package lib\n\ntype T struct{ A int }\n\ntype I interface{ M() }\n", true},
		"another parameter":              {"package lib\n\ntype T struct{ A int }\n\nfunc F(a string) {}\n\ntype I interface{ M() }\n", true},
		"a method more in an interface":  {"package lib\n\ntype T struct{ A int }\n\nfunc F(a int) {}\n\ntype I interface{ M(); N() }\n", true},
		"only a comment, and a new line": {"// Lib is one.\n" + was, false},
	} {
		now, err := load(module(c.now))
		if err != nil {
			t.Fatal(err)
		}
		if err := compare(baseline, now, false); (err != nil) != c.breaks {
			t.Errorf("%s: %v", name, err)
		}
	}
}
