package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/internal/text"
	"github.com/termbridge/termbridge/terminal"
)

const (
	defaultDetach = 0x1c // Ctrl-\

	// hintTime is how long the user can read how to leave before the screen is drawn.
	hintTime = 700 * time.Millisecond

	// asItWas undoes what a program may have set that goes on after this view:
	// the alternate screen, attributes, a hidden cursor, scroll margins, keypad modes,
	// the mouse and bracketed paste.
	asItWas = "\x1b[?1049l\x1b[0m\x1b[?25h\x1b[r\x1b[?1l\x1b>" +
		"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[999;1H"
)

// key reads the name of a control key.
func key(s string) (byte, error) {
	name, ok := strings.CutPrefix(strings.ToLower(s), "ctrl-")
	if !ok {
		name, ok = strings.CutPrefix(strings.ToLower(s), "^")
	}
	if !ok || len(name) != 1 || !strings.Contains(`abcdefghijklmnopqrstuvwxyz@[\]^_`, name) {
		return 0, errors.New(`it is such as ctrl-a or ctrl-]`)
	}
	return strings.ToUpper(name)[0] & 0x1f, nil
}

func keyName(key byte) string { return "Ctrl-" + string(rune(key|0x40)) }

// attach shows a session on the user's terminal, or copies its output if there is
// none.
func attach(c *call) error {
	if err := c.want(1, 1); err != nil {
		return err
	}
	in, _ := c.Stdin.(*os.File)
	out, _ := c.Stdout.(*os.File)
	size, interactive := terminal.Size{}, false
	if in != nil && out != nil {
		_, typed := terminalSize(in)
		size, interactive = terminalSize(out)
		interactive = interactive && typed
	}
	if c.write && !interactive {
		return misuse("--write needs a terminal on standard input and output; send types without one")
	}
	path, err := c.path()
	if err != nil {
		return err
	}
	req := control.Request{Verb: control.VerbAttach, ID: c.operands[0], Write: c.write}
	if c.write {
		req.Rows, req.Cols = size.Rows, size.Cols
	}
	conn, err := control.Attach(c, path, req)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.write && conn.ReadOnly != "" {
		return &explained{control.ErrReadOnly, conn.ReadOnly}
	}
	v := &view{call: c, conn: conn, name: text.Visible(conn.Session.Name, "")}
	if !interactive {
		return v.copy()
	}
	return v.run(in, size)
}

// A view is a session that is shown.
type view struct {
	*call
	conn *control.Conn
	name string
}

// next waits for a frame. The end of the agent is an error, and so is that of ctx.
func (v *view) next() (control.Frame, error) {
	f, err := v.conn.Recv()
	switch {
	case v.Err() != nil:
		return f, local(errors.New("interrupted"))
	case errors.Is(err, io.EOF):
		return f, errors.New("the agent has gone")
	}
	return f, err
}

// copy writes the output until the session or ctx ends.
func (v *view) copy() error {
	stop := closeWith(v)
	defer stop()
	for {
		f, err := v.next()
		if err != nil {
			return err
		}
		if _, err := v.Stdout.Write(f.Data); err != nil {
			return local(err)
		}
		if f.End != nil {
			return nil
		}
	}
}

// closeWith closes the connection when ctx ends, until stop.
func closeWith(v *view) (stop func()) {
	done := make(chan struct{})
	go func() { // ends with stop
		select {
		case <-v.Done():
			v.conn.Close()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// run shows the session on a terminal, until it ends, the user leaves, or ctx ends.
func (v *view) run(in *os.File, size terminal.Size) error {
	leave := "watching " + v.name
	if v.write {
		leave = "attached to " + v.name
	}
	leave += "; leave by " + keyName(v.detach)
	if s := v.conn.Session; s.ReadOnly != "" {
		leave += " (" + text.Visible(s.ReadOnly, "") + ")"
	}
	fmt.Fprintf(v.Stdout, "[%s]\r\n", leave)
	fmt.Fprintf(v.Stdout, "\x1b]2;%s\a", leave)
	restore, ok := makeRaw(in)
	if !ok {
		return local(errors.New("the terminal on standard input cannot be used"))
	}
	defer restore()
	stop := closeWith(v)
	defer stop()
	left := make(chan struct{}) // closed when the user leaves
	go v.typed(in, left)        // ends with the process: nothing interrupts the read of a terminal
	changed, done := resizes()
	defer done()
	over := make(chan error, 1) // gets why the frames end
	go func() {                 // ends with the connection
		select {
		case <-time.After(hintTime):
		case <-left:
		case <-v.Done():
		}
		over <- v.show()
	}()
	var err error
	for err = errGoesOn; errors.Is(err, errGoesOn); {
		select {
		case <-changed:
			if now, ok := terminalSize(v.Stdout.(*os.File)); ok && v.write && now != size {
				size = now
				_ = v.conn.Resize(size) // if the agent has gone, show finds out
			}
		case <-left:
			v.conn.Close()
			<-over
			err = nil
			fmt.Fprintf(v.Stdout, "%s\r\n[left %s, which goes on]\r\n", asItWas, v.name)
		case err = <-over:
			io.WriteString(v.Stdout, asItWas+"\r\n")
			var ended *endedError
			if errors.As(err, &ended) {
				err = nil
				fmt.Fprintf(v.Stdout, "[%s has ended: %s]\r\n", v.name, ended.how())
			}
		}
	}
	return err
}

var errGoesOn = errors.New("goes on")

// An endedError says that the session has ended, and how.
type endedError struct{ session control.SessionInfo }

func (e *endedError) Error() string { return "the session has ended" }

func (e *endedError) how() string {
	s := e.session
	switch {
	case s.Signal != "":
		return s.Signal
	case s.ExitCode != nil && *s.ExitCode >= 0:
		return fmt.Sprintf("exit code %d", *s.ExitCode)
	}
	return "it is not known how"
}

// show draws frames until the last.
func (v *view) show() error {
	for {
		f, err := v.next()
		if err != nil {
			return err
		}
		if _, err := v.Stdout.Write(f.Data); err != nil {
			return local(err)
		}
		if f.Error != "" {
			v.note(f.Error)
		}
		if f.End != nil {
			return &endedError{*f.End}
		}
	}
}

// note shows a line at the bottom of the screen, with a bell, until the program
// draws there again.
func (v *view) note(s string) {
	fmt.Fprintf(v.Stdout, "\x1b7\x1b[999;1H\x1b[0;7m %s \x1b[0m\x1b8\a", text.Visible(s, ""))
}

// typed sends keys until the user leaves or the terminal has gone.
func (v *view) typed(in io.Reader, left chan<- struct{}) {
	defer close(left)
	buf := make([]byte, 4096)
	for {
		n, err := in.Read(buf)
		keys := buf[:n]
		at := bytes.IndexByte(keys, v.detach)
		if at >= 0 {
			keys = keys[:at]
		}
		switch {
		case len(keys) == 0:
		case v.write:
			_, _ = v.conn.Write(keys) // if the agent has gone, show finds out
		case at < 0:
			v.note("watched only; leave by " + keyName(v.detach) + ", and type with --write")
		}
		if at >= 0 || err != nil {
			return
		}
	}
}
