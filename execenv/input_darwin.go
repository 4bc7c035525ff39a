package execenv

import "github.com/termbridge/termbridge/terminal"

// InputState has no evidence while the process runs: the kernel of macOS does
// not say what a process waits for.
func (s *session) InputState() (terminal.Activity, terminal.Evidence) {
	select {
	case <-s.exited:
		return terminal.Finished, terminal.Evidence{Certainty: terminal.Certain, Reason: s.Exit().String()}
	default:
		return terminal.Working, terminal.Evidence{Certainty: terminal.NoCertainty}
	}
}
