package view

import (
	"slices"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// A line is a line of text that can still change. While it is only appended to
// it is bytes; the first other change splits it into cells.
type line struct {
	text    []byte
	cells   []string // one a column; valid if isSplit
	isSplit bool
	erased  bool // as a whole, once
}

// Cells that are not text: one that was never written or was erased, which is
// the zero value, and one that belongs to the wide character or tab before it.
const (
	blankCell = ""
	tailCell  = "\x00"
)

// markLimit is how many bytes of combining characters a cell holds.
const markLimit = 64

// reset empties the line and keeps its memory.
func (l *line) reset() {
	*l = line{text: l.text[:0], cells: l.cells[:0]}
}

func (l *line) empty() bool { return len(l.text) == 0 && len(l.cells) == 0 }

// gone reports whether nothing of the line is left, not even its existence.
func (l *line) gone() bool { return l.erased && l.empty() }

// append appends the text of the line to b, without blank cells at its end.
func (l *line) append(b []byte) []byte {
	if !l.isSplit {
		return append(b, l.text...)
	}
	end := len(l.cells)
	for end > 0 && l.cells[end-1] == blankCell {
		end--
	}
	for _, c := range l.cells[:end] {
		switch c {
		case tailCell:
		case blankCell:
			b = append(b, ' ')
		default:
			b = append(b, c...)
		}
	}
	return b
}

// split turns the bytes of the line into cells.
func (l *line) split() {
	if l.isSplit {
		return
	}
	l.isSplit = true
	col := 0
	for b := l.text; len(b) > 0; {
		r, n := utf8.DecodeRune(b)
		col = l.put(col, r)
		b = b[n:]
	}
	l.text = l.text[:0]
}

// put writes r at a column and returns the column behind it.
func (l *line) put(col int, r rune) int {
	if r == '\t' {
		stop := (col/8 + 1) * 8
		if col < len(l.cells) {
			return stop // a tab moves over cells, it does not clear them
		}
		l.pad(col)
		l.cells = append(l.cells, "\t")
		for len(l.cells) < stop {
			l.cells = append(l.cells, tailCell)
		}
		return stop
	}
	if col < len(l.cells) && l.cells[col] == string(r) { // it stays, as most of a bar does
		for col++; col < len(l.cells) && l.cells[col] == tailCell; {
			col++
		}
		return col
	}
	switch width(r) {
	case 0:
		if head := l.head(col - 1); head >= 0 && len(l.cells[head]) < markLimit {
			l.cells[head] += string(r)
		}
		return col
	case 2:
		l.clear(col)
		l.clear(col + 1)
		l.cells[col], l.cells[col+1] = string(r), tailCell
		return col + 2
	}
	l.clear(col)
	l.cells[col] = string(r)
	return col + 1
}

// pad makes the line n cells long, if it is shorter.
func (l *line) pad(n int) {
	if have := len(l.cells); have < n {
		l.cells = slices.Grow(l.cells, n-have)[:n]
		clear(l.cells[have:])
	}
}

// head returns the cell that holds the character of cell i, or -1.
func (l *line) head(i int) int {
	if i >= len(l.cells) {
		return -1
	}
	for i >= 0 && l.cells[i] == tailCell {
		i--
	}
	if i >= 0 && l.cells[i] == blankCell {
		return -1
	}
	return i
}

// clear makes cell i exist and be a cell of its own: what is left of a wide
// character or tab there becomes spaces.
func (l *line) clear(i int) {
	l.pad(i + 1)
	from, to := i, i+1
	for from > 0 && l.cells[from] == tailCell {
		from--
	}
	for to < len(l.cells) && l.cells[to] == tailCell {
		to++
	}
	if to-from > 1 {
		for j := from; j < to; j++ {
			l.cells[j] = " "
		}
	}
}

// cut makes sure that no character lies on both sides of column i, and returns
// i, or the length of the line if that is less.
func (l *line) cut(i int) int {
	if i < len(l.cells) && l.cells[i] == tailCell {
		l.clear(i)
	}
	return min(i, len(l.cells))
}

// truncate erases from a column on.
func (l *line) truncate(col int) { l.cells = l.cells[:l.cut(col)] }

// blank erases the cells from one column to another.
func (l *line) blank(from, to int) {
	from, to = l.cut(from), l.cut(to)
	clear(l.cells[from:to])
}

// remove takes out n cells; what is behind them moves to the left.
func (l *line) remove(col, n int) {
	from, to := l.cut(col), l.cut(col+n)
	l.cells = slices.Delete(l.cells, from, to)
}

// insert puts in n blank cells; what is behind them moves to the right.
func (l *line) insert(col, n int) {
	if from := l.cut(col); from < len(l.cells) {
		n = min(n, columnsMoved)
		l.cells = slices.Insert(l.cells, from, make([]string, n)...)
		l.truncate(columnsKept)
	}
}

// width returns how many columns a terminal gives to r.
func width(r rune) int {
	if r < 0x300 || 0x2500 <= r && r < 0x25a0 { // what bars are made of, too
		return 1
	}
	return ansi.StringWidthWc(string(r))
}
