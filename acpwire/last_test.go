package acpwire

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// What is written after the end of the input comes in one piece, soon; a client
// that reads no more is not waited for.
func TestLastWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pipe := io.Pipe()
		var got []string
		read := make(chan struct{})
		go func() {
			defer close(read)
			b := make([]byte, 1000)
			for n, err := r.Read(b); err == nil; n, err = r.Read(b) {
				got = append(got, string(b[:n]))
			}
		}()
		w := newLastWriter(pipe)
		_, _ = w.Write([]byte("1"))
		_, _ = w.Write([]byte("2"))
		w.last()
		_, _ = w.Write([]byte("3"))
		time.AfterFunc(50*time.Millisecond, func() { _, _ = w.Write([]byte("4")) })
		begin := time.Now()
		w.settle()
		if took := time.Since(begin); took > 200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		pipe.Close()
		<-read
		if want := []string{"1", "2", "34"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}

		_, pipe = io.Pipe() // nobody reads
		w = newLastWriter(pipe)
		w.last()
		_, _ = w.Write([]byte("5"))
		begin = time.Now()
		w.settle()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("without a reader it took %v", took)
		}
		pipe.Close()
		err := errors.New("gone")
		w.fail(err)
		w.fail(io.EOF)
		<-w.broken
		if w.err != err {
			t.Errorf("broken by %v", w.err)
		}
	})
}
