package main

import (
	"os"
	"strings"
	"testing"
)

// TestMain lets the test binary be the program for its peers' processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-one" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Each peer that is here can be measured, and each that is not says why. What
// localterm stops leaves nothing.
func TestPeers(t *testing.T) {
	table, err := all(quick, ".", []string{"-quick"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table)
	for _, p := range peers {
		row := ""
		for line := range strings.Lines(table) {
			if strings.HasPrefix(line, "| "+p.name+" ") {
				row = strings.TrimSpace(line)
			}
		}
		switch left := strings.HasSuffix(strings.ReplaceAll(row, " ", ""), "|0|"); {
		case row == "":
			t.Errorf("no row for %s", p.name)
		case strings.HasPrefix(p.name, "localterm") && !left:
			t.Errorf("something is left: %s", row)
		}
	}
}
