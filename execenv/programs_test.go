package execenv_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/termbridge/termbridge/execenv"
)

var programs = map[string]func(args []string){
	"agent": agent,
}

// agent runs its arguments as shell lines, each on pipes and on a terminal, and
// waits to be killed, or panics.
func agent(args []string) {
	how, lines := args[0], args[1:]
	l := execenv.NewLocal(&execenv.LocalOptions{Cgroup: os.Getenv("AGENT_CGROUP")})
	for _, line := range lines {
		for _, tty := range []*execenv.TTY{nil, {}, {Input: true}} {
			spec := sh(line)
			spec.Group, spec.TTY = true, tty
			p := l.Command(context.Background(), spec)
			if err := p.Start(); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
	}
	time.Sleep(200 * time.Millisecond)
	fmt.Println("ready")
	switch how {
	case "panics":
		os.Stdin.Read(make([]byte, 1))
		panic("as it was told")
	case "exits":
		os.Stdin.Read(make([]byte, 1))
		os.Exit(3) // without Close
	}
	forever()
}

// forever waits to be killed. A select without cases ends the program when the
// runtime finds that no goroutine can go on.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}
