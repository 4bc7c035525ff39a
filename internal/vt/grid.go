package vt

// A grid is one of the two screens of a terminal.
type grid struct {
	rows        []*row
	cols        int
	top, bottom int // the first and the last row of the region that scrolls
	saved       cursor
	isSaved     bool // else saved is the place that the cursor began at
	partial     bool // output was lost, and it has not been cleared since

	// What leaves the grid at its top goes to one of these; both may be nil.
	text    *lines
	history *history
}

// init makes the grid one of blank rows. It keeps the saved cursor, and
// what has left it.
func (g *grid) init(rows, cols int) {
	g.cols = cols
	block := make([]row, rows)
	g.rows = make([]*row, rows)
	for i := range block {
		g.rows[i] = &block[i]
	}
	g.top, g.bottom = 0, rows-1
}

// clear makes all rows blank, and lets all of them scroll.
func (g *grid) clear(a attr) {
	for _, r := range g.rows {
		g.reset(r, a)
	}
	g.top, g.bottom = 0, len(g.rows)-1
	g.partial = false
}

// reset makes r, one of the rows, blank with the background of a.
func (g *grid) reset(r *row, a attr) {
	r.clear()
	r.erase(0, g.cols, a)
}

// last returns the last row that is not empty, or -1.
func (g *grid) last() int {
	y := len(g.rows) - 1
	for y >= 0 && g.rows[y].empty() {
		y--
	}
	return y
}

// scrollUp moves the rows from one to another up by n, and adds blank ones below.
// With keep set, what leaves the grid at its top is kept.
func (g *grid) scrollUp(top, bottom, n int, keep bool, a attr) {
	for range min(n, bottom-top+1) {
		r := g.rows[top]
		if keep && top == 0 {
			r = g.leave(r)
		}
		copy(g.rows[top:bottom], g.rows[top+1:bottom+1])
		g.rows[bottom] = r
		g.reset(r, a)
	}
}

// leave keeps r, and returns a row to be used in its place.
func (g *grid) leave(r *row) *row {
	switch {
	case g.text != nil:
		g.text.push(r)
	case g.history != nil:
		return g.history.push(r)
	}
	return r
}

// scrollDown moves the rows from one to another down by n, and adds blank ones
// above.
func (g *grid) scrollDown(top, bottom, n int, a attr) {
	for range min(n, bottom-top+1) {
		r := g.rows[bottom]
		copy(g.rows[top+1:bottom+1], g.rows[top:bottom])
		g.rows[top] = r
		g.reset(r, a)
	}
}
