package view

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/ansi/parser"

	"github.com/termbridge/termbridge/internal/text"
)

// ScreenNote stands in plain text, on a line of its own, for what a program
// drew on the alternate screen.
const ScreenNote = "[full-screen program: its screen is not shown]"

// Bounds of the line model. A cursor reaches no further up than rowsKept lines,
// as it reaches no further than the top of a terminal. A line over
// columnsKept cells is treated as one that a terminal wrapped: its start can no
// longer be overwritten. Moves go no further right than columnsMoved beyond
// which no line is, so that a few bytes do not become a long line of blanks.
const (
	rowsKept     = 128
	columnsKept  = 4096
	columnsMoved = 256
)

// Plain returns the text that a terminal would show for s: valid UTF-8 whose
// only controls are tabs and line feeds. Escape sequences are removed, CRLF is
// LF, and carriage returns, backspaces, erasing and cursor movement within the
// last lines are applied to the cells of those lines: "longer\rshort" is
// "shortr". Clearing the screen and moving to a place on it start a new line and
// lose nothing. The alternate screen is left out, see [ScreenNote], and so is a
// sequence whose end is missing. Bytes that are no UTF-8 become U+FFFD. No final
// newline is added.
//
// Plain takes time and memory in proportion to s, and returns s itself where
// there is nothing to do.
func Plain(s string) string {
	s = valid(s)
	if special(s) == len(s) {
		return s
	}
	p := Plainer{done: make([]byte, 0, len(s))}
	p.write(s)
	return p.String()
}

// A Plainer is [Plain] for a stream, in bounded memory: what it has been given
// is text at any time. The zero value keeps all text. It must not be used from
// two goroutines at once.
type Plainer struct {
	// Max is how many bytes of text are kept, the tail; 0 is all.
	Max int

	carry []byte // the start of a rune whose end is still to come
	seq   ansi.Parser
	inSeq bool // the parser is inside a sequence
	ready bool // the parser and lines are set up

	done  []byte // text that can no longer change
	lines []line // the lines behind it, never empty once ready
	row   int    // the cursor's line
	col   int    // its column, or atEnd

	fresh    bool // the next text starts a new line, at freshCol
	freshCol int
	placed   int // the screen row that the cursor was moved to and is still on; 0 none
	saved    position
	alt      bool // on the alternate screen
	noted    bool // nothing but a ScreenNote since the last text
}

// atEnd is the column of a cursor that is behind all that was appended to its
// line, so that the width of a line need not be known while it is only appended
// to.
const atEnd = -1

// A position is a place that the cursor was at.
type position struct {
	row, col int
	placed   bool // the cursor has since been moved to a place on the screen
}

// Write takes the next bytes of the stream. It never fails.
func (p *Plainer) Write(b []byte) (int, error) {
	n := len(b)
	if len(p.carry) > 0 {
		b = append(p.carry, b...)
	}
	whole := len(b) - text.Incomplete(b)
	p.write(valid(string(b[:whole])))
	p.carry = append(p.carry[:0], b[whole:]...)
	return n, nil
}

// String returns the text so far, at most Max bytes of it.
func (p *Plainer) String() string {
	lines := p.lines
	for len(lines) > p.row+1 && lines[len(lines)-1].gone() {
		lines = lines[:len(lines)-1]
	}
	size := len(p.done)
	for i := range lines {
		size += len(lines[i].text) + len(lines[i].cells) + 1
	}
	var b strings.Builder
	b.Grow(size)
	b.Write(p.done)
	var buf []byte
	for i := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		buf = lines[i].append(buf[:0])
		b.Write(buf)
	}
	if p.Max > 0 {
		return text.Tail(b.String(), p.Max)
	}
	return b.String()
}

// write takes valid UTF-8.
func (p *Plainer) write(s string) {
	if !p.ready {
		p.ready = true
		p.lines = make([]line, 1, 8)
		p.saved.placed = true // nothing to go back to
		p.seq.SetParamsSize(parser.MaxParamsSize)
		p.seq.SetDataSize(1) // nobody looks at the data of strings
		p.seq.SetHandler(ansi.Handler{HandleCsi: p.csi, HandleEsc: p.esc, Execute: p.control})
	}
	for len(s) > 0 {
		if p.inSeq {
			s = p.sequence(s)
			continue
		}
		if n := special(s); n > 0 {
			p.plain(s[:n])
			s = s[n:]
			continue
		}
		switch c := s[0]; {
		case c == ansi.ESC:
			if n := sgr(s); n > 0 {
				s = s[n:]
			} else {
				s = p.sequence(s)
			}
		case c >= utf8.RuneSelf:
			s = s[2:] // a C1 control as UTF-8
		default:
			p.control(c)
			s = s[1:]
		}
	}
}

// sgr returns the length of the sequence at the start of s if it is one that
// only sets colours and the like, else 0. Most sequences are.
func sgr(s string) int {
	if len(s) < 3 || s[1] != '[' {
		return 0
	}
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c == 'm':
			return i + 1
		case c < '0' || c > ';':
			return 0
		}
	}
	return 0
}

// sequence feeds the parser until its sequence ends and returns the rest of s.
// The parser sees ASCII only: it knows C1 controls as single bytes, which in
// UTF-8 are parts of other runes (U+2733 in a title has the byte of ST).
func (p *Plainer) sequence(s string) string {
	for i := 0; i < len(s); i++ {
		if i += inString(p.seq.State(), s[i:]); i == len(s) {
			break
		}
		if s[i] == ansi.ESC && p.seq.State() == parser.DcsEntryState {
			p.seq.Reset() // else the parser takes the end of an empty string for its start
		}
		if s[i] >= utf8.RuneSelf {
			p.seq.Reset() // no sequence: what it was is dropped, the text is not
			p.inSeq = false
			return s[i:]
		}
		p.seq.Advance(s[i])
		if p.seq.State() == parser.GroundState {
			p.inSeq = false
			return s[i+1:]
		}
	}
	p.inSeq = true
	return ""
}

// plain takes text without controls other than tabs and line feeds.
func (p *Plainer) plain(s string) {
	if p.alt {
		return
	}
	if p.row == len(p.lines)-1 && p.appends() && !p.fresh {
		// Lines that the cursor cannot reach again need no model.
		if n := unreachable(s); n > 0 {
			p.wrap()
			p.done = append(p.done, s[:n]...)
			p.saved.row = -1 // as far up as it goes
			p.trim()
			s = s[n:]
		}
	}
	for {
		row, rest, more := strings.Cut(s, "\n")
		if row != "" {
			p.print(row)
		}
		if !more {
			return
		}
		p.newline()
		s = rest
	}
}

// unreachable returns the length of the lines of s that are more than rowsKept
// above its end, if s is long enough for that to be of use.
func unreachable(s string) int {
	if len(s) < rowsKept*64 {
		return 0
	}
	n := len(s)
	for range rowsKept {
		if n = strings.LastIndexByte(s[:n], '\n'); n < 0 {
			return 0
		}
	}
	return n + 1
}

// print writes text without line feeds at the cursor.
func (p *Plainer) print(s string) {
	if p.alt {
		return
	}
	p.noted = false
	if p.fresh {
		col := p.freshCol
		p.toFresh()
		p.col = col
	}
	l := &p.lines[p.row]
	if p.appends() {
		for len(l.text)+len(s) > columnsKept {
			head := text.Head(s, columnsKept-len(l.text))
			l.text = append(l.text, head...)
			s = s[len(head):]
			p.wrap()
			l = &p.lines[p.row]
		}
		l.text = append(l.text, s...)
		p.col = atEnd
		return
	}
	p.cells()
	for i, r := range s {
		p.col = l.put(p.col, r)
		if len(l.cells) > columnsKept {
			p.wrap()
			if rest := s[i+utf8.RuneLen(r):]; rest != "" {
				p.print(rest)
			}
			return
		}
	}
}

// appends reports whether text at the cursor is only appended to its line.
func (p *Plainer) appends() bool {
	return p.col == atEnd || p.col == 0 && p.lines[p.row].empty()
}

// cells turns the cursor's line into cells and atEnd into a column.
func (p *Plainer) cells() *line {
	l := &p.lines[p.row]
	l.split()
	if p.col == atEnd {
		p.col = len(l.cells)
	}
	return l
}

// wrap makes the lines above the cursor and what there is of its own
// unchangeable.
func (p *Plainer) wrap() {
	p.commit(p.row)
	p.done = p.lines[0].append(p.done)
	p.lines[0].reset()
	p.col = 0
	p.trim()
}

// commit makes the first n lines unchangeable.
func (p *Plainer) commit(n int) {
	if n == 0 {
		return
	}
	for i := range n {
		p.done = append(p.lines[i].append(p.done), '\n')
		p.lines[i].reset()
	}
	// Their memory serves the lines to come.
	used := slices.Clone(p.lines[:n])
	copy(p.lines[copy(p.lines, p.lines[n:]):], used)
	p.lines = p.lines[:len(p.lines)-n]
	p.row -= n
	p.saved.row -= n
	p.trim()
}

// trim drops the text over Max, now and then.
func (p *Plainer) trim() {
	if p.Max > 0 && len(p.done) > 2*p.Max {
		p.done = append(p.done[:0], text.Tail(p.done, p.Max)...)
	}
}

// newline moves the cursor to the start of the next line.
func (p *Plainer) newline() {
	if p.alt {
		return
	}
	if p.fresh {
		p.toFresh()
	}
	p.placed = 0
	p.row++
	p.col = 0
	if p.row < len(p.lines) {
		return
	}
	if len(p.lines) == 2*rowsKept {
		p.commit(rowsKept)
	}
	if len(p.lines) < cap(p.lines) {
		p.lines = p.lines[:len(p.lines)+1]
	} else {
		p.lines = append(p.lines, line{})
	}
}

// startFresh has the next text start a new line: the cursor went where this
// model has no place.
func (p *Plainer) startFresh(col int) {
	p.fresh, p.freshCol, p.placed = true, col, 0
	p.saved.placed = true
}

// toFresh moves the cursor to an empty last line.
func (p *Plainer) toFresh() {
	placed := p.placed
	p.fresh = false
	p.row = len(p.lines) - 1
	p.col = 0
	wrapped := p.row == 0 && len(p.done) > 0 && p.done[len(p.done)-1] != '\n'
	if wrapped || !p.lines[p.row].empty() {
		p.newline()
	}
	p.placed = placed
}

// control applies a control character.
func (p *Plainer) control(c byte) {
	if p.alt {
		return
	}
	switch c {
	case '\n', '\v', '\f':
		p.newline()
	case '\r':
		p.column(0)
	case '\b':
		p.left(1)
	case '\t': // within a sequence
		p.print("\t")
	}
}

// esc applies an escape sequence without parameters.
func (p *Plainer) esc(cmd ansi.Cmd) {
	if p.alt || cmd.Intermediate() != 0 {
		return
	}
	switch cmd.Final() {
	case 'D', 'E': // IND, NEL
		p.newline()
	case 'M': // RI
		p.vertical(-1)
	case 'c': // RIS
		p.startFresh(0)
	case '7': // DECSC
		p.save()
	case '8': // DECRC
		p.restore()
	}
}

// csi applies a control sequence.
func (p *Plainer) csi(cmd ansi.Cmd, params ansi.Params) {
	if cmd.Prefix() == '?' && cmd.Intermediate() == 0 {
		for _, mode := range params {
			switch mode.Param(0) {
			case 47, 1047, 1049:
				p.alternate(cmd.Final())
			}
		}
		return
	}
	if p.alt || cmd.Prefix() != 0 || cmd.Intermediate() != 0 {
		return
	}
	count := func(i int) int { // a count or a place: from 1 on
		n, _, _ := params.Param(i, 1)
		return min(max(n, 1), 1<<16)
	}
	what, _, _ := params.Param(0, 0)
	switch cmd.Final() {
	case 'A': // CUU
		p.vertical(-count(0))
	case 'B': // CUD
		p.vertical(count(0))
	case 'C': // CUF
		if p.fresh {
			p.column(p.freshCol + count(0))
		} else {
			p.cells()
			p.column(p.col + count(0))
		}
	case 'D': // CUB
		p.left(count(0))
	case 'E': // CNL
		p.column(0)
		p.vertical(count(0))
	case 'F': // CPL
		p.column(0)
		p.vertical(-count(0))
	case 'G', '`': // CHA, HPA
		p.column(count(0) - 1)
	case 'H', 'f': // CUP, HVP
		p.place(count(0), count(1)-1)
	case 'd': // VPA
		p.place(count(0), 0)
	case 'J', 'K', 'P', '@', 'X':
		p.edit(cmd.Final(), what, count(0))
	case 's': // SCOSC
		p.save()
	case 'u': // SCORC
		p.restore()
	}
}

// edit applies a control sequence that changes cells and leaves the cursor
// where it is.
func (p *Plainer) edit(final byte, what, count int) {
	switch {
	case final == 'J' && what >= 2: // ED of all
		p.startFresh(0)
		return
	case p.fresh: // the line is still empty
		return
	}
	switch final {
	case 'J': // ED
		if what == 0 {
			p.eraseLine(0)
			p.drop(p.row + 1)
		}
	case 'K': // EL
		p.eraseLine(what)
	case 'P': // DCH
		p.cells().remove(p.col, count)
	case '@': // ICH
		p.cells().insert(p.col, count)
	case 'X': // ECH
		p.cells().blank(p.col, p.col+count)
	}
}

// alternate applies a set (h) or reset (l) of the alternate screen.
func (p *Plainer) alternate(final byte) {
	switch {
	case final == 'h' && !p.alt:
		if !p.noted {
			p.startFresh(0)
			p.print(ScreenNote)
			p.noted = true
		}
		p.alt = true
	case final == 'l' && p.alt:
		p.alt = false
		p.startFresh(0)
	}
}

// vertical moves the cursor n lines down, or up if n is negative, as far as
// there are lines.
func (p *Plainer) vertical(n int) {
	if p.fresh {
		return // from a place that is not known to one that is not
	}
	if p.col == atEnd {
		p.cells()
	}
	p.placed = 0
	p.row = min(max(p.row+n, p.top()), len(p.lines)-1)
}

// top is the uppermost line that the cursor reaches.
func (p *Plainer) top() int { return max(0, len(p.lines)-rowsKept) }

// left moves the cursor n columns to the left.
func (p *Plainer) left(n int) {
	switch {
	case p.fresh:
		p.column(max(p.freshCol-n, 0))
	case p.col != 0:
		p.cells()
		p.col = max(p.col-n, 0)
	}
}

// column moves the cursor to a column of its line.
func (p *Plainer) column(col int) {
	switch {
	case p.fresh:
		p.freshCol = min(col, columnsMoved)
	case col == 0:
		p.col = 0
	default:
		p.col = min(col, max(len(p.cells().cells), columnsMoved))
	}
}

// place moves the cursor to a place on the screen. Which line that is, is not
// known: only moves along one row stay on a line.
func (p *Plainer) place(row, col int) {
	if row != p.placed {
		p.startFresh(0)
		p.placed = row
	}
	p.column(col)
}

func (p *Plainer) save() {
	if p.col == atEnd {
		p.cells()
	}
	p.saved = position{row: p.row, col: p.col, placed: p.fresh}
}

func (p *Plainer) restore() {
	if p.saved.placed {
		p.startFresh(0)
		return
	}
	p.placed = 0
	p.row = min(max(p.saved.row, p.top()), len(p.lines)-1)
	p.col = p.saved.col
}

// eraseLine erases the cursor's line from the cursor on (0), up to it (1), or
// whole (2). The cursor stays.
func (p *Plainer) eraseLine(what int) {
	l := &p.lines[p.row]
	switch {
	case what == 0 && p.col == 0:
		l.reset()
		l.erased = true
	case what == 0 && p.col != atEnd:
		p.cells().truncate(p.col)
	case what == 1:
		p.cells().blank(0, p.col+1)
	case what == 2:
		p.cells()
		l.reset()
		l.erased = true
	}
}

// drop erases all lines but the first n.
func (p *Plainer) drop(n int) {
	for i := n; i < len(p.lines); i++ {
		p.lines[i].reset()
	}
	p.lines = p.lines[:n]
}

// valid returns s with a U+FFFD for each byte that is no UTF-8.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/4)
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

// special returns the index of the first control in s, which is valid UTF-8,
// other than tabs and line feeds; len(s) if there is none.
func special(s string) int {
	const ones = 0x0101010101010101
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		del := x ^ ones*0x7f
		// The high bits of x itself, of bytes under 0x20, and of 0x7f.
		if (x|(x-ones*0x20)|(del-ones))&(ones*0x80) == 0 {
			continue
		}
		for j := i; j < i+8; j++ {
			if isSpecial(s, j) {
				return j
			}
		}
	}
	for ; i < len(s); i++ {
		if isSpecial(s, i) {
			return i
		}
	}
	return len(s)
}

func isSpecial(s string, i int) bool {
	switch c := s[i]; {
	case c < ' ':
		return c != '\n' && c != '\t'
	case c < 0x7f:
		return false
	case c == 0xc2: // U+0080 to U+009F: the second byte is there, s is valid
		return s[i+1] < 0xa0
	}
	return s[i] == 0x7f
}
