package memterm

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// Standard returns a few programs with the names and the meaning of the Unix
// ones: echo, cat (of its input only), sleep (of seconds, also "0.5", or of
// what time.ParseDuration reads), true, false, exit (with a code), env, pwd and
// yes.
func Standard() map[string]Program {
	return map[string]Program{
		"echo": func(p *Process) terminal.Exit {
			io.WriteString(p.Stdout, strings.Join(p.Args[1:], " ")+"\n")
			return Code(0)
		},
		"cat": func(p *Process) terminal.Exit {
			if _, err := io.Copy(p.Stdout, p.Stdin); err != nil {
				return p.Death()
			}
			return Code(0)
		},
		"sleep": sleep,
		"true":  func(*Process) terminal.Exit { return Code(0) },
		"false": func(*Process) terminal.Exit { return Code(1) },
		"exit": func(p *Process) terminal.Exit {
			code, err := strconv.Atoi(strings.Join(p.Args[1:], " "))
			if err != nil {
				io.WriteString(p.Stderr, "exit: give one code\n")
				return Code(2)
			}
			return Code(code)
		},
		"env": func(p *Process) terminal.Exit {
			for _, name := range slices.Sorted(maps.Keys(p.Env)) {
				io.WriteString(p.Stdout, name+"="+p.Env[name]+"\n")
			}
			return Code(0)
		},
		"pwd": func(p *Process) terminal.Exit {
			io.WriteString(p.Stdout, p.Dir+"\n")
			return Code(0)
		},
		"yes": func(p *Process) terminal.Exit {
			chunk := strings.Repeat("y\n", 4<<10)
			for p.Sleep(time.Millisecond) { // fake time passes only while all sleep
				if _, err := io.WriteString(p.Stdout, chunk); err != nil {
					return Code(1)
				}
			}
			return p.Death()
		},
	}
}

func sleep(p *Process) terminal.Exit {
	for _, arg := range p.Args[1:] {
		d, err := time.ParseDuration(arg)
		if seconds, bad := strconv.ParseFloat(arg, 64); bad == nil {
			d, err = time.Duration(seconds*float64(time.Second)), nil
		}
		if err != nil {
			io.WriteString(p.Stderr, "sleep: "+arg+": no time\n")
			return Code(1)
		}
		if !p.Sleep(d) {
			return p.Death()
		}
	}
	return Code(0)
}
