// Command release builds the programs and packs an archive for each system, with
// their checksums:
//
//	go -C tools run ./release            # all systems, into dist/
//
// The archives of a commit are the same bytes wherever they are built with the
// same version of Go: paths are trimmed, times are that of the commit, and owners
// and the order of files are fixed. The version is the one that the go command
// writes into the programs: that of the tag of a clean tree. See docs/releases.md.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// programs are what an archive has, and documents is what goes with them.
var (
	programs  = []string{"acp-demo-agent", "termbridge"}
	documents = []string{"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"}
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	var (
		dir     = flag.String("module", "..", "the `directory` of the module")
		out     = flag.String("out", "../dist", "the `directory` of the archives")
		targets = flag.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "the `systems`")
	)
	flag.Parse()
	if err := release(*dir, *out, strings.Split(*targets, ",")); err != nil {
		log.Fatal(err)
	}
}

// release writes one archive for each target, and SHA256SUMS.
func release(module, out string, targets []string) error {
	stamp, err := output(module, nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(stamp), 10, 64)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	for _, target := range targets {
		name, archive, err := pack(module, target, time.Unix(seconds, 0).UTC())
		if err == nil {
			err = os.WriteFile(filepath.Join(out, name), archive, 0o644)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256(archive), name)
		fmt.Print(line)
		sums.WriteString(line)
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// pack returns the archive for a target, and its name.
func pack(module, target string, stamp time.Time) (name string, archive []byte, err error) {
	system, arch, ok := strings.Cut(target, "/")
	if !ok {
		return "", nil, errors.New("a system is OS/ARCH")
	}
	bin, err := os.MkdirTemp("", "release")
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(bin)
	env := []string{"GOOS=" + system, "GOARCH=" + arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT="}
	if _, err := output(module, env, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w -buildid=", "-o", bin+"/", "./cmd/..."); err != nil {
		return "", nil, err
	}
	info, err := buildinfo.ReadFile(filepath.Join(bin, programs[0]))
	if err != nil {
		return "", nil, err
	}
	folder := fmt.Sprintf("termbridge_%s_%s_%s", cmp.Or(info.Main.Version, "devel"), system, arch)
	files := map[string]string{} // in the archive → here
	for _, p := range programs {
		files[p] = filepath.Join(bin, p)
	}
	for _, d := range documents {
		files[d] = filepath.Join(module, d)
	}
	if err := licences(module, env, files); err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	t := tar.NewWriter(z)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		content, err := os.ReadFile(files[name])
		if err != nil {
			return "", nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(folder, name), Mode: 0o644, Size: int64(len(content)), ModTime: stamp, Format: tar.FormatUSTAR}
		if slices.Contains(programs, name) {
			h.Mode = 0o755
		}
		if err = t.WriteHeader(h); err == nil {
			_, err = t.Write(content)
		}
		if err != nil {
			return "", nil, err
		}
	}
	err = errors.Join(t.Close(), z.Close())
	return folder + ".tar.gz", b.Bytes(), err
}

// licences adds those of Go and of the modules that the programs are made of.
func licences(module string, env []string, files map[string]string) error {
	root, err := output(module, env, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	files["licences/go"] = filepath.Join(strings.TrimSpace(root), "LICENSE")
	all, err := output(module, env, "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}={{.Dir}}{{end}}{{end}}", "./cmd/...")
	if err != nil {
		return err
	}
	for line := range strings.Lines(all) {
		path, dir, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		found, err := filepath.Glob(filepath.Join(dir, "LICENSE*"))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("%s has no licence: %w", path, err)
		}
		files["licences/"+strings.ReplaceAll(path, "/", "_")] = found[0]
	}
	return nil
}

// output runs a command in dir and returns its output.
func output(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w\n%s", name, err, exit.Stderr)
	}
	return string(out), err
}
