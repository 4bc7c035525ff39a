package vt

import (
	"bytes"
	"slices"
	"strings"

	"github.com/termbridge/termbridge/internal/text"
)

// Notes stand in a [Text], each on a line of its own, for what a program drew on
// the alternate screen.
type Notes struct {
	Left string // in place of what was there until it was left
	Open string // before what is on it, while it is not left
}

// A Text is a stream as text: what its screen shows, behind all that has left the
// screen at its top. Lines that the screen wrapped are whole, tabs are tabs, and
// nothing that clears the screen takes what was written away. It must not be used
// from two goroutines at once.
type Text struct {
	screen Screen
	main   lines // what has left the main screen
	alt    lines // and the alternate screen, since it was entered
	open   string
	cut    bool // what follows may begin within a sequence
}

// NewText returns an empty Text for a screen of that size. It keeps max bytes or
// more of what has left the screen, the end; 0 is all, but no more than altLimit
// of the alternate screen.
func NewText(rows, cols, max int, notes Notes) *Text {
	t := &Text{open: notes.Open}
	s := &t.screen
	s.text, s.newline = true, true
	s.init(rows, cols)
	t.main = lines{cols: s.cols, max: max, note: notes.Left}
	t.alt = lines{cols: s.cols, max: altLimit}
	if max > 0 {
		t.alt.max = min(max, altLimit)
	}
	s.main.text, s.alt.text = &t.main, &t.alt
	return t
}

const altLimit = 1 << 20

// Write takes the next bytes of the stream.
func (t *Text) Write(p string) {
	if t.cut && p != "" {
		t.cut = false
		p = p[Remnant(p):]
	}
	for len(p) > 0 {
		used, seen := t.bulk(p)
		if used == 0 {
			used = seen + upToLine(p[seen:])
			t.screen.Write(p[:used])
		}
		p = p[used:]
	}
}

// Cut says that output is missing here, for which mark is written: a sequence that
// is not over will not be, and what follows may begin within one.
func (t *Text) Cut(mark string) {
	t.Write(text.Cancel + mark)
	t.cut = true
}

// slowStep is how much is written to the screen before bulk is tried again.
const slowStep = 4 << 10

// upToLine returns how many bytes of p make about slowStep, up to the end of a
// line if there is one.
func upToLine(p string) int {
	if len(p) <= slowStep {
		return len(p)
	}
	if i := strings.LastIndexByte(p[:slowStep], '\n'); i >= 0 {
		return i + 1
	}
	return slowStep
}

// bulkWindow bounds what bulk looks at for nothing.
const bulkWindow = 64 << 10

// bulk takes lines of plain text that nothing can change any more, since those
// that follow fill the screen. It does what writing them to the screen does,
// many times as fast. It returns how many bytes it took, and how many it has
// looked at.
func (t *Text) bulk(p string) (used, seen int) {
	s := &t.screen
	if len(p) < 2*s.rows || !s.fresh() {
		return 0, 0
	}
	seen = plain(p[:min(len(p), bulkWindow)])
	used = seen
	for range s.rows {
		if used = strings.LastIndexByte(p[:used], '\n'); used < 0 {
			return 0, seen
		}
	}
	used++
	for _, r := range s.main.rows[:s.cur.y] {
		t.main.push(r)
		r.clear()
	}
	t.main.end()
	t.main.b = appendPlain(t.main.b, p[:used])
	t.main.trim()
	s.cur.y = 0
	s.read += int64(used)
	return used, used
}

// fresh reports whether plain text would only fill rows that are blank.
func (s *Screen) fresh() bool {
	c := &s.cur
	if s.state != Ground || s.carry != "" || s.on != &s.main || c.x != 0 || c.pending ||
		c.single != 0 || c.sets[c.set] != 0 || s.modes.Has(noWrap) ||
		s.main.top != 0 || s.main.bottom != s.rows-1 || s.main.last() >= c.y {
		return false
	}
	for _, r := range s.main.rows[c.y:] {
		if r.wrapped || r.note != 0 || len(r.marks) > 0 {
			return false
		}
	}
	return true
}

// String returns the text so far. No line end is added to its last line.
func (t *Text) String() string {
	s := &t.screen
	shown := t.main
	shown.b, shown.max = nil, 0
	if s.on == &s.main {
		shown.screen(&s.main, s.cur.y)
		return join(t.main.b, shown.b)
	}
	shown.screen(&s.main, s.left.y)
	if !endsLine(t.main.b, shown.b) {
		shown.b = append(shown.b, '\n')
	}
	alt := t.alt
	alt.b, alt.max = nil, 0
	alt.screen(&s.alt, s.cur.y)
	left := bytes.TrimLeft(t.alt.b, "\n")
	if len(left) == 0 {
		alt.b = bytes.TrimLeft(alt.b, "\n")
	}
	if len(left)+len(alt.b) == 0 {
		return join(t.main.b, shown.b, []byte(shown.note))
	}
	return join(t.main.b, shown.b, []byte(t.open), []byte{'\n'}, left, alt.b)
}

// endsLine reports whether no text stands behind the last line end of the parts.
func endsLine(parts ...[]byte) bool {
	for _, p := range slices.Backward(parts) {
		if len(p) > 0 {
			return p[len(p)-1] == '\n'
		}
	}
	return true
}

func join(parts ...[]byte) string {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	var b strings.Builder
	b.Grow(size)
	for _, p := range parts {
		b.Write(p)
	}
	return b.String()
}

// lines are the text of rows.
type lines struct {
	b    []byte
	cols int
	max  int    // bytes that are kept; 0 is all
	note string // what stands for an alternate screen

	open    bool // b ends in a line that may go on
	width   int  // columns of its last row
	due     bool // a note follows it
	cleared bool // it was cleared from the screen, so that the next row is no row behind it
}

// push appends r, on the line of the row before if it goes on where that ended.
func (l *lines) push(r *row) {
	if r.wrapped && l.open && r.note&noteBefore == 0 {
		pad := l.cols - l.width
		if pad == 1 && r.at(1) == wideTail {
			pad = 0 // it did not fit there
		}
		for range pad {
			l.b = append(l.b, ' ')
		}
	} else {
		l.end()
	}
	if r.note&noteBefore != 0 {
		l.b = append(append(l.b, l.note...), '\n')
	}
	l.b = r.append(l.b)
	l.open, l.width, l.cleared = true, r.length(), false
	l.due = l.due || r.note&noteAfter != 0
}

// end ends the line that b ends in.
func (l *lines) end() {
	if !l.open {
		return
	}
	l.b = append(l.b, '\n')
	if l.due {
		l.b = append(append(l.b, l.note...), '\n')
	}
	l.open, l.due = false, false
	l.trim()
}

// trim drops what is over max, now and then.
func (l *lines) trim() {
	if l.max > 0 && len(l.b) > 2*l.max {
		l.b = append(l.b[:0], text.Tail(l.b, l.max)...)
	}
}

// clear forgets the lines.
func (l *lines) clear() { *l = lines{b: l.b[:0], cols: l.cols, max: l.max, note: l.note} }

// screen appends the rows of g, up to the last that is not empty or to row y if
// that is further down.
func (l *lines) screen(g *grid, y int) {
	last := max(g.last(), y)
	if l.cleared && last == 0 && g.rows[0].empty() {
		return
	}
	for _, r := range g.rows[:last+1] {
		l.push(r)
	}
	switch r := g.rows[last]; {
	case l.due:
		l.b = append(append(l.b, '\n'), l.note...)
	case r.note&noteBefore != 0 && r.empty():
		l.b = l.b[:len(l.b)-1] // nothing has followed the note
	}
}

// note puts the note of an alternate screen that was entered at the cursor before
// the row there if the cursor is at its start, else behind its line.
func (g *grid) note(y, x int) {
	if r := g.rows[y]; x == 0 && !r.wrapped {
		r.note |= noteBefore
	} else {
		r.note |= noteAfter
	}
}
