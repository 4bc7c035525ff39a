package signals_test

import (
	"testing"

	"github.com/termbridge/termbridge/internal/signals"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "0": "", "9": "SIGKILL", "-15": "SIGTERM", " 2 ": "SIGINT", "40": "SIG40", "1000": "SIG1000",
		"SIGKILL": "SIGKILL", "kill": "SIGKILL", "sigusr1": "SIGUSR1", "SIG40": "SIG40", "SIGSYS": "SIGSYS",
		"Killed": "SIGKILL", "Killed: 9": "SIGKILL", "Segmentation fault (core dumped)": "SIGSEGV",
		"window size changes": "SIGWINCH", "suspended": "SIGTSTP", "cpu time limit exceeded": "SIGXCPU",
		"a cosmic ray": "a cosmic ray", "SIG65": "SIG65", "SIG0": "SIG0",
	} {
		if got := signals.Parse(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Names and numbers belong together, and end where the signals do.
func TestNumbers(t *testing.T) {
	for n := -1; n <= signals.Max+1; n++ {
		name := signals.Name(n)
		if is := n > 0 && n <= signals.Max; (name != "") != is || is && signals.Number(name) != n {
			t.Errorf("%d: %q, whose number is %d", n, name, signals.Number(name))
		}
	}
	for name, n := range map[string]int{"SIGHUP": 1, "SIGKILL": 9, "SIGTERM": 15, "SIGWINCH": 28, "SIGSYS": 31, "": 0, "SIGNONE": 0} {
		if got := signals.Number(name); got != n {
			t.Errorf("%s: %d, want %d", name, got, n)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "0", "9", "-9", "Killed", "SIGKILL", "Killed: 9", "SIG"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := signals.Parse(s)
		if again := signals.Parse(name); again != name {
			t.Errorf("%q is %q, and that is %q", s, name, again)
		}
	})
}
