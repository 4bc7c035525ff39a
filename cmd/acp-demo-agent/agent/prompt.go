package agent

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/coder/acp-go-sdk"
)

// promptText returns the text of a prompt. Each text block is a line or more. A
// link to a file is the file's path where it is a word of its own: an editor
// sends "!wc @main.go -l" as a text block, a link and a text block.
//
// With anything else between the text blocks the refusal is what to tell the
// user, and no line may run, since only some of its words are there. The text is
// then what to keep of the prompt.
func promptText(prompt []acp.ContentBlock) (words, refusal string) {
	var b strings.Builder
	var refused []string
	for i, block := range prompt {
		if block.Text != nil {
			if i > 0 && prompt[i-1].Text != nil {
				b.WriteByte('\n')
			}
			b.WriteString(block.Text.Text)
			continue
		}
		path, what := attachment(block)
		behind := "" // the end of the prompt
		if i+1 < len(prompt) {
			behind = "link" // no blank either
			if next := prompt[i+1].Text; next != nil {
				behind = next.Text
			}
		}
		if path == "" || !endsWord(b.String()) || !beginsWord(behind) {
			refused = append(refused, what)
			path = "[" + what + "]"
		}
		b.WriteString(path)
	}
	if len(refused) > 0 {
		return b.String(), fmt.Sprintf("I take lines of text, and links to files that are words of their own, as in `!cat @file`. "+
			"This prompt has %s, so nothing of it was run. Write it as text.\n", strings.Join(refused, ", "))
	}
	return b.String(), ""
}

// endsWord reports whether what comes behind line is a new word.
func endsWord(line string) bool { return strings.HasSuffix(line, " ") || strings.HasSuffix(line, "\t") }

// beginsWord reports whether what is behind a word is no part of it.
func beginsWord(behind string) bool {
	return behind == "" || strings.ContainsRune(" \t\r\n", rune(behind[0]))
}

// attachment returns the path of the file that a block names, if it names one
// that can stand in a line, and what the block is, in words.
func attachment(block acp.ContentBlock) (path, what string) {
	switch {
	case block.ResourceLink != nil:
		uri := block.ResourceLink.Uri
		return filePath(uri), "a link to " + code(uri)
	case block.Resource != nil:
		return "", "an embedded resource"
	case block.Image != nil:
		return "", "an image"
	case block.Audio != nil:
		return "", "a sound"
	}
	return "", "something that I do not know"
}

// filePath returns the path of a whole file, if it means itself anywhere in a
// shell line, even in quotes.
func filePath(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Host != "" && u.Host != "localhost" || u.RawQuery != "" || u.Fragment != "" || !filepath.IsAbs(u.Path) {
		return ""
	}
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/-_.,:@%+", r)
	}
	if strings.ContainsFunc(u.Path, func(r rune) bool { return !plain(r) }) {
		return ""
	}
	return u.Path
}
