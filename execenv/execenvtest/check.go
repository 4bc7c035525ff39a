package execenvtest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Result is how one case went.
type Result struct {
	Name, Rule string
	Failures   []string // nil if the case passed, or was skipped
	Skipped    string   // why the case says nothing; "" if it ran
	Took       time.Duration
}

// Check runs every case outside a test, a few at once, and returns how each went
// in the order of the suite. When ctx ends no more are begun: they are skipped.
// Each result is given to report, if that is not nil, as soon as it is there.
func Check(ctx context.Context, c Config, report func(Result)) []Result {
	all := cases()
	results := make([]Result, len(all))
	next := make(chan int)
	var mu sync.Mutex // held while report runs
	var workers sync.WaitGroup
	for range 8 { // most of them wait
		workers.Go(func() {
			for i := range next {
				results[i] = check(ctx, c, all[i])
				if report != nil {
					mu.Lock()
					report(results[i])
					mu.Unlock()
				}
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	workers.Wait()
	return results
}

func check(ctx context.Context, c Config, tc testCase) Result {
	r := Result{Name: tc.name, Rule: tc.rule}
	if ctx.Err() != nil {
		r.Skipped = context.Cause(ctx).Error()
		return r
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	t := &plainT{ctx: ctx}
	done := make(chan struct{})
	go func() { // joined below; Fatalf and Skipf end it
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				t.Errorf("panic: %v", v)
			}
		}()
		tc.run(newHarness(t, c))
	}()
	<-done
	cancel()
	for _, f := range slices.Backward(t.cleanups) {
		ended := make(chan struct{})
		go func() { // joined below
			defer close(ended)
			f()
		}()
		<-ended
	}
	r.Took = time.Since(began)
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Failures = t.failures; r.Failures == nil {
		r.Skipped = t.skipped
	}
	return r
}

// A plainT is a T without a test.
type plainT struct {
	ctx      context.Context
	cleanups []func()

	mu sync.Mutex
	// guards following
	failures []string
	skipped  string
}

func (t *plainT) Helper()                  {}
func (t *plainT) Logf(string, ...any)      {}
func (t *plainT) Context() context.Context { return t.ctx }
func (t *plainT) Cleanup(f func())         { t.cleanups = append(t.cleanups, f) }

func (t *plainT) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (t *plainT) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *plainT) Skipf(format string, args ...any) {
	t.mu.Lock()
	t.skipped = fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}
