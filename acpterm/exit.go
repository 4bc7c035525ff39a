package acpterm

import (
	"math"

	"github.com/termbridge/termbridge/internal/signals"
	"github.com/termbridge/termbridge/terminal"
)

// exitOf makes one Exit of the ways in which clients report an end: signals by
// name, number or description, "0" for none, code 0 or 1 beside a signal, and
// the negative codes of POSIX wrappers, also as uint32. A signal stands alone:
// a code beside it is the wrapper's. Codes of Windows, such as 3221225477
// (STATUS_ACCESS_VIOLATION), are codes, and so is 4294967295, its exit(-1).
func exitOf(code *int, signal *string) terminal.Exit {
	if signal != nil {
		if name := signals.Parse(*signal); name != "" {
			return terminal.Exit{Signal: name}
		}
	}
	if code == nil {
		return terminal.Exit{}
	}
	n := int64(*code)
	if n > math.MaxUint32 || n < math.MinInt32 {
		return terminal.Exit{} // no system has it
	}
	const asUint32 = 1 << 32
	switch {
	case -signals.Max <= n && n < 0:
		return terminal.Exit{Signal: signals.Name(int(-n))}
	case asUint32-signals.Max <= n && n < asUint32-1:
		return terminal.Exit{Signal: signals.Name(int(asUint32 - n))}
	}
	return terminal.Exit{Code: new(*code)}
}

// exit is exitOf for a client of which more is known.
func (p Profile) exit(code *int, signal *string) terminal.Exit {
	e := exitOf(code, signal)
	if e.Signal != "" && exitOf(nil, signal).Signal == "" && (p.Signals == SignalNames || p.Signals == SignalTexts) {
		return terminal.Exit{} // an error number: nothing was started
	}
	return e
}
