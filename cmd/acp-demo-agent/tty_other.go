//go:build !unix

package main

import "os"

// terminalWidth returns how many columns the terminal has that f is; false if it
// is none, as far as can be told without asking the system.
func terminalWidth(f *os.File) (columns int, ok bool) { return 0, false }
