package execenv

import (
	"strings"
	"testing"
)

func TestIsShell(t *testing.T) {
	for line, want := range map[string]bool{
		"bash": true, "-bash": true, "/bin/bash --norc -i": true, "bash --rcfile f -i": true, "sh -i": true, "zsh -il": true,
		"fish": true, "dash -o vi": true, "bash -O extglob -i": true, "busybox sh": true, "sh --": true, "bash --login": true, "sh -e": true,
		"sh -c x": false, "bash -ic x": false, "bash script": false, "sh -e script": false, "bash --norc -c x": false, "cat": false,
		"busybox": false, "busybox cat": false, "python3": false, "bash --rcfile f script": false, "fish --command=x": false, "sh -- script": false, "": false,
	} {
		if got := isShell(strings.Split(line, " ")); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}
