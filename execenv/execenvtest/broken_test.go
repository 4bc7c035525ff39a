//go:build unix

package execenvtest_test

import (
	"context"
	"testing"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/execenvtest"
)

// A broken executor runs another Spec than it was given.
type broken struct {
	execenv.Executor
	change func(*execenv.Spec)
}

func (b broken) Command(ctx context.Context, spec execenv.Spec) execenv.Process {
	b.change(&spec)
	return b.Executor.Command(ctx, spec)
}

// The suite finds an Executor that breaks a rule.
func TestBroken(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*execenv.Spec)
		fails  string
	}{
		"no variables":    {func(s *execenv.Spec) { s.Env = execenv.Env{} }, "start/environment"},
		"no directory":    {func(s *execenv.Spec) { s.Dir = "" }, "start/arguments"},
		"an odd argument": {func(s *execenv.Spec) { s.Args = append([]string(nil), s.Args...); quote(s.Args) }, "start/arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			local := execenv.NewLocal(nil)
			defer local.Close()
			config := execenvtest.Config{Executor: broken{local, c.change}, Dir: t.TempDir(), Signals: true, Ordered: true}
			for _, r := range execenvtest.Check(t.Context(), config, nil) {
				if r.Name == c.fails && r.Failures == nil {
					t.Errorf("%s passes", r.Name)
				}
			}
		})
	}
}

// quote changes an empty argument, as a launcher that joins words does.
func quote(args []string) {
	for i := range args {
		if args[i] == "" {
			args[i] = "''"
		}
	}
}
