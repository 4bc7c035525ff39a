//go:build !unix

package terminaltest

import (
	"os"

	"github.com/termbridge/termbridge/terminal"
)

var moreHandled []os.Signal

// winsize reports that f is no terminal.
func winsize(f *os.File) (terminal.Size, bool) { return terminal.Size{}, false }

// raise does nothing: processes here do not end by signals.
func raise(name string) {}
