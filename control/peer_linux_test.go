package control_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/termbridge/termbridge/control"
	"golang.org/x/sys/unix"
)

// TestPeer pins that a process of another user is refused, also where the permissions
// of the files would let it in.
func TestPeer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	path := listen(t, &recorder{}, nil)
	for file, mode := range map[string]os.FileMode{path: 0o666, filepath.Dir(path): 0o755, filepath.Dir(filepath.Dir(path)): 0o755} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	answer := make(chan control.Response, 1)
	refused := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and it is not unlocked: the thread ends with the goroutine
		const other = 65534
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, other, other, other); errno != 0 {
			refused <- errno
			return
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			refused <- err
			return
		}
		defer conn.Close()
		answer <- (&wire{t: t, UnixConn: conn.(*net.UnixConn)}).first()
	}()
	select {
	case err := <-refused:
		lack(t, "another user cannot be tried here: ", err)
	case r := <-answer:
		if r.OK || r.Code != control.CodeDenied || !strings.Contains(r.Error, "65534") {
			t.Errorf("another user: %+v", r)
		}
	}
	if r, err := control.Call(t.Context(), path, control.Request{Verb: control.VerbList}); err != nil || !r.OK {
		t.Errorf("the same user: %+v, %v", r, err)
	}
}

// TestListenOnAFullDisk pins that the error says so, and that nothing is left.
func TestListenOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "nr_inodes=2,mode=700"); err != nil {
		lack(t, "no small disk can be mounted here: ", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	// One inode is the directory's, and one is free: for the lock, and none for the socket.
	_, err := control.Listen(filepath.Join(dir, "s"), &recorder{}, nil)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(fmt.Sprint(err), dir) {
		t.Errorf("no inode for the socket: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = control.Listen(filepath.Join(dir, "s"), &recorder{}, nil)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(fmt.Sprint(err), dir) {
		t.Errorf("no inode for the lock: %v", err)
	}
}
