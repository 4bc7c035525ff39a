package execenvtest_test

import (
	"context"
	"fmt"
	"os"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/execenvtest"
)

// The suite in a test is execenvtest.Test(t, config); outside of one it is Check.
func ExampleCheck() {
	mine := execenv.NewLocal(nil) // an Executor of your own
	defer mine.Close()
	config := execenvtest.Config{Executor: mine, Dir: os.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // so that the example runs nothing
	results := execenvtest.Check(ctx, config, nil)
	fmt.Println(results[0].Name, results[0].Skipped)
	// Output: start/arguments context canceled
}
