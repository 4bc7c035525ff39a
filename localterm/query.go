package localterm

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"
)

// A responder answers what a program asks its terminal, as one with 256 colours
// on a dark ground would. Vim, fish and prompt libraries ask at their start and
// wait, or behave oddly, if nothing answers.
type responder struct {
	in   *input
	join func(func()) // starts a goroutine that the Manager joins

	part []byte // the start of a question at the end of the output; ingest's only

	mu sync.Mutex
	// guards following
	pending string // answers that are not written yet
	writing bool   // there is a goroutine that does
}

// questions are those that are answered: for the cursor's position, which
// nobody keeps; for the terminal's state and kind; and for its two colours.
var questions = []struct{ question, answer string }{
	{"\x1b[6n", "\x1b[1;1R"},
	{"\x1b[5n", "\x1b[0n"},
	{"\x1b[c", "\x1b[?62;22c"},
	{"\x1b[0c", "\x1b[?62;22c"},
	{"\x1b[>c", "\x1b[>0;0;0c"},
	{"\x1b[>0c", "\x1b[>0;0;0c"},
	{"\x1b]10;?\a", "\x1b]10;rgb:ffff/ffff/ffff\a"},
	{"\x1b]10;?\x1b\\", "\x1b]10;rgb:ffff/ffff/ffff\x1b\\"},
	{"\x1b]11;?\a", "\x1b]11;rgb:0000/0000/0000\a"},
	{"\x1b]11;?\x1b\\", "\x1b]11;rgb:0000/0000/0000\x1b\\"},
}

const (
	esc        = '\x1b'
	maxPending = 256         // bytes of answers; who asks more and does not read gets no more
	answerTime = time.Second // after that nobody expects an answer
)

// scan looks for questions in the next piece of output. Output without ESC
// costs one search for that byte.
func (r *responder) scan(p []byte) {
	if len(r.part) > 0 {
		p = append(r.part, p...)
		r.part = nil
	}
	var answers []byte
	for {
		i := bytes.IndexByte(p, esc)
		if i < 0 {
			break
		}
		p = p[i:]
		answer, whole := ask(p)
		if !whole {
			r.part = bytes.Clone(p)
			break
		}
		if len(answers) < maxPending {
			answers = append(answers, answer...)
		}
		p = p[1:]
	}
	if len(answers) > 0 {
		r.answer(string(answers))
	}
}

// ask returns the answer to the question at the start of p, or "". It reports
// false if p may be the start of one.
func ask(p []byte) (answer string, whole bool) {
	if len(p) > 2 && p[1] != '[' && p[1] != ']' {
		return "", true
	}
	for i := range questions {
		q := &questions[i]
		switch {
		case len(p) < len(q.question):
			if strings.HasPrefix(q.question, string(p)) {
				return "", false
			}
		case string(p[:len(q.question)]) == q.question:
			return q.answer, true
		}
	}
	return "", true
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
