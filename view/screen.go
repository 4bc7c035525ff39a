package view

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
)

// A Screen is what the terminal of a command shows: rows of text, a cursor, and
// what stands out, as a person who uses a full-screen program sees it. [Screen.String]
// is that for a model.
//
//	screen := view.NewScreen(t)
//	_, err := screen.WaitFor(ctx, view.Until{Quiet: 200 * time.Millisecond})
//	fmt.Println(screen) // a menu, and what is chosen in it
//	keys, err := screen.Keys("Down", "Enter")
//	_, err = t.WriteInput(ctx, keys)
//
// A Screen has read nothing until Read or WaitFor; between them it does not
// change. It must see all output, so it should be made when the command starts and
// be read before output is evicted: see [Screen.Partial]. On the screen of a
// command that has ended stands what was there last.
//
// It is as large as the command's terminal was at its start, see [Screen.Resize].
// A terminal in an ACP client has the size that the client gives it, and nobody
// tells that: there the size is a guess. Rows and columns count from 0.
//
// A Screen may be used from any number of goroutines; reads wait for each other.
type Screen struct {
	t terminal.Terminal

	// turn holds a token while a call reads, as in a Pager.
	turn chan struct{}
	// the token guards following
	cursor int64

	mu sync.Mutex
	// guards following
	vt *vt.Screen
}

// NewScreen returns a Screen of t.
func NewScreen(t terminal.Terminal) *Screen {
	size := t.Info().Command.Size.OrDefault()
	return &Screen{t: t, turn: make(chan struct{}, 1), vt: vt.New(size.Rows, size.Cols, true)}
}

// Read reads the output that is there. It waits for none, but for the end of an
// update that the program is in the middle of, if it says so (DEC mode 2026). The
// error is the Cause of ctx or one of the terminal.
func (s *Screen) Read(ctx context.Context) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	_, err := s.read(ctx)
	return err
}

// WaitFor reads until something happens, as [WaitFor] does, but Literal and Regexp
// wait for a text that stands on the screen, now or later, in which rows end with
// LF and lines that were wrapped are whole. A text that is drawn in an update
// counts when that is over. Until.Cursor means nothing: Output waits for what was
// not read before. The Screen is as it was at that moment.
func (s *Screen) WaitFor(ctx context.Context, until Until) (Event, error) {
	w := waiter{t: s.t, until: until, event: Event{Info: s.t.Info()}}
	if err := s.lock(ctx); err != nil {
		return w.event, err
	}
	defer s.unlock()
	w.event.Cursor = s.cursor
	out, err := s.read(ctx)
	if err != nil {
		return w.event, err
	}
	w.event.Info, w.event.Truncated = out.Info, out.Truncated
	read := s.cursor > w.event.Cursor
	w.until.Cursor, w.event.Cursor = w.event.Cursor, s.cursor
	switch {
	case s.match(&w):
		w.event.Reason = ByMatch
		return w.event, nil
	case until.Output && read:
		w.event.Reason = ByOutput
		return w.event, nil
	}
	w.look = func(_ context.Context, out terminal.Output) (bool, error) {
		s.apply(out)
		w.event.Cursor = s.cursor
		return !out.More && s.match(&w), nil
	}
	w.event.Reason, err = w.wait(ctx)
	return w.event, err
}

// match looks for the patterns of w on the screen, and fills its event if one is
// there.
func (s *Screen) match(w *waiter) bool {
	literal, pattern := w.until.Literal, w.until.Regexp
	if literal == "" && pattern == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vt.Modes().Has(vt.Synchronized) {
		return false
	}
	text := s.vt.Text()
	var loc []int
	if i := strings.Index(text, literal); literal != "" && i >= 0 {
		loc = []int{i, i + len(literal)}
	} else if pattern != nil {
		loc = pattern.FindStringSubmatchIndex(text)
	}
	if loc != nil {
		w.event.matched(text, loc)
	}
	return loc != nil
}

// read is Read with the token. The output is the last, with what is true of all.
func (s *Screen) read(ctx context.Context) (terminal.Output, error) {
	truncated := false
	begin := time.Now()
	for {
		wait := time.Duration(0)
		if s.updating() {
			wait = max(vt.UpdateBound-time.Since(begin), 0)
		}
		out, err := s.t.ReadOutput(ctx, s.cursor, wait)
		if err != nil {
			return out, err
		}
		s.apply(out)
		truncated = truncated || out.Truncated
		if !out.More && (!s.updating() || time.Since(begin) >= vt.UpdateBound || out.EOF()) {
			out.Truncated = truncated
			return out, nil
		}
		if err := context.Cause(ctx); err != nil { // the command may write as fast as it is read
			return out, err
		}
	}
}

func (s *Screen) updating() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vt.Modes().Has(vt.Synchronized)
}

// apply shows output.
func (s *Screen) apply(out terminal.Output) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := out.Text
	if out.Truncated {
		s.vt.Lost()
		text = text[vt.Remnant(text):]
	}
	s.vt.Write(text)
	s.cursor = out.NextCursor
}

func (s *Screen) lock(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Screen) unlock() { <-s.turn }

// Resize sets the size of the terminal, and of the Screen, once it has read what
// the command wrote before. The program is told by SIGWINCH and draws its screen
// again; until then it is not right. The errors are those of
// [terminal.Terminal], and then nothing has changed.
func (s *Screen) Resize(ctx context.Context, size terminal.Size) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if _, err := s.read(ctx); err != nil {
		return err
	}
	if err := s.t.Resize(size); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vt.Resize(size.Rows, size.Cols)
	return nil
}

// Size returns the size.
func (s *Screen) Size() terminal.Size {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, cols := s.vt.Size()
	return terminal.Size{Rows: rows, Cols: cols}
}

// Lines returns the text of each row, without the spaces at its end.
func (s *Screen) Lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, _ := s.vt.Size()
	lines := make([]string, rows)
	for y := range lines {
		lines[y] = strings.TrimRight(s.vt.Line(y), " ")
	}
	return lines
}

// Cursor returns where the cursor is, and whether it is shown.
func (s *Screen) Cursor() (row, col int, shown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row, col, _ = s.vt.Cursor()
	return row, col, !s.vt.Modes().Has(vt.CursorHidden)
}

// Title returns the title that the program has given to its window.
func (s *Screen) Title() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vt.Title()
}

// Alternate reports whether the alternate screen is on, which most full-screen
// programs use. When they leave it the screen is what it was before.
func (s *Screen) Alternate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vt.Alternate()
}

// AppCursor reports whether the program has asked for other sequences of the
// cursor keys (DECCKM), which [Screen.Keys] knows.
func (s *Screen) AppCursor() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vt.Modes().Has(vt.AppCursor)
}

// Partial reports whether output was evicted before it was read, and the program
// has not cleared the screen since: what stands there is not known then, but for
// what was drawn later.
func (s *Screen) Partial() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vt.Partial()
}

// The marks of String.
const (
	cursorMark                = "▮"
	highlightOn, highlightOff = "⟦", "⟧"
)

// String returns the screen for a reader who sees text only: a line that says what
// it is, and then the rows, up to the last that has something. ▮ stands before what
// is at the cursor, and what stands out is between ⟦ and ⟧.
func (s *Screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, cols := s.vt.Size()
	spans := s.vt.Highlights()
	y, x, _ := s.vt.Cursor()
	hidden := s.vt.Modes().Has(vt.CursorHidden)

	var b strings.Builder
	fmt.Fprintf(&b, "[screen of %d rows × %d columns", rows, cols)
	if s.vt.Alternate() {
		b.WriteString(", full-screen program")
	}
	if title := s.vt.Title(); title != "" {
		fmt.Fprintf(&b, ", title %q", title)
	}
	if hidden {
		y = -1
		b.WriteString(", no cursor")
	} else {
		b.WriteString(", cursor " + cursorMark)
	}
	if len(spans) > 0 {
		b.WriteString(", highlighted " + highlightOn + highlightOff)
	}
	if s.vt.Partial() {
		b.WriteString(", and some of it is not known: output was lost before it could be read")
	}
	b.WriteString("]\n")

	blank := 0 // lines that are not written yet
	for row := range rows {
		var line strings.Builder
		col := 0
		to := func(x int) {
			line.WriteString(s.vt.Slice(row, col, x))
			col = x
		}
		atCursor := func(before int) {
			if row == y && col <= x && x < before {
				to(x)
				line.WriteString(cursorMark)
			}
		}
		for ; len(spans) > 0 && spans[0].Row == row; spans = spans[1:] {
			atCursor(spans[0].From)
			to(spans[0].From)
			line.WriteString(highlightOn)
			atCursor(spans[0].To)
			to(spans[0].To)
			line.WriteString(highlightOff)
		}
		atCursor(cols)
		to(cols)
		text := strings.TrimRight(line.String(), " ")
		if blank++; text != "" {
			b.WriteString(strings.Repeat("\n", blank-1) + text + "\n")
			blank = 0
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
