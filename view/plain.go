package view

import (
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
)

// openNote stands before what the alternate screen shows while it is on.
const openNote = "[full-screen program: its screen follows]"

// Plain returns the text of s: what a terminal of 40 rows by 120 columns would
// show for it with all that has left its screen at the top. It is valid UTF-8
// whose only controls are tabs and line feeds.
//
// Control sequences are applied as a terminal applies them: carriage returns,
// erasing and moves of the cursor change what is on the screen and nothing above
// it, so that "longer\rshort" is "shortr" and a progress bar is what it came to.
// Lines that the screen wrapped are whole, and CRLF is LF. Clearing the whole
// screen begins a new one and loses nothing. The alternate screen is left out, see
// [ScreenNote]; if s ends on it, its text stands at the end, with the last MiB of
// what has left it. A sequence whose end is missing is left out. Bytes that are no
// UTF-8 become U+FFFD. No final newline is added.
//
// Plain takes time and memory in proportion to s, and returns s itself where
// there is nothing to do.
func Plain(s string) string {
	if plain, ok := vt.Plain(s); ok {
		return plain
	}
	var p Plainer
	p.WriteString(s)
	return p.String()
}

// A Plainer is [Plain] for a stream, in bounded memory: what it has been given
// is text at any time. The zero value keeps all text, for a screen of the default
// size. It must not be used from two goroutines at once.
type Plainer struct {
	// Max is how many bytes of text are kept, the tail; 0 is all.
	Max int

	// Size is that of the terminal of the command, see [terminal.Command]; the
	// zero value is 40 rows by 120 columns.
	Size terminal.Size

	text *vt.Text // nil before the first write
}

// Write takes the next bytes of the stream. It never fails.
func (p *Plainer) Write(b []byte) (int, error) { return p.WriteString(string(b)) }

// WriteString is Write.
func (p *Plainer) WriteString(s string) (int, error) {
	p.init()
	p.text.Write(s)
	return len(s), nil
}

// Gap says that output is missing between what was written and what will be: a
// sequence that is not over ends here, and what looks like the rest of one at the
// start of the next write is left out. The mark, which may be empty, is written
// in its place.
func (p *Plainer) Gap(mark string) {
	p.init()
	p.text.Cut(mark)
}

// String returns the text so far, at most Max bytes of it.
func (p *Plainer) String() string {
	if p.text == nil {
		return ""
	}
	s := p.text.String()
	if p.Max > 0 {
		s = text.Tail(s, p.Max)
	}
	return s
}

func (p *Plainer) init() {
	if p.text != nil {
		return
	}
	size := p.Size.OrDefault()
	p.text = vt.NewText(size.Rows, size.Cols, p.Max, vt.Notes{Left: ScreenNote, Open: openNote})
}
