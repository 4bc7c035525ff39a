package execenv_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/termbridge/termbridge/execenv"
)

func newLocal(t *testing.T) *execenv.Local {
	t.Helper()
	l := execenv.NewLocal(nil)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func TestOutput(t *testing.T) {
	out, err := newLocal(t).Command(t.Context(), execenv.Spec{Path: "sh", Args: []string{"-c", "echo hi; echo no >&2"}}).Output()
	if string(out) != "hi\n" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestTerminal(t *testing.T) {
	p := newLocal(t).Command(t.Context(), execenv.Spec{Path: "sh", Args: []string{"-c", "tty; stty size; echo $TERM $TERMBRIDGE_ID; ls -l /proc/self/fd; cat"}, TTY: &execenv.TTY{Input: true}})
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	s := p.(execenv.Session)
	term, _ := s.Terminal()
	io.WriteString(term, "hello\n\x04")
	out, err := io.ReadAll(term)
	t.Logf("%s %v", out, err)
	t.Log(p.Wait(), s.Exit())
}

func TestStopTree(t *testing.T) {
	p := newLocal(t).Command(context.Background(), execenv.Spec{Path: "sh", Args: []string{"-c", "trap '' TERM; setsid sleep 88 & (setsid env -i sleep 88 &) ; while :; do sleep 1; done"}, Group: true})
	r, _ := p.StdoutPipe()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	time.Sleep(100 * time.Millisecond)
	s := p.(execenv.Session)
	began := time.Now()
	t.Log(s.StopTree(300*time.Millisecond), time.Since(began), s.Exit(), p.Wait())
}
