package terminaltest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// Programs returns the programs that the cases run, by name, with those of
// [memterm.Standard]. The same functions run in a memterm.Manager and, by way of
// [Main], as real processes.
func Programs() map[string]memterm.Program {
	programs := memterm.Standard()
	maps.Copy(programs, map[string]memterm.Program{
		"print":    printText,
		"drip":     drip,
		"lines":    lines,
		"spill":    spill,
		"bytes":    slowly,
		"repeat":   repeat,
		"args":     args,
		"hold":     hold,
		"stubborn": stubborn,
		"trap":     trap,
		"die":      func(p *memterm.Process) terminal.Exit { return memterm.Signal(p.Args[1]) },
		"vanish":   func(*memterm.Process) terminal.Exit { return terminal.Exit{} },
		"beat":     beat,
		"family":   family,
		"leave":    leave,
		"gulp":     gulp,
		"size":     size,
		"signals":  signals,
		"both":     both,
	})
	return programs
}

// printText is print TEXT: TEXT with the escapes of a Go string, and no line
// end.
func printText(p *memterm.Process) terminal.Exit {
	text, err := unquote(p.Args[1])
	if err != nil {
		fmt.Fprintln(p.Stderr, "print:", err)
		return memterm.Code(2)
	}
	io.WriteString(p.Stdout, text)
	return memterm.Code(0)
}

// unquote interprets the escapes of a Go string, so that a command line can
// name any byte.
func unquote(s string) (string, error) {
	return strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`)
}

// drip is drip INTERVAL TEXT...: each TEXT as a line after an interval.
func drip(p *memterm.Process) terminal.Exit {
	interval := duration(p.Args[1])
	for _, text := range p.Args[2:] {
		if !p.Sleep(interval) {
			return p.Death()
		}
		io.WriteString(p.Stdout, text+"\n")
	}
	return memterm.Code(0)
}

// lines is lines N: N numbered lines of 8 bytes each.
func lines(p *memterm.Process) terminal.Exit {
	n, _ := strconv.Atoi(p.Args[1])
	io.WriteString(p.Stdout, numbered(n))
	return memterm.Code(0)
}

// spill is lines N that then waits for its end.
func spill(p *memterm.Process) terminal.Exit {
	lines(p)
	<-p.Stopped
	return p.Death()
}

// numbered is the output of lines.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%07d\n", i)
	}
	return b.String()
}

// repeat is repeat N TEXT: TEXT, N times.
func repeat(p *memterm.Process) terminal.Exit {
	n, _ := strconv.Atoi(p.Args[1])
	io.WriteString(p.Stdout, strings.Repeat(p.Args[2], n))
	return memterm.Code(0)
}

// slowly is bytes INTERVAL TEXT: TEXT, a byte at a time.
func slowly(p *memterm.Process) terminal.Exit {
	interval := duration(p.Args[1])
	for _, b := range []byte(p.Args[2]) {
		p.Stdout.Write([]byte{b})
		if !p.Sleep(interval) {
			return p.Death()
		}
	}
	return memterm.Code(0)
}

// args is args WORD...: each word as a line, as a Go string.
func args(p *memterm.Process) terminal.Exit {
	for _, arg := range p.Args[1:] {
		fmt.Fprintf(p.Stdout, "%+q\n", arg)
	}
	return memterm.Code(0)
}

// hold says that it is ready and waits for its end.
func hold(p *memterm.Process) terminal.Exit {
	io.WriteString(p.Stdout, "ready\n")
	<-p.Stopped
	return p.Death()
}

// stubborn is hold that only SIGKILL ends.
func stubborn(p *memterm.Process) terminal.Exit {
	io.WriteString(p.Stdout, "ready\n")
	<-p.Killed
	return memterm.Signal("SIGKILL")
}

// trap is trap CODE: hold that says "bye" when it is asked to end and exits
// with CODE.
func trap(p *memterm.Process) terminal.Exit {
	io.WriteString(p.Stdout, "ready\n")
	<-p.Stopped
	io.WriteString(p.Stdout, "bye\n")
	code, _ := strconv.Atoi(p.Args[1])
	return memterm.Code(code)
}

// beatInterval is the time between two signs of life of beat.
const beatInterval = 20 * time.Millisecond

// beat is beat FILE [-s]: it appends to FILE as long as it lives; with -s only
// SIGKILL ends it.
func beat(p *memterm.Process) terminal.Exit {
	stopped := p.Stopped
	if len(p.Args) > 2 {
		stopped = nil
	}
	for {
		f, err := os.OpenFile(p.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return memterm.Code(1) // the directory is gone, and with it who asked
		}
		f.WriteString(".")
		f.Close()
		timer := time.NewTimer(beatInterval)
		select {
		case <-timer.C:
		case <-stopped:
			timer.Stop()
			return p.Death()
		case <-p.Killed:
			timer.Stop()
			return memterm.Signal("SIGKILL")
		}
	}
}

// family is family FILE: hold with two children, beat FILE.plain and the
// stubborn beat FILE.stubborn.
func family(p *memterm.Process) terminal.Exit {
	if _, err := p.Spawn("beat", p.Args[1]+".plain"); err != nil {
		fmt.Fprintln(p.Stderr, "family:", err)
		return memterm.Code(1)
	}
	if _, err := p.Spawn("beat", p.Args[1]+".stubborn", "-s"); err != nil {
		fmt.Fprintln(p.Stderr, "family:", err)
		return memterm.Code(1)
	}
	return hold(p)
}

// leave is leave FILE: it leaves a child beat FILE behind and exits.
func leave(p *memterm.Process) terminal.Exit {
	if _, err := p.Spawn("beat", p.Args[1]); err != nil {
		fmt.Fprintln(p.Stderr, "leave:", err)
		return memterm.Code(1)
	}
	io.WriteString(p.Stdout, "left\n")
	return memterm.Code(0)
}

// gulp is gulp DELAY MARK: after a delay it reads until it has read MARK, and
// prints all that it read.
func gulp(p *memterm.Process) terminal.Exit {
	io.WriteString(p.Stdout, "ready\n")
	if !p.Sleep(duration(p.Args[1])) {
		return p.Death()
	}
	var got []byte
	buf := make([]byte, 32<<10)
	for !bytes.HasSuffix(got, []byte(p.Args[2])) {
		n, err := p.Stdin.Read(buf)
		got = append(got, buf[:n]...)
		switch {
		case err == io.EOF:
			fmt.Fprintln(p.Stderr, "gulp: end of input")
			return memterm.Code(1)
		case err != nil:
			return p.Death()
		}
	}
	p.Stdout.Write(got)
	return memterm.Code(0)
}

// size prints the size of the terminal at first and at every change.
func size(p *memterm.Process) terminal.Exit {
	for {
		s := p.Size()
		fmt.Fprintf(p.Stdout, "%d x %d\n", s.Rows, s.Cols)
		for changed := false; !changed; {
			select {
			case <-p.Stopped:
				return p.Death()
			case sig := <-p.Signals:
				changed = memterm.SignalName(sig) == "SIGWINCH"
			}
		}
	}
}

// signals prints the name of each signal that it gets; SIGTERM ends it.
func signals(p *memterm.Process) terminal.Exit {
	io.WriteString(p.Stdout, "ready\n")
	for {
		select {
		case sig := <-p.Signals:
			name := memterm.SignalName(sig)
			io.WriteString(p.Stdout, name+"\n")
			if name == "SIGTERM" {
				return p.Death()
			}
		case <-p.Killed:
			return memterm.Signal("SIGKILL")
		}
	}
}

// both writes to both outputs.
func both(p *memterm.Process) terminal.Exit {
	io.WriteString(p.Stdout, "to stdout\n")
	io.WriteString(p.Stderr, "to stderr\n")
	return memterm.Code(0)
}

// duration parses a time that a case wrote; cases do not write bad ones.
func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}
