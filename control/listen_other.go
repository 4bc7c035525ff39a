//go:build !unix

package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"runtime"
)

func owner(fs.FileInfo) (uid int, ok bool) { return 0, false }

type endpoint struct{ *net.UnixListener }

// open refuses: the system does not say who connects.
func open(string) (*endpoint, error) {
	return nil, fmt.Errorf("control: listen: %s does not say who connects to a socket: %w", runtime.GOOS, errors.ErrUnsupported)
}

func (*endpoint) close() error { return nil }

type peer struct{ uid, pid int }

func peerOf(*net.UnixConn) (peer, error) { return peer{}, errors.ErrUnsupported }
