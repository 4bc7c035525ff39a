package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Two clones of a commit, at paths of different lengths, give the same archive,
// with programs that know their version.
func TestReproducible(t *testing.T) {
	dir := t.TempDir()
	target := runtime.GOOS + "/" + runtime.GOARCH
	var names []string
	var archives [][]byte
	for _, clone := range []string{"one", "another/further/down"} {
		module, out := filepath.Join(dir, clone), filepath.Join(dir, clone+"-dist")
		if _, err := output("../..", nil, "git", "clone", "--quiet", ".", module); err != nil {
			t.Fatal(err)
		}
		if err := release(module, out, []string{target}); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(out, "*.tar.gz"))
		if err != nil || len(found) != 1 {
			t.Fatalf("archives: %v, %v", found, err)
		}
		b, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		sums, err := output(out, nil, "sha256sum", "--check", "--quiet", "SHA256SUMS")
		if err != nil {
			t.Errorf("%v: %s", err, sums)
		}
		names, archives = append(names, filepath.Base(found[0])), append(archives, b)
	}
	if names[0] != names[1] || !bytes.Equal(archives[0], archives[1]) {
		t.Errorf("%s of %d bytes and %s of %d bytes differ", names[0], len(archives[0]), names[1], len(archives[1]))
	}

	inside := unpack(t, archives[0], filepath.Join(dir, "unpacked"))
	folder := strings.TrimSuffix(names[0], ".tar.gz")
	for _, want := range append(slices.Clone(programs), append(documents, "licences/go", "licences/github.com_coder_acp-go-sdk")...) {
		if !slices.Contains(inside, path.Join(folder, want)) {
			t.Errorf("no %s in %v", want, inside)
		}
	}
	version := strings.Split(folder, "_")[1]
	for _, program := range programs {
		got, err := output(dir, nil, filepath.Join(dir, "unpacked", folder, program), "--version")
		if want := program + " " + version + " " + runtime.Version() + " " + target + "\n"; err != nil || got != want {
			t.Errorf("--version prints %q, %v; want %q", got, err, want)
		}
	}
}

// unpack returns the names of what it has unpacked.
func unpack(t *testing.T, archive []byte, dir string) (names []string) {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		file := filepath.Join(dir, h.Name)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, h.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}
