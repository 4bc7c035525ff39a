//go:build linux || darwin

package execenv

// SetWatchdogShell has another program run the watchdog's script until it is called
// again.
func SetWatchdogShell(path string) (old string) {
	old, watchdogShell = watchdogShell, path
	return old
}
