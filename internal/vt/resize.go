package vt

import "slices"

// A history is the rows that have left a screen at its top, as many as a taller
// one takes back.
type history struct {
	rows []*row // a ring, once it is full
	at   int    // where it begins
}

const historyRows = 200

// push keeps r, and returns a row to be used again.
func (h *history) push(r *row) *row {
	if len(h.rows) < historyRows {
		h.rows = append(h.rows, r)
		return &row{}
	}
	r, h.rows[h.at] = h.rows[h.at], r
	h.at = (h.at + 1) % historyRows
	return r
}

func (h *history) clear() { h.rows, h.at = nil, 0 }

// take returns the rows, the oldest first, and forgets them.
func (h *history) take() []*row {
	rows := slices.Concat(h.rows[h.at:], h.rows[:h.at])
	h.clear()
	return rows
}

// Resize sets the size, as [New] does. Lines of the main screen are wrapped anew,
// but for the one that the cursor is in: its program draws it again. The
// alternate screen is cut or grows: its program draws it all again.
func (s *Screen) Resize(rows, cols int) {
	oldRows, oldCols := s.rows, s.cols
	if s.size(rows, cols); s.rows == oldRows && s.cols == oldCols {
		return
	}
	cur, h := &s.cur, s.main.history
	if s.on == &s.alt {
		cur = &s.left
	}
	l := layout{rows: h.take(), y: cur.y}
	l.base = len(l.rows)
	l.saved = l.base + s.main.saved.y
	l.rows = append(l.rows, s.main.rows...)
	l.setHeight(oldRows, s.rows)
	switch {
	case s.cols > oldCols:
		l.widen(oldCols, s.cols, s.rows)
	case s.cols < oldCols:
		l.narrow(oldCols, s.cols, s.rows)
	}
	for _, r := range l.rows[:l.base] {
		h.push(r)
	}
	s.main.fit(l.rows[l.base:], s.rows, s.cols)
	s.main.saved.fit(l.saved-l.base, s.rows, s.cols)
	cur.fit(l.y, s.rows, s.cols)

	s.alt.saved.fit(s.alt.saved.y, s.rows, s.cols)
	if s.on == &s.main {
		s.alt.rows = nil // it is blank, and made anew when it is entered
		return
	}
	l = layout{rows: s.alt.rows, y: s.cur.y}
	l.setHeight(oldRows, s.rows)
	s.alt.fit(l.rows[l.base:], s.rows, s.cols)
	s.cur.fit(l.y, s.rows, s.cols)
}

// fit makes rows those of the grid.
func (g *grid) fit(rows []*row, n, cols int) {
	for len(rows) < n {
		rows = append(rows, &row{})
	}
	g.rows, g.cols = slices.Clone(rows[:n]), cols
	for _, r := range g.rows {
		if len(r.cells) > cols {
			r.erase(cols, len(r.cells), 0)
		}
	}
	g.top, g.bottom = 0, n-1
}

// fit moves the cursor to row y.
func (c *cursor) fit(y, rows, cols int) {
	if c.pending {
		c.x++ // there may be room now
	}
	c.y, c.x, c.pending = min(max(y, 0), rows-1), min(c.x, cols-1), false
}

// A layout is a screen with what is above it, while its size changes.
type layout struct {
	rows  []*row
	base  int // the first row of the screen
	y     int // the row of the cursor on it
	saved int // the row of the saved cursor, of all
}

// setHeight takes rows back from above, or adds some below, or removes some below
// the cursor, or else at the top.
func (l *layout) setHeight(old, rows int) {
	for range rows - old {
		if l.base > 0 && len(l.rows) == l.base+l.y+1 {
			l.base--
			l.y++
		} else {
			l.rows = append(l.rows, &row{})
		}
	}
	for range old - rows {
		if len(l.rows) > l.base+l.y+1 {
			l.rows = l.rows[:len(l.rows)-1]
		} else {
			l.base++
			l.y--
		}
	}
}

// widen wraps lines that had several rows anew.
func (l *layout) widen(old, cols, rows int) {
	removed := 0
	var all []*row
	for start, line := range l.lines() {
		if len(line) == 1 || l.hasCursor(start, line) {
			all = append(all, line...)
			continue
		}
		now := wrapAnew(line, old, cols)
		removed += len(line) - len(now)
		all = append(all, now...)
	}
	l.rows = all
	for range removed {
		if l.base > 0 {
			l.base--
			continue
		}
		l.y = max(l.y-1, 0)
		if len(l.rows) < rows {
			l.rows = append(l.rows, &row{})
		}
	}
	l.saved = max(l.saved-removed, 0)
}

// narrow wraps lines that are too long anew. The new rows push the screen down as
// far as there is room below the cursor, then what is above it up.
func (l *layout) narrow(old, cols, rows int) {
	var parts [][]*row
	added, spare := 0, 0
	starts, lines := []int{}, [][]*row{}
	for start, line := range l.lines() {
		starts, lines = append(starts, start), append(lines, line)
	}
	for i, line := range slices.Backward(lines) {
		if len(line) == 1 && line[0].length() <= cols || l.hasCursor(starts[i], line) {
			parts = append(parts, line)
			continue
		}
		now := wrapAnew(line, old, cols)
		parts = append(parts, now)
		more := len(now) - len(line)
		added += more
		for range more {
			switch {
			case l.base == 0 && l.y < rows-1:
				l.y++
				spare++
			case l.base == 0 || l.base < len(l.rows)-spare+added-rows:
				l.base++
			}
		}
		l.saved = min(l.saved+more, l.base+rows-1)
	}
	slices.Reverse(parts)
	l.rows = slices.Concat(parts...)
	l.rows = l.rows[:len(l.rows)-spare]
}

// lines yields the lines with the numbers of their first rows.
func (l *layout) lines() func(yield func(int, []*row) bool) {
	return func(yield func(int, []*row) bool) {
		for i := 0; i < len(l.rows); {
			j := i + 1
			for j < len(l.rows) && l.rows[j].wrapped {
				j++
			}
			if !yield(i, l.rows[i:j]) {
				return
			}
			i = j
		}
	}
}

// hasCursor reports whether the cursor is in the line that begins with row start.
func (l *layout) hasCursor(start int, line []*row) bool {
	y := l.base + l.y
	return start <= y && y < start+len(line)
}

// wrapAnew returns the rows of a line for another width.
func wrapAnew(line []*row, old, cols int) []*row {
	var all row
	for i, r := range line {
		end := old
		switch {
		case i == len(line)-1:
			end = r.length()
		case r.at(old-1) == blank && line[i+1].at(1) == wideTail:
			end-- // a wide character did not fit
		}
		all.append2(r, end)
	}
	var rows []*row
	for from := 0; from == 0 || from < len(all.cells); {
		to := min(from+cols, len(all.cells))
		if all.at(to) == wideTail {
			to--
		}
		r := all.part(from, to)
		r.wrapped = from > 0 || line[0].wrapped
		rows = append(rows, r)
		from = max(to, 1)
	}
	return rows
}

// append2 appends the first n cells of r.
func (r *row) append2(other *row, n int) {
	at := len(r.cells)
	r.grow(at + n)
	copy(r.cells[at:], other.cells[:min(n, len(other.cells))])
	for x, m := range other.marks {
		if x < n {
			r.setMarks(at+x, m)
		}
	}
}

// part returns a row of some cells of r.
func (r *row) part(from, to int) *row {
	p := &row{cells: slices.Clone(r.cells[from:to])}
	for x, m := range r.marks {
		if from <= x && x < to {
			p.setMarks(x-from, m)
		}
	}
	return p
}

func (r *row) setMarks(x int, m string) {
	if r.marks == nil {
		r.marks = make(map[int]string)
	}
	r.marks[x] = m
}
