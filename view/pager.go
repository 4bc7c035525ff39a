package view

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strings"

	"github.com/termbridge/termbridge/internal/limits"
	"github.com/termbridge/termbridge/internal/tail"
	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
)

// positionEvery is how much text lies between two positions of a Pager, and so what it
// reads more than it returns.
const positionEvery = 32 << 10

// readTries is how often a Pager starts again because what it was reading was
// evicted under its hands, before it takes what it gets.
const readTries = 8

// syncReads bounds what a Pager counts in one call, to 2 GiB, should a command
// write faster than it counts.
const syncReads = 1 << 15

// PagerOptions configure a [Pager]. The zero value is the default.
type PagerOptions struct {
	// Raw leaves lines as the command wrote them, but for the rest of an escape
	// sequence at the start of a page. Otherwise each line is [Plain], for itself:
	// one that was drawn over many times is what it came to, and lines stay as
	// many as line feeds were written.
	Raw bool

	// From is where the first read with offset 0 begins: with the line in which this
	// cursor lies, such as the Cursor of a bridge.Result, or [terminal.End] for what
	// comes next. 0 is the start. Lines have the same numbers from everywhere.
	From int64
}

// A Pager reads the output of a terminal in lines. Lines are numbered from 1 on
// since the start of the command, and eviction moves no number.
//
// A Pager keeps no text, only where lines begin now and then, and reads what is
// new since its last call. Its methods may be called from any number of
// goroutines, which wait for each other, and after the end of the command. Each
// reader with a position of its own needs a Pager of its own.
//
// Numbers are exact if the terminal counts lines (EvictedLines) or nothing was
// evicted that the Pager had not seen; else [Page.Inexact] says so.
type Pager struct {
	t     terminal.Terminal
	count tail.LineCounter // nil if t is none
	raw   bool
	every int

	// turn holds a token while a call is at work. It is no mutex because the
	// terminal may take its time, and the caller's context ends the wait.
	turn chan struct{}
	// the token guards following
	positions []position // ascending, never empty: where reading can begin
	end       position   // behind what was counted
	since     int        // bytes of text between the last position and end
	open      bool       // there is text behind the last line end
	inexact   bool
	lost      bool  // output was, since the last read with offset 0
	line      int64 // where such a read begins
	from      int64 // where the first one does, until that line is known; then 0
	seen      int   // bytes of that line that the last one has returned, or -1
	readTo    int64 // end's cursor then
}

// A position is a place in the output.
type position struct {
	cursor int64
	lines  int64 // line ends before it
	whole  bool  // nothing of its line lies before it, or nothing that is kept
	state  vt.State
	cut    bool // what is before it is gone, and so the state is a guess
}

// NewPager returns a Pager at the start of t's output. Nil options are the
// defaults.
func NewPager(t terminal.Terminal, opts *PagerOptions) *Pager {
	start := position{whole: true}
	p := &Pager{t: t, turn: make(chan struct{}, 1), positions: []position{start}, end: start, line: 1, seen: -1}
	p.count, _ = terminal.As[tail.LineCounter](t)
	if opts != nil {
		p.raw, p.from = opts.Raw, opts.From
	}
	limit := cmp.Or(t.Info().Command.OutputLimit, limits.DefaultOutputLimit)
	p.every = max(min(positionEvery, limit/16), 1)
	return p
}

// A Page is some lines of an output, and what was known at that instant.
type Page struct {
	// Lines are the lines, without their line ends.
	Lines []string
	// From is the number of the first of Lines, or, if there are none, the
	// number that it would have.
	From int64
	// Total is how many lines there are, those that are gone and an unfinished
	// last one included.
	Total int64
	// Remaining is how many lines follow behind Lines.
	Remaining int64
	// Evicted is how many lines are gone. Of the first that is left, the start
	// may be gone.
	Evicted int64

	// Open reports that the last of Lines is unfinished: it may grow.
	Open bool
	// Truncated reports that lines which were asked for are gone.
	Truncated bool
	// Inexact reports that output was lost uncounted, or comes faster than it can
	// be counted: the numbers are too low by as many lines.
	Inexact bool
	// Complete reports that the command has ended, so that Total is final. See
	// Info for its exit and its run time.
	Complete bool
	Info     terminal.Info

	// Cursor lies behind what Total counts: where to wait for more.
	Cursor int64
}

// Read returns at most limit lines, or [DefaultLines] if limit is zero or less.
//
// Offset 0 goes on where the last read with offset 0 ended, which includes the
// unfinished line that it returned if that has grown. A positive offset is the
// number of the first line. A negative one counts from the end: -10 begins with
// the last ten lines. Only a read with offset 0 moves the position of the next.
//
// Read waits for no output, see [WaitFor]. The error is the Cause of ctx or one
// of the terminal.
func (p *Pager) Read(ctx context.Context, offset int64, limit int) (Page, error) {
	return p.read(ctx, offset, limit, offset == 0)
}

// Peek is Read, but does not change where the next begins.
func (p *Pager) Peek(ctx context.Context, offset int64, limit int) (Page, error) {
	return p.read(ctx, offset, limit, false)
}

// Unread reports whether a read with offset 0 has anything to return.
func (p *Pager) Unread(ctx context.Context) (bool, error) {
	page, err := p.read(ctx, 0, 1, false)
	return len(page.Lines) > 0, err
}

func (p *Pager) read(ctx context.Context, offset int64, limit int, advance bool) (Page, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return Page{Info: p.t.Info()}, context.Cause(ctx)
	}
	if limit <= 0 {
		limit = DefaultLines
	}
	for try := 1; ; try++ {
		page, err := p.sync(ctx)
		if err != nil {
			return page, err
		}
		from := offset
		switch {
		case offset == 0:
			from = p.line
			page.Truncated = p.lost
		case offset < 0:
			from = max(page.Total+offset+1, 1)
		}
		if from <= page.Evicted {
			page.Truncated = true
			from = page.Evicted + 1
		}
		from = min(from, page.Total+1)

		known := offset == 0 && p.known(page, from) // the first line may be old
		want := min(int64(limit), page.Total-from+1)
		if known {
			want = min(want+1, page.Total-from+1)
		}
		lines, open, ok, err := p.lines(ctx, from, want, try == readTries)
		if err != nil {
			return page, err
		}
		if !ok && try < readTries {
			continue
		}
		if known && len(lines) > 0 && len(lines[0]) <= p.seen {
			if open && len(lines) == 1 {
				page.From = from
				return page, nil // nothing is new
			}
			lines = lines[1:]
			from++
		}
		if len(lines) > limit {
			lines, open = lines[:limit], false
		}
		page.Lines, page.From, page.Open = lines, from, open
		page.Remaining = max(page.Total-from-int64(len(lines))+1, 0)
		page.Inexact = page.Inexact || !ok
		if advance {
			p.line, p.seen = from+int64(len(lines)), -1
			if open {
				p.line--
				p.seen = len(lines[len(lines)-1])
			}
			p.readTo, p.lost = page.Cursor, false
		}
		if !p.raw {
			for i, l := range lines {
				lines[i] = Plain(l)
			}
		}
		return page, nil
	}
}

// known reports whether line from is the unfinished line that the last read
// with offset 0 ended with, so that its length tells whether it has grown.
func (p *Pager) known(page Page, from int64) bool {
	if p.seen < 0 || page.Truncated {
		return false
	}
	// Its start may have been evicted, unless nothing has happened at all.
	return from > page.Evicted+1 || p.positions[0].cursor == 0 || p.readTo == page.Cursor
}

// sync counts the lines of the output that is new and returns a Page with what
// is known of all.
func (p *Pager) sync(ctx context.Context) (Page, error) {
	var out terminal.Output
	gaps := 0
	for range syncReads {
		err := context.Cause(ctx)
		if err == nil {
			err = p.evicted(ctx)
		}
		if err == nil {
			out, err = p.t.ReadOutput(ctx, p.end.cursor, 0)
		}
		if err != nil {
			return Page{Info: p.t.Info()}, err
		}
		if out.Truncated {
			// A LineCounter is asked again.
			if gaps++; p.count != nil && gaps < readTries {
				continue
			}
			if err := p.gap(ctx, out); err != nil {
				return Page{Info: out.Info}, err
			}
			continue
		}
		if err := p.begin(ctx, out); err != nil {
			return Page{Info: out.Info}, err
		}
		p.counted(out)
		if !out.More || out.Text == "" {
			break
		}
	}
	page := Page{
		Total: p.end.lines, Evicted: p.positions[0].lines, Inexact: p.inexact || out.More,
		Complete: out.EOF(), Info: out.Info, Cursor: p.end.cursor,
	}
	if p.open {
		page.Total++
	}
	return page, nil
}

// begin sets the line of the first read with offset 0, if it begins in out, which
// lies behind end, or if that is the end of all output.
func (p *Pager) begin(ctx context.Context, out terminal.Output) error {
	if p.from == 0 || out.More && p.from > out.NextCursor {
		return nil
	}
	var ends []int // of lines in out that lie before from
	for i := 0; p.from > p.end.cursor; i++ {
		n := strings.IndexByte(out.Text[i:], '\n')
		if n < 0 {
			break
		}
		i += n
		ends = append(ends, i)
	}
	var err error
	before := sort.Search(len(ends), func(i int) bool {
		cursor, ok, e := cursorAt(ctx, p.t, out, ends[i]+1)
		err = cmp.Or(err, e)
		return ok && cursor > p.from
	})
	if err == nil {
		p.line, p.from = p.end.lines+int64(before)+1, 0
	}
	return err
}

// counted counts the lines of the text at end.
func (p *Pager) counted(out terminal.Output) {
	if out.Text == "" {
		return
	}
	p.end.cursor = out.NextCursor
	p.end.lines += int64(strings.Count(out.Text, "\n"))
	p.open = !strings.HasSuffix(out.Text, "\n")
	p.end.whole = !p.open
	p.end.state, p.end.cut = p.end.state.After(out.Text), false
	if p.since += len(out.Text); p.since >= p.every {
		p.positions = append(p.positions, p.end)
		p.since = 0
	}
}

// evicted drops the positions whose text is gone. A LineCounter tells where the
// oldest text begins.
func (p *Pager) evicted(ctx context.Context) error {
	if p.count == nil {
		for p.positions[0].cursor < p.end.cursor {
			out, err := p.t.ReadOutput(ctx, p.positions[0].cursor, 0)
			if err != nil || !out.Truncated {
				return err
			}
			p.drop(1)
		}
		return nil
	}
	lines, cursor := p.count.EvictedLines()
	if cursor <= p.positions[0].cursor {
		return nil
	}
	oldest := position{cursor: cursor, lines: lines, whole: true, cut: true}
	n := 0
	for n < len(p.positions) && p.positions[n].cursor <= cursor {
		n++
	}
	p.positions = slices.Replace(p.positions, 0, n, oldest)
	if p.end.cursor < cursor {
		p.end, p.open, p.since = oldest, false, 0
	}
	return nil
}

// drop drops the first n positions.
func (p *Pager) drop(n int) {
	p.positions = slices.Delete(p.positions, 0, n)
	if len(p.positions) == 0 {
		p.positions = append(p.positions, p.end)
		p.since = 0
	}
	p.positions[0].whole = true
}

// gap goes on behind output that was evicted before it was counted; out is what
// is left.
func (p *Pager) gap(ctx context.Context, out terminal.Output) error {
	oldest, ok, err := cursorAt(ctx, p.t, out, 0)
	if err != nil {
		return err
	}
	p.end = position{cursor: oldest, lines: p.end.lines, whole: true, cut: true}
	p.open = false
	if !ok {
		p.end.lines += int64(strings.Count(out.Text, "\n"))
		p.open = !strings.HasSuffix(out.Text, "\n")
	}
	p.positions = []position{p.end}
	p.since, p.inexact, p.lost = 0, true, true
	return nil
}

// lines returns n lines from one on, as they were written, less their line
// ends; open reports that the last one is unfinished. If some were evicted in
// the meantime it reports false, and returns no lines unless they are the last
// chance.
func (p *Pager) lines(ctx context.Context, from, n int64, last bool) (lines []string, open, ok bool, err error) {
	if n <= 0 {
		return nil, false, true, nil
	}
	i := len(p.positions) - 1
	for m := p.positions[i]; i > 0 && (m.lines > from-1 || m.lines == from-1 && !m.whole); m = p.positions[i] {
		i--
	}
	at := p.positions[i]
	cursor, line := at.cursor, at.lines+1
	state, began := at.state, at.state // here, and where the line began
	ok = true
	var start strings.Builder // of the line that is being read
	whole := func() string {
		s := strings.TrimSuffix(start.String(), "\r")
		start.Reset()
		if !p.raw || len(lines) == 0 { // what belongs to a sequence of an earlier line
			n, _ := began.Skip(s)
			s = s[n:]
		}
		return s
	}
	for cut := at.cut; ; cut = false {
		out, err := p.t.ReadOutput(ctx, cursor, 0)
		if err != nil {
			return nil, false, ok, err
		}
		if out.Truncated {
			ok = false
			if !last {
				if p.count == nil {
					p.drop(i + 1)
				}
				return nil, false, ok, nil
			}
		}
		rest := out.Text
		if cut || out.Truncated { // eviction knows no characters and no sequences
			rest = strings.TrimLeft(rest, "\ufffd")
			rest = rest[vt.Remnant(rest):]
		}
		for {
			text, after, ended := strings.Cut(rest, "\n")
			if line >= from {
				start.WriteString(text)
			}
			state = state.After(text)
			if !ended {
				break
			}
			if line >= from {
				lines = append(lines, whole())
				if int64(len(lines)) == n {
					return lines, false, ok, nil
				}
			}
			line++
			rest, began = after, state
		}
		cursor = out.NextCursor
		if !out.More || cursor >= p.end.cursor {
			break
		}
	}
	if start.Len() > 0 {
		return append(lines, whole()), true, ok, nil
	}
	return lines, false, ok, nil
}
