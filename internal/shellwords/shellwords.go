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
	var words []string
	for {
		word, rest, ok, err := Next(line)
		if err != nil {
			return nil, err
		}
		if !ok {
			return words, nil
		}
		words = append(words, word)
		line = rest
	}
}

// Next returns the first word of line and what follows it as it stands, and
// false if line has no word.
func Next(line string) (word, rest string, ok bool, err error) {
	var b strings.Builder // a word has begun once ok is set; it may be empty, as in ''
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch c {
		case ' ', '\t', '\n':
			if ok {
				return b.String(), line[i:], true, nil
			}
			continue
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return "", "", false, ErrQuote
			}
			b.WriteString(line[i+1 : i+1+end])
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
				b.WriteByte(line[i])
			}
			if i == len(line) {
				return "", "", false, ErrQuote
			}
		case '\\':
			i++
			if i == len(line) {
				return "", "", false, ErrEscape
			}
			if line[i] == '\n' {
				continue // a continued line
			}
			b.WriteByte(line[i])
		default:
			b.WriteByte(c)
		}
		ok = true
	}
	return b.String(), "", ok, nil
}
