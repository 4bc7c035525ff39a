package execenv

import (
	"os"

	"golang.org/x/sys/unix"
)

// nameless returns a file that has no name.
func nameless() (*os.File, error) {
	fd, err := unix.MemfdCreate("termbridge", unix.MFD_CLOEXEC)
	if err == nil {
		return os.NewFile(uintptr(fd), "memfd"), nil
	}
	return unlinked() // it may be denied
}

// watchdogScript gets the mark and the directory of the cgroups. A look that
// finds nobody may have missed one that was just forked, so three must. Who
// cannot be ended must not keep it for ever.
const watchdogScript = watchdogGroups + `
clear=0 round=0
while [ $clear -lt 3 ] && [ $round -lt 200 ]; do
	round=$((round + 1)) clear=$((clear + 1))
	[ -z "$2" ] || echo 1 > "$2/cgroup.kill"
	for file in $(grep -lsF "$1." /proc/[0-9]*/environ); do
		pid=${file#/proc/}
		kill -KILL "${pid%/environ}" && clear=0
	done
	sleep 0.02 || sleep 1
done
round=0
while [ -d "$2" ] && [ $round -lt 50 ]; do
	round=$((round + 1))
	rmdir "$2"/*/*/* "$2"/*/* "$2"/* "$2" || sleep 0.02 || sleep 1
done
`
