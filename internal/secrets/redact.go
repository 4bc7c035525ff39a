package secrets

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Mark stands for a secret.
const Mark = "[redacted]"

// Looks reports whether a variable, or a member with such a name, looks like a secret.
func Looks(name, value string) bool { return KindOf(name).judge(value) }

// Redact returns s with [Mark] for what looks like a secret in it, by itself or since it is the value of a variable of this process that looks
// like one. It is a net for logs, and no proof that nothing is left.
func Redact(s string) string {
	for _, value := range ownSecrets() {
		s = strings.ReplaceAll(s, value, Mark)
	}
	var b strings.Builder
	for {
		at := secretValue().FindStringIndex(s)
		if at == nil || at[0] == at[1] {
			break
		}
		b.WriteString(s[:at[0]])
		if delimiter := s[at[0]]; strings.IndexByte("?&;,\"'{ \t\n", delimiter) >= 0 { // not of the secret
			b.WriteByte(delimiter)
		}
		b.WriteString(Mark)
		s = s[at[1]:]
		if rest := restOfSecret().FindString(s); rest != "" { // a rule names how it begins
			s = s[len(rest):]
		}
	}
	b.WriteString(s)
	return b.String()
}

// restOfSecret is what follows the beginning of a secret: the rest of a key's block, or
// of a word.
var restOfSecret = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(?:-----|[ A-Z0-9_-]*-----)(?s:.*?)(?:-----END[^-]*-----|$)|[^\s"'&;,<>]*)`)
})

// leastSecret is how long a value is at least that is looked for in text.
const leastSecret = 6

// ownSecrets returns the values of this process's variables that look like secrets, the
// longest first.
func ownSecrets() (values []string) {
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if len(value) >= leastSecret && KindOf(name).Looks(kv, value) {
			values = append(values, value)
		}
	}
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	return values
}
