package fakeconn

import "strings"

// Judge puts lines on a wire without anybody at its ends, each as one of the
// agent's and as one of the client's, and returns the findings.
func Judge(lines string, f Fault) error {
	w := newFilter(0, 0, newAudit(Options{Display: true}))
	w.faults = []*Injected{{Fault: f, f: w}}
	for line := range strings.Lines(lines + "\n") {
		w.to[Editor].Write([]byte(line))
		w.to[Agent].Write([]byte(line))
	}
	w.audit.end()
	w.disconnect()
	w.holds.Wait()
	for _, l := range w.lines {
		_ = l.String()
	}
	return w.audit.err()
}
