package launcher

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ownPID returns the process id, in this process's namespace, of the process of a
// command that has the id pid in a namespace of its own; 0 if there is none.
func ownPID(tag string, pid int) int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, err := os.ReadFile(dir + "/environ")
		if err != nil || !bytes.Contains(environ, []byte(tagName+"="+tag+"\x00")) {
			continue
		}
		status, _ := os.ReadFile(dir + "/status")
		_, ids, _ := strings.Cut(string(status), "\nNSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		if fields := strings.Fields(ids); len(fields) > 0 && fields[len(fields)-1] == strconv.Itoa(pid) {
			own, _ := strconv.Atoi(filepath.Base(dir))
			return own
		}
	}
	return 0
}
