package vt

import (
	"slices"
	"unicode/utf8"
)

// A cell is one column of a row.
type cell struct {
	r    rune // the character, or one of the following
	attr attr
}

// What else a cell can hold.
const (
	blank    = 0  // nothing was written there, or it was erased
	wideTail = -1 // it belongs to the wide character before it
	tabTail  = -2 // it belongs to the tab before it
)

// isSpace reports whether there is nothing to be seen in the cell.
func (c cell) isSpace() bool { return c.r == blank || c.r == ' ' }

// markLimit is how many bytes of combining characters a cell holds.
const markLimit = 64

// A row is a row of a screen.
type row struct {
	cells   []cell         // as many as were written; the rest is blank
	marks   map[int]string // combining characters by column; -1 are those before the first
	wrapped bool           // it goes on where the row above ended
	note    note
}

// A note says where a [Note] stands in the text of a row.
type note uint8

const (
	noteBefore note = 1 << iota // before the row
	noteAfter                   // behind the line that the row is in
)

// clear empties the row, which keeps its memory.
func (r *row) clear() {
	r.cells = r.cells[:0]
	r.marks, r.wrapped, r.note = nil, false, 0
}

// empty reports whether nothing is written in the row.
func (r *row) empty() bool { return r.length() == 0 }

// length returns how many columns there are up to the last that is not blank.
func (r *row) length() int {
	n := len(r.cells)
	for n > 0 && r.cells[n-1].r == blank {
		n--
	}
	return n
}

// at returns the character in column x.
func (r *row) at(x int) rune {
	if x < len(r.cells) {
		return r.cells[x].r
	}
	return blank
}

// grow makes the row at least n cells long.
func (r *row) grow(n int) {
	if have := len(r.cells); have < n {
		r.cells = slices.Grow(r.cells, n-have)[:n]
		clear(r.cells[have:])
	}
}

// head returns the first column of the character in column x.
func (r *row) head(x int) int {
	for x > 0 && r.at(x) < 0 {
		x--
	}
	return x
}

// cut makes sure that no character lies on both sides of column x: one that does
// is erased.
func (r *row) cut(x int) {
	if r.at(x) >= 0 {
		return
	}
	from, to := r.head(x), x
	for r.at(to) < 0 {
		to++
	}
	for i := from; i < to; i++ {
		r.cells[i].r = blank
	}
	delete(r.marks, from)
}

// over returns the n cells from column x on, to be written over, all of them.
func (r *row) over(x, n int) []cell {
	if x < len(r.cells) {
		r.cut(x)
		r.cut(x + n)
		r.unmark(x, x+n)
	}
	r.grow(x + n)
	return r.cells[x : x+n]
}

// unmark removes the combining characters of some columns.
func (r *row) unmark(from, to int) {
	for x := range r.marks {
		if from <= x && x < to {
			delete(r.marks, x)
		}
	}
}

// erase blanks the cells from one column to another, which get the background
// of a.
func (r *row) erase(from, to int, a attr) {
	if from == 0 {
		delete(r.marks, -1)
	}
	a = a.background()
	if from >= to || a == 0 && from >= len(r.cells) {
		return
	}
	if a == 0 && to >= len(r.cells) {
		r.cut(from)
		r.unmark(from, to)
		r.cells = r.cells[:from]
		return
	}
	cells := r.over(from, to-from)
	for i := range cells {
		cells[i] = cell{attr: a}
	}
}

// insert puts n blank cells in at column x; what is pushed over the last of cols
// columns is lost.
func (r *row) insert(x, n, cols int, a attr) {
	n = min(n, cols-x)
	if x < len(r.cells) {
		r.cut(x)
		r.cut(cols - n)
		r.shift(x, n, cols)
		end := min(len(r.cells)+n, cols)
		r.grow(end)
		copy(r.cells[x+n:], r.cells[x:end-n])
		clear(r.cells[x:min(x+n, end)])
	}
	if a.background() != 0 {
		r.erase(x, x+n, a)
	}
}

// remove takes n cells out at column x; what follows of the cols columns moves to
// the left.
func (r *row) remove(x, n, cols int, a attr) {
	n = min(n, cols-x)
	if x < len(r.cells) {
		r.cut(x)
		r.cut(x + n)
		r.shift(x, -n, cols)
		r.cells = slices.Delete(r.cells, x, min(x+n, len(r.cells)))
	}
	r.erase(cols-n, cols, a)
}

// shift moves the combining characters from column x on by n columns, and
// removes those that leave the columns x to cols.
func (r *row) shift(x, n, cols int) {
	if r.marks == nil {
		return
	}
	moved := make(map[int]string, len(r.marks))
	for at, m := range r.marks {
		switch to := at + n; {
		case at < x:
			moved[at] = m
		case x <= to && to < cols:
			moved[to] = m
		}
	}
	r.marks = moved
}

// mark adds a combining character to the character that ends before column x. A
// blank there becomes the character.
func (r *row) mark(x int, c rune) {
	x = r.head(x - 1)
	switch {
	case x >= 0 && r.at(x) == blank:
		r.grow(x + 1)
		r.cells[x].r = c
		return
	case len(r.marks[x])+utf8.RuneLen(c) > markLimit:
		return
	case r.marks == nil:
		r.marks = make(map[int]string)
	}
	r.marks[x] += string(c)
}

// tab writes a tab over cells from one column to another that are all blank.
func (r *row) tab(from, to int) {
	for x := from; x < to; x++ {
		if r.at(x) != blank {
			return
		}
	}
	r.grow(to)
	r.cells[from].r = '\t'
	for x := from + 1; x < to; x++ {
		r.cells[x].r = tabTail
	}
}

// append appends the text of the row to b, up to the last column that is not
// blank. Blanks before that are spaces.
func (r *row) append(b []byte) []byte {
	b = append(b, r.marks[-1]...)
	for x, c := range r.cells[:r.length()] {
		switch {
		case c.r == blank:
			b = append(b, ' ')
		case c.r < 0:
			continue
		case c.r < utf8.RuneSelf:
			b = append(b, byte(c.r))
		default:
			b = utf8.AppendRune(b, c.r)
		}
		if r.marks != nil {
			b = append(b, r.marks[x]...)
		}
	}
	return b
}
