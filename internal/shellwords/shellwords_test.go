package shellwords_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/termbridge/termbridge/internal/shellwords"
)

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"":            `''`,
		"plain":       `plain`,
		"/usr/bin-1":  `/usr/bin-1`,
		"a b":         `'a b'`,
		"it's":        `'it'\''s'`,
		"'":           `''\'''`,
		"$HOME":       `'$HOME'`,
		"A=b":         `'A=b'`,
		"~":           `'~'`,
		"a\nb":        "'a\nb'",
		"*?[a]{b,c}!": `'*?[a]{b,c}!'`,
		"#":           `'#'`,
		"é":           `'é'`,
	} {
		if got := shellwords.Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		line string
		want []string
		err  error
	}{
		{"", nil, nil},
		{" \t\n ", nil, nil},
		{"a b\tc\nd", []string{"a", "b", "c", "d"}, nil},
		{`'a b' c`, []string{"a b", "c"}, nil},
		{`a'b'"c"\d`, []string{"abcd"}, nil},
		{`'' "" x`, []string{"", "", "x"}, nil},
		{`"a\b\"\$\` + "`" + `\\"`, []string{`a\b"$` + "`" + `\`}, nil},
		{"\"a\\\nb\" c\\\nd \\\n e", []string{"ab", "cd", "e"}, nil},
		{`'a\'`, []string{`a\`}, nil},
		{`a\ b`, []string{"a b"}, nil},
		{`echo $HOME | cat # x`, []string{"echo", "$HOME", "|", "cat", "#", "x"}, nil},
		{`it's`, nil, shellwords.ErrQuote},
		{`"a`, nil, shellwords.ErrQuote},
		{`"a\"`, nil, shellwords.ErrQuote},
		{`"\`, nil, shellwords.ErrQuote},
		{`a\`, nil, shellwords.ErrEscape},
	} {
		got, err := shellwords.Split(test.line)
		if !errors.Is(err, test.err) || !cmp.Equal(got, test.want) {
			t.Errorf("Split(%q) = %q, %v; want %q, %v", test.line, got, err, test.want, test.err)
		}
	}
}

// What Join quotes, Split and a real shell read back.
func FuzzJoin(f *testing.F) {
	for _, s := range []string{"a|b", "|", "a b|it's|\"|\\|$x", "\n|\t|~|=|*", "é|\xff|\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		words := strings.Split(s, "|")
		line := shellwords.Join(words)
		got, err := shellwords.Split(line)
		if err != nil || !slices.Equal(got, words) {
			t.Fatalf("Split(%q) = %q, %v; want %q", line, got, err, words)
		}
		if strings.ContainsRune(s, 0) {
			return // no word of a command has a NUL
		}
		out, err := shell(line)
		if err != nil || !slices.Equal(out, words) {
			t.Fatalf("sh reads %q as %q, %v; want %q", line, out, err, words)
		}
	})
}

// Split never panics, and agrees with a real shell on lines of which the shell
// expands nothing.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"", "a b", `'a b'"c d"\ e`, `"\\\a"`, "\\\n", "a\\\n b", `'`, `\`, `""''`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		got, err := shellwords.Split(line)
		if err != nil || strings.ContainsAny(line, "$`~*?[]{}()<>|&;#!=") {
			return
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) {
			return // a newline ends a command, and shells differ in what they take for a blank
		}
		want, err := shell(line)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("Split(%q) = %q, sh reads %q, %v", line, got, want, err)
		}
	})
}

// shell returns the words that /bin/sh makes of line.
func shell(line string) ([]string, error) {
	out, err := exec.Command("/bin/sh", "-c", `for w in `+line+`
do printf '%s\0' "$w"
done`).Output()
	if err != nil {
		return nil, fmt.Errorf("sh: %w", err)
	}
	var words []string
	for word := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		words = append(words, string(word))
	}
	if len(out) == 0 {
		words = nil
	}
	return words, nil
}
