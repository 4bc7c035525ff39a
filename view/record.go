package view

import (
	"context"
	"strings"
	"time"

	"github.com/termbridge/termbridge/internal/output"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

// A Record is what happened during a wait, if [Until].Record asked for it. Its
// text, its state and the Info of its Event are of one instant: the end of the
// wait.
type Record struct {
	// Text is the output since Until.Cursor, the last MiB of it, as the command
	// wrote it. Cursor is behind it; that of the Event may be behind a match.
	Text   string
	Cursor int64

	// State is what the command was doing then, and Evidence why it is believed
	// to. Where the terminal cannot tell, one that runs is working.
	State    terminal.Activity
	Evidence terminal.Evidence

	// Began and Ended are when the wait did.
	Began, Ended time.Time

	// Reads are the pieces of output in the order in which they came, at most the
	// first 1,000.
	Reads []Read
}

// A Read is a piece of output as it was read.
type Read struct {
	At     time.Time
	Stream terminal.Stream // "" for a terminal, and where it is not told
	Bytes  int
	Head   string // its first bytes, at most 80
}

const (
	maxRecord = 1 << 20
	maxReads  = 1000
	maxHead   = 80
)

// A recorder fills a Record.
type recorder struct {
	*Record
	t       terminal.Terminal
	streams terminal.StreamReader // nil: the output is one, or is not told apart
	seen    map[terminal.Stream]int64
	text    []byte
}

func newRecorder(t terminal.Terminal, until Until) *recorder {
	r := &recorder{Record: &Record{Cursor: until.Cursor, Began: time.Now()}, t: t}
	if !t.Info().Command.TTY {
		r.streams, _ = terminal.As[terminal.StreamReader](t)
		r.seen = map[terminal.Stream]int64{terminal.Stdout: until.Cursor, terminal.Stderr: until.Cursor}
	}
	return r
}

// add notes what a read returned.
func (r *recorder) add(ctx context.Context, out terminal.Output) {
	r.Cursor = out.NextCursor
	if out.Text == "" {
		return
	}
	r.text = append(r.text, out.Text...)
	if over := len(r.text) - maxRecord; over > maxRecord { // so that each byte is moved once
		r.text = append(r.text[:0], r.text[over:]...)
	}
	if r.streams == nil {
		r.note("", out.Text)
		return
	}
	for _, stream := range []terminal.Stream{terminal.Stdout, terminal.Stderr} {
		var piece strings.Builder
		for {
			out, err := r.streams.ReadStream(ctx, stream, r.seen[stream], 0)
			if err != nil {
				break
			}
			piece.WriteString(out.Text)
			if r.seen[stream] = out.NextCursor; !out.More {
				break
			}
		}
		r.note(stream, piece.String())
	}
}

func (r *recorder) note(stream terminal.Stream, s string) {
	if s != "" && len(r.Reads) < maxReads {
		r.Reads = append(r.Reads, Read{time.Now(), stream, len(s), strings.Clone(text.Head(s, maxHead))})
	}
}

// finish adds what the command is doing, and the output up to then.
func (r *recorder) finish(ctx context.Context, event *Event) {
	ctx = context.WithoutCancel(ctx) // nothing here waits for long
	r.Evidence.Certainty = terminal.NoCertainty
	for i := range 3 {
		r.State = terminal.Working
		if i == 0 && event.Reason == ByInput {
			r.State, r.Evidence = terminal.Waiting, event.Evidence
		} else if reader, ok := terminal.As[terminal.ActivityReader](r.t); ok && !event.Info.Outcome.Ended() {
			r.State, r.Evidence, _ = reader.ReadActivity(ctx, 0)
		}
		if !r.rest(ctx, event) {
			break // nothing has come since, so that the state is that of now
		}
	}
	if event.Info.Outcome.Ended() {
		r.State = terminal.Finished
		r.Evidence = terminal.Evidence{Certainty: terminal.Certain, Reason: event.Info.Exit.String()}
	}
	r.Ended = time.Now()
	r.Text = string(text.Tail(r.text, maxRecord))
	event.Record = r.Record
}

// rest reads what is there, and reports whether there was anything.
func (r *recorder) rest(ctx context.Context, event *Event) (more bool) {
	deadline := time.Now().Add(readLimit)
	for out, err := range output.Rest(ctx, r.t, r.Cursor) {
		if err != nil {
			break
		}
		r.add(ctx, out)
		event.Info = out.Info
		more = more || out.Text != ""
		if time.Now().After(deadline) {
			break
		}
	}
	return more
}
