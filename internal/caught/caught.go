// Package caught turns a panic of somebody else's function into an error, so that it
// costs one answer and not the process.
package caught

import (
	"fmt"
	"runtime/debug"
)

// A Panic is one that was caught.
type Panic struct {
	Value any
	Stack string
}

func (p *Panic) Error() string { return fmt.Sprintf("panicked: %v", p.Value) }

// Call calls f and returns its panic, or nil.
func Call(f func()) (failure *Panic) {
	defer func() {
		if v := recover(); v != nil {
			failure = &Panic{v, string(debug.Stack())}
		}
	}()
	f()
	return nil
}

// Value returns what f returns, or its panic.
func Value[T any](f func() T) (v T, err error) {
	if failure := Call(func() { v = f() }); failure != nil {
		return v, failure
	}
	return v, nil
}
