package terminal_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// Code that uses a Manager does not know where its commands run. Here they are
// Go functions; with localterm.New they would be processes, with acpterm.New
// terminals of an editor.
func Example() {
	var m terminal.Manager = memterm.New(nil)
	defer m.Close()
	ctx := context.Background()

	t, err := m.Start(ctx, terminal.Command{Line: "echo 'hello, terminal'"})
	if err != nil {
		log.Fatal(err) // nothing runs, and no slot is held
	}
	for out, err := range terminal.Follow(ctx, t, 0) {
		if err != nil {
			log.Fatal(err) // ctx ended; the command goes on
		}
		fmt.Print(out.Text)
	}
	fmt.Println(t.Info().Outcome, t.Info().Exit)

	// A timeout is a value, not an error.
	t, err = m.Start(ctx, terminal.Command{Args: []string{"sleep", "60"}, Timeout: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	info, err := terminal.Wait(ctx, t)
	fmt.Println(info.Outcome, info.Exit.Success(), err)

	// Output:
	// hello, terminal
	// exited exit code 0
	// timed_out false <nil>
}

// A command that reads its input, and is stopped in the end.
func ExampleTerminal() {
	m := memterm.New(nil)
	defer m.Close()
	ctx := context.Background()

	t, err := m.Start(ctx, terminal.Command{Line: "cat", Stdin: true})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := t.WriteInput(ctx, "over and out\n"); err != nil {
		log.Fatal(err)
	}
	out, err := t.ReadOutput(ctx, 0, time.Minute)
	fmt.Printf("%q %v\n", out.Text, err)
	info, err := t.Stop(ctx)
	fmt.Println(info.Outcome, info.Exit, err)

	// Output:
	// "over and out\n" <nil>
	// stopped SIGTERM <nil>
}
