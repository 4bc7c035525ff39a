package agent

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/internal/await"
	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/terminal"
)

func TestParse(t *testing.T) {
	limit := limits.DefaultResultLimit
	line := func(line, title string) request {
		return request{verb: verbRun, title: title, cmd: terminal.Command{Line: line, OutputLimit: limit}}
	}
	tests := []struct {
		rule, line string
		want       request
	}{
		{"! runs what follows", "!ls -l", line("ls -l", "ls -l")},
		{"the line behind ! stays as it stands", `! echo 'a  b' | cat \ `, line(` echo 'a  b' | cat \ `, `echo 'a  b' | cat \`)},
		{"blanks before a line mean nothing", " \t!ls", line("ls", "ls")},
		{"run needs no flags", "run -- ls", line("ls", "ls")},
		{"one blank behind -- is not part of the line", "run --   a  b ", line("  a  b ", "a  b")},
		{"a second -- belongs to the line", "run -- git log -- file", line("git log -- file", "git log -- file")},
		{"every flag", `run --timeout 5s --dir '/a b' --env A=1 --env B='x y' --env=C= --limit 100 --input -- prog "$A"`, request{
			verb: verbRun, title: `prog "$A"`, cmd: terminal.Command{
				Line: `prog "$A"`, Timeout: 5 * time.Second, Dir: "/a b", OutputLimit: 100, Stdin: true,
				Env: map[string]string{"A": "1", "B": "x y", "C": ""},
			}}},
		{"--argv splits by shell quoting and expands nothing", `run --argv -- printf '%s\n' "a b" $HOME *`, request{
			verb: verbRun, title: `printf '%s\n' "a b" $HOME *`, cmd: terminal.Command{
				Args: []string{"printf", `%s\n`, "a b", "$HOME", "*"}, OutputLimit: limit,
			}}},
		{"bg takes the same flags", "bg --timeout=90 --input -- cat", request{
			verb: verbBg, title: "cat", cmd: terminal.Command{Line: "cat", Timeout: 90 * time.Second, Stdin: true, OutputLimit: limit}}},
		{"jobs", "jobs", request{verb: verbJobs, title: "jobs"}},
		{"help", " help ", request{verb: verbHelp, title: "help"}},
		{"output reads from the oldest kept", "output t1", request{verb: verbOutput, title: "output t1", id: "t1"}},
		{"output takes flags on both sides of the id", "output --wait 2 t1 --since 17", request{
			verb: verbOutput, title: "output --wait 2 t1 --since 17", id: "t1", since: 17, wait: 2 * time.Second}},
		{"input takes escapes", `input t1 a\tb\n\x03\u00e9\\ `, request{
			verb: verbInput, title: `input t1 a\tb\n\x03\u00e9\\`, id: "t1", text: "a\tb\n\x03é\\ "}},
		{"\\x80 is one byte", `input t1 \x80`, request{verb: verbInput, title: `input t1 \x80`, id: "t1", text: "\x80"}},
		{"quotes in input stand for themselves", `input t1 "it's" \"\'`, request{
			verb: verbInput, title: `input t1 "it's" \"\'`, id: "t1", text: `"it's" "'`}},
		{"blanks of input are sent", "input  t1  x ", request{verb: verbInput, title: "input  t1  x", id: "t1", text: " x "}},
		{"wait waits for ever", "wait t1", request{verb: verbWait, title: "wait t1", id: "t1", wait: await.Forever}},
		{"wait takes a bound", "wait t1 --timeout 1m30s", request{
			verb: verbWait, title: "wait t1 --timeout 1m30s", id: "t1", wait: 90 * time.Second}},
		{"screen takes a text and a bound", "screen t1 --until 'the end' --wait 2", request{
			verb: verbScreen, title: "screen t1 --until 'the end' --wait 2", id: "t1", text: "the end", wait: 2 * time.Second}},
		{"keys are words", `keys t1  C-c ' \ Up`, request{
			verb: verbKeys, title: `keys t1  C-c ' \ Up`, id: "t1", names: []string{"C-c", "'", `\`, "Up"}}},
		{"kill", "kill t1", request{verb: verbKill, title: "kill t1", id: "t1"}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			got, err := parse(tt.line)
			if err != nil {
				t.Fatalf("parse(%q): %v", tt.line, err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(request{})); diff != "" {
				t.Errorf("parse(%q) (-want +got):\n%s", tt.line, diff)
			}
		})
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	tests := []struct{ line, want string }{
		{"!", "the command is empty"},
		{"!  ", "the command is empty"},
		{"run --", "the command is empty"},
		{"run --argv -- ''", "Args[0]"},
		{"run", "no command: it goes after --"},
		{"run ls -l", `"ls" stands where only flags do: the command goes after --`},
		{"run --timout 5s -- ls", "there is no flag --timout"},
		{"run -h", "there is no flag -h"},
		{"run --timeout -- ls", "--timeout needs a value"},
		{"run --timeout", "--timeout needs a value"},
		{"run --timeout soon -- ls", `--timeout: "soon" is no duration: write 5s`},
		{"run --timeout '' -- ls", `--timeout: "" is no duration`},
		{"run --timeout -5s -- ls", `--timeout: "-5s" is negative`},
		{"run --timeout -5 -- ls", `--timeout: "-5" is no duration`},
		{"run --timeout 9999999999999 -- ls", "is no duration"},
		{"run --limit 10k -- ls", `--limit: "10k" is no number of bytes`},
		{"run --limit 0 -- ls", `--limit: "0" is no number of bytes`},
		{"run --limit -1 -- ls", `--limit: "-1" is no number of bytes`},
		{"run --env PATH -- ls", `--env: "PATH" is not NAME=VALUE`},
		{"run --env =x -- ls", `--env: "=x" is not NAME=VALUE`},
		{"run --input=yes -- ls", "--input takes no value"},
		{"run --dir rel -- ls", `directory "rel" is relative: give an absolute path`},
		{"run --dir 'x -- ls", "a quote is not closed"},
		{"run 'x -- ls", "a quote is not closed"},
		{"run --argv -- echo 'x", "--argv: a quote is not closed"},
		{`run --argv -- echo x\`, "--argv: a backslash at the end"},
		{"!a\x00b", "NUL"},
		{"bg", "no command"},
		{"jobs t1", `"t1" is one thing too many`},
		{"help me", `"me" is one thing too many`},
		{"output", "no ID"},
		{"output t1 t2", `"t2" is one thing too many`},
		{"output t1 --since x", `--since: "x" is no cursor`},
		{"output t1 --since -1", `--since: "-1" is no cursor`},
		{"output t1 -- x", "-- goes with run and bg only"},
		{"output t1 --timeout 5", "there is no flag --timeout"},
		{"input", "no ID"},
		{"input t1", "no text"},
		{`input t1 a\q`, `bad escape "\\q"`},
		{`input t1 a\`, `bad escape "\\"`},
		{`input t1 \x0`, `bad escape "\\x"`},
		{"wait", "no ID"},
		{"wait t1 --timeout -1s", "is negative"},
		{"kill", "no ID"},
		{"kill t1 now", `"now" is one thing too many`},
	}
	for _, tt := range tests {
		req, err := parse(tt.line)
		if err == nil {
			t.Errorf("parse(%q) = %+v; want an error with %q", tt.line, req, tt.want)
			continue
		}
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("parse(%q): %v\nwant it to say %q", tt.line, err, tt.want)
		}
		if req.verb == "" || req.title == "" {
			t.Errorf("parse(%q): the request has verb %q and title %q; a card needs both", tt.line, req.verb, req.title)
		}
	}
}

func TestParseUnknownLine(t *testing.T) {
	for _, line := range []string{"hello", "ls -l", "parallel", "Run -- ls", "//help", "/bin/ls", "/", "--", "é"} {
		if _, err := parse(line); !errors.Is(err, errUnknownLine) {
			t.Errorf("parse(%q): %v; want %v", line, err, errUnknownLine)
		}
	}
}

func TestSplitPrompt(t *testing.T) {
	tests := []struct {
		prompt   string
		lines    []string
		parallel bool
	}{
		{"", nil, false},
		{" \n\t\r\n", nil, false},
		{"!a", []string{"!a"}, false},
		{"!a \r\n\n  !b\n", []string{"!a ", "  !b"}, false},
		{"\n parallel \n!a\n!b", []string{"!a", "!b"}, true},
		{"parallel", []string{}, true},
		{"!a\nparallel", []string{"!a", "parallel"}, false},
	}
	for _, tt := range tests {
		lines, parallel := splitPrompt(tt.prompt)
		if diff := cmp.Diff(tt.lines, lines); diff != "" || parallel != tt.parallel {
			t.Errorf("splitPrompt(%q): parallel %v (-want +got):\n%s", tt.prompt, parallel, diff)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{
		"!ls", `run --timeout 5s --env A='b c' --argv -- printf '%s' "x"`, `input t1 \x03\n`,
		"output t1 --since 5 --wait 2s", "wait t1", "bg --input -- cat", "run --dir", "help", "-- -- --",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		req, err := parse(line)
		if errors.Is(err, errUnknownLine) {
			return
		}
		if req.verb.form() == "" {
			t.Errorf("parse(%q): verb %q", line, req.verb)
		}
		switch {
		case err != nil:
			if utf8.ValidString(line) && !utf8.ValidString(err.Error()) {
				t.Errorf("parse(%q): the error %q is no UTF-8", line, err)
			}
		case req.verb == verbRun || req.verb == verbBg:
			if err := req.cmd.Check(); err != nil {
				t.Errorf("parse(%q) is a command that %v", line, err)
			}
			if req.cmd.Line != "" && !strings.HasSuffix(line, req.cmd.Line) {
				t.Errorf("parse(%q): the line became %q", line, req.cmd.Line)
			}
		case req.wait < 0 || req.since < 0:
			t.Errorf("parse(%q): wait %v, since %d", line, req.wait, req.since)
		}
	})
}
