package text

import (
	"fmt"
	"strings"
	"unicode"
)

// Visible returns s with every control and bidirectional character spelled out
// as Go source spells it, except those in keep: nobody is shown another text
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
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Hidden reports whether r changes how the text around it is shown without
// being shown itself: the control characters, the line and paragraph
// separators, and those that change the direction of text (Unicode's
// Bidi_Control, UAX #9).
func Hidden(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}
