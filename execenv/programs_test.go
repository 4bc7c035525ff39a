package execenv_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/termbridge/termbridge/execenv"
)

var programs = map[string]func(args []string){
	"agent":   agent,
	"signals": signals,
}

// signals prints what a process begins with: which signals it ignores and which
// are blocked, with a group and without; and then that the agent goes on ignoring
// the signals of its arguments.
func signals(args []string) {
	l := execenv.NewLocal(nil)
	for _, spec := range []execenv.Spec{{}, {Group: true}} {
		spec.Path, spec.Args = "grep", []string{"-E", "^Sig(Ign|Blk)", "/proc/self/status"}
		out, err := l.Command(context.Background(), spec).Output()
		fmt.Printf("%s%v\n", out, err)
	}
	signal.Ignore(syscall.SIGUSR2) // as late as that
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			out, err := l.Command(context.Background(), execenv.Spec{Path: "grep", Args: []string{"-E", "^Sig(Ign|Blk)", "/proc/self/status"}}).Output()
			fmt.Printf("%s%v\n", out, err)
		})
	}
	all.Wait()
	for _, arg := range append(args, "12") {
		sig, _ := strconv.Atoi(arg)
		syscall.Kill(os.Getpid(), syscall.Signal(sig))
	}
	time.Sleep(50 * time.Millisecond)
	fmt.Println("alive", l.Close())
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
	select {}
}
