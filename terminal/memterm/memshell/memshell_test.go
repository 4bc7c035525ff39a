package memshell_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/memterm/memshell"
)

// programs are Standard, argv, which prints its words, and end, which a signal ends.
func programs() map[string]memterm.Program {
	all := memterm.Standard()
	all["argv"] = func(p *memterm.Process) terminal.Exit {
		for _, arg := range p.Args[1:] {
			fmt.Fprintf(p.Stdout, "%q\n", arg)
		}
		return memterm.Code(0)
	}
	all["signal"] = func(p *memterm.Process) terminal.Exit { return memterm.Signal(p.Args[1]) }
	all["ignore"] = func(p *memterm.Process) terminal.Exit {
		<-p.Killed
		return memterm.Code(0)
	}
	return all
}

// run runs a line in fake time, as a shell of its own, and returns its exit, its output
// and how long it took.
func run(t *testing.T, line string, during func(terminal.Terminal)) (got string, took time.Duration) {
	t.Helper()
	m := memterm.New(&memterm.Options{
		Programs: programs(), Env: map[string]string{"X": "a b"},
		Shell: memshell.New(map[string]string{"/work/one.go": "package one\n", "/work/two.go": ""}),
	})
	start := time.Now()
	x, err := m.Start(t.Context(), terminal.Command{Line: line, Dir: "/work", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if during != nil {
		during(x)
	}
	info, err := terminal.Wait(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	took = time.Since(start)
	out, err := x.ReadOutput(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return fmt.Sprintf("%v: %q", info.Exit, out.Text), took
}

// A line means what it means to a POSIX shell.
func TestLines(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{":;", `exit code 0: ""`},
		{":;exec 'argv' 'a  b' c\\ d \"e\"f", `exit code 0: "\"a  b\"\n\"c d\"\n\"ef\"\n"`},
		{"argv \"$X $Y\" $X '$X' \\$X ${X}c", `exit code 0: "\"a b \"\n\"a\"\n\"b\"\n\"$X\"\n\"$X\"\n\"a\"\n\"bc\"\n"`},
		{"argv $Y '' \"\" *.go '*' x?", `exit code 0: "\"\"\n\"\"\n\"one.go\"\n\"two.go\"\n\"*\"\n\"x?\"\n"`},
		{"argv \"\\$X\\a\\\\\"", `exit code 0: "\"$X\\\\a\\\\\"\n"`},
		{"echo a # b\necho c", `exit code 0: "a\nc\n"`},
		{"false || echo a && echo b; true && exit 3; echo no", `exit code 3: "a\nb\n"`},
		{"false && echo no; echo $?", `exit code 0: "1\n"`},
		{"true; exit 256", `exit code 0: ""`},
		{"pwd; cd /tmp; pwd; (cd /; pwd); pwd", `exit code 0: "/work\n/tmp\n/\n/tmp\n"`},
		{"A=1; B=2 env; export A; env", `exit code 0: "B=2\nX=a b\nA=1\nX=a b\n"`},
		{"cd /tmp; env; cd /", `exit code 0: "X=a b\n"`},
		{"echo() { pwd; }; echo a", `exit code 0: "/work\n"`},
		{"echo \"[$HOME]\"", `exit code 0: "[]\n"`},

		{"(exit 4); echo $?; (echo a; false)", `exit code 1: "4\na\n"`},
		{"false; (echo $?); A=1; f() { echo f$A$1; }; (A=2; f x); f y", `exit code 0: "1\nf2x\nf1y\n"`},
		{"set -e; (false; echo no); echo no", `exit code 1: ""`},
		{"echo a | cat; echo b | (cat; echo c) | cat; true | exit 3", `exit code 3: "a\nb\nc\n"`},
		{"yes | true; echo $?", `exit code 0: "0\n"`},
		{"argv \"$(echo a; echo b | cat)\" `echo c`; argv $(exec echo d; echo no)", `exit code 0: "\"a\\nb\"\n\"c\"\n\"d\"\n"`},
		{"for i in 1 2 3; do echo $i; done | while true; do cat; break; done", `exit code 0: "1\n2\n3\n"`},

		{"cat <<'END'; echo $?\na $X 'b'\nEND\necho c", `exit code 0: "a $X 'b'\n0\nc\n"`},
		{"cat <<END\na $X \\$X\nEND", `exit code 0: "a a b $X\n"`},
		{"(cat <<END\na\nEND\n) </dev/null", `exit code 0: "a\n"`},
		{"exec </dev/null; cat; cat </dev/null; echo a", `exit code 0: "a\n"`},
		{"echo a >f; echo b >>f; cat <f; cat </work/f >g; (cat <g) >/dev/null; test -f g && echo yes", `exit code 0: "a\nb\nyes\n"`},
		{"echo a >f; echo b >f; cat <f; echo c >/none/f; echo $?", `exit code 0: "b\nopen /none/f: file does not exist\n1\n"`},
		{"cat <none; echo $?", `exit code 0: "open /work/none: file does not exist\n1\n"`},
		{"nothing 2>&1 >/dev/null | cat; nothing 2>/dev/null; echo $?", `exit code 0: "sh: nothing: not found\n127\n"`},
		{"nothing; echo $?; exec nothing; echo no", `exit code 127: "sh: nothing: not found\n127\nsh: nothing: not found\n"`},

		{"exec signal SIGKILL; echo no", `SIGKILL: ""`},
		{"(exec signal SIGTERM); echo $?", `exit code 0: "143\n"`},
		{"signal SIGKILL; echo $?; exit 256", `exit code 0: "137\n"`},
		{"signal SIGTERM", `SIGTERM: ""`}, // its shell has become it
		{"sh -c 'echo a; exit 5'; echo $?", `exit code 0: "a\n5\n"`},
		{"/bin/sh -c 'echo $0 $1 $#' x y z; (echo $0)", `exit code 0: "x y 2\nsh\n"`},
		{"trap 'echo bye' EXIT; echo hi", `exit code 0: "hi\nbye\n"`},

		{"(sleep 0.01; echo a) & echo b; wait; echo c", `exit code 0: "b\na\nc\n"`},
		{"all=; for i in 2 1; do (sleep $i; exit $i) & all=\"$all $!\"; done; for p in $all; do wait $p; echo $?; done", `exit code 0: "2\n1\n"`},
		{"{ (sleep 0.1; cat || echo no) & } </dev/null; wait; echo a", `exit code 0: "a\n"`},
		{"cat & wait; echo a", `exit code 0: "a\n"`}, // what runs in the background has no input

		{"export A=1; readonly B=2; [ -f one.go ] && echo ${A}${B}; printf '%03d\n' 7; echo err >&2 |& cat", `exit code 0: "12\n007\nerr\n"`},
		{"echo <(echo a)", `exit code 2: "sh: syntax error: 1:6: no process substitution\n"`},
		{"echo 'a", `exit code 2: "sh: syntax error: 1:6: reached EOF without closing quote ` + "`'`" + `\n"`},
		{"echo a; (echo b", `exit code 2: "sh: syntax error: 1:9: reached EOF without matching ` + "`(` with `)`" + `\n"`},
		{"; echo a", `exit code 2: "sh: syntax error: 1:1: ` + "`;`" + ` can only immediately follow a statement\n"`},
	} {
		t.Run(test.line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got, _ := run(t, test.line, nil); got != test.want {
					t.Errorf("got %s\nwant %s", got, test.want)
				}
			})
		})
	}
}

// A shell and what it starts are processes: a signal reaches each, and ends it.
func TestSignals(t *testing.T) {
	for _, test := range []struct {
		line, want string
		took       time.Duration
	}{
		{"sleep 100; echo no", `SIGTERM: ""`, time.Second},
		{"while :; do sleep 0.3; done", `SIGTERM: ""`, time.Second},
		{"sleep 100 | cat; echo no", `SIGTERM: ""`, time.Second},
		{"(sleep 100; echo no); echo no", `SIGTERM: ""`, time.Second},
		{"echo a; yes | sleep 100", `SIGTERM: "a\n"`, time.Second},
		{"sleep 100 & wait; echo no", `SIGTERM: ""`, time.Second},
		{"v=$(sleep 100; echo no); echo no", `SIGTERM: ""`, time.Second},
		{"trap '' TERM; sleep 2; echo a", `exit code 0: "a\n"`, 2 * time.Second},
		{"(trap '' TERM; sleep 2; echo a); echo no", `SIGTERM: "a\n"`, 2 * time.Second},
		{"exec sleep 100; echo no", `SIGTERM: ""`, time.Second},
		{"ignore; echo no", `SIGTERM: ""`, 3 * time.Second},
	} {
		t.Run(test.line, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, took := run(t, test.line, func(x terminal.Terminal) {
					time.Sleep(time.Second)
					x.Stop(t.Context())
				})
				if got != test.want || took != test.took {
					t.Errorf("got %s after %v\nwant %s after %v", got, took, test.want, test.took)
				}
			})
		})
	}
}

// An hour in a shell takes no time.
func TestFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got, took := run(t, "sleep 1800 | cat && sleep 1800 | echo a", nil); got != `exit code 0: "a\n"` || took != time.Hour {
			t.Errorf("got %s after %v", got, took)
		}
	})
}
