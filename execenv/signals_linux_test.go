package execenv_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
)

func init() { programs["signals"] = signals }

// signals prints what a process begins with: which signals it ignores and which
// are blocked, with a group and without; and then that the agent goes on ignoring
// the signals of its arguments.
func signals(args []string) {
	l := execenv.NewLocal(nil)
	for _, spec := range []execenv.Spec{{}, {Group: true}} {
		spec.Path, spec.Args = "grep", []string{"-E", "^Sig(Ign|Blk)", "/proc/self/status"}
		out, err := l.Command(context.Background(), spec).Output()
		fmt.Printf("%s%v\n", out, err)
	}
	signal.Ignore(syscall.SIGUSR2) // as late as that
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			out, err := l.Command(context.Background(), execenv.Spec{Path: "grep", Args: []string{"-E", "^Sig(Ign|Blk)", "/proc/self/status"}}).Output()
			fmt.Printf("%s%v\n", out, err)
		})
	}
	all.Wait()
	for _, arg := range append(args, "12") {
		sig, _ := strconv.Atoi(arg)
		syscall.Kill(os.Getpid(), syscall.Signal(sig))
	}
	time.Sleep(50 * time.Millisecond)
	status, _ := os.ReadFile("/proc/self/status")
	_, mask, _ := strings.Cut(string(status), "\nSigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	ignored, _ := strconv.ParseUint(mask, 16, 64)
	fmt.Println("alive", l.Close(), ignored>>20&3) // SIGTTIN and SIGTTOU are ignored as before
}

// A command begins with the default action for every signal, and with none
// blocked, however the agent was started; and the agent goes on ignoring what it
// ignored.
func TestSignalsAreTheDefault(t *testing.T) {
	need(t, "/proc/self/stat")
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
			still := 0
			if strings.Contains(c.ignored, "21 22") {
				still = 3
			}
			want := strings.Repeat("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n<nil>\n", 10) + fmt.Sprintln("alive <nil>", still)
			if string(got) != want || err != nil {
				t.Errorf("%v:\n%s", err, got)
			}
		})
	}
}
