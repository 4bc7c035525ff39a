package terminaltest_test

import (
	"context"
	"fmt"

	"github.com/termbridge/termbridge/terminal"
	"github.com/termbridge/termbridge/terminal/memterm"
	"github.com/termbridge/termbridge/terminal/terminaltest"
)

// The programs of the suite run in any Manager that runs Go functions.
func ExamplePrograms() {
	m := memterm.New(&memterm.Options{Programs: terminaltest.Programs()})
	defer m.Close()
	t, err := m.Start(context.Background(), terminal.Command{Line: "args 'a  b' c"})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-t.Done()
	out, _ := t.ReadOutput(context.Background(), 0, 0)
	fmt.Print(out.Text)

	// Output:
	// "a  b"
	// "c"
}
