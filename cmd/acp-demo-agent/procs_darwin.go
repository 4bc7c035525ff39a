package main

import (
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/terminal"
)

// processesWith returns the processes that were started with entry, a
// NAME=VALUE, in their environment, as far as ps shows it.
func processesWith(entry string) ([]terminal.Proc, error) {
	local := execenv.NewLocal(nil)
	defer local.Close()
	list, err := local.Command(context.Background(), execenv.Spec{
		Class: execenv.ClassWorkspaceTool,
		Path:  "ps", Args: []string{"-axEww", "-o", "pid=,command="},
	}).Output()
	if err != nil {
		return nil, err
	}
	found := []terminal.Proc{}
	for line := range strings.Lines(string(list)) {
		command, _, ok := strings.Cut(line, entry)
		if !ok {
			continue
		}
		number, command, _ := strings.Cut(strings.TrimSpace(command), " ")
		if pid, err := strconv.Atoi(number); err == nil && pid != os.Getpid() {
			found = append(found, terminal.Proc{PID: pid, Command: command})
		}
	}
	return found, nil
}
