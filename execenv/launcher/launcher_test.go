//go:build unix

package launcher_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/launcher"
)

func TestStopEndsNothingOfOthers(t *testing.T) {
	t.Parallel()
	// The tag of the first command is no prefix, and no pattern, of the tenth's.
	e := newExecutor(t, launcher.Command("env"), nil)
	var all []execenv.Session
	for range 12 {
		p := e.Command(context.Background(), sh("exec sleep 300")).(execenv.Session)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	all[0].StopTree(0)
	for i, p := range all[1:] {
		select {
		case <-p.Exited():
			t.Errorf("command %d has ended, too: %v", i+2, p.Exit())
		default:
		}
	}
}

func TestHeartbeatsGoOn(t *testing.T) {
	// Whatever the supervisor was asked, heartbeats reach it, and nothing else.
	t.Parallel()
	e := newExecutor(t, launcher.Command("env"), &launcher.Options{LostAfter: time.Second})
	p := e.Command(context.Background(), sh("exec sleep 300")).(execenv.Session)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{p.SignalGroup(syscall.SIGCONT), p.Signal(syscall.SIGCONT)} {
		if err != nil {
			t.Error(err)
		}
	}
	p.Survivors()
	select {
	case <-p.Exited():
		t.Fatalf("it has ended: %v", p.Exit())
	case <-time.After(4 * time.Second):
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	select {
	case <-p.Exited():
	case <-time.After(30 * time.Second):
		t.Fatal("it runs on")
	}
	if p.Exit().Signal != "SIGTERM" {
		t.Errorf("got %v", p.Exit())
	}
}
