//go:build linux || darwin

package execenv

import "time"

// SetWatchdogShell has another program run the watchdog's script until it is called
// again.
func SetWatchdogShell(path string) (old string) {
	old, watchdogShell = watchdogShell, path
	return old
}

// SetHeldTimeout has Close wait so long for a Start that the kernel holds.
func SetHeldTimeout(d time.Duration) (old time.Duration) {
	old, heldTimeout = heldTimeout, d
	return old
}
