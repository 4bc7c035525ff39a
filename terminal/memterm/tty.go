package memterm

import (
	"bytes"
	"os"
)

// A tty is what a terminal does to input beyond carrying it: it edits lines, it
// echoes, and it turns some bytes into signals.
type tty struct {
	out    func([]byte)    // writes to the command's output
	signal func(os.Signal) // sends a signal to the command's processes
}

// ctrl is the byte of Ctrl with this key.
func ctrl(key byte) byte { return key & 0x1f }

// visible is how a terminal echoes a byte.
func visible(c byte) string {
	if c < ' ' && c != '\t' && c != '\n' {
		return "^" + string(rune(c|0x40))
	}
	return string([]byte{c})
}

// typed is one byte of a terminal's input. It edits the line as the kernel's
// line discipline does: erase, kill, and the bytes that are signals. Called
// with mu held.
func (in *input) typed(c byte) {
	switch c {
	case ctrl('C'), ctrl('Z'), ctrl('\\'):
		in.size -= len(in.line)
		in.line = nil
		in.echoed = append(in.echoed, visible(c)...)
		in.echo()
		in.tty.signal(map[byte]os.Signal{ctrl('C'): sigINT, ctrl('Z'): sigTSTP, ctrl('\\'): sigQUIT}[c])
	case ctrl('D'): // what was typed is there to be read; nothing is an end of file
		in.queue = append(in.queue, in.line)
		in.line = nil
	case 0x7f, ctrl('U'):
		erase := len(in.line)
		if c == 0x7f {
			erase = min(erase, 1)
		}
		in.line = in.line[:len(in.line)-erase]
		in.size -= erase
		in.echoed = append(in.echoed, bytes.Repeat([]byte("\b \b"), erase)...)
	case '\n', '\r':
		in.queue = append(in.queue, append(in.line, '\n'))
		in.line = nil
		in.size++
		in.echoed = append(in.echoed, '\n')
	default:
		in.line = append(in.line, c)
		in.size++
		in.echoed = append(in.echoed, visible(c)...)
	}
}

// echo hands on what was echoed, before any reader can see what was typed.
// Called with mu held.
func (in *input) echo() {
	if len(in.echoed) > 0 {
		in.tty.out(in.echoed)
		in.echoed = nil
	}
}
