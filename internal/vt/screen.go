package vt

import (
	"time"
	"unicode/utf8"

	"github.com/termbridge/termbridge/internal/text"
)

// A Screen is the screen of a terminal that is fed a stream of bytes and never
// answers. It must not be used from two goroutines at once.
type Screen struct {
	rows, cols int
	text       bool // it is that of a [Text]
	newline    bool // LF returns the carriage on the main screen

	main, alt grid
	on        *grid // one of them
	cur       cursor
	left      cursor // where it was when the alternate screen was entered
	modes     Modes
	console   console
	tabs      []bool // stops by column; nil is each eighth
	last      rune   // what REP repeats, if nothing came between
	title     string
	titles    []string // those that were put away

	state  State
	params params
	inter  byte   // the intermediate byte, or many if there are more
	prefix byte   // the private one, <, =, > or ?
	osc    []byte // the text of an operating system command
	carry  string // the start of a rune whose end is still to come

	read   int64 // bytes that were taken
	placed int64 // how many when the cursor was last placed by row and column
	repeat credit
}

// A cursor is where the next character goes, and how.
type cursor struct {
	x, y    int
	pending bool // the last column was written: the next character wraps first
	attr    attr
	origin  bool    // rows count from the top of the region
	sets    [4]byte // G0 to G3: 0 is ASCII, '0' line drawing, 'A' British
	set     int     // which of them is in use
	single  int     // which of them is for the next character; 0 none
}

// Modes are a set of what programs switch on and off.
type Modes uint8

const (
	CursorHidden Modes = 1 << iota
	AppCursor          // the arrow keys send ESC O and a letter
	Paste              // pasted text stands in brackets
	Mouse              // clicks are reported
	Synchronized       // an update is under way: the screen is not whole
	noWrap
	insert
	newline // LF returns the carriage
)

// Has reports whether all of some modes are on.
func (m Modes) Has(modes Modes) bool { return m&modes == modes }

func (m *Modes) set(modes Modes, on bool) {
	if *m &^= modes; on {
		*m |= modes
	}
}

// A console is what programs switch on and off of a terminal beyond what it shows.
type console struct {
	keypad    bool // its keys send sequences
	focus     bool // focus is reported
	mouse     int  // the mode by which Mouse is on, 0 if that is off
	mouseForm int  // the form of its reports, 0 is the first
	shape     int  // of the cursor (DECSCUSR)
}

// UpdateBound is how long an update that a program has begun, and not ended, may keep
// its screen from being shown.
const UpdateBound = time.Second

// Bounds of a screen.
const (
	minCols    = 2 // for a wide character
	maxSize    = 1000
	titleLimit = 4 << 10 // bytes of an operating system command
	titleStack = 10
	many       = 0xff
)

// New returns a blank screen of that size, or of the nearest from 1×2 to
// 1000×1000. With newline set, LF also returns the carriage on the main screen,
// as for programs whose terminal does not put CR before it; on the alternate
// screen it never does, since programs that use that move the cursor by LF.
func New(rows, cols int, newline bool) *Screen {
	s := &Screen{newline: newline}
	s.init(rows, cols)
	s.main.history = &history{}
	return s
}

func (s *Screen) init(rows, cols int) {
	s.size(rows, cols)
	s.on = &s.main
	s.main.init(s.rows, s.cols)
}

func (s *Screen) size(rows, cols int) {
	s.rows, s.cols = min(max(rows, 1), maxSize), min(max(cols, minCols), maxSize)
}

// Size returns the size.
func (s *Screen) Size() (rows, cols int) { return s.rows, s.cols }

// Line returns the text of a row, without the blanks at its end.
func (s *Screen) Line(y int) string { return string(s.on.rows[y].append(nil)) }

// Text returns the text of what the screen shows, without the blanks at the ends of
// rows. A line that was wrapped is one line.
func (s *Screen) Text() string {
	l := lines{cols: s.cols}
	l.screen(s.on, 0)
	return string(l.b)
}

// Slice returns the text of some columns of a row. Blanks are spaces, and a wide
// character belongs to its first column.
func (s *Screen) Slice(y, from, to int) string {
	r := s.on.rows[y].part(min(from, len(s.on.rows[y].cells)), min(to, len(s.on.rows[y].cells)))
	b := r.append(nil)
	for range to - from - r.length() {
		b = append(b, ' ')
	}
	return string(b)
}

// A Span is some columns of a row, From to To.
type Span struct{ Row, From, To int }

// Highlights returns the text that stands out, by rows: that whose background is
// not the one of most text on the screen. A menu shows by it what is chosen.
func (s *Screen) Highlights() []Span {
	most := s.paper()
	var spans []Span
	for y, r := range s.on.rows {
		for x := 0; x < len(r.cells); {
			from, to := x, x // of the text in a run of one background
			p := r.cells[x].attr.paper()
			for ; x < len(r.cells) && r.cells[x].attr.paper() == p; x++ {
				switch {
				case r.cells[x].isSpace():
				case from == to:
					from, to = x, x+1
				default:
					to = x + 1
				}
			}
			if p != most && from < to {
				spans = append(spans, Span{y, from, to})
			}
		}
	}
	return spans
}

// paper returns the background of most of the text.
func (s *Screen) paper() (most attr) {
	count := make(map[attr]int)
	for _, r := range s.on.rows {
		for _, c := range r.cells {
			if !c.isSpace() {
				count[c.attr.paper()]++
			}
		}
	}
	for p, n := range count {
		if n > count[most] || n == count[most] && p < most {
			most = p
		}
	}
	return most
}

// Lost says that output is missing here: what the screen shows is not known until
// it is cleared as a whole.
func (s *Screen) Lost() {
	s.Write(text.Cancel)
	s.main.partial, s.alt.partial = true, true
}

// Partial reports whether output was lost of which the screen may show something.
func (s *Screen) Partial() bool { return s.on.partial }

// Cursor returns the row and column of the cursor, and whether the next character
// wraps to the next row first.
func (s *Screen) Cursor() (y, x int, pending bool) { return s.cur.y, s.cur.x, s.cur.pending }

// Modes returns the modes.
func (s *Screen) Modes() Modes { return s.modes }

// Alternate reports whether the alternate screen is on.
func (s *Screen) Alternate() bool { return s.on == &s.alt }

// Title returns the title of the window.
func (s *Screen) Title() string { return s.title }

// Write takes the next bytes of the stream.
func (s *Screen) Write(p string) {
	if s.carry != "" {
		p = s.carry + p
		s.carry = ""
	}
	for len(p) > 0 {
		n := 0
		if s.state == Ground {
			n = printable(p)
		}
		switch {
		case n > 0:
			s.ascii(p[:n])
		case p[0] < utf8.RuneSelf:
			n = 1
			s.byte(p[0])
		case !utf8.FullRuneInString(p):
			s.carry = p
			return
		default:
			var r rune
			r, n = utf8.DecodeRuneInString(p)
			s.rune(r)
		}
		p = p[n:]
		s.read += int64(n)
	}
}

// printable returns how many bytes at the start of p are printable ASCII.
func printable(p string) int {
	for i := range len(p) {
		if p[i]-' ' >= del-' ' {
			return i
		}
	}
	return len(p)
}

// rune takes a character that is not ASCII.
func (s *Screen) rune(r rune) {
	was := s.state
	switch {
	case isC1(r) && !was.inString(): // as ESC and a letter
		s.byte(esc)
		s.byte(byte(r - 0x40))
		return
	case was == oscString && r != st && len(s.osc)+utf8.RuneLen(r) <= titleLimit:
		s.osc = utf8.AppendRune(s.osc, r)
	}
	s.state = was.nextRune(r)
	switch {
	case was.inString() && s.state == Ground:
		s.endString(was)
	case !was.inString(): // a sequence that it breaks is dropped, it is not
		s.print(r)
	}
}

// byte takes an ASCII character that is no plain text: any in a sequence, else a
// control.
func (s *Screen) byte(c byte) {
	was := s.state
	s.state = was.next(c)
	switch {
	case was.inString():
		if s.state == was {
			if was == oscString && c >= ' ' && len(s.osc) < titleLimit {
				s.osc = append(s.osc, c)
			}
			return
		}
		if c != can && c != sub {
			s.endString(was)
		}
		s.begin()
	case c == esc:
		s.begin()
	case c < ' ':
		s.control(c)
	case c == del:
	case was == escape || was == escapeInter:
		switch s.state {
		case escapeInter:
			s.collect(c)
		case Ground:
			s.escape(c)
		}
	case was == csiIgnore:
	case s.state == csiInter:
		s.collect(c)
	case s.state == csiParam:
		if c >= '<' {
			s.prefix = c
		} else {
			s.params.add(c)
		}
	case s.state == Ground:
		s.csi(c)
	}
}

// begin forgets the sequence before.
func (s *Screen) begin() {
	s.params = params{n: 1}
	s.inter, s.prefix = 0, 0
	s.osc = s.osc[:0]
}

func (s *Screen) collect(c byte) {
	if s.inter != 0 {
		c = many
	}
	s.inter = c
}

// params are the parameters of a control sequence.
type params struct {
	v   [32]int32
	n   int    // how many there are; those over are dropped
	sub uint32 // those that belong to the parameter before them: a bit each

	full bool // there are more
}

const maxParam = 99_999

// add takes a digit, ';' or ':'.
func (p *params) add(c byte) {
	switch {
	case p.full:
	case c >= '0' && c <= '9':
		p.v[p.n-1] = min(p.v[p.n-1]*10+int32(c-'0'), maxParam)
	case p.n == len(p.v):
		p.full = true
	default:
		if c == ':' {
			p.sub |= 1 << p.n
		}
		p.n++
	}
}

func (p *params) isSub(i int) bool { return p.sub&(1<<i) != 0 }

// arg returns parameter i, or def if it is missing or zero.
func (p *params) arg(i, def int) int {
	for at := range p.n {
		if p.isSub(at) {
			continue
		}
		if i == 0 {
			if v := int(p.v[at]); v != 0 {
				return v
			}
			break
		}
		i--
	}
	return def
}

// each calls f for each parameter.
func (p *params) each(f func(int)) {
	for i := range p.n {
		if !p.isSub(i) {
			f(int(p.v[i]))
		}
	}
}

// ascii prints printable ASCII.
func (s *Screen) ascii(p string) {
	c := &s.cur
	if s.modes.Has(insert) || c.single != 0 || c.sets[c.set] != 0 {
		for _, r := range p {
			s.print(r)
		}
		return
	}
	s.last = rune(p[len(p)-1])
	for len(p) > 0 {
		if c.pending {
			s.wrap()
		}
		n := min(len(p), s.cols-c.x)
		for i, cells := 0, s.on.rows[c.y].over(c.x, n); i < n; i++ {
			cells[i] = cell{rune(p[i]), c.attr}
		}
		p = p[n:]
		s.advance(n)
	}
}

// advance moves the cursor behind n columns that were written.
func (s *Screen) advance(n int) {
	s.cur.x += n
	if s.cur.x >= s.cols {
		s.cur.x = s.cols - 1
		s.cur.pending = true
	}
}

// wrap moves the cursor of a full row to the start of the next, or to the last
// column if rows do not wrap.
func (s *Screen) wrap() {
	s.cur.pending = false
	if s.modes.Has(noWrap) {
		return
	}
	s.cur.x = 0
	s.index()
	s.on.rows[s.cur.y].wrapped = true
}

// print prints a character.
func (s *Screen) print(r rune) {
	r = s.translate(r)
	w := width(r)
	if w == 0 {
		s.mark(r)
		return
	}
	s.last = r
	c := &s.cur
	if c.pending {
		s.wrap()
	}
	if w == 2 && c.x == s.cols-1 {
		if s.modes.Has(noWrap) {
			return
		}
		s.on.rows[c.y].erase(c.x, s.cols, c.attr)
		s.wrap()
	}
	row := s.on.rows[c.y]
	if s.modes.Has(insert) {
		row.insert(c.x, w, s.cols, c.attr)
	}
	cells := row.over(c.x, w)
	cells[0] = cell{r, c.attr}
	if w == 2 {
		cells[1] = cell{wideTail, c.attr}
	}
	s.advance(w)
}

// mark adds a combining character to the character before the cursor.
func (s *Screen) mark(r rune) {
	x := s.cur.x
	if s.cur.pending {
		x++
	}
	s.on.rows[s.cur.y].mark(x, r)
}

// drawing is the set of line drawing characters, from '`' on.
var drawing = []rune("◆▒␉␌␍␊°±\u2424\u240b┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")

// translate returns what r stands for in the character set in use.
func (s *Screen) translate(r rune) rune {
	c := &s.cur
	if r >= del {
		return r
	}
	set := c.sets[c.set]
	if c.single != 0 {
		set, c.single = c.sets[c.single], 0
	}
	switch {
	case set == '0' && r >= '`':
		return drawing[r-'`']
	case set == 'A' && r == '#':
		return '£'
	}
	return r
}

// A credit bounds what REP writes by what was read, since a few bytes of it ask
// for a whole screen.
type credit struct{ spent int64 }

// creditPerByte is how many cells a byte of the stream pays for.
const creditPerByte = 16

// take returns how many of n cells may be written when so much was read: at most
// a screen of that many cells, and that again only for as many bytes.
func (c *credit) take(n, screen int, read int64) int {
	earned := read * creditPerByte
	c.spent = max(c.spent, earned)
	n = int(min(int64(n), earned+int64(screen)-c.spent))
	c.spent += int64(n)
	return n
}
