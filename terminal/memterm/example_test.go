package memterm_test

import (
	"bufio"
	"context"
	"fmt"
	"os"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

func Example() {
	m := memterm.New(&memterm.Options{Programs: map[string]memterm.Program{
		// greet asks for a name, and gives up when it is asked to end.
		"greet": func(p *memterm.Process) terminal.Exit {
			fmt.Fprintln(p.Stdout, p.Args[1])
			line, err := bufio.NewReader(p.Stdin).ReadString('\n')
			if err != nil {
				return p.Death()
			}
			fmt.Fprint(p.Stdout, "hello, ", line)
			return memterm.Code(3)
		},
	}})
	defer m.Close()
	ctx := context.Background()

	t, err := m.Start(ctx, terminal.Command{Line: "greet 'your name?'", Stdin: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	t.WriteInput(ctx, "Ada\n")
	terminal.Copy(ctx, os.Stdout, t, 0)
	fmt.Println(t.Info().Exit, m.Starts("greet"))

	_, err = m.Start(ctx, terminal.Command{Args: []string{"nothing"}})
	fmt.Println(err)

	// Output:
	// your name?
	// hello, Ada
	// exit code 3 1
	// memterm: start "nothing": no such program: file does not exist
}
