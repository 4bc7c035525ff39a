// Termbridge looks into running agents, and at the places where an agent is to run
// commands.
//
//	termbridge ctl VERB [flags] [arguments]
//	termbridge check-env [flags] SPEC…
//	termbridge check-client [flags] -- CLIENT ARGV…
//
// See docs/control.md, docs/environments.md and docs/clients.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/termbridge/termbridge/cmd/internal/checkclient"
	"github.com/termbridge/termbridge/control/ctl"
	"github.com/termbridge/termbridge/execenv"
	"github.com/termbridge/termbridge/execenv/execenvtest"
	"github.com/termbridge/termbridge/execenv/launcher"
	"github.com/termbridge/termbridge/internal/version"
)

var usage = `usage: termbridge ctl VERB [flags] [arguments]
       termbridge check-env [flags] SPEC…
       termbridge check-client [flags] -- CLIENT ARGV…   (check-client --help says more)
       termbridge --version

Ctl looks into a running agent and drives its terminals; "termbridge ctl --help"
says how.

Check-env runs commands in each environment as an agent would, compares what
happens with what must happen, and prints a table. It leaves nothing there. The
exit status is 0 if every case passed or was skipped, else 1.

SPEC is "local", or one of:
  ` + specs + `

Flags:
  --dir DIR      make files there; /tmp by default
  --alone        what a command leaves in the background ends with it (sandboxes do)
  --blind        the place has no /proc: what is left there is not known
  --no-terminal  ask for no terminals
  --failures     print only what failed
`

var specs = strings.ReplaceAll(launcher.Forms, "\n", "\n  ")

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "ctl" {
		p := ctl.Program{Name: "termbridge ctl", Stdin: stdin, Stdout: stdout, Stderr: stderr}
		return p.Main(ctx, args[1:])
	}
	if len(args) == 1 && args[0] == "--version" {
		fmt.Fprintln(stdout, version.Line("termbridge"))
		return exitOK
	}
	switch {
	case len(args) > 0 && args[0] == checkclient.Name:
		return checkclient.Run(ctx, "termbridge", args[1:], stdout, stderr)
	case len(args) == 0 && checkclient.Asked():
		return checkclient.Serve(ctx)
	}
	if len(args) == 0 || args[0] != "check-env" {
		out, status := stderr, exitUsage
		if len(args) == 1 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help") {
			out, status = stdout, exitOK
		}
		fmt.Fprint(out, usage)
		return status
	}
	fs := flag.NewFlagSet("check-env", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var c execenvtest.Config
	fs.StringVar(&c.Dir, "dir", "", "")
	fs.BoolVar(&c.Alone, "alone", false, "")
	fs.BoolVar(&c.Blind, "blind", false, "")
	fs.BoolVar(&c.NoTerminal, "no-terminal", false, "")
	failures := fs.Bool("failures", false, "")
	err := fs.Parse(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	if err == nil && fs.NArg() == 0 {
		err = errors.New("no SPEC")
	}
	if err != nil {
		fmt.Fprintf(stderr, "termbridge: %v\n\n%s", err, usage)
		return exitUsage
	}
	status := exitOK
	for _, spec := range fs.Args() {
		c := c
		if strings.HasPrefix(spec, "sandbox:") {
			c.Alone = true
		}
		switch err := check(ctx, spec, c, *failures, stdout); {
		case errors.Is(err, errSpec):
			fmt.Fprintf(stderr, "termbridge: %v\n", err)
			return exitUsage
		case err != nil:
			fmt.Fprintf(stderr, "termbridge: %s: %v\n", spec, err)
			status = exitFailed
		}
	}
	return status
}

// errSpec is the error of a SPEC that is none.
var errSpec = errors.New("bad SPEC")

// An executor can be closed.
type executor interface {
	execenv.Executor
	Close() error
}

func open(spec string) (executor, error) {
	if spec == "local" {
		return execenv.NewLocal(nil), nil
	}
	l, dir, err := launcher.Parse(spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSpec, err)
	}
	return launcher.New(l, &launcher.Options{Dir: dir}), nil
}

// check runs the suite in one environment. Its error says why it did not pass.
func check(ctx context.Context, spec string, c execenvtest.Config, failuresOnly bool, out io.Writer) (err error) {
	e, err := open(spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if _, local := e.(*execenv.Local); local {
		c.Signals, c.Ordered = true, true
	}
	c.Executor = e
	// What cannot be reached at all is one line, and not a failure of every case.
	if text, err := e.Command(ctx, execenv.Spec{Path: "/bin/sh", Args: []string{"-c", "exit 0"}, Group: true}).CombinedOutput(); err != nil {
		return fmt.Errorf("%w %s", err, text)
	}
	fmt.Fprintf(out, "%s\n\n", spec)
	var failed []execenvtest.Result
	passed, skipped := 0, 0
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, r := range execenvtest.Check(ctx, c, nil) {
		verdict := "ok"
		switch {
		case r.Failures != nil:
			verdict = "FAILED"
			failed = append(failed, r)
		case r.Skipped != "":
			verdict = "skipped: " + r.Skipped
			skipped++
		default:
			passed++
		}
		if !failuresOnly || r.Failures != nil {
			fmt.Fprintf(w, "%s\t%v\t%s\n", r.Name, r.Took.Round(time.Millisecond), verdict)
		}
	}
	w.Flush()
	for _, r := range failed {
		fmt.Fprintf(out, "\n%s: %s\n", r.Name, r.Rule)
		for _, f := range r.Failures {
			fmt.Fprintf(out, "  %s\n", f)
		}
	}
	fmt.Fprintf(out, "\n%d passed, %d skipped, %d failed\n\n", passed, skipped, len(failed))
	switch {
	case len(failed) > 0:
		return fmt.Errorf("%d cases failed", len(failed))
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case passed == 0:
		return errors.New("no case passed")
	}
	return nil
}
