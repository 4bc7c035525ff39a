package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// A recording writes what the screen draws as an asciicast, version 2: a header,
// and then an event for each piece of output, with its time.
// https://docs.asciinema.org/manual/asciicast/v2/
type recording struct {
	file  *os.File
	begun time.Time

	at   time.Duration // of pending
	text bytes.Buffer  // drawn at that time, and not written yet
	err  error
}

// sameFrame is how close two pieces of output are that a viewer sees as one.
const sameFrame = 20 * time.Millisecond

// recordingRows is the height of the terminal that a player shows.
const recordingRows = 24

func newRecording(file string, columns int) (*recording, error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("--record: %w", err)
	}
	r := &recording{file: f, begun: time.Now()}
	r.event(struct {
		Version int    `json:"version"`
		Width   int    `json:"width"`
		Height  int    `json:"height"`
		Title   string `json:"title"`
	}{2, columns, recordingRows, "acp-demo-agent demo"})
	return r, nil
}

// Write records what a terminal gets: a line ends with CR LF there.
func (r *recording) Write(p []byte) (int, error) {
	if now := time.Since(r.begun); r.text.Len() == 0 || now-r.at > sameFrame {
		r.flush()
		r.at = now
	}
	r.text.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n")))
	return len(p), nil
}

func (r *recording) flush() {
	if r.text.Len() > 0 {
		r.event([3]any{r.at.Round(time.Millisecond).Seconds(), "o", r.text.String()})
		r.text.Reset()
	}
}

func (r *recording) event(v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	if err == nil {
		_, err = r.file.Write(b.Bytes())
	}
	r.err = errors.Join(r.err, err)
}

// Close returns the first error of the recording.
func (r *recording) Close() error {
	r.flush()
	if err := errors.Join(r.err, r.file.Close()); err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	return nil
}
