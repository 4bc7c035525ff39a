package execenv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
)

// A Front is the part of a [Process] that is the same at every place: which calls
// exclude each other, what is wrong with a Spec, and the methods that only combine
// others. A Process of your own embeds one, calls Begin first in its Start,
// Started when that has succeeded, and BeginWait first in its Wait.
type Front struct {
	spec Spec
	self interface {
		Start() error
		Wait() error
	}

	mu sync.Mutex
	// guards following
	call  frontCall
	piped [3]bool // by a pipe method
}

// frontCall is the last of the calls of a Process that may come only once.
type frontCall int

const (
	commandCalled frontCall = iota
	startCalled
	startReturned // without an error
	waitCalled
)

// NewFront returns the Front of the Process self.
func NewFront(self interface {
	Start() error
	Wait() error
}, spec Spec) *Front {
	return &Front{self: self, spec: spec}
}

// Spec returns the Spec. Output and CombinedOutput set its Stdout and Stderr.
func (f *Front) Spec() *Spec { return &f.spec }

// Begin marks the start. It returns an error if there was one, and then the
// Process must not be started.
func (f *Front) Begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.call != commandCalled {
		return errors.New("execenv: already started")
	}
	f.call = startCalled
	return nil
}

// Started says that the start has succeeded.
func (f *Front) Started() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call = startReturned
}

// BeginWait returns an error unless this is the first Wait of a started Process.
func (f *Front) BeginWait() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.call < startReturned:
		return errors.New("execenv: not started")
	case f.call == waitCalled:
		return errors.New("execenv: Wait was already called")
	}
	f.call = waitCalled
	return nil
}

// names of the standard files, by descriptor.
var names = [...]string{"Stdin", "Stdout", "Stderr"}

// Pipe marks descriptor n (0, 1 or 2) as one that the caller gets a pipe of, or
// returns why it cannot have one.
func (f *Front) Pipe(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	set := [...]bool{f.spec.Stdin != nil, f.spec.Stdout != nil, f.spec.Stderr != nil}[n]
	switch {
	case f.call != commandCalled:
		return fmt.Errorf("execenv: %sPipe after Start", names[n])
	case set || f.piped[n]:
		return fmt.Errorf("execenv: %sPipe: already set", names[n])
	case f.spec.TTY != nil:
		return fmt.Errorf("execenv: %sPipe of a process with a terminal", names[n])
	}
	f.piped[n] = true
	return nil
}

// Piped reports whether the caller has a pipe of descriptor n.
func (f *Front) Piped(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.piped[n]
}

// Run implements [Process].
func (f *Front) Run() error {
	if err := f.self.Start(); err != nil {
		return err
	}
	return f.self.Wait()
}

// Output implements [Process].
func (f *Front) Output() ([]byte, error) {
	if err := f.free("Output", 1, f.spec.Stdout); err != nil {
		return nil, err
	}
	var stdout bytes.Buffer
	var stderr end
	f.spec.Stdout = &stdout
	if f.spec.Stderr == nil && !f.Piped(2) {
		f.spec.Stderr = &stderr
	}
	err := f.Run()
	if e, ok := errors.AsType[*ExitError](err); ok {
		e.Stderr = stderr.b
	}
	return stdout.Bytes(), err
}

// CombinedOutput implements [Process].
func (f *Front) CombinedOutput() ([]byte, error) {
	if err := errors.Join(f.free("CombinedOutput", 1, f.spec.Stdout), f.free("CombinedOutput", 2, f.spec.Stderr)); err != nil {
		return nil, err
	}
	var both bytes.Buffer
	f.spec.Stdout, f.spec.Stderr = &both, &both
	err := f.Run()
	return both.Bytes(), err
}

// free returns nil if nobody has asked for output n yet.
func (f *Front) free(method string, n int, w io.Writer) error {
	switch {
	case w != nil:
		return fmt.Errorf("execenv: %s: %s is already set", method, names[n])
	case f.Piped(n):
		return fmt.Errorf("execenv: %s after %sPipe", method, names[n])
	}
	return nil
}

// Check returns what is wrong with s at any place: [ErrNoCommand] without a
// program, else an error that wraps EINVAL.
func (s *Spec) Check() error {
	if s.Path == "" {
		return fmt.Errorf("%w: no program given", ErrNoCommand)
	}
	for _, word := range append([]string{s.Path, s.Dir}, s.Args...) {
		if strings.ContainsRune(word, 0) {
			return fmt.Errorf("%w: a NUL byte in %q", syscall.EINVAL, word)
		}
	}
	for name, value := range s.Env.with {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return fmt.Errorf("%w: environment variable %q", syscall.EINVAL, name+"="+value)
		}
	}
	if s.TTY != nil && (s.Stdin != nil || s.Stdout != nil || s.Stderr != nil) {
		return fmt.Errorf("%w: TTY excludes Stdin, Stdout and Stderr", syscall.EINVAL)
	}
	return nil
}

// SameOutput reports whether Stdout and Stderr are one and the same writer, which
// must then not be called from two goroutines.
func (s *Spec) SameOutput() (same bool) {
	defer func() {
		if recover() != nil { // types that cannot be compared
			same = false
		}
	}()
	return s.Stderr != nil && s.Stderr == s.Stdout
}

// end keeps the end of what is written.
type end struct{ b []byte }

const maxEnd = 32 << 10

func (e *end) Write(p []byte) (int, error) {
	e.b = append(e.b, p...)
	if over := len(e.b) - maxEnd; over > maxEnd { // so that each byte is moved once
		e.b = append(e.b[:0], e.b[over:]...)
	}
	return len(p), nil
}
