//go:build !linux

package control

// kernelTells reports whether the system says what a process waits for.
var kernelTells = func() bool { return false }
