//go:build unix

package execenv_test

import (
	"testing"

	"github.com/termbridge/termbridge/execenv/execenvtest"
)

func TestExecutor(t *testing.T) {
	needTable(t)
	execenvtest.Test(t, execenvtest.Config{Executor: newLocal(t, nil), Dir: t.TempDir(), Signals: true, Ordered: true})
}
