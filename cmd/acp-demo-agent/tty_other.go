//go:build !unix

package main

import "os"

// isTerminal reports whether f is a terminal, as far as can be told without
// asking the system.
func isTerminal(f *os.File) bool { return false }
