package localterm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// A telling is a process that has exited by itself, without output, as soon as it
// was started, and that tells of it.
type telling struct {
	fakeProcess
	start  func()        // called by Start
	told   chan struct{} // closed when who was told is through
	heard  chan struct{} // closed by Wait
	blocks chan struct{} // closed by StopTree, which blocks
}

func (p *telling) Command(context.Context, execenv.Spec) execenv.Process { return p }

func (p *telling) Start() error { p.start(); close(p.exited); return nil }
func (p *telling) Wait() error  { close(p.heard); return nil }

func (p *telling) StdoutPipe() (io.ReadCloser, error) { return empty{}, nil }
func (p *telling) StderrPipe() (io.ReadCloser, error) { return empty{}, nil }

func (p *telling) StopTree(time.Duration) []terminal.Proc {
	close(p.blocks)
	<-p.told
	return []terminal.Proc{}
}

func (p *telling) AfterExit(f func(bool)) bool {
	go func() { f(true); close(p.told) }()
	select {
	case <-p.heard:
	case <-p.blocks:
	}
	return true
}

// An empty output delivers nothing.
type empty struct{ io.ReadCloser }

func (empty) Deliver(_ io.Writer, ended func(error)) { ended(nil) }

// Who tells of an exit is not kept waiting, not even by a Manager that closes:
// the next exit, for which that waits, could not be told.
func TestExitWhileClosing(t *testing.T) {
	starting, closed := make(chan struct{}), make(chan struct{})
	p := &telling{
		fakeProcess: fakeProcess{fake: &fake{}, exited: make(chan struct{})},
		start:       func() { close(starting); <-closed },
		told:        make(chan struct{}), heard: make(chan struct{}), blocks: make(chan struct{}),
	}
	m := localterm.New(&localterm.Options{Executors: map[string]execenv.Executor{"telling": p}, MaxTerminals: 1})
	var wg sync.WaitGroup
	wg.Go(func() { m.Start(t.Context(), terminal.Command{Line: "x"}) })
	<-starting
	wg.Go(func() { m.Close() })
	for err := error(nil); !errors.Is(err, terminal.ErrClosed); {
		_, err = m.Start(t.Context(), terminal.Command{Line: "x"}) // no slot is free
	}
	close(closed)
	select {
	case <-p.told: // perhaps beside a stop, which ends only now
	case <-time.After(bound):
		t.Fatal("who told of the exit is kept")
	}
	wg.Wait()
}

// A foreigner that holds an output of a live command does not keep Close.
func TestCloseWhileAForeignerHolds(t *testing.T) {
	need(t, "/proc/self/fd") // by which it gets hold of an output
	modes(t, func(t *testing.T, tty bool) {
		m := localterm.New(nil)
		term := start(t, m, terminal.Command{Line: "echo $$; exec sleep 60", TTY: tty})
		file, err := os.OpenFile(fmt.Sprintf("/proc/%s/fd/1", strings.TrimSpace(read(t, term, "\n"))), os.O_WRONLY|syscall.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		closed := make(chan error, 1)
		go func() { closed <- m.Close() }()
		select {
		case err := <-closed:
			if info := term.Info(); err != nil || info.Outcome != terminal.Stopped {
				t.Errorf("Close: %v; ended as %+v", err, info)
			}
		case <-time.After(bound / 3):
			t.Error("Close hangs")
		}
	})
}
