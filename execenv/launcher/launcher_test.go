package launcher_test

import (
	"context"
	"testing"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/launcher"
)

func TestStopEndsNothingOfOthers(t *testing.T) {
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
