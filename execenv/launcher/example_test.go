package launcher_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/launcher"
)

// A launcher of one's own is a name and a command line.
func Example_own() {
	limactl := func(vm string) launcher.Launcher {
		return launcher.Launcher{
			Name: "lima " + vm,
			Argv: func(r launcher.Run) []string {
				return append([]string{"limactl", "shell", vm}, r.Argv...)
			},
			LoginShell: false, // the words arrive as they are
		}
	}
	fmt.Println(limactl("default").Argv(launcher.Run{Argv: []string{"uname", "-s"}}))
	// Output: [limactl shell default uname -s]
}

func ExampleNew() {
	// env stands for any program that runs the command line behind its own words.
	place := launcher.New(launcher.Command("env"), nil)
	defer place.Close()
	out, err := place.Command(context.Background(), execenv.Spec{
		Path: "sh", Args: []string{"-c", "echo $GREETING from $PWD"}, Dir: "/",
		Env: execenv.Env{}.With(map[string]string{"GREETING": "hello"}),
	}).Output()
	fmt.Printf("%s%v\n", out, err)
	// Output:
	// hello from /
	// <nil>
}

func ExampleKubectl() {
	pod := launcher.Kubectl(launcher.Pod{Context: "prod", Namespace: "jobs", Name: "worker-0", Container: "main"})
	fmt.Println(pod.Argv(launcher.Run{Argv: []string{"id"}, TTY: true}))
	// Output: [kubectl exec -i -t --context prod --namespace jobs --container main worker-0 -- id]
}

// A sandbox in which a workspace may be written, and which has no network. Where the
// kernel does not allow it, the start fails with ErrNoSandbox, and nothing runs.
func ExampleBubblewrap() {
	sandbox := launcher.Bubblewrap(launcher.PolicyFor(execenv.ClassEvolve, "/work"))
	e := launcher.New(sandbox, &launcher.Options{Dir: "/work"})
	defer e.Close()
	// localterm.Options{Executors: map[string]execenv.Executor{"sandbox": e}}

	argv := sandbox.Argv(launcher.Run{Argv: []string{"make"}})
	fmt.Println(argv[0], slices.Contains(argv, "--unshare-net"))
	// Output: bwrap true
}
