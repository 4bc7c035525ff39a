package emulate

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// A shell is a process that runs lines, with enough of the POSIX shell's grammar
// to tell apart what clients make of a command: quoting, $NAME and globs, lists
// with ; & && || and newlines, ( ), here-documents, </dev/null, exec, exit, a
// trap that ignores signals, and ":". A glob that is not quoted becomes the word "EXPANDED".
type shell struct {
	p      *process
	env    map[string]string
	stdin  io.Reader
	status int
	ended  *terminal.Exit // by exit, exec or a signal
}

// run runs a line and returns how the shell exits.
func (sh *shell) run(line string) terminal.Exit {
	list, err := parseShell(line)
	if err != nil {
		fmt.Fprintf(sh.p, "sh: syntax error: %v\n", err)
		return memterm.Code(2)
	}
	sh.list(list)
	if sh.ended != nil {
		return *sh.ended
	}
	return memterm.Code(sh.status)
}

func (sh *shell) list(list []node) {
	for _, n := range list {
		if sh.ended != nil {
			return
		}
		switch {
		case n.after == "&&" && sh.status != 0, n.after == "||" && sh.status == 0:
			continue
		}
		if n.background {
			fork := shell{env: maps.Clone(sh.env), stdin: strings.NewReader("")}
			n.background = false
			n.after = ""
			sh.p.fork(func(p *process) terminal.Exit {
				fork.p = p
				fork.list([]node{n})
				return fork.exit()
			})
			sh.status = 0
			continue
		}
		sh.command(n)
	}
}

func (sh *shell) exit() terminal.Exit {
	if sh.ended != nil {
		return *sh.ended
	}
	return memterm.Code(sh.status)
}

// command runs one command.
func (sh *shell) command(n node) {
	stdin := sh.stdin
	if n.stdin != nil {
		stdin = strings.NewReader(sh.expand(*n.stdin, true)[0])
	}
	if n.sub != nil {
		fork := shell{env: maps.Clone(sh.env), stdin: stdin}
		sh.await(sh.p.fork(func(p *process) terminal.Exit {
			fork.p = p
			fork.list(n.sub)
			return fork.exit()
		}))
		return
	}
	var words []string
	for _, w := range n.words {
		words = append(words, sh.expand(w, false)...)
	}
	exec := len(words) > 0 && words[0] == "exec"
	if exec {
		words = words[1:]
	}
	switch {
	case len(words) == 0:
		sh.status = 0
		if exec {
			sh.stdin = stdin
		}
		return
	case words[0] == ":":
		sh.status = 0
		return
	case words[0] == "trap" && !exec:
		if sh.status = 0; len(words) > 1 && words[1] == "" {
			sh.p.ignore(words[2:])
		} else {
			fmt.Fprintln(sh.p, "sh: trap: only '' is understood")
			sh.status = 2
		}
		return
	case words[0] == "exit" && !exec:
		if len(words) > 1 {
			sh.status, _ = strconv.Atoi(words[1])
		}
		sh.end(memterm.Code(sh.status & 0xff))
		return
	}
	prog, ok := sh.p.group.program(words)
	if !ok {
		fmt.Fprintf(sh.p, "sh: %s: not found\n", words[0])
		sh.status = 127
		if exec {
			sh.end(memterm.Code(127))
		}
		return
	}
	run := func(p *process) terminal.Exit { return prog(p.process(words, sh.env, stdin)) }
	if exec {
		sh.end(run(sh.p)) // in the place of the shell
		return
	}
	sh.await(sh.p.fork(run))
}

func (sh *shell) end(exit terminal.Exit) { sh.ended = &exit }

// await waits for a child, unless a signal ends the shell before.
func (sh *shell) await(child *process) {
	select {
	case <-child.done:
	case <-sh.p.stopped:
		sh.end(sh.p.deathNow())
		return
	}
	switch exit := child.exit; {
	case exit.Signal != "":
		sh.status = 128 + signalNumber(exit.Signal)
	case exit.Code != nil:
		sh.status = *exit.Code & 0xff
	default:
		sh.status = 255
	}
}

// expand returns the fields of a word; the text of a here-document is one.
func (sh *shell) expand(w word, document bool) []string {
	var fields []string
	var b strings.Builder
	some, glob := document, false
	flush := func() {
		if some {
			text := b.String()
			if glob {
				text = "EXPANDED"
			}
			fields = append(fields, text)
		}
		b.Reset()
		some, glob = false, false
	}
	for _, s := range w {
		text := s.text
		if s.name != "" {
			text = sh.env[s.name]
			if s.name == "?" {
				text = strconv.Itoa(sh.status)
			}
		}
		if s.quoted || document {
			b.WriteString(text)
			some = true
			continue
		}
		for _, r := range text {
			switch {
			case s.name != "" && strings.ContainsRune(" \t\n", r):
				flush()
				continue
			case r == '*' || r == '?':
				glob = true
			}
			b.WriteRune(r)
			some = true
		}
	}
	flush()
	return fields
}

// A node is a command of a list.
type node struct {
	after      string // "&&", "||", or "" for any end before it
	words      []word
	sub        []node // ( … )
	stdin      *word  // a here-document, or nothing from /dev/null
	background bool
}

// A word is what becomes one field, or several or none.
type word []segment

type segment struct {
	text   string
	name   string // of a parameter
	quoted bool
}

// parseShell parses a line.
func parseShell(line string) ([]node, error) {
	p := parser{in: line}
	list, err := p.list()
	if err == nil && p.at < len(p.in) {
		err = fmt.Errorf("%q unexpected", p.in[p.at:p.at+1])
	}
	return list, err
}

type parser struct {
	in        string
	at        int
	documents []*document // whose text begins behind the end of the line
}

type document struct {
	word  *word
	end   string
	plain bool // nothing is expanded
}

func (p *parser) has(s string) bool { return strings.HasPrefix(p.in[p.at:], s) }

// skip skips what is between words.
func (p *parser) skip() {
	for p.at < len(p.in) {
		switch {
		case p.in[p.at] == ' ', p.in[p.at] == '\t':
			p.at++
		case p.has("\\\n"):
			p.at += 2
		case p.in[p.at] == '#':
			if i := strings.IndexByte(p.in[p.at:], '\n'); i >= 0 {
				p.at += i
			} else {
				p.at = len(p.in)
			}
		default:
			return
		}
	}
}

// list parses up to ")" or the end.
func (p *parser) list() ([]node, error) {
	var list []node
	after := ""
	for {
		p.skip()
		switch {
		case p.at == len(p.in), p.in[p.at] == ')':
			if len(p.documents) > 0 {
				return nil, errors.New("a here-document has no text")
			}
			if after != "" {
				return nil, errors.New("unexpected end")
			}
			return list, nil
		case p.in[p.at] == '\n':
			if err := p.newline(); err != nil {
				return nil, err
			}
			continue
		}
		n, err := p.command()
		if err != nil {
			return nil, err
		}
		n.after, after = after, ""
		p.skip()
		switch {
		case p.has("&&"), p.has("||"):
			after = p.in[p.at : p.at+2]
			p.at += 2
		case p.has("&"):
			n.background = true
			p.at++
		case p.has(";"):
			p.at++
		}
		list = append(list, n)
	}
}

// newline ends a line, and reads the here-documents that it has begun.
func (p *parser) newline() error {
	p.at++
	for _, d := range p.documents {
		var text strings.Builder
		for {
			if p.at == len(p.in) {
				return fmt.Errorf("a here-document does not end with %q", d.end)
			}
			line, _, _ := strings.Cut(p.in[p.at:], "\n")
			p.at = min(len(p.in), p.at+len(line)+1)
			if line == d.end {
				break
			}
			text.WriteString(line + "\n")
		}
		if d.plain {
			*d.word = word{{text: text.String(), quoted: true}}
			continue
		}
		inner := parser{in: text.String()}
		for inner.at < len(inner.in) {
			inner.segment(d.word, true, "")
		}
	}
	p.documents = nil
	return nil
}

// command parses one command with its redirections.
func (p *parser) command() (node, error) {
	var n node
	if p.has("(") {
		p.at++
		sub, err := p.list()
		if err != nil {
			return n, err
		}
		if !p.has(")") {
			return n, errors.New("a ( is not closed")
		}
		p.at++
		n.sub = append([]node{}, sub...)
	}
	for {
		p.skip()
		switch {
		case p.at == len(p.in), strings.IndexByte(";&\n)", p.in[p.at]) >= 0, p.has("||"):
			if n.words == nil && n.sub == nil && n.stdin == nil {
				return n, errors.New("a command is missing")
			}
			return n, nil
		case p.has("<<"):
			p.at += 2
			start := p.at
			w, err := p.word()
			if err != nil {
				return n, err
			}
			d := &document{word: &word{}, plain: strings.ContainsAny(p.in[start:p.at], `'"\`)}
			for _, s := range w {
				d.end += s.text
			}
			n.stdin = d.word
			p.documents = append(p.documents, d)
		case p.has("<"):
			p.at++
			p.skip()
			w, err := p.word()
			if err != nil {
				return n, err
			}
			if len(w) != 1 || w[0].text != "/dev/null" {
				return n, errors.New("only /dev/null can be read")
			}
			n.stdin = &word{}
		case strings.IndexByte("|>(`", p.in[p.at]) >= 0:
			return n, fmt.Errorf("%q is not understood here", p.in[p.at:p.at+1])
		case n.sub != nil:
			return n, errors.New("a word behind )")
		default:
			w, err := p.word()
			if err != nil {
				return n, err
			}
			n.words = append(n.words, w)
		}
	}
}

// word parses a word.
func (p *parser) word() (word, error) {
	var w word
	p.skip()
	start := p.at
	for p.at < len(p.in) {
		switch c := p.in[p.at]; c {
		case ' ', '\t', '\n', ';', '&', '|', '(', ')', '<', '>':
			if p.at == start {
				return nil, fmt.Errorf("%q unexpected", string(c))
			}
			return w, nil
		case '\'':
			end := strings.IndexByte(p.in[p.at+1:], '\'')
			if end < 0 {
				return nil, errors.New("a quote is not closed")
			}
			w = append(w, segment{text: p.in[p.at+1 : p.at+1+end], quoted: true})
			p.at += end + 2
		case '"':
			p.at++
			w = append(w, segment{quoted: true})
			for p.at < len(p.in) && p.in[p.at] != '"' {
				p.segment(&w, true, `"`)
			}
			if p.at == len(p.in) {
				return nil, errors.New("a quote is not closed")
			}
			p.at++
		case '\\':
			if p.at+1 == len(p.in) {
				return nil, errors.New("a backslash at the end")
			}
			if p.in[p.at+1] != '\n' {
				w = append(w, segment{text: p.in[p.at+1 : p.at+2], quoted: true})
			}
			p.at += 2
		default:
			p.segment(&w, false, " \t\n;&|()<>'\"\\")
		}
	}
	if p.at == start {
		return nil, errors.New("unexpected end")
	}
	return w, nil
}

// segment parses a parameter, an escape within quotes, or text up to one of
// stops.
func (p *parser) segment(w *word, quoted bool, stops string) {
	c := p.in[p.at]
	if c == '$' {
		rest := p.in[p.at+1:]
		braced := strings.HasPrefix(rest, "{")
		rest = strings.TrimPrefix(rest, "{")
		n := len(rest) - len(strings.TrimLeft(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789"))
		if strings.HasPrefix(rest, "?") {
			n = 1
		}
		if n > 0 {
			*w = append(*w, segment{name: rest[:n], quoted: quoted})
			p.at += 1 + n
			if braced {
				p.at += 2
			}
			return
		}
	}
	if c == '\\' && quoted && p.at+1 < len(p.in) && strings.IndexByte("$`\"\\\n", p.in[p.at+1]) >= 0 {
		if p.in[p.at+1] != '\n' {
			*w = append(*w, segment{text: p.in[p.at+1 : p.at+2], quoted: true})
		}
		p.at += 2
		return
	}
	end := p.at + 1
	for end < len(p.in) && p.in[end] != '$' && !(quoted && p.in[end] == '\\') && strings.IndexByte(stops, p.in[end]) < 0 {
		end++
	}
	*w = append(*w, segment{text: p.in[p.at:end], quoted: quoted})
	p.at = end
}
