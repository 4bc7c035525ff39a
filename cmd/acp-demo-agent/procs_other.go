//go:build !linux && !darwin

package main

import (
	"errors"

	"github.com/termbridge/termbridge/terminal"
)

// processesWith would return the processes that were started with entry, a
// NAME=VALUE, in their environment.
func processesWith(entry string) ([]terminal.Proc, error) { return nil, errors.ErrUnsupported }
