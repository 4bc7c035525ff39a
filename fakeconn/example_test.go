package fakeconn_test

import (
	"context"
	"fmt"

	"github.com/coder/acp-go-sdk"

	"github.com/termbridge/termbridge/fakeconn"
)

// A test of an agent: what does it do, and what does its user see, when the
// client refuses a command?
func Example() {
	c := fakeconn.New(&fakeconn.Options{Agent: newAgent(run)}) // run is the agent under test
	c.Inject(fakeconn.Fault{
		Method: "terminal/create", N: 2,
		Error: &acp.RequestError{Code: -32603, Message: "the user said no"},
	})

	ctx := context.Background()
	id, err := c.NewSession(ctx, "/work")
	if err != nil {
		fmt.Println(err)
	}
	for range 2 {
		if _, err := c.Prompt(ctx, id, "lines 2 10ms"); err != nil {
			fmt.Println("the agent gives the error on")
		}
	}
	for _, card := range c.Cards() {
		fmt.Printf("%s: %q\n", card.Status, card.Visible())
	}
	fmt.Println("commands started:", c.Memterm().Starts("lines"))

	// What was wrong on the wire, what was not released, what still runs:
	fmt.Println(c.Close())
	// Output:
	// the agent gives the error on
	// completed: "line 1\nline 2\n"
	// failed: ""
	// commands started: 1
	// <nil>
}
