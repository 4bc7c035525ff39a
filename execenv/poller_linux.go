package execenv

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A poller is the one goroutine in which a Local waits for the exits of all its
// processes, and for the first output of each. It sits in the runtime's poller
// itself, so it holds no thread. With goroutines for each process the scheduler
// would wake a thread for every one of them, just when the command needs the
// processor to begin.
type poller struct {
	epoll *os.File
	raw   syscall.RawConn // of epoll

	mu sync.Mutex
	// guards following
	last  uint64          // the last key
	calls map[uint64]call // by keys, which are never used again
}

// A call is made when a descriptor can be read or is hung up.
type call func()

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	unix.SetNonblock(fd, true) // before NewFile, which then uses the runtime's poller
	p := &poller{epoll: os.NewFile(uintptr(fd), "epoll"), calls: make(map[uint64]call)}
	p.raw, err = p.epoll.SyscallConn()
	return p, err
}

// once has f called, once, from the poller's goroutine, and sets the key before.
// If fd is closed before, drop ends that; if it lives on, leave does. It returns
// false if fd cannot be waited for.
func (p *poller) once(fd int, key *atomic.Uint64, f call) bool {
	p.mu.Lock()
	defer p.mu.Unlock() // the call may be dropped when it can be made, and has its key
	p.last++
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(p.last), Pad: int32(p.last >> 32)}
	if p.control(unix.EPOLL_CTL_ADD, fd, &event) != nil {
		return false
	}
	p.calls[p.last] = f
	key.Store(p.last)
	return true
}

func (p *poller) control(op, fd int, event *unix.EpollEvent) (err error) {
	closed := p.raw.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), op, fd, event) })
	if closed != nil {
		return closed
	}
	return err
}

// drop takes a call out.
func (p *poller) drop(key uint64) call {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.calls[key]
	delete(p.calls, key)
	return f
}

// leave takes a descriptor out after its call.
func (p *poller) leave(fd int) { p.control(unix.EPOLL_CTL_DEL, fd, nil) }

// run makes the calls until close. What one blocks for, all wait for.
func (p *poller) run() {
	var events [64]unix.EpollEvent
	p.raw.Read(func(epoll uintptr) bool {
		for n := len(events); n == len(events); {
			n, _ = unix.EpollWait(int(epoll), events[:], 0)
			for _, e := range events[:max(n, 0)] {
				// A child between fork and exec may keep a closed descriptor alive.
				if f := p.drop(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32); f != nil {
					f()
				}
			}
		}
		return false
	})
}

// close ends run. It must not be called from it.
func (p *poller) close() {
	if p != nil {
		p.epoll.Close()
	}
}
