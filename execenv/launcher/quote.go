package launcher

import (
	"fmt"
	"slices"
	"strings"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/internal/shellwords"
)

// loginLine returns argv as one line that any login shell (sh, bash, zsh, ksh,
// fish, csh, tcsh) runs as these words.
func loginLine(argv []string) string {
	long := func(word string) bool { return len(word) > maxQuoted }
	var line strings.Builder
	line.WriteString("exec")
	switch {
	case slices.ContainsFunc(argv, forbidden.MatchString), slices.ContainsFunc(argv[min(3, len(argv)):], long):
		// The words are quoted for sh and encoded in pieces of plain text.
		line.WriteString(` /bin/sh -c 'eval "` + "`" + `printf %b "$@"` + "`" + `"' tb`)
		argv = pieces(octal("exec "+shellwords.Join(argv)), maxQuoted)
	case len(argv) > 3 && long(argv[2]): // sh -c SCRIPT
		script := pieces(argv[2], maxQuoted)
		words := []string{argv[0], argv[1], fmt.Sprintf(`_w=; for _i in %s; do _w=$_w$1; shift; done; eval "$_w"`, strings.Repeat("1 ", len(script))), argv[3]}
		argv = slices.Concat(words, script, argv[4:])
	}
	for _, word := range argv {
		line.WriteString(" '" + word + "'")
	}
	return line.String()
}

// octal encodes a text for printf %b: what is not a plain character becomes \0
// and three octal digits. So does '=': a forced command of sshd has the words in
// its environment, where the supervisor must not find the tag of a command.
func octal(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,-+@"
	var b strings.Builder
	for _, c := range []byte(text) {
		if strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\0%03o`, c)
		}
	}
	return b.String()
}

// pieces cuts an encoded text into words of at most size bytes, between its
// characters.
func pieces(encoded string, size int) []string {
	var words []string
	for len(encoded) > size {
		cut := size
		if i := strings.LastIndexByte(encoded[:cut], '\\'); i >= 0 && cut-i < len(`\0000`) {
			cut = i
		}
		words = append(words, encoded[:cut])
		encoded = encoded[cut:]
	}
	return append(words, encoded)
}

// header returns what the wrapper evaluates: the directory, the size of a terminal,
// the variables and the words of a command, encoded for printf %b.
func header(dir string, tty *execenv.TTY, tag string, env map[string]string, argv []string) string {
	var b strings.Builder
	if tty != nil && !tty.Size.IsZero() {
		fmt.Fprintf(&b, `_t="rows %d cols %d"; `, tty.Size.Rows, tty.Size.Cols)
	}
	fmt.Fprintf(&b, "_d=%s; export %s=%s; ", shellwords.Quote(dir), tagName, shellwords.Quote(tag))
	var odd []string // names that no shell can export
	for name, value := range env {
		if isName(name) {
			fmt.Fprintf(&b, "export %s=%s; ", name, shellwords.Quote(value))
		} else {
			odd = append(odd, name+"="+value)
		}
	}
	if odd != nil {
		argv = slices.Concat([]string{"env"}, odd, argv)
	}
	b.WriteString("set -- " + shellwords.Join(argv))
	return octal(b.String())
}

// tagName is the environment variable by which the supervisor knows the
// processes of a command: its connection's tag, a dot, its number, a dot.
const tagName = "TERMBRIDGE_PLACE"

// isName reports whether a shell can export the name.
func isName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
