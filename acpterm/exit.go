package acpterm

import (
	"math"
	"strconv"
	"strings"

	"github.com/termbridge/termbridge/terminal"
)

// exitOf makes one Exit of the ways in which clients report an end: signals by
// name, number or description, "0" for none, code 0 or 1 beside a signal, and
// the negative codes of POSIX wrappers, also as uint32. A signal stands alone:
// a code beside it is the wrapper's. Codes of Windows, such as 3221225477
// (STATUS_ACCESS_VIOLATION), are codes, and so is 4294967295, its exit(-1).
func exitOf(code *int, signal *string) terminal.Exit {
	if signal != nil {
		if name := signalName(*signal); name != "" {
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
	case -maxSignal <= n && n < 0:
		return terminal.Exit{Signal: numbered(int(-n))}
	case asUint32-maxSignal <= n && n < asUint32-1:
		return terminal.Exit{Signal: numbered(int(asUint32 - n))}
	}
	return terminal.Exit{Code: new(*code)}
}

// maxSignal is the highest number of a signal.
const maxSignal = 64

// exit is exitOf for a client of which more is known.
func (p Profile) exit(code *int, signal *string) terminal.Exit {
	e := exitOf(code, signal)
	if e.Signal != "" && exitOf(nil, signal).Signal == "" && (p.Signals == SignalNames || p.Signals == SignalTexts) {
		return terminal.Exit{} // an error number: nothing was started
	}
	return e
}

// signalName returns the name of a signal as a client spells it, or "" for none.
func signalName(s string) string {
	s = strings.TrimSpace(s)
	if n, err := strconv.Atoi(s); err == nil {
		if n == 0 {
			return ""
		}
		return numbered(max(n, -n))
	}
	upper := strings.ToUpper(s)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	for _, name := range signals {
		if name == upper {
			return name
		}
	}
	// strsignal(3): "Killed", on some systems "Killed: 9", from shells
	// "Segmentation fault (core dumped)".
	words, _, _ := strings.Cut(s, ":")
	words, _, _ = strings.Cut(words, " (")
	if name, ok := described[strings.ToLower(words)]; ok {
		return name
	}
	return s
}

func numbered(n int) string {
	if n < len(signals) && n > 0 {
		return signals[n]
	}
	return "SIG" + strconv.Itoa(n)
}

// signals are the names by number, of Linux. The client's system may number
// those above 15 in another way, but not the common ones below.
var signals = [...]string{
	1: "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE",
	"SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT",
	"SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU",
	"SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
}

// described are the texts of strsignal(3), of glibc and of the BSDs.
var described = map[string]string{
	"hangup":                   "SIGHUP",
	"interrupt":                "SIGINT",
	"quit":                     "SIGQUIT",
	"illegal instruction":      "SIGILL",
	"trace/breakpoint trap":    "SIGTRAP",
	"trace/bpt trap":           "SIGTRAP",
	"aborted":                  "SIGABRT",
	"abort trap":               "SIGABRT",
	"bus error":                "SIGBUS",
	"floating point exception": "SIGFPE",
	"killed":                   "SIGKILL",
	"user defined signal 1":    "SIGUSR1",
	"segmentation fault":       "SIGSEGV",
	"user defined signal 2":    "SIGUSR2",
	"broken pipe":              "SIGPIPE",
	"alarm clock":              "SIGALRM",
	"terminated":               "SIGTERM",
	"cpu time limit exceeded":  "SIGXCPU",
	"cputime limit exceeded":   "SIGXCPU",
	"file size limit exceeded": "SIGXFSZ",
	"filesize limit exceeded":  "SIGXFSZ",
	"virtual timer expired":    "SIGVTALRM",
	"profiling timer expired":  "SIGPROF",
	"bad system call":          "SIGSYS",
}
