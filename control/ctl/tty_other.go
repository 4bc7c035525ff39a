//go:build !unix

package ctl

import (
	"os"

	"github.com/termbridge/termbridge/terminal"
)

// Nothing here is known to be a terminal.

func terminalSize(*os.File) (terminal.Size, bool) { return terminal.Size{}, false }

func makeRaw(*os.File) (restore func(), ok bool) { return func() {}, false }

func resizes() (changed <-chan os.Signal, stop func()) { return nil, func() {} }
