package execenv

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/internal/limits"
)

// A stdio is what a process has as standard input, output and error, without a
// terminal: the two ends of its pipes, and the goroutines that copy.
//
// The process's ends are open in the agent until the process has started, or has
// failed to. The agent's ends are open until Wait.
type stdio struct {
	local   *Local
	ends    [3]*os.File // the process's ends of the pipes of the pipe methods
	theirs  []*os.File  // what is the process's alone once it has started
	ours    []*os.File  // the agent's ends that copiers and StdinPipe use
	streams []*stream   // outputs that the caller reads
	copiers []func() error
	feeder  func() error
	copying int        // copiers that run
	copied  chan error // the results of the copiers
	feeding chan error // the result of the feeder; nil without one
}

// openFiles opens what the process gets as its descriptors 0 to 2.
func (s *stdio) openFiles(spec *Spec) (files [3]*os.File, err error) {
	if files[0], err = s.openInput(spec.Stdin); err != nil {
		return files, err
	}
	if files[1], err = s.openOutput(1, spec.Stdout); err != nil {
		return files, err
	}
	if spec.SameOutput() {
		files[2] = files[1] // so that one writer is never called from two goroutines
		return files, nil
	}
	files[2], err = s.openOutput(2, spec.Stderr)
	return files, err
}

func (s *stdio) openInput(r io.Reader) (*os.File, error) {
	switch r := r.(type) {
	case nil:
		return s.openNull(0)
	case *os.File:
		return r, nil
	}
	pw, pr, err := pipe(true)
	if err != nil {
		return nil, err
	}
	s.theirs = append(s.theirs, pr)
	s.ours = append(s.ours, pw)
	s.feeder = func() error {
		_, err := io.Copy(pw, r)
		if errors.Is(err, syscall.EPIPE) {
			err = nil // the process did not want all of it
		}
		return errors.Join(ignoreClosed(err), ignoreClosed(pw.Close()))
	}
	return pr, nil
}

func (s *stdio) openOutput(n int, w io.Writer) (*os.File, error) {
	switch w := w.(type) {
	case nil:
		return s.openNull(n)
	case *os.File:
		return w, nil
	}
	pr, pw, err := pipe(false)
	if err != nil {
		return nil, err
	}
	s.theirs = append(s.theirs, pw)
	s.ours = append(s.ours, pr)
	s.copiers = append(s.copiers, func() error {
		_, err := io.Copy(w, pr)
		return errors.Join(ignoreClosed(err), ignoreClosed(pr.Close()))
	})
	return pw, nil
}

// openNull returns the pipe that a pipe method made for descriptor n, else
// /dev/null, or what is as good: an empty pipe, or one that is read to nowhere.
func (s *stdio) openNull(n int) (*os.File, error) {
	switch {
	case s.ends[n] != nil:
		return s.ends[n], nil
	case s.local.null != nil:
		return s.local.null, nil
	}
	ours, theirs, err := pipe(n == 0)
	if err != nil {
		return nil, err
	}
	s.theirs = append(s.theirs, theirs)
	if n == 0 {
		return theirs, ours.Close()
	}
	s.local.drain(&stream{local: s.local, f: ours})
	return theirs, nil
}

// inputPipe makes a pipe to the process's standard input.
func (s *stdio) inputPipe() (io.WriteCloser, error) {
	pw, pr, err := pipe(true)
	if err != nil {
		return nil, err
	}
	s.ends[0] = pr
	s.theirs = append(s.theirs, pr)
	s.ours = append(s.ours, pw)
	return writer{pw}, nil
}

// writer hides everything of a file but Write, SetWriteDeadline and Close.
type writer struct{ f *os.File }

func (w writer) Write(b []byte) (int, error)        { return w.f.Write(b) }
func (w writer) SetWriteDeadline(t time.Time) error { return w.f.SetWriteDeadline(t) }
func (w writer) Close() error                       { return w.f.Close() }

// outputPipe makes a pipe from the process's descriptor n.
func (s *stdio) outputPipe(n int) (*stream, error) {
	pr, pw, err := pipe(false)
	if err != nil {
		return nil, err
	}
	s.ends[n] = pw
	out := &stream{local: s.local, f: pr, theirs: pw}
	s.streams = append(s.streams, out)
	return out, nil
}

// passed is called when the process has started, and has ends of its own.
func (s *stdio) passed() {
	s.closeTheirs()
	for _, out := range s.streams {
		out.hold()
	}
}

// copy begins the copying, which joinCopiers joins.
func (s *stdio) copy() {
	s.copied, s.copying = make(chan error, len(s.copiers)), len(s.copiers)
	for _, f := range s.copiers {
		go func() { s.copied <- f() }()
	}
	if s.feeder != nil {
		s.feeding = make(chan error, 1)
		go func() { s.feeding <- s.feeder() }()
	}
}

// errCut is why some of an output is missing.
var errCut = errors.New("execenv: killed, and its output was still held open")

// joinCopiers waits for the copying and returns its errors. Processes that
// inherited a pipe may hold it open for ever; once ctx has ended, or the
// process was killed, they are given 500 ms. Only a Read of Spec.Stdin cannot
// be ended: then it is the caller's.
func (s *stdio) joinCopiers(ctx context.Context, killed <-chan struct{}) (err error) {
	var cut error
	var late <-chan time.Time
	hurry := func(why error) {
		if late == nil {
			cut, late = why, time.After(limits.DrainLimit)
		}
	}
	ended := ctx.Done()
	for input, outputs := s.feeding, s.copying; input != nil || outputs > 0; {
		select {
		case e := <-input:
			err = errors.Join(err, e)
			input = nil
		case e := <-s.copied:
			err = errors.Join(err, e)
			outputs--
		case <-ended:
			ended = nil
			hurry(context.Cause(ctx))
		case <-killed:
			killed = nil
			hurry(errCut)
		case <-late:
			err = errors.Join(err, cut)
			closeAll(s.ours)
			input, late = nil, nil
		}
	}
	return err
}

// abandon closes what the agent holds, after Wait.
func (s *stdio) abandon() {
	for _, out := range s.streams {
		s.local.abandon(out)
	}
	closeAll(s.ours)
}

func (s *stdio) closeTheirs() {
	closeAll(s.theirs)
	s.theirs = nil
}

// closeAll closes both ends of everything, of a process that did not start.
func (s *stdio) closeAll() {
	s.closeTheirs()
	closeAll(s.ours)
	s.ours = nil
	for _, out := range s.streams {
		out.Close() // first: a Read is to see that, and no end
		out.theirs.Close()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
