package localterm_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// A program in raw mode gets answers to what it asks its terminal, however its
// questions are cut.
func TestQueries(t *testing.T) {
	needLinux(t, "reads of a terminal that end by time")
	for question, want := range map[string]string{
		`\033[6n`:                 "\x1b[1;1R",
		`\033[5n`:                 "\x1b[0n",
		`\033[c`:                  "\x1b[?62;22c",
		`\033[0c`:                 "\x1b[?62;22c",
		`\033[>c`:                 "\x1b[>0;0;0c",
		`\033]10;?\007`:           "\x1b]10;rgb:ffff/ffff/ffff\a",
		`\033]11;?\033\\`:         "\x1b]11;rgb:0000/0000/0000\x1b\\",
		`x\033[1m\033[6ny\033[c`:  "\x1b[1;2R\x1b[?62;22c",
		`\033[?25l\033[31m\033[7`: "",
	} {
		t.Run(question, func(t *testing.T) {
			t.Parallel()
			m := newManager(t, nil)
			var terms []terminal.Terminal
			count := strconv.Itoa(len(want)) // that it waits for, however late they are; and then for more
			for _, print := range []string{
				`printf "$0"`,
				// In pieces, as they may be read: cut behind each byte.
				`printf "$0" | while IFS= read -rN1 c; do printf %s "$c"; sleep 0.02; done`,
			} {
				terms = append(terms, start(t, m, terminal.Command{
					Args: []string{"bash", "-c", `stty raw -echo min 1; ` + print + `; printf '|'
						dd bs=1 count=` + count + ` 2>/dev/null | cat -v; sleep 0.2; stty min 0 time 2; cat -v; printf '|'`, question},
					TTY: true, Stdin: true,
				}))
			}
			visible := strings.NewReplacer("\x1b", "^[", "\a", "^G").Replace(want)
			for _, term := range terms {
				if got := strings.Split(output(t, term), "|"); len(got) != 3 || got[1] != visible {
					t.Errorf("%s: got %q, want %q", term.Info().Command, got, visible)
				}
			}
		})
	}
}

// A size probe is answered with the size of now.
func TestSizeProbe(t *testing.T) {
	need(t, "bash")
	m := newManager(t, nil)
	probe := `stty raw -echo; printf 'ready\n'; for i in 1 2; do IFS= read -rN1 x; printf '\033[999;999H\033[6n'; IFS= read -rd R x; printf '<%s>\n' "${x#??}"; done`
	term := start(t, m, terminal.Command{Args: []string{"bash", "-c", probe}, TTY: true, Stdin: true, Size: terminal.Size{Rows: 12, Cols: 34}})
	read(t, term, "ready\n")
	write(t, term, "x")
	read(t, term, "<12;34>\n")
	if err := term.Resize(terminal.Size{Rows: 56, Cols: 78}); err != nil {
		t.Fatal(err)
	}
	write(t, term, "x")
	read(t, term, "<56;78>\n")
}

// In line mode nothing is answered: it would be typed at whatever reads next.
func TestQueriesInLineMode(t *testing.T) {
	needLinux(t, "reads of a terminal that end by time")
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{
		Line: `printf '\033[6n\033[c'; sleep 0.3; stty raw -echo min 0 time 3; cat -v; echo end`,
		TTY:  true, Stdin: true,
	})
	if got := output(t, term); got != "\x1b[6n\x1b[cend\n" {
		t.Errorf("output %q, want no answer in it", got)
	}
}

// A program that asks and never reads hinders neither its output nor its
// writers, and its end.
func TestQueriesThatNobodyReads(t *testing.T) {
	m := newManager(t, nil)
	term := start(t, m, terminal.Command{
		Line: `stty raw -echo; yes "$(printf '\033[6n')" | head -c 5000000; echo end; exec sleep 300`,
		TTY:  true, Stdin: true,
	})
	read(t, term, "end\n")
	began := time.Now()
	if info, err := term.Stop(t.Context()); err != nil || info.Outcome != terminal.Stopped {
		t.Errorf("Stop: %+v, %v", info, err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the end took %v", took)
	}
}
