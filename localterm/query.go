package localterm

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/termbridge/termbridge/terminal"
)

// A responder answers the queries that a program sends to its terminal, as one
// with 256 colours on a dark ground would: for the cursor's position (DSR) and
// the size, for the terminal's state and kind (DA), and for its two colours (OSC).
// Vim, fish and prompt libraries send some at their start and wait, or behave
// oddly, if nothing answers. Others find out the size by sending the cursor to
// 999;999 and asking where it is.
type responder struct {
	in   *input
	join func(func()) // starts a goroutine that the Manager joins
	size func() terminal.Size

	// Ingest's only:
	part   []byte // the start of a sequence at the end of the output
	cursor place
	saved  place

	mu sync.Mutex
	// guards following
	pending string // answers that are not written yet
	writing bool   // there is a goroutine that does
}

// A place is where the cursor is, as far as this is kept: escape sequences that
// move it and text count, but neither tabs nor wide characters, and no regions.
// The zero value is the upper left corner.
type place struct{ row, col int }

const (
	esc         = '\x1b'
	maxSequence = 64          // bytes of a sequence that is looked at
	maxPending  = 256         // bytes of answers; who asks more and does not read gets no more
	answerTime  = time.Second // after that nobody expects an answer
)

// colours are the queries for the colours of text and ground, and the answers.
var colours = []struct{ query, answer string }{
	{"\x1b]10;?\a", "\x1b]10;rgb:ffff/ffff/ffff\a"},
	{"\x1b]10;?\x1b\\", "\x1b]10;rgb:ffff/ffff/ffff\x1b\\"},
	{"\x1b]11;?\a", "\x1b]11;rgb:0000/0000/0000\a"},
	{"\x1b]11;?\x1b\\", "\x1b]11;rgb:0000/0000/0000\x1b\\"},
}

// scan looks for queries in the next piece of output. Output without ESC costs
// two searches, for that byte and for line ends.
func (r *responder) scan(p []byte) {
	if len(r.part) > 0 {
		p = append(r.part, p...)
		r.part = nil
	}
	var answers []byte
	for {
		i := bytes.IndexByte(p, esc)
		if i < 0 {
			r.print(p)
			break
		}
		r.print(p[:i])
		p = p[i:]
		answer, n := r.sequence(p)
		if n == 0 {
			r.part = bytes.Clone(p)
			break
		}
		if len(answers) < maxPending {
			answers = append(answers, answer...)
		}
		p = p[n:]
	}
	if len(answers) > 0 {
		r.answer(string(answers))
	}
}

// print moves the cursor behind text.
func (r *responder) print(text []byte) {
	if len(text) == 0 {
		return
	}
	if lines := bytes.Count(text, []byte{'\n'}); lines > 0 {
		r.cursor.row += lines
	}
	if i := max(bytes.LastIndexByte(text, '\n'), bytes.LastIndexByte(text, '\r')); i >= 0 {
		r.cursor.col = 0
		text = text[i+1:]
	}
	r.cursor.col += utf8.RuneCount(text)
	r.clamp()
}

// clamp keeps the cursor on the screen.
func (r *responder) clamp() {
	size := r.size()
	r.cursor.row = min(max(r.cursor.row, 0), size.Rows-1)
	r.cursor.col = min(max(r.cursor.col, 0), size.Cols-1)
}

// sequence interprets the sequence at the start of p, and returns the answer to it
// and how many bytes it has, or 0 if its end may be missing.
func (r *responder) sequence(p []byte) (answer string, n int) {
	if len(p) < 2 {
		return "", 0
	}
	switch p[1] {
	case '[':
		for i := 2; i < len(p); i++ {
			if p[i] >= 0x40 {
				return r.control(string(p[2:i]), p[i]), i + 1
			}
			if i == maxSequence || p[i] < ' ' {
				return "", i
			}
		}
		return "", 0
	case ']':
		for _, c := range colours {
			switch {
			case len(p) < len(c.query):
				if strings.HasPrefix(c.query, string(p)) {
					return "", 0
				}
			case string(p[:len(c.query)]) == c.query:
				return c.answer, len(c.query)
			}
		}
	case '7': // DECSC
		r.saved = r.cursor
	case '8': // DECRC
		r.cursor = r.saved
	case 'c': // RIS
		r.cursor = place{}
	case esc:
		return "", 1
	}
	return "", 2
}

// control interprets the control sequence (CSI) with these parameters, and returns
// the answer to it.
func (r *responder) control(params string, final byte) string {
	// Most sequences are colours.
	if final == 'm' {
		return ""
	}
	first, second, _ := strings.Cut(params, ";")
	number := func(s string) int {
		n, _ := strconv.Atoi(s)
		return max(n, 1)
	}
	c := &r.cursor
	switch final {
	case 'H', 'f':
		*c = place{number(first) - 1, number(second) - 1}
	case 'A', 'F':
		c.row -= number(first)
	case 'B', 'E', 'e':
		c.row += number(first)
	case 'C', 'a':
		c.col += number(first)
	case 'D':
		c.col -= number(first)
	case 'G', '`':
		c.col = number(first) - 1
	case 'd':
		c.row = number(first) - 1
	case 's':
		r.saved = *c
	case 'u':
		if params == "" {
			*c = r.saved
		}
	case 'r': // a region: the cursor goes home
		if !strings.HasPrefix(params, "?") {
			*c = place{}
		}
	case 'n':
		switch params {
		case "5":
			return "\x1b[0n"
		case "6":
			return fmt.Sprintf("\x1b[%d;%dR", c.row+1, c.col+1)
		case "?6":
			return fmt.Sprintf("\x1b[?%d;%dR", c.row+1, c.col+1)
		}
	case 'c':
		switch params {
		case "", "0":
			return "\x1b[?62;22c"
		case ">", ">0":
			return "\x1b[>0;0;0c"
		}
	case 't':
		if params == "18" || params == "19" {
			size := r.size()
			return fmt.Sprintf("\x1b[%d;%d;%dt", params[1]-'0', size.Rows, size.Cols)
		}
	}
	if final == 'E' || final == 'F' {
		c.col = 0
	}
	r.clamp()
	return ""
}

// answer has text written, without waiting for it: the program may not read
// before more of its output is read.
func (r *responder) answer(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) > maxPending {
		return
	}
	r.pending += text
	if !r.writing {
		r.writing = true
		r.join(r.write)
	}
}

// write writes answers until there are none. One that finds the terminal in
// line mode is dropped: who asked has gone, and a shell would run it.
func (r *responder) write() {
	for {
		r.mu.Lock()
		text := r.pending
		r.pending = ""
		r.writing = text != ""
		r.mu.Unlock()
		if text == "" {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		r.in.write(ctx, text, true)
		cancel()
	}
}
