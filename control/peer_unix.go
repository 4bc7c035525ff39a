//go:build unix && !linux && !darwin

package control

import (
	"errors"
	"fmt"
	"runtime"
)

// credentials knows no way here to find out who is at the other end.
func credentials(int) (peer, error) {
	return peer{}, fmt.Errorf("who connects is not known on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
