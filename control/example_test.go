//go:build unix

package control_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/termbridge/termbridge/control"
	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
)

// An agent serves its terminals, and another process lists them.
func Example() {
	manager := memterm.New(nil) // or any other terminal.Manager
	defer manager.Close()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	c := control.New(manager, nil)
	defer c.Close()
	server, err := control.Listen(filepath.Join(dir, "socket"), c, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	ctx := context.Background()
	t, err := manager.Start(ctx, terminal.Command{
		Line:   "echo hello",
		Labels: map[string]string{control.NameLabel: "greeter", control.GroupLabel: "dev"},
	})
	if err != nil {
		log.Fatal(err)
	}
	<-t.Done()

	r, err := control.Call(ctx, server.Path(), control.Request{Verb: control.VerbList, Group: "dev"})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range r.Sessions {
		fmt.Println(s.Name, s.Status, s.AgentState, *s.ExitCode)
	}
	r, err = control.Call(ctx, server.Path(), control.Request{Verb: control.VerbRead, ID: "greeter"})
	fmt.Printf("%q %v\n", r.Output, err)
	// Output:
	// greeter exited done 0
	// "hello\n" <nil>
}
