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

// watchdogScript gets the tag, the directory of the cgroups, and the digits of the
// limit tags. A look that finds nobody may have missed one that was just forked,
// so three must. Who cannot be ended must not keep it for ever. In a /proc that is
// not ours, the numbers are those of others.
const watchdogScript = watchdogGroups + `
read -r pid rest < /proc/self/stat
[ "$pid" = $$ ] && procs=/proc
members() {
	[ -z "$procs" ] || grep -lsF "$1." $procs/[0-9]*/environ
	[ -z "$procs" ] || grep -ls "^Max file locks  *$3[0-9]\\{6\\} " $procs/[0-9]*/limits
}
clear=0 round=0
while [ $clear -lt 3 ] && [ $round -lt 200 ]; do
	round=$((round + 1)) clear=$((clear + 1))
	[ -z "$2" ] || echo 1 > "$2/cgroup.kill"
	for file in $(members "$@"); do
		pid=${file#/proc/}
		kill -KILL "${pid%/*}" && clear=0
	done
	sleep 0.02 || sleep 1
done
round=0
while [ -d "$2" ] && [ $round -lt 50 ]; do
	round=$((round + 1))
	rmdir "$2"/*/*/* "$2"/*/* "$2"/* "$2" || sleep 0.02 || sleep 1
done
`
