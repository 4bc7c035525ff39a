//go:build linux || darwin

package execenv

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// An ignored signal stays ignored across exec, so an agent that was started by
// nohup, or in the background of a shell ("agent & wait"), would start commands
// that no hang-up and no Ctrl-C ends. What Go handles it sets to the default in
// a child. So the agent handles such a signal from then on, and drops it, which
// is to ignore it.
var dropped = make(chan os.Signal, 1) // nobody reads it

// dispositions is held while they change, and by a start while SIGTTIN or SIGTTOU
// are handled and not ignored, which must be short: a system call of the agent
// that the kernel answers with one of them would be tried again for ever.
var dispositions sync.Mutex

// defaultSignals makes a process that this goroutine starts begin with the
// default action for every signal, and with none blocked, until restore is
// called.
func defaultSignals() (restore func()) {
	dispositions.Lock()
	var again []os.Signal // to be ignored
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if !signal.Ignored(sig) && !inheritedIgnored(sig) {
			continue
		}
		signal.Notify(dropped, sig)
		if sig == unix.SIGTTIN || sig == unix.SIGTTOU {
			again = append(again, sig)
		}
	}
	block := unblockSignals()
	if len(again) == 0 {
		dispositions.Unlock()
		return block
	}
	return func() {
		block()
		signal.Ignore(again...)
		dispositions.Unlock()
	}
}
