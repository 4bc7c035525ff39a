//go:build unix && !linux && !solaris && !aix

package ctl

import "golang.org/x/sys/unix"

const getTermios, setTermios = unix.TIOCGETA, unix.TIOCSETA
