package fakeconn

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// joinWithin is how long the goroutines of a connection have to end: the SDK
// gives notifications five seconds, and a handler may use its own bound.
const joinWithin = 10 * time.Second

// A GoroutineError says that goroutines which a connection started are still
// there after its end.
type GoroutineError struct{ Stacks []string }

func (e *GoroutineError) Error() string {
	return fmt.Sprintf("fakeconn: %d kinds of goroutines outlive the connection:\n%s", len(e.Stacks), strings.Join(e.Stacks, "\n"))
}

// The goroutines of SDK 0.13 cannot be joined, so they are found by a profiler label,
// which every goroutine inherits from the one that starts it.
const labelName = "fakeconn"

var labels atomic.Int64

func nextLabel() string { return "client-" + strconv.FormatInt(labels.Add(1), 10) }

// labelled runs f in a goroutine with a label.
func labelled(label string, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		relabel(label)
		f()
	}()
	<-done
}

// relabel sets the label of this goroutine; "" takes it away.
func relabel(label string) {
	ctx := context.Background()
	if label != "" {
		ctx = pprof.WithLabels(ctx, pprof.Labels(labelName, label))
	}
	pprof.SetGoroutineLabels(ctx)
}

// join waits until no goroutine has the label.
func join(label string) error {
	wait := time.Millisecond
	for deadline := time.Now().Add(joinWithin); ; wait = min(2*wait, 100*time.Millisecond) {
		stacks := withLabel(label)
		if len(stacks) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return &GoroutineError{stacks}
		}
		time.Sleep(wait)
	}
}

// ofTheProcess are goroutines that may carry a label and are not the connection's:
// one that closes the Client itself, and that of os/signal, which the process's first
// Notify starts and nothing ends.
var ofTheProcess = []string{"fakeconn.(*Client).Close", "os/signal.loop"}

// withLabel returns the stacks of the goroutines with a label.
func withLabel(label string) []string {
	var b bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&b, 1)
	want := fmt.Sprintf("%q:%q", labelName, label)
	var stacks []string
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		exempt := func(name string) bool { return strings.Contains(stack, name) }
		if strings.Contains(stack, want) && !slices.ContainsFunc(ofTheProcess, exempt) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
