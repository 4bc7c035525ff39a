package text

import (
	"fmt"
	"strings"
	"unicode"
)

// Visible returns s with every character that is [Hidden] spelled out as Go source
// spells it, except those in keep: nobody is shown another text
// than the one that is there. Each byte that is no UTF-8 becomes U+FFFD.
func Visible(s, keep string) string {
	hidden := func(r rune) bool { return Hidden(r) && !strings.ContainsRune(keep, r) }
	if strings.IndexFunc(s, func(r rune) bool { return hidden(r) || r == unicode.ReplacementChar }) < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for _, r := range s {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// Hidden reports whether r is not shown itself: the control characters, the line and
// paragraph separators, those that change the direction of text, and the other
// format characters, such as a zero width space. The joiners stay, which writing
// systems and emoji need, and the format characters that have a shape.
func Hidden(r rune) bool {
	switch {
	case unicode.IsControl(r), r == '\u2028', r == '\u2029':
		return true
	case r == '\u200c', r == '\u200d', unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return false
	}
	return unicode.Is(unicode.Cf, r)
}
