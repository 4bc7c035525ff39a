package fakeconn

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// Programs returns the programs that every Client has: those of
// [memterm.Standard], which are echo, cat, sleep, true, false, exit, env, pwd
// and yes, and
//
//	print TEXT…         prints TEXT after its Go escapes, such as \n or \x1b
//	printf FORMAT [ARG] prints FORMAT with its escapes, such as \n or \303, and %s or %9s for ARG
//	fail TEXT…          prints TEXT likewise, on stderr, and exits with 1
//	signal NAME         is ended by a signal, such as SIGKILL, that nobody sent
//	lines N D           prints "line 1" to "line N", one every D
//	spam BYTES          prints that many bytes, in lines of 64
//	after D PROGRAM…    sleeps for D, such as 2s, then runs the program
//	spawn PROGRAM…      starts the program, which may outlive it, and exits
//	ignore-term [TEXT]  prints TEXT, then runs until it is killed
//
// What does not ignore it is ended by SIGTERM.
func Programs() map[string]memterm.Program {
	programs := memterm.Standard()
	maps.Copy(programs, map[string]memterm.Program{
		"print": func(p *memterm.Process) terminal.Exit {
			return write(p, unescape(p.Args[1:]))
		},
		"printf": func(p *memterm.Process) terminal.Exit {
			text := unescape([]string{arg(p, 1)})
			text = field.ReplaceAllStringFunc(text, func(s string) string { return fmt.Sprintf(s, arg(p, 2)) })
			return write(p, text)
		},
		"fail": func(p *memterm.Process) terminal.Exit {
			io.WriteString(p.Stderr, unescape(p.Args[1:]))
			return memterm.Code(1)
		},
		"signal": func(p *memterm.Process) terminal.Exit {
			if arg(p, 1) == "" {
				return usage(p, "NAME")
			}
			return memterm.Signal(arg(p, 1))
		},
		"lines": func(p *memterm.Process) terminal.Exit {
			n, err := strconv.Atoi(arg(p, 1))
			d, err2 := time.ParseDuration(arg(p, 2))
			if err != nil || err2 != nil {
				return usage(p, "N DURATION")
			}
			for i := range n {
				if _, err := fmt.Fprintf(p.Stdout, "line %d\n", i+1); err != nil || !p.Sleep(d) {
					return p.Death()
				}
			}
			return memterm.Code(0)
		},
		"spam": func(p *memterm.Process) terminal.Exit {
			n, err := strconv.Atoi(arg(p, 1))
			if err != nil {
				return usage(p, "BYTES")
			}
			line := strings.Repeat("x", 63) + "\n"
			for ; n > 0; n -= len(line) {
				if _, err := io.WriteString(p.Stdout, line[max(0, len(line)-n):]); err != nil {
					return p.Death()
				}
			}
			return memterm.Code(0)
		},
		"spawn": func(p *memterm.Process) terminal.Exit {
			if _, err := p.Spawn(p.Args[1:]...); err != nil {
				return usage(p, err.Error())
			}
			return memterm.Code(0)
		},
		"ignore-term": func(p *memterm.Process) terminal.Exit {
			write(p, unescape(p.Args[1:]))
			<-p.Killed
			return memterm.Signal("SIGKILL")
		},
	})
	programs["after"] = func(p *memterm.Process) terminal.Exit {
		d, err := time.ParseDuration(arg(p, 1))
		prog := programs[arg(p, 2)]
		switch {
		case err != nil || prog == nil:
			return usage(p, "DURATION PROGRAM…")
		case !p.Sleep(d):
			return p.Death()
		}
		q := *p
		q.Args = p.Args[2:]
		return prog(&q)
	}
	return programs
}

// field is what printf replaces.
var field = regexp.MustCompile(`%[0-9]*s`)

// arg returns a word of the command, "" if there is none.
func arg(p *memterm.Process, i int) string {
	if i < len(p.Args) {
		return p.Args[i]
	}
	return ""
}

func write(p *memterm.Process, text string) terminal.Exit {
	if _, err := io.WriteString(p.Stdout, text); err != nil {
		return p.Death()
	}
	return memterm.Code(0)
}

func usage(p *memterm.Process, how string) terminal.Exit {
	fmt.Fprintf(p.Stderr, "usage: %s %s\n", p.Args[0], how)
	return memterm.Code(2)
}

// unescape joins texts and resolves their escapes; what is no escape stays.
func unescape(texts []string) string {
	text := strings.Join(texts, " ")
	if s, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`); err == nil {
		return s
	}
	return text
}
