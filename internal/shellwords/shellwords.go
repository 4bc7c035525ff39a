// Package shellwords quotes words for a POSIX shell and splits a line into
// words by the same rules, expanding nothing. It imports only the standard
// library.
package shellwords

import (
	"errors"
	"strings"
)

// Quote returns word as a shell would read it back: as it stands if it is
// plain, else in single quotes.
func Quote(word string) string {
	if word != "" && strings.IndexFunc(word, special) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func special(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("-_./,:@%+", r) // '=' and '~' mean something at some places
}

// Join quotes each word and joins them with spaces.
func Join(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Quote(w)
	}
	return strings.Join(quoted, " ")
}

// Errors of Split.
var (
	ErrQuote  = errors.New("a quote is not closed")
	ErrEscape = errors.New("a backslash at the end escapes nothing")
)

// Split splits line into words by the quoting rules of the POSIX shell
// (XCU 2.2): single quotes, double quotes in which a backslash escapes only
// $ ` " \ and a newline, and backslashes. Nothing is expanded, and operators
// and comments are ordinary text.
func Split(line string) ([]string, error) {
	var (
		words []string
		word  strings.Builder
		open  bool // a word has begun; it may be empty, as in ''
	)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch c {
		case ' ', '\t', '\n':
			if open {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
			continue
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, ErrQuote
			}
			word.WriteString(line[i+1 : i+1+end])
			i += 1 + end
		case '"':
			i++
			for ; i < len(line) && line[i] != '"'; i++ {
				if line[i] == '\\' && i+1 < len(line) && strings.IndexByte("$`\"\\\n", line[i+1]) >= 0 {
					i++
					if line[i] == '\n' {
						continue
					}
				}
				word.WriteByte(line[i])
			}
			if i == len(line) {
				return nil, ErrQuote
			}
		case '\\':
			i++
			if i == len(line) {
				return nil, ErrEscape
			}
			if line[i] == '\n' {
				continue // a continued line
			}
			word.WriteByte(line[i])
		default:
			word.WriteByte(c)
		}
		open = true
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}
