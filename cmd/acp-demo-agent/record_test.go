package main

import (
	"encoding/json"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/termbridge/termbridge/view"
)

// A cast is an asciicast that was read.
type cast struct {
	Version, Width, Height int
	text                   string // all output
}

// played reads an asciicast, version 2.
func played(t *testing.T, file string) (c cast) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	header, events, _ := strings.Cut(string(b), "\n")
	if err := json.Unmarshal([]byte(header), &c); err != nil || c.Version != 2 || c.Width < minColumns || c.Height < 1 {
		t.Fatalf("%s: the header is %s, %v", file, header, err)
	}
	last := 0.0
	for line := range strings.Lines(events) {
		var at float64
		var kind, text string
		if err := json.Unmarshal([]byte(line), &[]any{&at, &kind, &text}); err != nil || kind != "o" || at < last {
			t.Fatalf("%s: the event %s is not one, or not in order: %v", file, line, err)
		}
		c.text, last = c.text+text, at
	}
	return c
}

// story returns what does not depend on times of what the demo drew: headings, what
// the client does, and the summary.
func story(drawn string) (lines []string) {
	lasted := regexp.MustCompile(` +[0-9.]+s$`)
	for line := range strings.Lines(view.Plain(drawn)) {
		line = strings.TrimRight(line, "\r\n")
		said := strings.HasPrefix(line, "   ") || strings.Contains(line, " │ ") // of the agent, or by a command
		if line != "" && !said && !strings.HasPrefix(line, "  › output ") {     // as often as it takes
			lines = append(lines, lasted.ReplaceAllString(line, ""))
		}
	}
	return lines
}

// The picture of the README is made from the recording beside it.
func TestPicture(t *testing.T) {
	svg, err := os.ReadFile("../../docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, text := range regexp.MustCompile(`>([^<>]+)<`).FindAllStringSubmatch(string(svg), -1) {
		for word := range strings.FieldsSeq(html.UnescapeString(text[1])) {
			shown[word] = true
		}
	}
	recorded := played(t, "../../docs/demo.cast")
	words := strings.Fields(view.Plain(recorded.text))
	for _, word := range words {
		if !shown[word] {
			t.Errorf("docs/demo.svg does not show %q of docs/demo.cast", word)
		}
	}
	if len(words) < 300 || len(svg) > 100_000 {
		t.Errorf("%d words in a picture of %d bytes", len(words), len(svg))
	}
}
