package vt

import "fmt"

// Screen returns the screen of t.
func (t *Text) Screen() *Screen { return &t.screen }

// Check returns what is wrong with the cells of s, if anything is.
func (s *Screen) Check() error {
	if c := s.cur; c.x < 0 || c.x >= s.cols || c.y < 0 || c.y >= s.rows || c.pending && c.x != s.cols-1 {
		return fmt.Errorf("the cursor is at %d, %d (pending: %v) on %d×%d", c.y, c.x, c.pending, s.rows, s.cols)
	}
	for _, g := range []*grid{&s.main, &s.alt} {
		if g.rows == nil {
			continue
		}
		if len(g.rows) != s.rows || g.top < 0 || g.top > g.bottom || g.bottom >= s.rows {
			return fmt.Errorf("%d rows, of which %d to %d scroll, on %d×%d", len(g.rows), g.top, g.bottom, s.rows, s.cols)
		}
		for y, r := range g.rows {
			if len(r.cells) > s.cols {
				return fmt.Errorf("row %d has %d of %d columns", y, len(r.cells), s.cols)
			}
			for x, c := range r.cells {
				switch {
				case c.r == tabTail && (x == 0 || r.cells[x-1].r != tabTail && r.cells[x-1].r != '\t'),
					c.r == wideTail && (x == 0 || width(r.cells[x-1].r) != 2),
					c.r > ' ' && width(c.r) == 2 && r.at(x+1) != wideTail:
					return fmt.Errorf("row %d is torn at column %d: %v", y, x, r.cells)
				}
			}
			for x, m := range r.marks {
				if x >= len(r.cells) || len(m) > markLimit || x >= 0 && r.cells[x].r < 0 {
					return fmt.Errorf("row %d: %q belongs to column %d of %d", y, m, x, len(r.cells))
				}
			}
		}
	}
	return nil
}
