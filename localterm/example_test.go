package localterm_test

import (
	"context"
	"fmt"
	"time"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/localterm"
	"github.com/termbridge/termbridge/terminal"
)

// A command whose output is followed, and that keeps what it printed before
// its time was over.
func Example() {
	ctx := context.Background()
	m := localterm.New(nil)
	defer m.Close()

	t, err := m.Start(ctx, terminal.Command{
		Line:    "echo working; sleep 60",
		TTY:     true,
		Timeout: 500 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for out, err := range terminal.Follow(ctx, t, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(out.Text)
	}
	fmt.Println(t.Info().Outcome)
	// Output:
	// working
	// timed_out
}

// A program that is talked to: input is a terminal's, keys included.
func ExampleManager_Start_input() {
	ctx := context.Background()
	m := localterm.New(nil)
	defer m.Close()

	t, err := m.Start(ctx, terminal.Command{Line: "stty -echo 2>&-; echo ready; cat", TTY: true, Stdin: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := t.ReadOutput(ctx, 0, time.Minute)
	fmt.Print(out.Text)
	if err == nil {
		_, err = t.WriteInput(ctx, "hello\n")
	}
	if err == nil {
		out, err = t.ReadOutput(ctx, out.NextCursor, time.Minute)
		fmt.Print(out.Text)
	}
	if err == nil {
		err = t.(terminal.InputCloser).CloseInput(ctx) // as Ctrl-D does
	}
	if err == nil {
		_, err = terminal.Wait(ctx, t)
	}
	fmt.Println(t.Info().Exit, err)
	// Output:
	// ready
	// hello
	// exit code 0 <nil>
}

// A behind is an Executor of one's own around another: it puts a program in front of
// each command, here env.
type behind struct{ execenv.Executor }

func (b behind) Command(ctx context.Context, spec execenv.Spec) execenv.Process {
	spec.Path, spec.Args = "env", append([]string{"QUEUE=night", spec.Path}, spec.Args...)
	return b.Executor.Command(ctx, spec)
}

// Commands through an Executor of one's own. One from the ground up implements
// execenv.Process, and is tested by package execenvtest.
func ExampleOptions_executors() {
	local := execenv.NewLocal(nil)
	defer local.Close()
	m := localterm.New(&localterm.Options{Executors: map[string]execenv.Executor{"night": behind{local}}})
	defer m.Close()

	ctx := context.Background()
	t, err := m.Start(ctx, terminal.Command{Line: "echo $QUEUE", Environment: "night"})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := t.ReadOutput(ctx, 0, time.Minute)
	fmt.Print(out.Text, err, "\n")
	// Output:
	// night
	// <nil>
}
