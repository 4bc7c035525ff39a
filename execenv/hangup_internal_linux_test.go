package execenv

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
		a := newAbsence(over, func(f func()) { f() }, func() bool {
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

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
