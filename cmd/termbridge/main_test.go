//go:build unix

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// run returns what the program prints.
func output(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, bad strings.Builder
	status = run(t.Context(), args, strings.NewReader(""), &out, &bad)
	return status, out.String(), bad.String()
}

// An environment that keeps the rules passes, with a line for each case, and
// nothing stays there.
func TestCheckEnv(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	status, out, bad := output(t, "check-env", "--dir", dir, "exec:env")
	if status != exitOK || !regexp.MustCompile(`(?m)^tree/force +\S+ +ok$`).MatchString(out) || !strings.Contains(out, " 0 failed") {
		t.Errorf("status %d\n%s%s", status, out, bad)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// An environment that breaks a rule, or cannot be reached, is a failure that says
// what was seen.
func TestCheckEnvFails(t *testing.T) {
	t.Parallel()
	// Commands there have no PATH.
	status, out, bad := output(t, "check-env", "--dir", t.TempDir(), "--failures", "exec:env -i")
	if status != exitFailed || !strings.Contains(out, "FAILED") || strings.Contains(out, " ok\n") {
		t.Errorf("status %d\n%s%s", status, out, bad)
	}
	status, out, bad = output(t, "check-env", "exec:/no/such/launcher")
	if status != exitFailed || !strings.Contains(bad, "not installed") {
		t.Errorf("status %d\n%s%s", status, out, bad)
	}
}

// A command line that is wrong runs nothing.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"check"}, {"check-env"}, {"check-env", "--no"}, {"check-env", "telnet://x"}} {
		if status, out, bad := output(t, args...); status != exitUsage || out != "" || bad == "" {
			t.Errorf("%q: status %d, %q, %q", args, status, out, bad)
		}
	}
	for _, args := range [][]string{{"--help"}, {"check-env", "--help"}} {
		if status, out, bad := output(t, args...); status != exitOK || !strings.Contains(out, "podman://") || bad != "" {
			t.Errorf("%q: status %d, %q, %q", args, status, out, bad)
		}
	}
}

func TestVersion(t *testing.T) {
	status, out, _ := output(t, "--version")
	if status != exitOK || !regexp.MustCompile(`^termbridge \S+ go1\.\S+ \w+/\w+\n$`).MatchString(out) {
		t.Errorf("status %d, %q", status, out)
	}
}
