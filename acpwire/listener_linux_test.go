package acpwire

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// That nobody reads any more is noticed without a write, on pipes and sockets,
// blocking or not, and never where there is somebody or nothing to notice.
func TestWatchReader(t *testing.T) {
	pair := func(t *testing.T) (io.Writer, io.Closer) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		w, r := os.NewFile(uintptr(fds[0]), "w"), os.NewFile(uintptr(fds[1]), "r")
		t.Cleanup(func() { w.Close(); r.Close() })
		return w, r
	}
	for name, open := range map[string]func(t *testing.T) (io.Writer, io.Closer){
		"a socket": pair,
		"a pipe": func(t *testing.T) (io.Writer, io.Closer) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { w.Close(); r.Close() })
			return w, r
		},
		"a blocking pipe": func(t *testing.T) (io.Writer, io.Closer) {
			var fds [2]int
			if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
			t.Cleanup(func() { w.Close(); r.Close() })
			return w, r
		},
		"a connection": func(t *testing.T) (io.Writer, io.Closer) {
			w, r := pair(t)
			conn, err := net.FileConn(w.(*os.File))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			w.(*os.File).Close()
			return conn, r
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			gone := make(chan struct{})
			stop := watchReader(w, func() { close(gone) })
			if _, err := w.Write([]byte("x")); err != nil { // what is not read yet is no end
				t.Fatal(err)
			}
			select {
			case <-gone:
				t.Error("the reader is there, and was called gone")
			case <-time.After(20 * time.Millisecond):
			}
			r.Close()
			select {
			case <-gone:
			case <-time.After(10 * time.Second):
				t.Error("the reader is gone, and nobody noticed")
			}
			stop()
		})
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	still, reader := pair(t)
	defer reader.Close()
	for name, w := range map[string]io.Writer{"a file": file, "a buffer": &bytes.Buffer{}, "a reader that stays": still} {
		stop := watchReader(w, func() { t.Errorf("%s: gone", name) })
		time.Sleep(5 * time.Millisecond)
		stop()
	}
}
