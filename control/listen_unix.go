//go:build unix

package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// owner returns whose a file is.
func owner(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// An endpoint is the socket of a server, and the lock that says that the server
// lives.
type endpoint struct {
	*net.UnixListener
	path string
	lock *os.File
}

// open listens at path, unless a server lives there. What a dead one has left is
// replaced.
func open(path string) (_ *endpoint, err error) {
	if err := checkLength(path); err != nil {
		return nil, err
	}
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	e := &endpoint{path: path}
	if e.lock, err = lock(path + ".lock"); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("control: listen on %s: %w there%s", path, ErrAlive, holder(path+".lock"))
	} else if err != nil {
		return nil, fmt.Errorf("control: listen on %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			e.unlock()
		}
	}()
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("control: listen on %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("control: %w: %s is there, and is no socket: remove it, or choose another path", ErrPath, path)
	case IsLive(path): // of a server that knows no lock
		return nil, fmt.Errorf("control: listen on %s: %w there", path, ErrAlive)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("control: listen on %s: %w", path, err)
		}
	}
	e.UnixListener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("control: listen on %s: %w", path, err)
	}
	e.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		e.close()
		return nil, fmt.Errorf("control: listen on %s: %w", path, err)
	}
	return e, nil
}

// lock takes the lock of a path, which ends with the process, and notes the process
// in it.
func lock(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f); err != nil {
			f.Close()
			return nil, err
		}
		mine, err := f.Stat()
		if there, e := os.Stat(path); err == nil && e == nil && os.SameFile(mine, there) {
			if err = f.Truncate(0); err == nil {
				_, err = fmt.Fprintln(f, os.Getpid())
			}
			if err != nil {
				f.Close()
				return nil, err
			}
			return f, nil
		}
		f.Close() // its server has removed it meanwhile
	}
}

func flock(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	err = conn.Control(func(fd uintptr) { lockErr = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB) })
	if lockErr != nil {
		return &fs.PathError{Op: "lock", Path: f.Name(), Err: lockErr}
	}
	return err
}

// holder says who has a lock, if that is known.
func holder(path string) string {
	data, _ := os.ReadFile(path)
	if pid := strings.TrimSpace(string(data)); pid != "" && len(pid) < 16 {
		return " (process " + pid + ")"
	}
	return ""
}

// close removes the socket and the lock.
func (e *endpoint) close() error {
	os.Remove(e.path)
	err := e.Close()
	e.unlock()
	return err
}

func (e *endpoint) unlock() {
	os.Remove(e.lock.Name()) // while it is locked, or it would be another's
	e.lock.Close()
}

// A peer is the process at the other end of a connection.
type peer struct{ uid, pid int }

// peerOf asks the kernel.
func peerOf(conn *net.UnixConn) (p peer, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return p, err
	}
	if e := raw.Control(func(fd uintptr) { p, err = credentials(int(fd)) }); e != nil {
		err = e
	}
	return p, err
}
