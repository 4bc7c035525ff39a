// Package version is the version of the program that runs, as the go command has
// written it into the binary: that of the module for `go install …@v1.2.3`, the tag
// or a pseudo-version for a build in a clone.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// String returns the version, or "(devel)" if the binary has none.
func String() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// Line returns what a program of this name prints for --version.
func Line(program string) string {
	return fmt.Sprintf("%s %s %s %s/%s", program, String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
