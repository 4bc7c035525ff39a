package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/termbridge/termbridge/terminal"
)

// processesWith returns the processes that were started with entry, a
// NAME=VALUE, in their environment, apart from this one.
func processesWith(entry string) ([]terminal.Proc, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat("/proc/self"); err != nil {
		return nil, errNoProcesses
	}
	found := []terminal.Proc{}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Unreadable: another user's, or gone, or a zombie, which has none.
		environ, err := os.ReadFile(filepath.Join("/proc", d.Name(), "environ"))
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+entry+"\x00")) {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", d.Name(), "cmdline"))
		command := strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " ")
		found = append(found, terminal.Proc{PID: pid, Command: command})
	}
	return found, nil
}
