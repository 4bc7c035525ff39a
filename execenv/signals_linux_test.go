package execenv_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// A command begins with the default action for every signal, and with none
// blocked, however the agent was started; and the agent goes on ignoring what it
// ignored.
func TestSignalsAreTheDefault(t *testing.T) {
	need(t, "grep", "env")
	for name, c := range map[string]struct{ how, mask, ignored string }{
		"nohup and &": {`trap '' HUP INT QUIT; exec "$0"`, "SigIgn:\t0*7", "1 2"},
		"all at once": {`trap '' HUP INT QUIT USR1 USR2 TERM PIPE CHLD TSTP TTIN TTOU CONT ALRM WINCH; exec "$0"`,
			"SigIgn:\t0*83a7a07", "1 2 20 21 22"},
		"blocked":      {`exec env --block-signal=TERM,USR1,INT "$0"`, "SigBlk:\t0*4202", ""},
		"as it should": {`exec "$0"`, "SigIgn:\t0{16}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			// What the test says of the agent is true: a shell that was started so
			// hands it on.
			cmd := exec.Command("sh", "-c", strings.Replace(c.how, `"$0"`, `grep -E "^Sig(Ign|Blk)" /proc/self/status`, 1))
			status, err := cmd.Output()
			if err != nil || !regexp.MustCompile(c.mask).Match(status) {
				t.Fatalf("the agent was not started as meant: %s%v", status, err)
			}

			cmd = exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(c.how, `"$0"`, `"$0" `+c.ignored, 1), exe)
			cmd.Env = append(os.Environ(), "EXECENV_TEST_PROGRAM=signals")
			got, err := cmd.CombinedOutput()
			want := strings.Repeat("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n<nil>\n", 10) + "alive <nil>\n"
			if string(got) != want || err != nil {
				t.Errorf("%v:\n%s", err, got)
			}
		})
	}
}
