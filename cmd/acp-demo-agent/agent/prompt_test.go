package agent_test

import (
	"testing"

	"github.com/coder/acp-go-sdk"
)

// A prompt with a link or anything else in it runs whole, or not at all and the
// agent says why: what was written around the link is no line of its own.
func TestPromptIsNeverRunInPart(t *testing.T) {
	text, link := acp.TextBlock, func(uri string) acp.ContentBlock { return acp.ResourceLinkBlock("name", uri) }
	embedded := acp.ResourceBlock(acp.EmbeddedResourceResource{
		TextResourceContents: &acp.TextResourceContents{Uri: "file:///src/main.go", Text: "package main"},
	})
	blocks := func(b ...acp.ContentBlock) []acp.ContentBlock { return b }
	with(t, kinds[0], nil, func(f *fixture) {
		for _, tt := range []struct {
			name   string
			prompt []acp.ContentBlock
			lines  []string // the titles of the cards
			says   string
		}{
			{"text only", blocks(text("!echo one"), text("!echo two\n!echo three")), []string{"echo one", "echo two", "echo three"}, ""},
			{"a link as a word", blocks(text("!echo "), link("file:///src/main.go"), text(" -l\n!echo two")), []string{"echo /src/main.go -l", "echo two"}, ""},
			{"a link at the end", blocks(text("!echo\t"), link("file://localhost/src/%C3%9Cb.txt")), []string{"echo\t/src/Üb.txt"}, ""},
			{"a link before a new line", blocks(text("!echo "), link("file:///src"), text("\n!echo two")), []string{"echo /src", "echo two"}, ""},
			{"two links", blocks(text("!echo "), link("file:///a"), text(" "), link("file:///b")), []string{"echo /a /b"}, ""},
			{"in a flag", blocks(text("run --dir "), link("file:///"), text(" -- echo x")), []string{"[in /] echo x"}, ""},

			{"a link in a word", blocks(text("!echo"), link("file:///a")), nil, "a link to `file:///a`"},
			{"a link before a word", blocks(text("!echo one "), link("file:///a"), text("b")), nil, "a link to `file:///a`"},
			{"a link before a link", blocks(text("!echo one "), link("file:///a"), link("file:///b")), nil, "a link to `file:///a`, a link to `file:///b`"},
			{"a link first", blocks(link("file:///a"), text("\n!echo one")), nil, "nothing of it was run"},
			{"a link on a line of its own", blocks(text("!echo one\n"), link("file:///a"), text("\n!echo two")), nil, "nothing of it was run"},
			{"a link at the end of lines", blocks(text("!echo one\n!echo two"), link("file:///a")), nil, "nothing of it was run"},
			{"a link to something else", blocks(text("!echo "), link("https://example.com/a"), text(" b")), nil, "a link to `https://example.com/a`"},
			{"a link to a part of a file", blocks(text("!echo "), link("file:///a#L1-2")), nil, "a link to `file:///a#L1-2`"},
			{"a link to something in a file", blocks(text("!echo "), link("file:///a?symbol=b")), nil, "a link to `file:///a?symbol=b`"},
			{"a link to a file elsewhere", blocks(text("!echo "), link("file://host/a")), nil, "a link to `file://host/a`"},
			{"a path that a shell would split", blocks(text("!echo '"), text("!echo "), link("file:///a%20b")), nil, "a link to"},
			{"a path that is a command", blocks(text("!echo 'x "), link("file:///a';echo%20one;'"), text(" y'")), nil, "a link to"},
			{"a path of two lines", blocks(text("!echo "), link("file:///a%0A!echo%20two")), nil, "a link to"},
			{"a path of none", blocks(text("!echo "), link("")), nil, "a link to"},
			{"an embedded resource", blocks(text("!echo one "), embedded, text(" two")), nil, "an embedded resource"},
			{"an image", blocks(text("!echo one"), acp.ImageBlock("AAAA", "image/png"), text("!echo two")), nil, "an image"},
			{"a sound", blocks(text("!echo one"), acp.AudioBlock("AAAA", "audio/wav")), nil, "a sound"},
			{"all of a parallel prompt", blocks(text("parallel\n!echo one\n!echo "), embedded), nil, "an embedded resource"},
		} {
			said, before := len(f.Messages()), len(f.Host().Cards(f.id))
			resp, err := f.Peer().Prompt(f.Context(), acp.PromptRequest{SessionId: f.id, Prompt: tt.prompt})
			if err == nil {
				err = f.Sync(f.Context())
			}
			if err != nil || resp.StopReason != acp.StopReasonEndTurn {
				f.Errorf("%s: %q, %v", tt.name, resp.StopReason, err)
			}
			var titles []string
			for _, c := range f.Host().Cards(f.id)[before:] {
				titles = append(titles, c.Title)
			}
			check(f.T, tt.name, titles, tt.lines)
			contains(f.T, tt.name, f.Messages()[said:], tt.says)
		}
	})
}
