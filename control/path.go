package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxPath is how long the path of a socket may be, in bytes: what macOS takes, so
// that the same path is good everywhere.
const maxPath = 103

func checkLength(path string) error {
	switch {
	case path == "":
		return fmt.Errorf("control: %w: it is empty", ErrPath)
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("control: %w: %q has a NUL byte", ErrPath, path)
	case len(path) > maxPath:
		return fmt.Errorf("control: %w: %s has %d bytes, and a socket's path at most %d: choose a shorter directory", ErrPath, path, len(path), maxPath)
	}
	return nil
}

// The variables in the environment of commands by which one finds itself, while its
// agent serves control: the path of the socket, and the id of its own terminal.
const (
	EnvSocket   = "TERMBRIDGE_SOCKET"
	EnvTerminal = "TERMBRIDGE_TERMINAL"
)

// AutoPath returns where a server goes that the user gives no path: NAME.sock in the
// directory termbridge of the user's runtime directory (XDG_RUNTIME_DIR), or else in
// a private one in the directory for temporary files. Listen makes the directory. A
// name that has the process's number is used by no other agent.
func AutoPath(name string) string { return filepath.Join(autoDir(), name+".sock") }

// AutoPaths returns the sockets in the directory of [AutoPath] at which a server
// answers.
func AutoPaths() []string {
	var live []string
	all, _ := filepath.Glob(filepath.Join(autoDir(), "*.sock"))
	for _, path := range all {
		if IsLive(path) {
			live = append(live, path)
		}
	}
	return live
}

func autoDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return filepath.Join(dir, "termbridge")
		}
	}
	return filepath.Join(os.TempDir(), "termbridge-"+strconv.Itoa(os.Getuid()))
}

// checkDir makes the directory of a socket, for this user alone, or returns why an
// existing one will not do: others could put a socket of theirs in the place of ours.
func checkDir(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("control: %w: %w: choose a directory of your own", ErrPath, err)
	} else if err != nil {
		return fmt.Errorf("control: %w: %w", ErrPath, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("control: %w: %w", ErrPath, err)
	}
	if uid, ok := owner(info); ok && uid != os.Geteuid() {
		return fmt.Errorf("control: %w: the directory %s belongs to another user (uid %d): choose one of your own", ErrPath, dir, uid)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("control: %w: others may write in the directory %s (%04o): choose another, or chmod go-w it", ErrPath, dir, mode)
	}
	return nil
}
