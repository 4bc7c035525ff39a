package memterm

import (
	"bytes"
	"os"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/lineedit"
)

// A tty is what a terminal does to input beyond carrying it: it edits lines, it
// echoes, and it turns some bytes into signals.
type tty struct {
	out    func([]byte)    // writes to the command's output
	signal func(os.Signal) // sends a signal to the command's processes
}

// visible is how a terminal echoes a byte.
func visible(c byte) string {
	if c < ' ' && c != '\t' && c != '\n' {
		return "^" + string(rune(c|0x40))
	}
	return string([]byte{c})
}

// typed is one byte of a terminal's input. Called with mu held.
func (in *input) typed(c byte) {
	before := in.line.Text
	size := len(before)
	effect := in.line.Type(c, &lineedit.Default)
	text := in.line.Text
	switch effect {
	case lineedit.Typed:
		in.size += len(text) - size
		switch {
		case len(text) > size:
			in.echoed = append(in.echoed, visible(c)...)
		case len(text) < size:
			in.echoed = append(in.echoed, bytes.Repeat([]byte("\b \b"), utf8.RuneCount(before[len(text):]))...)
		}
	case lineedit.Ended, lineedit.EOF: // what was typed is there to be read; nothing is an end of file
		in.queue = append(in.queue, text)
		in.line = lineedit.Line{}
		if effect == lineedit.Ended {
			in.size++
			in.echoed = append(in.echoed, '\n')
		}
	default:
		in.queue, in.size = nil, 0
		in.echoed = append(in.echoed, visible(c)...)
		in.echo()
		in.tty.signal(map[lineedit.Effect]os.Signal{
			lineedit.Interrupt: sigINT, lineedit.Suspend: sigTSTP, lineedit.Quit: sigQUIT,
		}[effect])
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
