package control

import (
	"cmp"
	"context"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/termbridge/termbridge/internal/vt"
	"github.com/termbridge/termbridge/terminal"
)

// A Mirror shows a command on another terminal of the same size, from any moment on:
// first it paints the screen as it is, then it follows.
//
//	m := control.NewMirror(t, terminal.Size{})
//	for {
//		shown, err := m.Next(ctx)
//		if err != nil {
//			return err
//		}
//		io.WriteString(tty, shown.Text)
//		if shown.Info.Outcome.Ended() {
//			return nil
//		}
//	}
//
// The caller decides when to go on, and the command never waits for it: a Mirror that
// is far behind leaves out what it has missed, and paints the screen again. What was
// evicted before it could be read may be missing there, see [Mirror.Partial].
//
// Next is for one goroutine, the other methods for any.
type Mirror struct {
	t       terminal.Terminal
	cursor  int64
	rest    string // the start of a sequence whose end is still to come
	painted bool
	behind  int // reads in a row that were full

	mu sync.Mutex
	// guards following
	vt *vt.Screen
}

// Bounds of a Mirror.
const (
	catchUp     = 4                      // full reads in a row, 256 KiB, that are too far behind
	catchUpTime = 250 * time.Millisecond // for which output is read that comes as fast as it is
	restLimit   = 1 << 20                // bytes of a sequence whose end is waited for
)

// Shown is what comes next.
type Shown struct {
	// Text is for a terminal as it is. With Painted it draws the whole screen.
	Text    string
	Painted bool

	// Info is that of the same instant. When it has ended nothing follows.
	Info terminal.Info
}

// NewMirror returns a Mirror of t, whose terminal has that size now; the zero Size is
// the one at its start.
func NewMirror(t terminal.Terminal, size terminal.Size) *Mirror {
	size = cmp.Or(size, t.Info().Command.Size).OrDefault()
	return &Mirror{t: t, vt: vt.New(size.Rows, size.Cols, true)}
}

// Next returns the screen the first time, and then what follows, for which it waits.
// The error is the Cause of ctx or one of the terminal; Next may be called again.
func (m *Mirror) Next(ctx context.Context) (Shown, error) {
	if !m.painted {
		return m.paint(ctx)
	}
	for {
		out, err := m.t.ReadOutput(ctx, m.cursor, math.MaxInt64)
		if err != nil {
			return Shown{Info: out.Info}, err
		}
		if m.behind++; !out.More {
			m.behind = 0
		}
		if out.Truncated || m.behind >= catchUp {
			return m.paint(ctx)
		}
		text := m.apply(out)
		if text != "" || out.EOF() {
			return Shown{Text: text, Info: info(out)}, nil
		}
	}
}

// info returns the Info of an output: that the command has ended when nothing
// follows.
func info(out terminal.Output) terminal.Info {
	i := out.Info
	if !out.EOF() {
		i.Outcome = terminal.Running
	}
	return i
}

// paint reads what is there, and returns the screen: not in the middle of an update,
// if the program says when it is in one.
func (m *Mirror) paint(ctx context.Context) (Shown, error) {
	begin := time.Now()
	wait := time.Duration(0)
	for {
		out, err := m.t.ReadOutput(ctx, m.cursor, wait)
		if err != nil {
			return Shown{Info: out.Info}, err
		}
		m.apply(out)
		over := time.Since(begin)
		switch {
		case out.More && over < catchUpTime:
			continue
		case !out.More && !out.EOF() && m.updating() && over < vt.UpdateBound:
			wait = vt.UpdateBound - over
			continue
		}
		m.painted, m.behind = true, 0
		m.mu.Lock()
		defer m.mu.Unlock()
		return Shown{Text: m.vt.Paint(), Painted: true, Info: info(out)}, nil
	}
}

func (m *Mirror) updating() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.vt.Modes().Has(vt.Synchronized)
}

// apply shows output, and returns it for a terminal that does not return the carriage
// at a line feed. The start of a sequence is held until the rest is there, or a screen
// could be painted between the two.
func (m *Mirror) apply(out terminal.Output) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cursor = out.NextCursor
	text := m.rest + out.Text
	if out.Truncated {
		m.vt.Lost()
		text = out.Text[vt.Remnant(out.Text):]
	}
	n := len(text) - vt.Incomplete(text)
	if len(text)-n > restLimit || out.EOF() {
		n = len(text)
	}
	text, m.rest = text[:n], strings.Clone(text[n:])
	var b strings.Builder
	for text != "" {
		line, rest, found := strings.Cut(text, "\n")
		text = rest
		m.vt.Write(line)
		b.WriteString(line)
		if found {
			if m.vt.Returns() && !strings.HasSuffix(line, "\r") {
				b.WriteByte('\r')
			}
			m.vt.Write("\n")
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Resize says that the terminal has another size now.
func (m *Mirror) Resize(size terminal.Size) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.vt.Resize(size.Rows, size.Cols)
}

// Partial reports whether output was lost that the screen may be missing, see
// [Screen.Partial].
func (m *Mirror) Partial() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.vt.Partial()
}

// Alternate reports whether the alternate screen is on, see [Screen.Alternate].
func (m *Mirror) Alternate() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.vt.Alternate()
}

// Repaint has the next Next paint the screen. It must not be called during one.
func (m *Mirror) Repaint() { m.painted = false }
