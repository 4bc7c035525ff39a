package acpterm

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/terminal"
)

func TestExitOf(t *testing.T) {
	tests := []struct {
		code   *int
		signal *string
		want   terminal.Exit
	}{
		{nil, nil, terminal.Exit{}},
		{new(0), nil, terminal.Exit{Code: new(0)}},
		{new(3), nil, terminal.Exit{Code: new(3)}},
		{new(137), nil, terminal.Exit{Code: new(137)}}, // a shell's 128+9: an exit, all the same
		{new(0), new("0"), terminal.Exit{Code: new(0)}},
		{new(3), new(""), terminal.Exit{Code: new(3)}},
		{nil, new(""), terminal.Exit{}},
		{nil, new("SIGKILL"), terminal.Exit{Signal: "SIGKILL"}},
		{nil, new("sigterm"), terminal.Exit{Signal: "SIGTERM"}},
		{nil, new("TERM"), terminal.Exit{Signal: "SIGTERM"}},
		{nil, new("9"), terminal.Exit{Signal: "SIGKILL"}},
		{nil, new("64"), terminal.Exit{Signal: "SIG64"}},
		{nil, new("99999999999999999999"), terminal.Exit{Signal: "99999999999999999999"}},
		{new(0), new("15"), terminal.Exit{Signal: "SIGTERM"}},
		{new(1), new("Killed"), terminal.Exit{Signal: "SIGKILL"}},
		{new(1), new("Terminated"), terminal.Exit{Signal: "SIGTERM"}},
		{nil, new("Killed: 9"), terminal.Exit{Signal: "SIGKILL"}},
		{nil, new("Segmentation fault (core dumped)"), terminal.Exit{Signal: "SIGSEGV"}},
		{nil, new("Unknown signal 77"), terminal.Exit{Signal: "Unknown signal 77"}},
		{new(-9), nil, terminal.Exit{Signal: "SIGKILL"}},
		{new(4294967287), nil, terminal.Exit{Signal: "SIGKILL"}}, // the same as uint32
		{new(4294967232), nil, terminal.Exit{Signal: "SIG64"}},
		{new(4294967231), nil, terminal.Exit{Code: new(4294967231)}},
		{new(4294967294), nil, terminal.Exit{Signal: "SIGINT"}},
		{new(4294967295), nil, terminal.Exit{Code: new(4294967295)}}, // exit(-1) on Windows
		{new(3221225477), nil, terminal.Exit{Code: new(3221225477)}}, // STATUS_ACCESS_VIOLATION
		{new(3221225786), nil, terminal.Exit{Code: new(3221225786)}}, // STATUS_CONTROL_C_EXIT
		{new(-1073741819), nil, terminal.Exit{Code: new(-1073741819)}},
		{new(2147483651), nil, terminal.Exit{Code: new(2147483651)}}, // STATUS_BREAKPOINT
		{new(-64), nil, terminal.Exit{Signal: "SIG64"}},
		{new(-65), nil, terminal.Exit{Code: new(-65)}},
		{new(math.MinInt32), nil, terminal.Exit{Code: new(math.MinInt32)}},
		{new(math.MinInt32 - 1), nil, terminal.Exit{}},
		{new(1 << 32), nil, terminal.Exit{}}, // no success
		{new(math.MaxInt64), nil, terminal.Exit{}},
		{new(math.MinInt64), nil, terminal.Exit{}},
		{new(-15), nil, terminal.Exit{Signal: "SIGTERM"}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, exitOf(test.code, test.signal)); diff != "" {
			t.Errorf("%v, %v (-want +got):\n%s", test.code, test.signal, diff)
		}
	}
}
