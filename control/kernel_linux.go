package control

import (
	"os"
	"sync"
)

// kernelTells reports whether the system says what a process waits for: without a
// /proc, and in gVisor, it does not.
var kernelTells = sync.OnceValue(func() bool {
	_, err := os.ReadFile("/proc/self/syscall")
	return err == nil
})
