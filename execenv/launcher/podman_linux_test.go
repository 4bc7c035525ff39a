package launcher_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/termbridge/termbridge/execenv/launcher"
)

const containerName = "termbridge-test"

// A box is a real container of podman's, with nothing in it but busybox.
type box struct {
	reason string // why there is none; "" if there is one
}

var container = sync.OnceValue(startContainer)

// startContainer starts the container, once for all tests; it ends with the test
// binary. Its images, its containers and its configuration are its own: podman
// finds them by the environment.
func startContainer() box {
	fail := func(err error, out []byte) box { return box{fmt.Sprintf("%v: %s", err, bytes.TrimSpace(out))} }
	dir, err := os.MkdirTemp("", "podman")
	if err != nil {
		return fail(err, nil)
	}
	files := map[string]string{
		"CONTAINERS_STORAGE_CONF": fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", dir+"/store", dir+"/run"),
		"CONTAINERS_CONF":         "[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\n",
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return fail(err, nil)
		}
		os.Setenv(name, file)
	}
	root := filepath.Join(dir, "root")
	script := `set -e
mkdir -p "$1/bin" "$1/etc"; cp "$(command -v busybox)" "$1/bin/busybox"; cd "$1/bin"
for name in $(busybox --list); do [ "$name" = busybox ] || ln -s busybox "$name"; done
echo root:x:0:0:root:/:/bin/sh >"$1/etc/passwd"
tar -C "$1" -c . | podman import -q - ` + containerName
	if out, err := exec.Command("sh", "-c", script, "sh", root).CombinedOutput(); err != nil {
		return fail(err, out)
	}
	exe, err := os.Executable()
	if err != nil {
		return fail(err, nil)
	}
	processes := uint64(4000)
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &limit) == nil {
		processes = min(processes, limit.Max)
	}
	argv := []string{
		"podman", "run", "-d", "--name", containerName, "--network", "none",
		"--ulimit", "nofile=1024:1024", "--ulimit", fmt.Sprintf("nproc=%[1]d:%[1]d", processes),
		"-v", os.TempDir() + ":" + os.TempDir(),
	}
	for _, path := range []string{"/lib", "/lib64", filepath.Dir(exe)} { // what the test binary needs
		if real, err := filepath.EvalSymlinks(path); err == nil && !strings.HasPrefix(real, os.TempDir()+"/") {
			argv = append(argv, "-v", real+":"+path+":ro")
		}
	}
	argv = append(argv, "-e", "PATH=/bin", containerName, "/bin/sh", "-c", "trap exit TERM; while :; do sleep 1; done")
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fail(err, out)
	}
	// A shell that waits for the end of ours removes it.
	last := exec.Command("/bin/sh", "-c", `read -r x; podman rm -f -t 0 "$1"; podman rmi -f "$1"; rm -rf "$2"`, "sh", containerName, dir)
	last.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := last.StdinPipe()
	if err == nil {
		err = last.Start()
	}
	if err != nil {
		return fail(err, nil)
	}
	keepOpen = append(keepOpen, alive)
	return box{}
}

// podman returns the launcher for the container, or skips the test.
func podman(t testing.TB) launcher.Launcher {
	t.Helper()
	need(t, "podman", "runc", "busybox")
	if b := container(); b.reason != "" {
		// What the kernel of a machine does not permit cannot be installed.
		forbidden := slices.ContainsFunc([]string{"not permitted", "ermission denied", "cgroup", "mount"}, func(word string) bool { return strings.Contains(b.reason, word) })
		if os.Getenv("TERMBRIDGE_REAL") != "" && !forbidden {
			t.Fatal(b.reason)
		}
		t.Skip("podman runs no container here: " + b.reason)
	}
	return launcher.Podman(containerName)
}

func init() {
	extraPlaces = append(extraPlaces, place{"podman", podman})
	plains["podman"] = func(b *testing.B) func(string) *exec.Cmd {
		l := podman(b)
		return func(line string) *exec.Cmd {
			argv := l.Argv(launcher.Run{Argv: []string{"/bin/sh", "-c", line}})
			return exec.Command(argv[0], argv[1:]...)
		}
	}
}
