//go:build unix

package execenv_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/termbridge/termbridge/execenv"
)

func Example() {
	local := execenv.NewLocal(nil)
	defer local.Close()

	out, err := local.Command(context.Background(), execenv.Spec{
		Class: execenv.ClassWorkspaceTool,
		Path:  "sh", Args: []string{"-c", "echo hello; exit 3"},
	}).Output()
	fmt.Printf("%s", out)
	if e, ok := errors.AsType[*execenv.ExitError](err); ok {
		fmt.Println(e.Exit)
	}
	// Output:
	// hello
	// exit code 3
}

// A process with a terminal, and the end of all that it started.
func ExampleSession() {
	local := execenv.NewLocal(nil)
	defer local.Close()

	p := local.Command(context.Background(), execenv.Spec{
		Class: execenv.ClassShell,
		Path:  "sh", Args: []string{"-c", "sleep 60 & test -t 1 && echo a terminal; wait"},
		Env: execenv.ClassShell.Env(),
		TTY: &execenv.TTY{},
	})
	if err := p.Start(); err != nil {
		fmt.Println(err)
		return
	}
	session := p.(execenv.Session)
	term, _ := session.Terminal()
	line := make([]byte, len("a terminal\n"))
	io.ReadFull(term, line)
	os.Stdout.Write(line)

	left := session.StopTree(time.Second)
	fmt.Println("left:", len(left))
	fmt.Println(p.Wait())
	// Output:
	// a terminal
	// left: 0
	// signal: SIGTERM
}
