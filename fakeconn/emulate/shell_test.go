package emulate_test

import (
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/fakeconn/emulate"
)

// The shell of a Behaviour runs lines as a POSIX shell does.
func TestShell(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"", `0 null; ""`},
		{":;", `0 null; ""`},
		{":;exec 'argv' 'a  b' c\\ d \"e\"f", `0 null; "\"a  b\"\n\"c d\"\n\"ef\"\n"`},
		{"argv \"$X $Y\" $X '$X' \\$X ${X}c", `0 null; "\"a b \"\n\"a\"\n\"b\"\n\"$X\"\n\"$X\"\n\"a\"\n\"bc\"\n"`},
		{"argv $Y '' \"\" *.go '*' x?", `0 null; "\"\"\n\"\"\n\"EXPANDED\"\n\"*\"\n\"EXPANDED\"\n"`},
		{"argv \"\\$X\\a\\\\\"", `0 null; "\"$X\\\\a\\\\\"\n"`},
		{"echo a # b\necho c", `0 null; "a\nc\n"`},
		{"false || echo a && echo b; true && exit 3; echo no", `3 null; "a\nb\n"`},
		{"false && echo no; echo $?", `0 null; "1\n"`},
		{"(exit 4); echo $?; (echo a; false)", `1 null; "4\na\n"`},
		{"cat <<'END'; echo $?\na $X 'b'\nEND\necho c", `0 null; "a $X 'b'\n0\nc\n"`},
		{"cat <<END\na $X \\$X\nEND", `0 null; "a a b $X\n"`},
		{"(cat <<END\na\nEND\n) </dev/null", `0 null; "a\n"`},
		{"exec </dev/null; cat; cat </dev/null; echo a", `0 null; "a\n"`},
		{"nothing; echo $?; exec nothing; echo no", `127 null; "sh: nothing: not found\n127\nsh: nothing: not found\n"`},
		{"exec signal SIGKILL; echo no", `null SIGKILL; ""`},
		{"signal SIGKILL; echo $?; exit 256", `0 null; "137\n"`},
		{"sh -c 'echo a; exit 5'; echo $?", `0 null; "a\n5\n"`},
		{"after 10ms echo a & echo b; sleep 0.1", `0 null; "b\na\n"`},
		{"echo 'a", `2 null; "sh: syntax error: a quote is not closed\n"`},
		{"echo \"a", `2 null; "sh: syntax error: a quote is not closed\n"`},
		{"echo a; (echo b", `2 null; "sh: syntax error: a ( is not closed\n"`},
		{"echo a) </dev/null", `2 null; "sh: syntax error: \")\" unexpected\n"`},
		{"cat <<END\na\nEND) </dev/null", `2 null; "sh: syntax error: a here-document does not end with \"END\"\n"`},
		{"echo a ||", `2 null; "sh: syntax error: unexpected end\n"`},
		{"; echo a", `2 null; "sh: syntax error: a command is missing\n"`},
		{"echo a | cat", `2 null; "sh: syntax error: \"|\" is not understood here\n"`},
		{"echo a\\", `2 null; "sh: syntax error: a backslash at the end\n"`},
	} {
		probing(t, emulate.Behaviour{}, func(p *probe) {
			req := sh(test.line)
			req.Env = []acp.EnvVariable{{Name: "X", Value: "a b"}}
			got, _, _ := strings.Cut(p.run(req), ", ")
			if got != test.want {
				t.Errorf("%s\n got %s\nwant %s", test.line, got, test.want)
			}
		})
	}
}
