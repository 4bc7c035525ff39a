// Package signals knows the signals of Linux by name, number and description, on every
// system.
package signals

import (
	"strconv"
	"strings"
)

// Max is the highest number of a signal.
const Max = 64

// names are the names by number. Other systems number those above 15 in another way,
// but not the common ones below.
var names = [...]string{
	1: "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE",
	"SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT",
	"SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU",
	"SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
}

// Name returns the name of a signal, "SIG40" for one that has none, and "" for what is
// no number of a signal.
func Name(number int) string {
	switch {
	case number <= 0 || number > Max:
		return ""
	case number < len(names):
		return names[number]
	}
	return "SIG" + strconv.Itoa(number)
}

// Number returns the number of the signal with this name, or 0.
func Number(name string) int {
	for n := 1; n <= Max; n++ {
		if Name(n) == name {
			return n
		}
	}
	return 0
}

// Described returns the name of the signal that a text describes, whatever its case,
// or "". The texts are those of strsignal(3), of glibc and of the BSDs, and of Go's
// os.Signal, on Linux and macOS.
func Described(text string) string { return described[strings.ToLower(text)] }

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
	"continued":                "SIGCONT",
	"stopped":                  "SIGTSTP",
	"suspended":                "SIGTSTP",
	"cpu time limit exceeded":  "SIGXCPU",
	"cputime limit exceeded":   "SIGXCPU",
	"file size limit exceeded": "SIGXFSZ",
	"filesize limit exceeded":  "SIGXFSZ",
	"virtual timer expired":    "SIGVTALRM",
	"profiling timer expired":  "SIGPROF",
	"window changed":           "SIGWINCH",
	"window size changes":      "SIGWINCH",
	"bad system call":          "SIGSYS",
}

// Parse returns the name of a signal by its name, with or without SIG, its number, or
// its description; "" for 0 and for nothing, and what is none of these as it is.
// "Killed: 9" and "Segmentation fault (core dumped)" are descriptions as well.
func Parse(s string) string {
	s = strings.TrimSpace(s)
	if n, err := strconv.Atoi(s); err == nil {
		if n == 0 {
			return ""
		}
		n = max(n, -n)
		if name := Name(n); name != "" {
			return name
		}
		return "SIG" + strconv.Itoa(n)
	}
	upper := strings.ToUpper(s)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if Number(upper) != 0 {
		return upper
	}
	text, _, _ := strings.Cut(s, ":")
	text, _, _ = strings.Cut(text, " (")
	if name := Described(text); name != "" {
		return name
	}
	return s
}
