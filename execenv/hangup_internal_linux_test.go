package execenv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/termbridge/termbridge/terminal"
)

// Whoever waits is looked for when the output has been quiet for a moment, and
// then ever more seldom until there is some.
func TestAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var looks []string
		again := 0 // the look in which there is somebody
		over := make(chan struct{})
		a := newAbsence(hangupQuiet, over, func(f func()) { f() }, func() bool {
			mu.Lock()
			defer mu.Unlock()
			looks = append(looks, fmt.Sprint(time.Since(began).Milliseconds()))
			return len(looks) == again
		})
		check := func(until time.Duration, want ...string) {
			t.Helper()
			time.Sleep(until - time.Since(began))
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(looks, want) {
				t.Fatalf("looks at %q, want %q", looks, want)
			}
		}
		check(9*time.Second, "250", "750", "1750", "3750", "7750")
		a.wake() // it rested until 15.75
		a.wake()
		check(9400*time.Millisecond, "250", "750", "1750", "3750", "7750") // it may still draw
		mu.Lock()
		again = 6
		mu.Unlock()
		check(9900*time.Millisecond, "250", "750", "1750", "3750", "7750", "9500", "9750") // to see what came of it
		mu.Lock()
		looks = nil
		mu.Unlock()
		for range 20 { // who writes all the time does not wait
			a.wake()
			time.Sleep(100 * time.Millisecond)
		}
		mu.Lock()
		if len(looks) > 0 {
			t.Errorf("looks at %q in the midst of output", looks)
		}
		mu.Unlock()
		close(over)
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(looks) > 1 {
			t.Errorf("looks at %q after the end", looks)
		}
		a.stop()
	})
}

// The first output counts, which is not read as the rest is.
func TestFirstOutputIsHeard(t *testing.T) {
	if !seesInput() {
		t.Skip("the kernel does not tell here who waits")
	}
	l := NewLocal(nil)
	defer l.Close()
	for _, how := range []string{"delivered", "read", "copied"} {
		p := l.Command(t.Context(), Spec{Path: "sh", Args: []string{"-c", "sleep 0.3; printf x; exec sleep 60"}, TTY: &TTY{}}).(*session)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Add(1)
		var out bytes.Buffer
		got := make(chan struct{}, 1)
		w := writerFunc(func(b []byte) (int, error) { got <- struct{}{}; return out.Write(b) })
		switch how {
		case "delivered":
			p.term.Deliver(w, func(error) { wg.Done() })
		case "read":
			go func() {
				defer wg.Done()
				var b [8]byte
				n, _ := p.term.Read(b[:])
				w.Write(b[:n])
			}()
		case "copied":
			go func() { defer wg.Done(); p.term.WriteTo(w) }()
		}
		<-got
		heard := false
		for range 100 { // look may be under way, and takes it back for a moment
			if heard = p.term.absence.Load().heard.Load(); heard {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if !heard {
			t.Errorf("%s: the first output was not heard", how)
		}
		p.StopTree(0)
		p.Wait()
		wg.Wait()
	}
}

// Where nothing shows what processes wait for, the modes of the terminal do: whoever
// wants single keys where nobody is at the keyboard is hung up on, the youngest
// first, and killed if it stays. What follows it goes on.
func TestHangUpByModes(t *testing.T) {
	blind(t)
	l := NewLocal(nil)
	defer l.Close()
	outputs := make(map[string]func() string)
	for line, program := range map[string]string{
		"seq 1000 | less":          "less",
		"seq 1000 | more":          "more",
		"vim -u NONE f":            "vim",
		"trap '' HUP; vim f":       "vim",
		"stty raw <&2; sleep 1000": "stty",
	} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("%s is missing", program)
			continue
		}
		p := l.Command(t.Context(), Spec{Path: "sh", Args: []string{"-c", line + "; sleep 2; echo over"}, TTY: &TTY{}, Dir: t.TempDir()}).(*session)
		if err := p.Start(); errors.Is(err, ErrNoTerminal) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		out, done := new(bytes.Buffer), make(chan struct{})
		go func() { defer close(done); io.Copy(out, p.term) }()
		timer := time.AfterFunc(time.Minute, func() { p.StopTree(0) })
		outputs[line] = func() string {
			<-done
			timer.Stop()
			p.Wait()
			return out.String()
		}
	}
	for line, output := range outputs {
		if out := output(); !strings.HasSuffix(strings.TrimRight(out, "\r\n"), "over") {
			t.Errorf("%s: %q", line, out)
		}
	}
}

// They are what shows that input is waited for, too; who reads lines is not seen.
func TestInputStateByModes(t *testing.T) {
	blind(t)
	l := NewLocal(nil)
	defer l.Close()
	for line, want := range map[string]terminal.Evidence{
		"stty raw; exec cat":                {Certainty: terminal.Likely, Reason: "the terminal gives single keys"},
		"stty -echo; exec cat":              {Certainty: terminal.Likely, Reason: "the terminal does not echo", Secret: true},
		"exec bash --norc --noprofile -i":   {Certainty: terminal.Likely, Reason: "the terminal gives single keys"},
		"exec cat":                          {Certainty: terminal.NoCertainty, Reason: "the system does not show what processes wait for"},
		"exec sleep 1000 | exec sleep 1000": {Certainty: terminal.NoCertainty, Reason: "the system does not show what processes wait for"},
	} {
		p := l.Command(t.Context(), Spec{Path: "sh", Args: []string{"-c", line}, TTY: &TTY{Input: true}}).(*session)
		if err := p.Start(); errors.Is(err, ErrNoTerminal) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); io.Copy(io.Discard, p.term) }()
		var state terminal.Activity
		var got terminal.Evidence
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if state, got = p.InputState(); got.Reason == want.Reason {
				break
			}
		}
		if is := got.Proc.PID == p.child.pid; is != (state == terminal.Waiting) {
			t.Errorf("%s: process %d", line, got.Proc.PID)
		}
		got.Proc = terminal.Proc{}
		if got != want || (state == terminal.Waiting) != (want.Certainty == terminal.Likely) {
			t.Errorf("%s: %s, %+v, want %+v", line, state, got, want)
		}
		p.StopTree(0)
		p.Wait()
		<-done
	}
	p := l.Command(t.Context(), Spec{Path: "bash", Args: []string{"--norc", "-i"}}).(*process)
	s := &session{process: p}
	p.spec.TTY, p.child = nil, &child{}
	if state, e := s.inputState(); state != terminal.Working || e.Reason == "" {
		t.Errorf("pipes: %s, %+v", state, e)
	}
}

// blind makes the system one that does not show what processes wait for.
func blind(t *testing.T) {
	sees, quiet := seesInput, modesQuiet
	seesInput, modesQuiet = func() bool { return false }, 500*time.Millisecond
	t.Cleanup(func() { seesInput, modesQuiet = sees, quiet })
}

// What it has written comes before that it waits: who is told of the one has the
// other.
func TestInputStateAfterTheOutput(t *testing.T) {
	if !seesInput() {
		t.Skip("the kernel does not tell here who waits")
	}
	l := NewLocal(nil)
	defer l.Close()
	for _, tty := range []*TTY{nil, {Input: true}} {
		p := l.Command(t.Context(), Spec{Path: "sh", Args: []string{"-c", "printf '> '; read x"}, TTY: tty, Group: true}).(*session)
		var out interface {
			Deliver(io.Writer, func(error))
		}
		if tty == nil {
			p.StdinPipe()
			r, _ := p.StdoutPipe()
			out = r.(*stream)
		}
		if err := p.Start(); errors.Is(err, ErrNoTerminal) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		if tty != nil {
			out = p.term
		}
		for end := time.Now().Add(30 * time.Second); len(p.waiting()) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it does not wait")
			}
		}
		if state, e := p.InputState(); state != terminal.Working || e.Reason == "" {
			t.Errorf("unread: %s, %+v", state, e)
		}
		var state terminal.Activity
		given, ended := make(chan struct{}), make(chan struct{})
		out.Deliver(writerFunc(func(b []byte) (int, error) {
			state, _ = p.InputState()
			close(given)
			return len(b), nil
		}), func(error) { close(ended) })
		<-given
		if state != terminal.Working {
			t.Errorf("given this instant: %s", state)
		}
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			if state, _ = p.InputState(); state == terminal.Waiting {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("read: %s", state)
			}
		}
		p.StopTree(0)
		<-ended
		p.Wait()
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
