package vt

import "strings"

// Newlines puts a carriage return before each line feed of a stream that has none,
// where [New] with newline set has a line feed return the carriage: on the main
// screen. On the alternate screen programs move the cursor by line feeds. The zero
// value is ready.
type Newlines struct {
	screen *Screen // gets the control sequences; nil before the first
	cr     bool    // what was written ends with a carriage return
}

// Convert returns the next piece of the stream.
func (n *Newlines) Convert(s string) string {
	var b strings.Builder
	b.Grow(len(s) + len(s)/16)
	write := func(size int) {
		b.WriteString(s[:size])
		n.cr = s[size-1] == '\r'
		s = s[size:]
	}
	for s != "" {
		if size := n.sequence(s); size > 0 {
			write(size)
			continue
		}
		size := strings.IndexByte(s, esc)
		if size < 0 {
			size = len(s)
		}
		if i := strings.IndexByte(s[:size], '\n'); i == 0 {
			if !n.cr && !n.alternate() {
				b.WriteByte('\r')
			}
			size = 1
		} else if i > 0 {
			size = i
		}
		write(size)
	}
	return b.String()
}

// sequence returns how many bytes at the start of s belong to a control sequence,
// and has it done.
func (n *Newlines) sequence(s string) int {
	state := Ground
	if n.screen != nil {
		state = n.screen.state
	}
	size := 0
	if state == Ground && s[0] == esc {
		state, size = escape, 1
	}
	rest, _ := state.Skip(s[size:])
	if size += rest; size > 0 {
		if n.screen == nil {
			n.screen = New(1, minCols, true)
		}
		n.screen.Write(s[:size])
	}
	return size
}

func (n *Newlines) alternate() bool { return n.screen != nil && n.screen.Alternate() }
