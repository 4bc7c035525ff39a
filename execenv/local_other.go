//go:build !linux && !darwin

package execenv

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// On other systems every Start fails with errors.ErrUnsupported, before any of
// the rest of this file could be reached.

var errUnsupported = fmt.Errorf("execenv: processes on %s: %w", runtime.GOOS, errors.ErrUnsupported)

func (l *Local) guard() (*guarding, error) { return nil, errUnsupported }

type guarding struct{}

func (*guarding) wait(*process) error { return errUnsupported }

const defaultLang = "C.UTF-8"

func now() uint64                                { return 0 }
func lookPath(name, path string) (string, error) { return "", errUnsupported }
func explain(err error, path, dir string) error  { return err }
func hungUp(fd int) bool                         { return true }
func isHangup(err error) bool                    { return false }
func openNull() (*os.File, error)                { return nil, errUnsupported }
func pipe(bool) (_, _ *os.File, err error)       { return nil, nil, errUnsupported }
func adopt(bool)                                 {}
func (l *Local) run(*process)                    {}
func (l *Local) forget(*process)                 {}
func (*stream) check()                           {}

func (l *Local) stopAll(time.Duration) ([]terminal.Proc, error) { return nil, nil }

type limitTags struct{}

func newLimitTags() limitTags         { return limitTags{} }
func (l limitTags) of(int) limitTags  { return l }
func (*process) tagLimit(string) bool { return false }
func (*process) alone() bool          { return true }
func agentLimit() int                 { return 0 }
func (*Local) nothingLeft(*process)   {}

func (l *Local) openTerminal(TTY) (*ptmx, *os.File, error) { return nil, nil, errUnsupported }

type launch struct {
	path      string
	argv, env []string
	dir       string
	session   bool
	control   bool
}

func (*launch) start([]*os.File, *cgroup) (*child, error) { return nil, errUnsupported }

type child struct {
	pid   int
	group *cgroup
}

func busy(path, dir string) bool           { return false }
func (*child) abandon()                    {}
func (*child) reap()                       {}
func (*child) signal(os.Signal) error      { return errUnsupported }
func (*child) signalGroup(os.Signal) error { return errUnsupported }

type ptmx struct{ *stream }

func (*ptmx) leave()                         {}
func (*ptmx) watch(*session)                 {}
func (*ptmx) signal(os.Signal) (bool, error) { return true, errUnsupported }

type (
	ident  struct{}
	window struct{}
)

type absence struct{}

func (*absence) wake() {}

type (
	delivery struct{}
	poller   struct{}
)

func (*poller) close() {}

type watchdog struct{}

func (*watchdog) stop() {}

type pgidFile struct{}

func (*pgidFile) close() {}

// A session is the process alone: it cannot be started.
type session struct {
	*process
	tag    string
	looked chan struct{}
	group  *cgroup
}

func (*session) look(bool) bool                         { return true }
func (*session) signalRest(os.Signal, bool) error       { return errUnsupported }
func (*session) StopTree(time.Duration) []terminal.Proc { return nil }
