package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/cover"
)

// A test is one test function, with the lines of the target that it reaches.
type test struct {
	name   string
	suite  string // the package that has it
	took   time.Duration
	blocks map[string][]cover.ProfileBlock // by the base name of the file
}

// reaches reports whether t runs the code that m changes.
func (t test) reaches(m mutant) bool {
	return slices.ContainsFunc(t.blocks[filepath.Base(m.file)], func(b cover.ProfileBlock) bool {
		return b.Count > 0 && b.StartLine <= m.line && m.line <= b.EndLine
	})
}

// A result is what became of a mutant.
type result string

const (
	killed         result = "killed"
	survived       result = "SURVIVED"
	doesNotCompile result = "does not compile"
)

// tests runs every test of the suites by itself. A test that fails without any
// change is an error.
func (m module) tests(ctx context.Context, target string, suites []string) ([]test, error) {
	var all []test
	for i, suite := range suites {
		binary := filepath.Join(m.tmp, fmt.Sprintf("cover-%d.test", i))
		if out, err := m.run(ctx, m.dir, "go", "test", "-c", "-covermode=set", "-coverpkg="+target, "-o", binary, suite); err != nil {
			return nil, fmt.Errorf("%s does not compile: %w\n%s", suite, err, out)
		}
		names, err := m.run(ctx, filepath.Join(m.dir, suite), binary, "-test.list=.")
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", suite, err, names)
		}
		for name := range strings.FieldsSeq(string(names)) {
			t, err := m.cover(ctx, suite, binary, name)
			if err != nil {
				return nil, err
			}
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b test) int { return int(a.took - b.took) })
	return all, nil
}

// cover runs one test and reads what it reaches.
func (m module) cover(ctx context.Context, suite, binary, name string) (test, error) {
	t := test{name: name, suite: suite, blocks: make(map[string][]cover.ProfileBlock)}
	profile := filepath.Join(m.tmp, "profile")
	start := time.Now()
	var out []byte
	var err error
	for range 2 { // one that fails by chance, as on a busy machine, gets another try
		if out, err = m.run(ctx, filepath.Join(m.dir, suite), binary, "-test.run=^"+name+"$", "-test.coverprofile="+profile); err == nil {
			break
		}
	}
	if err != nil {
		return t, fmt.Errorf("%s of %s fails without any change: %w\n%s", name, suite, err, out)
	}
	t.took = time.Since(start)
	profiles, err := cover.ParseProfiles(profile)
	if err != nil {
		return t, err
	}
	for _, p := range profiles {
		t.blocks[filepath.Base(p.FileName)] = p.Blocks
	}
	return t, nil
}

// try compiles a mutant and runs the tests that reach it. It also returns the
// test that noticed it.
func (m module) try(ctx context.Context, worker int, mu mutant, all []test) (result, string) {
	reach := slices.DeleteFunc(slices.Clone(all), func(t test) bool { return !t.reaches(mu) })
	if len(reach) == 0 {
		reach = all
	}
	overlay, err := m.overlay(worker, mu)
	if err != nil {
		return doesNotCompile, ""
	}
	var suites []string
	for _, t := range reach {
		if !slices.Contains(suites, t.suite) {
			suites = append(suites, t.suite)
		}
	}
	for _, suite := range suites {
		binary := filepath.Join(m.tmp, fmt.Sprintf("mutant-%d.test", worker))
		if _, err := m.run(ctx, m.dir, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", binary, suite); err != nil {
			return doesNotCompile, ""
		}
		if by, noticed := m.noticed(ctx, suite, binary, reach); noticed {
			return killed, by
		}
	}
	return survived, ""
}

// overlay writes the changed file and the overlay that puts it in place.
func (m module) overlay(worker int, mu mutant) (string, error) {
	path := filepath.Join(m.dir, mu.file)
	src, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(m.tmp, fmt.Sprintf("changed-%d.go", worker))
	if err := os.WriteFile(changed, slices.Concat(src[:mu.from], []byte(mu.text), src[mu.to:]), 0o666); err != nil {
		return "", err
	}
	overlay := filepath.Join(m.tmp, fmt.Sprintf("overlay-%d.json", worker))
	return overlay, writeJSON(overlay, map[string]map[string]string{"Replace": {path: changed}})
}

var failed = regexp.MustCompile(`--- FAIL: (\w+)`)

// noticed runs those tests of a suite that reach the mutant, in batches that
// grow, so that a mutant which a fast test kills costs little.
func (m module) noticed(ctx context.Context, suite, binary string, reach []test) (string, bool) {
	mine := slices.DeleteFunc(slices.Clone(reach), func(t test) bool { return t.suite != suite })
	for size := 8; len(mine) > 0; size *= 4 {
		batch := mine[:min(size, len(mine))]
		mine = mine[len(batch):]
		var names []string
		limit := 20 * time.Second
		for _, t := range batch {
			names = append(names, t.name)
			limit += 5 * t.took
		}
		bounded, cancel := context.WithTimeout(ctx, limit)
		out, err := m.run(bounded, filepath.Join(m.dir, suite), binary, "-test.failfast", "-test.run=^("+strings.Join(names, "|")+")$")
		hung := errors.Is(bounded.Err(), context.DeadlineExceeded)
		cancel()
		switch {
		case hung:
			return "hangs", true
		case err != nil:
			if f := failed.FindSubmatch(out); f != nil {
				return string(f[1]), true
			}
			return "crashes", true
		}
	}
	return "", false
}

// run runs a command and returns what it wrote. Nothing that it leaves behind
// keeps run waiting.
func (m module) run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	return out.Bytes(), err
}
