package vt

import (
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/text"
)

// Paint returns what makes another terminal of the same size, whatever it shows, show
// what s does, and go on as s would: with its modes, its regions and the cursors that
// are saved. Behind the main screen stands nothing in the history. Colours that are
// not of the palette come near.
func (s *Screen) Paint() string {
	p := painter{b: []byte(text.Cancel), rows: s.rows, cols: s.cols}
	p.add("\x1b[?1049l\x1b[!p\x1b[?2026l\x1b[?7h\x1b[20l\x1b>")
	p.tabs(s.tabs)
	p.grid(&s.main)
	if s.on == &s.alt {
		if s.main.isSaved {
			p.cursor(s.main.saved, &s.main)
			p.add("\x1b[?1049h")
		} else {
			p.add("\x1b[?47h")
		}
		p.grid(&s.alt)
	}
	if s.on.isSaved {
		p.cursor(s.on.saved, s.on)
		p.add("\x1b7")
	}
	p.title(s.title)
	p.cursor(s.cur, s.on)
	p.modes(s.modes, s.console)
	return string(p.b)
}

// Returns reports whether a line feed also returns the carriage now.
func (s *Screen) Returns() bool {
	return s.modes.Has(newline) || s.newline && (s.text || s.on == &s.main)
}

// A painter writes what paints a screen.
type painter struct {
	b          []byte
	rows, cols int
	attr       attr
}

func (p *painter) add(s string) { p.b = append(p.b, s...) }

// csi adds a control sequence with numbers.
func (p *painter) csi(end string, v ...int) {
	p.add("\x1b[")
	for i, n := range v {
		if i > 0 {
			p.add(";")
		}
		p.b = strconv.AppendInt(p.b, int64(n), 10)
	}
	p.add(end)
}

// tabs sets the tab stops.
func (p *painter) tabs(stops []bool) {
	p.add("\x1b[?5W") // each eighth
	if stops == nil {
		return
	}
	p.add("\x1b[3g")
	for x, stop := range stops[:p.cols] {
		if stop {
			p.csi("H", 1, x+1)
			p.add("\x1bH")
		}
	}
}

// grid paints one of the two screens, on which the terminal is, and sets its region.
func (p *painter) grid(g *grid) {
	p.add("\x1b[r\x1b[?6l\x1b[4l\x0f\x1b(B\x1b)B")
	p.sgr(0)
	p.add("\x1b[H\x1b[2J")
	for y, r := range g.rows {
		end := len(r.cells)
		for end > 0 && r.cells[end-1] == (cell{}) {
			end--
		}
		if end > 0 {
			p.csi("H", y+1, 1)
		}
		for x := 0; x < end; {
			x = p.cell(r, x, end)
		}
	}
	p.csi("r", g.top+1, g.bottom+1)
}

// cell paints the character at column x of a row, or the blanks from there to column
// end, and returns the column behind it.
func (p *painter) cell(r *row, x, end int) int {
	c := r.cells[x]
	from := x
	for x++; x < end && (r.cells[x].r < 0 || c == (cell{}) && r.cells[x] == c); x++ {
	}
	switch {
	case c == (cell{}) && r.marks[from] == "":
		p.csi("C", x-from)
		return x
	case c.r <= 0: // also the rest of a character that is not there
		c.r = ' '
	}
	p.sgr(c.attr)
	if width(c.r) == 0 { // it was combined with a blank
		p.add(" ")
	}
	p.b = utf8.AppendRune(p.b, c.r)
	p.add(r.marks[from])
	return x
}

// sgr makes what is written look like a.
func (p *painter) sgr(a attr) {
	if a == p.attr {
		return
	}
	p.attr = a
	p.add("\x1b[0")
	for n, style := range styles {
		if style != 0 && a&style != 0 {
			p.add(";" + strconv.Itoa(n))
		}
	}
	p.colour(a&attrFg, 30)
	p.colour(a&attrBg>>13, 40)
	p.add("m")
}

// colour adds the parameters for a colour; base is 30 for text, 40 for background.
func (p *painter) colour(c attr, base int) {
	n := int(c) - palette
	switch {
	case c == 0:
	case n < 8:
		p.b = fmt.Appendf(p.b, ";%d", base+n)
	case n < 16:
		p.b = fmt.Appendf(p.b, ";%d", base+60+n-8)
	case c < rgb:
		p.b = fmt.Appendf(p.b, ";%d;5;%d", base+8, n)
	default:
		c -= rgb
		p.b = fmt.Appendf(p.b, ";%d;2;%d;%d;%d", base+8, c>>8&0xf*0x11, c>>4&0xf*0x11, c&0xf*0x11)
	}
}

// cursor sets the cursor, and how it writes, on the screen g.
func (p *painter) cursor(c cursor, g *grid) {
	y := c.y
	p.add("\x1b[?6l")
	if c.origin {
		p.add("\x1b[?6h")
		y -= g.top
	}
	p.add("\x0f\x1b(B\x1b)B")
	if c.pending { // the last column is written once more
		r := g.rows[c.y]
		x := r.head(p.cols - 1)
		p.csi("H", y+1, x+1)
		if r.grow(p.cols); r.cells[x] == (cell{}) {
			p.sgr(0)
			p.add(" ")
		} else {
			p.cell(r, x, p.cols)
		}
	} else {
		p.csi("H", y+1, c.x+1)
	}
	p.sgr(c.attr)
	for g, set := range c.sets {
		if set == 0 {
			set = 'B'
		}
		p.b = append(p.b, '\x1b', "()*+"[g], set)
	}
	p.add([]string{"\x0f", "\x0e", "\x1bn", "\x1bo"}[c.set])
}

func (p *painter) title(title string) {
	if title != "" {
		p.add("\x1b]2;" + title + "\a")
	}
}

// modes sets the modes.
func (p *painter) modes(m Modes, c console) {
	set := func(on bool, mode int) {
		end := "l"
		if on {
			end = "h"
		}
		p.b = fmt.Appendf(p.b, "\x1b[?%d%s", mode, end)
	}
	set(m.Has(AppCursor), 1)
	set(!m.Has(noWrap), 7)
	set(!m.Has(CursorHidden), 25)
	set(m.Has(Paste), 2004)
	set(c.focus, 1004)
	chosen := []int{c.mouse, c.mouseForm}
	for _, mode := range []int{9, 1000, 1002, 1003, 1005, 1006, 1015, 1016} {
		if !slices.Contains(chosen, mode) {
			set(false, mode)
		}
	}
	for _, mode := range chosen { // behind the others, which may switch them off
		if mode != 0 {
			set(true, mode)
		}
	}
	if m.Has(insert) {
		p.add("\x1b[4h")
	}
	if m.Has(newline) {
		p.add("\x1b[20h")
	}
	if c.keypad {
		p.add("\x1b=")
	}
	p.csi(" q", c.shape)
}
