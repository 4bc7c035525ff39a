package tail_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/termbridge/termbridge/internal/tail"
)

// A source has pieces to be pulled. Like a stream of execenv, it cannot be while
// it is busy: somebody else reads then, or nobody.
type source struct {
	buf     *tail.Buffer
	pieces  chan string
	stopped chan struct{} // Interrupt puts a value in, which ends this Pull or the next
	busy    atomic.Bool

	pulls atomic.Int32 // calls of Pull
	now   atomic.Int32 // that wait
}

func newSource() *source {
	s := &source{buf: tail.New(1 << 20), pieces: make(chan string, 100), stopped: make(chan struct{}, 1)}
	s.buf.Source = s
	return s
}

func (s *source) Pull() bool {
	s.pulls.Add(1)
	if s.busy.Load() {
		return false
	}
	if s.now.Add(1) > 1 {
		panic("two pull at one time")
	}
	defer s.now.Add(-1)
	select {
	case <-s.stopped:
		return true
	default:
	}
	select {
	case p := <-s.pieces:
		s.buf.Write([]byte(p))
	case <-s.stopped:
	}
	select { // it returns, whatever it is for
	case <-s.stopped:
	default:
	}
	return true
}

func (s *source) Interrupt() {
	select {
	case s.stopped <- struct{}{}:
	default:
	}
}

// A waiter who pulls is woken by what he pulls, and by all that wakes others, at
// the very instant.
func TestPullIsEnded(t *testing.T) {
	cause := errors.New("enough")
	large := strings.Repeat("x", 2000) // a flood, if it does not come after a pause
	for _, c := range []struct {
		name string
		at   func(s *source, cancel func(error))
		wait time.Duration
		want tail.Chunk
		err  error
		took time.Duration
	}{
		{"a piece", func(s *source, _ func(error)) { s.pieces <- "piece" }, forever, tail.Chunk{Text: "piece", Next: 5}, nil, time.Second},
		{"another stream", func(s *source, _ func(error)) { s.buf.Write([]byte("other")) }, forever, tail.Chunk{Text: "other", Next: 5}, nil, time.Second},
		{"a large piece", func(s *source, _ func(error)) { s.buf.Write([]byte(large)) }, forever, tail.Chunk{Text: large, Next: 2000}, nil, time.Second},
		{"half a rune", func(s *source, _ func(error)) {
			s.pieces <- "\xe2\x82"
			time.Sleep(time.Second)
			s.buf.Write([]byte("\xac"))
		}, forever, tail.Chunk{Text: "€", Next: 3}, nil, 2 * time.Second},
		{"Close", func(s *source, _ func(error)) { s.buf.Close() }, forever, tail.Chunk{Closed: true}, nil, time.Second},
		{"ctx", func(_ *source, cancel func(error)) { cancel(cause) }, forever, tail.Chunk{}, cause, time.Second},
		{"the deadline", func(*source, func(error)) {}, 3 * time.Second, tail.Chunk{}, nil, 3 * time.Second},
		{"a stray Interrupt, and the deadline", func(s *source, _ func(error)) { s.Interrupt() }, 3 * time.Second, tail.Chunk{}, nil, 3 * time.Second},
	} {
		for _, busy := range []bool{false, true} {
			if busy && (c.name == "a piece" || c.name == "half a rune") {
				continue // nobody reads it
			}
			t.Run(fmt.Sprintf("%s, busy %v", c.name, busy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSource()
					s.busy.Store(busy)
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					began := time.Now()
					go func() {
						time.Sleep(time.Second)
						c.at(s, cancel)
					}()
					got, err := s.buf.Wait(ctx, 0, 4096, c.wait)
					if took := time.Since(began); got != c.want || !errors.Is(err, c.err) || took != c.took {
						t.Errorf("got %+v, %v after %v; want %+v, %v after %v", got, err, took, c.want, c.err, c.took)
					}
					if n := s.pulls.Load(); n == 0 || n > 4 {
						t.Errorf("%d pulls", n)
					}
					if s.now.Load() != 0 {
						t.Error("the Pull goes on")
					}
				})
			})
		}
	}
}

// Of many who wait one pulls, and all are woken by it. When he leaves, another
// takes over at the next change, and those who wait for more go on.
func TestManyWaitForOneSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				began := time.Now()
				if err := s.buf.Await(t.Context(), int64(i), forever); err != nil || time.Since(began) != time.Duration(i+1)*time.Second {
					t.Errorf("behind %d: %v after %v", i, err, time.Since(began))
				}
			})
		}
		for range 10 {
			time.Sleep(time.Second)
			synctest.Wait()
			if s.now.Load() > 0 {
				s.pieces <- "x"
			} else { // they were woken before he left: somebody else reads until the next change
				s.buf.Write([]byte("x"))
			}
		}
		wg.Wait()
	})
}

// After a Pull that was refused, what comes before the wait for others is seen,
// and after a change the next waiter pulls again.
func TestRefusedPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tail.New(64)
		r := &refusing{buf: b}
		b.Source = r
		for i := range int64(100) {
			began := time.Now()
			got, err := b.Wait(t.Context(), i, 64, time.Minute)
			if got != (tail.Chunk{Text: "x", Next: i + 1}) || err != nil || !began.Equal(time.Now()) {
				t.Fatalf("read %d: %+v, %v after %v", i, got, err, time.Since(began))
			}
		}
	})
}

// A refusing source has just written what is waited for, or is about to, in
// another goroutine, when it refuses.
type refusing struct {
	buf   *tail.Buffer
	count int
}

func (r *refusing) Pull() bool {
	r.count++
	write := func() { r.buf.Write([]byte("x")) }
	if r.count%2 == 0 {
		go write()
	} else {
		write()
	}
	return false
}

func (r *refusing) Interrupt() {}

// All waits share one alarm, and each ends at its own deadline: with and without
// a source, in any order, with wakes in between.
func TestDeadlines(t *testing.T) {
	for _, kind := range []string{"no source", "source", "busy source"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSource()
				s.busy.Store(kind == "busy source")
				if kind == "no source" {
					s.buf.Source = nil
				}
				var wg sync.WaitGroup
				for i := range 200 {
					wg.Go(func() {
						time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
						for range 5 {
							wait := time.Duration(1 + rand.IntN(int(2*time.Second)))
							ctx, cancel := context.WithCancel(t.Context())
							if i%7 == 0 {
								ctx, cancel = context.WithTimeout(ctx, wait/2)
							}
							want := wait
							if i%7 == 0 {
								want = wait / 2
							}
							began := time.Now()
							err := s.buf.Await(ctx, 1<<40, wait)
							if took := time.Since(began); took != want || (err != nil) != (i%7 == 0) {
								t.Errorf("a wait of %v took %v, want %v: %v", wait, took, want, err)
							}
							cancel()
						}
					})
				}
				wg.Go(func() {
					for range 100 {
						time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
						s.buf.Write(make([]byte, 1+rand.IntN(3000)))
					}
				})
				wg.Wait()
				began := time.Now()
				time.AfterFunc(time.Millisecond, s.buf.Close)
				if s.buf.Await(t.Context(), 1<<40, forever); time.Since(began) != time.Millisecond {
					t.Errorf("Close was seen after %v", time.Since(began))
				}
			})
		})
	}
}

// Readers with cursors of their own get all, whoever of them pulls, while the
// source changes hands and others write.
func TestPullAtRandom(t *testing.T) {
	s := newSource()
	const count = 20000
	var want strings.Builder
	var wg sync.WaitGroup
	for i := range count {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	stop := make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() { // wakes for nothing, and refuses at times
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(200)) * time.Microsecond):
				s.Interrupt()
				s.busy.Store(rand.IntN(3) == 0)
			}
		}
	})
	for range 4 {
		wg.Go(func() {
			var got strings.Builder
			for cursor := int64(0); ; {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(20))*time.Millisecond)
				c, err := s.buf.Wait(ctx, cursor, 1<<rand.IntN(14)+4, time.Duration(1+rand.IntN(20))*time.Millisecond)
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				got.WriteString(c.Text)
				if cursor = c.Next; c.Closed && !c.More {
					break
				}
			}
			if got.String() != want.String() {
				t.Errorf("%d bytes, want %d", got.Len(), want.Len())
			}
		})
	}
	text := want.String()
	for rest := text; len(rest) > 0; {
		n := min(1+rand.IntN(1<<rand.IntN(12)), len(rest))
		s.pieces <- rest[:n]
		rest = rest[n:]
	}
	for end := int64(0); end < int64(len(text)); _, end = s.buf.Bounds() {
		time.Sleep(time.Millisecond)
	}
	s.buf.Close()
	wg.Wait()
	close(stop)
	other.Wait()
}
