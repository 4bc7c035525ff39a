package vt

import (
	"fmt"
	"strings"
)

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

// Differs returns in what s and other differ, of what Paint carries over.
func (s *Screen) Differs(other *Screen) string {
	grids := func(s *Screen) []*grid {
		if s.on == &s.alt {
			return []*grid{&s.main, &s.alt}
		}
		return []*grid{&s.main}
	}
	switch {
	case s.Alternate() != other.Alternate():
		return "the alternate screen"
	case s.cur != other.cur:
		return fmt.Sprintf("the cursor: %+v, %+v", s.cur, other.cur)
	case s.modes != other.modes || s.console != other.console:
		return fmt.Sprintf("modes: %+v %+v, %+v %+v", s.modes, s.console, other.modes, other.console)
	case s.title != other.title:
		return fmt.Sprintf("the title: %q, %q", s.title, other.title)
	}
	for i, g := range grids(s) {
		o := grids(other)[i]
		if g.top != o.top || g.bottom != o.bottom {
			return fmt.Sprintf("the region of screen %d: %d to %d, %d to %d", i, g.top, g.bottom, o.top, o.bottom)
		}
		if g.isSaved && g.saved.without() != o.saved.without() {
			return fmt.Sprintf("the saved cursor of screen %d: %+v, %+v", i, g.saved, o.saved)
		}
		for y, r := range g.rows {
			for x := range s.cols {
				if a, b := r.look(x), o.rows[y].look(x); a != b {
					return fmt.Sprintf("row %d, column %d of screen %d: %s, %s", y, x, i, a, b)
				}
			}
		}
	}
	for x := range s.cols {
		if s.isTab(x) != other.isTab(x) {
			return fmt.Sprintf("the tab stop at %d", x)
		}
	}
	return ""
}

// without returns the cursor without what is not saved for long.
func (c cursor) without() cursor {
	c.single, c.pending = 0, false // restore clears it
	return c
}

func (r *row) look(x int) string {
	var c cell
	if x < len(r.cells) {
		c = r.cells[x]
	}
	text := string(c.r) + r.marks[x]
	if c.isSpace() || c.r > 0 && width(c.r) == 0 {
		text = " " + strings.Trim(text, "\x00 ")
	}
	return fmt.Sprintf("%q with %x", text, uint32(c.attr))
}
