package logqueue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/termbridge/termbridge/internal/logqueue"
)

// A sink is a handler that waits for a value on gate before each record.
type sink struct {
	slog.Handler
	gate chan struct{}
}

func (s sink) Handle(ctx context.Context, r slog.Record) error {
	<-s.gate
	return s.Handler.Handle(ctx, r)
}

func (s sink) WithAttrs(a []slog.Attr) slog.Handler { return sink{s.Handler.WithAttrs(a), s.gate} }

// plain writes records without their times.
func plain(w io.Writer) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

// flush waits for a handler that returns, however busy the machine is.
func flush(l *slog.Logger) {
	for range 100 {
		logqueue.Flush(l)
	}
}

// A handler that does not return costs nobody any time. What was lost is
// counted, and said where it is missing and at the end.
func TestLoggerNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		gate := make(chan struct{})
		l := logqueue.New(slog.New(sink{plain(&out), gate}))
		const more = 500
		for i := range logqueue.Size + 1 + more {
			l.Warn("x", "i", i)
			if i == 0 {
				synctest.Wait() // the handler has it
			}
		}
		start := time.Now()
		logqueue.Flush(l)
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("Flush took %v", took)
		}
		for range logqueue.Size/2 - 1 {
			gate <- struct{}{}
		}
		synctest.Wait()
		l.Warn("in the gap: there is not much room yet")
		gate <- struct{}{}
		synctest.Wait()
		l.Warn("after the gap")
		close(gate)
		flush(l)
		got := out.String()
		want := fmt.Sprintf("i=%d\nlevel=WARN msg=\"log records were lost: the handler is too slow\" records=%d\nlevel=WARN msg=\"after the gap\"\n", logqueue.Size, more+1)
		if !strings.HasSuffix(got, want) || strings.Count(got, "\n") != logqueue.Size+3 {
			t.Errorf("%d lines that end in %q", strings.Count(got, "\n"), got[max(0, len(got)-300):])
		}

		// At the end of a gap nothing else need be logged.
		out.Reset()
		gate = make(chan struct{})
		l = logqueue.New(slog.New(sink{plain(&out), gate}))
		for range logqueue.Size + 2 {
			l.Warn("x")
		}
		close(gate)
		flush(l)
		if got := out.String(); !strings.HasSuffix(got, "records=1\n") && !strings.HasSuffix(got, "records=2\n") {
			t.Errorf("the log ends in %q", got[max(0, len(got)-100):])
		}
	})
}

// Records keep their order, their level, their attributes and groups.
func TestLoggerKeepsRecords(t *testing.T) {
	var got, want bytes.Buffer
	for _, l := range []*slog.Logger{logqueue.New(slog.New(plain(&got))), slog.New(plain(&want))} {
		l.Info("one", "n", 1, "err", errors.New("no"), "any", []string{"a"})
		l.Debug("not this")
		l.With("a", 1).WithGroup("g").Error("two", "b", true, slog.Group("h", "c", time.Second))
		flush(l)
	}
	if got.String() != want.String() || got.Len() == 0 {
		t.Errorf("got\n%swant\n%s", &got, &want)
	}
}

// What waits is small, whatever it is of, and nobody can change it.
func TestLoggerKeepsLittle(t *testing.T) {
	var out bytes.Buffer
	gate := make(chan struct{})
	l := logqueue.New(slog.New(sink{plain(&out), gate}))
	long := strings.Repeat("x", 1<<20)
	shared, n := []int{1}, 1
	l.Warn(long, "a", long, "b", errors.New(long), slog.Group("c", "d", long), "e", []string{long}, "shared", shared, "lazy", lazy{&n})
	shared[0], n = 2, 2
	close(gate)
	flush(l)
	if got := out.String(); len(got) > 6<<10 || !strings.Contains(got, "shared=[1] lazy=1\n") {
		t.Errorf("%d bytes were kept, which end in %q", len(got), got[max(0, len(got)-100):])
	}
}

// What has its place is kept as it is.
func TestLoggerKeepsWhatIsSmall(t *testing.T) {
	var out bytes.Buffer
	l := logqueue.New(slog.New(plain(&out)))
	full := strings.Repeat("x", 1<<10)
	l.Warn("x", "a", full, "b", lazy{new(7)}, "c", true)
	flush(l)
	if want := "level=WARN msg=x a=" + full + " b=7 c=true\n"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

// lazy is a value that is worked out when it is logged.
type lazy struct{ n *int }

func (l lazy) LogValue() slog.Value { return slog.IntValue(*l.n) }

// The queue begins and ends as often as there is something in it.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := logqueue.New(slog.New(plain(&out)))
		start := time.Now()
		for n := range 3 {
			logqueue.Flush(l)
			l.Warn("x")
			logqueue.Flush(l)
			if got := strings.Count(out.String(), "\n"); got != n+1 || time.Since(start) > 0 {
				t.Errorf("%d records of %d after %v", got, n+1, time.Since(start))
			}
		}
		logqueue.Flush(slog.Default())
	})
}

// A handler that panics, or logs itself, is no obstacle.
func TestLoggerAndBadHandlers(t *testing.T) {
	var mu sync.Mutex
	var got []string
	var l *slog.Logger
	l = logqueue.New(slog.New(handlerFunc(func(r slog.Record) {
		mu.Lock()
		got = append(got, r.Message)
		mu.Unlock()
		switch r.Message {
		case "panic":
			panic(r.Message)
		case "log":
			l.Warn("logged")
		}
	})))
	l.Warn("panic")
	l.Warn("log")
	for range 2 {
		flush(l)
	}
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(got) != "[panic log logged]" {
		t.Errorf("got %q", got)
	}
}

type handlerFunc func(slog.Record)

func (f handlerFunc) Enabled(context.Context, slog.Level) bool { return true }
func (f handlerFunc) Handle(_ context.Context, r slog.Record) error {
	f(r)
	return nil
}
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f handlerFunc) WithGroup(string) slog.Handler      { return f }

// A logger that has a queue gets no second one, and one that discards needs none.
func TestLoggerOnce(t *testing.T) {
	l := logqueue.New(slog.New(plain(io.Discard)))
	if logqueue.New(l) != l {
		t.Error("a queue of a queue")
	}
	for _, l := range []*slog.Logger{nil, slog.New(slog.DiscardHandler)} {
		if got := logqueue.New(l); got.Handler() != slog.DiscardHandler {
			t.Errorf("%v became %v", l, got)
		}
	}
}
