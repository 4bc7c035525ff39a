package vt

import (
	"slices"
	"strings"
)

// control applies a control character.
func (s *Screen) control(c byte) {
	s.last = 0
	switch c {
	case '\b':
		s.column(s.cur.x - 1)
	case '\t':
		s.tab()
	case '\n', '\v', '\f':
		s.lineFeed()
	case '\r':
		s.cur.x, s.cur.pending = 0, false
	case 0x0e: // SO
		s.cur.set = 1
	case 0x0f: // SI
		s.cur.set = 0
	}
}

// lineFeed moves the cursor down, and to the start of the row where that is what
// a line feed does.
func (s *Screen) lineFeed() {
	if s.Returns() {
		s.cur.x = 0
	}
	if s.cur.y != s.on.bottom && s.cur.y+1 < s.rows {
		s.on.rows[s.cur.y+1].wrapped = false // its line begins here
	}
	s.index()
}

// index moves the cursor down, and scrolls at the end of the region.
func (s *Screen) index() {
	s.cur.pending = false
	switch {
	case s.cur.y == s.on.bottom:
		s.on.scrollUp(s.on.top, s.on.bottom, 1, true, s.cur.attr)
	case s.cur.y+1 < s.rows:
		s.cur.y++
	}
}

// reverseIndex moves the cursor up, and scrolls at the start of the region.
func (s *Screen) reverseIndex() {
	s.cur.pending = false
	switch {
	case s.cur.y == s.on.top:
		s.on.scrollDown(s.on.top, s.on.bottom, 1, s.cur.attr)
	case s.cur.y > 0:
		s.cur.y--
	}
}

// tab moves the cursor to the next tab stop. In text it is a character, where it
// finds cells for it, and belongs to the character before it at the end of a row.
func (s *Screen) tab() {
	c := &s.cur
	to := c.x
	if !c.pending {
		to = s.nextTab(c.x)
	}
	if s.text {
		row := s.on.rows[c.y]
		switch {
		case to > c.x:
			row.tab(c.x, to)
		case c.pending, row.at(c.x-1) != blank:
			s.mark('\t')
		}
	}
	c.x = to
}

// nextTab returns the tab stop behind column x.
func (s *Screen) nextTab(x int) int {
	for x++; x < s.cols-1 && !s.isTab(x); x++ {
	}
	return min(x, s.cols-1)
}

// tabBefore returns the tab stop before column x.
func (s *Screen) tabBefore(x int) int {
	for x--; x > 0 && !s.isTab(x); x-- {
	}
	return max(x, 0)
}

func (s *Screen) isTab(x int) bool {
	if s.tabs == nil {
		return x%8 == 0
	}
	return s.tabs[x]
}

// setTabs sets or clears the tab stop at column x.
func (s *Screen) setTab(x int, stop bool) {
	if s.tabs == nil {
		s.tabs = make([]bool, maxSize)
		for i := 0; i < maxSize; i += 8 {
			s.tabs[i] = true
		}
	}
	s.tabs[x] = stop
}

// escape applies an escape sequence.
func (s *Screen) escape(c byte) {
	s.last = 0
	switch s.inter {
	case 0:
	case '(', ')', '*', '+', '-', '.':
		s.designate(strings.IndexByte("()*+ -.", s.inter)&3, c)
		return
	case '#':
		if c == '8' {
			s.testPattern()
		}
		return
	case '%': // DOCS
		s.cur.sets, s.cur.set = [4]byte{}, 0
		return
	default:
		return
	}
	switch c {
	case '7': // DECSC
		s.save()
	case '8': // DECRC
		s.restore()
	case 'D': // IND
		s.index()
	case 'E': // NEL
		s.cur.x = 0
		s.index()
	case 'H': // HTS
		if !s.cur.pending {
			s.setTab(s.cur.x, true)
		}
	case 'M': // RI
		s.reverseIndex()
	case 'N', 'O': // SS2, SS3
		s.cur.single = int(c-'N') + 2
	case '=', '>': // DECKPAM, DECKPNM
		s.console.keypad = c == '='
	case 'n', 'o': // LS2, LS3
		s.cur.set = int(c-'n') + 2
	case 'c': // RIS
		s.reset()
	}
}

// designate makes a character set G0 to G3.
func (s *Screen) designate(g int, c byte) {
	if c != '0' && c != 'A' {
		c = 0
	}
	s.cur.sets[g] = c
}

// testPattern is DECALN: it fills the screen with the letter E, which is no text.
func (s *Screen) testPattern() {
	for _, r := range s.on.rows {
		r.clear()
		if s.text {
			continue
		}
		for x := range r.over(0, s.cols) {
			r.cells[x].r = 'E'
		}
	}
	s.place(0, 0)
}

// reset is RIS. What the main screen shows is not lost.
func (s *Screen) reset() {
	s.leaveAlternate()
	s.clearing()
	s.main.clear(0)
	s.main.saved, s.main.isSaved, s.alt.saved = cursor{}, false, cursor{}
	s.cur, s.modes, s.console, s.tabs = cursor{}, 0, console{}, nil
	s.title, s.titles = "", nil
}

// softReset is DECSTR.
func (s *Screen) softReset() {
	s.on.top, s.on.bottom = 0, s.rows-1
	s.on.saved = cursor{}
	s.cur = cursor{x: s.cur.x, y: s.cur.y, pending: s.cur.pending}
	s.modes &= Mouse | newline
	s.console.keypad = false
}

func (s *Screen) save() { s.on.saved, s.on.isSaved = s.cur, true }

func (s *Screen) restore() {
	s.cur = s.on.saved
	s.cur.x, s.cur.y, s.cur.pending = min(s.cur.x, s.cols-1), min(s.cur.y, s.rows-1), false
}

// csi applies a control sequence.
func (s *Screen) csi(c byte) {
	if c != 'b' {
		s.last = 0
	}
	switch {
	case s.prefix == 0 && s.inter == 0:
		s.csiStandard(c)
	case s.prefix == 0:
		s.csiIntermediate(c)
	case s.prefix == '?' && s.inter == 0:
		s.csiPrivate(c)
	}
}

// csiPrivate applies a control sequence of DEC.
func (s *Screen) csiPrivate(c byte) {
	switch c {
	case 'h', 'l':
		s.params.each(func(mode int) { s.privateMode(mode, c == 'h') })
	case 'W': // DECST8C
		if s.params.arg(0, 0) == 5 {
			s.tabs = nil
		}
	case 'J':
		s.eraseDisplay()
	case 'K':
		s.eraseLine()
	}
}

// csiIntermediate applies a control sequence with an intermediate byte.
func (s *Screen) csiIntermediate(c byte) {
	n := s.params.arg(0, 1)
	switch string([]byte{s.inter, c}) {
	case "!p": // DECSTR
		s.softReset()
	case " q": // DECSCUSR
		s.console.shape = s.params.arg(0, 0)
	case " @": // SL
		s.columns(func(r *row) { r.remove(0, n, s.cols, s.cur.attr) })
	case " A": // SR
		s.columns(func(r *row) { r.insert(0, n, s.cols, s.cur.attr) })
	case "'}": // DECIC
		s.columns(func(r *row) { r.insert(s.cur.x, n, s.cols, s.cur.attr) })
	case "'~": // DECDC
		s.columns(func(r *row) { r.remove(s.cur.x, n, s.cols, s.cur.attr) })
	}
}

// columns calls f for the rows of the region if the cursor is in it.
func (s *Screen) columns(f func(*row)) {
	if s.outside() {
		return
	}
	for _, r := range s.on.rows[s.on.top : s.on.bottom+1] {
		f(r)
		r.wrapped = false
	}
}

// outside reports whether the cursor is outside of the region.
func (s *Screen) outside() bool { return s.cur.y < s.on.top || s.cur.y > s.on.bottom }

// csiStandard applies a control sequence that has parameters only.
func (s *Screen) csiStandard(c byte) {
	switch n := s.params.arg(0, 1); c {
	case 'J', 'K', 'L', 'M', '@', 'P', 'X', 'S', 'T', 'b':
		s.csiEdit(c, n)
	case 'g', 'h', 'l', 'm', 'r', 's', 't', 'u':
		s.csiSet(c, n)
	default:
		s.csiMove(c, n)
	}
}

// csiMove moves the cursor.
func (s *Screen) csiMove(c byte, n int) {
	cur := &s.cur
	switch c {
	case 'A': // CUU
		s.up(n)
	case 'B': // CUD
		s.down(n)
	case 'C', 'a': // CUF, HPR
		s.column(cur.x + n)
	case 'D': // CUB
		s.column(cur.x - n)
	case 'E': // CNL
		s.down(n)
		cur.x = 0
	case 'F': // CPL
		s.up(n)
		cur.x = 0
	case 'G', '`': // CHA, HPA
		s.column(n - 1)
	case 'H', 'f': // CUP, HVP
		s.place(n-1, s.params.arg(1, 1)-1)
		s.placed = s.read
	case 'd': // VPA
		s.place(n-1, cur.x)
	case 'e': // VPR
		cur.y, cur.pending = min(cur.y+n, s.rows-1), false
	case 'I': // CHT
		for range min(n, s.cols) {
			if !cur.pending {
				cur.x = s.nextTab(cur.x)
			}
		}
	case 'Z': // CBT
		for range min(n, s.cols) {
			if !cur.pending {
				cur.x = s.tabBefore(cur.x)
			}
		}
	}
}

// csiEdit changes what the screen shows.
func (s *Screen) csiEdit(c byte, n int) {
	cur, row := &s.cur, s.on.rows[s.cur.y]
	switch c {
	case 'J': // ED
		s.eraseDisplay()
	case 'K': // EL
		s.eraseLine()
	case 'L', 'M': // IL, DL
		cur.pending = false
		switch {
		case s.outside():
			return
		case c == 'L':
			s.on.scrollDown(cur.y, s.on.bottom, n, cur.attr)
		default:
			s.on.scrollUp(cur.y, s.on.bottom, n, false, cur.attr)
		}
		cur.x = 0
	case '@': // ICH
		cur.pending = false
		row.insert(cur.x, n, s.cols, cur.attr)
	case 'P': // DCH
		cur.pending = false
		row.remove(cur.x, n, s.cols, cur.attr)
	case 'X': // ECH
		cur.pending = false
		row.erase(cur.x, min(cur.x+n, s.cols), cur.attr)
	case 'S': // SU
		s.on.scrollUp(s.on.top, s.on.bottom, n, s.text, cur.attr)
	case 'T': // SD
		s.on.scrollDown(s.on.top, s.on.bottom, n, 0)
	case 'b': // REP
		s.repeatLast(n)
	}
}

// csiSet changes how the terminal works.
func (s *Screen) csiSet(c byte, n int) {
	what := s.params.arg(0, 0)
	switch c {
	case 'g': // TBC
		s.clearTabs(what)
	case 'h', 'l': // SM, RM
		s.params.each(func(mode int) { s.mode(mode, c == 'h') })
	case 'm': // SGR
		if !s.text {
			s.cur.attr = s.cur.attr.sgr(&s.params)
		}
	case 'r': // DECSTBM
		s.region(n, s.params.arg(1, s.rows))
	case 's': // SCOSC
		s.save()
	case 't':
		s.windowTitle(what, s.params.arg(1, 0))
	case 'u': // SCORC
		s.restore()
	}
}

// up and down move the cursor, within the region if it is there.
func (s *Screen) up(n int) {
	top := 0
	if s.cur.y >= s.on.top {
		top = s.on.top
	}
	s.cur.y, s.cur.pending = max(s.cur.y-n, top), false
}

func (s *Screen) down(n int) {
	bottom := s.rows - 1
	if s.cur.y <= s.on.bottom {
		bottom = s.on.bottom
	}
	s.cur.y, s.cur.pending = min(s.cur.y+n, bottom), false
}

// column moves the cursor to a column of its row.
func (s *Screen) column(x int) {
	s.cur.x, s.cur.pending = min(max(x, 0), s.cols-1), false
}

// place moves the cursor to a row and column of the screen, or of the region in
// origin mode.
func (s *Screen) place(y, x int) {
	top, bottom := 0, s.rows-1
	if s.cur.origin {
		top, bottom = s.on.top, s.on.bottom
	}
	s.cur.y = min(top+y, bottom)
	s.column(x)
}

// region sets the rows that scroll, counted from 1.
func (s *Screen) region(top, bottom int) {
	if bottom = min(bottom, s.rows); top < bottom {
		s.on.top, s.on.bottom = top-1, bottom-1
		s.place(0, 0)
	}
}

// eraseLine is EL. The last column is not erased while the cursor waits behind
// it: what programs want to erase is the rest of the row.
func (s *Screen) eraseLine() {
	row, x, a := s.on.rows[s.cur.y], s.cur.x, s.cur.attr
	switch s.params.arg(0, 0) {
	case 0:
		s.eraseRest()
	case 1:
		row.erase(0, x+1, a)
	case 2:
		row.erase(0, s.cols, a)
		row.wrapped = false
	}
}

// eraseRest erases the row of the cursor from that on.
func (s *Screen) eraseRest() {
	row, x := s.on.rows[s.cur.y], s.cur.x
	if s.cur.pending {
		x++
	}
	row.erase(x, s.cols, s.cur.attr)
	if x == 0 {
		row.wrapped = false
	}
}

// eraseDisplay is ED.
func (s *Screen) eraseDisplay() {
	rows, y, a := s.on.rows, s.cur.y, s.cur.attr
	switch s.params.arg(0, 0) {
	case 0:
		// Programs clear the screen like this, too. Without the place just before
		// it is their own lines, from the first row on, that they replace.
		if s.cur.x == 0 && y == 0 && s.read-s.placed <= int64(len("\x1b[0J")) {
			s.clearing()
		}
		s.eraseRest()
		rows = rows[y+1:]
	case 1:
		rows[y].erase(0, s.cur.x+1, a)
		rows[y].wrapped = false
		if y+1 < s.rows && s.cur.x+1 == s.cols {
			rows[y+1].wrapped = false // what it went on from is gone
		}
		rows = rows[:y]
	case 2:
		s.clearing()
		s.on.partial = false
	default:
		return
	}
	for _, r := range rows {
		s.on.reset(r, a)
	}
}

// clearing keeps what the main screen shows if it is text: it is to be cleared now.
func (s *Screen) clearing() {
	if !s.text || s.on != &s.main {
		return
	}
	for _, r := range s.main.rows[:s.main.last()+1] {
		s.main.leave(r)
	}
	s.main.text.cleared = s.main.text.open
}

// repeatLast prints the last character again, with what was combined with it.
func (s *Screen) repeatLast(n int) {
	r := s.last
	s.last = 0
	if r == 0 {
		return
	}
	x := s.cur.x
	if s.cur.pending {
		x++
	}
	row := s.on.rows[s.cur.y]
	marks := row.marks[row.head(x-1)]
	for range s.repeat.take(n, s.rows*s.cols, s.read) {
		s.print(r)
		for _, m := range marks {
			s.mark(m)
		}
	}
	s.last = 0
}

// clearTabs is TBC.
func (s *Screen) clearTabs(what int) {
	switch what {
	case 0:
		if !s.cur.pending {
			s.setTab(s.cur.x, false)
		}
	case 3:
		s.tabs = make([]bool, maxSize)
	}
}

// mode is SM and RM.
func (s *Screen) mode(mode int, on bool) {
	switch mode {
	case 4: // IRM
		s.modes.set(insert, on)
	case 20: // LNM
		s.modes.set(newline, on)
	}
}

// privateMode is DECSET and DECRST.
func (s *Screen) privateMode(mode int, on bool) {
	switch mode {
	case 1: // DECCKM
		s.modes.set(AppCursor, on)
	case 6: // DECOM
		s.cur.origin = on
		s.place(0, 0)
	case 7: // DECAWM
		s.modes.set(noWrap, !on)
	case 25: // DECTCEM
		s.modes.set(CursorHidden, !on)
	case 9, 1000, 1002, 1003:
		s.modes.set(Mouse, on)
		s.console.mouse = chosen(on, mode)
	case 1004:
		s.console.focus = on
	case 1005, 1006, 1015, 1016:
		s.console.mouseForm = chosen(on, mode)
	case 66: // DECNKM
		s.console.keypad = on
	case 2004:
		s.modes.set(Paste, on)
	case 2026:
		s.modes.set(Synchronized, on)
	case 1048:
		if on {
			s.save()
		} else {
			s.restore()
		}
	case 47, 1047, 1049:
		switch {
		case on && mode == 1049:
			s.save()
			fallthrough
		case on:
			s.enterAlternate()
		default:
			s.leaveAlternate()
			if mode == 1049 && s.main.isSaved { // else it was never entered like this
				s.restore()
			}
		}
	}
}

func chosen(on bool, mode int) int {
	if on {
		return mode
	}
	return 0
}

// enterAlternate switches to the alternate screen, which is blank then.
func (s *Screen) enterAlternate() {
	if s.on == &s.alt {
		return
	}
	if s.alt.rows == nil {
		s.alt.init(s.rows, s.cols)
	}
	s.alt.clear(s.cur.attr)
	if s.text {
		s.alt.text.clear()
	}
	s.left = s.cur
	s.on = &s.alt
}

// leaveAlternate switches to the main screen.
func (s *Screen) leaveAlternate() {
	if s.on == &s.main {
		return
	}
	s.on = &s.main
	if s.text {
		s.main.note(s.left.y, s.left.x)
	}
}

// endString applies the control string that is over.
func (s *Screen) endString(kind State) {
	s.last = 0
	if kind != oscString {
		return
	}
	if code, title, ok := strings.Cut(string(s.osc), ";"); ok && (code == "0" || code == "2") {
		s.title = title
	}
}

// windowTitle puts the title away (22) or takes it back (23).
func (s *Screen) windowTitle(what, which int) {
	switch {
	case which == 1: // that of the icon
	case what == 22:
		s.titles = append(s.titles, s.title)
		s.titles = slices.Delete(s.titles, 0, max(len(s.titles)-titleStack, 0))
	case what == 23 && len(s.titles) > 0:
		s.title = s.titles[len(s.titles)-1]
		s.titles = s.titles[:len(s.titles)-1]
	}
}
